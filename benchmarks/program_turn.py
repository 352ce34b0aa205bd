"""The child process of bench_programs.py: ``python program_turn.py SPEC`` builds one loader, and measures a
window for each line it reads.

It prints a line of JSON for the loader, and one for each window. Between windows it does nothing: a window
ends when the workers have filled their queues again, so that the children of other loaders, which wait
meanwhile, take no CPU time from the one that is measured.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
import os
import random
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import program_data
import torch
from torch.utils.data import DataLoader, RandomSampler

from fastload import FastLoader
from fastload.bench import measure

Json = dict[str, Any]
COMPARED = 4  # batches
WARM = 6  # batches before the clock starts: more than are in flight
WINDOW, LAST = "window\n", "last\n"
"""Lines of the parent: to measure a window; to tell of memory."""
STRETCH = 24  # batches that are taken on end before memory is read, and while it is
LOOK_S = 0.1  # between readings
SAMPLES = 1 << 20  # no window reaches the end of the epoch
SETTLE_S = 10.0


@dataclasses.dataclass(frozen=True)
class Spec:
    """One loader. ``lazy``: "torch" for torch's DataLoader, else FastLoader's argument, with "off" for
    False."""

    program: str
    lazy: str
    workers: int
    root: str
    seed: int = 1


def build(spec: Spec) -> Any:
    """The loader; all get the same arguments, but for `lazy`."""
    program = program_data.PROGRAMS[spec.program]
    dataset = program.make(Path(spec.root))
    arguments: Json = {
        "batch_size": program.batch,
        "sampler": RandomSampler(dataset, replacement=True, num_samples=SAMPLES),
        "num_workers": spec.workers,
        "collate_fn": program.collate,
        "persistent_workers": True,
    }
    if spec.lazy == "torch":
        return DataLoader(dataset, **arguments)
    choices: dict[str, Any] = {"off": False, "default": None}
    return FastLoader(dataset, **arguments, lazy=choices.get(spec.lazy, spec.lazy))


def digest(value: Any) -> bytes:
    """A digest of all tensors of a batch."""
    if isinstance(value, torch.Tensor):
        return hashlib.sha256(value.contiguous().view(-1).view(torch.uint8).numpy()).digest()
    parts = value.values() if isinstance(value, dict) else value
    return hashlib.sha256(b"".join(digest(part) for part in parts)).digest()


def settle() -> None:
    """Waits until neither this process nor its children take CPU time."""
    ends = time.monotonic() + SETTLE_S
    before, quiet = measure.tree_cpu_seconds(), 0
    while quiet < 3 and time.monotonic() < ends:
        time.sleep(0.04)
        now = measure.tree_cpu_seconds()
        quiet, before = (quiet + 1 if now - before < 0.008 else 0), now


def window(spec: Spec, iterator: Iterator[Any]) -> Json:
    """Images a second and CPU time an image of a window, and what other processes took of the machine."""
    program = program_data.PROGRAMS[spec.program]
    for _ in range(WARM):
        next(iterator)
    began, cpu, busy = time.perf_counter(), measure.tree_cpu_seconds(), measure.machine_busy_seconds()
    for _ in range(program.batches):
        next(iterator)
    wall, cpu = time.perf_counter() - began, measure.tree_cpu_seconds() - cpu
    after = measure.machine_busy_seconds()
    images = program.batch * program.batches
    settle()
    return {
        "ok": True,
        "images_per_s": images / wall,
        "cpu_s_per_1000": cpu / images * 1000,
        "others_share": None
        if after is None or busy is None
        else max(0.0, after - busy - cpu) / wall / (os.cpu_count() or 1),
    }


def memory(iterator: Iterator[Any]) -> Json:
    """The most memory of all processes, read again and again while a loop takes batches, reads every byte,
    and holds one until the next has come."""
    found: list[dict[str, int]] = []
    done = threading.Event()

    def look() -> None:
        while not done.wait(LOOK_S):
            found.append(measure.tree_pss(os.getpid()) or {})

    for _ in range(STRETCH):
        batch = next(iterator)
    looking = threading.Thread(target=look)
    looking.start()
    for _ in range(STRETCH):
        batch = next(iterator)
        digest(batch)
    done.set()
    looking.join()
    return {
        "pss_bytes": max((each["pss"] for each in found if "pss" in each), default=None),
        "own_bytes": max((each["anon"] + each["shmem"] for each in found if "anon" in each), default=None),
    }


def last_words(spec: Spec, loader: Any, iterator: Iterator[Any]) -> Json:
    """The memory of a loader, and the lines of explain() about images."""
    found = memory(iterator)
    if spec.lazy != "torch":
        found["explain"] = [
            line for line in loader.explain(all=True).splitlines() if line.startswith("images")
        ]
        loader.close()
    return found


def say(line: Json) -> None:
    """A line for the parent."""
    sys.stdout.write(json.dumps(line) + "\n")
    sys.stdout.flush()


def main() -> None:
    """Measures until standard input ends."""
    spec = Spec(**json.loads(sys.argv[1]))
    torch.manual_seed(spec.seed)
    random.seed(spec.seed)
    loader = build(spec)
    iterator = iter(loader)
    first = [digest(next(iterator)).hex() for _ in range(COMPARED)]
    settle()
    say({"batches": first})
    for line in sys.stdin:
        say(window(spec, iterator) if line == WINDOW else last_words(spec, loader, iterator))


if __name__ == "__main__":
    main()
