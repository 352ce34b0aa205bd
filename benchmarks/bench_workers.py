"""Any Dataset in worker processes: FastLoader against torch's DataLoader with identical arguments.

    python benchmarks/bench_workers.py [--case ready] [--case heavy] [--rounds 5] [--save workers]

Cases
    ready    ready tensors of 3x224x224 float32, batches of 64: what a batch's way to the consumer costs
    tiny     an int an item, batches of 64 and of 1: what an item and what a batch cost
    batches  whole 9.6 MB uint8 batches out of a custom collate_fn
    custom   other custom collate_fns: a dict, padded sequences, strings, nested containers, small images
    pillow   photographs decoded and cropped by Pillow: the dataset is the bottleneck, nothing may get slower
    heavy    a few ms of CPU work a sample, and 1% of samples sleep 0.15 s more: waits per step with 2 and 4
    workers epochs   1,000 epochs of four small batches under persistent workers, with memory, threads and
    descriptors; and epochs
             that start their workers anew
    shm      large batches where /dev/shm holds 64 MB (needs root: a mount namespace)

Method: each turn is a process of its own (worker_turn.py); rounds go torch, fastload, torch, fastload; a
ratio is the median over rounds of the ratio of two turns of one round. Rates are taken inside a long epoch
after 24 batches, which are checked for what they hold. The consumer drops each batch unread; with --read it
reads it, as a copy to a device would. Caveats: on a machine with as many cores as workers the consumer
competes with them. p99 of one turn rests on its two worst steps: the same samples are slow for every loader,
so that turns compare, but use --rounds 3 or more for a result to keep.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import common
from rich.markup import escape
from rich.table import Table
from worker_turn import Spec

from fastload.bench import harness, measure
from fastload.bench.report import disturbance, number

HERE = Path(__file__).resolve().parent
Json = dict[str, Any]
Outcome = tuple[list[common.Target], list[harness.Measured]]
TORCH, OURS = "torch DataLoader", "fastload"
# Columns of the rate cases and the bound of fastload's batches/s over torch's.
BOUNDS = {
    "ready": {"ready": 2.0},
    "tiny": {"batch 64": 1.5, "batch 1": 1.5},
    "batches": {"9.6 MB": 3.0},
    "custom": dict.fromkeys(("dict", "padded", "text", "nested", "pixels"), 1.0),
    "pillow": {"pillow": 1.0},
}
DEFAULT_ROUNDS = {"heavy": 1, "epochs": 3, "shm": 1}  # else 5: a case takes about a minute
SMALL_SHM = ["unshare", "-m", "sh", "-c", 'mount -t tmpfs -o size=64m tmpfs /dev/shm && exec "$@"', "sh"]


def run_child(spec: Spec, prefix: list[str], *, may_fail: bool) -> Json:
    """Runs one turn in a fresh process; a crash is its reason where it may fail.

    Raises:
        BenchError: the child ended without a result.
    """
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    environment["PYTHONPATH"] = os.pathsep.join(
        [str(HERE.parent), *filter(None, [os.environ.get("PYTHONPATH")])]
    )
    command = [*prefix, sys.executable, str(HERE / "worker_turn.py"), json.dumps(dataclasses.asdict(spec))]
    done = subprocess.run(command, capture_output=True, text=True, env=environment, timeout=600, check=False)
    lines = done.stdout.strip().splitlines()
    if done.returncode == 0 and lines:
        result: Json = json.loads(lines[-1])
        return result
    said = (done.stderr.strip().splitlines() or ["nothing on stderr"])[-1]
    if not may_fail:
        raise harness.BenchError(
            f"{spec.case}: the process that ran {spec.loader} ended with status {done.returncode}: {said}"
        )
    return {"ok": False, "reason": said}


def turn_of(spec: Spec, prefix: list[str] | None = None, *, may_fail: bool = False) -> harness.Round:
    """A turn for ``interleave``; the seed is the round's number."""
    return lambda number: run_child(dataclasses.replace(spec, seed=number), prefix or [], may_fail=may_fail)


def both(base: Spec, **options: Any) -> list[tuple[str, str, harness.Round]]:
    """torch and fastload, with the same spec."""
    pairs = (("torch", TORCH), ("fastload", OURS))
    return [
        (name, title, turn_of(dataclasses.replace(base, loader=name), **options)) for name, title in pairs
    ]


def warn_disturbed(rows: list[harness.Measured]) -> None:
    """Says so when other processes took part of the machine."""
    if (warning := disturbance([row.to_json() for row in rows])) is not None:
        common.console.print(warning, style="yellow", highlight=False)


