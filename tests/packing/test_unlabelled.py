"""Images without labels: of a folder, a list, a pattern, or a table of paths or ids; packed as (image,
index), as the summary says."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image

import fastload
from fastload import FastLoader, PackedDataset, attach, pack
from fastload.errors import ArgumentError, PackError
from fastload.packing import unpack

COUNT = 5


@pytest.fixture
def photos(tmp_path: Path) -> Path:
    """A folder of JPEGs, of which image n has the grey value n; its order by name is another than that of
    the values."""
    folder = tmp_path / "photos"
    folder.mkdir()
    for index in range(COUNT):
        Image.fromarray(np.full((16, 16, 3), 9 * index, np.uint8)).save(
            folder / f"x{(3 * index) % COUNT}.jpg", quality=95
        )
    return folder


def names(folder: Path) -> list[str]:
    return [str(folder / f"x{n}.jpg") for n in range(COUNT)]


def same_as(packed: Path, files: list[str]) -> bool:
    """Returns True if the samples are pairs of the files' pixels and their numbers."""
    samples = [PackedDataset(packed)[i] for i in range(len(files))]
    pixels = [torch.from_numpy(np.array(Image.open(file).convert("RGB"))).permute(2, 0, 1) for file in files]
    return all(
        index == n and torch.equal(image, pixels[n]) for n, (image, index) in enumerate(samples)
    ) and len(files) == len(PackedDataset(packed))


def sources(photos: Path) -> dict[str, tuple[Any, dict[str, Any], list[str]]]:
    """By name: source, options, and the files in the order of the samples."""
    files = names(photos)
    table, bare = photos.parent / "list.csv", photos.parent / "test.csv"
    table.write_text("path\n" + "".join(f"photos/x{n}.jpg\n" for n in reversed(range(COUNT))))
    bare.write_text("id\n" + "".join(f"x{n}\n" for n in range(COUNT)))
    return {
        "folder": (photos, {}, files),
        "list": (files[::-1], {}, files[::-1]),
        "pattern": (str(photos / "*.jpg"), {}, files),
        "numbers": (str(photos / "x{1..3}.jpg"), {}, files[1:4]),
        "file": (files[2], {}, files[2:3]),
        "table": (table, {}, files[::-1]),
        "ids": (bare, {"images": photos, "suffix": ".jpg"}, files),
    }


@pytest.mark.parametrize("kind", ["folder", "list", "pattern", "numbers", "file", "table", "ids"])
def test_pairs_of_image_and_index(photos: Path, kind: str) -> None:
    """Each way gives (image, index), the same attached, unpacked and packed again, and says so in the
    summary."""
    source, options, files = sources(photos)[kind]
    out = photos.parent / "out"
    summary = pack(source, out, **options)
    assert same_as(out, files)
    assert "without labels: (image, index)" in summary.layout
    assert not hasattr(PackedDataset(out), "targets")
    attach(source, photos.parent / "attached", **options)
    assert same_as(photos.parent / "attached", files)
    unpack(out, photos.parent / "files")
    pack(photos.parent / "files", photos.parent / "again")
    assert same_as(photos.parent / "again", files)
    with FastLoader(PackedDataset(out), batch_size=COUNT, num_workers=1) as loader:
        [(images, index)] = loader
    assert index.tolist() == list(range(len(files)))
    assert len(images) == len(files)


def test_ids_with_labels(photos: Path) -> None:
    """Ids without folder or suffix may have labels beside them; without the options the error names the
    options."""
    table = photos.parent / "train.csv"
    table.write_text("id,class\n" + "".join(f"x{n},{'odd' if n % 2 else 'even'}\n" for n in range(COUNT)))
    pack(table, photos.parent / "out", images=photos, suffix=".jpg")
    packed = PackedDataset(photos.parent / "out")
    assert [packed[n][1] for n in range(COUNT)] == [0, 1, 0, 1, 0]
    assert packed.classes == ["even", "odd"]
    with pytest.raises(PackError, match=r"no column for paths.*--images DIR and --suffix"):
        pack(table, photos.parent / "no")
    with pytest.raises(PackError, match="no such folder"):
        pack(table, photos.parent / "no", images=photos / "gone", suffix=".jpg")
    with pytest.raises(ArgumentError, match=r"are for a \.csv or \.tsv"):
        pack(photos, photos.parent / "no", suffix=".jpg")


@pytest.mark.parametrize("beside", ["labels.csv", "instances.json", "x1.txt", "x1.xml"])
def test_descriptions_beside_images(photos: Path, beside: str) -> None:
    """A file beside the images that may describe them is an error that names the way, and
    `format="images"` packs them all the same."""
    (photos / beside).write_text("{}")
    with pytest.raises(
        PackError, match=rf"{beside} lies beside the images, which it may describe.*--format images"
    ):
        pack(photos, photos.parent / "out")
    assert pack(photos, photos.parent / "out", format="images").samples == COUNT


def test_folders_below(photos: Path) -> None:
    """With `format="images"` the images at any depth are taken, in ImageFolder's order; other files are
    noted."""
    (photos / "below").mkdir()
    os.rename(photos / "x0.jpg", photos / "below" / "x0.jpg")
    (photos / "notes.doc").touch()
    summary = pack(photos, photos.parent / "out", format="images")
    assert same_as(photos.parent / "out", [*names(photos)[1:], str(photos / "below" / "x0.jpg")])
    assert sum(notice.count for notice in summary.notices) == 1
    assert pack(photos, photos.parent / "classes").samples == 1  # class folders have images beside them
    with pytest.raises(PackError, match="no class folder in it"):
        empty = photos / "empty"
        empty.mkdir()
        fastload.pack(empty, photos.parent / "none")
