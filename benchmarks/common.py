"""What the benchmark scripts share: the corpus, the floor, the targets' table and the kept results."""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import shlex
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from fastload.bench import measure
from fastload.bench.harness import Measured, ratio
from fastload.bench.listing import list_folder
from fastload.bench.report import disturbance, number

HERE = Path(__file__).resolve().parent
WORK = HERE.parent / "build" / "bench"
RESULTS = HERE / "results"
Json = dict[str, Any]
console = Console()


@dataclass(frozen=True)
class Target:
    """One line of the outcome: ``value`` should be at least (or at most) ``bound``."""

    name: str
    value: float | None
    bound: float
    at_most: bool = False
    digits: int = 2

    @property
    def met(self) -> bool | None:
        """None where it was not measured."""
        if self.value is None:
            return None
        return self.value <= self.bound if self.at_most else self.value >= self.bound


def parser(doc: str | None, *, rounds: int, seconds: float | None = None) -> argparse.ArgumentParser:
    """The options every script has; ``doc`` is the script's own docstring."""
    made = argparse.ArgumentParser(description=doc, formatter_class=argparse.RawDescriptionHelpFormatter)
    made.add_argument(
        "--corpus", type=Path, help="folder with in500/ and big/ (default: $FASTLOAD_SHARED/corpus)"
    )
    made.add_argument("--rounds", type=int, default=rounds, help="interleaved rounds (default %(default)s)")
    if seconds is not None:
        made.add_argument(
            "--seconds", type=float, default=seconds, help="least time of a turn (default %(default)s)"
        )
    made.add_argument(
        "--workers", type=int, default=2, help="threads, or worker processes (default %(default)s)"
    )
    made.add_argument("--save", metavar="NAME", help="keep the result as benchmarks/results/NAME.json")
    made.add_argument("--check", action="store_true", help="exit with status 1 when a target is missed")
    return made


def corpus(given: Path | None, name: str) -> Path:
    """The folder of one part of the corpus; ends the script with what to do when it is not there."""
    shared = Path(os.environ.get("FASTLOAD_SHARED", HERE.parent.parent / "shared"))
    found = (given or shared / "corpus") / name
    if not found.is_dir():
        console.print(
            f"{name}: no such folder in the corpus; pass --corpus or set FASTLOAD_SHARED", style="red"
        )
        sys.exit(2)
    return found


_QUALITY_FILES = 25


def saved_again(source: Path, quality: int) -> Path:
    """The first images of a folder at another quality, kept under build/bench between runs."""
    from fastload._native import core
    from fastload.packing.jpegs import encode_jpeg

    out = WORK / f"{source.name}-q{quality}" / "all"
    out.mkdir(parents=True, exist_ok=True)
    for k, (path, _) in enumerate(list_folder(source)[:_QUALITY_FILES]):
        into = out / f"{k:03d}.jpg"
        if not into.exists():
            into.write_bytes(encode_jpeg(core.jpeg_decode(path.read_bytes()), quality, "4:2:0"))
    return out.parent


def photographs(arguments: argparse.Namespace) -> Path:
    """The folder that --photographs names: a part of the corpus, or one saved again at quality 75."""
    if arguments.photographs == "q75":
        return saved_again(corpus(arguments.corpus, "in500"), 75)
    return corpus(arguments.corpus, arguments.photographs)


def add_photographs(parser: argparse.ArgumentParser) -> None:
    """The option --photographs."""
    parser.add_argument(
        "--photographs", choices=("in500", "big", "q75"), default="in500", help="Of 0.2 or 1.8 megapixels."
    )


def copies(source: Path, times: int) -> Path:
    """A CLASS/IMAGE tree with every image of source ``times`` times, each a file of its own (a link shares
    its pages).

    Kept under build/bench between runs.
    """
    out = WORK / f"{source.name}-x{times}"
    done = out.with_suffix(".done")
    if done.exists():
        return out
    shutil.rmtree(out, ignore_errors=True)
    for path, _ in list_folder(source):
        folder = out / path.parent.name
        folder.mkdir(parents=True, exist_ok=True)
        for k in range(times):
            shutil.copyfile(path, folder / f"{path.stem}-{k:02d}{path.suffix}")
    done.touch()
    return out


def pack_fresh(source: Path, name: str, **options: Any) -> Path:
    """Packs source anew, as the code now is; returns the dataset's folder."""
    from fastload import pack

    out = WORK / name
    shutil.rmtree(out, ignore_errors=True)
    pack(source, out, **options)
    return out


