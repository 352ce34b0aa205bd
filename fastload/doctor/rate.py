"""Check of the rate at which native threads make images of a dataset's samples, and of the step's need."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from fastload._native import core
from fastload.bench.measure import OthersTime
from fastload.common.limits import default_max_pixels
from fastload.doctor.finding import Finding, judged
from fastload.doctor.job import PREFETCH, Job
from fastload.store.field import Field
from fastload.store.reader import DatasetReader
from fastload.transforms import RandomHorizontalFlip, RandomResizedCrop
from fastload.transforms.compiler import compile_plan
from fastload.transforms.spec import Planes, outputs_of

ROUNDS = 5
SECONDS = 0.4
"""Least seconds of a round."""
FALLBACKS = 0.1
"""Share of images that the slower decoder makes from which packing the dataset anew is worth it."""
OTHERS = 0.1
"""Share of the machine's CPU time for others from which a rate is disturbed."""
CLOSE = 0.1
"""Rates within this share of each other, or within the spread of the rounds, are too close to call."""
_QUEUE = 4096
_BATCH_SECONDS = 120.0


@dataclass(frozen=True)
class Rate:
    """Rate of decoding.

    Attributes:
        samples_per_s: samples a second of all threads, the median over rounds.
        spread: half the range of the rounds' rates over their median.
        failed: samples that could not be made, of `samples`.
        samples: samples that were used.
        fallbacks: share of them that libjpeg-turbo decoded, the slower decoder.
        others: share of the machine's CPU time that other processes took meanwhile; None: unknown.
    """

    samples_per_s: float
    spread: float
    failed: int
    samples: int
    fallbacks: float
    others: float | None

    @property
    def disturbed(self) -> bool:
        """True if others took so much of the CPUs that the rate may be higher without them."""
        return self.others is not None and self.others > OTHERS


def measure_rate(reader: DatasetReader, image: Field, indices: Sequence[int], job: Job) -> Rate:
    """Makes images of samples again and again: decoded, RandomResizedCrop, flip, written into batches, as the
    loader's threads do.

    A first pass, which is not timed, brings what the samples need into the page cache. Nothing needs torch.

    Raises:
        DatasetError, TransformError: no image can be made.
        LoaderTimeout: a batch takes more than two minutes.
    """
    plan = compile_plan([RandomResizedCrop(job.size), RandomHorizontalFlip()])
    planes = Planes(image.name, image.channels, np.dtype(image.dtype).itemsize) if image.is_planes else None
    outputs = outputs_of(plan, None, "CHW", planes)
    source = core.Source(
        reader.store, list(plan.programs), reader.manifest.image_number, default_max_pixels()
    )
    rows = np.resize(np.asarray(indices, np.uint64), max(len(indices), PREFETCH * job.batch_size))
    batches = [rows[first : first + job.batch_size] for first in range(0, len(rows), job.batch_size)]
    sizes = [(job.size, job.size)]
    engine = core.Engine(
        [source],
        job.workers,
        _QUEUE,
        core.Ring(PREFETCH + 1, core.batch_bytes(job.batch_size, sizes, outputs)),
    )
    try:
        failed = _pass(engine, batches, outputs, sizes, 0)
        before, busy = engine.counters(), OthersTime()
        rates = [_round(engine, batches, outputs, sizes) for _ in range(ROUNDS)]
        after, others = engine.counters(), busy.share()
    finally:
        engine.close()
    made = max(1, after["samples"] - before["samples"])
    middle = float(np.median(rates))
    fallbacks = (after["fallbacks"] - before["fallbacks"]) / made
    return Rate(
        middle, (max(rates) - min(rates)) / 2 / middle, len(failed), len(set(indices)), fallbacks, others
    )


ImageSizes = list[tuple[int, int]]


