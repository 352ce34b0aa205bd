"""An image codec that only this file knows: one class, registered, is verified, read as a stored value and
written as files."""

from __future__ import annotations

import io
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from fastload import PackedDataset
from fastload.errors import SampleError
from fastload.packing import unpack, verify
from fastload.store import DatasetWriter, Field, Schema
from fastload.store.kinds.base import Size
from fastload.store.kinds.codecs import BY_ENTRY, CODECS, ImageCodec

COUNT = 3


class BitmapCodec(ImageCodec):
    """BMP files, which Pillow decodes."""

    name = "bmp"
    entry = 200
    ending = "bmp"

    def encoded(self, field: Field, value: object, height: int, width: int) -> Any:
        return value

    def decoded(self, data: bytes, max_pixels: int) -> np.ndarray[Any, Any]:
        return np.asarray(Image.open(io.BytesIO(data)))

    def verified(self, data: bytes, max_pixels: int, decode: bool) -> tuple[Size, int]:
        height, width, _ = self.decoded(data, max_pixels).shape
        return (height, width), 0

    def file(self, data: bytes) -> bytes:
        return data


def pixels(index: int) -> np.ndarray[Any, Any]:
    return np.random.default_rng(index).integers(0, 256, (8, 9, 3), np.uint8)


def bitmap(index: int) -> bytes:
    out = io.BytesIO()
    Image.fromarray(pixels(index)).save(out, "BMP")
    return out.getvalue()


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A dataset whose images the codec has stored."""
    codec = BitmapCodec()
    monkeypatch.setitem(CODECS, codec.name, codec)  # type: ignore[arg-type]
    monkeypatch.setitem(BY_ENTRY, codec.entry, codec)  # type: ignore[arg-type]
    schema = Schema((Field("image", "image"), Field("label", "int")))
    with DatasetWriter(tmp_path / "d", schema, shard_size=1 << 20, options={}) as writer:
        for index in range(COUNT):
            writer.append({"image": bitmap(index), "label": 0}, image_kind=codec.name, height=8, width=9)
        writer.finish(["a"], {})
    return tmp_path / "d"


def test_verified_and_read(folder: Path) -> None:
    """verify asks the codec for the size, and stored values are the pixels that it decodes."""
    assert verify(folder, decode=True).ok
    dataset = PackedDataset(folder)
    for index in range(COUNT):
        assert np.array_equal(
            dataset.stored_values(index, ["image"])["image"].permute(1, 2, 0), pixels(index)
        )


def test_files(folder: Path) -> None:
    """The codec's files are unpacked as they are, with its ending."""
    unpack(folder, folder.parent / "out")
    found = sorted((folder.parent / "out").rglob("*.bmp"))
    assert [path.read_bytes() for path in found] == [bitmap(index) for index in range(COUNT)]


def test_native_rows_need_it_in_c(folder: Path) -> None:
    """The native decoder says that it does not know the image's kind."""
    with pytest.raises(SampleError, match="its image is of kind 200, which this version cannot decode"):
        PackedDataset(folder)[0]
