"""Memory, bytes and times by the size of a dataset: 10^6 to 10^9 samples, of which all can be read.

    python benchmarks/bench_scale.py [--samples 1e6 1e7 1e8 1e9] [--only ranks columns resume bucket] [--save
    scale]

Method: the dataset is forged of one real shard of 10,000 pictures of 32 x 32 pixels. Every other shard is a
hard link to it, with a section of its own in the sidecar, which leads to the same tables: so opening and
reading do what they do with as many shards of their own, and the directory has all checksums of all blocks.
Each rank is a process of its own; `--processes` of them run at once; figures are means.
  ranks    processes with shard=(rank, processes) open the folder, make the first batch of 256 of an epoch,
  and 50 more. columns  one process of "ranks", whose samples have 1, 5 and 20 labels of 8 bytes, all of which
  are delivered. resume   after that, 6 processes go on with the epoch that 8 began: the time from
  load_state_dict to the first batch, and its memory. bucket   nginx serves the folder by HTTP, through a
  proxy that counts: 8 ranks share one cache (a host), then each has its own (8 hosts).
           "open" is what opening fetches, "first" what the first batch fetches beside that, its pictures
           among it.
Memory is that beyond a process which has imported everything and read a batch of the one shard: *private* is
Private_Clean and Private_Dirty of smaps_rollup, *shared* the Shared_ lines.
Caveats: the page cache holds the one shard and its tables, where a real dataset of that size would be read
from a disk. Processes share two cores, so that times of 8 are not those of a host with a core for each.
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
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, closing, contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import common
import numpy as np
from rich.table import Table

sys.path.insert(0, str(Path(__file__).parents[1] / "tools"))

from servers.nginx import Nginx
from servers.proxy import Proxy

from fastload import FastLoader, PackedDataset, pack
from fastload import transforms as T
from fastload._native import core
from fastload.bench.report import number
from fastload.store import Manifest, sidecar

SHARD_SAMPLES = 10_000
LINKS_MOST = 60_000
"""Links that are made to one file; ext4 allows 65,000."""
BATCH, BATCHES = 256, 50
RESUMED = 6
PARTS = ("ranks", "columns", "resume", "bucket")
OPENED_MB, OPENED_S = 200.0, 3.0
"""Bounds on private memory and time of opening 10^8 samples."""
COLUMNS = (1, 5, 20)
BASE_MB, SAMPLE_BYTES = 20.0, 2.0
"""Bound on private memory with any of these numbers of columns: a base, and bytes for each sample."""
DIGITS = {
    "open s": 2,
    "first s": 2,
    "batch ms": 1,
    "open MB": 1,
    "run MB": 1,
    "shared MB": 1,
    "B/sample": 2,
    "open MB/host": 1,
    "first MB/host": 1,
}
Json = dict[str, Any]


class Pictures:
    """Small pictures of noise with their number, and `columns` - 1 further numbers."""

    def __init__(self, columns: int = 1) -> None:
        self.columns = columns

    def __len__(self) -> int:
        return SHARD_SAMPLES

    def __getitem__(self, index: int) -> Any:
        image = np.random.default_rng(index).integers(0, 256, (32, 32, 3), np.uint8)
        further = {f"number_{number}": index * number + (number << 20) for number in range(1, self.columns)}
        return (image, index) if self.columns == 1 else {"image": image, "label": index, **further}


def forge(folder: Path, shard: Path, samples: int) -> None:
    """Makes a dataset of `samples` samples of links to the one shard of the dataset `shard`."""
    manifest = Manifest.load(shard)
    (entry,) = manifest.shards
    count = samples // SHARD_SAMPLES
    known = sidecar.open_sidecars(shard, manifest.sidecars).get(entry)
    assert known is not None
    content = known.content()
    head, tables = bytes(next(content)), b"".join(content)
    folder.mkdir()
    shards, heads, source = [], [], shard / entry.file
    for each in range(count):
        first, name = each * SHARD_SAMPLES, f"shard-{each:05d}.lmdb"
        if each % LINKS_MOST == 0:
            shutil.copyfile(source, folder / name)
            source = folder / name
        else:
            os.link(source, folder / name)
        shards.append(replace(entry, file=name, first=first, key=first))
        heads += [bytes(8), head[:8] + first.to_bytes(8, "little") + head[16:]]
    directory = b"".join((sidecar.DIRECTORY, (2).to_bytes(4, "little"), count.to_bytes(8, "little"), *heads))
    data = tables + directory
    (folder / "index-00000.bin").write_bytes(data)
    known_as = {
        "bytes": len(data),
        "crc32c": core.crc32c(data),
        "directory": (len(directory), core.crc32c(directory)),
    }
    replace(manifest, shards=tuple(shards), sidecars=(replace(manifest.sidecars[0], **known_as),)).write(
        folder
    )


# ---- one process


def memory() -> dict[str, int]:
    """Private and shared bytes of this process."""
    found = {"private": 0, "shared": 0}
    with open("/proc/self/smaps_rollup") as file:
        for line in file:
            kind = line.partition("_")[0].lower()
            if kind in found:
                found[kind] += int(line.split()[1]) << 10
    return found


def grown(before: dict[str, int], name: str) -> Json:
    """Memory beyond `before`, with names that begin with `name`."""
    return {f"{name} {kind}": size - before[kind] for kind, size in memory().items()}


def step(result: Json) -> None:
    """Prints what is known so far, and waits for the word to go on."""
    sys.stdout.write(json.dumps(result) + "\n")
    sys.stdout.flush()
    sys.stdin.readline()


def one_process(turn: Json) -> None:
    """Opens the dataset, reads batches and goes on with a state, with a `step` after each."""

    def loader(dataset: Any, **more: Any) -> Any:
        shuffle: Any = {"True": True, "False": False}.get(turn["order"], turn["order"])
        return FastLoader(
            dataset, batch_size=BATCH, shuffle=shuffle, seed=1, num_workers=1, drop_last=True, **more
        )

    with (
        closing(PackedDataset(turn["small"], transform=[T.CenterCrop(32)])) as dataset,
        loader(dataset) as batches,
    ):
        next(iter(batches))
    before, began = memory(), time.perf_counter()
    with closing(PackedDataset(turn["path"], transform=[T.CenterCrop(32)], **turn["options"])) as dataset:
        step({"open s": time.perf_counter() - began, **grown(before, "open")})
        with loader(dataset, shard=tuple(turn["shard"])) as batches:
            began = time.perf_counter()
            if turn["state"]:
                batches.load_state_dict(json.loads(Path(turn["state"]).read_text()))
            iterator = iter(batches)
            first = next(iterator)
            assert len(first["label"] if isinstance(first, dict) else first[1]) == BATCH
            step({"first s": time.perf_counter() - began, **grown(before, "first")})
            began = time.perf_counter()
            for _ in range(turn["batches"]):
                next(iterator)
            result = {
                "batch ms": (time.perf_counter() - began) / max(1, turn["batches"]) * 1e3,
                **grown(before, "run"),
            }
            if turn["save"]:
                Path(turn["save"]).write_text(json.dumps(batches.state_dict()))
            step(result)


# ---- processes together


class Turn:
    """Processes that take the same steps at once, from `with` to its end."""

    def __init__(self, turns: Sequence[Json]) -> None:
        self._turns = turns

    def __enter__(self) -> Turn:
        command = [sys.executable, __file__, "--one"]
        pipes: Json = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
        self._running = [subprocess.Popen([*command, json.dumps(turn)], **pipes) for turn in self._turns]
        return self

    def __exit__(self, *_: object) -> None:
        for process in self._running:
            process.kill()
            process.communicate()

    def steps(self) -> Iterator[Json]:
        """The mean figures of each step, which all have taken by then."""
        while True:
            lines = [process.stdout.readline() for process in self._running if process.stdout is not None]
            if not any(lines):
                return
            found = [json.loads(line) for line in lines]
            yield {name: float(np.mean([each[name] for each in found])) for name in found[0]}
            for process in self._running:
                assert process.stdin is not None
                process.stdin.write("\n")
                process.stdin.flush()


def turns(path: str, small: Path, order: str, ranks: int, **more: Any) -> list[Json]:
    """The turns of the ranks of one loader. `{rank}` in a text option is the rank."""

    def of(value: Any, rank: int) -> Any:
        if isinstance(value, dict):
            return {name: of(each, rank) for name, each in value.items()}
        return value.format(rank=rank) if isinstance(value, str) else value

    known = {"options": {}, "state": "", "save": "", "batches": BATCHES, **more}
    fixed = {"path": path, "small": str(small), "order": order}
    return [
        {**fixed, "shard": [rank, ranks], **{name: of(value, rank) for name, value in known.items()}}
        for rank in range(ranks)
    ]


def together(made: Sequence[Json]) -> Json:
    """All figures of turns that are taken at once."""
    found: Json = {}
    with Turn(made) as running:
        for each in running.steps():
            found.update(each)
    return found


@contextmanager
def served(folder: Path) -> Iterator[tuple[str, Proxy]]:
    """The URL of a folder that nginx serves, and the proxy before it."""
    with ExitStack() as stack:
        nginx = stack.enter_context(Nginx())
        folder.chmod(0o755)
        for parent in folder.parents[:2]:
            parent.chmod(0o755)
        (nginx.root / "data").symlink_to(folder)
        proxy = stack.enter_context(Proxy(int(nginx.http.rpartition(":")[2])))
        yield f"{proxy.endpoint}/data", proxy


def in_bucket(url: str, proxy: Proxy, small: Path, order: str, ranks: int, caches: str) -> Json:
    """The figures of ranks that read a dataset by its URL, with the bytes that each host fetched."""
    options = {
        "cache": caches,
        "cache_size": "20GiB",
        "storage_options": {"client_options": {"allow_http": True}},
    }
    found: Json = {}
    proxy.counts(reset=True)
    with Turn(turns(url, small, order, ranks, options=options, batches=0)) as running:
        for name, each in zip(("open", "first", "run"), running.steps(), strict=True):
            counted = proxy.counts(reset=True)
            found.update({f"{name} bytes": counted["down"], f"{name} requests": counted["requests"], **each})
    return found


# ---- the tables


def ranks_table(
    made: dict[int, Path], small: Path, orders: Sequence[str], processes: Sequence[int]
) -> list[Json]:
    """Memory and times by samples, order and number of processes."""
    lines = []
    for samples, path in made.items():
        for order in orders:
            for ranks in processes:
                if order == "True" and samples * ranks > 10**8:
                    continue  # torch's own lists: 48 bytes a sample in each process
                lines.append(
                    {
                        "samples": samples,
                        "order": order,
                        "ranks": ranks,
                        **together(turns(str(path), small, order, ranks)),
                    }
                )
    return lines


def columns_table(samples: Sequence[int], scratch: Path, order: str) -> list[Json]:
    """Memory by samples and number of columns."""
    lines = []
    for columns in COLUMNS:
        small = scratch / f"columns-{columns}.fl"
        pack(Pictures(columns), small)
        for count in samples:
            path = scratch / f"columns-{columns}-{count}.fl"
            forge(path, small, count)
            lines.append(
                {
                    "samples": count,
                    "order": order,
                    "ranks": 1,
                    "columns": columns,
                    **together(turns(str(path), small, order, 1)),
                }
            )
            shutil.rmtree(path)
    return lines


def resume_table(
    made: dict[int, Path], small: Path, orders: Sequence[str], scratch: Path, ranks: int
) -> list[Json]:
    """Figures of an epoch that other numbers of ranks go on with."""
    lines = []
    for samples, path in made.items():
        for order in orders:
            if order == "True":
                continue
            together(turns(str(path), small, order, ranks, save=f"{scratch}/state-{{rank}}.json"))
            found = together(turns(str(path), small, order, RESUMED, state=f"{scratch}/state-0.json"))
            lines.append({"samples": samples, "order": order, "ranks": RESUMED, **found})
    return lines


def bucket_table(
    made: dict[int, Path], small: Path, orders: Sequence[str], scratch: Path, ranks: int
) -> list[Json]:
    """Bytes, requests, memory and times of a host's ranks, and of as many hosts."""
    lines = []
    for samples, path in made.items():
        with served(path) as (url, proxy):
            for order in orders:
                if order == "True":
                    continue
                for hosts, name in ((1, "one"), (ranks, "{rank}")):
                    found = in_bucket(url, proxy, small, order, ranks, f"{scratch}/caches/{name}")
                    shutil.rmtree(scratch / "caches")
                    lines.append(
                        {"samples": samples, "order": order, "ranks": ranks, "hosts": hosts, **found}
                    )
    return lines


