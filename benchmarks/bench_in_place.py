"""Files in place: torchvision's ImageFolder in FastLoader as it stands, against torch's DataLoader on the
same object, and packed data.

    python benchmarks/bench_in_place.py [--rounds 5] [--times 8] [--cold] [--arrow] [--read tar] [--format
    png] [--save in_place]

Method: a folder with --times copies of each photograph of the corpus, so that an epoch is long against the
start of worker processes. In turn, each round: one epoch of torch's DataLoader on the ImageFolder; the first
epoch of a FastLoader made anew on the same object, which proves every file sound and learns its entropy
index; its second epoch; an epoch of packed data. The transform is one list of torchvision's for all:
RandomResizedCrop(224), flip, ToTensor. Warm: all is in the page cache. Every turn takes all the samples. With
--cold (as root) the page cache is emptied before each turn, and the second epoch and packed data are left
out. With --arrow the files are in the Arrow files of a Hugging Face dataset that was saved to disk, whose
transform is an OnImages, for all. With --read they are in one tar of WebDataset, or in an uncompressed
Parquet file, as `fastload.read` has them, for all. With --format the files are PNGs, lossy WebPs of quality
80 or lossless ones, which Pillow made of the photographs, and are packed as they are.
"""

from __future__ import annotations

import io
import os
import sys
import tarfile
import time
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import common
import torch
from bench_cold import make_cold

from fastload import FastLoader, OnImages, PackedDataset, read
from fastload.bench import harness


def epoch(loader: Iterable[Any]) -> common.Json:
    """The rate of a whole epoch, and the CPU time of this process and of children that ended."""
    began, cpu, images = time.perf_counter(), sum(os.times()[:4]), 0
    for batch in loader:
        images += len(batch["label"] if isinstance(batch, dict) else batch[1])
    spent = sum(os.times()[:4]) - cpu
    return {
        "ok": True,
        "images_per_s": images / (time.perf_counter() - began),
        "cpu_s_per_1000": spent / images * 1000,
    }


FORMATS = {
    "png": ("png", {}),
    "webp": ("webp", {"quality": 80}),
    "lossless": ("webp", {"lossless": True, "method": 2}),
}
"""Ending of the files, and Pillow's options."""
LEAST = {"": 2.5, "png": 2.0, "webp": 2.5, "lossless": 2.5}
"""Least rate of the first epoch, in those of torch's DataLoader."""


def converted(source: Path, form: str) -> Path:
    """The photographs of a CLASS/IMAGE tree in another format; kept under build/bench between runs."""
    out = common.WORK / f"{source.name}-{form}"
    done = out.with_suffix(".done")
    if not done.exists():
        from fastload.common.images import open_image

        ending, options = FORMATS[form]
        for path in sorted(source.glob("*/*.*")):
            (out / path.parent.name).mkdir(parents=True, exist_ok=True)
            with open(path, "rb") as file:
                open_image(file).convert("RGB").save(
                    out / path.parent.name / f"{path.stem}.{ending}", **options
                )
        done.touch()
    return out


def arrow_dataset(tree: Path, transform: Any) -> Any:
    """The folder as a Hugging Face dataset whose Arrow files hold its images."""
    import datasets

    datasets.disable_progress_bars()
    saved = tree.with_suffix(".saved")
    if not saved.exists():
        found = datasets.load_dataset(
            "imagefolder", data_dir=str(tree), split="train", cache_dir=str(tree.with_suffix(".cache"))
        )
        found.save_to_disk(str(saved))
    return datasets.load_from_disk(str(saved)).with_transform(OnImages(transform))


def read_dataset(tree: Path, form: str, transform: Any) -> Any:
    """The folder in one file of another program, as it lies."""
    from torchvision.datasets import ImageFolder

    path = tree.with_suffix(f".{form}")
    if not path.exists():
        samples = [(Path(image).read_bytes(), label) for image, label in ImageFolder(str(tree)).samples]
        new = path.with_suffix(".new")
        if form == "parquet":
            import pyarrow as pa
            import pyarrow.parquet as pq

            table = pa.table(
                {"image": [image for image, _ in samples], "label": [label for _, label in samples]}
            )
            pq.write_table(table, new, compression="none", row_group_size=100)
        else:
            with tarfile.open(new, "w") as tar:
                for number, (image, label) in enumerate(samples):
                    for ending, data in (("jpg", image), ("cls", b"%d" % label)):
                        entry = tarfile.TarInfo(f"{number:06d}.{ending}")
                        entry.size = len(data)
                        tar.addfile(entry, io.BytesIO(data))
        new.rename(path)
    return read(path, transform=transform)


