"""Rows: the place in a slot that a sample's tensors are copied into as soon as it is made.

NOTE [ placed rows: samples are copied while they are in the cache ]
Until samples are collated a worker holds a batch of them, and reads each from memory again. So each is
copied into the slot as soon as it is made, and freed; the next sample finds the same memory in the
processor's cache. The tensors are those in tuples, lists and dicts of Python's own, or the sample itself.
1. default_collate stacks the tensors of all samples. The first sample of a batch says which tensors have
   rows; all are in the slot, or none.
2. The sample that is collated has the rows in the place of the tensors. Stacking a list of all rows in order
   is the stacked tensor itself; any other list is stacked as it is, into other memory.
3. A collate function of the program's own that made a batch of the samples' tensors, as they were, is given
   the next batch's with each tensor in the slot. What else it holds when the batch is to be sent, for itself,
   is seen by the slot's count of references: the batch gets a slot of its own, and no sample is placed again.
4. A row has what the tensor had when its sample was made. A Dataset that returns the same memory for each
   sample gets, from torch, the last sample in all rows.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from operator import is_
from typing import Any, TypeAlias

import torch

from fastload.engines.processes.serialization import Arena, memory_order, permuted_back

_Path: TypeAlias = tuple[Any, ...]
_Forms: TypeAlias = dict[_Path, tuple[torch.Size, torch.dtype]]
_LEAST = 1 << 14
"""Bytes of a tensor that is worth a row of its own."""
_DEPTH_MOST = 3
"""Containers in each other, down to which tensors are looked for."""


class PlacedRows:
    """The rows of one batch that is stacked. See NOTE [ placed rows: samples are copied while they are in
    the cache ].

    1. place() is called with each sample of the batch, in order.
    2. stacked() is called when the samples are collated.

    Args:
        arena: memory of the rows, which have no other.
        count: most samples of the batch.
    """

    def __init__(self, arena: Arena, count: int) -> None:
        self._arena, self._count = arena, count
        self._forms: _Forms | None = None  # those of the first sample
        self._stacks: dict[_Path, torch.Tensor] = {}
        self._rows: dict[_Path, list[torch.Tensor]] = {}

    @property
    def used(self) -> bool:
        """True if samples have rows."""
        return bool(self._rows)

    def place(self, sample: Any) -> Any:
        """The sample with rows in the place of its tensors; itself, where it has none for them, or others
        than the first sample."""
        tensors = _tensors(sample)
        forms = {path: (tensor.shape, tensor.dtype) for path, tensor in tensors.items()}
        if self._forms is None:
            self._forms = forms
            self._begin(sum(tensor.nbytes for tensor in tensors.values()))
        if not self._rows or forms != self._forms:
            return sample
        return _replaced(sample, {path: self._row(path, tensor) for path, tensor in tensors.items()})

    def stacked(self, batch: Sequence[Any]) -> torch.Tensor | None:
        """The tensor of which a list of tensors is the first rows; None where it is not."""
        for path, rows in self._rows.items():
            if rows and batch[0] is rows[0]:
                same = len(batch) <= len(rows) and all(map(is_, batch, rows))
                return self._stacks[path][: len(batch)] if same else None
        return None

    def _begin(self, size: int) -> None:
        """Makes room for the tensors of a batch of samples of `size` bytes each, if the arena has it."""
        if self._forms and size * self._count <= self._arena.room:
            for path, (shape, dtype) in self._forms.items():
                self._stacks[path] = self._arena.empty((self._count, *shape), dtype)
                self._rows[path] = []

    def _row(self, path: _Path, tensor: torch.Tensor) -> torch.Tensor:
        rows = self._rows[path]
        row = self._stacks[path][len(rows)]
        row.copy_(tensor)
        rows.append(row)
        return row


class PlacedTensors:
    """The tensors of one batch that is not stacked, each in memory of its own, as long as there is room. See
    NOTE [ placed rows: samples are copied while they are in the cache ].

    Attributes:
        used: True if a tensor was placed.
    """

    def __init__(self, arena: Arena) -> None:
        self._arena = arena
        self.used = False

    def place(self, sample: Any) -> Any:
        """The sample with tensors of the slot in the place of its own."""
        return _replaced(sample, {path: self._copied(each) for path, each in plain_tensors(sample).items()})

    def _copied(self, tensor: torch.Tensor) -> torch.Tensor:
        order = memory_order(tensor)
        if order is None or tensor.nbytes > self._arena.left:
            return tensor
        self.used = True
        shape = tuple(tensor.shape[each] for each in order)
        return permuted_back(self._arena.empty(shape, tensor.dtype), order).copy_(tensor)


def plain_tensors(sample: Any) -> dict[_Path, torch.Tensor]:
    """The tensors of a sample that are nothing but numbers that lie one after the other in memory, by the
    keys that lead to them."""
    return {
        path: tensor
        for path, tensor in _tensors(sample).items()
        if memory_order(tensor) is not None and not (tensor.is_conj() or tensor.is_neg() or tensor.__dict__)
    }


def _parts(value: Any, path: _Path) -> Iterable[tuple[Any, Any]] | None:
    """The values of a container in which tensors are looked for, by their keys; None for any other value."""
    kind = type(value)
    if len(path) == _DEPTH_MOST or kind not in (dict, tuple, list):
        return None
    items: Iterable[tuple[Any, Any]] = value.items() if kind is dict else enumerate(value)
    return items


def _tensors(value: Any, path: _Path = ()) -> dict[_Path, torch.Tensor]:
    """The tensors of a sample that have rows, by the keys that lead to them."""
    if type(value) is torch.Tensor:
        return {path: value} if _is_plain(value) else {}
    found: dict[_Path, torch.Tensor] = {}
    for key, part in _parts(value, path) or ():
        found |= _tensors(part, (*path, key))
    return found


def _is_plain(tensor: torch.Tensor) -> bool:
    return (
        not (tensor.is_nested or tensor.is_quantized or tensor.requires_grad)
        and tensor.layout is torch.strided
        and tensor.device.type == "cpu"
        and tensor.nbytes >= _LEAST
    )


def _replaced(value: Any, rows: dict[_Path, torch.Tensor], path: _Path = ()) -> Any:
    """A sample with rows in the places of its tensors, in containers of its own."""
    if path in rows:
        return rows[path]
    parts = _parts(value, path)
    if parts is None:
        return value
    made = {key: _replaced(part, rows, (*path, key)) for key, part in parts}
    return made if type(value) is dict else type(value)(made.values())
