"""The cost of a trace: a loop with one and without, and of the code that takes none in this version and in
one before it.

    python benchmarks/bench_trace.py [--rounds 21] [--before CHECKOUT] [--save trace]

Method, on: in one process, one loader with persistent workers is iterated in turns, an epoch or more plain
and as many under loader.trace(); which of the two comes first alternates from round to round, and the
consumer does nothing. Two ratios a round: the CPU seconds a batch, of the process and its workers, and the
seconds a batch, each with a trace over without. Medians over the rounds are shown with their 95% intervals
(order statistics). Writing the file, after the loop, is shown apart. Method, off: the same loop without a
trace, in a fresh process for each turn, by this checkout and by another (--before), in turns. Caveats: on a
shared machine rates of neighbouring turns lie 10% apart and more; CPU time does not, and is what the targets
are about. Of samples that take a few microseconds (integers of a Dataset of Python) an event for each is a
large part: that line has no target.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from contextlib import nullcontext
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import common
from rich.table import Table
from torch.utils.data import Dataset

from fastload import FastLoader, PackedDataset
from fastload import transforms as T
from fastload.bench import measure
from fastload.bench.report import number

BATCH = 64
MOST = 1.03
CROP = [T.RandomResizedCrop(224), T.RandomHorizontalFlip()]


class Photographs(Dataset[Any]):
    """A packed dataset as any Dataset of Python: worker processes make its samples."""

    def __init__(self, path: str) -> None:
        self.packed = PackedDataset(path, CROP)

    def __len__(self) -> int:
        return len(self.packed)

    def __getitem__(self, index: int) -> Any:
        return self.packed[index]


class Integers(Dataset[int]):
    """As many integers as make 500 batches."""

    def __len__(self) -> int:
        return 500 * BATCH

    def __getitem__(self, index: int) -> int:
        return index


@dataclass
class Compared:
    """One comparison: by round, CPU time and time a batch, with a trace over without."""

    title: str
    cpu: list[float] = field(default_factory=list)
    time: list[float] = field(default_factory=list)
    events: int = 0
    dropped: int = 0
    write_s: float = 0.0

    def add(self, with_it: tuple[float, float], without: tuple[float, float]) -> None:
        """Adds a round: (CPU seconds, seconds) a batch of both."""
        self.cpu.append(with_it[0] / without[0])
        self.time.append(with_it[1] / without[1])


def interval(ratios: list[float]) -> tuple[float, float]:
    """95% interval of the median: the order statistics that the binomial distribution of signs gives."""
    ordered, n = sorted(ratios), len(ratios)
    below = max(0, int((n - 1.96 * n**0.5) / 2))
    return ordered[below], ordered[n - 1 - below]


def walk(loader: Any, seconds: float) -> tuple[float, float]:
    """(CPU seconds, seconds) a batch, over as many epochs as make `seconds`."""
    batches, began, cpu = 0, time.perf_counter(), measure.tree_cpu_seconds()
    while time.perf_counter() - began < seconds:
        batches += sum(1 for _ in loader)
    return (measure.tree_cpu_seconds() - cpu) / batches, (time.perf_counter() - began) / batches


def compare(title: str, loader: Any, rounds: int, seconds: float) -> Compared:
    """Turns of one loader with a trace and without."""
    found = Compared(title)
    with tempfile.TemporaryDirectory() as folder:
        walk(loader, seconds)
        for n in range(rounds):
            turns: dict[bool, tuple[float, float]] = {}
            for traced in (n % 2 == 0, n % 2 == 1):
                trace = loader.trace(Path(folder) / "run.json") if traced else None
                if trace is not None:
                    trace.start()
                turns[traced] = walk(loader, seconds)
                if trace is not None:
                    began = time.perf_counter()
                    trace.stop()
                    found.write_s, found.dropped = time.perf_counter() - began, trace.dropped
            found.add(turns[True], turns[False])
        found.events = sum(
            line.startswith('{"ph": "X"') for line in (Path(folder) / "run.json").read_text().splitlines()
        )
    return found


def loader_of(kind: str, packed: Path, workers: int) -> Any:
    """The loader of a comparison."""
    options: dict[str, Any] = {
        "batch_size": BATCH,
        "num_workers": workers,
        "persistent_workers": True,
        "shuffle": True,
        "seed": 0,
    }
    if kind == "threads":
        return FastLoader(str(packed), transform=CROP, **options)
    return FastLoader(Photographs(str(packed)) if kind == "processes" else Integers(), **options)


TITLES = {
    "threads": "native threads, packed photographs",
    "processes": "worker processes, photographs of a Dataset of Python",
    "integers": "worker processes, integers",
}


def child(arguments: argparse.Namespace) -> int:
    """One turn without a trace, in a process of its own."""
    with loader_of("threads", Path(arguments.child), arguments.workers) as loader:
        walk(loader, arguments.seconds)
        print(json.dumps(walk(loader, 3 * arguments.seconds)))  # noqa: T201
    return 0


def before(arguments: argparse.Namespace, packed: Path) -> Compared:
    """Turns of this checkout and of another."""
    found = Compared("no trace, this version over the one before")
    here = Path(__file__).resolve().parents[1]
    for n in range(arguments.rounds):
        turns: dict[bool, tuple[float, float]] = {}
        for ours in (n % 2 == 0, n % 2 == 1):
            paths = [str(here if ours else arguments.before.resolve()), str(here / "benchmarks")]
            command = [
                sys.executable,
                __file__,
                "--child",
                str(packed.resolve()),
                "--seconds",
                str(arguments.seconds),
            ]
            environment = {**os.environ, "PYTHONPATH": os.pathsep.join(paths), "OMP_NUM_THREADS": "1"}
            with tempfile.TemporaryDirectory() as folder:
                out = subprocess.run(
                    [*command, "--workers", str(arguments.workers)],
                    env=environment,
                    cwd=folder,
                    capture_output=True,
                    text=True,
                    check=True,
                )
            cpu, wall = json.loads(out.stdout.splitlines()[-1])
            turns[ours] = cpu, wall
        found.add(turns[True], turns[False])
    return found


def main() -> int:
    """Measures a trace on each engine, then no trace against another checkout."""
    parser = common.parser(__doc__, rounds=21, seconds=1.0)
    parser.add_argument(
        "--before", type=Path, help="another checkout, built, for the cost of code that takes no trace"
    )
    parser.add_argument("--child", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.child:
        return child(arguments)
    source = common.corpus(arguments.corpus, "in500")
    packed = common.pack_fresh(source, f"{source.name}.fl", workers=arguments.workers)
    found = []
    for kind, title in TITLES.items():
        with common.note(title), loader_of(kind, packed, arguments.workers) as loader:
            found.append(compare(title, loader, arguments.rounds, arguments.seconds))
    with common.note("the version before") if arguments.before else nullcontext():
        found += [before(arguments, packed)] if arguments.before else []

    shown = Table(title="with a trace over without: CPU time and time a batch")
    for heading in ("", "CPU time", "95% interval", "time", "95% interval", "events", "us an event to write"):
        shown.add_column(heading, justify="right" if heading else "left")
    for row in found:
        (low, high), (least, most) = interval(row.cpu), interval(row.time)
        shown.add_row(
            row.title, number(statistics.median(row.cpu), 4), f"{low:.4f} to {high:.4f}",
            number(statistics.median(row.time), 4),
            f"{least:.4f} to {most:.4f}", f"{row.events:,}", number(row.write_s / row.events * 1e6,
            1) if row.events else "",
        )  # fmt: skip
    common.console.print(shown)
    targets = [
        common.Target(
            f"{row.title}: CPU time a batch, ratio", statistics.median(row.cpu), MOST, at_most=True, digits=4
        )
        for row in found
        if row.title != TITLES["integers"]
    ]
    return common.finish("trace", arguments, targets, rows=[asdict(row) for row in found])


if __name__ == "__main__":
    sys.exit(main())
