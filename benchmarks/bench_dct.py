"""The DCT form of JPEGs against the JPEGs: reading coefficients, decoding crops, bytes, making it, the whole
loader and packing.

    python benchmarks/bench_dct.py [--rounds 5] [--seconds 4] [--save dct]

Method: parse_dct.c (one thread, files in RAM) reads the coefficients of all files once in each mode, one mode
after the other; a ratio is the median over its rounds of two modes' CPU times in one round. decode.c then
decodes random RandomResizedCrop(224) boxes, Resize(256) + CenterCrop(224) and whole images, of the JPEG with
its entropy index and of the form, the same boxes of both in each round, resized as the loader does it (whole
images are not); and converts the files, beside packing's walk that makes the index. Bytes are the form's over
those of the JPEG with its index. q85 and q75 are 25 images of in500, encoded again at these qualities.
The whole loader: epochs of RandomResizedCrop(224) and flip in batches of 64, two threads, page cache warm, of
the same photographs packed lossless and dct, and of in500 with torch's DataLoader and Pillow beside them;
turns are processes, interleaved. Packing: CPU time of `pack` in one process for in500, once a round in each
form, in turn. Caveats: photographs of two sources; a form's conversion includes reading it again and
comparing coefficients.
"""

from __future__ import annotations

import dataclasses
import json
import statistics
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import common
from bench_decode import CSRC, build_decode
from rich.table import Table

from fastload.bench import harness
from fastload.bench.report import number
from fastload.bench.spec import TurnSpec

# Most bytes over those of the JPEG with its index.
BYTES = {"in500": 1.00, "big": 1.01, "q85": 1.03, "q75": 1.06}
PARSE = {"avx512": (2.8, 3.5), "avx2": (1.7, 2.2)}  # least, and the aim
PAIRS = {"crop": "RandomResizedCrop", "centre": "Resize + CenterCrop", "full": "whole image"}
CROP = 0.60


def build_parse() -> Path:
    """Compiles parse_dct.c with csrc as the native module is compiled; returns the program."""
    sources = [common.HERE / name for name in ("parse_dct.c", "floor_decode.c")]
    headers = [*common.HERE.glob("*.h"), *CSRC.glob("*/*.h")]
    flags = ["-O3", "-std=gnu11", "-ffp-contract=off", f"-I{CSRC}"]
    return common.build_program(
        "parse_dct",
        [*sources, *sorted(CSRC.glob("*/*.c"))],
        ["libjpeg", "libwebp", "libdeflate", "lmdb", "zlib"],
        flags,
        headers,
    )


def run(*command: object) -> common.Json:
    """What a program prints, as JSON."""
    done = subprocess.run([str(part) for part in command], stdout=subprocess.PIPE, text=True, check=True)
    found: common.Json = json.loads(done.stdout)
    return found


def measure_parse(name: str, listing: Path, rounds: int) -> tuple[list[common.Target], common.Json]:
    """Reading coefficients, and bytes."""
    found = run(build_parse(), listing, rounds)
    modes = list(found["rounds"][0])
    ns = {mode: statistics.median(each[mode] for each in found["rounds"]) for mode in modes}
    ratios = {
        mode: statistics.median(each["huffman"] / each[mode] for each in found["rounds"]) for mode in modes
    }
    share = found["dct_bytes"] / (found["jpeg_bytes"] + found["index_bytes"])
    shown = Table(title=f"{name}: coefficients of {found['files']} files ({found['stay']} more stay JPEGs)")
    for heading in ("", "ns a block", "x"):
        shown.add_column(heading, justify="right" if heading else "left")
    for mode in modes:
        shown.add_row(mode, number(ns[mode], 1), number(ratios[mode], 2))
    common.console.print(shown)
    targets = [
        common.Target(f"{name}: bytes / JPEG's with index", share, BYTES[name], at_most=True, digits=3)
    ]
    if name == "in500":
        targets += [
            common.Target(f"{name}: Huffman / {mode}, CPU (aim {aim})", ratios.get(mode), bound)
            for mode, (bound, aim) in PARSE.items()
        ]
    kept = {key: found[key] for key in ("files", "stay", "jpeg_bytes", "dct_bytes", "index_bytes")}
    return targets, {**kept, "ns": ns, "ratios": ratios}


