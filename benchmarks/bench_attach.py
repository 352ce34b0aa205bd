"""Attached data: what `fastload attach` costs beside reading the files once, and epochs of attached data
beside packed data.

    python benchmarks/bench_attach.py [--rounds 5] [--times 8] [--seconds 3] [--files 20000] [--cold] [--save
    attach]

Method, epochs: --times copies of each photograph of the corpus, as loose files and as one tar; packed, and
attached from both. In turn, each round: epochs of each for at least --seconds, RandomResizedCrop(224), flip
and ToTensor by two threads. Method, attaching: --files files of 100 KB; in turn, each round: every file is
read once, by as many threads, and all are attached. Warm, or with --cold (as root) with the page cache
emptied before each turn. Bytes written are those that the kernel counts for this process. A file of 100 KB is
a photograph of the corpus of about that size, filled up behind its end.
"""

from __future__ import annotations

import os
import shutil
import sys
import tarfile
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import common
from bench_cold import make_cold
from bench_in_place import epoch

from fastload import FastLoader, PackedDataset, attach
from fastload.bench import harness
from fastload.bench.listing import list_folder

FILE_BYTES = 100_000


def one_tar(tree: Path) -> Path:
    """All files of a tree as one WebDataset shard, kept between runs."""
    out = common.WORK / f"{tree.name}.tar"
    if not out.exists():
        with tarfile.open(out.with_suffix(".part"), "w") as tar:
            for number, (path, label) in enumerate(list_folder(tree)):
                tar.add(path, f"{number:08d}.jpg")
                (common.WORK / "label").write_text(str(label), encoding="ascii")
                tar.add(common.WORK / "label", f"{number:08d}.cls")
        out.with_suffix(".part").rename(out)
    return out


def attach_fresh(source: Path, name: str, **options: Any) -> Path:
    """Attaches source anew; returns the dataset's folder."""
    out = common.WORK / name
    shutil.rmtree(out, ignore_errors=True)
    attach(source, out, **options)
    return out


def epochs(tree: Path, workers: int, seconds: float) -> list[tuple[str, str, harness.Round]]:
    """The turns that compare rates."""
    from torchvision import transforms

    transform = transforms.Compose(
        [transforms.RandomResizedCrop(224), transforms.RandomHorizontalFlip(), transforms.ToTensor()]
    )
    datasets = [
        ("packed", "packed", common.pack_fresh(tree, f"{tree.name}.fl", workers=workers)),
        ("tar", "attached, one tar", attach_fresh(one_tar(tree), f"{tree.name}-tar.index", workers=workers)),
        ("files", "attached, loose files", attach_fresh(tree, f"{tree.name}.index", workers=workers)),
    ]

    def turn(path: Path) -> harness.Round:
        loader: FastLoader[Any] = FastLoader(
            PackedDataset(path, transform), batch_size=64, shuffle=True, num_workers=workers, seed=1
        )

        def take(_: int) -> common.Json:
            for _ in loader:
                break
            ends, found = time.perf_counter() + seconds, []
            while not found or time.perf_counter() < ends:
                found.append(epoch(loader))
            loader.close()
            return {"ok": True} | {
                name: sum(each[name] for each in found) / len(found)
                for name in ("images_per_s", "cpu_s_per_1000")
            }

        return take

    return [(name, title, turn(path)) for name, title, path in datasets]


def many_files(corpus: Path, count: int) -> Path:
    """A tree of `count` files of FILE_BYTES, each its own photograph's bytes, kept between runs."""
    out = common.WORK / f"files-{count}"
    if not out.with_suffix(".done").exists():
        shutil.rmtree(out, ignore_errors=True)
        fitting = [path for path, _ in list_folder(corpus) if 80_000 <= path.stat().st_size <= FILE_BYTES]
        photos = [path.read_bytes().ljust(FILE_BYTES, b"\0") for path in fitting]
        for number in range(count):
            folder = out / f"class{number // 1000:04d}"
            folder.mkdir(parents=True, exist_ok=True)
            (folder / f"{number:08d}.jpg").write_bytes(photos[number % len(photos)])
        out.with_suffix(".done").touch()
    return out


