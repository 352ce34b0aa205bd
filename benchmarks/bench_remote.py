"""A packed dataset in a bucket against the same on the local disk, and against LitData, Mosaic Streaming and
WebDataset on the same bucket.

    python benchmarks/bench_remote.py [--only fastload] [--rounds 5] [--save remote]
        [--litdata-python P] [--streaming-python P] [--webdataset-python P]

Method: SeaweedFS on this machine; before it a TCP proxy that counts bytes and requests and adds latency or
limits bandwidth. The corpus' photographs --times times, in 20 classes that follow each other, packed in
shards of 64 MiB. Every turn is a process of its own, turns of a round follow each other, figures are medians
over the rounds, ratios are of neighbours in a round. Loader: RandomResizedCrop(224), flip, batches of 64,
shuffle=True, 2 threads; nothing is done with a batch.

- Rates: an epoch from the last batch of the one before to its own last; the first epoch from its first batch,
  since first batches have a line of their own ("whole": from iter()). Remote at 50 ms of round trip without a
  limit of bandwidth, the cache empty at the start and as large as the data.
- Bytes: what passed the proxy towards the loader, headers included, over the sum of the records. A loader
  begins its next epoch before the last batch of this one; later epochs are counted from half a second after
  the end of epoch 1 to the same after the last, so that what was fetched early is in both.
- CPU of fetching: process time of all threads for 100 KB, without the proxy; no decoding. fastload asks,
  checks, writes to its cache and tells who waits; obstore alone asks and drops, by blocking calls in threads,
  which is its cheapest way, and awaited. From SeaweedFS with signed requests, and from nginx over plain HTTP:
  SeaweedFS takes 1,000 us of these same two cores for 100 KB, and what is left of their caches makes every
  client slower, a bare socket by half and obstore by its double.
- Window: what passes the proxy, and the loader's CPU, in later epochs at c = 0.5, by a WindowSampler and
  shuffle=True, counted as the bytes are; decoding is in the CPU of both.
- Memory: largest resident set (VmHWM) of a process that ran three epochs, and the most anonymous memory seen
  in it.

Caveats: server, proxy and loader share the cores, so that rates of epoch 1 have in them what a bucket
elsewhere would not cost here; the CPU of each is told apart, and the ratio of the loaders' CPU stands beside
that of rates. Where other programs run, even CPU times grow: "others" is the share of the machine that they
took. 250 photographs, listed often.
"""

from __future__ import annotations

import argparse
import dataclasses
import itertools
import os
import shutil
import statistics
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import common
from remote_peers import VERSIONS, Comparison
from remote_runner import BUCKET, Json, Servers, Turn, take
from remote_turn import Spec
from rich.table import Table
from servers.nginx import Nginx

from fastload.bench.report import number
from fastload.store import DatasetReader
from fastload.transfer import push

HERE = Path(__file__).parent
SHARES = (0.1, 0.3, 0.5, 1.0)
ROUND_TRIP_S = 0.05
LINK = 50e6
EPOCHS = 3
SETTLE_S = 0.5
PAGE = 4096
# Of fetching: most us of CPU for 100 KB, and most times that of obstore alone.
PATTERNS = {
    "ranges": (110, 1.5),
    "singles": (190, 1.4),
}
MODES = {"fetch": "fastload", "obstore": "obstore alone", "awaited": "obstore alone, awaited"}


