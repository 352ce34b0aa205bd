"""Datasets of 1,000, 4,000 and 16,000 shards: what grows with the number of shards, and how fast.

    python benchmarks/bench_shards.py [--shards 1000,4000,16000] [--only append,verify] [--save shards]

Method: shards of four samples (a pixel, an int and a text), written without syncs, with one sidecar; each
dataset is made once. Every change is made on a folder of hard links. A step is taken once for each number of
shards, in this process, which may have --limit open files. "append as many" packs as many shards as the
dataset has, --append-most at most, and syncs each. "attach" attaches as many tars of one photograph. Steps
with "URL" go to SeaweedFS on this machine, without a proxy. "manifest of 100,000" parses and writes a
manifest alone, of the form that `pack` writes. Of each step the table has milliseconds, and microseconds of
this process's CPU time a shard: a step that grows faster than the shards has more of them where there are
more shards. Caveats: shards are as small as they come, so that nothing but their number is seen. The disk's
syncs and SeaweedFS's share of the cores are part of the figures, and one turn a step: a factor of 1.5 says
nothing.
"""

from __future__ import annotations

import argparse
import io
import resource
import shutil
import sys
import tarfile
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing, contextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import common
import numpy as np
from PIL import Image
from rich.table import Table

sys.path.insert(0, str(Path(__file__).parents[1] / "tools"))

from servers.seaweedfs import SeaweedFS

import fastload
from fastload import PackedDataset
from fastload.bench.report import number
from fastload.packing import attach, verify
from fastload.remote.caches import fill_cache
from fastload.store import DatasetReader, Field, Manifest, Schema
from fastload.store.entries import ShardEntry, shard_name
from fastload.store.shard import ShardFile, file_crc32c, prepare_sample
from fastload.store.sidecar import write_sidecar
from fastload.transfer import pull, push

SAMPLES = 4
READS = 20_000
BUCKET = "shards"
SCHEMA = Schema((Field("image", "image"), Field("label", "int"), Field("caption", "text")))
MANIFEST_SHARDS = 100_000
MANIFEST_S = 1.0
"""Bound on parsing a manifest of so many shards."""
GROWTH = 2.0
"""Bound on the time a shard at the most shards over that at the fewest."""


def value(index: int) -> dict[str, Any]:
    """Sample index."""
    return {
        "image": np.full((1, 1, 3), index % 256, np.uint8),
        "label": index,
        "caption": f"a picture of thing number {index}",
    }


class More:
    """Samples that are appended."""

    def __init__(self, count: int) -> None:
        self._count = count

    def __len__(self) -> int:
        return self._count

    def __getitem__(self, index: int) -> dict[str, Any]:
        return value(index)


def made(shards: int) -> Path:
    """A dataset of so many shards, made where it is not there yet."""
    out = common.WORK / f"shards-{shards}.fl"
    if (out / "manifest.json").exists():
        return out
    shutil.rmtree(out, ignore_errors=True)
    out.mkdir(parents=True)
    entries = []
    for each in range(shards):
        first, path = each * SAMPLES, out / shard_name(each)
        file = ShardFile(path, first, SCHEMA, 1 << 20)
        for at in range(first, first + SAMPLES):
            file.put(prepare_sample(SCHEMA, value(at), image_kind="raw", height=1, width=1))
        columns = file.close()
        entries.append(ShardEntry(path.name, first, SAMPLES, path.stat().st_size, file_crc32c(path), columns))
    manifest = Manifest(SCHEMA, tuple(entries), None, {"encode": "raw"}, {"samples": shards * SAMPLES})
    replace(manifest, sidecars=(write_sidecar(out, "index-00000.bin", entries),)).write(out)
    return out


def tars(count: int) -> str:
    """As many tars of one photograph and its label, as `attach` takes them."""
    out = common.WORK / f"shards-{count}-tars"
    if not out.exists():
        partial = out.with_suffix(".part")
        shutil.rmtree(partial, ignore_errors=True)
        partial.mkdir(parents=True)
        picture = io.BytesIO()
        Image.fromarray(np.random.default_rng(0).integers(0, 255, (32, 32, 3), dtype=np.uint8)).save(
            picture, "JPEG"
        )
        for each in range(count):
            with tarfile.open(partial / f"part-{each:06d}.tar", "w") as file:
                for name, data in ((f"{each:06d}.jpg", picture.getvalue()), (f"{each:06d}.cls", b"1")):
                    entry = tarfile.TarInfo(name)
                    entry.size = len(data)
                    file.addfile(entry, io.BytesIO(data))
        partial.rename(out)
    return f"{out}/part-{{000000..{count - 1:06d}}}.tar"


