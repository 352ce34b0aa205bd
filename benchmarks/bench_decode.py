"""Decoding: our decoder with its entropy index, against libjpeg-turbo; and what the index costs.

    python benchmarks/bench_decode.py [--rounds 5] [--seconds 4] [--save decode]

Method: decode.c (one program, files in RAM) decodes all files once in each mode with one thread and with two,
one mode after the other, with new random boxes each time; a ratio is the median over these rounds of two
modes' rates in one round, for the same boxes. RandomResizedCrop(224) and Resize(256) + CenterCrop(224) are
decoded with the index as packing makes it, and resized; floor.c's region decode (libjpeg-turbo's
crop_scanline and skip_scanlines) resizes nothing. The whole image is decoded without the index against
tjDecompress2 (TJPF_RGB, no flags: the accurate DCT and fancy upsampling), whose bytes must be ours. Then
FastLoader takes whole shuffled epochs with two threads beside decode.c in a turn of its own; and
`fastload pack` of the same files beside `fastload pack --no-index`, each timed from start to exit. Caveats:
250 (or 12) photographs; each of decode.c's threads writes all images over one another, the loader writes
batches.
"""

from __future__ import annotations

import json
import statistics
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import common
from bench_pack import turn as command_turn
from rich.table import Table

from fastload._native import core
from fastload.bench import harness
from fastload.bench.listing import list_folder
from fastload.bench.report import number
from fastload.bench.spec import TITLES, TurnSpec
from fastload.store.reader import DatasetReader

SIZE = 224
CSRC = common.HERE.parent / "csrc"
# Mode of decode.c: its title, and the mode it is held against.
MODES: dict[str, tuple[str, str | None]] = {
    "floor": ("libjpeg-turbo, region", None),
    "crop": ("RandomResizedCrop: decode + resize, index", "floor"),
    "crop_unmarked": ("the same without index", "floor"),
    "region": ("the same with index, without resize", "floor"),
    "turbojpeg": ("tjDecompress2, whole image", None),
    "full": ("whole image, no index", "turbojpeg"),
    "floor_centre": ("libjpeg-turbo, centre's region", None),
    "centre": ("Resize + CenterCrop: decode + resize, index", "floor_centre"),
    "walk": ("packing's walk", None),
    "index": ("packing's walk with an index", "walk"),
}
# Least rates of a mode over its rival's.
BOUNDS = {
    "in500": {"crop": 1.7, "full": 1.2, "centre": 1.4},
    "big": {"crop": 2.2, "full": 1.2, "centre": 1.4},
}
CALLED = {
    "crop": "RandomResizedCrop / libjpeg-turbo's region",
    "full": "whole image / tjDecompress2",
    "centre": "Resize + CenterCrop / libjpeg-turbo's region",
}
AIMS = {("in500", "crop"): " (aim 2.2)"}
CPU_US = 560  # of CPU an image, in500
COPIES = {"in500": 8, "big": 32}  # for the loader
PACKED = 20  # copies of in500, so that the command's start-up is a small part of packing them
LISTED = {"in500": 1, "big": 4}  # so that a pass of decode.c is long enough to share between threads


def build_decode() -> Path:
    """Compiles decode.c with csrc as the native module is compiled; returns the program."""
    sources = [common.HERE / name for name in ("decode.c", "decode_modes.c", "floor_decode.c")]
    headers = [*common.HERE.glob("*.h"), *CSRC.glob("*/*.h")]
    flags = ["-O3", "-std=gnu11", "-ffp-contract=off", f"-I{CSRC}"]
    return common.build_program(
        "decode",
        [*sources, *sorted(CSRC.glob("*/*.c"))],
        ["libjpeg", "libturbojpeg", "libwebp", "libdeflate", "lmdb", "zlib"],
        flags,
        headers,
    )


def decode_turn(
    listing: Path, modes: Sequence[str], threads: Sequence[int], seconds: float
) -> Callable[[int], common.Json]:
    """A turn for ``interleave``: what decode.c prints, and the rate and CPU time of the first mode with
    the last thread count."""
    program = build_decode()

    def turn(round_number: int) -> common.Json:
        command = [program, listing, SIZE, 0, seconds, round_number, ",".join(map(str, threads)), *modes]
        done = subprocess.run([str(part) for part in command], stdout=subprocess.PIPE, text=True, check=True)
        found = json.loads(done.stdout)
        passes = [inner[-1][0] for inner in found["rounds"]]
        images = found["images"] * len(passes)
        return {
            "ok": True,
            "images_per_s": images / sum(wall for wall, _ in passes),
            "cpu_s_per_1000": sum(cpu for _, cpu in passes) / images * 1000,
            **found,
        }

    return turn


