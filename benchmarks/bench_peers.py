"""Other loaders against fastload on the same photographs: rates, CPU time, first batches, memory, and how good their pixels are.

    python benchmarks/bench_peers.py [--rounds 3] [--seconds 3] [--times 4] [--only NAME,NAME] [--save peers]

Method: every peer is a small program (benchmarks/peers/peer_NAME.py) in a virtual environment of its own under build/bench/peers, with
the versions that benchmarks/peers/pins states. Work: decode, RandomResizedCrop(224), flip, whole batches of 64, shuffled; uint8, or
float32 where a peer offers nothing else; 1 and 2 workers (threads or processes, as the peer has it). Turns are processes, interleaved;
each drops an epoch, then measures whole epochs for at least --seconds. The page cache is warm. A ratio is the median over rounds of two
rates in one round.
Pixels: 16 photographs, cut to their square centre, are resized to 224 x 224 by each peer's own code, and compared with Pillow's antialiased
bilinear resize: PSNR in dB, the median image. A loader that does not antialias, or encodes the photographs anew, shows there.
Caveats: nothing is normalised and no step is trained. A peer that cannot be installed is listed with the installer's error.
"""

from __future__ import annotations

import contextlib
import dataclasses
import json
import os
import signal
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import common
import numpy as np
from PIL import Image
from rich.table import Table

sys.path.insert(0, str(Path(__file__).parent / "peers"))

import environments

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
    """

    name: str
    title: str
    program: str
    computes: str
    antialias: str = "yes"
    form: str = ""
    output: str = "uint8"


PILLOWS = "Pillow's pixels in worker processes"
PEERS = (
    Peer("pillow", "torch DataLoader + Pillow", "pillow", "files, worker processes"),
    Peer("torchvision", "torchvision v2 on tensors", "torchvision", "decode_jpeg, worker processes"),
    Peer("torchcodec", "torchcodec + torch's resize", "torchcodec", "decode_jpeg, worker processes"),
    Peer("handwritten", "PyTurboJPEG + cv2 on LMDB", "handwritten", "cv2's bilinear, worker processes", antialias="no"),
    Peer("ffcv", "ffcv", "ffcv", "JPEGs encoded anew at quality 90, threads", antialias="area"),
    Peer("dali", "DALI, CPU", "dali", "decodes the crop, its fast chroma upsampling, threads"),
    Peer("spdl", "SPDL", "spdl", "FFmpeg's decoder and scaler, threads"),
    Peer("turboloader", "TurboLoader, tar", "turboloader", "decodes the crop, threads", antialias="no", form="tar", output="float32"),
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
    Peer("fastload-place", "fastload, files in place", "fastload", "decodes the crop, threads; from the second epoch on", form="place"),
    Peer("fastload-packed", "fastload, packed", "fastload", "decodes the crop, threads", form="lossless"),
    Peer("fastload-dct", "fastload, packed as dct", "fastload", "decodes the crop, threads", form="dct"),
)


def child(python: Path, peer: Peer, **task: object) -> common.Json:
    """One task in a process of the peer's; that and what it started are ended after LIMIT_S at the latest."""
    command = [str(python), str(PROGRAMS / f"peer_{peer.program}.py"), json.dumps({"form": peer.form, **task})]
    paths = os.pathsep.join([str(common.HERE.parent), str(PROGRAMS)])
    environment = {**os.environ, "PYTHONPATH": paths, "OMP_NUM_THREADS": str(task.get("workers", 1))}
    with open(common.WORK / "peers-child.log", "w+", encoding="utf-8", errors="replace") as log:
        running = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=log, text=True, env=environment, start_new_session=True)
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


def psnr(found: np.ndarray, wanted: np.ndarray) -> float:
    """PSNR in dB of the median image of N x H x W x 3, at most PSNR_MOST."""
    error = np.mean((found.astype(np.float64) - wanted) ** 2, axis=(1, 2, 3))
    return float(np.median(np.minimum(10 * np.log10(255**2 / np.maximum(error, 1e-12)), PSNR_MOST)))


