"""What a sample costs, stage by stage: a short measurement in the calling thread, for explain(measure=True). Batches: batch_costs."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any

import numpy as np
from torch.utils.data import IterableDataset

from fastload._native import core
from fastload.batch.bad_samples import kept_state
from fastload.dataset.packed import PackedDataset
from fastload.dataset.values import steps_of, word_flips, wrapped
from fastload.dataset.view import NativeDataset, PackedView
from fastload.device.stages import StageCall
from fastload.engines.plan import ExecutionPlan
from fastload.engines.settings import Settings
from fastload.engines.threads.engine import ThreadEngine
from fastload.explain.measure_batch import measure_batch
from fastload.transforms.spec import Plan, to_pillow

SAMPLES = 64
"""At most, evenly spaced over the dataset; the first WARM are run once before."""
WARM = 4
_SECONDS = 60.0


@dataclass(frozen=True)
class Costs:
    """Mean seconds a sample; None is not measured.

    Attributes:
        samples: how many were run.
        read, decode, write: of the native part.
        pillow: the Pillow image for Python, or the sample's tv_tensors.
        python: of each Python step of the plan.
        item: dataset[i], where there is no plan.
        collate: a sample's share of a batch.
        move, stages: its share of the move to the device, and of each batch stage there.
        rows: of the batch that move and stages were measured with.
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


def measure(plan: ExecutionPlan, dataset: NativeDataset | None, stages: Sequence[StageCall]) -> Costs | None:
    """Runs samples through the stages; None for an iterable dataset, which that would use up.

    Args:
        plan: how the loader's epochs run.
        dataset: the packed dataset whose plan is explained, or None where the loader's dataset makes samples its own way.
        stages: the batch stages.

    Raises:
        Whatever making a sample or a batch raises. The global generators of torch, random and NumPy are left as they were.
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


def _spaced(count: int) -> list[int]:
    return sorted(set(np.linspace(0, count - 1, min(SAMPLES, count)).astype(int).tolist())) if count else []


def _of_plan(execution: ExecutionPlan, dataset: NativeDataset) -> Costs:
    indices, plan = _spaced(len(dataset)), dataset.plan
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
    return Costs(len(indices), *native, pillow, tuple(each_mean[1:]), collate=_collate(execution.settings, images))


def _python(plan: Plan, dataset: PackedDataset, index: int) -> tuple[Any, list[float]]:
    """The finished image, or sample, and the seconds of each step; the first is that of making what the first step gets."""
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


def _native(dataset: NativeDataset, indices: list[int], outputs: list[core.Output]) -> tuple[float | None, float | None, float | None]:
    """Seconds of reading, decoding and writing, by the engine's own clocks; None each where no sample could be made."""
    engine = ThreadEngine(PackedView((dataset,)), 0, outputs, 1, 1)
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
    read, decode, write = ((after[f"{stage}_ns"] - before[f"{stage}_ns"]) / done / 1e9 for stage in ("read", "decode", "resize"))
    return read, decode, write


def _run(engine: ThreadEngine, index: int) -> bool:
    """One sample, as a batch of one; whether it could be made."""
    batch = engine.announce([index], 0, 0)
    batch.submit()
    core.wait_any([batch], _SECONDS)
    return not batch.failures()


def _of_items(settings: Settings) -> Costs:
    indices = _spaced(len(settings.dataset))
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
