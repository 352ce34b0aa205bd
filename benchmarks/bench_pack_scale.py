"""Memory and time of a pack by its number of samples: a folder of small images, on one machine and on Ray,
and the listing of a table.

    python benchmarks/bench_pack_scale.py [--samples 1000000] [--rows 10000000] [--ray] [--only pack listing
    ...] [--save pack_scale]

Method: 4,000 JPEGs of noise of 32 x 32 pixels, some 0.9 KB each, are hard-linked into classes of 1,000 files.
Each line is two packs, each by a process of its own, of a part of the samples and of all. The growth by
sample is the difference of their peaks over that of their numbers; a line's bytes at 10^8 samples are
extrapolated from it.
  pack       fastload.pack(encode="raw") on one machine, of half of the samples and of all.
  shuffled   the same with shuffle=True.
  resumed    the pack is killed (SIGKILL) once half of its log of samples is written, and goes on with
  resume=True, which is measured. listing    of a table (.csv) of ROWS / 4 and of ROWS lines, which name the
  same 4,000 files: opening the source, its digests, and the
             shuffled order.
  table      packs of tables of ROWS / 20 and of ROWS / 5 lines.
  ray        with --ray, as `pack`, on a raylet of 2 CPUs of this machine, with shard_samples=8192.
  ray table  with --ray, as `table`, likewise.
Every folder's dataset is opened and counted, and 50 of its samples are compared with Pillow's pixels.
*driver* is the process that calls pack; *task* is the largest of Ray's worker processes. Both are the largest
RssAnon + RssFile, looked at every 0.1 s: libraries and the mapped shard count, and the shared memory of Ray's
object store does not. *peak* is the driver's VmHWM, the kernel's own largest resident set, with shared
memory. *files* are the driver's temporary files at their largest. Caveats: hard links to few files leave the
page cache warm, so that times are those of a source in memory. Nobody packed 10^8 samples here. Peaks vary by
some MB from run to run, which is some bytes a sample of a line that is short. The part has to fill a shard,
since what is held of the shard that is written grows until it is full. TMPDIR should be on a disk: on a tmpfs
temporary files are memory.
"""

from __future__ import annotations

import io
import json
import os
import shutil
import signal
import stat
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from contextlib import closing, suppress
from pathlib import Path

import common
import numpy as np
from PIL import Image
from rich.table import Table

import fastload
from fastload.bench import measure
from fastload.bench.report import number
from fastload.packing.job import PackJob
from fastload.packing.options import PackOptions
from fastload.packing.origins import ENTRY
from fastload.sources import open_source
from fastload.sources.options import SourceOptions
from fastload.sources.pixels import open_image
from fastload.store.progress import LOG_NAME

DISTINCT = 4_000
CLASS_SAMPLES = 1_000
CPUS = 2
COMPARED = 50
LOOK_EVERY = 0.1
LINES = ("pack", "shuffled", "resumed", "listing", "table", "ray", "ray table")
SHARD_SAMPLES = 8192
"""Samples of a shard that Ray makes: the most by default, so that both packs of a line have tasks of the
same size."""
FAR = 10**8
"""Samples for which the growth is extrapolated."""
BOUND_MB = 1_000.0
"""Bound on each process at `FAR` samples."""


def make_files(work: Path) -> Path:
    """The distinct JPEGs."""
    files = work / "files"
    if not files.exists():
        files.mkdir(parents=True)
        random = np.random.default_rng(0)
        for each in range(DISTINCT):
            blocks = Image.fromarray(random.integers(0, 256, (8, 8, 3), np.uint8))
            blocks.resize((32, 32), Image.Resampling.BICUBIC).save(files / f"{each:04d}.jpg", quality=85)
    return files


def make_folder(work: Path, samples: int) -> Path:
    """A folder of class folders with `samples` hard links to the JPEGs."""
    files, folder = os.fspath(make_files(work)), work / f"folder-{samples}"
    if folder.exists():
        return folder
    for first in range(0, samples, CLASS_SAMPLES):
        below = folder / f"class{first // CLASS_SAMPLES:05d}"
        below.mkdir(parents=True)
        for each in range(first, min(first + CLASS_SAMPLES, samples)):
            os.link(f"{files}/{each * 7919 % DISTINCT:04d}.jpg", f"{below}/image{each:08d}.jpg")
    return folder


def make_table(work: Path, rows: int) -> Path:
    """A table of `rows` lines that name the JPEGs."""
    make_files(work)
    table = work / f"table-{rows}.csv"
    with open(table, "w", encoding="utf-8") as file:
        file.write("path,label\n")
        file.writelines(
            f"files/{each * 7919 % DISTINCT:04d}.jpg,class{each % CLASS_SAMPLES:05d}\n"
            for each in range(rows)
        )
    return table