def read_once(tree: Path, workers: int) -> None:
    """Reads every file, by threads."""

    def read(folder: Path) -> int:
        return sum(len(path.read_bytes()) for path in folder.iterdir())

    with ThreadPoolExecutor(workers) as pool:
        sum(pool.map(read, sorted(tree.iterdir())))


def written() -> int:
    """Bytes that this process has had written to storage."""
    lines = Path("/proc/self/io").read_text(encoding="ascii").splitlines()
    return int(next(line.split()[1] for line in lines if line.startswith("write_bytes")))


def attaching(tree: Path, workers: int, count: int, *, cold: bool) -> list[tuple[str, str, harness.Round]]:
    """The turns that compare attaching with reading."""

    def timed(run: Any) -> common.Json:
        if cold:
            make_cold()
        began, cpu, before = time.perf_counter(), sum(os.times()[:4]), written()
        run()
        spent = time.perf_counter() - began
        return {
            "ok": True,
            "images_per_s": count / spent,
            "cpu_s_per_1000": (sum(os.times()[:4]) - cpu) / count * 1000,
            "written": written() - before,
        }

    return [
        ("read", "reading every file once", lambda _: timed(lambda: read_once(tree, workers))),
        ("attach", "attach", lambda _: timed(lambda: attach_fresh(tree, "files.index", workers=workers))),
        ("plain", "attach, --no-index --check structure", lambda _: timed(
            lambda: attach_fresh(tree, "files-plain.index", workers=workers, index=False,
            check="structure"))),
    ]  # fmt: skip


def main() -> int:
    """Measures under build/bench."""
    parser = common.parser(__doc__, rounds=5, seconds=3.0)
    parser.add_argument("--times", type=int, default=8, help="How often the corpus is listed, for epochs.")
    parser.add_argument("--files", type=int, default=20_000, help="Files to be attached.")
    parser.add_argument(
        "--cold", action="store_true", help="Empty the page cache before a turn of attaching."
    )
    arguments = parser.parse_args()
    sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))
    import torchvision_ops  # noqa: F401  (beside torch's CPU build)

    photos = common.corpus(arguments.corpus, "in500")
    tree = common.copies(photos, arguments.times)
    rates = harness.interleave(
        epochs(tree, arguments.workers, arguments.seconds), arguments.rounds, common.note
    )
    common.show_rates("Epochs", rates)
    packed, tar, files = rates
    many = many_files(photos, arguments.files)
    costs = harness.interleave(
        attaching(many, arguments.workers, arguments.files, cold=arguments.cold),
        arguments.rounds,
        common.note,
    )
    common.show_rates(
        f"Attaching {arguments.files:,} files of {FILE_BYTES:,} bytes, "
        f"{'cold' if arguments.cold else 'warm'}",
        costs,
    )
    read, attached, plain = costs
    size = sum(path.stat().st_size for path in (common.WORK / "files.index").iterdir())
    common.console.print(
        f"index: {size:,} bytes, {size / arguments.files:,.0f} a file; written to storage: "
        f"{attached.turns[-1]['written']:,}"
    )
    targets = [
        common.Target("one tar / packed", harness.ratio(tar, packed, "images_per_s"), 0.95),
        common.Target("loose files / packed", harness.ratio(files, packed, "images_per_s"), 0.85),
        common.Target(
            "time of attaching / reading once", harness.ratio(read, attached, "images_per_s"), 1.5, True
        ),
        common.Target(
            "without an index, markers only / reading once",
            harness.ratio(read, plain, "images_per_s"),
            1.5,
            True,
        ),
        common.Target("index / images, per cent", 100 * size / (arguments.files * FILE_BYTES), 2.0, True),
    ]
    return common.finish(
        "attach", arguments, targets, rows=[row.to_json() for row in (*rates, *costs)], index_bytes=size
    )


if __name__ == "__main__":
    sys.exit(main())
