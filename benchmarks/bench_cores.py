"""Many cores, computed: where images/s end on 1 to 128 cores, from parts that are measured on this machine,
and the model that computes it.

    python benchmarks/bench_cores.py [--rounds 5] [--memory 200] [--handover 100] [--save cores]

Method. Parts that threads do one after the other, and a thread's part, are measured here, each as the least
of all rounds (the most of bytes a second): whatever else runs on a machine only adds to them.
  loop     CPU time of the loop's thread for a batch of 64, 256 and 1,024 pictures of 32 x 32 pixels, packed
  raw and in the page cache, with
           64 native threads. It has a core to itself, and they share the other: on a machine of 64 cores it
           has one too. It sleeps until all batches in flight are ready, and then takes 96 one after the
           other, as a loop's thread that is the limit: one that waits finds its caches cold. Of that:
           `order`, a pass over the index batches alone; `announce` and `assemble`, from a trace.
  row      CPU time of one native thread for a picture of 32 x 32; and for a photo of the corpus, as JPEG and
  in the DCT form, cropped and
           resized to 224 x 224.
  lock     a turn of the pool's queue; `submit` what a submission costs its thread while 64 threads sleep;
  `line` an addition to a word
           that two threads write; memcpy; pread of a record (cores.c).
Two things cannot be measured on few cores and are assumed: bytes a second of the memory (--memory), and the
time in which a cache line goes from one core to another (--handover). A row hands over three: the batch's
count, and the file's reference count twice. A turn hands over two: the lock and the queue. What the model
leaves out (NUMA, clocks that fall) is in cores_model.py. The model is checked where it can be: with 1 and 2
threads on this machine, and with a loop that itself takes 2 ms a batch. Everything for more cores than this
machine has is computed, not measured.
"""

from __future__ import annotations

import argparse
import itertools
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import common
import numpy as np
from cores_model import PARTS, Machine, rate
from rich.table import Table

from fastload import FastLoader, PackedDataset, pack
from fastload import transforms as T
from fastload.bench.report import number
from fastload.sampling.arrays import index_batches
from fastload.sampling.known import facts_of

CSRC = common.HERE.parent / "csrc"
SMALL, SIDE = 102_400, 32
BATCHES = (64, 256, 1024)
CORES = (1, 2, 4, 8, 16, 32, 64, 128)
MANY = 64
BODY_S = 2e-3
BURST, ROW_MOST_S = 96, 8e-6
"""Batches that the loop takes without waiting for one, of 128 in flight; and a time in which a thread
surely makes a small picture."""
HANDOVERS_ROW, HANDOVERS_TURN = 3, 2
AIM = 1e6
"""Images/s of 32 x 32 on 64 cores."""
WRONG_MOST = 1.35
"""Most that the model and the measurement may differ, as a factor: rates of rounds on a shared machine lie
20% apart."""
Json = dict[str, Any]


class Pictures:
    """Small pictures of noise with their number."""

    def __len__(self) -> int:
        return SMALL

    def __getitem__(self, index: int) -> Any:
        return np.random.default_rng(index).integers(0, 256, (SIDE, SIDE, 3), np.uint8), index


# ---- one loader, in a process of its own


def pinned() -> None:
    """Gives the calling thread, the process's first, a core to itself, and all others the rest."""
    first, *rest = sorted(os.sched_getaffinity(0))
    for name in os.listdir("/proc/self/task"):
        os.sched_setaffinity(int(name), {first} if int(name) == os.getpid() else set(rest or [first]))


def epoch(loader: Any, body_s: float, pause_s: float = 0.0) -> Json:
    """One epoch: seconds, CPU seconds of the loop's thread, and of all others. `pause_s`: a sleep before
    every BURST batches."""
    began, mine, all_of_it, batches = time.perf_counter(), time.thread_time(), time.process_time(), 0
    for _ in loader:
        if pause_s and batches % BURST == 0:
            time.sleep(pause_s)
        batches += 1
        until = time.perf_counter() + body_s
        while body_s and time.perf_counter() < until:
            pass
    loop_s = time.thread_time() - mine
    return {
        "batches": batches,
        "seconds": time.perf_counter() - began,
        "loop_s": loop_s,
        "threads_s": time.process_time() - all_of_it - loop_s,
    }


