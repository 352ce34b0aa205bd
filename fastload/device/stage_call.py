"""batch_transform=: what is done to a whole batch after it was moved, and with which random numbers.

NOTE [ batch steps: which thread ]
A step that has keyword-only parameters `seed`, `epoch` and `indices` (fastload.augment's AugmentBatch, MixUp, CutMix) draws from nothing
else, so it may run in the transfer's thread, ahead of the loop. Any other, by its `batch` parameter (fastload.augment's Seeded), is lent
the global generators for the call, which the loop uses too: it runs in the loop's own thread, when its batch is asked for.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from fastload.batch_tree import sequence_like
from fastload.device.to_float import Floats, Form
from fastload.errors import ArgumentError
from fastload.plan.torchvision import class_mistake, mixes

IMAGE, LABEL = "image", "label"


@dataclass(frozen=True)
class BatchKey:
    """What the random numbers of a batch follow from.

    Attributes:
        seed, epoch: of the pass.
        number: of the batch in its pass.
        indices: of the samples in their dataset, row by row; None where there are none.
    """

    seed: int
    epoch: int
    number: int
    indices: Sequence[int] | npt.NDArray[np.int64] | None


@dataclass(frozen=True)
class StageCall:
    """One callable and how it is called.

    Attributes:
        call: takes images, or images and labels, and returns the same.
        labels: whether it takes labels.
        keys: which of seed, epoch, indices, batch it is given.
    """

    call: Callable[..., Any]
    labels: bool = False
    keys: tuple[str, ...] = ()

    @property
    def ahead(self) -> bool:
        """It may run in another thread; see NOTE [ batch steps: which thread ]."""
        return "batch" not in self.keys

    def __call__(self, batch: Any, key: BatchKey, fields: tuple[str, str]) -> Any:
        given = {"seed": key.seed, "epoch": key.epoch, "batch": key.number, "indices": key.indices}
        if "indices" in self.keys and key.indices is None:
            raise ArgumentError(f"batch_transform: {self.call!r} needs the samples' indices, and this batch has none: wrap it in Seeded")
        keyed = {name: given[name] for name in self.keys}
        at = places(batch, fields)
        if at is None:
            return self.call(batch, **keyed)
        if not self.labels:
            return changed(batch, at[:1], (self.call(batch[at[0]], **keyed),))
        try:
            labels = batch[at[1]]
        except (IndexError, KeyError):
            raise ArgumentError(f"batch_transform: {self.call!r} takes labels, and this batch has none") from None
        return changed(batch, at, self.call(batch[at[0]], labels, **keyed))


Seeding = Callable[[Callable[..., Any]], Callable[..., Any]]


def stage_calls(entries: Sequence[Any], seeded: Seeding) -> tuple[StageCall, ...]:
    """The steps of a batch_transform.

    Args:
        entries: callables, in order; Floats and Form run as they are.
        seeded: wraps a callable that draws from the global generators (fastload.augment's Seeded).

    Raises:
        ArgumentError: an entry cannot be called.
    """
    return tuple(_step(entry, seeded) for entry in entries)


def _step(entry: Any, seeded: Seeding) -> StageCall:
    if isinstance(entry, Floats | Form):
        return StageCall(entry)
    if mistake := class_mistake(entry):
        raise ArgumentError(f"batch_transform: {mistake}")
    if not callable(entry):
        raise ArgumentError(f"batch_transform: {entry!r} cannot be called")
    keys = _keys(entry)
    if {"seed", "epoch", "indices"} <= set(keys) and "batch" not in keys:
        return StageCall(entry, _takes_labels(entry), keys)
    if {"seed", "epoch", "batch"} <= set(keys):
        return StageCall(entry, _takes_labels(getattr(entry, "transform", entry)), keys)
    return StageCall(seeded(entry), _takes_labels(entry), ("seed", "epoch", "batch"))


def _parameters(entry: Any) -> list[inspect.Parameter]:
    try:
        return list(inspect.signature(entry.forward if isinstance(entry, torch.nn.Module) else entry).parameters.values())
    except (TypeError, ValueError):  # some callables of C tell nothing
        return []


def _keys(entry: Any) -> tuple[str, ...]:
    names = {each.name for each in _parameters(entry) if each.kind is inspect.Parameter.KEYWORD_ONLY}
    return tuple(name for name in ("seed", "epoch", "indices", "batch") if name in names)


def _takes_labels(entry: Any) -> bool:
    """Two arguments by position are needed, or it is torchvision's and takes as many as it is given."""
    if mixes(entry):
        return True
    by_position = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    return sum(each.kind in by_position and each.default is inspect.Parameter.empty for each in _parameters(entry)) >= 2


def places(batch: Any, fields: tuple[str, str]) -> tuple[Any, Any] | None:
    """Where images and labels are, in a batch or a sample; None: it is passed whole."""
    if isinstance(batch, dict):
        return fields if fields[0] in batch else None
    return (0, 1) if isinstance(batch, list | tuple) and batch else None


def changed(batch: Any, at: Sequence[Any], values: Sequence[Any]) -> Any:
    """The batch with other values at these places; of the same type."""
    if isinstance(batch, dict):
        return {**batch, **dict(zip(at, values, strict=True))}
    out = list(batch)
    for place, value in zip(at, values, strict=True):
        out[place] = value
    return sequence_like(type(batch), out)