def measure_decode(
    name: str, listing: Path, rounds: int, seconds: float
) -> tuple[list[common.Target], common.Json]:
    """Decoding, and conversion."""
    modes = [*(mode for pair in PAIRS for mode in (pair, f"{pair}_dct")), "index", "encode_dct"]
    passes, images = [], 1
    for turn in range(rounds):
        found = run(build_decode(), listing, 224, 0, seconds, turn, 1, *modes)
        images = found["images"]
        passes += [dict(zip(modes, (cpu for _, cpu in inner[0]), strict=True)) for inner in found["rounds"]]
    us = {mode: statistics.median(each[mode] for each in passes) / images * 1e6 for mode in modes}
    ratios = {pair: statistics.median(each[f"{pair}_dct"] / each[pair] for each in passes) for pair in PAIRS}
    shown = Table(title=f"{name}: CPU us an image, {len(passes)} rounds of {images} images")
    for heading in ("", "JPEG, index", "DCT form", "ratio"):
        shown.add_column(heading, justify="right" if heading else "left")
    for pair, title in PAIRS.items():
        shown.add_row(title, number(us[pair]), number(us[f"{pair}_dct"]), number(ratios[pair], 2))
    shown.add_row(
        "packing's walk with index; conversion",
        number(us["index"]),
        number(us["encode_dct"]),
        number(us["encode_dct"] / us["index"], 2),
    )
    common.console.print(shown)
    return [common.Target(f"{name}: decode + RandomResizedCrop, CPU", ratios["crop"], CROP, at_most=True)], {
        "us": us,
        "ratios": ratios,
    }


def measure_loader(source: Path, arguments: Any) -> tuple[list[common.Target], common.Json]:
    """Rates of the whole loader."""
    big = source.name == "big"
    source = common.copies(source, 32 if big else 8)
    lossless = common.pack_fresh(source, f"{source.name}.fl", workers=arguments.workers)
    dct = common.pack_fresh(source, f"{source.name}-dct.fl", workers=arguments.workers, encode="dct")
    with harness.Sources(source) as sources:
        base = TurnSpec(
            "fastload",
            str(lossless),
            images=len(sources.listing),
            workers=arguments.workers,
            seconds=arguments.seconds,
            size=224,
        )
        specs = [("lossless", base), ("dct", dataclasses.replace(base, source=str(dct)))]
        if not big:
            specs += [("pillow", spec) for spec in harness.rival_specs(sources, base, ["pillow"])]
        turns = [(name, name, harness.loader_turn(spec)) for name, spec in specs]
        rows = harness.interleave(turns, arguments.rounds, common.note)
    part = "big" if big else "in500"
    common.show_rates(f"{part}: the whole loader", rows)
    targets = [
        common.Target(f"{part}: whole loader, dct / lossless (aim 2.0)", harness.ratio(rows[1], rows[0]), 1.6)
    ]
    if not big:
        targets.append(
            common.Target(
                "in500: dct / torch DataLoader + Pillow (aim 12)", harness.ratio(rows[1], rows[2]), 9.5
            )
        )
    return targets, {"loader": [row.to_json() for row in rows]}


def measure_pack(source: Path, arguments: Any) -> tuple[list[common.Target], common.Json]:
    """CPU time of packing."""
    source, passes = common.copies(source, 4), []
    for _ in range(arguments.rounds):
        cpu: common.Json = {}
        for encode in ("lossless", "dct"):
            before = time.process_time()
            common.pack_fresh(source, "packed-again.fl", workers=arguments.workers, encode=encode)
            cpu[encode] = time.process_time() - before
        passes.append(cpu)
    ratio = statistics.median(each["dct"] / each["lossless"] for each in passes)
    return [common.Target("in500: packing, CPU, dct / lossless (aim 1.2)", ratio, 1.5, at_most=True)], {
        "packing_cpu_s": passes
    }


def main() -> int:
    """Measures the parts of the corpus."""
    arguments = common.parser(__doc__, rounds=5, seconds=4.0).parse_args()
    folders = {name: common.corpus(arguments.corpus, name) for name in ("in500", "big")}
    folders |= {f"q{quality}": common.saved_again(folders["in500"], quality) for quality in (85, 75)}
    targets: list[common.Target] = []
    details: common.Json = {}
    for name, folder in folders.items():
        listing = common.write_listing(folder)
        found, details[name] = measure_parse(name, listing, arguments.rounds)
        targets += found
        if name in ("in500", "big"):
            found, more = measure_decode(name, listing, arguments.rounds, arguments.seconds)
            targets += found
            details[name] |= more
            found, more = measure_loader(folder, arguments)
            targets += found
            details[name] |= more
    found, more = measure_pack(folders["in500"], arguments)
    targets += found
    details["in500"] |= more
    return common.finish("dct", arguments, targets, **details)


if __name__ == "__main__":
    sys.exit(main())
