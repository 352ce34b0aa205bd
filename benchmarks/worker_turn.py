"""The child process of bench_workers.py: ``python worker_turn.py SPEC`` takes one turn and prints one line of
JSON.

Clocks. A *wait* is the time from asking for a batch to holding it. A rate is taken inside one long epoch,
from the arrival of one batch to that of another, a multiple of the number of workers later, because torch's
batches come in bursts of so many. The batches before it are checked for what they hold; those inside are only
received and dropped.
"""

from __future__ import annotations

import dataclasses
import gc
import inspect
import json
import os
import statistics
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from fastload.bench import measure

Json = dict[str, Any]
WARM_BATCHES = 24  # more than any loader has in flight here
HEAVY_BATCH = 64
PICTURES = 32  # a batch of them
STEP_S = 0.005  # the consumer's step in the heavy case
READINGS = 20  # of memory, over the epochs
SMALL_EPOCH = 4  # batches
SHM_TIMEOUT_S = (
    20  # where shared memory runs out, torch's worker loses the batch and its loader would wait for ever
)


@dataclasses.dataclass(frozen=True)
class Spec:
    """One turn. ``more`` is given to the loader besides what the case says; ``read`` makes the consumer
    read each batch."""

    case: str
    loader: str  # "torch" or "fastload"
    workers: int
    seconds: float
    seed: int = 0
    read: bool = False
    batches: int = 0  # a window of so many batches instead of so many seconds
    epochs: int = 0
    pictures: str = ""
    more: Json = dataclasses.field(default_factory=dict)


class Unsupported(Exception):
    """The loader has no such argument."""


def build(spec: Spec, dataset: Any, **arguments: Any) -> Any:
    """The loader under test; both get the same arguments.

    Raises:
        Unsupported: an argument of ``spec.more`` is not the loader's.
    """
    from torch.utils.data import DataLoader

    from fastload import FastLoader

    made: Any = {"torch": DataLoader, "fastload": FastLoader}[spec.loader]
    known = inspect.signature(made.__init__).parameters
    if missing := [name for name in spec.more if name not in known]:
        raise Unsupported(f"{made.__name__} has no argument {', '.join(missing)}")
    return made(dataset, num_workers=spec.workers, **{**arguments, **spec.more})


def engine_of(spec: Spec, loader: Any) -> str:
    """Which engine made the batches, as FastLoader tells it."""
    return spec.loader if spec.loader == "torch" else str(loader.stats()["engine"])


def read_all(batch: Any) -> None:
    """Reads every tensor of a batch once, as a copy to a device would."""
    import torch

    if isinstance(batch, torch.Tensor):
        batch.view(-1).view(torch.uint8).max()
    elif isinstance(batch, dict):
        for value in batch.values():
            read_all(value)
    elif isinstance(batch, list | tuple):
        for value in batch:
            read_all(value)


Variant = tuple[str, Any, Json, Callable[[Any, int], None]]


def variants(spec: Spec) -> Iterator[Variant]:
    """What the rate cases measure: (name, dataset, arguments, check), made one at a time."""
    import worker_data as data

    if spec.case == "ready":
        yield "ready", data.ReadyTensors(), {"batch_size": 64}, data.check_ready
    elif spec.case == "tiny":
        yield "batch 64", data.Integers(), {"batch_size": 64}, data.check_integers
        yield "batch 1", data.Integers(), {"batch_size": 1}, data.check_integers
    elif spec.case == "batches":
        yield "9.6 MB", data.Integers(), {"batch_size": 64, "collate_fn": data.WholeBatch()}, data.check_whole
    elif spec.case == "custom":
        records = data.Records()
        for name, collate in data.COLLATES.items():
            yield name, records, {"batch_size": 64, "collate_fn": collate}, data.check_record
    elif spec.case == "pillow":
        from fastload.bench.listing import list_folder
        from fastload.bench.rivals import PillowFolder

        files = [(str(path), label) for path, label in list_folder(Path(spec.pictures))] * 16
        yield (
            "pillow",
            PillowFolder(files, data.SIDE),
            {"batch_size": PICTURES, "shuffle": True},
            data.check_pictures,
        )


def run_rate(spec: Spec) -> Json:
    """Batches/s and CPU time a batch of each variant, in columns ``NAME per s`` and ``NAME cpu us``."""
    import torch

    result: Json = {"others_share": 0.0}
    for name, dataset, arguments, check in variants(spec):
        torch.manual_seed(spec.seed)
        loader = build(spec, dataset, **arguments)
        iterator = iter(loader)
        for number in range(WARM_BATCHES):
            check(next(iterator), number)
        began, cpu, busy = time.perf_counter(), measure.tree_cpu_seconds(), measure.machine_busy_seconds()
        batches, now = 0, began
        while batches % spec.workers or (
            batches < spec.batches if spec.batches else now - began < spec.seconds
        ):
            batch = next(iterator)
            if spec.read:
                read_all(batch)
            del batch
            batches += 1
            now = time.perf_counter()
        wall, cpu = now - began, measure.tree_cpu_seconds() - cpu
        busy_after = measure.machine_busy_seconds()
        if busy is not None and busy_after is not None:
            others = max(0.0, busy_after - busy - cpu) / wall / (os.cpu_count() or 1)
            result["others_share"] = max(result["others_share"], others)
        result[f"{name} per s"] = batches / wall
        result[f"{name} cpu us"] = cpu / batches * 1e6
        result["engine"] = engine_of(spec, loader)
        del iterator, loader
        gc.collect()
    return result