def turns(
    tree: Path, packed: Path, workers: int, *, cold: bool, arrow: bool, form: str
) -> list[tuple[str, str, harness.Round]]:
    """The turns of a round, in order; the second epoch is of the loader whose first was the turn before."""
    from torchvision import transforms
    from torchvision.datasets import ImageFolder

    transform = transforms.Compose(
        [transforms.RandomResizedCrop(224), transforms.RandomHorizontalFlip(), transforms.ToTensor()]
    )
    files: Any = ImageFolder(str(tree), transform=transform)
    if arrow or form:
        files = arrow_dataset(tree, transform) if arrow else read_dataset(tree, form, transform)
    name = "Arrow files" if arrow else f"a {form}" if form else "ImageFolder"
    options: dict[str, Any] = {"batch_size": 64, "shuffle": True, "num_workers": workers}
    reference: Any = torch.utils.data.DataLoader(files, **options)
    from_pack: FastLoader[Any] = FastLoader(PackedDataset(packed, transform=transform), seed=1, **options)
    kept: list[FastLoader[Any]] = []

    def first(_: int) -> common.Json:
        if cold:
            make_cold()
        kept[:] = [FastLoader(files, seed=1, engine="native", **options)]
        return epoch(kept[0])

    def from_packed(_: int) -> common.Json:
        kept[0].close()  # its next epoch may have begun
        found = epoch(from_pack)
        from_pack.close()
        return found

    def torchs(_: int) -> common.Json:
        if cold:
            make_cold()
        return epoch(reference)

    both = [("torch", f"torch DataLoader, {name}", torchs), ("first", f"FastLoader, {name}, epoch 1", first)]
    if cold:
        return both
    return [
        *both,
        ("second", f"FastLoader, {name}, epoch 2", lambda _: epoch(kept[0])),
        ("packed", "FastLoader, packed", from_packed),
    ]


def main() -> int:
    """Measures in a temporary folder."""
    parser = common.parser(__doc__, rounds=5, seconds=0.0)
    parser.add_argument("--times", type=int, default=8, help="How often the corpus is listed.")
    parser.add_argument("--cold", action="store_true", help="Empty the page cache before each turn.")
    parser.add_argument("--arrow", action="store_true", help="The same files in a Hugging Face dataset.")
    parser.add_argument(
        "--read",
        choices=("tar", "parquet"),
        default="",
        help="The same files in one file of another program.",
    )
    parser.add_argument(
        "--format", choices=sorted(FORMATS), default="", help="The photographs in another format."
    )
    arguments = parser.parse_args()
    sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))
    import torchvision_ops  # noqa: F401  (beside torch's CPU build)

    source = common.corpus(arguments.corpus, "in500")
    tree = common.copies(converted(source, arguments.format) if arguments.format else source, arguments.times)
    packed = common.pack_fresh(
        tree, f"{tree.name}.fl", workers=arguments.workers, encode="keep" if arguments.format else "lossless"
    )
    rows = harness.interleave(
        turns(
            tree, packed, arguments.workers, cold=arguments.cold, arrow=arguments.arrow, form=arguments.read
        ),
        arguments.rounds,
        common.note,
    )
    common.show_rates("Arrow files in place" if arguments.arrow else "ImageFolder in place", rows)
    by_name = dict(zip(("torch", "first", "second", "packed"), rows, strict=False))

    def rate(top: str, bottom: str) -> float:
        return harness.ratio(by_name[top], by_name[bottom], "images_per_s")

    if arguments.cold:
        targets = [common.Target("cold, epoch 1 / torch DataLoader", rate("first", "torch"), 2.0, False)]
        return common.finish("in_place_cold", arguments, targets, rows=[row.to_json() for row in rows])
    targets = [
        common.Target("epoch 1 / torch DataLoader", rate("first", "torch"), LEAST[arguments.format], False),
        common.Target(
            "epoch 2 / torch DataLoader",
            rate("second", "torch"),
            LEAST[arguments.format] if arguments.format else 4.0,
            False,
        ),
        common.Target("epoch 2 / packed", rate("second", "packed"), 0.85, False),
    ]
    return common.finish(
        "_".join(filter(None, ("in_place", arguments.read, arguments.format))),
        arguments,
        targets,
        rows=[row.to_json() for row in rows],
    )


if __name__ == "__main__":
    sys.exit(main())
