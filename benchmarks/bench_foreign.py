"""Objects in a bucket as somebody wrote them (tars, Parquet, class folders), attached, against the same
photographs packed into the bucket.

    python benchmarks/bench_foreign.py [--rounds 3] [--only attach bytes rates peers]

Method: SeaweedFS on this machine, behind the proxy of bench_remote.py, which counts bytes and requests and
adds latency. The corpus' photographs --times times, in --shards files with a label each: tars, Parquet as
pyarrow writes it without compression and with Snappy; and an object each. Turns are those of bench_remote.py:
a process each, RandomResizedCrop(224), flip, batches of 64, shuffle=True; medians over the rounds, ratios of
neighbours in a round.

Parts:

attach   bytes of the ranges that are asked for (without HTTP headers), requests and seconds: at 50 ms, where
         reading everything is faster, and on a link that is too slow for that.
bytes    what passes the proxy towards the loader, headers included, over the bytes of the images, epoch by
         epoch.
rates    CPU of an epoch, first and later, over that of the packed dataset; first batch at 50 ms. Tars also as
         attached with --check entropy.
peers    the same objects, class after class, read by other libraries: Pillow, where they take a buffer to
         shuffle one of 1,000; two epochs with room for all in the cache, without latency. Then each stops
         after a third of an epoch, and goes on: how many photographs came never, or twice. LitData's needs
         --litdata-python, one for which polars and s3fs are installed.
"""

from __future__ import annotations

import dataclasses
import io
import shutil
import statistics
import sys
import tarfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import common
import pyarrow as pa
import pyarrow.parquet as pq
from remote_runner import BUCKET, Json, Servers, Turn, take
from remote_turn import Spec

from fastload.packing import attach, pack
from fastload.remote.client import open_objects
from fastload.remote.foreign import ForeignObjects
from fastload.transfer import push

HERE = Path(__file__).parent
ROUND_TRIP_S = 0.05
SLOW = 2e6
"""Bytes a second of a link on which walks skip what lies between headers."""
SHARES = (0.5, 2.0)
LATER = 2
SETTLE_S = 0.5
Photo = tuple[bytes, int]