def _round(
    engine: core.Engine, batches: Sequence[np.ndarray], outputs: list[core.Output], sizes: ImageSizes
) -> float:
    """Samples a second of as many passes as fill a round."""
    began, done, epoch = time.perf_counter(), 0, 1
    while not done or time.perf_counter() - began < SECONDS:
        _pass(engine, batches, outputs, sizes, epoch)
        done += sum(map(len, batches))
        epoch += 1
    return done / (time.perf_counter() - began)


def _pass(
    engine: core.Engine,
    batches: Sequence[np.ndarray],
    outputs: list[core.Output],
    sizes: ImageSizes,
    epoch: int,
) -> set[int]:
    """Makes all batches, as many in flight as the loader has. Returns the samples that could not be made."""
    flying: deque[core.Batch] = deque()
    failed: set[int] = set()
    for rows in [*batches, *[None] * PREFETCH]:
        if len(flying) == PREFETCH or rows is None:
            if not flying:
                break
            batch = flying.popleft()
            core.wait_any([batch], _BATCH_SECONDS)
            failed.update(index for _, index, *_ in batch.failures())
        if rows is not None:
            batch = core.Batch(engine, np.zeros(len(rows), np.uint32), rows, sizes, outputs, 0, epoch)
            batch.submit()
            flying.append(batch)
    return failed


def decoding_finding(rate: Rate, job: Job, dataset: str) -> Finding:
    """The finding about a measured rate; `dataset` is the dataset's name for commands."""
    threads = f"{job.workers} thread{'s' * (job.workers != 1)}"
    others = f", while others took {rate.others:.0%} of the CPUs" if rate.disturbed else ""
    text = (
        f"{rate.samples_per_s:,.0f} samples/s by {threads} (+- {rate.spread:.0%}{others}), "
        f"RandomResizedCrop({job.size}) and flip of "
        f"{rate.samples:,} samples in memory"
    )
    faults = {}
    if rate.failed:
        faults[f"{rate.failed:,} of them cannot be decoded"] = (
            f"`fastload verify --decode {dataset}` lists all"
        )
    if rate.fallbacks > FALLBACKS:
        faults[f"{rate.fallbacks:.0%} are unusual JPEGs, which the slower decoder makes"] = (
            "pack them, without --encode keep"
        )
    value = {
        "samples_per_s": rate.samples_per_s,
        "spread": rate.spread,
        "failed": rate.failed,
        "fallbacks": rate.fallbacks,
        "others": rate.others,
    }
    return judged("decoding", faults, text, value)


def step_finding(rate: Rate | None, job: Job, needed: float) -> Finding:
    """The finding about a step: whether the decoders keep up with it, which takes `needed` samples a
    second."""
    text = f"{job.batch_size} samples in {job.step_ms:g} ms are {needed:,.0f}/s"
    value = {"needed_per_s": needed, "available_per_s": None if rate is None else rate.samples_per_s}
    if rate is None:
        return Finding(
            "step", "unknown", f"{text}; the decoders' rate is unknown", "see the lines above", value
        )
    there, margin = rate.samples_per_s, max(CLOSE, rate.spread)
    text += f"; the decoders make {there:,.0f}/s"
    if there < needed * (1 + margin) and rate.disturbed:
        return Finding(
            "step",
            "unknown",
            f"{text}, while other processes ran",
            "repeat this when nothing else runs here",
            value,
        )
    if there < needed * (1 - margin):
        remedy = "more CPUs, or smaller stored images (pack --max-side)"
        return Finding(
            "step", "bad", f"{text}: the loop would wait {1 - there / needed:.0%} of the time", remedy, value
        )
    if there < needed * (1 + margin):
        return Finding(
            "step",
            "unknown",
            f"{text}: too close to call",
            "ask the job itself: loader.health.report()",
            value,
        )
    return Finding("step", "good", f"{text}: the loader keeps up", value=value)


def needed_rate(rate: Rate | None, job: Job) -> tuple[float | None, str]:
    """Samples a second that storage has to give, and who takes them: the step, else the decoders; None:
    unknown."""
    if job.needed_rate is not None:
        return job.needed_rate, "the step takes"
    return (None if rate is None else rate.samples_per_s), "the decoders take"
