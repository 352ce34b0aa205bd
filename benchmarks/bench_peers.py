"""Other loaders against fastload on the same photographs: rates, CPU time, first batches, memory, and how
good their pixels are.

    python benchmarks/bench_peers.py [--rounds 3] [--seconds 3] [--times 4] [--works crop,views] [--only
    NAME,NAME] [--save peers]

Works: crop: decode, RandomResizedCrop(224), flip, in whole batches of 64. views: two crops of 224 and six of
96 pixels of one photograph, each flipped, in batches of 32 photographs, as DINO trains on. detection: whole
photographs as 512 x 512 pixels, flipped, with their boxes (drawn by chance, seven a photograph), in batches
of 16. The last two are run by some peers only, over the corpus once. Method: every peer is a small program
(benchmarks/peers/peer_NAME.py) in a virtual environment of its own under build/bench/peers, with the versions
that benchmarks/peers/pins states. Batches are shuffled and uint8, or float32 where a peer offers nothing
else; 1 and 2 workers (threads or processes, as the peer has it). Turns are processes, interleaved; each drops
an epoch, then measures whole epochs for at least --seconds. The page cache is warm. A ratio is the median
over rounds of two rates in one round. Memory is PSS of all processes, read in the first round, in an epoch of
its own. Pixels: 16 photographs, cut to their square centre, are resized to 224 x 224 by each peer's own code,
and compared with Pillow's antialiased bilinear resize: PSNR in dB, the median image. A loader that does not
antialias, or encodes the photographs anew, shows there. Caveats: nothing is normalised and no step is
trained. A peer that cannot be installed is listed with the installer's error.
"""

from __future__ import annotations

import argparse
import contextlib
import dataclasses
import itertools
import json
import os
import signal
import subprocess
import sys
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path

import common
import numpy as np
from PIL import Image
from rich.box import SIMPLE
from rich.table import Table

sys.path.insert(0, str(Path(__file__).parent / "peers"))

import environments
from fields_data import write_coco

from fastload._native import core
from fastload.bench.harness import Measured, interleave, ratio
from fastload.bench.listing import list_folder
from fastload.bench.report import number

PROGRAMS = common.HERE / "peers"
HOMES = common.WORK / "peers"
LIMIT_S = 120.0
PICTURES = 16
SIZE = 224
PSNR_MOST = 99.0
"""What equal pictures are listed with."""
FIRST, OURS = "pillow", "fastload-packed"


@dataclasses.dataclass(frozen=True)
class Peer:
    """A row of the table.

    Attributes:
        name: of the row.
        title: what it is, for people.
        program: NAME of peers/peer_NAME.py.
        computes: what of its work differs from the others', in words.
        antialias: yes, no or the kind of filter, as its documentation or code has it.
        form: one of the program's ways to read.
        output: type of its batches.
        works: what it has a program for: names of BATCHES.
    """

    name: str
    title: str
    program: str
    computes: str
    antialias: str = "yes"
    form: str = ""
    output: str = "uint8"
    works: tuple[str, ...] = ("crop",)