class Fastload:
    """The turns of fastload, and what they came to."""

    def __init__(self, servers: Servers, local: Path, arguments: argparse.Namespace) -> None:
        self.servers = servers
        self.local = local
        self.arguments = arguments
        self.url = f"s3://{BUCKET}/{local.name}"
        self.cache = common.WORK / "remote-cache"
        self.needed = needed_by(local)
        self.pages = needed_by(local, PAGE)
        self.rows: list[Json] = []
        self.targets: list[common.Target] = []

    def turn(
        self,
        mode: str,
        *,
        local: bool = False,
        direct: bool = False,
        web: str = "",
        share: float = 2.0,
        **more: Any,
    ) -> Turn:
        """One child, from the bucket or the dataset's URL at a web server; its reason ends the script if
        it failed."""
        where: Json = {"source": str(self.local)}
        if not local:
            options = self.servers.direct if direct else self.servers.proxied
            where = {
                "source": self.url,
                "cache": str(self.cache),
                "cache_size": int(share * self.needed),
                "options": options,
            }
            if web:
                where.update(source=web, options={})
        spec = Spec(mode=mode, workers=self.arguments.workers, **where, **more)
        with common.note(f"{mode} {more.get('pattern', '')} {'local' if local else 'remote'} {share:g}"):
            found = take(
                self.servers,
                [sys.executable, "-X", "faulthandler", HERE / "remote_turn.py"],
                dataclasses.asdict(spec),
            )
        if not found.result["ok"]:
            common.console.print(f"{mode}: {found.result['reason']}", style="red")
            sys.exit(2)
        return found

    def target(self, name: str, value: float, bound: float, at_most: bool = False, digits: int = 2) -> None:
        """One line of the outcome."""
        self.targets.append(common.Target(name, value, bound, at_most, digits))

    # ---- parts

    def bytes_fetched(self) -> None:
        """Bytes by epoch for each size of the cache."""
        self.servers.link()
        for share in SHARES:
            epochs = 2 + EPOCHS if share < 1 else 2
            # a whole dataset needs more room than its records: states, segments, the ends of pages
            found = self.turn("train", share=share if share < 1 else 2.0, epochs=epochs, settle_s=SETTLE_S)
            first, last = found.at("epoch", 0), found.at("epoch", epochs - 1)
            opening, one = found.between(0, found.at("opened")), found.between(found.at("opened"), first)
            early = found.between(first, last)["down"] / (epochs - 1) / self.needed
            row = {
                "part": "bytes",
                "share": share,
                "opening": opening,
                "epoch_1": one["down"] / self.needed,
                "requests_1": one["requests"],
                "later": early,
            }
            self.rows.append(row)
            if share == 1:
                common.console.print(
                    f"records with the tails of their pages: {self.pages / self.needed:.4f} of the records"
                )
                self.target("bytes of epoch 1 / needed", row["epoch_1"], 1.01, True, 4)
                self.target("bytes of epoch 2, c = 1", early, 0.0, True, 4)
            else:
                self.target(f"bytes of later epochs / needed, c = {share}", early, 1 - share + 0.02, True, 4)

    def rates(self) -> None:
        """Local and at 50 ms: rates, CPU, first batch, opening, memory."""
        self.servers.link(ROUND_TRIP_S)
        for round_number in range(self.arguments.rounds):
            row: Json = {"part": "rates", "round": round_number}
            for name in ("local", "remote"):
                found = self.turn("train", local=name == "local", epochs=EPOCHS, seed=round_number)
                one = found.between(found.at("opened"), found.at("epoch", 0))
                row[name] = {
                    **found.result,
                    "opening": found.between(0, found.at("opened")),
                    "servers_1": one,
                    "others": found.others(0, -1),
                }
            self.rows.append(row)
        rows = [row for row in self.rows if row["part"] == "rates"]

        def compare(read: Any) -> float:
            return statistics.median(read(row["remote"]) / read(row["local"]) for row in rows)

        def remote(read: Any) -> float:
            return statistics.median(read(row["remote"]) for row in rows)

        self.target("rate once cached / local", compare(cached_rate), 0.97)
        self.target("rate of epoch 1 / local, after the first batch", compare(first_rate), 0.80)
        self.target("rate of epoch 1 / local, whole", compare(lambda r: whole_rate(r)), 0.80)
        self.target(
            "loader's CPU of epoch 1: local / remote", 1 / compare(lambda r: r["epochs"][0]["cpu_s"]), 0.80
        )
        self.target("first batch from a cold start, 50 ms: s", remote(lambda r: r["first_s"]), 1.0, True)
        self.target("opening, 50 ms: s", remote(lambda r: r["open_s"]), 1.0, True)
        self.target("opening: requests", remote(lambda r: r["opening"]["requests"]), 3, True, 0)
        mib = 1 << 20
        for name, key in (("peak resident", "peak_bytes"), ("most anonymous", "anon_bytes")):
            more = statistics.median(row["remote"][key] - row["local"][key] for row in rows)
            self.target(f"{name} memory beyond local: MiB", more / mib, 64, True, 1)

    def fetching(self) -> None:
        """CPU of fetching 100 KB, by fastload and by obstore alone, without the proxy."""
        with Nginx(common.WORK / "remote-web") as server:
            served = server.root / self.local.name
            shutil.rmtree(served, ignore_errors=True)
            shutil.copytree(self.local, served, copy_function=os.link)
            for round_number in range(self.arguments.rounds):
                for web, pattern, mode in itertools.product(
                    ("", f"{server.http}/{self.local.name}"), PATTERNS, MODES
                ):
                    found = self.turn(mode, direct=True, web=web, pattern=pattern, seed=round_number)
                    us = found.result["cpu_s"] / found.result["bytes"] * 1e5 * 1e6
                    what = {
                        "part": "fetching",
                        "from": "HTTP" if web else "S3",
                        "pattern": pattern,
                        "mode": mode,
                    }
                    self.rows.append(
                        {**what, "us_per_100kb": us, "others": found.others(0, -1), **found.result}
                    )
        for place, pattern in itertools.product(("S3", "HTTP"), PATTERNS):
            here = [row for row in self.rows if row.get("from") == place and row["pattern"] == pattern]
            ours, alone, awaited = (
                [row["us_per_100kb"] for row in here if row["mode"] == mode] for mode in MODES
            )
            said = (
                f"fastload {ranged(ours, 0)}, obstore alone {ranged(alone, 0)}, awaited {ranged(awaited, 0)}"
            )
            common.console.print(f"{place} {pattern}, us of CPU for 100 KB: {said}")
            bound, times = PATTERNS[pattern]
            self.target(
                f"fetching 100 KB by {pattern}, {place}: us of CPU", statistics.median(ours), bound, True, 0
            )
            ratio = statistics.median(one / other for one, other in zip(ours, alone, strict=True))
            self.target(f"fetching by {pattern}, {place}: CPU / obstore alone", ratio, times, True)

    def window(self) -> None:
        """Requests, bytes and CPU of later epochs with half a cache, by a window and by a shuffle of all."""
        self.servers.link()
        shown = Table(title='later epochs, c = 0.5: shuffle="window" and shuffle=True')
        for heading in (
            "shuffle",
            "round",
            "requests",
            "bytes / needed",
            "KiB a request",
            "epoch 1: KiB",
            "CPU us an image",
            "anonymous MiB",
        ):
            shown.add_column(heading, justify="right")
        ratios: list[float] = []
        for round_number in range(self.arguments.rounds):
            requests: list[float] = []
            for shuffle in ("window", True):
                # a next epoch that begins early opens most blocks of so few data, at one end of what is
                # counted or at the other
                pattern = "window" if shuffle == "window" else ""
                found = self.turn(
                    "train",
                    share=0.5,
                    epochs=1 + EPOCHS,
                    settle_s=SETTLE_S,
                    seed=round_number,
                    pattern=pattern,
                )
                one = found.between(found.at("opened"), found.at("epoch", 0))
                later = found.between(found.at("epoch", 0), found.at("epoch", EPOCHS))
                row = {
                    "part": "window",
                    "shuffle": str(shuffle),
                    "requests": later["requests"] / EPOCHS,
                    "bytes": later["down"] / EPOCHS / self.needed,
                    "request_bytes": later["down"] / max(1, later["requests"]),
                    "request_bytes_1": one["down"] / max(1, one["requests"]),
                    "cpu_us": cpu_us(found.result["epochs"][1:]),
                    "anon_bytes": found.result["anon_bytes"],
                }
                self.rows.append(row)
                requests.append(row["requests"])
                figures = (
                    row["requests"],
                    row["bytes"],
                    row["request_bytes"] / 1024,
                    row["request_bytes_1"] / 1024,
                    row["cpu_us"],
                )
                texts = [
                    number(value, digits) for value, digits in zip(figures, (0, 3, 0, 0, 0), strict=True)
                ]
                shown.add_row(
                    str(shuffle), str(round_number), *texts, number(row["anon_bytes"] / (1 << 20), 0)
                )
            ratios.append(requests[0] / requests[1])
        common.console.print(shown)
        windows = [row for row in self.rows if row["part"] == "window" and row["shuffle"] == "window"]
        self.target(
            "bytes of later epochs by a window / needed, c = 0.5",
            statistics.median(row["bytes"] for row in windows),
            0.52,
            True,
            4,
        )
        self.target("requests by a window / by a shuffle, c = 0.5", statistics.median(ratios), 0.1, True, 3)
        even = statistics.median(row["request_bytes"] / row["request_bytes_1"] for row in windows)
        self.target("bytes a request by a window, c = 0.5: later / epoch 1", even, 0.8)

    def slow_link(self) -> None:
        """The first batch on a link of 50 MB/s."""
        for round_trip in (0.0, ROUND_TRIP_S):
            self.servers.link(round_trip, LINK)
            found = [
                self.turn("train", epochs=0, seed=each).result["first_s"]
                for each in range(self.arguments.rounds)
            ]
            self.rows.append({"part": "link", "round_trip_s": round_trip, "first_s": found})
            self.target(
                f"first batch at 50 MB/s and {round_trip * 1e3:.0f} ms: s",
                statistics.median(found),
                1.5,
                True,
            )
        self.servers.link()

    def show(self) -> Json:
        """The rates' table; returns its medians, and those of fetching."""
        saved: Json = {}
        for row in self.rows:
            if row["part"] == "fetching":
                title = f"{MODES[row['mode']]}, {row['pattern']}, {row['from']}"
                saved.setdefault(title, []).append(row["us_per_100kb"])
        saved = (
            {"CPU us of fetching 100 KB": {name: statistics.median(each) for name, each in saved.items()}}
            if saved
            else {}
        )
        rows = [row for row in self.rows if row["part"] == "rates"]
        if not rows:
            return saved
        shown = Table(title="median over rounds, at 50 ms")
        for heading in ("", "local", "remote"):
            shown.add_column(heading, justify="right" if heading else "left")
        reads: list[tuple[str, Any, int]] = [
            ("epoch 1, images/s, after the first batch", first_rate, 0),
            ("epoch 1, images/s, whole", whole_rate, 0),
            ("later epochs, images/s", cached_rate, 0),
            ("epoch 1, loader's CPU us an image", lambda r: cpu_us(r["epochs"][:1]), 0),
            ("later epochs, loader's CPU us an image", lambda r: cpu_us(r["epochs"][1:]), 0),
            (
                "epoch 1, proxy's CPU us an image",
                lambda r: r["servers_1"]["proxy_cpu_s"] / r["epochs"][0]["images"] * 1e6,
                0,
            ),
            (
                "epoch 1, server's CPU us an image",
                lambda r: r["servers_1"]["server_cpu_s"] / r["epochs"][0]["images"] * 1e6,
                0,
            ),
            ("epoch 1, requests", lambda r: r["servers_1"]["requests"], 0),
            ("opening, s", lambda r: r["open_s"], 3),
            ("first batch, s", lambda r: r["first_s"], 3),
            ("peak resident memory, MiB", lambda r: r["peak_bytes"] / (1 << 20), 1),
            ("most anonymous memory, MiB", lambda r: r["anon_bytes"] / (1 << 20), 1),
            ("distinct classes in a batch", lambda r: r["classes"], 2),
            ("others' share of the machine", lambda r: r["others"], 2),
        ]
        for name, read, digits in reads:
            shown.add_row(
                name, *(ranged([read(row[side]) for row in rows], digits) for side in ("local", "remote"))
            )
            for side in ("local", "remote"):
                saved.setdefault(f"{side}, at 50 ms", {})[name] = statistics.median(
                    read(row[side]) for row in rows
                )
        common.console.print(shown)
        return saved


