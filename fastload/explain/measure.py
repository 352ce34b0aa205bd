"""Costs of a sample and of a batch, stage by stage: a short measurement in the calling thread, for
explain(measure=True)."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any

import numpy as np
import torch
from torch.utils.data import IterableDataset

from fastload._native import core
from fastload.batch.bad_samples import NOTHING, kept_state
from fastload.batch.containers import to_device
from fastload.common.positions import evenly_spaced
from fastload.dataset.native_source import NativeSource
from fastload.dataset.packed import PackedDataset
from fastload.dataset.values import steps_of, word_flips, wrapped
from fastload.dataset.view import NativeView
from fastload.device.stages import BatchKey, StageCall
from fastload.device.transfer import TransferPlan
from fastload.engines.iterator import LossCounts
from fastload.engines.plan import ExecutionPlan
from fastload.engines.settings import Settings
from fastload.engines.threads.assemble import BatchAssembler
from fastload.engines.threads.engine import ThreadEngine
from fastload.transforms.spec import Plan, to_pillow

_RUNS = 3
"""Timed, after one that is not."""
_BATCH_SECONDS = 60.0


def measure_batch(
    plan: ExecutionPlan, stages: Sequence[StageCall]
) -> tuple[int, float, tuple[float, ...]] | None:
    """Rows of the batch, and mean seconds a sample: of moving it, and of each stage; None where no batch
    could be made.

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


def _once(
    transfer_plan: TransferPlan, batch: object, stages: Sequence[StageCall], key: BatchKey
) -> list[float]:
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
    return evenly_spaced(count, int(size))


def _native_batch(plan: ExecutionPlan) -> tuple[Any, Any]:
    """A batch of native threads on the host; samples that cannot be made are left out."""
    assert plan.native is not None
    assert plan.outputs is not None
    rows = _rows(plan.settings)
    engine = ThreadEngine(plan.native, 0, plan.outputs, 1, len(rows))
    try:
        on_host = replace(plan, transfer=TransferPlan(), settings=replace(plan.settings, on_error="skip"))
        assembler = BatchAssembler(engine, engine.view, on_host, LossCounts(), 0, 0)
        batch = engine.announce(rows, 0, 0, layout=assembler.layout)
        batch.submit()
        core.wait_any([batch], _BATCH_SECONDS)
        assembled = assembler(0, batch)
        indices = () if assembled.transferred is None else assembled.transferred.key.indices
        return assembler.hand_over(assembled), indices
    finally:
        engine.close()


def _python_batch(settings: Settings) -> tuple[Any, list[int]]:
    rows = _rows(settings)
    samples = [settings.dataset[row] for row in rows]
    return settings.collate_fn(samples if settings.auto_collation else samples[0]), rows


SAMPLES = 64
"""At most, evenly spaced over the dataset; the first WARM are run once before."""
WARM = 4
_SECONDS = 60.0


@dataclass(frozen=True)
class Costs:
    """Mean seconds a sample; None is not measured.

    Attributes:
        samples: number of samples that were run.
        read, decode, write: seconds in the native part.
        pillow: seconds to make the Pillow image for Python, or the sample's tv_tensors.
        python: seconds in each Python step of the plan.
        item: seconds in dataset[i], if there is no plan.
        collate: a sample's share of a batch.
        move, stages: its share of the move to the device, and of each batch stage there.
        rows: number of rows in the batch with which move and stages were measured.
    """

    samples: int
    read: float | None = None
    decode: float | None = None
    write: float | None = None
    pillow: float | None = None
    python: tuple[float, ...] = ()
    item: float | None = None
    collate: float | None = None
    move: float | None = None
    stages: tuple[float, ...] = ()
    rows: int = 0


def measure(plan: ExecutionPlan, dataset: NativeSource | None, stages: Sequence[StageCall]) -> Costs | None:
    """Runs samples through the stages; None for an iterable dataset, which that would use up.

    Args:
        plan: the plan of the loader's epochs.
        dataset: the packed dataset whose plan is explained, or None if the loader's dataset makes its samples
            itself.
        stages: the batch stages.

    Raises:
        Whatever making a sample or a batch raises. The global generators of torch, random and NumPy are left
        as they were.
    """
    settings = plan.settings
    with kept_state():
        if dataset is None and isinstance(settings.dataset, IterableDataset):
            return None
        costs = _of_plan(plan, dataset) if dataset is not None else _of_items(settings)
        found = measure_batch(plan, stages) if stages or settings.device is not None else None
        if found is None:
            return costs
        rows, move, each = found
        return replace(costs, rows=rows, move=move, stages=each)