def stages(loader: Any) -> Json:
    """Microseconds a batch of the loop's thread in stages of a trace, and in a pass over the index
    batches."""
    sampler = loader.batch_sampler
    began = time.thread_time()
    count = sum(1 for _ in index_batches(sampler, facts_of(sampler)))
    found = {"order": (time.thread_time() - began) / count * 1e6}
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "trace.json"
        with loader.trace(path):
            for _ in loader:
                pass
        events = json.loads(path.read_text())["traceEvents"]
    for name in ("announce", "assemble"):
        took = [each["dur"] for each in events if each.get("name") == name and each["ph"] == "X"]
        found[name] = statistics.median(took) if took else None
    return found


def turn(spec: Json) -> Json:
    """Epochs of one loader."""
    transform = [T.RandomResizedCrop(224), T.RandomHorizontalFlip()] if spec["crop"] else None
    data = PackedDataset(spec["data"], transform)
    with FastLoader(data, batch_size=spec["batch"], shuffle=True, num_workers=spec["threads"]) as loader:
        epoch(loader, 0.0)
        if spec["pinned"]:
            pinned()
        pause_s = BURST * spec["batch"] * ROW_MOST_S if spec["burst"] else 0.0
        epochs = [epoch(loader, spec["body_s"], pause_s) for _ in range(spec["epochs"])]
        count = len(data)
        return {
            "loop_us": min((each["loop_s"] / each["batches"] - spec["body_s"]) * 1e6 for each in epochs),
            "row_us": min(each["threads_s"] / count * 1e6 for each in epochs),
            "images_per_s": max(count / each["seconds"] for each in epochs),
            "stages_us": stages(loader) if spec["stages"] else None,
        }


def run_turn(data: Path, batch: int, threads: int, **options: Any) -> Json:
    """turn() in a process of its own, with the defaults of its options."""
    spec = {
        "crop": False,
        "pinned": True,
        "body_s": 0.0,
        "epochs": 6,
        "stages": False,
        "burst": False,
        **options,
    }
    spec |= {"data": str(data), "batch": batch, "threads": threads}
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}  # torch's own threads spin
    command = [sys.executable, __file__, "--turn", json.dumps(spec)]
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True, env=environment)
    found: Json = json.loads(done.stdout)
    return found


# ---- the parts


def small_pictures() -> Path:
    """The packed pictures of 32 x 32 pixels; kept between runs."""
    out = common.WORK / f"cores-{SIDE}-{SMALL}.fl"
    if not out.exists():
        pack(Pictures(), out, encode="raw")
    return out


def c_parts(data: Path, rounds: int) -> Json:
    """cores.c: the best of its rounds."""
    sources = [common.HERE / "cores.c", CSRC / "engine" / "pool.c", *sorted((CSRC / "common").glob("*.c"))]
    program = common.build_program(
        "cores", sources, ["libjpeg"], ["-O2", "-std=gnu11", f"-I{CSRC}"], [*CSRC.glob("*/*.h")]
    )
    command = [str(program), str(next(data.glob("shard-*.lmdb"))), str(SIDE * SIDE * 3 + 12)]
    turns = [
        json.loads(subprocess.run(command, stdout=subprocess.PIPE, check=True).stdout) for _ in range(rounds)
    ]
    best: Json = {}
    for name, first in turns[0].items():
        pick = max if name == "copy_gbs" else min
        keys = list(first) if isinstance(first, dict) else range(len(first))
        found = [pick(each[name][key] for each in turns) for key in keys]
        best[name] = dict(zip(keys, found, strict=True)) if isinstance(first, dict) else found
    return best


def least(turns: list[Json], key: str) -> float:
    return min(each[key] for each in turns)