def build_program(
    name: str,
    sources: Sequence[Path],
    libraries: Sequence[str],
    flags: Sequence[str],
    headers: Sequence[Path] = (),
) -> Path:
    """Compiles C sources to build/bench/NAME with the compiler of $CC (cc), unless it is newer than they are.

    Args:
        name: the program.
        sources: all of it.
        libraries: pkg-config's names.
        flags: the compiler's.
        headers: what makes it stale beside the sources.
    """
    out = WORK / name
    if out.exists() and out.stat().st_mtime > max(path.stat().st_mtime for path in (*sources, *headers)):
        return out
    WORK.mkdir(parents=True, exist_ok=True)
    found = subprocess.run(
        ["pkg-config", "--cflags", "--libs", *libraries], capture_output=True, text=True, check=True
    )
    compiler = shlex.split(os.environ.get("CC", "cc"))
    linked = [*shlex.split(found.stdout), "-lpthread", "-lm"]
    subprocess.run([*compiler, *flags, "-o", out, *sources, *linked], check=True)
    return out


def build_floor() -> Path:
    """Compiles floor.c; returns the program."""
    sources = [HERE / "floor.c", HERE / "floor_decode.c"]
    return build_program("floor", sources, ["libjpeg"], ["-O2", "-std=c11"], [HERE / "floor_decode.h"])


def write_listing(source: Path, times: int = 1) -> Path:
    """The paths of a CLASS/IMAGE tree in a text file, one a line, all of them ``times`` times over."""
    listing = WORK / f"{source.name}.txt"
    WORK.mkdir(parents=True, exist_ok=True)
    listing.write_text("".join(f"{path}\n" for path, _ in list_folder(source)) * times, encoding="utf-8")
    return listing


def floor_turn(source: Path, modes: Sequence[str], workers: int, size: int, seconds: float) -> Any:
    """A turn for ``interleave``: ``images_per_s`` and ``cpu_s_per_1000`` of the first mode; all under
    ``modes``."""
    program = build_floor()
    listing = write_listing(source)

    def turn(round_number: int) -> Json:
        command = [program, listing, workers, size, seconds, round_number, *modes]
        done = subprocess.run([str(part) for part in command], capture_output=True, text=True, check=True)
        found = json.loads(done.stdout)
        first = found[modes[0]]
        return {
            "ok": True,
            "images_per_s": first["images_per_s"],
            "cpu_s_per_1000": first["cpu_us"] / 1000,
            "modes": {mode: found[mode] for mode in modes},
        }

    return turn


@contextlib.contextmanager
def note(text: str) -> Iterator[None]:
    """Says what runs now, on a terminal only."""
    with Console(stderr=True).status(text):
        yield


def show_rates(title: str, rows: Sequence[Measured]) -> None:
    """Prints images/s and CPU time of each, how far the rounds lie apart, and what disturbed them."""
    made = Table(title=title)
    made.add_column("")
    for heading in ("images/s", "±", "CPU us an image", "rounds"):
        made.add_column(heading, justify="right")
    for row in rows:
        if row.reason is not None:
            made.add_row(row.title, row.reason)
            continue
        spread = measure.spread(row.values("images_per_s"))
        made.add_row(
            row.title,
            number(row.median("images_per_s")),
            "" if spread is None else f"{spread:.1%}",
            number(row.median("cpu_s_per_1000"), 0, 1000),
            str(len(row.turns)),
        )
    console.print(made)
    if (warning := disturbance([row.to_json() for row in rows])) is not None:
        console.print(warning, style="yellow", highlight=False)


def by_cpu_time(ours: Measured, others: Sequence[Measured]) -> str:
    """The same comparison in CPU time, which other processes disturb less than they do rates."""
    found = [(ratio(other, ours, "cpu_s_per_1000"), other.title) for other in others]
    return "by CPU time: " + ", ".join(f"{number(value, 2)} x {title}" for value, title in found)


def outcome(targets: Sequence[Target]) -> Table:
    """Each target beside what was measured."""
    made = Table(title="targets")
    for heading in ("", "measured", "target", ""):
        made.add_column(heading, justify="right" if heading else "left")
    words = {True: "met", False: "MISSED", None: "not measured"}
    for target in targets:
        bound = f"{'<=' if target.at_most else '>='} {target.bound:,.{target.digits}f}"
        made.add_row(target.name, number(target.value, target.digits), bound, words[target.met])
    return made


def today() -> str:
    """The date that results have."""
    return time.strftime("%Y-%m-%d", time.gmtime())


def finish(name: str, arguments: argparse.Namespace, targets: Sequence[Target], **details: Any) -> int:
    """Prints the targets, keeps the result when --save asks for it, returns the exit status."""
    if targets:
        console.print(outcome(targets))
    document = {
        "benchmark": name,
        "date": today(),
        "machine": measure.machine_facts(),
        "rounds": arguments.rounds,
        "workers": arguments.workers,
        "targets": [
            {"name": t.name, "value": t.value, "bound": t.bound, "at_most": t.at_most, "met": t.met}
            for t in targets
        ],
        **details,
    }
    if arguments.save:
        RESULTS.mkdir(exist_ok=True)
        (RESULTS / f"{arguments.save}.json").write_text(
            json.dumps(document, indent=1) + "\n", encoding="utf-8"
        )
    return 1 if arguments.check and any(t.met is False for t in targets) else 0
