"""torch's own functions that fastload does the work of: default_collate, and what Subset, ConcatDataset and the samplers do.

Where one was replaced, or default_collate's table of functions was changed, torch's way is taken with it, whatever it does now. See NOTE
[ originals: how replaced code is found ].
"""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np
import torch
from torch.utils.data import ConcatDataset, Subset
from torch.utils.data._utils import collate

from fastload.originals import OwnCode

_COLLATE = OwnCode("torch.utils.data._utils.collate")
_TABLE = {
    torch.Tensor: "collate_tensor_fn",
    np.ndarray: "collate_numpy_array_fn",
    float: "collate_float_fn",
    int: "collate_int_fn",
    str: "collate_str_fn",
    bytes: "collate_str_fn",
}
"""By type, torch's function for a list of such values."""
_COLLATED: tuple[type, ...] = (*_TABLE, np.generic, bool, tuple, list, dict)
"""Types that values of a batch have here. A program may have entries for other types, which change no batch of these."""
_PARTS = OwnCode((Subset, ("__getitem__", "__getitems__")), (ConcatDataset, ("__getitem__",)))


def collate_replaced() -> str:
    """What of default_collate and default_convert is not torch's own, as a clause; "" where all is."""
    return _COLLATE.replaced() or _table_changed()


def _table_changed() -> str:
    table: dict[Any, Any] = collate.default_collate_fn_map
    if any(table.get(kind) is not getattr(collate, name) for kind, name in _TABLE.items()):
        changed = next(kind for kind, name in _TABLE.items() if table.get(kind) is not getattr(collate, name))
        return f"default_collate_fn_map has another function for {changed.__name__}"
    for key, function in table.items():
        if key not in _TABLE and function is not collate.collate_numpy_scalar_fn:
            for kind in key if isinstance(key, tuple) else (key,):
                if any(issubclass(kind, each) or issubclass(each, kind) for each in _COLLATED):
                    return f"default_collate_fn_map has a function for {kind.__name__}"
    return ""


def part_replaced(dataset: Any) -> str:
    """What of a Subset or a ConcatDataset is not torch's own, as a clause; "" where all is."""
    return "its own __getitems__ was replaced" if "__getitems__" in vars(dataset) else _PARTS.replaced()


def iterates_as_defined(kind: type) -> bool:
    """Whether the iteration of a sampler's class is what its library defines."""
    return not _iteration(kind).replaced()


@cache
def _iteration(kind: type) -> OwnCode:
    return OwnCode(*((each, ("__iter__",)) for each in kind.__mro__ if "__iter__" in vars(each) and each is not object))
