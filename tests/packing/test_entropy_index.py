"""The entropy index in packed datasets: the same pixels with it, small, true, and harmless where it lies."""

from __future__ import annotations

import io
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from packing_helpers import all_kinds, encoded, picture, tree
from PIL import Image

from fastload import FastLoader, PackedDataset
from fastload import transforms as T
from fastload._native import core
from fastload.errors import ArgumentError
from fastload.packing import pack, verify
from fastload.store import DatasetReader, DatasetWriter, Field, Schema

TRANSFORMS = [
    [T.RandomResizedCrop(64), T.RandomHorizontalFlip()],
    [T.RandomCrop(48, pad_if_needed=True)],
    [T.Resize(80), T.CenterCrop(64)],
]
SHARE = 0.015


def indexes(dataset: Path) -> list[tuple[bytes, bytes]]:
    """(index or b"", JPEG) of every sample that is a JPEG."""
    out = []
    with DatasetReader(dataset) as reader:
        for i in range(len(reader)):
            fields = {number: (kind, data) for number, kind, data in reader.record_fields(i)}
            kind, data = fields[0]
            found = fields.get(core.RECORD_INDEX, (core.KIND_INDEX, b""))
            assert found[0] == core.KIND_INDEX
            if kind == core.KIND_JPEG:
                out.append((found[1], data))
    return out


def epoch(dataset: Path, transform: list[Any]) -> torch.Tensor:
    """An epoch's pixels in dataset order."""
    with FastLoader(dataset, batch_size=8, num_workers=2, seed=3, transform=transform) as loader:
        return torch.cat([images for images, _ in loader])


@pytest.mark.parametrize("encode", ["lossless", "keep", "jpeg"])
def test_the_pixels_are_the_same(tmp_path: Path, encode: str) -> None:
    """With an index or without, under every encoding; and the stored JPEGs are byte for byte the same."""
    source = all_kinds(tmp_path / "src")
    summary = pack(source, tmp_path / "with", encode=encode)
    assert pack(source, tmp_path / "without", encode=encode, index=False).indexed == 0
    found, bare = indexes(tmp_path / "with"), indexes(tmp_path / "without")
    assert [data for _, data in found] == [data for _, data in bare]
    assert not any(index for index, _ in bare)
    assert summary.indexed == sum(bool(index) for index, _ in found) >= 9
    for transform in TRANSFORMS:
        assert torch.equal(epoch(tmp_path / "with", transform), epoch(tmp_path / "without", transform))
    assert verify(tmp_path / "with", decode=True).ok


def test_the_corpus(tmp_path: Path, shared: Path) -> None:
    """Every photograph has one, of at most 1.5 % of its JPEG, all together less; pixels as without."""
    pack(shared / "corpus" / "in500", tmp_path / "with")
    pack(shared / "corpus" / "in500", tmp_path / "without", index=False)
    found = indexes(tmp_path / "with")
    assert all(0 < len(index) <= SHARE * len(data) for index, data in found)
    for transform in TRANSFORMS[:1]:
        assert torch.equal(epoch(tmp_path / "with", transform), epoch(tmp_path / "without", transform))


def test_one_dataset_item_is_the_loader_row(tmp_path: Path) -> None:
    """`dataset[i]` takes the same way through the index."""
    pack(all_kinds(tmp_path / "src"), tmp_path / "ds")
    rows = epoch(tmp_path / "ds", TRANSFORMS[2])
    dataset = PackedDataset(tmp_path / "ds", transform=TRANSFORMS[2])
    for i in range(len(dataset)):
        assert torch.equal(dataset[i][0], rows[i])


def test_small_images_have_none(tmp_path: Path) -> None:
    """Where an index would take more than its share, there is none."""
    pack(tree(tmp_path / "src", {"a/1.jpg": encoded(picture(1, 40, 40), quality=60)}), tmp_path / "ds")
    assert indexes(tmp_path / "ds")[0][0] == b""