@contextmanager
def linked(path: Path) -> Iterator[Path]:
    """A folder of hard links to a dataset, which a change may have."""
    copy = path.with_suffix(".copy")
    shutil.rmtree(copy, ignore_errors=True)
    copy.mkdir()
    for file in path.iterdir():
        (copy / file.name).hardlink_to(file)
    try:
        yield copy
    finally:
        shutil.rmtree(copy)


def seconds(action: Callable[[], object]) -> float:
    """Seconds that an action takes."""
    began = time.perf_counter()
    action()
    return time.perf_counter() - began


@dataclass(frozen=True)
class Took:
    """Time of a step.

    Attributes:
        wall, cpu: seconds of the clock, and of this process on all cores.
        units: shards, or what else it did so many of.
    """

    wall: float
    cpu: float
    units: int


class Steps:
    """The steps on a dataset of so many shards, in order: (name, seconds) of each.

    Args:
        shards: how many.
        only: parts of names; a step is taken if one is in its name. (): all.
        append_most: shards that are appended at most.
        server: for steps with a URL; None: they are left out.
    """

    def __init__(
        self, shards: int, only: tuple[str, ...], append_most: int, server: SeaweedFS | None
    ) -> None:
        self._path = made(shards)
        self._shards = shards
        self._only = only
        self._append = min(shards, append_most)
        self._server = server
        self.took: dict[str, Took] = {}

    def _take(self, name: str, action: Callable[[], object], per: int | None = None) -> None:
        if self._only and not any(part in name for part in self._only):
            return
        try:
            before = time.process_time()
            wall = seconds(action)
            self.took[name] = Took(wall, time.process_time() - before, per or self._shards)
            common.Console(stderr=True).print(
                f"{name}, {self._shards:,} shards: {wall * 1e3:,.0f} ms", style="dim"
            )
        except Exception as error:
            common.console.print(
                f"{name}, {self._shards:,} shards: {type(error).__name__}: {str(error)[:200]}", style="red"
            )

    def run(self) -> None:
        """Takes them."""
        path, manifest = self._path, Manifest.load(self._path)
        self._take("open the manifest", lambda: Manifest.load(path))
        self._take("open the dataset", lambda: DatasetReader(path).close())
        self._take(
            "open it by a walk", lambda: DatasetReader(path, manifest=replace(manifest, sidecars=())).close()
        )
        with closing(PackedDataset(path)) as dataset:
            order = np.random.default_rng(0).integers(len(dataset), size=READS).tolist()
            self._take(f"read {READS:,} samples", lambda: [dataset[at] for at in order], len(order))
            self._take("where()", lambda: dataset.where("label % 3 = 1"))
            self._take("where() on a text", lambda: dataset.where("length(caption) > 3"))
        self._take("verify", lambda: verify(path))
        with linked(path) as copy:
            self._take("append one shard", lambda: fastload.append(copy, More(SAMPLES), workers=2))
        with linked(path) as copy:
            size = self._append
            self._take(
                "append as many", lambda: fastload.append(copy, More(size), shard_samples=1, workers=2), size
            )
        with linked(path) as copy:
            array = copy.parent / "shards-extra.npy"
            np.save(array, np.arange(self._shards * SAMPLES))
            self._take("add a column", lambda: fastload.add_columns(copy, array))
            self._take("drop that column", lambda: fastload.drop_columns(copy, "shards-extra"))
            self._take(
                "drop a sample of each",
                lambda: fastload.drop(copy, indices=np.arange(0, self._shards * SAMPLES, SAMPLES)),
            )
            self._take("open without them", lambda: DatasetReader(copy).close())
            self._take("prune", lambda: fastload.prune(copy))
        with linked(path) as copy:
            out = copy.with_suffix(".joined")
            shutil.rmtree(out, ignore_errors=True)
            self._take("concat with itself", lambda: fastload.concat([path, copy], out))
            shutil.rmtree(out, ignore_errors=True)
        out = common.WORK / "shards-attached.fl"
        shutil.rmtree(out, ignore_errors=True)
        source = tars(self._shards)
        self._take("attach as many tars", lambda: attach(source, out, workers=2))
        if self._server is not None:
            self._remote(self._server)

    def _remote(self, server: SeaweedFS) -> None:
        path, options = self._path, server.options()
        url = f"s3://{BUCKET}/{path.name}"
        with tempfile.TemporaryDirectory(dir=common.WORK) as folder:
            cache, out = Path(folder) / "cache", Path(folder) / "pulled.fl"

            def opened() -> None:
                PackedDataset(url, cache=cache, storage_options=options).close()

            def uncached() -> None:
                with closing(
                    PackedDataset(url, cache=cache, cache_size=0, storage_options=options)
                ) as dataset:
                    for at in range(0, len(dataset), len(dataset) // 100):
                        dataset[at]

            self._take("push to a URL", lambda: push(path, url, storage_options=options))
            self._take("push to a URL again", lambda: push(path, url, storage_options=options))
            self._take("open from a URL", opened)
            self._take("open from a URL again", opened)
            self._take("fill the cache of a URL", lambda: fill_cache(url, cache, None, options))
            self._take("open from the full cache", opened)
            self._take("open without a cache", uncached)
            self._take("verify at a URL", lambda: verify(url, storage_options=options))
            self._take("verify --decode at a URL", lambda: verify(url, decode=True, storage_options=options))
            self._take("pull from a URL", lambda: pull(url, out, storage_options=options))


def manifests() -> dict[str, float]:
    """Seconds of each step on a manifest of 100,000 shards."""
    one = Manifest.load(made(1000))
    entry = one.shards[0]
    shards = tuple(
        replace(entry, file=shard_name(at), first=at * SAMPLES, key=at * SAMPLES, crc32c=entry.crc32c ^ at)
        for at in range(MANIFEST_SHARDS)
    )
    big = replace(one, shards=shards)
    data = big.to_bytes()
    again = Manifest.from_bytes(data, "bench")
    return {
        "parse": min(seconds(lambda: Manifest.from_bytes(data, "bench")) for _ in range(3)),
        "write": min(seconds(again.to_bytes) for _ in range(3)),
        "same_samples": seconds(lambda: big.same_samples(again)),
        "samples_digest": seconds(lambda: again.samples_digest),
    }


def main() -> int:
    """Measures each number of shards."""
    made_parser = common.parser(__doc__, rounds=1)
    made_parser.add_argument(
        "--shards", default="1000,4000,16000", help="numbers of shards (default %(default)s)"
    )
    made_parser.add_argument(
        "--only", default="", help="parts of the names of steps, with commas between (default: all)"
    )
    made_parser.add_argument(
        "--append-most",
        type=int,
        default=16_000,
        help="shards that are appended at once (default %(default)s)",
    )
    made_parser.add_argument(
        "--limit", type=int, help="files that this process may have open (default: as many as it may)"
    )
    arguments: argparse.Namespace = made_parser.parse_args()
    most = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (arguments.limit or most, most))
    only = tuple(filter(None, arguments.only.split(",")))
    numbers = [int(each) for each in arguments.shards.split(",")]
    took = {}
    with ExitStack() as stack:
        server = None
        if not only or any("URL".lower() in part.lower() for part in only):
            with suppress(Exception):
                server = stack.enter_context(SeaweedFS())
                server.make_bucket(BUCKET)
        for shards in numbers:
            steps = Steps(shards, only, arguments.append_most, server)
            with common.note(f"{shards:,} shards"):
                steps.run()
            took[shards] = steps.took
    table = Table(title="milliseconds (microseconds of CPU a shard)")
    for heading in ("", *(f"{shards:,} shards" for shards in numbers), "most : fewest, a shard"):
        table.add_column(heading, justify="right" if heading else "left")
    targets, rows = [], []
    for name in dict.fromkeys(name for each in took.values() for name in each):
        found = [took[shards].get(name) for shards in numbers]
        first, last = found[0], found[-1]
        growth = None if first is None or last is None else last.cpu / last.units / (first.cpu / first.units)
        texts = [
            "-" if one is None else f"{number(one.wall * 1e3)} ({number(one.cpu / one.units * 1e6)})"
            for one in found
        ]
        table.add_row(name, *texts, number(growth, 2))
        targets.append(common.Target(f"{name}: growth a shard", growth, GROWTH, at_most=True))
        turns = [
            {"shards": shards, "ms": one.wall * 1e3, "cpu_ms": one.cpu * 1e3}
            for shards, one in zip(numbers, found, strict=True)
            if one
        ]
        rows.append({"title": name, "name": name, "rounds": turns})
    common.console.print(table)
    if not only or any("manifest" in part for part in only):
        alone = manifests()
        common.console.print(
            f"manifest of {MANIFEST_SHARDS:,}: "
            + ", ".join(f"{name} {took * 1e3:.0f} ms" for name, took in alone.items())
        )
        targets.append(
            common.Target(
                f"parse a manifest of {MANIFEST_SHARDS:,} shards, s", alone["parse"], MANIFEST_S, at_most=True
            )
        )
        rows.append(
            {
                "title": "manifest",
                "name": "manifest",
                "rounds": [{f"{name}_ms": took * 1e3 for name, took in alone.items()}],
            }
        )
    return common.finish("shards", arguments, targets, shards=numbers, rows=rows)


if __name__ == "__main__":
    sys.exit(main())
