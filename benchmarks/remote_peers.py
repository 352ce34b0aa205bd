"""The half of bench_remote.py that compares: fastload and other libraries on one bucket, behind one proxy.

In each round, each in processes of their own and in turn: two epochs with room for all in the cache, two with
room for half of the data, and the first batch on a link of 50 MB/s. What does not end within its limit is
shown as such, with what it had fetched by then.
"""

from __future__ import annotations

import argparse
import dataclasses
import shutil
import statistics
import sys
from pathlib import Path

import common
from remote_peer import CHUNK
from remote_runner import BUCKET, Json, Servers, Turn, take
from remote_turn import Spec
from rich.table import Table

from fastload.bench.report import number
from fastload.remote.client import open_objects

HERE = Path(__file__).parent
LIMITS_S = {"whole": 150.0, "half": 240.0, "link": 60.0}
LINK = 50e6
SMALL_BLOCK = 500
KEPT_MOST = 0.55
"""Share of the data on the disk beyond which a cache of half of it has not kept its limit."""
VERSIONS = {"litdata": "LitData", "streaming": "Mosaic Streaming", "webdataset": "WebDataset"}


@dataclasses.dataclass
class Peer:
    """One library, with one set of arguments.

    Attributes:
        name: of its rows.
        library: of remote_peer.py; "fastload" for this one.
        python: that it is installed for.
        more: arguments of its dataset.
    """

    name: str
    library: str
    python: str
    more: Json = dataclasses.field(default_factory=dict)


def peers_of(arguments: argparse.Namespace) -> list[Peer]:
    """fastload, and those whose Python was given."""
    found = [
        Peer("fastload", "fastload", sys.executable),
        Peer("fastload, window", "fastload", sys.executable, {"shuffle": "window"}),
    ]
    for library, title in VERSIONS.items():
        python = getattr(arguments, f"{library}_python")
        if python:
            found.append(Peer(title, library, python))
            if library == "streaming":
                found.append(
                    Peer(
                        f"{title}, shuffle_block_size={SMALL_BLOCK}",
                        library,
                        python,
                        {"shuffle_block_size": SMALL_BLOCK},
                    )
                )
    return found


def tell(row: Json) -> None:
    """One line of what a turn came to: a run takes long, and may be ended."""
    figures = [
        f"{each['images_per_s']:.0f} images/s, {each['cpu_us']:.0f} us, {each['bytes']:.3f}"
        for each in row.get("epochs", ())
    ]
    first = f"first batch {row['first_s']:.2f} s" if "first_s" in row else str(row["reason"])
    common.console.print(f"{row['part']}, {row['name']}: {'; '.join([*figures, first])}", highlight=False)


def at_rate(name: str) -> bool:
    """Whether a figure is shown without decimals."""
    return name in ("images_per_s", "cpu_us")