def run_heavy(spec: Spec) -> Json:
    """Waits, in ms, of ``spec.batches`` steps; batches may come in any order where the spec says so."""
    import worker_data as data

    dataset = data.Heavy((WARM_BATCHES + spec.batches) * HEAVY_BATCH)
    loader = build(spec, dataset, batch_size=HEAVY_BATCH, prefetch_factor=4)
    waits, seen = [], 0
    iterator = iter(loader)
    began = time.perf_counter()
    for number in range(WARM_BATCHES + spec.batches):
        if number == WARM_BATCHES:
            began = time.perf_counter()
        asked = time.perf_counter()
        batch = next(iterator)
        waits.append((time.perf_counter() - asked) * 1000)
        if spec.more.get("in_order", True):
            data.check_heavy(batch, number)
        seen += int(batch[:, 0].sum())
        del batch
        time.sleep(STEP_S)
    if seen != sum(range(len(dataset))):
        raise ValueError("some samples were lost or came twice")
    measured = waits[WARM_BATCHES:]
    cuts = statistics.quantiles(measured, n=100, method="inclusive")
    wall = time.perf_counter() - began
    return {
        "p50_ms": cuts[49],
        "p99_ms": cuts[98],
        "max_ms": max(measured),
        "steps_per_s": spec.batches / wall,
        "engine": engine_of(spec, loader),
        "waits_ms": [round(wait, 1) for wait in measured],
    }


def tree_counts(root: int) -> Json:
    """Processes, threads and open file descriptors of a process and its descendants, and their memory, in
    bytes."""
    counts = {"processes": 0, "threads": 0, "fds": 0}
    for pid in [root, *measure.descendants(root)]:
        proc = measure.PROC / str(pid)
        counts["processes"] += 1
        counts["threads"] += len(list((proc / "task").iterdir()))
        counts["fds"] += len(list((proc / "fd").iterdir()))
    memory = measure.tree_pss(root) or {}
    return {**counts, "memory": memory.get("anon", 0) + memory.get("shmem", 0)}


def run_epochs(spec: Spec) -> Json:
    """Epochs of four small batches under persistent workers; what the process tree holds is read between,
    off the clock."""
    import worker_data as data

    loader = build(spec, data.Integers(SMALL_EPOCH * 8), batch_size=8, persistent_workers=True)
    clock, readings = 0.0, []
    for block in range(READINGS + 1):
        began = time.perf_counter()
        for _ in range(spec.epochs // READINGS):
            for number, batch in enumerate(loader):
                if block == 0:
                    data.check_integers(batch, number)
        if block > 0:  # the first is warm-up
            clock += time.perf_counter() - began
        gc.collect()
        readings.append(tree_counts(os.getpid()))
    early, late = readings[1:7], readings[-6:]
    growth = {
        f"growth {key}": statistics.median(r[key] for r in late) - statistics.median(r[key] for r in early)
        for key in early[0]
    }
    per_s = spec.epochs // READINGS * READINGS / clock
    return {
        "epochs_per_s": per_s,
        "epoch_ms": 1000 / per_s,
        **growth,
        "engine": engine_of(spec, loader),
        "last": readings[-1],
    }


def run_fresh(spec: Spec) -> Json:
    """Milliseconds an epoch of four small batches takes when each starts its workers anew, by start
    method."""
    import worker_data as data

    result: Json = {}
    for method, epochs in (("fork", spec.epochs), ("spawn", max(2, spec.epochs // 5))):
        loader = build(spec, data.Integers(SMALL_EPOCH * 8), batch_size=8, multiprocessing_context=method)
        for number, batch in enumerate(loader):  # warm-up: spawn imports what it imports
            data.check_integers(batch, number)
        times = []
        for _ in range(epochs):
            began = time.perf_counter()
            for _batch in loader:
                pass
            times.append((time.perf_counter() - began) * 1000)
        result[f"{method}_ms"] = statistics.median(times)
        result["engine"] = engine_of(spec, loader)
    return result


def run_shm(spec: Spec) -> Json:
    """Whole 9.6 MB batches, 8 ahead for each worker, in a process whose /dev/shm holds 64 MB."""
    import worker_data as data

    stat = os.statvfs("/dev/shm")
    room = stat.f_frsize * stat.f_blocks
    if room > 64 << 20:
        return {"ok": False, "reason": f"/dev/shm has {room >> 20} MB: the limit is not in place"}
    arguments = {
        "batch_size": 64,
        "collate_fn": data.WholeBatch(),
        "prefetch_factor": 8,
        "timeout": SHM_TIMEOUT_S,
    }
    loader = build(spec, data.Integers(spec.batches * 64), **arguments)
    began = time.perf_counter()
    for number, batch in enumerate(loader):
        data.check_whole(batch, number)
        time.sleep(0.005)  # the workers get ahead
    return {"batches_per_s": spec.batches / (time.perf_counter() - began), "engine": engine_of(spec, loader)}


RUNS = {"heavy": run_heavy, "epochs": run_epochs, "fresh": run_fresh, "shm": run_shm}


def main() -> None:
    """Takes the turn that argv[1] describes."""
    import torch

    spec = Spec(**json.loads(sys.argv[1]))
    torch.manual_seed(spec.seed)
    try:
        result = {"ok": True, **RUNS.get(spec.case, run_rate)(spec)}
    except Unsupported as error:
        result = {"ok": False, "reason": str(error)}
    sys.stdout.write(json.dumps(result) + "\n")


if __name__ == "__main__":
    main()
