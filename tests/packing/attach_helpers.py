"""What the tests of attached images share: sources of small JPEGs, batches, and their comparison."""

from __future__ import annotations

import io
import tarfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from packing_helpers import encoded, picture, tree

from fastload import FastLoader

COUNT = 12


def jpeg(number: int) -> bytes:
    """A JPEG of its own size; some are progressive, which a pack makes baseline and an attach leaves."""
    return encoded(picture(number, 60 + number, 80 + number), quality=90, progressive=number % 4 == 3)


def folder(root: Path) -> Path:
    """An ImageFolder of JPEGs."""
    return tree(root, {f"class{number % 3}/{number:02d}.jpg": jpeg(number) for number in range(COUNT)})


def table(root: Path) -> Path:
    """A CSV with a column of text, and images beside it, below it and elsewhere."""
    tree(root, {f"list/images/{number:02d}.jpg": jpeg(number) for number in range(0, COUNT, 2)})
    tree(root, {f"elsewhere/{number:02d}.jpg": jpeg(number) for number in range(1, COUNT, 2)})
    lines = [
        f"{'../elsewhere' if number % 2 else 'images'}/{number:02d}.jpg,{number},text {number}"
        for number in range(COUNT)
    ]
    (root / "list" / "list.csv").write_text("path,label,caption\n" + "\n".join(lines) + "\n")
    return root / "list" / "list.csv"


def write_tar(path: Path, members: dict[str, bytes]) -> None:
    """A plain tar."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with tarfile.open(path, "w") as tar:
        for name, data in members.items():
            entry = tarfile.TarInfo(name)
            entry.size = len(data)
            tar.addfile(entry, io.BytesIO(data))


def tars(root: Path) -> Path:
    """A folder of two WebDataset shards, with captions."""
    for shard in range(2):
        members = {}
        for number in range(shard * COUNT // 2, (shard + 1) * COUNT // 2):
            stem = f"sample{number:02d}"
            members |= {
                f"{stem}.jpg": jpeg(number),
                f"{stem}.cls": b"%d" % number,
                f"{stem}.txt": f"text {number}".encode(),
            }
        write_tar(root / "shards" / f"{shard}.tar", members)
    return root / "shards"


SOURCES: dict[str, Callable[[Path], Path]] = {"folder": folder, "table": table, "tars": tars}


def batches(dataset: Any, **options: Any) -> list[Any]:
    """What a shuffled epoch gives, with crops that use the entropy index."""
    with FastLoader(
        dataset, batch_size=5, shuffle=True, generator=torch.Generator().manual_seed(3), **options
    ) as loader:
        return list(loader)


def equal(left: Any, right: Any) -> bool:
    """Whether two batches are equal to the bit."""
    if isinstance(left, torch.Tensor):
        return left.dtype == right.dtype and torch.equal(left, right)
    if isinstance(left, dict):
        return left.keys() == right.keys() and all(equal(left[key], right[key]) for key in left)
    if isinstance(left, list | tuple):
        return len(left) == len(right) and all(map(equal, left, right))
    return bool(left == right)
