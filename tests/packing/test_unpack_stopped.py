"""An unpack that was stopped: the same call goes on with it, and no file that it did not write is touched."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from packing_helpers import encoded, picture
from PIL import Image

import fastload
from fastload.errors import FastloadError, PackError, SampleError
from fastload.packing import unpack
from fastload.sources.unpacked import UNFINISHED
from fastload.store import Manifest
from fastload.unpacking.folder import Layout

COUNT = 150
BAD = 100
JPEGS = [encoded(picture(number, 24, 32)) for number in range(COUNT)]


class Photos:
    """Photos with boxes, and, of some layouts' data, other fields."""

    def __init__(self, layout: Layout) -> None:
        self.layout = layout

    def __len__(self) -> int:
        return COUNT

    def __getitem__(self, index: int) -> dict[str, Any]:
        if self.layout == "folders":
            return {"image": JPEGS[index], "label": index % 3, "caption": f"photo {index}"}
        return {"image": JPEGS[index], "image_id": index}


@pytest.fixture(scope="module", params=["folders", "pairs", "coco"])
def packed(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Layout]:
    """A dataset that is unpacked in each layout."""
    root, layout = tmp_path_factory.mktemp("packed"), request.param
    if layout == "folders":
        fastload.pack(Photos(layout), root / "ds")
        return root / "ds", layout
    for number, data in enumerate(JPEGS):
        (root / "images").mkdir(exist_ok=True)
        (root / "images" / f"{number:03d}.jpg").write_bytes(data)
    if layout == "pairs":
        (root / "masks").mkdir()
        for number in range(COUNT):
            Image.fromarray(np.full((24, 32), number, np.uint8)).save(root / "masks" / f"{number:03d}.png")
        fastload.pack(root / "images", root / "ds", masks=root / "masks")
        return root / "ds", layout
    images = [{"id": n, "file_name": f"{n:03d}.jpg", "width": 32, "height": 24} for n in range(COUNT)]
    boxes = [
        {"id": n + 1, "image_id": n, "category_id": 1, "bbox": [1, 2, 3, 4], "area": 12, "iscrowd": 0}
        for n in range(COUNT)
    ]
    (root / "a.json").write_text(
        json.dumps({"images": images, "annotations": boxes, "categories": [{"id": 1, "name": "cat"}]})
    )
    fastload.pack(root / "images", root / "ds", annotations=str(root / "a.json"))
    return root / "ds", layout


def files(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def stopped(packed: tuple[Path, Layout], root: Path) -> tuple[Path, Path]:
    """A copy of the dataset, and a folder into which it was unpacked up to sample BAD, which could not be
    read then."""
    source, layout = packed
    copy, out = root / "ds", root / "out"
    shutil.copytree(source, copy)
    shard = copy / Manifest.load(copy).shards[0].file
    whole = shard.read_bytes()
    at = whole.index(JPEGS[BAD]) + 300
    shard.write_bytes(whole[:at] + bytes([whole[at] ^ 1]) + whole[at + 1 :])
    with pytest.raises(SampleError, match=f"sample {BAD}"):
        unpack(copy, out, layout=layout, workers=1)
    shard.write_bytes(whole)
    return copy, out


def test_the_same_call_goes_on(packed: tuple[Path, Layout], tmp_path: Path) -> None:
    """After an error, files that were cut off or lost, the folder becomes what an unpack at once makes;
    others' files stay."""
    copy, out = stopped(packed, tmp_path)
    written = sorted(path for path in out.rglob("*.jpg"))
    assert 0 < len(written) < COUNT
    written[1].write_bytes(written[1].read_bytes()[:100])
    written[2].write_bytes(b"")
    written[3].unlink()
    (out / "mine.txt").write_text("mine")
    with pytest.raises(PackError, match="`fastload unpack` was stopped before its end"):
        fastload.pack(out, tmp_path / "packed")
    again = unpack(copy, out, layout=packed[1])
    assert again == unpack(copy, tmp_path / "at once", layout=packed[1])
    assert files(out) == {**files(tmp_path / "at once"), "mine.txt": b"mine"}
    assert not (out / UNFINISHED).exists()
    with pytest.raises(PackError, match="not empty"):
        unpack(copy, out, layout=packed[1])


def test_no_file_of_others_is_replaced(packed: tuple[Path, Layout], tmp_path: Path) -> None:
    """A file whose bytes are no beginning of those that belong there is left as it is, and named; so is
    one in place of a text file."""
    copy, out = stopped(packed, tmp_path)
    photo = sorted(out.rglob("*.jpg"))[0]
    good = photo.read_bytes()
    text = {"folders": "fields.jsonl", "coco": "annotations/instances.json"}.get(packed[1])
    for path, before in ((photo, good), *([(out / text, None)] if text else [])):
        path.write_bytes(b"mine")
        with pytest.raises(PackError, match=f"{path} is in the way"):
            unpack(copy, out, layout=packed[1])
        assert path.read_bytes() == b"mine"
        path.unlink() if before is None else path.write_bytes(before)
    unpack(copy, out, layout=packed[1])


def test_other_data_are_refused(packed: tuple[Path, Layout], tmp_path: Path) -> None:
    """Another dataset, or another layout, does not go on with what is there."""
    copy, out = stopped(packed, tmp_path)
    before = files(out)
    fastload.pack(Photos("folders"), tmp_path / "other", limit=9)
    with pytest.raises(FastloadError, match="a part of an unpack of other data"):
        unpack(tmp_path / "other", out)
    if packed[1] != "folders":
        with pytest.raises(FastloadError, match="a part of an unpack of other layout"):
            unpack(copy, out, layout="folders")
    assert files(out) == before