def show(part: str, lines: Sequence[Json]) -> None:
    """Prints one part's table."""
    table = Table(title=part)
    names = [
        "samples",
        "order",
        "ranks",
        "open s",
        "open MB",
        "first s",
        "batch ms",
        "run MB",
        "shared MB",
        "B/sample",
    ]
    if part == "columns":
        names.insert(1, "columns")
    if part == "bucket":
        names = [
            *names[:3],
            "hosts",
            "open s",
            "open MB/host",
            "requests",
            "B/sample",
            "first s",
            "first MB/host",
            "run MB",
        ]
    for name in names:
        table.add_column(name, justify="left" if name == "order" else "right")
    for line in lines:
        cells = {
            **line,
            "samples": f"{line['samples']:,}",
            "open MB": line["open private"] / 1e6,
            "run MB": line["run private"] / 1e6,
        }
        cells |= {"shared MB": line["run shared"] / 1e6, "B/sample": line["run private"] / line["samples"]}
        if part == "bucket":
            each = line["open bytes"] / line["hosts"]
            cells |= {
                "open MB/host": each / 1e6,
                "requests": line["open requests"] / line["hosts"],
                "B/sample": each / line["samples"],
            }
            cells |= {"first MB/host": line["first bytes"] / line["hosts"] / 1e6}
        table.add_row(
            *(
                cell if isinstance(cell := cells[name], str) else number(cell, DIGITS.get(name, 0))
                for name in names
            )
        )
    common.console.print(table)