def measure_parts(arguments: argparse.Namespace) -> Json:
    """All parts."""
    small, source = small_pictures(), common.corpus(arguments.corpus, "in500")
    photos = {
        "JPEG, 224 x 224": common.pack_fresh(source, "cores-in500.fl", workers=arguments.workers),
        "DCT form, 224 x 224": common.pack_fresh(
            source, "cores-in500-dct.fl", workers=arguments.workers, encode="dct"
        ),
    }
    loops: dict[int, list[Json]] = {batch: [] for batch in BATCHES}
    rows: dict[str, list[Json]] = {name: [] for name in (f"raw, {SIDE} x {SIDE}", *photos)}
    for _, batch in itertools.product(range(arguments.rounds), BATCHES):
        with common.note(f"the loop's thread, batches of {batch}"):
            loops[batch].append(run_turn(small, batch, MANY, stages=True, burst=True, epochs=3))
    for _ in range(arguments.rounds):
        with common.note("rows"):
            rows[f"raw, {SIDE} x {SIDE}"].append(run_turn(small, 256, 1))
            for name, data in photos.items():
                rows[name].append(run_turn(data, 64, 1, crop=True))
    return {
        "loop_us": {batch: least(turns, "loop_us") for batch, turns in loops.items()},
        "stages_us": {
            batch: {name: min(each["stages_us"][name] for each in turns) for name in turns[0]["stages_us"]}
            for batch, turns in loops.items()
        },
        "row_us": {name: least(turns, "row_us") for name, turns in rows.items()},
        "row_bytes": {
            name: bytes_of(data) for name, data in ((f"raw, {SIDE} x {SIDE}", small), *photos.items())
        },
        **c_parts(small, arguments.rounds),
    }


def bytes_of(data: Path) -> float:
    """Bytes that a row moves: its record is read; its pixels are written, after their cache lines were
    read."""
    side = SIDE if data == small_pictures() else 224
    record = sum(path.stat().st_size for path in data.glob("shard-*.lmdb")) / len(PackedDataset(data))
    return record + 2 * 3 * side * side


# ---- the model


def machine_of(
    parts: Json, name: str, batch: int, cores: int, arguments: argparse.Namespace, **given: Any
) -> Machine:
    """The model of a workload, from measured parts and the assumed ones."""
    handover = arguments.handover * 1e-9
    return Machine(
        cores=cores,
        batch=batch,
        loop_s=parts["loop_us"][batch] * 1e-6,
        row_s=parts["row_us"][name] * 1e-6,
        lock_s=parts["turn_ns"][0] * 1e-9 + HANDOVERS_TURN * handover,
        line_s=HANDOVERS_ROW * handover,
        row_bytes=parts["row_bytes"][name],
        memory=arguments.memory * 1e9,
        **given,
    )


def compute(parts: Json, arguments: argparse.Namespace) -> list[Json]:
    """Images/s by workload, batch size and number of cores."""
    found = []
    for name in parts["row_us"]:
        for batch in BATCHES if name.startswith("raw") else (256,):
            for cores in CORES:
                machine = machine_of(parts, name, batch, cores, arguments)
                bounds = machine.bounds()
                title = f"computed: {name}, batch {batch}, {cores} cores ({PARTS[machine.limit]})"
                where = {"title": title, "data": name, "batch": batch, "cores": cores}
                found.append(
                    {**where, "images_per_s": rate(machine), "limit": machine.limit, "bounds": bounds}
                )
    return found


def validate(parts: Json, arguments: argparse.Namespace) -> list[Json]:
    """The model beside this machine, where that has enough cores: best rates of interleaved rounds."""
    small, name, cores = small_pictures(), f"raw, {SIDE} x {SIDE}", len(os.sched_getaffinity(0))
    cases: dict[str, Json] = {
        "1 thread": {"threads": 1, "body_s": 0.0},
        f"2 threads and the loop's on {cores} cores": {"threads": 2, "body_s": 0.0},
        f"a loop of {BODY_S * 1e3:g} ms": {"threads": 1, "body_s": BODY_S},
    }
    measured: dict[str, list[float]] = {case: [] for case in cases}
    for _, (case, options) in itertools.product(range(arguments.rounds), cases.items()):
        with common.note(f"the model's check: {case}"):
            measured[case].append(run_turn(small, 256, pinned=False, epochs=3, **options)["images_per_s"])
    out = []
    for case, options in cases.items():
        computed = rate(machine_of(parts, name, 256, cores, arguments, **options))
        rounds = [{"measured": each, "computed": computed} for each in measured[case]]
        out.append({"title": case, "computed": computed, "measured": max(measured[case]), "rounds": rounds})
    return out