class Passes:
    """The passes of all of decode.c's turns, by number of threads and mode."""

    def __init__(self, row: harness.Measured, threads: Sequence[int]) -> None:
        self.threads = tuple(threads)
        self.images = int(row.turns[0]["images"])
        self.rounds = [dict(self._by_key(inner)) for turn in row.turns for inner in turn["rounds"]]
        self.index_share = row.turns[0]["index_bytes"] / row.turns[0]["jpeg_bytes"]

    def _by_key(
        self, inner: list[list[list[float]]]
    ) -> Iterator[tuple[tuple[int, str], tuple[float, float]]]:
        for count, modes in zip(self.threads, inner, strict=True):
            for mode, (wall, cpu) in zip(MODES, modes, strict=True):
                yield (count, mode), (wall, cpu)

    def rate(self, threads: int, mode: str) -> float:
        """Images/s, median over rounds."""
        return statistics.median(self.images / inner[threads, mode][0] for inner in self.rounds)

    def cpu_us(self, threads: int, mode: str) -> float:
        """Microseconds of the threads' CPU time an image, median over rounds."""
        return statistics.median(inner[threads, mode][1] / self.images * 1e6 for inner in self.rounds)

    def ratio(self, threads: int, mode: str, *, cpu: bool = False) -> float | None:
        """Median over rounds of the mode's rate over its rival's; with ``cpu``, the rival's CPU time over
        the mode's."""
        rival = MODES[mode][1]
        if rival is None:
            return None
        return statistics.median(
            inner[threads, rival][cpu] / inner[threads, mode][cpu] for inner in self.rounds
        )

    def summary(self) -> common.Json:
        """What is kept: the medians of each mode and number of threads."""
        return {
            "rounds": len(self.rounds),
            "index_share": self.index_share,
            "modes": {
                mode: {
                    str(count): {
                        "images_per_s": round(self.rate(count, mode), 1),
                        "cpu_us": round(self.cpu_us(count, mode), 1),
                        "ratio": self.ratio(count, mode),
                        "cpu_ratio": self.ratio(count, mode, cpu=True),
                    }
                    for count in self.threads
                }
                for mode in MODES
            },
        }


def show_passes(title: str, passes: Passes) -> None:
    """Prints rate, CPU time and ratio of each mode, one block of columns for each number of threads."""
    shown = Table(title=f"{title}, {len(passes.rounds)} rounds of {passes.images} images")
    shown.add_column("")
    for count in passes.threads:
        for heading in (f"images/s, {count} thr.", "CPU us", "x", "x by CPU"):
            shown.add_column(heading, justify="right")
    for mode, (name, _) in MODES.items():
        cells = []
        for count in passes.threads:
            cells += [number(passes.rate(count, mode)), number(passes.cpu_us(count, mode))]
            cells += [
                number(passes.ratio(count, mode, cpu=cpu), 2) if MODES[mode][1] else ""
                for cpu in (False, True)
            ]
        shown.add_row(name, *cells)
    common.console.print(shown)


def index_share(dataset: Path) -> float:
    """Bytes of the entropy indexes over those of the JPEGs, from the records of a packed dataset."""
    jpegs = indexes = 0
    with DatasetReader(dataset) as reader:
        for k in range(len(reader)):
            for _, kind, data in reader.record_fields(k):
                jpegs += len(data) if kind == core.KIND_JPEG else 0
                indexes += len(data) if kind == core.KIND_INDEX else 0
    return indexes / jpegs


def decode_targets(name: str, passes: Passes) -> list[common.Target]:
    """The targets that decode.c's passes meet or miss, for each number of threads."""
    targets = []
    for mode, bound in BOUNDS[name].items():
        aim = AIMS.get((name, mode), "")
        targets += [
            common.Target(f"{name}: {CALLED[mode]}, {count} thr.{aim}", passes.ratio(count, mode), bound)
            for count in passes.threads
        ]
    if name == "in500":
        for count in passes.threads:
            title = f"{name}: RandomResizedCrop, CPU us an image, {count} thr. (aim 430)"
            targets.append(common.Target(title, passes.cpu_us(count, "crop"), CPU_US, at_most=True, digits=0))
    return targets