def needed_by(local: Path, page: int = 1) -> int:
    """Bytes of a packed dataset's records, each rounded up to whole pages."""
    with DatasetReader(local) as reader:
        return sum(-(-len(reader.record(index)) // page) * page for index in range(len(reader)))


def ranged(values: Sequence[float], digits: int) -> str:
    """Median and range."""
    return (
        f"{number(statistics.median(values), digits)} ({number(min(values), digits)} - "
        f"{number(max(values), digits)})"
    )


def cached_rate(result: Json) -> float:
    """Images/s of the epochs after the first."""
    later = result["epochs"][1:]
    return sum(each["images"] for each in later) / sum(each["wall_s"] for each in later)


def whole_rate(result: Json) -> float:
    """Images/s of the first epoch, from iter()."""
    return result["epochs"][0]["images"] / result["epochs"][0]["wall_s"]


def first_rate(result: Json) -> float:
    """Images/s of the first epoch, from its first batch on."""
    first = result["epochs"][0]
    return (first["images"] - 64) / (first["wall_s"] - (result["first_s"] - result["open_s"]))


def cpu_us(epochs: Iterable[Json]) -> float:
    """CPU us for an image."""
    some = list(epochs)
    return sum(each["cpu_s"] for each in some) / sum(each["images"] for each in some) * 1e6


def main() -> int:
    """Measures."""
    parser = common.parser(__doc__, rounds=5)
    parser.add_argument(
        "--times",
        type=int,
        default=16,
        help="how often the corpus is listed (default %(default)s: 4,000 photographs)",
    )
    parser.add_argument("--only", choices=("fastload", "peers"), help="one half of it")
    parser.add_argument(
        "--parts", default="bytes,rates,fetching,window,link", help="of fastload's half (default %(default)s)"
    )
    for library, title in VERSIONS.items():
        parser.add_argument(
            f"--{library}-python",
            metavar="PATH",
            help=f"the Python of an environment with {title}, to compare with it",
        )
    arguments = parser.parse_args()
    tree = common.copies(common.corpus(arguments.corpus, "in500"), arguments.times)
    local = common.pack_fresh(
        tree, f"remote-{arguments.times}.fl", workers=arguments.workers, shard_size="64MiB"
    )
    targets: list[common.Target] = []
    rows: list[Json] = []
    peers: list[Json] = []
    medians: Json = {}
    with Servers(common.WORK / "remote-server") as servers:
        push(local, f"s3://{BUCKET}/{local.name}", storage_options=servers.direct, overwrite=True)
        if arguments.only != "peers":
            ours = Fastload(servers, local, arguments)
            parts = {
                "bytes": ours.bytes_fetched,
                "rates": ours.rates,
                "fetching": ours.fetching,
                "window": ours.window,
                "link": ours.slow_link,
            }
            for name in arguments.parts.split(","):
                parts[name]()
            medians = ours.show()
            targets += ours.targets
            rows += ours.rows
        if arguments.only != "fastload":
            comparison = Comparison(servers, local, tree, needed_by(local), arguments)
            comparison.prepare()
            comparison.run()
            comparison.show()
            targets += comparison.targets()
            peers = comparison.figures()
    return common.finish(
        "remote", arguments, targets, images=250 * arguments.times, **medians, peers=peers, turns=rows
    )


if __name__ == "__main__":
    sys.exit(main())