def test_damaged_data_have_none(tmp_path: Path) -> None:
    """A JPEG that is not proved sound is stored without, whichever check was asked for, and verify has
    nothing against that."""
    data = bytearray(encoded(picture(2, 300, 300), quality=90))
    data[len(data) // 2 : len(data) // 2 + 40] = b"\xff\xd9" * 20
    source = tree(
        tmp_path / "src", {"a/1.jpg": bytes(data), "a/2.jpg": encoded(picture(3, 300, 300), quality=90)}
    )
    for check in ("entropy", "structure"):
        pack(source, tmp_path / check, check=check)
        assert [bool(index) for index, _ in indexes(tmp_path / check)] == [False, True]
        assert verify(tmp_path / check).ok


def write(path: Path, jpeg: bytes, index: bytes) -> Path:
    """A dataset of one sample whose index is the given one."""
    width, height = Image.open(io.BytesIO(jpeg)).size
    with DatasetWriter(
        path, Schema((Field("image", "image"),)), shard_size=1 << 20, options={}, overwrite=True
    ) as writer:
        writer.append_prepared(
            writer.prepare({"image": jpeg}, image_kind="jpeg", height=height, width=width, index=index)
        )
        writer.finish(None, {})
    return path


JPEG = encoded(picture(7, 180, 240), quality=92)
TRUE_INDEX = core.JpegPreparer().index(JPEG)


def crop(dataset: Path) -> np.ndarray[Any, Any]:
    """One crop, as the native decoder makes it."""
    with FastLoader(dataset, batch_size=1, seed=1, transform=[T.RandomCrop(64)]) as loader:
        (batch,) = loader
    images = (
        batch["image"] if isinstance(batch, dict) else batch[0] if isinstance(batch, list | tuple) else batch
    )
    assert isinstance(images, torch.Tensor)
    return images[0].permute(1, 2, 0).numpy()


@settings(max_examples=60, suppress_health_check=[HealthCheck.too_slow, HealthCheck.function_scoped_fixture])
@given(
    index=st.binary(min_size=1, max_size=600)
    | st.binary(min_size=1, max_size=30).map(lambda end: TRUE_INDEX[: -len(end)] + end)
)
def test_rubbish_for_an_index(tmp_path: Path, index: bytes) -> None:
    """Pixels as without it, unless it is well-formed and lies with care; verify names the sample."""
    dataset = write(tmp_path / "ds", JPEG, index)
    report = verify(dataset)
    assert report.ok == (index == TRUE_INDEX)
    if index[: len(TRUE_INDEX)] != TRUE_INDEX and len(index) != len(TRUE_INDEX):
        assert np.array_equal(crop(dataset), crop(write(tmp_path / "bare", JPEG, b"")))


@pytest.mark.parametrize(
    "change", ["version", "every", "width", "short", "long", "of another image", "of a turned image"]
)
def test_an_index_that_lies(tmp_path: Path, change: str) -> None:
    """verify names the sample and why; the loader delivers the right pixels nevertheless."""
    other = encoded(picture(8, 180, 240), quality=92)
    lies = {
        "version": b"\x02" + TRUE_INDEX[1:],
        "every": TRUE_INDEX[:1] + bytes([TRUE_INDEX[1] + 1]) + TRUE_INDEX[2:],
        "width": TRUE_INDEX[:2] + bytes([TRUE_INDEX[2] + 1]) + TRUE_INDEX[3:],
        "short": TRUE_INDEX[:-1],
        "long": TRUE_INDEX + b"\0",
        "of another image": core.JpegPreparer().index(other),
        "of a turned image": core.JpegPreparer().index(encoded(picture(7, 240, 180), quality=92)),
    }
    dataset = write(tmp_path / "ds", JPEG, lies[change])
    report = verify(dataset)
    assert ["entropy index" in bad.reason for bad in report.bad] == [True]
    assert np.array_equal(crop(dataset), crop(write(tmp_path / "bare", JPEG, b"")))


def test_an_index_for_pixels(tmp_path: Path) -> None:
    """An index beside a raw image is an error to verify, and nothing to the loader."""
    schema = Schema((Field("image", "image"),))
    pixels = np.arange(64 * 64 * 3, dtype=np.uint32).astype(np.uint8).reshape(64, 64, 3)
    with DatasetWriter(tmp_path / "ds", schema, shard_size=1 << 20, options={}) as writer:
        entries, row = schema.encode({"image": pixels}, "raw", 64, 64)
        record, crc = core.build_record([(core.RECORD_INDEX, core.KIND_INDEX, TRUE_INDEX), *entries])
        writer.append_prepared(
            type(writer.prepare({"image": pixels}, image_kind="raw", height=64, width=64))(
                record, crc, row, 64, 64
            )
        )
        writer.finish(None, {})
    assert "no JPEG" in verify(tmp_path / "ds").bad[0].reason
    assert np.array_equal(crop(tmp_path / "ds"), pixels)


class TestOptimizeHuffman:
    def test_same_pixels_in_less(self, tmp_path: Path) -> None:
        """Every plain JPEG becomes smaller, pixels stay, and the index is that of what is stored."""
        source = all_kinds(tmp_path / "src")
        pack(source, tmp_path / "plain")
        summary = pack(source, tmp_path / "small", optimize_huffman=True)
        assert summary.optimized >= 10
        before, after = indexes(tmp_path / "plain"), indexes(tmp_path / "small")
        assert all(len(new) <= len(old) for (_, old), (_, new) in zip(before, after, strict=True))
        assert verify(tmp_path / "small", decode=True).ok
        for transform in TRANSFORMS:
            assert torch.equal(epoch(tmp_path / "plain", transform), epoch(tmp_path / "small", transform))

    @pytest.mark.parametrize("encode", ["keep", "raw"])
    def test_refused(self, tmp_path: Path, encode: str) -> None:
        """With encodings that write no JPEG."""
        with pytest.raises(ArgumentError, match="optimize_huffman"):
            pack(tmp_path, tmp_path / "ds", encode=encode, optimize_huffman=True)

    def test_damage_goes_on_telling(self, tmp_path: Path) -> None:
        """A JPEG that decodes with warnings only is stored as it is."""
        data = bytearray(encoded(picture(2, 300, 300), quality=90))
        data[len(data) // 2 : len(data) // 2 + 40] = b"\xff\xd3" * 20
        summary = pack(
            tree(tmp_path / "src", {"a/1.jpg": bytes(data)}), tmp_path / "ds", optimize_huffman=True
        )
        assert summary.warning_count == 1
        assert indexes(tmp_path / "ds")[0][1][-100:] == bytes(data)[-100:]
