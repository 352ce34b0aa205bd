"""Ring: the last steps of a loop, as arrays; and the sample count and image size of a batch of any library, found without importing it.

The search does not use the walk of `fastload.batch.containers`: it runs at every step and needs only a shape. It also looks into mappings
and dataclasses, and only at a few parts of each container.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, fields, is_dataclass
from itertools import islice
from typing import Any

import numpy as np
import numpy.typing as npt

from fastload._native import core

_CHANNELS = (1, 3, 4)
_PLAIN = (int, float, str, bytes)
_PARTS = 8
"""Limit on the parts of a container that are searched: a list of a thousand strings must not cost a thousand looks at every step."""


def count_samples(batch: Any) -> int:
    """Samples in a batch: the length of its first tensor or array.

    Containers (mappings, lists, tuples, dataclasses) are searched in order, the first 8 parts of each. A tensor without dimensions
    counts 1. Without a tensor a mapping counts as its first sized value, anything else as its own `len()`, text and numbers as 1.
    """
    shape = _first_shape(batch)
    if shape is None:
        return _length(batch)
    return shape[0] if shape else 1


def _shape_of(part: Any) -> Any:
    try:
        return getattr(part, "shape", None)
    except Exception:  # a nested tensor raises an error
        return None


def _first_shape(batch: Any) -> tuple[int, ...] | None:
    head, kind = batch, type(batch)  # fast path for the usual cases: a tensor, (images, labels) and {"image": images}
    if kind is list or kind is tuple:
        head = batch[0] if batch else None
    elif kind is dict:
        head = next(iter(batch.values()), None)
    shape = None if type(head) in _PLAIN else _shape_of(head)
    return shape if isinstance(shape, tuple) else next(_shapes(batch), None)


def image_side(batch: Any) -> int | None:
    """The longer side of the batch's pictures: of the first tensor (N, C, H, W) or (N, H, W, C) of 1, 3 or 4 channels; None if none."""
    for shape in _shapes(batch):
        if len(shape) == 4:
            if shape[1] in _CHANNELS:
                return int(max(shape[2:]))
            if shape[3] in _CHANNELS:
                return int(max(shape[1:3]))
    return None


def _shapes(batch: Any) -> Iterator[tuple[int, ...]]:
    if type(batch) in _PLAIN:
        return
    shape = _shape_of(batch)
    if isinstance(shape, tuple):
        yield shape
        return
    for part in islice(_parts(batch), _PARTS):
        yield from _shapes(part)


def _parts(batch: Any) -> Iterable[Any]:
    if isinstance(batch, Mapping):
        return batch.values()
    if isinstance(batch, list | tuple):
        return batch
    if is_dataclass(batch) and not isinstance(batch, type):
        return (getattr(batch, field.name) for field in fields(batch))
    return ()


def _length(batch: Any) -> int:
    if isinstance(batch, str | bytes):
        return 1
    if isinstance(batch, Mapping):
        return next((_length(value) for value in batch.values() if not isinstance(value, str | bytes) and hasattr(value, "__len__")), 1)
    try:
        return len(batch)
    except Exception:  # no length, or another error: counting must not end a loop
        return 1


@dataclass(frozen=True)
class Steps:
    """The last steps of a loop, copied from a ring at one moment.

    Attributes:
        wait_s, step_s: float64, one entry a step, oldest first: seconds spent waiting for its batch, then working on it.
        samples: int64, number of samples in the step's batch.
        first: bool, whether the step's batch was the first of its epoch.
        steps, epochs, all_samples, all_wait_s, all_step_s: totals since the ring was made, forgotten steps included.
    """

    wait_s: npt.NDArray[np.float64]
    step_s: npt.NDArray[np.float64]
    samples: npt.NDArray[np.int64]
    first: npt.NDArray[np.bool_]
    steps: int
    epochs: int
    all_samples: int
    all_wait_s: float
    all_step_s: float


def steps_of(ring: core.StepRing) -> Steps:
    """The steps that the ring holds now."""
    wait_s, step_s, samples, at, totals = ring.copy()
    steps = totals[0]
    held, oldest = (steps, 0) if steps < ring.window else (ring.window, at)
    counted = np.roll(np.frombuffer(samples, np.int64)[:held], -oldest)
    first = counted < 0
    return Steps(
        np.roll(np.frombuffer(wait_s, np.float64)[:held], -oldest),
        np.roll(np.frombuffer(step_s, np.float64)[:held], -oldest),
        np.where(first, ~counted, counted),
        first,
        *totals,
    )