BATCHES = {"crop": 64, "views": 32, "detection": 16}
"""Works, each with the samples of a batch."""
ALL = tuple(BATCHES)
PILLOWS = "Pillow's pixels in worker processes"
PEERS = (
    Peer("pillow", "torch DataLoader + Pillow", "pillow", "files, worker processes", works=ALL),
    Peer(
        "torchvision", "torchvision v2 on tensors", "torchvision", "decode_jpeg, worker processes", works=ALL
    ),
    Peer(
        "torchcodec",
        "torchcodec + torch's resize",
        "torchcodec",
        "decode_jpeg, worker processes",
        works=ALL[:2],
    ),
    Peer(
        "handwritten",
        "PyTurboJPEG + cv2 on LMDB",
        "handwritten",
        "cv2's bilinear, worker processes",
        antialias="no",
        works=ALL,
    ),
    Peer("ffcv", "ffcv", "ffcv", "JPEGs encoded anew at quality 90, threads", antialias="area"),
    Peer("dali", "DALI, CPU", "dali", "decodes the crop, its fast chroma upsampling, threads", works=ALL),
    Peer(
        "dali-dynamic",
        "DALI dynamic mode, CPU",
        "dali",
        "the same operators, called one by one",
        form="dynamic",
    ),
    Peer("spdl", "SPDL", "spdl", "FFmpeg's decoder and scaler, threads"),
    Peer(
        "turboloader",
        "TurboLoader, tar",
        "turboloader",
        "decodes the crop, threads",
        antialias="no",
        form="tar",
        output="float32",
    ),
    Peer(
        "turboloader-aa",
        "TurboLoader, tar, antialias",
        "turboloader",
        "decodes the crop, its antialias option, threads",
        form="antialias",
        output="float32",
    ),
    Peer(
        "turboloader-tbl",
        "TurboLoader, TBL-RAW",
        "turboloader",
        "decodes nothing: crops of 256 x 256 pixels made before",
        antialias="no",
        form="tbl",
        output="float32",
    ),
    Peer("webdataset", "WebDataset", "webdataset", f"{PILLOWS}, a sample may repeat in an epoch"),
    Peer("litdata", "LitData", "litdata", PILLOWS),
    Peer("streaming", "Mosaic Streaming", "streaming", PILLOWS),
    Peer("grain", "Grain", "grain", PILLOWS),
    Peer("datasets", "Hugging Face datasets", "datasets", PILLOWS),
    Peer(
        "fastload-place",
        "fastload, files in place",
        "fastload",
        "decodes the crop, threads; from the second epoch on",
        form="place",
    ),
    Peer(
        "fastload-packed",
        "fastload, packed",
        "fastload",
        "decodes the crop, threads",
        form="lossless",
        works=ALL,
    ),
    Peer(
        "fastload-dct",
        "fastload, packed as dct",
        "fastload",
        "decodes the crop, threads",
        form="dct",
        works=ALL,
    ),
)


def child(python: Path, peer: Peer, **task: object) -> common.Json:
    """One task in a process of the peer's; that and what it started are ended after LIMIT_S at the latest."""
    command = [
        str(python),
        str(PROGRAMS / f"peer_{peer.program}.py"),
        json.dumps({"form": peer.form, **task}),
    ]
    paths = os.pathsep.join([str(common.HERE.parent), str(PROGRAMS)])
    environment = {**os.environ, "PYTHONPATH": paths, "OMP_NUM_THREADS": str(task.get("workers", 1))}
    with open(common.WORK / "peers-child.log", "w+", encoding="utf-8", errors="replace") as log:
        running = subprocess.Popen(
            command, stdout=subprocess.PIPE, stderr=log, text=True, env=environment, start_new_session=True
        )
        try:
            out = running.communicate(timeout=LIMIT_S)[0]
        except subprocess.TimeoutExpired:
            out = json.dumps({"ok": False, "reason": f"no result within {LIMIT_S:.0f} s"})
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(running.pid, signal.SIGKILL)
            running.wait()
        lines = [line for line in out.splitlines() if line.startswith('{"ok"')]
        if not lines:
            log.seek(0)
            last = (log.read().strip().splitlines() or ["nothing on stderr"])[-1]
            return {"ok": False, "reason": f"ended with status {running.returncode}: {last}"}
    found: common.Json = json.loads(lines[-1])
    return found


def decoded(path: Path) -> Image.Image:
    """A photograph's pixels, of which Pillow's decoder makes the same."""
    return Image.fromarray(core.jpeg_decode(path.read_bytes()))