def _of_plan(execution: ExecutionPlan, dataset: NativeSource) -> Costs:
    if isinstance(dataset, PackedDataset) and dataset.lists is not None:  # its images one by one
        stored = dataset.lists.stored
        dataset = stored.delivering([stored.image_field], dataset.transform)
    indices, plan = evenly_spaced(len(dataset), SAMPLES), dataset.plan
    outputs = execution.outputs or dataset.images.outputs(plan, None, "CHW")
    native = _native(dataset, indices, outputs)
    if plan.native:
        return Costs(len(indices), *native)
    assert isinstance(dataset, PackedDataset)  # files in place have no Python steps
    seconds = np.zeros(1 + len(plan.python))
    for index in indices[:WARM]:
        _python(plan, dataset, index)
    images = []
    for index in indices:
        image, each = _python(plan, dataset, index)
        images.append(image)
        seconds += each
    each_mean = (seconds / max(len(indices), 1)).tolist()
    pillow = each_mean[0] if plan.pillow or dataset.takes_whole_samples else None
    return Costs(
        len(indices), *native, pillow, tuple(each_mean[1:]), collate=_collate(execution.settings, images)
    )


def _python(plan: Plan, dataset: PackedDataset, index: int) -> tuple[Any, list[float]]:
    """The finished image, or sample, and the seconds of each step; the first is that of making what the
    first step gets."""
    values = dataset.before_python(index, 0, 0)
    image = values[dataset.image_field]
    times = [time.perf_counter()]
    if dataset.takes_whole_samples:
        image = wrapped(plan, dataset.opened.reader.schema, values, dataset.assemble)
    elif plan.pillow:
        image = to_pillow(image)
    times.append(time.perf_counter())
    with word_flips(values.values()):
        for step in _steps(plan, dataset):
            image = step(image)
            times.append(time.perf_counter())
    return image, [b - a for a, b in pairwise(times)]


def _steps(plan: Plan, dataset: PackedDataset) -> Sequence[Callable[[Any], Any]]:
    if not dataset.takes_whole_samples:
        return plan.python
    return steps_of(plan, dataset.opened.reader.schema, dataset.fields, dataset.assemble)


def _native(
    dataset: NativeSource, indices: list[int], outputs: list[core.Output]
) -> tuple[float | None, float | None, float | None]:
    """Seconds of reading, decoding and writing, by the engine's own clocks; None each where no sample
    could be made."""
    engine = ThreadEngine(NativeView((dataset,)), 0, outputs, 1, 1)
    try:
        before = engine.core.counters()
        for index in indices[:WARM]:
            _run(engine, index)
        before = engine.core.counters()
        done = sum(_run(engine, index) for index in indices)
        after = engine.core.counters()
    finally:
        engine.close()
    if not done:
        return None, None, None
    read, decode, write = (
        (after[f"{stage}_ns"] - before[f"{stage}_ns"]) / done / 1e9 for stage in ("read", "decode", "resize")
    )
    return read, decode, write


def _run(engine: ThreadEngine, index: int) -> bool:
    """One sample, as a batch of one; whether it could be made."""
    batch = engine.announce([index], 0, 0)
    batch.submit()
    core.wait_any([batch], _SECONDS)
    return not batch.failures()


def _of_items(settings: Settings) -> Costs:
    indices = evenly_spaced(len(settings.dataset), SAMPLES)
    for index in indices[:WARM]:
        settings.dataset[index]
    began = time.perf_counter()
    samples = [settings.dataset[index] for index in indices]
    item = (time.perf_counter() - began) / max(len(samples), 1)
    return Costs(len(indices), item=item, collate=_collate(settings, samples))


def _collate(settings: Settings, samples: list[Any]) -> float | None:
    """A sample's share of collating a batch of the loader's size, or of as many as there are."""
    batch = samples[: settings.batch_size or len(samples)]
    if not batch or not settings.auto_collation:
        return None
    settings.collate_fn(batch[:1])
    began = time.perf_counter()
    settings.collate_fn(batch)
    return (time.perf_counter() - began) / len(batch)
