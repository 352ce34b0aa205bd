"""PlacedRows: large tensors of a batch's samples, copied into the batch's slot as each sample is made.

NOTE [ placed rows: samples are copied while they are in the cache ]
default_collate stacks the tensors of all samples: until then a worker holds a batch of them, and reads each
from memory again. So each is copied into its row as soon as its sample is made, and freed; the next sample
finds the same memory in the processor's cache.
1. The first sample of a batch says which tensors have rows: those in tuples, lists and dicts of Python's
   own, or the sample itself. They are in the slot, or there are none.
2. The sample that is collated has the rows in the place of the tensors. Stacking a list of all rows in order
   is the stacked tensor itself; any other list is stacked as it is, into other memory.
3. A row has what the tensor had when its sample was made. A Dataset that returns the same memory for each
   sample gets, from torch, the last sample in all rows.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import torch

from fastload.engines.processes.serialization import Arena

_LEAST = 1 << 14
"""Bytes of a tensor that is worth a row of its own."""
_DEPTH_MOST = 3
"""Containers in each other, down to which tensors are looked for."""


class PlacedRows:
    """The rows of one batch. See NOTE [ placed rows: samples are copied while they are in the cache ].

    1. place() is called with each sample of the batch, in order.
    2. stacked() is called when the samples are collated.

    Args:
        arena: memory of the rows, which have no other.
        count: most samples of the batch.
    """

    def __init__(self, arena: Arena, count: int) -> None:
        self._arena, self._count = arena, count
        self._stacks: dict[Any, torch.Tensor] | None = None  # None before the first sample
        self._rows: dict[Any, list[torch.Tensor]] = {}

    @property
    def used(self) -> bool:
        """True if samples have rows."""
        return bool(self._rows)

    def place(self, sample: Any) -> Any:
        """The sample with rows in the place of its tensors; itself, where it has no tensors for them."""
        if self._stacks is None:
            self._stacks = self._begun(sample)
            self._rows = {key: [] for key in self._stacks}
        if not self._stacks or not self._fits(sample):
            return sample
        return _replaced(sample, {key: self._row(key, tensor) for key, tensor in _tensors(sample)})

    def stacked(self, batch: Sequence[Any]) -> torch.Tensor | None:
        """The tensor of which a list of tensors is the first rows; None where it is not."""
        for key, rows in self._rows.items():
            if rows and batch[0] is rows[0]:
                if len(batch) <= len(rows) and all(map(_same, batch, rows)):
                    assert self._stacks is not None
                    return self._stacks[key][: len(batch)]
                return None
        return None

    def _begun(self, sample: Any) -> dict[Any, torch.Tensor]:
        """Memory for the tensors of a batch whose first sample this is; none, if there is no room."""
        forms = {key: (tensor.shape, tensor.dtype, tensor.nbytes) for key, tensor in _tensors(sample)}
        if sum(size for _, _, size in forms.values()) * self._count > self._arena.room:
            return {}
        return {
            key: self._arena.empty((self._count, *shape), dtype) for key, (shape, dtype, _) in forms.items()
        }

    def _fits(self, sample: Any) -> bool:
        """Returns True if a sample has a tensor for each stack, of its form, and for no other."""
        assert self._stacks is not None
        forms = {key: (self._count, *tensor.shape, tensor.dtype) for key, tensor in _tensors(sample)}
        return forms == {key: (*stack.shape, stack.dtype) for key, stack in self._stacks.items()}

    def _row(self, key: Any, tensor: torch.Tensor) -> torch.Tensor:
        assert self._stacks is not None
        rows = self._rows[key]
        row = self._stacks[key][len(rows)]
        row.copy_(tensor)
        rows.append(row)
        return row


def _same(one: object, other: object) -> bool:
    return one is other


def _tensors(sample: Any, path: tuple[Any, ...] = ()) -> list[tuple[tuple[Any, ...], torch.Tensor]]:
    """The tensors of a sample that have rows, with the keys by which they are reached."""
    kind = type(sample)
    if kind is torch.Tensor:
        return [(path, sample)] if _is_plain(sample) else []
    parts: Iterable[tuple[Any, Any]]
    if kind is dict:
        parts = sample.items()
    elif kind in (tuple, list):
        parts = enumerate(sample)
    else:
        return []
    if len(path) == _DEPTH_MOST:
        return []
    return [found for key, value in parts for found in _tensors(value, (*path, key))]


def _is_plain(tensor: torch.Tensor) -> bool:
    return (
        not (tensor.is_nested or tensor.is_quantized or tensor.requires_grad)
        and tensor.layout is torch.strided
        and tensor.device.type == "cpu"
        and tensor.nbytes >= _LEAST
    )


def _replaced(sample: Any, rows: dict[tuple[Any, ...], torch.Tensor], path: tuple[Any, ...] = ()) -> Any:
    """The sample with rows in the places of its tensors; containers in which there are some are new."""
    if path in rows:
        return rows[path]
    kind = type(sample)
    if kind is dict and len(path) < _DEPTH_MOST:
        return {key: _replaced(value, rows, (*path, key)) for key, value in sample.items()}
    if kind in (tuple, list) and len(path) < _DEPTH_MOST:
        return kind(_replaced(value, rows, (*path, key)) for key, value in enumerate(sample))
    return sample