def show(title: str, rows: list[harness.Measured], columns: dict[str, tuple[str, int]]) -> None:
    """Prints medians of the columns, {heading: (column, digits)}, with ± where there are rounds, and the
    engine."""
    made = Table(title=title)
    for heading in ("", *columns, "engine"):
        made.add_column(heading, justify="right" if heading not in ("", "engine") else "left")
    for row in rows:
        if row.reason is not None:
            made.add_row(row.title, escape(row.reason))
            continue
        cells = []
        for column, digits in columns.values():
            spread = measure.spread(row.values(column))
            cells.append(number(row.median(column), digits) + ("" if not spread else f" ±{spread:.0%}"))
        made.add_row(row.title, *cells, row.turns[-1].get("engine", ""))
    common.console.print(made)
    warn_disturbed(rows)


def show_rates(title: str, rows: list[harness.Measured], parts: list[str]) -> None:
    """Prints batches/s and CPU time a batch of torch and fastload for each part, and both ratios."""
    torch, ours = rows
    made = Table(
        title=f"{title} ({TORCH} | {OURS}, engine: {ours.turns[-1]['engine'] if ours.turns else ours.reason})"
    )
    for heading in ("", "batches/s", "", "ratio", "CPU us a batch", "", "ratio"):
        made.add_column(heading, justify="right")
    for part in parts:
        cells = [part]
        for column, digits, ratio in (
            (f"{part} per s", 1, (ours, torch)),
            (f"{part} cpu us", 0, (torch, ours)),
        ):
            for row in rows:
                spread = measure.spread(row.values(column))
                cells.append(number(row.median(column), digits) + ("" if not spread else f" ±{spread:.0%}"))
            cells.append(number(harness.ratio(*ratio, column), 2))
        made.add_row(*cells)
    common.console.print(made)
    warn_disturbed(rows)


def rate_case(name: str, arguments: argparse.Namespace, rounds: int) -> Outcome:
    """A case of batches/s."""
    base = Spec(name, "", arguments.workers, arguments.seconds, read=arguments.read)
    if name == "pillow":  # so many batches, not seconds: the same crops of the same pictures for both
        base = dataclasses.replace(
            base, batches=32, pictures=str(common.corpus(arguments.corpus, "in500").absolute())
        )
    rows = harness.interleave(both(base), rounds, common.note)
    show_rates(name, rows, list(BOUNDS[name]))
    torch, ours = rows
    ratios = {
        part: (harness.ratio(ours, torch, f"{part} per s"), bound) for part, bound in BOUNDS[name].items()
    }
    return [
        common.Target(f"{name}, {part}: fastload / torch", value, bound)
        for part, (value, bound) in ratios.items()
    ], rows


def heavy_case(workers: int, arguments: argparse.Namespace, rounds: int) -> Outcome:
    """Waits per step with so many workers."""
    base = Spec("heavy", "", workers, 0, batches=arguments.steps)
    turns = []
    for loader, title, more in (
        ("torch", TORCH, {}),
        ("fastload", OURS, {}),
        ("fastload", f'{OURS}, seed_by="sample"', {"seed_by": "sample"}),
        ("torch", f"{TORCH}, in_order=False", {"in_order": False}),
        ("fastload", f"{OURS}, in_order=False", {"in_order": False}),
    ):
        turns.append(
            (f"heavy-{workers}-{title}", title, turn_of(dataclasses.replace(base, loader=loader, more=more)))
        )
    rows = harness.interleave(turns, rounds, common.note)
    columns = {
        "wait p50, ms": ("p50_ms", 0),
        "p99, ms": ("p99_ms", 0),
        "max, ms": ("max_ms", 0),
        "steps/s": ("steps_per_s", 1),
    }
    show(f"heavy, {workers} workers", rows, columns)
    torch, ours, by_sample, torch_any, ours_any = rows
    title = f"heavy, {workers} workers, p99:"
    return [
        common.Target(
            f"{title} by sample / torch", harness.ratio(by_sample, torch, "p99_ms"), 0.5, at_most=True
        ),
        common.Target(f"{title} fastload / torch", harness.ratio(ours, torch, "p99_ms"), 1.0, at_most=True),
        common.Target(
            f"{title} in_order=False / torch's",
            harness.ratio(ours_any, torch_any, "p99_ms"),
            1.0,
            at_most=True,
        ),
    ], rows