def square_pictures(source: Path) -> Path:
    """The square centres of some photographs as JPEGs of quality 95, for the comparison of pixels."""
    folder = common.WORK / "peers-crops" / "all"
    folder.mkdir(parents=True, exist_ok=True)
    files = list_folder(source)
    for k in range(PICTURES):
        path, into = files[k * len(files) // PICTURES][0], folder / f"{k:02d}.jpg"
        if not into.exists():
            picture = decoded(path)
            side = min(picture.size)
            x, y = (picture.width - side) // 2, (picture.height - side) // 2
            picture.crop((x, y, x + side, y + side)).save(into, quality=95)
    return folder.parent


def boxed_pictures(source: Path) -> Path:
    """A folder in COCO's layout: every photograph with boxes drawn by chance, without outlines."""
    out = common.WORK / f"coco-{source.name}"
    done = out.with_suffix(".done")
    if not done.exists():
        write_coco(source, out, outlines=False)
        done.touch()
    return out


def files_of(tree: Path) -> list[tuple[str, int]]:
    """The (path, class number) of every image of a CLASS/IMAGE tree, or of `boxed_pictures`."""
    if (tree / "annotations").is_dir():
        return [(str(path), 0) for path in sorted((tree / "train2017").iterdir())]
    return [(str(path), label) for path, label in list_folder(tree)]


def psnr(found: np.ndarray, wanted: np.ndarray) -> float:
    """PSNR in dB of the median image of N x H x W x 3, at most PSNR_MOST."""
    error = np.mean((found.astype(np.float64) - wanted) ** 2, axis=(1, 2, 3))
    return float(np.median(np.minimum(10 * np.log10(255**2 / np.maximum(error, 1e-12)), PSNR_MOST)))


class Contest:
    """The peers, ready: their Pythons, their data, their pixels.

    Args:
        works: names of BATCHES.
        trees: the photographs of each work.
        pictures: the photographs whose pixels are compared.
        seconds: least time that a turn measures.

    Attributes:
        reasons: why a peer takes no turn, by its name, and by (its name, work).
        pixels: PSNR by name.
    """

    def __init__(
        self,
        peers: Sequence[Peer],
        works: Sequence[str],
        trees: Mapping[str, Path],
        pictures: Path,
        seconds: float,
    ) -> None:
        self.peers = peers
        self.works = works
        self.trees = trees
        self.pictures = pictures
        self.seconds = seconds
        self.pythons: dict[str, Path] = {}
        self.reasons: dict[str, str] = {}
        self.pixels: dict[str, float] = {}

    def prepare(self) -> None:
        """Makes environments, datasets and the pictures to compare."""
        HOMES.mkdir(parents=True, exist_ok=True)
        for tree in (*(self.trees[work] for work in self.works), self.pictures):
            (common.WORK / f"peers-{tree.name}.json").write_text(json.dumps(files_of(tree)))
        for peer in self.peers:
            with common.note(f"preparing {peer.title}"):
                reason = self._install(peer) or self._make(peer, self.pictures) or self._look(peer)
                for tree in () if reason else dict.fromkeys(self.trees[work] for work in self.of(peer)):
                    reason = reason or self._make(peer, tree)
            if reason is not None:
                self.reasons[peer.name] = reason
                common.console.print(f"{peer.title}: {reason}", style="yellow", markup=False)

    def of(self, peer: Peer) -> list[str]:
        """The works that a peer takes turns in."""
        return [work for work in self.works if work in peer.works]

    def _install(self, peer: Peer) -> str | None:
        try:
            self.pythons[peer.name] = environments.python_of(peer.program, HOMES)
        except environments.CannotInstall as error:
            return f"cannot be installed: {error}"
        return None

    def _data(self, peer: Peer, tree: Path) -> Path:
        suffix = {"tar": ".tar", "antialias": ".tar", "tbl": ".tbl"}.get(peer.form, "")
        return common.WORK / f"peers-{tree.name}-{peer.program}{f'-{peer.form}' if peer.form else ''}{suffix}"

    def _task(self, peer: Peer, tree: Path) -> common.Json:
        listing = common.WORK / f"peers-{tree.name}.json"
        coco = str(tree) if (tree / "annotations").is_dir() else ""
        return {
            "tree": str(tree),
            "listing": str(listing),
            "data": str(self._data(peer, tree)),
            "coco": coco,
            "size": SIZE,
        }

    def _make(self, peer: Peer, tree: Path) -> str | None:
        data = self._data(peer, tree)
        done = data.with_name(data.name + ".done")
        if done.exists():
            return None
        made = child(self.pythons[peer.name], peer, task="make", **self._task(peer, tree))
        if made["ok"]:
            done.touch()
        return made.get("reason")

    def _look(self, peer: Peer) -> str | None:
        out, program = common.WORK / f"peers-{peer.name}.npy", PROGRAMS / f"peer_{peer.program}.py"
        made_of = (program, HOMES / peer.program / "installed.txt")
        if out.exists() and out.stat().st_mtime > max(each.stat().st_mtime for each in made_of):
            self.pixels[peer.name] = psnr(np.load(out), self.wanted())
            return None
        found = child(
            self.pythons[peer.name], peer, task="crops", out=str(out), **self._task(peer, self.pictures)
        )
        if found["ok"]:
            self.pixels[peer.name] = psnr(np.load(out), self.wanted())
        return found.get("reason")

    def wanted(self) -> np.ndarray:
        """Pillow's antialiased bilinear resize of the pictures, uint8 N x SIZE x SIZE x 3."""
        pictures = (decoded(path) for path, _ in list_folder(self.pictures))
        return np.stack(
            [np.asarray(each.resize((SIZE, SIZE), Image.Resampling.BILINEAR)) for each in pictures]
        )

    def turn(self, peer: Peer, work: str, workers: int, seed: int) -> common.Json:
        """One turn of a peer."""
        if peer.name in self.reasons:
            return {"ok": False, "reason": self.reasons[peer.name]}
        more = {
            "work": work,
            "batch": BATCHES[work],
            "workers": workers,
            "seconds": self.seconds,
            "seed": seed,
            "memory": seed == 0,
        }
        found = child(
            self.pythons[peer.name], peer, task="rate", **self._task(peer, self.trees[work]), **more
        )
        said = f"{found['images_per_s']:,.0f} images/s" if found["ok"] else found["reason"]
        common.console.print(
            f"round {seed + 1}, {work}, {peer.title}, {workers}: {said}", markup=False, highlight=False
        )
        return found

    def measure(self, rounds: int, counts: Sequence[int]) -> list[Measured]:
        """All turns; rows are named NAME/WORK/WORKERS."""
        return interleave(
            [
                (
                    f"{peer.name}/{work}/{workers}",
                    f"{peer.title}, {work}, {workers}",
                    partial(self.turn, peer, work, workers),
                )
                for work in self.works
                for workers in counts
                for peer in self.peers
                if work in peer.works
            ],
            rounds,
            common.note,
        )


def rows_of(contest: Contest, measured: Sequence[Measured], counts: Sequence[int]) -> list[common.Json]:
    """The table: a row a peer, work and number of workers, with its ratio to torch and Pillow and what
    fastload's is to it."""
    by_name = {row.name: row for row in measured}
    rows = []
    for peer in contest.peers:
        for work, workers in itertools.product(contest.of(peer), counts):
            row = by_name[f"{peer.name}/{work}/{workers}"]
            first, ours = by_name.get(f"{FIRST}/{work}/{workers}"), by_name.get(f"{OURS}/{work}/{workers}")
            facts = {
                key: value for key, value in row.to_json().items() if key not in ("rounds", "title", "name")
            }
            rows.append(
                {
                    "name": peer.name,
                    "title": peer.title,
                    "work": work,
                    "workers": workers,
                    "to_pillow": None if first is None else ratio(row, first),
                    "fastload_to_it": None if ours is None else ratio(ours, row),
                    "psnr": contest.pixels.get(peer.name),
                    "antialias": peer.antialias,
                    "output": peer.output,
                    "computes": peer.computes,
                    **facts,
                }
            )
    return rows


_COLUMNS = (
    ("images_per_s", "img/s", 0, 1.0),
    ("to_pillow", "x torch", 2, 1.0),
    ("fastload_to_it", "fl x", 2, 1.0),
    ("cpu_s_per_1000", "CPU", 2, 1.0),
    ("psnr", "PSNR", 1, 1.0),
    ("first_batch_s", "first", 2, 1.0),
    ("epoch_gap_ms", "gap", 0, 1.0),
    ("pss_bytes", "MB", 0, 1e-6),
)
"""Columns of the table: key, title, digits, factor. CAPTION explains the titles."""
CAPTION = (
    "x torch: times torch's DataLoader with Pillow; fl x: packed fastload, times the row; CPU: "
    "seconds for 1,000 photographs; "
    "first: first batch, s; gap: between epochs, ms; MB: memory (PSS)"
)


def shown(rows: Sequence[common.Json], work: str, workers: int) -> Table:
    """The rows of a work and a number of workers, for a terminal of 80 columns; none of those that have a
    reason."""
    made = Table(
        title=f"{work}, {workers} threads or workers",
        caption=CAPTION,
        box=SIMPLE,
        padding=(0, 1),
        pad_edge=False,
    )
    made.add_column("loader", no_wrap=True)
    for _, title, _, _ in _COLUMNS:
        made.add_column(title, justify="right", no_wrap=True)
    for row in rows:
        if row["reason"] is None and (row["work"], row["workers"]) == (work, workers):
            made.add_row(
                row["name"], *(number(row[key], digits, factor) for key, _, digits, factor in _COLUMNS)
            )
    return made


def chosen(only: str) -> list[Peer]:
    """The peers that the option --only names, and the two that ratios are to."""
    names = {peer.name for peer in PEERS}
    unknown = [name for name in only.split(",") if name not in names]
    if unknown:
        raise argparse.ArgumentTypeError(f"no rows: {', '.join(unknown)}; rows: {', '.join(sorted(names))}")
    return [peer for peer in PEERS if peer.name in {FIRST, OURS, *only.split(",")}]


def joined(document: common.Json, rows: Sequence[common.Json], pins: common.Json) -> common.Json:
    """A saved result in which the rows of some peers are others. Their ratios are of a run of their own, as
    its note says; the two rows that ratios are to stay as they are."""
    new = [row for row in rows if row["name"] not in (FIRST, OURS)]
    names = {row["name"] for row in new}
    order = [peer.name for peer in PEERS]
    kept = [row for row in document["peers"] if row["name"] not in names]
    said = f"{', '.join(sorted(names))}: of {common.today()}, in a run beside {FIRST} and {OURS} alone"
    return {
        **document,
        "note": "; ".join(filter(None, [document["note"], said])),
        "peers": sorted([*kept, *new], key=lambda row: order.index(row["name"])),
        "pins": {**document["pins"], **pins},
    }


def main() -> int:
    """Prepares, measures, and shows the table."""
    options = common.parser(__doc__, rounds=3, seconds=3.0)
    options.add_argument(
        "--times", type=int, default=4, help="copies of the corpus in an epoch (default %(default)s)"
    )
    options.add_argument(
        "--counts", default="1,2", help="numbers of workers, separated by commas (default: %(default)s)"
    )
    options.add_argument(
        "--works", default=",".join(BATCHES), help="kinds of work, separated by commas (default: %(default)s)"
    )
    options.add_argument(
        "--only",
        type=chosen,
        default=PEERS,
        help=f"names of rows, with commas, beside {FIRST} and {OURS} (default: all); --save puts them among "
        "those that were saved",
    )
    options.add_argument("--note", help="kept with the result: what disturbed it, say")
    arguments = options.parse_args()
    source = common.corpus(arguments.corpus, "in500")
    works = arguments.works.split(",")
    trees = {
        "crop": common.copies(source, arguments.times),
        "views": source,
        "detection": boxed_pictures(source),
    }
    contest = Contest(arguments.only, works, trees, square_pictures(source), arguments.seconds)
    contest.prepare()
    counts = [int(each) for each in arguments.counts.split(",")]
    rows = rows_of(contest, contest.measure(arguments.rounds, counts), counts)
    for work, workers in itertools.product(works, counts):
        common.console.print(shown(rows, work, workers))
    for title, reason in {row["title"]: row["reason"] for row in rows if row["reason"] is not None}.items():
        common.console.print(f"{title}: {reason}", markup=False)
    pins = {
        peer.program: (environments.PINS / f"{peer.program}.txt").read_text().split()
        for peer in contest.peers
    }
    saved = common.RESULTS / f"{arguments.save}.json"
    if arguments.only is not PEERS and arguments.save and saved.exists():
        document = joined(json.loads(saved.read_text(encoding="utf-8")), rows, pins)
        saved.write_text(json.dumps(document, indent=1) + "\n", encoding="utf-8")
        return 0
    return common.finish("peers", arguments, [], note=arguments.note, peers=rows, pins=pins)


if __name__ == "__main__":
    sys.exit(main())
