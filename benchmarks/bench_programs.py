"""The data parts of well-known training programs with the import changed: FastLoader against torch's
DataLoader.

    python benchmarks/bench_programs.py [--program timm] [--rounds 5] [--first] [--save programs]

Every program is a Dataset of its own with torchvision's, timm's or its own steps (program_data.py), in two
persistent worker processes. FastLoader opens its JPEGs as lazy images: lazy="exact", the default, and
lazy="fast"; lazy=False is the control.

Method: each loader is built once, in a process of its own (program_turn.py), from the same seeds. The
processes take turns, a window of so many batches each, round by round: torch, exact, fast, off. A ratio is
the median over rounds of the ratio of two windows of one round. While one is measured the others wait with
full queues. The first batches of "exact" and "off" must equal torch's bit for bit. Most files have
come before, and have their entropy indexes; with --first none has: there are copies enough for all rounds,
each with a comment of its own. Memory is the largest PSS of all processes of a loader that was seen while
batches were taken one after the other and each was read: after the rounds, and with no other loader alive,
which would share the libraries' pages. Caveats: with as many cores as workers the consumer competes with
them. It drops each batch of a window unread. Files are in the page cache. A rate suffers more from other
processes than CPU time does; `others` is the share of the machine that they took.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import common
from program_data import PROGRAMS, Program
from program_turn import COMPARED, LAST, WARM, WINDOW, Spec
from rich.table import Table

from fastload.bench import harness, measure
from fastload.bench.report import number

HERE = Path(__file__).resolve().parent
Json = dict[str, Any]
LOADERS = {"torch": "torch", "exact": "exact", "fast": "fast", "off": "lazy=False"}
IN_FLIGHT = 8
"""More batches than a loader makes ahead."""
NEAR = 0.02
"""By so much a Dataset without images may differ from lazy=False, and the memory of images."""


class Child:
    """A process with one loader."""

    def __init__(self, process: subprocess.Popen[str], spec: Spec) -> None:
        self._process, self._spec = process, spec

    def read(self) -> Json:
        """A line of the child.

        Raises:
            BenchError: it ended.
        """
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line:
            raise harness.BenchError(
                f"{self._spec.program}: the process of {self._spec.lazy} ended with status "
                f"{self._process.wait()}"
            )
        found: Json = json.loads(line)
        return found

    def turn(self, _number: int) -> Json:
        """Measures a window."""
        return self._ask(WINDOW)

    def last(self) -> Json:
        """Its memory, and what it has to say at last."""
        return self._ask(LAST)

    def _ask(self, line: str) -> Json:
        assert self._process.stdin is not None
        self._process.stdin.write(line)
        self._process.stdin.flush()
        return self.read()


@contextmanager
def child(spec: Spec) -> Iterator[Child]:
    """A child that has made its first batches, and ends with the block."""
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    environment["PYTHONPATH"] = os.pathsep.join(
        [str(HERE.parent), *filter(None, [os.environ.get("PYTHONPATH")])]
    )
    command = [sys.executable, str(HERE / "program_turn.py"), json.dumps(dataclasses.asdict(spec))]
    process = subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environment
    )
    try:
        yield Child(process, spec)
        assert process.stdin is not None
        process.stdin.close()
        process.wait(timeout=60)
    finally:
        process.kill()
        process.wait()


def never_seen(source: Path, root: Path, least: int) -> None:
    """Writes at least so many JPEGs, no two of the same bytes: those of `source`, each with a comment."""
    files = sorted(source.rglob("*.jpg"))
    for turn in range(-(-least // len(files))):
        for file in files:
            copy = root / file.parent.relative_to(source) / f"{turn}-{file.name}"
            copy.parent.mkdir(parents=True, exist_ok=True)
            body = file.read_bytes()
            copy.write_bytes(body[:2] + b"\xff\xfe\x00\x06" + turn.to_bytes(4, "big") + body[2:])


def measured(
    name: str, program: Program, arguments: argparse.Namespace
) -> tuple[list[harness.Measured], dict[str, Json]]:
    """All loaders of a program, and what each says at its end: its memory, and the lines of explain() about
    images.

    Raises:
        BenchError: the batches of two loaders differ that must not.
    """
    root = common.corpus(arguments.corpus, program.corpus).absolute()
    with ExitStack() as stack:
        if arguments.first:
            source, root = root, Path(stack.enter_context(tempfile.TemporaryDirectory()))
            batches = COMPARED + arguments.rounds * (WARM + program.batches)
            never_seen(source, root, (batches + IN_FLIGHT) * program.batch)
        specs = {lazy: Spec(name, lazy, arguments.workers, str(root)) for lazy in LOADERS}
        rows = interleaved(specs, arguments.rounds)
        return rows, {lazy: last_of(spec) for lazy, spec in specs.items()}


def interleaved(specs: Mapping[str, Spec], rounds: int) -> list[harness.Measured]:
    """Windows of all loaders of a program, in turn.

    Raises:
        BenchError: the batches of two differ that must not.
    """
    name = specs["torch"].program
    with ExitStack() as stack:
        children = {lazy: stack.enter_context(child(spec)) for lazy, spec in specs.items()}
        with common.note(f"{name}: first batches"):
            first = {lazy: each.read()["batches"] for lazy, each in children.items()}
        if wrong := [lazy for lazy in ("exact", "off") if first[lazy] != first["torch"]]:
            raise harness.BenchError(f"{name}: the first batches of {' and '.join(wrong)} are not torch's")
        turns = [(lazy, LOADERS[lazy], children[lazy].turn) for lazy in LOADERS]
        return harness.interleave(turns, rounds, common.note)


def last_of(spec: Spec) -> Json:
    """What a loader has to say of itself after a window, while no other shares the libraries' pages with
    it."""
    with child(spec) as alone, common.note(f"{spec.program}: memory of {spec.lazy}"):
        alone.read()
        alone.turn(0)
        return alone.last()


def memory_ratio(ours: Json, theirs: Json, column: str = "pss_bytes") -> float | None:
    """Memory over another loader's."""
    a, b = ours[column], theirs[column]
    return None if a is None or not b else a / b


