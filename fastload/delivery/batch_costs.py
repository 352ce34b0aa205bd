"""What the way to the device and each step on whole batches costs: one batch, moved and transformed in the calling thread."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise
from typing import Any

import numpy as np
import torch

from fastload._native import core
from fastload.delivery.batch_steps import Key, Step
from fastload.delivery.finish import Finisher
from fastload.delivery.losses import Counts
from fastload.delivery.packed_epochs import native_view, output_for
from fastload.delivery.place import to_device
from fastload.delivery.transfer import Moving
from fastload.workers.bad_samples import NOTHING
from fastload.workers.threads import ThreadEngine

_RUNS = 3
"""Timed, after one that is not."""
_SECONDS = 60.0


def measure_batch(loader: Any, steps: Sequence[Step]) -> tuple[int, float, tuple[float, ...]] | None:
    """Rows of the batch, and mean seconds a sample: of moving it, and of each step; None where no batch could be made.

    Raises:
        Whatever making a batch, moving it or a step raises.
    """
    if not len(loader.dataset):
        return None
    batch, indices = _native_batch(loader) if native_view(loader) is not None else _python_batch(loader)
    if batch is NOTHING:
        return None
    moving: Moving = loader._fastload.moving(loader)
    key = Key(0, 0, 0, indices)
    spent = np.zeros(1 + len(steps))
    with torch.no_grad():
        for run in range(1 + _RUNS):
            taken = _once(moving, batch, steps, key)
            spent += taken if run else 0.0
    move, *each = (spent / _RUNS / max(len(indices), 1)).tolist()
    return len(indices), move, tuple(each)


def _once(moving: Moving, batch: Any, steps: Sequence[Step], key: Key) -> list[float]:
    times = [_now(moving.device)]
    if moving.device is not None:
        batch = to_device(batch, moving.device)
    times.append(_now(moving.device))
    for step in steps:
        batch = step(batch, key, moving.fields)
        times.append(_now(moving.device))
    return [b - a for a, b in pairwise(times)]


def _now(device: torch.device | None) -> float:
    """Once the device has done what it was given."""
    if device is not None and device.type != "cpu":
        ahead = torch.get_device_module(device)
        ahead.synchronize(device) if device.type == "cuda" else ahead.synchronize()
    return time.perf_counter()


def _rows(loader: Any) -> list[int]:
    """Positions for one batch of the loader's size, evenly over the dataset."""
    size = loader.batch_size or getattr(loader.batch_sampler, "batch_size", None) or 1
    count = len(loader.dataset)
    return sorted(set(np.linspace(0, count - 1, min(int(size), count)).astype(int).tolist()))


def _native_batch(loader: Any) -> tuple[Any, Any]:
    """As the engine gives it on the host; samples that cannot be made are left out."""
    view = native_view(loader)
    assert view is not None
    rows = _rows(loader)
    engine = ThreadEngine(view, 0, output_for(loader, view), 1, len(rows))
    try:
        delivery = replace(loader._fastload.packed.delivery(loader), moving=Moving(), on_error="skip", counts=Counts())
        finisher = Finisher(engine, delivery, 0, 0)
        batch = engine.announce(rows, 0, 0)
        batch.submit()
        core.wait_any([batch], _SECONDS)
        finished = finisher(0, batch)
        indices = () if finished.moved is None else finished.moved.key.indices
        return finisher.hand_over(finished), indices
    finally:
        engine.close()


def _python_batch(loader: Any) -> tuple[Any, list[int]]:
    rows = _rows(loader)
    samples = [loader.dataset[row] for row in rows]
    return loader.collate_fn(samples if loader._auto_collation else samples[0]), rows