# ---- the tables


def show_parts(parts: Json) -> None:
    """Prints what was measured."""
    shown = Table(title=f"the loop's thread, {MANY} threads: CPU us a batch")
    for heading in ("batch", "in all", "order", "announce", "assemble", "images/s at most"):
        shown.add_column(heading, justify="right")
    for batch, us in parts["loop_us"].items():
        stages_us = parts["stages_us"][batch]
        shown.add_row(
            str(batch), *(number(each, 1) for each in (us, *stages_us.values())), number(batch / us * 1e6)
        )
    common.console.print(shown)
    shown = Table(title="a native thread: CPU us a row; bytes through memory")
    for heading in ("", "us", "bytes"):
        shown.add_column(heading, justify="right" if heading else "left")
    for name, us in parts["row_us"].items():
        shown.add_row(name, number(us, 1), number(parts["row_bytes"][name]))
    common.console.print(shown)
    turn_ns, line_ns, submit = parts["turn_ns"], parts["line_ns"], parts["submit_ns"]
    common.console.print(
        f"queue: {turn_ns[0]:.0f} ns a turn by 1 thread, {turn_ns[1]:.0f} by 2; line: "
        f"{line_ns[0]:.1f} ns, {line_ns[1]:.1f} by 2"
    )
    common.console.print(
        f"submit: {', '.join(f'{float(ns) / 1000:.1f} us with {each} asleep' for each, ns in submit.items())}"
    )
    common.console.print(
        f"memcpy: {parts['copy_gbs']} GB/s by 1 and 2 threads; pread: {parts['read_ns']} ns", highlight=False
    )


def show_computed(found: list[Json]) -> None:
    """Prints the curve."""
    shown = Table(title="images/s, COMPUTED from the parts above (not measured)")
    shown.add_column("cores", justify="right")
    columns = list(dict.fromkeys((each["data"], each["batch"]) for each in found))
    for name, batch in columns:
        shown.add_column(f"{name}, batch {batch}", justify="right")
    for cores in CORES:
        cells = {(each["data"], each["batch"]): each for each in found if each["cores"] == cores}
        shown.add_row(
            str(cores),
            *(f"{number(cells[key]['images_per_s'])} ({PARTS[cells[key]['limit']]})" for key in columns),
        )
    common.console.print(shown)


def main() -> int:
    """Measures the parts, checks the model, and computes."""
    made = common.parser(__doc__, rounds=5)
    made.add_argument(
        "--memory",
        type=float,
        default=200.0,
        help="GB/s of the computed machine's memory (default %(default)s)",
    )
    made.add_argument(
        "--handover",
        type=float,
        default=100.0,
        help="ns in which a cache line goes to another core (default %(default)s)",
    )
    made.add_argument("--turn", help=argparse.SUPPRESS)
    arguments = made.parse_args()
    if arguments.turn:
        print(json.dumps(turn(json.loads(arguments.turn))))  # noqa: T201
        return 0
    common.WORK.mkdir(parents=True, exist_ok=True)
    parts = measure_parts(arguments)
    show_parts(parts)
    checked, computed = validate(parts, arguments), compute(parts, arguments)
    show_computed(computed)
    targets = [
        common.Target(
            f"{each['title']}: computed and measured, as a factor",
            max(each["computed"] / each["measured"], each["measured"] / each["computed"]),
            WRONG_MOST,
            at_most=True,
        )
        for each in checked
    ]
    for each in computed:
        if each["cores"] == MANY and each["data"].startswith("raw"):
            title = f"{each['data']}, batch {each['batch']}, {MANY} cores, computed: million images/s"
            targets.append(common.Target(title, each["images_per_s"] / 1e6, AIM / 1e6))
    return common.finish(
        "cores",
        arguments,
        targets,
        computed_not_measured=True,
        assumed={"memory_gbs": arguments.memory, "handover_ns": arguments.handover},
        parts=parts,
        checked=checked,
        computed=computed,
    )


if __name__ == "__main__":
    sys.exit(main())
