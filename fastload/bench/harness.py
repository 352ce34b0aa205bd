"""Interleaved turns, each in a process of its own, and what comes out of them. Imports no torch.

Round by round every loader takes one turn (A B C A B C ...), so that a machine that slows down slows them
all. Values are medians over rounds; a ratio is the median of the rounds' own ratios, each of two neighbouring
turns.
"""

from __future__ import annotations

import contextlib
import dataclasses
import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import fastload
from fastload.bench import measure
from fastload.bench.spec import TITLES, LoaderKind, TurnSpec
from fastload.common.files import scratch_folder
from fastload.common.positions import evenly
from fastload.common.progress import human_seconds
from fastload.errors import ArgumentError, FastloadError

SCHEMA = 1
Json = dict[str, Any]
Round = Callable[[int], Json]
COLUMNS = (
    "images_per_s",
    "first_batch_s",
    "next_first_batch_s",
    "epoch_gap_ms",
    "pss_bytes",
    "cpu_s_per_1000",
)


class BenchError(FastloadError, RuntimeError):
    """The child process that runs a loader ended without a result."""


def _environment() -> dict[str, str]:
    """The child finds the same fastload, and no library of a rival's starts threads of its own."""
    environment = dict(os.environ)
    root = str(Path(fastload.__path__[0]).parent)
    environment["PYTHONPATH"] = os.pathsep.join(
        part for part in (root, environment.get("PYTHONPATH", "")) if part
    )
    environment["OMP_NUM_THREADS"] = "1"
    return environment


def take_turn(
    spec: TurnSpec, *, before_epoch: Callable[[], None] | None = None, timeout: float = 3600
) -> Json:
    """Runs one turn in a fresh process and returns its result.

    Args:
        spec: the turn to run.
        before_epoch: for mode ``once``: called when the child has done its imports and waits; then it goes
            on.
        timeout: seconds until the child is killed.

    Raises:
        BenchError: the child crashed or printed nothing.
    """
    command = [sys.executable, "-m", "fastload.bench.runner", spec.to_json()]
    with subprocess.Popen(
        command,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=_environment(),
    ) as child:
        try:
            assert child.stdout is not None
            if spec.mode == "once" and child.stdout.readline() == "ready\n" and before_epoch is not None:
                before_epoch()
            out, err = child.communicate(input="go\n", timeout=timeout)
        except BaseException:
            child.kill()
            raise
    lines = out.strip().splitlines()
    if child.returncode != 0 or not lines:
        last = (err.strip().splitlines() or ["nothing on stderr"])[-1]
        raise BenchError(
            f"the process that ran {TITLES[spec.kind]} ended with status {child.returncode}: {last}"
        )
    result: Json = json.loads(lines[-1])
    return result


@dataclasses.dataclass
class Measured:
    """One loader's turns. ``reason`` says why there are none."""

    name: str
    title: str
    turns: list[Json] = dataclasses.field(default_factory=list)
    reason: str | None = None

    def values(self, column: str) -> list[float | None]:
        """A column's value in each turn."""
        return [turn.get(column) for turn in self.turns]

    def median(self, column: str) -> float | None:
        """A column's median over the turns; None when the machine does not tell or the loader did not run."""
        return measure.median(self.values(column))

    def to_json(self) -> Json:
        """Medians, the images/s of each round and how far rounds lie apart."""
        return {
            "name": self.name,
            "title": self.title,
            "reason": self.reason,
            **{column: self.median(column) for column in COLUMNS},
            "images_per_s_spread": measure.spread(self.values("images_per_s")),
            "others_share": self.median("others_share"),
            "rounds": self.turns,
        }


def ratio(top: Measured, bottom: Measured, column: str = "images_per_s") -> float | None:
    """Median over rounds of top's value over bottom's in the same round."""
    pairs = zip(top.values(column), bottom.values(column), strict=False)
    return measure.median(a / b for a, b in pairs if a is not None and b)


@contextlib.contextmanager
def _no_note(_text: str) -> Iterator[None]:
    yield


def interleave(
    turns: Sequence[tuple[str, str, Round]],
    rounds: int,
    note: Callable[[str], contextlib.AbstractContextManager[object]] = _no_note,
) -> list[Measured]:
    """Calls each (name, title, turn) once a round, in order; a turn gets the round's number.

    A turn whose result is not ok drops out with its reason; the others go on. The note of a turn says what
    the loader reached before, and how long the turns that are left will take.
    """
    measured = [Measured(name, title) for name, title, _ in turns]
    took: list[float] = []
    for number in range(rounds):
        for row, (_, _, turn) in zip(measured, turns, strict=True):
            if row.reason is not None:
                continue
            began = time.monotonic()
            with note(f"round {number + 1} of {rounds}: {row.title}{_so_far(row, took, measured, rounds)}"):
                result = turn(number)
            took.append(time.monotonic() - began)
            if result.pop("ok"):
                row.turns.append(result)
            else:
                row.reason = str(result["reason"])
                row.turns.clear()
    return measured


def _so_far(row: Measured, took: Sequence[float], measured: Sequence[Measured], rounds: int) -> str:
    """The end of a note: the rate of this loader in the turns before, and the time that is left."""
    rate = row.median("images_per_s")
    before = "" if rate is None else f", {rate:,.0f} images/s so far"
    if not took:
        return before
    left = sum(rounds - len(each.turns) for each in measured if each.reason is None)
    return f"{before}, {human_seconds(left * sum(took) / len(took))} left"