def figures(rows: list[harness.Measured], ends: dict[str, Json]) -> Json:
    """Ratios to torch of each other loader: rate, CPU time and memory."""
    torch, *others = rows
    return {
        row.name: {
            "rate": harness.ratio(row, torch),
            "cpu": harness.ratio(torch, row, "cpu_s_per_1000"),
            "memory": memory_ratio(ends[row.name], ends[torch.name]),
            "own memory": memory_ratio(ends[row.name], ends[torch.name], "own_bytes"),
        }
        for row in others
    }


def show(title: str, rows: list[harness.Measured], ends: dict[str, Json]) -> None:
    """Prints what was measured of one program."""
    made = Table(title=title)
    for heading in ("", "images/s", "±", "x", "CPU us an image", "x", "PSS, MB", "x", "others"):
        made.add_column(heading, justify="right" if heading else "left")
    ratios = figures(rows, ends)
    for row in rows:
        ratio = ratios.get(row.name, {})
        spread = measure.spread(row.values("images_per_s"))
        pss, others = ends[row.name]["pss_bytes"], row.median("others_share")
        made.add_row(
            row.title,
            number(row.median("images_per_s")),
            "" if spread is None else f"{spread:.0%}",
            number(ratio.get("rate"), 2),
            number(row.median("cpu_s_per_1000"), 0, 1000),
            number(ratio.get("cpu"), 2),
            number(pss, 0, 1e-6),
            number(ratio.get("memory"), 2),
            "" if others is None else f"{others:.0%}",
        )
    common.console.print(made)
    for line in lines_of(ends):
        common.console.print(line, highlight=False, markup=False)


def lines_of(ends: dict[str, Json]) -> list[str]:
    """The lines of explain() about images, by loader."""
    return [f"{lazy}: {line}" for lazy, end in ends.items() for line in end.get("explain", ())]


def targets_of(
    name: str, program: Program, rows: list[harness.Measured], ends: dict[str, Json]
) -> list[common.Target]:
    """The targets of one program."""
    exact, off = rows[1], rows[3]
    ratios = figures(rows, ends)
    found = []
    for lazy, bound in (("exact", program.exact), ("fast", program.fast)):
        if bound is not None:
            found.append(common.Target(f"{name}, {lazy}: images/s over torch's", ratios[lazy]["rate"], bound))
            found.append(
                common.Target(f"{name}, {lazy}: torch's CPU time over ours", ratios[lazy]["cpu"], bound)
            )
    if name == "no-images":
        found.append(
            common.Target(
                f"{name}: CPU time over that of lazy=False",
                harness.ratio(exact, off, "cpu_s_per_1000"),
                1 + NEAR,
                True,
            )
        )
        found.append(
            common.Target(f"{name}, exact: images/s over torch's", ratios["exact"]["rate"], 1 - NEAR)
        )
    found.append(
        common.Target(f"{name}, exact: memory over torch's", ratios["exact"]["memory"], 1.0, at_most=True)
    )
    found.append(
        common.Target(
            f"{name}, exact: memory over that of lazy=False",
            memory_ratio(ends["exact"], ends["off"]),
            1 + NEAR,
            at_most=True,
        )
    )
    return found


def main() -> int:
    """Measures the programs asked for, or all."""
    made = common.parser(__doc__, rounds=5)
    made.add_argument(
        "--program", choices=list(PROGRAMS), action="append", help="only this program; may be given again"
    )
    made.add_argument("--first", action="store_true", help="no file comes twice")
    arguments = made.parse_args()
    targets: list[common.Target] = []
    kept: Json = {}
    details: Json = {}
    for name in arguments.program or PROGRAMS:
        program = PROGRAMS[name]
        rows, ends = measured(name, program, arguments)
        show(program.title, rows, ends)
        targets += targets_of(name, program, rows, ends)
        kept[name] = {
            "title": program.title,
            "aims": program.aims,
            "ratios": figures(rows, ends),
            "explain": lines_of(ends),
        }
        details[name] = [row.to_json() for row in rows]
    return common.finish("programs", arguments, targets, programs=kept, **details)


if __name__ == "__main__":
    sys.exit(main())