class Comparison:
    """The turns of all, and what they came to."""

    def __init__(
        self, servers: Servers, local: Path, tree: Path, needed: int, arguments: argparse.Namespace
    ) -> None:
        self.servers = servers
        self.local = local
        self.tree = tree
        self.needed = needed
        self.arguments = arguments
        self.peers = peers_of(arguments)
        self.cache = common.WORK / "remote-cache"
        self.rows: list[Json] = []

    def prepare(self) -> None:
        """Makes each library's dataset, and uploads it."""
        for library in {peer.library: peer for peer in self.peers if peer.library != "fastload"}:
            out = self._made(library)
            peer = next(peer for peer in self.peers if peer.library == library)
            if not out.with_suffix(".done").exists():
                shutil.rmtree(out, ignore_errors=True)
                spec = {"mode": "make", "library": library, "tree": str(self.tree), "out": str(out)}
                with common.note(f"making the dataset of {library}"):
                    made = take(self.servers, [peer.python, HERE / "remote_peer.py"], spec, 600.0).result
                if not made["ok"]:
                    raise SystemExit(f"{library}'s dataset could not be made: {made['reason']}")
                out.with_suffix(".done").touch()
            objects = open_objects(self._url(library), self.servers.direct)
            for path in sorted(out.iterdir()):
                objects.put_file(path.name, path)
            objects.close()

    def _made(self, library: str) -> Path:
        return common.WORK / f"{self.local.stem}-{library}-{CHUNK // 1_000_000}"

    def _url(self, library: str) -> str:
        return f"s3://{BUCKET}/{(self.local if library == 'fastload' else self._made(library)).name}"

    def _tars(self) -> list[str]:
        """WebDataset's shards as signed URLs of the proxy, which curl reads."""
        made = self._made("webdataset")
        return self.servers.signed(made.name, sorted(path.name for path in made.glob("*.tar")))

    def turn(self, peer: Peer, part: str, seed: int) -> Turn:
        """One child."""
        epochs = 0 if part == "link" else 2
        share = 0.5 if part == "half" else None
        if peer.library == "fastload":
            size = int((2.0 if share is None else share) * self.needed)
            spec: Json = dataclasses.asdict(
                Spec(
                    "train",
                    self._url("fastload"),
                    str(self.cache),
                    size,
                    self.servers.proxied,
                    epochs,
                    seed=seed,
                    loader=peer.more,
                )
            )
            spec["workers"] = self.arguments.workers
            program: list[str | Path] = [peer.python, HERE / "remote_turn.py"]
        else:
            spec = {
                "mode": "train",
                "library": peer.library,
                "url": self._url(peer.library),
                "urls": self._tars() if peer.library == "webdataset" else [],
                "cache": str(self.cache),
                "limit": None if share is None else int(share * self.needed),
                "options": self.servers.proxied,
                "epochs": epochs,
                "seed": seed,
                "workers": self.arguments.workers,
                "more": peer.more,
            }
            program = [peer.python, HERE / "remote_peer.py"]
        shutil.rmtree(self.cache, ignore_errors=True)
        with common.note(f"{part}: {peer.name}"):
            return take(
                self.servers, program, spec, LIMITS_S[part], self.servers.environment(self.servers.proxied)
            )

    def run(self) -> None:
        """All turns of all rounds."""
        for seed in range(self.arguments.rounds):
            for part in LIMITS_S:
                self.servers.link(0.0, LINK if part == "link" else 0.0)
                for peer in self.peers:
                    found = self.turn(peer, part, seed)
                    self.rows.append({"seed": seed, **self._row(peer, part, found)})
                    tell(self.rows[-1])
        self.servers.link()

    def _row(self, peer: Peer, part: str, found: Turn) -> Json:
        row: Json = {"part": part, "name": peer.name, **found.result}
        if not row["ok"]:
            row["fetched"] = (self.servers.counted()["down"] - found.events[0][1]["down"]) / self.needed
        for at, epoch in enumerate(row.get("epochs", ())):
            place = found.at("epoch", at)
            spent = found.between(place - 1, place)
            images = epoch["images"]
            epoch["images_per_s"] = images / epoch["wall_s"]
            epoch["cpu_us"] = spent["child_cpu_s"] / images * 1e6
            epoch["bytes"] = spent["down"] / self.needed
            epoch["others"] = found.others(place - 1, place)
            epoch["cached"] = found.events[place][1]["cached"] / self.needed
        return row

    # ---- what came out

    def show(self) -> None:
        """The table: medians over the rounds."""
        shown = Table(
            title=(
                "1: epoch 1, room for all; 2: epoch 2, room for half of the data; bytes and disk / the "
                "records"
            )
        )
        headings = (
            "1: images/s",
            "CPU us",
            "bytes",
            "2: images/s",
            "CPU us",
            "bytes",
            "disk",
            "first batch, s",
            "classes",
            "failed",
        )
        for heading in ("", *headings):
            shown.add_column(heading, justify="right" if heading else "left")
        for peer in self.peers:
            cells = [peer.name]
            for part, at in (("whole", 0), ("half", 1)):
                names = (
                    ("images_per_s", "cpu_us", "bytes")
                    if part == "whole"
                    else ("images_per_s", "cpu_us", "bytes", "cached")
                )
                cells += [
                    number(self.median(peer.name, part, at, name), 0 if at_rate(name) else 2)
                    for name in names
                ]
            cells += [
                number(self._median(peer.name, "link", "first_s"), 2),
                number(self._median(peer.name, "whole", "classes"), 1),
            ]
            mine = [row for row in self.rows if row["name"] == peer.name]
            cells.append(f"{sum(not row['ok'] for row in mine)} of {len(mine)}")
            shown.add_row(*cells)
        common.console.print(shown)
        for row in self.rows:
            if not row["ok"]:
                what = (
                    f"{row['name']}, {row['part']}: {row['reason']}; fetched {row['fetched']:.2f} of the data"
                )
                common.console.print(what, style="yellow", highlight=False)

    def figures(self) -> list[Json]:
        """What is saved: for each, its rounds' figures, and what failed."""
        return [
            {
                "name": peer.name,
                "title": peer.name,
                "failed": [
                    [row["part"], row["seed"], row["reason"], row["fetched"]]
                    for row in self.rows
                    if row["name"] == peer.name and not row["ok"]
                ],
                "rounds": [self._round(peer.name, seed) for seed in range(self.arguments.rounds)],
            }
            for peer in self.peers
        ]

    def _round(self, name: str, seed: int) -> Json:
        found: Json = {}
        for row in self.rows:
            if row["name"] != name or row["seed"] != seed or not row["ok"]:
                continue
            if row["part"] == "link":
                found["first batch at 50 MB/s, s"] = row["first_s"]
                continue
            at, title = (0, "epoch 1") if row["part"] == "whole" else (1, "half cached, epoch 2")
            epoch = row["epochs"][at]
            found |= {
                f"{title}: images/s": epoch["images_per_s"],
                f"{title}: CPU us": epoch["cpu_us"],
                f"{title}: bytes": epoch["bytes"],
                f"{title}: on disk": epoch["cached"],
                f"{title}: others": epoch["others"],
            }
            found["classes in a batch"] = row["classes"]
        return found

    def median(self, name: str, part: str, epoch: int, value: str) -> float | None:
        """Of the rounds; None where there is none."""
        found = [row["epochs"][epoch][value] for row in self._good(name, part)]
        return statistics.median(found) if found else None

    def _median(self, name: str, part: str, value: str) -> float | None:
        found = [row[value] for row in self._good(name, part)]
        return statistics.median(found) if found else None

    def _good(self, name: str, part: str) -> list[Json]:
        """The rows of a part that did not fail."""
        return [row for row in self.rows if row["name"] == name and row["part"] == part and row["ok"]]

    def targets(self) -> list[common.Target]:
        """fastload ahead of each that ended."""
        out: list[common.Target] = []
        for peer in self.peers:
            if peer.library == "fastload":
                continue
            for part, at, title in (("whole", 0, "epoch 1"), ("half", 1, "epoch 2 at half")):
                for value, more in (("images_per_s", True), ("cpu_us", False), ("bytes", False)):
                    mine, theirs = (self.median(name, part, at, value) for name in ("fastload", peer.name))
                    if (
                        part == "half"
                        and value == "bytes"
                        and (self.median(peer.name, part, at, "cached") or 0.0) > KEPT_MOST
                    ):
                        theirs = None  # its cache is beyond its limit: nothing to be compared with
                    quotient = None if mine is None or not theirs else mine / theirs
                    bound = 1.01 if value == "bytes" else 1.0  # headers, and records' own
                    out.append(
                        common.Target(f"{title}, {value}: fastload / {peer.name}", quotient, bound, not more)
                    )
        return out