def count_packed(path: Path) -> int:
    """Samples in a packed dataset.

    Raises:
        DatasetError: it cannot be opened.
    """
    from fastload.store.manifest import Manifest

    return Manifest.load(path).count


class Sources:
    """The rivals' inputs, made once from an ImageFolder tree in a temporary folder that ``close`` removes.

    ``files`` is the tree's listing, in ImageFolder order, as JSON; ``lmdb`` is what HandWritten reads, made
    on first use.
    """

    def __init__(self, against: Path, limit: int = 0) -> None:
        from fastload.bench.listing import list_folder

        if not against.is_dir():
            raise ArgumentError(
                f"--against {against}: not a folder; give the CLASS/IMAGE tree that was packed"
            )
        self.listing = [(str(path.absolute()), label) for path, label in list_folder(against)]
        if 0 < limit < len(self.listing):  # taken here, so that the LMDB copies no more than is used
            self.listing = [self.listing[k] for k in evenly(len(self.listing), limit)]
        if not self.listing:
            raise ArgumentError(f"--against {against}: no CLASS/IMAGE files under it")
        self._scratch = contextlib.ExitStack()
        self._folder = self._scratch.enter_context(scratch_folder("bench"))
        self.files = self._folder / "files.json"
        self.files.write_text(json.dumps(self.listing), encoding="utf-8")
        self._lmdb: Path | None = None

    def lmdb(self) -> Path:
        """The LMDB of the files; a missing py-lmdb is an ImportError."""
        if self._lmdb is None:
            from fastload.bench.listing import write_lmdb

            out = self._folder / "files.lmdb"
            write_lmdb(self.listing, out)
            self._lmdb = out
        return self._lmdb

    def close(self) -> None:
        """Removes the temporary folder."""
        self._scratch.close()

    def __enter__(self) -> Sources:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def loader_turn(spec: TurnSpec, **more: Any) -> Round:
    """A turn for ``interleave``; the seed is the round's number."""
    return lambda number: take_turn(dataclasses.replace(spec, seed=number), **more)


def rival_specs(sources: Sources, base: TurnSpec, kinds: Sequence[LoaderKind]) -> list[TurnSpec]:
    """The specs of the loaders that read SRC, with base's settings."""
    specs = []
    for kind in kinds:
        source = sources.files if kind == "pillow" else sources.lmdb()
        specs.append(
            dataclasses.replace(base, kind=kind, source=str(source), images=len(sources.listing), limit=0)
        )
    return specs


def compare(
    dataset: Path,
    against: Path | None,
    base: TurnSpec,
    rounds: int,
    note: Callable[[str], contextlib.AbstractContextManager[object]] = _no_note,
) -> Json:
    """The whole comparison behind ``fastload bench``: a JSON document of schema ``SCHEMA``.

    Args:
        dataset: a packed dataset.
        against: the ImageFolder tree it was packed from; None leaves out the loaders that read files.
        base: settings; its kind and source are the packed dataset's.
        rounds: turns of each loader.
        note: a context manager that shows what runs now.
    """
    with contextlib.ExitStack() as stack:
        specs = [base, dataclasses.replace(base, kind="packed")]
        if against is not None:
            with note(f"reading {against}"):
                sources = stack.enter_context(Sources(against, base.limit))
                specs += rival_specs(sources, base, ["pillow", "handwritten"])
        started = time.time()
        measured = interleave(
            [(spec.kind, TITLES[spec.kind], loader_turn(spec)) for spec in specs], rounds, note
        )
    ours = measured[0]
    rows = {row.name: row for row in measured}
    settings = dataclasses.asdict(base)
    for hidden in ("kind", "source", "mode", "seed", "epochs", "trace"):
        del settings[hidden]
    return {
        "fastload_bench": SCHEMA,
        "dataset": dataset.name,
        "date": time.strftime("%Y-%m-%d", time.gmtime(started)),
        "machine": measure.machine_facts(),
        "settings": {**settings, "rounds": rounds},
        "loaders": [row.to_json() for row in measured],
        "ratios": {name: ratio(ours, row) for name, row in rows.items() if name != "fastload" and row.turns},
    }


def write_trace(base: TurnSpec, path: Path) -> None:
    """Writes a trace of a warm epoch of a FastLoader, in a turn of its own: what is measured is measured
    without one.

    Raises:
        BenchError: the turn failed.
    """
    result = take_turn(dataclasses.replace(base, mode="trace", trace=str(path.absolute())))
    if not result["ok"]:
        raise BenchError(f"no trace was written to {path}: {result['reason']}")


def check_writable(option: str, path: Path) -> None:
    """Refuses a file that cannot be written, before minutes are spent on what is to be in it.

    Raises:
        ArgumentError: its folder does not exist or may not be written to, or it is a folder.
    """
    if path.is_dir() or not path.absolute().parent.is_dir():
        raise ArgumentError(
            f"{option} {path}: {'a folder' if path.is_dir() else 'there is no such folder'}; name a file"
        )
    if not os.access(path if path.exists() else path.absolute().parent, os.W_OK):
        raise ArgumentError(f"{option} {path}: may not be written")


def write_json(document: Json, path: Path) -> None:
    """Writes the document, readable, ending in a newline.

    Raises:
        ArgumentError: the path cannot be written.
    """
    try:
        path.write_text(json.dumps(document, indent=2) + "\n", encoding="utf-8")
    except OSError as error:
        raise ArgumentError(f"--json {path}: {error.strerror}") from error