def photographs(folder: Path, times: int) -> Iterator[Photo]:
    """(bytes, label) of each, class after class, as people write them; each has a comment of its own, since
    Parquet stores equal values once."""
    paths = sorted(folder.glob("*/*.jpg"))
    names = sorted({path.parent.name for path in paths})
    for number in range(times * len(paths)):
        path = paths[number // times]
        image, own = path.read_bytes(), b"\xff\xfe\x00\x06" + number.to_bytes(4, "big")
        yield image[:2] + own + image[2:], names.index(path.parent.name)


def tar_of(photos: list[Photo], first: int) -> bytes:
    data = io.BytesIO()
    with tarfile.open(fileobj=data, mode="w") as tar:
        for number, (image, label) in enumerate(photos, first):
            for ending, content in (("jpg", image), ("cls", b"%d" % label)):
                entry = tarfile.TarInfo(f"{number:07}.{ending}")
                entry.size = len(content)
                tar.addfile(entry, io.BytesIO(content))
    return data.getvalue()


def parquet_of(compression: str) -> Callable[[list[Photo], int], bytes]:
    def made(photos: list[Photo], first: int) -> bytes:
        data = io.BytesIO()
        images = pa.array([{"bytes": image, "path": None} for image, _ in photos])
        table = pa.table({"image": images, "label": [label for _, label in photos]})
        pq.write_table(table, data, row_group_size=100, compression=compression, write_page_index=True)
        return data.getvalue()

    return made


def loose_of(photos: list[Photo], first: int) -> list[tuple[str, bytes]]:
    """The objects of class folders, each with the rest of its name."""
    return [(f"{label:02}/{number:07}.jpg", image) for number, (image, label) in enumerate(photos, first)]


KINDS: dict[str, tuple[str, Callable[[list[Photo], int], Any]]] = {
    "tar": ("tar", tar_of),
    "parquet": ("parquet", parquet_of("none")),
    "snappy": ("parquet", parquet_of("snappy")),
    "loose": ("jpg", loose_of),
}


BATCH = 64
PEERS = {
    "fastload, tars": ("fastload", "tar"),
    "WebDataset, tars": ("webdataset", "tar"),
    "Hugging Face streaming, tars": ("datasets", "tar"),
    "fastload, Parquet": ("fastload", "parquet"),
    "LitData, Parquet": ("litdata_parquet", "parquet"),
    "fastload, objects": ("fastload", "loose"),
    "LitData, objects": ("litdata_raw", "loose"),
    "fastload, MDS": ("fastload", "mds"),
    "Mosaic Streaming, MDS": ("streaming", "mds"),
}
"""By row: the library, and what it reads of the bucket."""
CHECKED = "tar, checked"
"""The tars, attached with --check entropy."""


def prepare(servers: Servers, arguments: Any, work: Path) -> int:
    """Writes all objects, attaches them, and packs them; returns the bytes of the images."""
    photos = list(photographs(common.corpus(arguments.corpus, "in500"), arguments.times))
    each = -(-len(photos) // arguments.shards)
    objects = open_objects(f"s3://{BUCKET}", servers.direct)
    for kind, (ending, write) in KINDS.items():
        for number in range(arguments.shards):
            part = photos[number * each : (number + 1) * each]
            made = write(part, number * each)
            for name, data in made if isinstance(made, list) else [(f"train-{number:03}.{ending}", made)]:
                objects.put(f"{kind}/{name}", data)
        attach(f"s3://{BUCKET}/{kind}/", work / f"{kind}.fl", storage_options=servers.direct)
    objects.close()
    checked = work / f"{CHECKED}.fl"
    attach(f"s3://{BUCKET}/tar/", checked, check="entropy", storage_options=servers.direct)
    pack(
        f"s3://{BUCKET}/tar/train-*.tar",
        work / "packed.fl",
        encode="keep",
        storage_options=servers.direct,
        shard_size="64MiB",
    )
    push(work / "packed.fl", f"s3://{BUCKET}/packed.fl", storage_options=servers.direct)
    return sum(len(image) for image, _ in photos)


class Counted:
    """Bytes of the ranges that are asked for in the block."""

    def __enter__(self) -> Counted:
        self.bytes = 0
        self._get = ForeignObjects.get

        def get(objects: ForeignObjects, url: str, start: int, stop: int, info: Any) -> Any:
            self.bytes += stop - start
            return self._get(objects, url, start, stop, info)

        ForeignObjects.get = get  # type: ignore[method-assign]
        return self

    def __exit__(self, *_: object) -> None:
        ForeignObjects.get = self._get  # type: ignore[method-assign]


class Foreign:
    """The turns, and what they came to."""

    def __init__(self, servers: Servers, arguments: Any, work: Path, needed: int) -> None:
        self.servers, self.arguments, self.work, self.needed = servers, arguments, work, needed
        self.targets: list[common.Target] = []

    def attach(self) -> None:
        for kind in KINDS:
            for round_trip, bandwidth in ((ROUND_TRIP_S, 0.0), (0.0, SLOW)):
                self.servers.link(round_trip, bandwidth)
                before, began = self.servers.counted(), time.perf_counter()
                with Counted() as counted:
                    summary = attach(
                        f"s3://{BUCKET}/{kind}/",
                        self.work / f"{kind}.fl",
                        overwrite=True,
                        storage_options=self.servers.proxied,
                    )
                spent, after = time.perf_counter() - began, self.servers.counted()
                each = counted.bytes / summary.samples
                common.console.print(
                    f"attach {kind} at {round_trip * 1e3:.0f} ms{' on a slow link' * bool(bandwidth)}: "
                    f"{each:,.0f} bytes a sample "
                    f"({counted.bytes / self.needed:.2%}), "
                    f"{after['requests'] - before['requests']:,} requests, {spent:.1f} s"
                )
                if bandwidth:
                    self.target(f"attach {kind}: bytes a sample", each, 2500, 0)
                    self.target(f"attach {kind}: bytes / the images'", counted.bytes / self.needed, 0.005, 4)
        self.servers.link()

    def target(self, name: str, value: float, bound: float, digits: int = 3) -> None:
        self.targets.append(common.Target(name, value, bound, True, digits))

    def turn(self, kind: str, share: float, epochs: int, seed: int, settle_s: float = 0.0) -> Turn:
        cache = self.work / "cache"
        shutil.rmtree(cache, ignore_errors=True)
        spec = Spec(
            mode="train",
            source=f"s3://{BUCKET}/packed.fl" if kind == "packed" else str(self.work / f"{kind}.fl"),
            cache=str(cache),
            cache_size=int(share * self.needed),
            options=self.servers.proxied,
            epochs=epochs,
            seed=seed,
            workers=self.arguments.workers,
            settle_s=settle_s,
        )
        program = [sys.executable, "-X", "faulthandler", HERE / "remote_turn.py"]
        with common.note(f"{kind} {share:g}"):
            found = take(self.servers, program, dataclasses.asdict(spec))
        if not found.result["ok"]:
            common.console.print(f"{kind}: {found.result['reason']}", style="red")
            sys.exit(2)
        return found

    def bytes(self) -> None:
        self.servers.link()
        for kind in KINDS:
            for share in SHARES:
                found = self.turn(kind, share, 1 + LATER, 0, SETTLE_S)
                first, last = found.at("epoch", 0), found.at("epoch", LATER)
                one = found.between(found.at("opened"), first)["down"] / self.needed
                later = found.between(first, last)["down"] / LATER / self.needed
                kept = min(share, 1.0)
                self.target(f"{kind}, c = {kept:g}: bytes of epoch 1 / the images'", one, 1.03, 4)
                self.target(f"{kind}, c = {kept:g}: bytes of later epochs", later, 1 - kept + 0.03, 4)

    def rates(self) -> None:
        self.servers.link(ROUND_TRIP_S)
        kinds = (*KINDS, CHECKED)
        rows: dict[str, list[Json]] = {kind: [] for kind in ("packed", *kinds)}
        for number in range(self.arguments.rounds):
            for kind, found in rows.items():
                found.append(self.turn(kind, 2.0, 1 + LATER, number).result)

        def ratio(kind: str, read: Callable[[Json], float]) -> float:
            pairs = zip(rows[kind], rows["packed"], strict=True)
            return statistics.median(read(mine) / read(packed) for mine, packed in pairs)

        for kind in kinds:
            self.target(
                f"{kind}: CPU of epoch 1 / packed", ratio(kind, lambda r: r["epochs"][0]["cpu_s"]), 1.1
            )
            self.target(f"{kind}: CPU of a later epoch / packed", ratio(kind, later_cpu), 1.1)
            first = statistics.median(row["first_s"] for row in rows[kind])
            self.target(f"{kind}: first batch at 50 ms, s", first, 1.0)

    def make_mds(self) -> None:
        """Puts the photographs there as Mosaic's writer makes MDS shards of them, and attaches these."""
        tree, out = self.work / "tree", self.work / "mds"
        photos = photographs(common.corpus(self.arguments.corpus, "in500"), self.arguments.times)
        for number, (image, label) in enumerate(photos):
            (tree / f"{label:02}").mkdir(parents=True, exist_ok=True)
            (tree / f"{label:02}" / f"{number:07}.jpg").write_bytes(image)
        spec = {"mode": "make", "library": "streaming", "tree": str(tree), "out": str(out)}
        take(self.servers, [sys.executable, HERE / "remote_peer.py"], spec, 300.0)
        objects = open_objects(f"s3://{BUCKET}", self.servers.direct)
        for path in out.iterdir():
            objects.put(f"mds/{path.name}", path.read_bytes())
        objects.close()
        attach(f"s3://{BUCKET}/mds/", self.work / "mds.fl", storage_options=self.servers.direct)

    def peers(self) -> None:
        self.servers.link()
        self.make_mds()
        rows: dict[str, list[Json]] = {name: [] for name in PEERS}
        for number in range(self.arguments.rounds):
            for name, found in rows.items():
                library, kind = PEERS[name]
                turn = self.turn(kind, 2.0, 2, number) if library == "fastload" else self.peer(name, number)
                found.append(told(turn, self.needed))
                common.console.print(f"{name}: {found[-1]}", highlight=False)
        for name, (library, _) in PEERS.items():
            if library != "fastload":
                found = self.peer(name, 0, mode="resume").result
                common.console.print(f"{name}, resumed: {found.get('resume') or found}", highlight=False)

    def peer(self, name: str, seed: int, mode: str = "train") -> Turn:
        """A turn of another library; `mode` resume: it stops after a third of an epoch, and goes on."""
        library, kind = PEERS[name]
        names = [f"train-{number:03}.tar" for number in range(self.arguments.shards)]
        count = self.arguments.times * len(
            list(common.corpus(self.arguments.corpus, "in500").glob("*/*.jpg"))
        )
        spec = {
            "mode": mode,
            "library": library,
            "url": f"s3://{BUCKET}/{kind}",
            "urls": self.servers.signed("tar", names),
            "cache": str(self.work / "cache"),
            "limit": None,
            "options": self.servers.proxied,
            "epochs": 2,
            "seed": seed,
            "workers": self.arguments.workers,
            "more": {},
            "stop": count // 3 // BATCH,
            "count": count,
        }
        python = self.arguments.litdata_python if library.startswith("litdata_") else sys.executable
        with common.note(f"{name}, {mode}"):
            return take(self.servers, [python, HERE / "remote_peer.py"], spec, 300.0)


def told(turn: Turn, needed: int) -> Json:
    """What a turn of two epochs came to; a reason where it failed."""
    if not turn.result["ok"]:
        return {"failed": turn.result["reason"]}
    found: Json = {"classes": turn.result.get("classes"), "first_s": round(turn.result["first_s"], 2)}
    for number, epoch in enumerate(turn.result["epochs"]):
        place = turn.at("epoch", number)
        spent = turn.between(place - 1, place)
        found[f"epoch {number + 1}"] = {
            "images/s": round(epoch["images"] / epoch["wall_s"]),
            "bytes": round(spent["down"] / needed, 3),
            "requests": spent["requests"],
        }
    return found


def later_cpu(result: Json) -> float:
    return statistics.median(float(epoch["cpu_s"]) for epoch in result["epochs"][1:])


def main() -> None:
    parser = common.parser(__doc__, rounds=3)
    parser.add_argument("--times", type=int, default=16, help="of the photographs (default %(default)s)")
    parser.add_argument("--shards", type=int, default=8)
    parser.add_argument("--litdata-python", default=sys.executable)
    parser.add_argument("--only", nargs="*", default=["attach", "bytes", "rates"])
    arguments = parser.parse_args()
    work = common.WORK / "foreign"
    shutil.rmtree(work, ignore_errors=True)
    work.mkdir(parents=True)
    with Servers(work / "weed") as servers:
        run = Foreign(servers, arguments, work, prepare(servers, arguments, work))
        for part in arguments.only:
            getattr(run, part)()
    sys.exit(common.finish("foreign", arguments, run.targets))


if __name__ == "__main__":
    main()