def heavy_cases(arguments: argparse.Namespace, rounds: int) -> Outcome:
    """2 and 4 workers."""
    two, four = (heavy_case(workers, arguments, rounds) for workers in (2, 4))
    return two[0] + four[0], two[1] + four[1]


def epochs_case(arguments: argparse.Namespace, rounds: int) -> Outcome:
    """Epochs/s, growth, and what starting workers anew costs."""
    base = Spec("epochs", "", arguments.workers, 0, epochs=1000)
    rows = harness.interleave(both(base), rounds, common.note)
    columns = {"epochs/s": ("epochs_per_s", 0), "an epoch, ms": ("epoch_ms", 2)}
    kinds = ("processes", "threads", "fds", "memory")
    columns |= {f"growth: {kind}": (f"growth {kind}", 0) for kind in kinds}
    show("1,000 epochs, persistent workers (growth of memory in bytes)", rows, columns)
    fresh = harness.interleave(
        both(dataclasses.replace(base, case="fresh", epochs=10)), min(rounds, 2), common.note
    )
    show("workers started anew, ms an epoch", fresh, {"fork": ("fork_ms", 0), "spawn": ("spawn_ms", 0)})
    torch, ours = rows
    targets = [
        common.Target("epochs: fastload / torch, epochs/s", harness.ratio(ours, torch, "epochs_per_s"), 3.0)
    ]
    for kind in kinds[:3]:
        worst = max((turn[f"growth {kind}"] for turn in ours.turns), default=None)
        targets.append(common.Target(f"epochs: growth of {kind}", worst, 0, at_most=True, digits=0))
    memory = ours.median("growth memory")
    # 1 MB: what bench_memory.py allows to the allocators' coming and going; a leak of 1.3 KB an epoch would
    # show.
    targets.append(
        common.Target(
            "epochs: growth of memory, MB", None if memory is None else memory * 1e-6, 1.0, at_most=True
        )
    )
    return targets, rows + fresh


def shm_case(arguments: argparse.Namespace, rounds: int) -> Outcome:
    """Start methods that get through; torch is shown, not judged."""
    rows: list[harness.Measured] = []
    base = Spec("shm", "", arguments.workers, 0, batches=48)
    tried = subprocess.run([*SMALL_SHM, "true"], check=False).returncode if shutil.which("unshare") else 1
    if tried:
        common.console.print(
            "shm: no mount namespace here (run as root, with CAP_SYS_ADMIN): not measured", style="yellow"
        )
        return [common.Target("shm: start methods that work with 64 MB", None, 2, digits=0)], []
    turns = []
    for method in ("fork", "spawn"):
        spec = dataclasses.replace(base, more={"multiprocessing_context": method})
        found = both(spec, prefix=SMALL_SHM, may_fail=True)
        turns += [(f"{name}-{method}", f"{title}, {method}", turn) for name, title, turn in found]
    rows = harness.interleave(turns, rounds, common.note)
    show("/dev/shm of 64 MB, 154 MB in flight", rows, {"batches/s": ("batches_per_s", 0)})
    working = sum(bool(row.turns) for row in rows if row.name.startswith("fastload"))
    return [common.Target("shm: start methods that work with 64 MB", working, 2, digits=0)], rows


CASES: dict[str, Callable[[argparse.Namespace, int], Outcome]] = {
    "heavy": heavy_cases,
    "epochs": epochs_case,
    "shm": shm_case,
}
NAMES = [*BOUNDS, *CASES]


def main() -> int:
    """Measures the cases asked for, or all."""
    made = common.parser(__doc__, rounds=5, seconds=1.0)
    made.set_defaults(rounds=None)
    made.add_argument("--case", choices=NAMES, action="append", help="only this case; may be given again")
    made.add_argument("--read", action="store_true", help="rates: the consumer reads each batch")
    made.add_argument(
        "--steps", type=int, default=120, help="heavy: steps measured a turn (default %(default)s)"
    )
    arguments = made.parse_args()
    targets: list[common.Target] = []
    details: Json = {}
    for name in arguments.case or NAMES:
        rounds = arguments.rounds or DEFAULT_ROUNDS.get(name, 5)
        run = CASES.get(name)
        found, rows = rate_case(name, arguments, rounds) if run is None else run(arguments, rounds)
        targets += found
        details[name] = [row.to_json() for row in rows]
    return common.finish("workers", arguments, targets, read=arguments.read, **details)


if __name__ == "__main__":
    sys.exit(main())