def main() -> int:
    """Measures, and prints a table for each part."""
    parser = common.parser(__doc__, rounds=1)
    parser.add_argument("--samples", type=float, nargs="+", default=[1e6, 1e7, 1e8])
    parser.add_argument("--orders", nargs="+", default=["window", "huge", "True"])
    parser.add_argument("--only", nargs="+", choices=PARTS, default=PARTS)
    parser.add_argument("--processes", type=int, nargs="+", default=[1, 8])
    parser.add_argument("--one", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.one:
        one_process(json.loads(arguments.one))
        return 0
    results: Json = {}
    with tempfile.TemporaryDirectory(prefix="fastload-scale-") as folder:
        scratch = Path(folder)
        small, most = scratch / "small.fl", max(arguments.processes)
        pack(Pictures(), small)
        made = {int(samples): scratch / f"{int(samples)}.fl" for samples in arguments.samples}
        for samples, path in made.items():
            forge(path, small, samples)
        makers = {
            "ranks": lambda: ranks_table(made, small, arguments.orders, arguments.processes),
            "columns": lambda: columns_table(list(made), scratch, arguments.orders[0]),
            "resume": lambda: resume_table(made, small, arguments.orders, scratch, most),
            "bucket": lambda: bucket_table(made, small, arguments.orders, scratch, most),
        }
        for part in arguments.only:
            results[part] = makers[part]()
            show(part, results[part])
    targets = [
        common.Target(
            f"{name} of opening {line['samples']:,} samples, {line['ranks']} ranks",
            line[key] / scale,
            bound,
            at_most=True,
        )
        for line in results.get("ranks", ())
        if line["samples"] == 10**8 and line["order"] == "window"
        for name, key, scale, bound in (
            ("MB", "open private", 1e6, OPENED_MB),
            ("seconds", "open s", 1.0, OPENED_S),
        )
    ]
    targets += [
        common.Target(
            f"MB of {line['samples']:,} samples with {line['columns']} columns",
            line["run private"] / 1e6,
            BASE_MB + SAMPLE_BYTES * line["samples"] / 1e6,
            at_most=True,
        )
        for line in results.get("columns", ())
    ]
    return common.finish("scale", arguments, targets, **results)


if __name__ == "__main__":
    sys.exit(main())
