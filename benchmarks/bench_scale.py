"""Memory and times by the size of a dataset: 10^6 to 10^9 samples, of which all can be read.

    python benchmarks/bench_scale.py                          # 10^6, 10^7, 10^8
    python benchmarks/bench_scale.py --samples 1e9 --orders huge window

The dataset is forged of one real shard with SHARD_SAMPLES pictures of 32 x 32 pixels: every other shard is a hard link to it, with a section of its
own in the sidecar, which leads to the same tables. So opening and reading do what they do with as many shards of their own: the directory has a
head with all checksums of blocks for each. The page cache holds the pictures and tables, which a real dataset of that size would read from a disk.

Each figure comes from a process of its own. Memory is private memory (Private_Clean + Private_Dirty of smaps_rollup) beyond that of a process
that has imported everything and read a batch of the one shard. *open* is the time of PackedDataset(path), *first* that of the first batch of an
epoch with its order, *batch* that of later ones. With `--processes 8`, as many processes do the same at once, as ranks of one host do, and the
figures are means of them.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from fastload._native import core
from fastload.store import Manifest, sidecar

SHARD_SAMPLES = 10_000
LINKS_MOST = 60_000
"""Links that one file of ext4 may have are 65,000."""
BATCHES = 50


def write_shard(folder: Path) -> Manifest:
    """Packs the one shard of random small pictures, and returns its manifest."""
    from fastload import pack

    class Pictures:
        def __len__(self) -> int:
            return SHARD_SAMPLES

        def __getitem__(self, index: int) -> Any:
            return np.random.default_rng(index).integers(0, 256, (32, 32, 3), np.uint8), index

    pack(Pictures(), folder)
    return Manifest.load(folder)


def forge(folder: Path, shard: Path, samples: int) -> None:
    """Makes a dataset of `samples` samples of links to the one shard in the dataset `shard`."""
    manifest = Manifest.load(shard)
    (entry,) = manifest.shards
    count = samples // SHARD_SAMPLES
    known = sidecar.open_sidecars(shard, manifest.sidecars).get(entry)
    assert known is not None
    content = known.content()
    head, tables = bytes(next(content)), b"".join(content)
    folder.mkdir()
    shards, heads, source = [], [], shard / entry.file
    for number in range(count):
        first = number * SHARD_SAMPLES
        name = f"shard-{number:05d}.lmdb"
        if number % LINKS_MOST == 0:
            shutil.copyfile(source, folder / name)
            source = folder / name
        else:
            os.link(source, folder / name)
        shards.append(replace(entry, file=name, first=first, key=first))
        heads += [bytes(8), head[:8] + first.to_bytes(8, "little") + head[16:]]
    directory = b"".join((sidecar.DIRECTORY, (2).to_bytes(4, "little"), count.to_bytes(8, "little"), *heads))
    data = tables + directory
    (folder / "index-00000.bin").write_bytes(data)
    segment = replace(
        manifest.sidecars[0], bytes=len(data), crc32c=core.crc32c(data), directory=(len(directory), core.crc32c(directory))
    )
    replace(manifest, shards=tuple(shards), sidecars=(segment,)).write(folder)


def private_bytes() -> int:
    """Private memory of this process."""
    with open("/proc/self/smaps_rollup") as file:
        return sum(int(line.split()[1]) << 10 for line in file if line.startswith("Private_"))


def one_process(path: str, small: str, order: str) -> dict[str, float]:
    """The figures of one process."""
    from fastload import FastLoader, PackedDataset
    from fastload import transforms as T

    def loader(dataset: Any) -> Any:
        shuffle: Any = {"True": True, "False": False}.get(order, order)
        return FastLoader(dataset, batch_size=256, shuffle=shuffle, seed=1, num_workers=1, drop_last=True)

    with closing(PackedDataset(small, transform=[T.CenterCrop(32)])) as dataset, loader(dataset) as batches:
        next(iter(batches))
    before = private_bytes()
    started = time.perf_counter()
    with closing(PackedDataset(path, transform=[T.CenterCrop(32)])) as dataset:
        opened = time.perf_counter() - started
        held = private_bytes() - before
        with loader(dataset) as batches:
            started = time.perf_counter()
            iterator = iter(batches)
            _, labels = next(iterator)
            first = time.perf_counter() - started
            assert len(labels) == 256
            started = time.perf_counter()
            for _ in range(BATCHES):
                next(iterator)
            batch = (time.perf_counter() - started) / BATCHES
            state = len(json.dumps(batches.state_dict(), default=str))
            running = private_bytes() - before
            del iterator
    return {"open": opened, "held": held, "first": first, "batch": batch, "running": running, "state": state}


def measure(path: Path, small: Path, order: str, processes: int) -> dict[str, float]:
    """The mean figures of processes that run at once."""
    command = [sys.executable, __file__, "--one", str(path), str(small), order]
    running = [subprocess.Popen(command, stdout=subprocess.PIPE, text=True) for _ in range(processes)]
    results = [json.loads(process.communicate()[0].splitlines()[-1]) for process in running]
    return {name: float(np.mean([result[name] for result in results])) for name in results[0]}


def main() -> None:
    """Measures and prints a line for each size and order."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--samples", type=float, nargs="+", default=[1e6, 1e7, 1e8])
    parser.add_argument("--orders", nargs="+", default=["window", "huge", "True"])
    parser.add_argument("--processes", type=int, default=1)
    parser.add_argument("--one", nargs=3, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.one:
        print(json.dumps(one_process(*arguments.one)))
        return
    with tempfile.TemporaryDirectory(prefix="fastload-scale-") as scratch:
        small = Path(scratch) / "small.fl"
        write_shard(small)
        print(f"{'samples':>13} {'order':>8} {'open s':>8} {'open MB':>8} {'first s':>8} {'batch ms':>9} {'run MB':>8} {'B/sample':>9}")
        for samples in map(int, arguments.samples):
            path = Path(scratch) / f"{samples}.fl"
            forge(path, small, samples)
            for order in arguments.orders:
                found = measure(path, small, order, arguments.processes)
                print(
                    f"{samples:13,} {order:>8} {found['open']:8.2f} {found['held'] / 1e6:8.1f} {found['first']:8.2f} "
                    f"{found['batch'] * 1e3:9.1f} {found['running'] / 1e6:8.1f} {found['running'] / samples:9.3f}"
                )
            shutil.rmtree(path)


if __name__ == "__main__":
    main()
