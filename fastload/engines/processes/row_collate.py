"""Row-wise collation: each leaf of a sample is written into its row of a batch, so that several workers can
fill one batch.

It covers what default_collate turns into tensors and lists: dicts, lists, tuples and named tuples of tensors,
arrays, numbers and strings. Where a sample is of another kind, or unlike the first, one worker collates the
whole batch by default_collate itself, errors included.

It does not use the walks of `fastload.batch.containers`, because it follows a layout: a leaf may also be an
array, a number or a string, the type of a container must be exactly that of the first sample, and a sequence
becomes what default_collate makes of it.
"""

from __future__ import annotations

import pickle
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from fastload._native import core
from fastload.engines.processes.serialization import DTYPES, aligned, rebuild_tensor

_CODES = {dtype: code for code, dtype in enumerate(DTYPES)}
_NUMBERS: dict[type, torch.dtype] = {int: torch.int64, float: torch.float64, bool: torch.bool}


@dataclass(frozen=True)
class Leaf:
    """One tensor of the batch, or one list of strings (code -1). `kind` is the type of the sample's value;
    `shape` is that of one row."""

    kind: type
    code: int
    shape: tuple[int, ...]

    @property
    def row_bytes(self) -> int:
        """Bytes of one row."""
        if self.code < 0:
            return 0
        count = 1
        for side in self.shape:
            count *= side
        return count * DTYPES[self.code].itemsize


@dataclass(frozen=True)
class SampleLayout:
    """Structure of a sample and its batch: containers as (kind, keys, children), leaves by their number."""

    template: object
    leaves: tuple[Leaf, ...]

    def bytes(self, rows: int) -> int:
        """Size in bytes of a slot for that many rows."""
        return self.offsets(rows)[-1]

    @property
    def travels(self) -> bool:
        """True if the layout can be pickled: a local class of named tuples cannot, nor can some keys."""
        try:
            return bool(pickle.loads(pickle.dumps(self)) == self)
        except Exception:
            return False

    def offsets(self, rows: int) -> list[int]:
        """The offset of each leaf in the slot, and at last the end of the last leaf."""
        at, out = 0, []
        for leaf in self.leaves:
            out.append(at)
            at = aligned(at + rows * leaf.row_bytes)
        return [*out, at]


def describe(sample: object) -> SampleLayout | None:
    """The layout of batches of samples like this one; None if they cannot be collated row by row."""
    leaves: list[Leaf] = []
    template = _describe(sample, leaves)
    if template is None or not any(leaf.code >= 0 for leaf in leaves):
        return None
    return SampleLayout(template, tuple(leaves))


def _describe(value: Any, leaves: list[Leaf]) -> object:
    kind = type(value)
    if kind is dict:
        return _container(kind, tuple(value), list(value.values()), leaves)
    if kind in (list, tuple) or (isinstance(value, tuple) and hasattr(value, "_fields")):
        return _container(kind, len(value), list(value), leaves)
    leaf = _leaf(value)
    if leaf is None:
        return None
    leaves.append(leaf)
    return len(leaves) - 1


def _container(kind: type, keys: object, children: list[Any], leaves: list[Leaf]) -> object:
    described = [_describe(child, leaves) for child in children]
    return None if any(child is None for child in described) else (kind, keys, described)


def _leaf(value: Any) -> Leaf | None:
    kind = type(value)
    if kind is torch.Tensor and not value.is_nested:
        plain = (
            value.layout is torch.strided
            and value.device.type == "cpu"
            and not value.requires_grad
            and not value.is_conj()
        )
        code = _CODES.get(value.dtype, -1)
        if not plain or code < 0 or value.is_neg() or not value.numel():
            return None
        return Leaf(kind, code, tuple(value.shape))
    if kind is np.ndarray:
        if (
            value.dtype.kind not in "biufc"
            or not value.dtype.isnative
            or not value.size
            or any(step < 0 for step in value.strides)
        ):
            return None
        try:
            code = _CODES[torch.from_numpy(np.empty(0, value.dtype)).dtype]
        except (TypeError, KeyError):
            return None
        return Leaf(kind, code, value.shape)
    if kind in _NUMBERS:
        return Leaf(kind, _CODES[_NUMBERS[kind]], ())
    return Leaf(kind, -1, ()) if kind in (str, bytes) else None


def flatten(sample: object, layout: SampleLayout) -> list[Any] | None:
    """The leaves of a sample in the layout's order; None if the sample has another layout."""
    values: list[Any] = []
    if not _flatten(sample, layout.template, values):
        return None
    for value, leaf in zip(values, layout.leaves, strict=True):
        if leaf.code < 0 or leaf.kind in _NUMBERS:
            if type(value) is not leaf.kind:
                return None
        elif _leaf(value) != leaf:
            return None
    return values


def _flatten(value: Any, template: Any, out: list[Any]) -> bool:
    if isinstance(template, int):
        out.append(value)
        return True
    kind, keys, children = template
    if type(value) is not kind:
        return False
    if kind is dict:
        # 1 == True == 1.0.
        same = tuple(value) == keys and all(type(a) is type(b) for a, b in zip(value, keys, strict=True))
        return same and all(
            _flatten(value[key], child, out) for key, child in zip(keys, children, strict=True)
        )
    return len(value) == keys and all(
        _flatten(each, child, out) for each, child in zip(value, children, strict=True)
    )


class RowWriter:
    """Views of one batch's slot as arrays that rows are written into."""

    def __init__(self, layout: SampleLayout, slot: core.SharedSlot, rows: int) -> None:
        self.layout = layout
        self._views: list[Any] = []
        for leaf, at in zip(layout.leaves, layout.offsets(rows), strict=False):
            if leaf.code < 0:
                self._views.append(None)
                continue
            count = rows * leaf.row_bytes // DTYPES[leaf.code].itemsize
            flat = torch.frombuffer(slot, dtype=DTYPES[leaf.code], count=count, offset=at).view(
                rows, *leaf.shape
            )
            self._views.append(flat if leaf.kind is torch.Tensor else flat.numpy())

    def write(self, row: int, values: list[Any]) -> list[Any]:
        """Writes a sample's leaves into their row, and returns those that are strings. Raises
        OverflowError for an int beyond 64 bits."""
        strings = []
        for value, view in zip(values, self._views, strict=True):
            if view is None:
                strings.append(value)
            elif type(value) is torch.Tensor:
                view[row].copy_(value)
            else:
                view[row] = value
        return strings


def batch_of(
    layout: SampleLayout, rows: int, strings: list[list[Any]], keep: list[int] | None = None
) -> object:
    """Builds the finished batch, as default_collate would return it. Called inside opened() of its slot.

    Args:
        rows: number of rows in the slot.
        strings: the strings of the rows that were made, in order.
        keep: the rows that were made, if not all were: the batch is then a copy of these. None: all rows, as
            views of the slot.
    """
    offsets = layout.offsets(rows)
    lists = iter(range(len(layout.leaves)))

    def build(template: Any, strings_as: type = list) -> object:
        if isinstance(template, int):
            leaf = layout.leaves[template]
            if leaf.code < 0:
                column = next(lists)
                return strings_as(row[column] for row in strings)
            whole = rebuild_tensor(offsets[template], leaf.code, (rows, *leaf.shape), None)
            return whole if keep is None else whole[keep]
        kind, keys, children = template
        # default_collate transposes sequences by zip.
        built = [build(child, list if kind is dict else tuple) for child in children]
        if kind is dict:
            return dict(zip(keys, built, strict=True))
        return kind(*built) if hasattr(kind, "_fields") else built

    return build(layout.template)