def measure_part(name: str, arguments: object) -> tuple[list[common.Target], common.Json]:
    """Decoders and loader over one part of the corpus."""
    seconds, workers, rounds, given = (
        getattr(arguments, key) for key in ("seconds", "workers", "rounds", "corpus")
    )
    part = common.corpus(given, name)
    source = common.copies(part, COPIES[name])
    packed = common.pack_fresh(source, f"{source.name}.fl", workers=workers)
    threads = sorted({1, workers})
    spec = TurnSpec(
        "fastload", str(packed), images=len(list_folder(source)), workers=workers, seconds=seconds, size=SIZE
    )
    alone = decode_turn(common.write_listing(source), ["crop"], [workers], seconds)
    row, floor, loader = harness.interleave(
        [
            (
                "decode",
                "decode.c, all modes",
                decode_turn(common.write_listing(part, LISTED[name]), list(MODES), threads, 4 * seconds),
            ),
            ("crop", "decode.c, RandomResizedCrop with resize and index", alone),
            ("fastload", TITLES["fastload"], harness.loader_turn(spec)),
        ],
        rounds,
        common.note,
    )
    passes = Passes(row, threads)
    show_passes(name, passes)
    common.show_rates(f"{name}, {COPIES[name]} times, {workers} threads", [floor, loader])
    common.console.print(common.by_cpu_time(loader, [floor]))
    targets = [
        *decode_targets(name, passes),
        common.Target(
            f"{name}: FastLoader / decode.c's RandomResizedCrop", harness.ratio(loader, floor), 0.90
        ),
    ]
    targets.append(
        common.Target(f"{name}: index, % of the JPEGs", 100 * index_share(packed), 1.5, at_most=True)
    )
    kept = [
        {key: value for key, value in each.to_json().items() if key != "rounds"} for each in (floor, loader)
    ]
    return targets, {"decode": passes.summary(), "loader": kept}


def measure_pack(arguments: object) -> tuple[common.Target, list[common.Json]]:
    """Times packing copies of in500 with and without the index."""
    workers, rounds, given = (getattr(arguments, key) for key in ("workers", "rounds", "corpus"))
    source = common.copies(common.corpus(given, "in500"), PACKED)
    size = sum(path.stat().st_size for path, _ in list_folder(source))
    out = common.WORK / "decode-pack-out"
    pack = [sys.executable, "-m", "fastload", "pack", str(source), str(out), "--workers", str(workers)]
    turns = [
        ("no-index", "fastload pack --no-index", command_turn([*pack, "--no-index"], out, size)),
        ("index", "fastload pack", command_turn(pack, out, size)),
    ]
    plain, indexed = rows = harness.interleave(turns, rounds, common.note)
    shown = Table(title=f"packing {size / 1e6:,.0f} MB")
    for heading in ("", "MB/s", "MB/s with sync", "CPU s"):
        shown.add_column(heading, justify="right" if heading else "left")
    for row in rows:
        shown.add_row(
            row.title,
            row.reason or number(row.median("mb_per_s")),
            number(row.median("mb_per_s_synced")),
            number(row.median("cpu_s"), 2),
        )
    common.console.print(shown)
    common.console.print(
        f"by CPU time: {number(harness.ratio(indexed, plain, 'cpu_s'), 2)} x that of --no-index"
    )
    # Rates of the same bytes: plain's over indexed's is indexed's time over plain's.
    target = common.Target(
        "pack: time / --no-index's", harness.ratio(plain, indexed, "mb_per_s"), 1.25, at_most=True
    )
    return target, [{"name": row.name, "reason": row.reason, "rounds": row.turns} for row in rows]


def main() -> int:
    """Measures the parts of the corpus, then packing."""
    made = common.parser(__doc__, rounds=5, seconds=4.0)
    made.add_argument("--part", choices=["in500", "big", "pack"], action="append", help="only this part")
    arguments = made.parse_args()
    parts = arguments.part or ["in500", "big", "pack"]
    targets: list[common.Target] = []
    details: common.Json = {}
    for name in ("in500", "big"):
        if name in parts:
            found, details[name] = measure_part(name, arguments)
            targets += found
    if "pack" in parts:
        target, details["pack"] = measure_pack(arguments)
        targets.append(target)
    return common.finish("decode", arguments, targets, **details)


if __name__ == "__main__":
    sys.exit(main())