class Contest:
    """The peers, ready: their Pythons, their data, their pixels.

    Attributes:
        reasons: why a peer takes no turn, by its name.
        pixels: PSNR by name.
    """

    def __init__(self, peers: Sequence[Peer], tree: Path, pictures: Path, seconds: float, *, memory: bool) -> None:
        self.peers = peers
        self.tree = tree
        self.pictures = pictures
        self.seconds = seconds
        self.memory = memory
        self.pythons: dict[str, Path] = {}
        self.reasons: dict[str, str] = {}
        self.pixels: dict[str, float] = {}

    def prepare(self) -> None:
        """Makes environments, datasets and the pictures to compare."""
        HOMES.mkdir(parents=True, exist_ok=True)
        for tree in (self.tree, self.pictures):
            (common.WORK / f"peers-{tree.name}.json").write_text(json.dumps([(str(path), label) for path, label in list_folder(tree)]))
        for peer in self.peers:
            with common.note(f"preparing {peer.title}"):
                reason = self._install(peer) or self._make(peer, self.tree) or self._make(peer, self.pictures) or self._look(peer)
            if reason is not None:
                self.reasons[peer.name] = reason
                common.console.print(f"{peer.title}: {reason}", style="yellow", markup=False)

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
        return {"tree": str(tree), "listing": str(listing), "data": str(self._data(peer, tree)), "size": SIZE}

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
        found = child(self.pythons[peer.name], peer, task="crops", out=str(out), **self._task(peer, self.pictures))
        if found["ok"]:
            self.pixels[peer.name] = psnr(np.load(out), self.wanted())
        return found.get("reason")

    def wanted(self) -> np.ndarray:
        """Pillow's antialiased bilinear resize of the pictures, uint8 N x SIZE x SIZE x 3."""
        pictures = (decoded(path) for path, _ in list_folder(self.pictures))
        return np.stack([np.asarray(each.resize((SIZE, SIZE), Image.Resampling.BILINEAR)) for each in pictures])

    def turn(self, peer: Peer, workers: int, seed: int) -> common.Json:
        """One turn of a peer."""
        if peer.name in self.reasons:
            return {"ok": False, "reason": self.reasons[peer.name]}
        more = {"workers": workers, "seconds": self.seconds, "seed": seed, "memory": self.memory}
        found = child(self.pythons[peer.name], peer, task="rate", **self._task(peer, self.tree), **more)
        said = f"{found['images_per_s']:,.0f} images/s" if found["ok"] else found["reason"]
        common.console.print(f"round {seed + 1}, {peer.title}, {workers}: {said}", markup=False, highlight=False)
        return found

    def measure(self, rounds: int, counts: Sequence[int]) -> list[Measured]:
        """All turns; rows are named NAME/WORKERS."""
        return interleave(
            [
                (f"{peer.name}/{workers}", f"{peer.title}, {workers}", lambda seed, a=peer, b=workers: self.turn(a, b, seed))
                for workers in counts
                for peer in self.peers
            ],
            rounds,
            common.note,
        )


def rows_of(contest: Contest, measured: Sequence[Measured], counts: Sequence[int]) -> list[common.Json]:
    """The table: a row a peer and number of workers, with its ratio to torch and Pillow and what fastload's is to it."""
    by_name = {row.name: row for row in measured}
    rows = []
    for peer in contest.peers:
        for workers in counts:
            row = by_name[f"{peer.name}/{workers}"]
            first, ours = by_name.get(f"{FIRST}/{workers}"), by_name.get(f"{OURS}/{workers}")
            facts = {key: value for key, value in row.to_json().items() if key not in ("rounds", "title", "name")}
            rows.append(
                {
                    "name": peer.name,
                    "title": peer.title,
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


def shown(rows: Sequence[common.Json]) -> Table:
    """The rows, for a terminal."""
    made = Table(title="decode, RandomResizedCrop(224), flip; batches of 64")
    headings = ("", "workers", "images/s", "±", "x Pillow", "fastload x", "CPU s/1000", "PSNR", "first batch s", "PSS MB")
    for heading in headings:
        made.add_column(heading, justify="right" if heading else "left")
    for row in rows:
        if row["reason"] is not None:
            made.add_row(row["title"], str(row["workers"]), row["reason"])
            continue
        spread = row["images_per_s_spread"]
        made.add_row(
            row["title"],
            str(row["workers"]),
            number(row["images_per_s"]),
            "" if spread is None else f"{spread:.0%}",
            number(row["to_pillow"], 2),
            number(row["fastload_to_it"], 2),
            number(row["cpu_s_per_1000"], 2),
            number(row["psnr"], 1),
            number(row["first_batch_s"], 2),
            number(row["pss_bytes"], 0, 1e-6),
        )
    return made


def main() -> int:
    """Prepares, measures, and shows the table."""
    options = common.parser(__doc__, rounds=3, seconds=3.0)
    options.add_argument("--times", type=int, default=4, help="copies of the corpus in an epoch (default %(default)s)")
    options.add_argument("--counts", default="1,2", help="numbers of workers, separated by commas (default: %(default)s)")
    options.add_argument("--only", help="names of rows, separated by commas (default: all)")
    options.add_argument("--memory", action="store_true", help="read memory, too, which takes an epoch more a turn")
    options.add_argument("--note", help="kept with the result: what disturbed it, say")
    arguments = options.parse_args()
    source = common.corpus(arguments.corpus, "in500")
    wanted = arguments.only.split(",") if arguments.only else [peer.name for peer in PEERS]
    peers = [peer for peer in PEERS if peer.name in wanted]
    contest = Contest(peers, common.copies(source, arguments.times), square_pictures(source), arguments.seconds, memory=arguments.memory)
    contest.prepare()
    counts = [int(each) for each in arguments.counts.split(",")]
    rows = rows_of(contest, contest.measure(arguments.rounds, counts), counts)
    common.console.print(shown(rows))
    pins = {peer.program: (environments.PINS / f"{peer.program}.txt").read_text().split() for peer in peers}
    return common.finish("peers", arguments, [], note=arguments.note, peers=rows, pins=pins)


if __name__ == "__main__":
    sys.exit(main())
