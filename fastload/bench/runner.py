"""The child process that takes one turn: ``python -m fastload.bench.runner SPEC`` prints one line of JSON and
ends.

Clocks. The consumer does nothing with a batch but look at its shape (and sleep ``step_ms``). A *wait* is the
time from asking for a batch to holding it. A rate is measured from the last batch of one epoch to the last
batch of a later one, so that what a loader has prefetched at the start of the window equals what it has
prefetched at the end; CPU time is read at the same two moments. The first epoch is never measured.
"""

from __future__ import annotations

import dataclasses
import gc
import importlib
import json
import os
import statistics
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from typing import Any

from fastload.bench import measure
from fastload.bench.spec import NEEDS, TurnSpec

Json = dict[str, Any]
MEMORY_BATCHES = 24  # read after these many batches of an epoch of their own, outside the timed window
MEMORY_EVERY = 8


class Consumer:
    """Draws batches and keeps the times; ``first`` is the wait from iter() to the first batch of the last
    epoch.

    ``check`` gets the first batch of each epoch, and raises where it is not what was agreed. After each batch
    the consumer sleeps ``step_ms``.
    """

    def __init__(self, loader: Iterable[Any], check: Callable[[Any], None], step_ms: float = 0.0) -> None:
        self.loader = loader
        self.check = check
        self.step_ms = step_ms
        self.first = 0.0
        self.arrived = 0.0
        self.turn: float | None = None  # when the batch after an epoch's last was asked for
        self.waits: list[float] = []
        self.gaps: list[float] = []

    def epoch(self) -> int:
        """Runs one epoch; returns its batches. The wait across the turn goes to ``gaps``, the others to
        ``waits``."""
        batches = 0
        asked = time.perf_counter()
        turn = asked if self.turn is None else self.turn
        iterator: Iterator[Any] = iter(self.loader)
        while (batch := next(iterator, None)) is not None:
            self.arrived = time.perf_counter()
            if batches == 0:
                self.first = self.arrived - asked
                self.gaps.append(self.arrived - turn)
                self.check(batch)
            else:
                self.waits.append(self.arrived - asked)
            batches += 1
            del batch
            if self.step_ms:
                time.sleep(self.step_ms / 1000)
            asked = time.perf_counter()
        self.turn = asked
        return batches

    def forget(self) -> None:
        """Drops the waits and gaps so far."""
        self.waits.clear()
        self.gaps.clear()