# ---- one process


def memory(pid: int) -> tuple[int, int, int]:
    """Bytes of the largest resident set of a process so far, of its memory now without shared memory, and
    of that; zeros if it is gone."""
    try:
        status = Path(f"/proc/{pid}/status").read_text(encoding="utf-8")
    except OSError:
        return 0, 0, 0
    found = dict(line.split(":", 1) for line in status.splitlines())
    peak, anon, file, shared = (
        int(found.get(name, "0").split()[0]) << 10 for name in ("VmHWM", "RssAnon", "RssFile", "RssShmem")
    )
    return peak, anon + file, shared


def title(pid: int) -> str:
    """The command of a process; "" if it is gone."""
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes().decode("utf-8", "replace")
    except OSError:
        return ""


def temporary_bytes(pid: int) -> int:
    """Bytes of the files without a name that a process has open on the device of TMPDIR."""
    total, device = 0, os.stat(tempfile.gettempdir()).st_dev
    try:
        for name in os.listdir(f"/proc/{pid}/fd"):
            with suppress(OSError):
                found = os.stat(f"/proc/{pid}/fd/{name}")
                if stat.S_ISREG(found.st_mode) and not found.st_nlink and found.st_dev == device:
                    total += found.st_size
    except OSError:
        return 0
    return total


def turn(asked: common.Json) -> common.Json:
    """Packs or lists in this process."""
    if asked["ray"]:
        folder = tempfile.mkdtemp(prefix="flray-", dir="/tmp")
        path = os.pathsep.join([str(Path(fastload.__file__).parents[1]), os.environ.get("PYTHONPATH", "")])
        os.environ |= {
            "RAY_USAGE_STATS_ENABLED": "0",
            "RAY_AUTH_MODE": "disabled",
            "RAY_TMPDIR": folder,
            "PYTHONPATH": path,
        }
        import ray

        ray.init(
            num_cpus=CPUS,
            object_store_memory=80 << 20,
            include_dashboard=False,
            log_to_driver=False,
            logging_level="error",
        )
    begin = time.perf_counter()
    if asked["out"] is None:
        job = PackJob(open_source(asked["source"], SourceOptions()), PackOptions(shuffle=True))
        samples = len(job.order)
    else:
        samples = fastload.pack(asked["source"], asked["out"], encode="raw", **asked["options"]).samples
    found = {"seconds": time.perf_counter() - begin, "samples": samples}
    if asked["ray"]:
        ray.shutdown()
        shutil.rmtree(folder, ignore_errors=True)
    return found


# ---- the processes that are watched


def watch(asked: common.Json, stop: Callable[[], bool] | None = None) -> common.Json:
    """Runs a turn in a process of its own, and looks at it and at Ray's workers. `stop` returns True when
    the process is to be killed."""
    command = [sys.executable, __file__, "--turn", json.dumps(asked)]
    driver = task = files = peak = shared = 0
    begin = time.perf_counter()
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        while process.poll() is None:
            looked = *memory(process.pid), temporary_bytes(process.pid)
            peak, driver, shared, files = (
                max(pair) for pair in zip((peak, driver, shared, files), looked, strict=True)
            )
            if asked["ray"]:
                task = max(
                    [
                        task,
                        *(
                            memory(pid)[1]
                            for pid in measure.descendants(process.pid)
                            if title(pid).startswith("ray::")
                        ),
                    ]
                )
            if stop is not None and stop():
                process.send_signal(signal.SIGKILL)
                break
            time.sleep(LOOK_EVERY)
        out = process.communicate()[0]
    if process.returncode == -signal.SIGKILL and stop is not None:
        return {"seconds": time.perf_counter() - begin, "driver": driver, "peak": peak, "files": files}
    if process.returncode:
        raise SystemExit(f"the pack of {asked['source']} failed")
    found = json.loads(out.splitlines()[-1])
    return {**found, "driver": driver, "task": task, "peak": peak, "shared": shared, "files": files}


def check(source: Path, out: Path, samples: int) -> None:
    """Checks that a dataset has all samples, and that some of them are the source's pixels; ends the
    script otherwise."""
    with closing(fastload.PackedDataset(out)) as data:
        paths = [path for below in sorted(source.iterdir()) for path in sorted(below.iterdir())]
        chosen = np.random.default_rng(1).choice(samples, COMPARED, replace=False).tolist()
        same = len(data) == len(paths) == samples
        for index in chosen if same else ():
            image, label = data[index]
            pixels = np.asarray(open_image(io.BytesIO(paths[index].read_bytes())).convert("RGB"))
            same = (
                same
                and data.classes[label] == paths[index].parent.name
                and bool((np.asarray(image).transpose(1, 2, 0) == pixels).all())
            )
    if not same:
        raise SystemExit(f"{out} is not what {source} has")


