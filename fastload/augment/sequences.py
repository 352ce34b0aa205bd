"""Sequences of Kornia's modules, taken apart: each module is an op, with parameters per sample.

NOTE [ sequences: what is honoured, and what is refused ]
Taken apart are AugmentationSequential, ImageSequential and nn.Sequential, also inside one another, of exactly
these classes. data_keys of the outermost say which objects move (fastload.augment.data_keys). same_on_batch
and keepdim are settings of the modules, to which Kornia passes them on. random_apply_weights,
if_unsupported_ops and what a sequence notes of its last call have no effect on what a batch becomes. Anything
else that differs from a sequence without arguments (random_apply, extra_args,
transformation_matrix_mode="rigid", hooks, replaced methods) keeps it in one piece. The sequence itself is not
called: its `_params` and `transform_matrix` stay as they are.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from torch import nn

from fastload.augment.by_params import KorniaOp, NotPerSample
from fastload.augment.kornia_classes import is_kornia, library

_NEUTRAL = frozenset(
    """
    _modules training data_keys transform_op _same_on_batch _keepdim random_apply_weights if_unsupported_ops
    _params _transform_matrix
    _transform_matrices _output_image _disable_features input_dtype mask_dtype
    """.split()
)
"""Attributes of a sequence that have no effect, or are honoured."""
_MATRIX_MODE = "_transformation_matrix_arg"


def is_of_kornia(value: object) -> bool:
    """Returns True for a module or sequence of Kornia's, and for an nn.Sequential that holds one."""
    return is_kornia(value) or (isinstance(value, nn.Sequential) and any(map(is_kornia, value.modules())))


def takes_dicts(value: object) -> bool:
    """Returns True for an AugmentationSequential whose calls take dicts: its data_keys are None."""
    found = library()
    return found is not None and isinstance(value, found.AugmentationSequential) and value.data_keys is None


def data_keys_of(value: object) -> tuple[str, ...] | None:
    """Data keys of an AugmentationSequential, in lower case; None: it is none, or its calls take dicts."""
    found = library()
    keys: Any = (
        value.data_keys if found is not None and isinstance(value, found.AugmentationSequential) else None
    )
    return None if keys is None else tuple(key.name.lower() for key in keys)


def ops_of(value: Any, data_keys: Sequence[str] | None = None) -> list[KorniaOp]:
    """The ops of a module of Kornia's, or of a sequence, in order. See NOTE [ sequences: what is honoured,
    and what is refused ].

    Raises:
        NotPerSample: the value, or a part of it, does not run per sample.
    """
    if not _is_plain(value):
        return [KorniaOp(value, data_keys)]
    if option := _option(value):
        raise NotPerSample(value, f"its {option.strip('_')} is not the default")
    keys = data_keys_of(value) if data_keys is None else data_keys
    # Kornia runs a module once that is there twice.
    parts = list(value) if type(value) is nn.Sequential else value.children()
    return [op for part in parts for op in ops_of(part, keys)]


def _is_plain(value: object) -> bool:
    """Returns True for a sequence whose class is exactly one of those that are taken apart."""
    found = library()
    kinds = () if found is None else (found.AugmentationSequential, found.ImageSequential)
    return type(value) in (nn.Sequential, *kinds)


def _option(sequence: object) -> str:
    """The first attribute of a sequence that may have an effect, and is not as in a sequence without
    arguments; "" if there is none."""
    default = vars(type(sequence)())
    own = {name: value for name, value in vars(sequence).items() if name not in _NEUTRAL}
    if own.get(_MATRIX_MODE, "rigid") != "rigid":
        del own[_MATRIX_MODE]
    return next(
        (name for name, value in own.items() if name not in default or repr(value) != repr(default[name])), ""
    )