def _memory_over_an_epoch(loader: Iterable[Any]) -> dict[str, int] | None:
    """The reading of median PSS, of one every few batches."""
    readings: list[dict[str, int] | None] = []
    for number, _batch in enumerate(loader, start=1):
        if number % MEMORY_EVERY == 0:
            readings.append(measure.tree_pss(os.getpid()))
        if number >= MEMORY_BATCHES:
            break
    if not readings:
        readings.append(measure.tree_pss(os.getpid()))
    known = sorted((reading for reading in readings if reading), key=lambda reading: reading["pss"])
    return known[len(known) // 2] if known else None


def _consumer(loader: Iterable[Any], spec: TurnSpec) -> Consumer:
    """The consumer that the spec asks for."""
    from fastload.bench.loaders import check_batch

    return Consumer(loader, lambda batch: check_batch(batch, spec), spec.step_ms)


def run_rate(spec: TurnSpec) -> Json:
    """Everything the table shows, from one loader."""
    from fastload.bench.loaders import build

    return rate_of(lambda: build(spec), lambda loader: _consumer(loader, spec), spec.batch_size, spec.seconds)


def rate_of(
    build: Callable[[], Iterable[Any]],
    consume: Callable[[Iterable[Any]], Consumer],
    batch_size: int,
    seconds: float,
    *,
    least_epochs: int = 2,
    memory: bool = True,
) -> Json:
    """The figures of one turn: rates, waits, first batches and memory of the loader that ``build`` makes.

    Args:
        build: makes the loader; every batch of it is whole.
        consume: makes the consumer of a loader.
        batch_size: images a batch.
        seconds: least length of the window that is measured.
        least_epochs: least number of epochs in it.
        memory: true to read memory, too, which takes an epoch more.
    """
    start = time.perf_counter()
    loader = build()
    built = time.perf_counter() - start
    consumer = consume(loader)
    consumer.epoch()
    first_ever = consumer.first
    consumer.forget()
    began, cpu, busy = consumer.arrived, measure.tree_cpu_seconds(), measure.machine_busy_seconds()
    epochs, batches = 0, 0
    firsts: list[float | None] = []
    while epochs < least_epochs or consumer.arrived - began < seconds:
        batches += consumer.epoch()
        firsts.append(consumer.first)
        epochs += 1
    wall, cpu = consumer.arrived - began, measure.tree_cpu_seconds() - cpu
    busy_after = measure.machine_busy_seconds()
    others = None if busy is None or busy_after is None else max(0.0, busy_after - busy - cpu)
    images = batches * batch_size
    # The mean, not the median: two workers' batches come in pairs, one at once after the other.
    wait = statistics.fmean(consumer.waits or [0.0])
    gap = measure.median(consumer.gaps) or 0.0
    parts = _memory_over_an_epoch(loader) if memory else None
    return {
        "images_per_s": images / wall,
        "cpu_s_per_1000": cpu / images * 1000,
        "build_s": built,
        "first_batch_s": first_ever,
        "next_first_batch_s": measure.median(firsts),
        "wait_ms": wait * 1000,
        "epoch_gap_ms": max(0.0, gap - wait) * 1000,
        "epoch_gap_max_ms": max(0.0, max(consumer.gaps) - wait) * 1000,
        "others_share": None if others is None else others / wall / (os.cpu_count() or 1),
        "pss_bytes": None if parts is None else parts["pss"],
        "pss_parts": parts,
        "epochs": epochs,
        "images": images,
    }


def run_latency(spec: TurnSpec) -> Json:
    """First batches: of ``epochs`` fresh loaders, then of ``epochs`` epochs of one that lives on."""
    from fastload.bench.loaders import build

    fresh: list[float] = []
    built: list[float] = []
    for _ in range(spec.epochs + 1):  # the first pays for imports
        start = time.perf_counter()
        loader = build(spec)
        built.append(time.perf_counter() - start)
        start = time.perf_counter()
        iterator = iter(loader)
        next(iterator)
        fresh.append(time.perf_counter() - start)
        if hasattr(loader, "close"):
            loader.close()
        del iterator, loader
        gc.collect()  # torch's workers end with their iterator
    consumer = _consumer(build(spec), spec)
    again: list[float | None] = []
    consumer.epoch()
    for _ in range(spec.epochs):
        consumer.epoch()
        again.append(consumer.first)
    return {
        "build_s": measure.median(built[1:]),
        "first_batch_s": measure.median(fresh[1:]),
        "next_first_batch_s": measure.median(again),
    }


def run_growth(spec: TurnSpec) -> Json:
    """PSS of the tree and its parts at the end of each of ``epochs`` epochs, in bytes."""
    from fastload.bench.loaders import build

    consumer = _consumer(build(spec), spec)
    readings: list[dict[str, int] | None] = []
    for _ in range(spec.epochs):
        consumer.epoch()
        readings.append(measure.tree_pss(os.getpid()))
    return {"pss_by_epoch": readings}


def run_once(spec: TurnSpec) -> Json:
    """One epoch of a loader built after the parent's line on stdin, and what it fetched from storage."""
    from fastload.bench.loaders import build

    if spec.kind in ("fastload", "packed"):
        import fastload  # noqa: F401  (so that the imports do not count as part of the epoch)
    print("ready", flush=True)  # noqa: T201
    sys.stdin.readline()
    if spec.rehearsal:
        rehearsed = build(
            dataclasses.replace(spec, source=spec.rehearsal, images=spec.batch_size, rehearsal="")
        )
        next(iter(rehearsed))
        if hasattr(rehearsed, "close"):
            rehearsed.close()
    loader = build(spec)
    read, cpu = measure.tree_read_bytes(), measure.tree_cpu_seconds()
    start = time.perf_counter()
    consumer = _consumer(loader, spec)
    batches = consumer.epoch()
    wall = consumer.arrived - start
    after, cpu = measure.tree_read_bytes(), measure.tree_cpu_seconds() - cpu
    return {
        "images_per_s": batches * spec.batch_size / wall,
        "cpu_s_per_1000": cpu / (batches * spec.batch_size) * 1000,
        "first_batch_s": consumer.first,
        "images": batches * spec.batch_size,
        "read_bytes": None if read is None or after is None else after - read,
    }


def run_trace(spec: TurnSpec) -> Json:
    """A trace of the second epoch, written to the spec's file; returns the epoch's images."""
    from fastload.bench.loaders import build

    loader: Any = build(spec)
    consumer = _consumer(loader, spec)
    consumer.epoch()
    with loader.trace(spec.trace):
        batches = consumer.epoch()
    return {"images": batches * spec.batch_size}


RUNS = {"rate": run_rate, "latency": run_latency, "growth": run_growth, "once": run_once, "trace": run_trace}


def main(arguments: list[str]) -> int:
    """Takes the turn; prints ``{"ok": true, ...}`` or ``{"ok": false, "reason": ...}`` as the last line of
    stdout."""
    spec = TurnSpec.from_json(arguments[0])
    result: Json
    try:
        for module in NEEDS[spec.kind]:
            importlib.import_module(module)
        import torch

        torch.set_num_threads(1)
        torch.manual_seed(spec.seed)
        result = {"ok": True, **RUNS[spec.mode](spec)}
    except ImportError as error:
        result = {"ok": False, "reason": f"{error.name or 'a library'} is not installed"}
    except Exception as error:  # a rival's failure is a row of the table, not the end of the run
        # Torch puts a worker's traceback before its last line.
        lines = str(error).strip().splitlines() or [""]
        result = {"ok": False, "reason": f"{type(error).__name__}: {lines[-1]}"}
    print(json.dumps(result), flush=True)  # noqa: T201
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