def line(work: Path, name: str, sources: list[tuple[Path, int]]) -> list[common.Json]:
    """The two turns of a line: a pack or listing of each source, of so many samples."""
    out, rows = work / "out", []
    options: common.Json = {"shuffle": True} if name == "shuffled" else {}
    ray = name.startswith("ray")
    if ray:
        options |= {"ray": True, "shard_samples": SHARD_SAMPLES}
    for source, samples in sources:
        shutil.rmtree(out, ignore_errors=True)
        asked = {
            "source": str(source),
            "out": None if name == "listing" else str(out),
            "ray": ray,
            "options": options,
        }
        killed = None
        with common.note(f"{name}, {samples:,} samples"):
            if name == "resumed":
                log = out / LOG_NAME

                def half(log: Path = log, size: int = samples * ENTRY.itemsize // 2) -> bool:
                    return log.exists() and log.stat().st_size >= size

                killed = watch(asked, half)
                asked["options"] = {**options, "resume": True}
            found = watch(asked)
        if found["samples"] != samples:
            raise SystemExit(f"{name}: {found['samples']:,} samples instead of {samples:,}")
        if source.is_dir() and name != "shuffled":
            check(source, out, samples)
        rows.append({"name": name, "killed": killed, **found})
    shutil.rmtree(out, ignore_errors=True)
    return rows


def far(part: common.Json, whole: common.Json, which: str) -> float:
    """Bytes at `FAR` samples, by the growth from a part of the samples to all; what shrinks is taken as
    constant."""
    growth = max(0.0, (whole[which] - part[which]) / (whole["samples"] - part["samples"]))
    return float(whole[which] + growth * (FAR - whole["samples"]))


def main() -> int:
    """Runs the lines one after the other."""
    made = common.parser(__doc__, rounds=1)
    made.add_argument("--samples", type=float, default=1e6, help="files of the folder (default 1e6)")
    made.add_argument(
        "--rows", type=float, default=1e7, help="lines of the table that is listed (default 1e7)"
    )
    made.add_argument("--ray", action="store_true", help="pack on Ray too")
    made.add_argument("--only", nargs="+", choices=LINES, default=LINES, help="some of the lines")
    arguments = made.parse_args()
    samples, rows = int(arguments.samples), int(arguments.rows)
    work = common.WORK / "pack-scale"
    counts = {
        "listing": (rows // 4, rows),
        "table": (rows // 20, rows // 5),
        "ray table": (rows // 20, rows // 5),
    }
    shown = Table(title="peak memory of a pack")
    for heading in (
        "",
        "samples",
        "s",
        "peak MB",
        "driver MB",
        "task MB",
        "B/sample",
        "files MB",
        "MB at 10^8",
    ):
        shown.add_column(heading, justify="right" if heading else "left")
    targets, kept = [], []
    for name in arguments.only:
        if name.startswith("ray") and not arguments.ray:
            continue
        make = make_table if name in counts else make_folder
        turns = line(
            work, name, [(make(work, count), count) for count in counts.get(name, (samples // 2, samples))]
        )
        part, whole = turns
        kept += turns
        for which in ("driver", "task") if whole["task"] else ("driver",):
            megabytes = far(part, whole, which) / 1e6
            targets.append(
                common.Target(
                    f"{name}: MB of the {which} at 10^8 samples, extrapolated", megabytes, BOUND_MB, True, 0
                )
            )
        for each in turns:
            last = each is whole
            growth = (whole["driver"] - part["driver"]) / (whole["samples"] - part["samples"])
            shown.add_row(
                "" if last else name,
                f"{each['samples']:,}",
                number(each["seconds"]),
                number(each["peak"] / 1e6),
                number(each["driver"] / 1e6),
                number(each["task"] / 1e6) if each["task"] else "",
                number(growth, 1) if last else "",
                number(each["files"] / 1e6),
                number(far(part, whole, "driver") / 1e6) if last else "",
            )
    common.console.print(shown)
    return common.finish("pack_scale", arguments, targets, rows=kept)


if __name__ == "__main__":
    if sys.argv[1:2] == ["--turn"]:
        sys.stdout.write(json.dumps(turn(json.loads(sys.argv[2]))) + "\n")
        sys.exit(0)
    sys.exit(main())
