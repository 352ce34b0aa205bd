"""Cost of moving a batch to its device and of each batch stage, measured on one batch in the calling thread."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise
from typing import Any

import numpy as np
import torch

from fastload._native import core
from fastload.batch.bad_samples import NOTHING, Counts
from fastload.batch.containers import to_device
from fastload.device.stages import BatchKey, StageCall
from fastload.device.transfer import TransferPlan
from fastload.engines.plan import ExecutionPlan
from fastload.engines.settings import Settings
from fastload.engines.threads.assemble import BatchAssembler
from fastload.engines.threads.engine import ThreadEngine

_RUNS = 3
"""Timed, after one that is not."""
_SECONDS = 60.0


def measure_batch(plan: ExecutionPlan, stages: Sequence[StageCall]) -> tuple[int, float, tuple[float, ...]] | None:
    """Rows of the batch, and mean seconds a sample: of moving it, and of each stage; None where no batch could be made.

    Raises:
        Whatever making a batch, moving it or a stage raises.
    """
    settings, transfer_plan = plan.settings, plan.transfer
    if not len(settings.dataset):
        return None
    batch, indices = _native_batch(plan) if plan.native is not None else _python_batch(settings)
    if batch is NOTHING:
        return None
    key = BatchKey(0, 0, 0, indices)
    seconds = np.zeros(1 + len(stages))
    with torch.no_grad():
        for run in range(1 + _RUNS):
            taken = _once(transfer_plan, batch, stages, key)
            seconds += taken if run else 0.0
    move, *each = (seconds / _RUNS / max(len(indices), 1)).tolist()
    return len(indices), move, tuple(each)


def _once(transfer_plan: TransferPlan, batch: Any, stages: Sequence[StageCall], key: BatchKey) -> list[float]:
    times = [_now(transfer_plan.device)]
    if transfer_plan.device is not None:
        batch = to_device(batch, transfer_plan.device)
    times.append(_now(transfer_plan.device))
    for stage in stages:
        batch = stage(batch, key, transfer_plan.fields)
        times.append(_now(transfer_plan.device))
    return [b - a for a, b in pairwise(times)]


def _now(device: torch.device | None) -> float:
    """Once the device has done what it was given."""
    if device is not None and device.type != "cpu":
        ahead = torch.get_device_module(device)
        ahead.synchronize(device) if device.type == "cuda" else ahead.synchronize()
    return time.perf_counter()


def _rows(settings: Settings) -> list[int]:
    """Positions for one batch of the loader's size, evenly over the dataset."""
    size = settings.batch_size or getattr(settings.batch_sampler, "batch_size", None) or 1
    count = len(settings.dataset)
    return sorted(set(np.linspace(0, count - 1, min(int(size), count)).astype(int).tolist()))


def _native_batch(plan: ExecutionPlan) -> tuple[Any, Any]:
    """As the engine gives it on the host; samples that cannot be made are left out."""
    assert plan.native is not None
    assert plan.outputs is not None
    rows = _rows(plan.settings)
    engine = ThreadEngine(plan.native, 0, plan.outputs, 1, len(rows))
    try:
        on_host = replace(plan, transfer=TransferPlan(), settings=replace(plan.settings, on_error="skip"))
        assembler = BatchAssembler(engine, engine.view, on_host, Counts(), 0, 0)
        batch = engine.announce(rows, 0, 0, layout=assembler.layout)
        batch.submit()
        core.wait_any([batch], _SECONDS)
        assembled = assembler(0, batch)
        indices = () if assembled.transferred is None else assembled.transferred.key.indices
        return assembler.hand_over(assembled), indices
    finally:
        engine.close()


def _python_batch(settings: Settings) -> tuple[Any, list[int]]:
    rows = _rows(settings)
    samples = [settings.dataset[row] for row in rows]
    return settings.collate_fn(samples if settings.auto_collation else samples[0]), rows
