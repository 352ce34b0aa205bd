"""Datasets whose JPEGs are in the DCT form: the files come back, pixels are the JPEGs', and damage is an
error of its sample."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from packing_helpers import all_kinds, encoded, picture, tree
from stored_equal import assert_equal_datasets

import fastload
from fastload import FastLoader, PackedDataset
from fastload import transforms as T
from fastload._native import core
from fastload.errors import PackError, SampleError
from fastload.packing import export, pack, unpack, verify
from fastload.store import DatasetReader, DatasetWriter, Field, Schema

TRANSFORMS: list[list[Any]] = [
    [T.RandomResizedCrop(64), T.RandomHorizontalFlip()],
    [T.RandomResizedCrop(24, dct_scale=True)],
    [T.Resize(80), T.CenterCrop(64)],
    [T.Views([[T.RandomResizedCrop(64)], [T.RandomResizedCrop(32), T.RandomVerticalFlip()]])],
]


def kinds(dataset: Path) -> list[int]:
    """The kind of each sample's image."""
    with DatasetReader(dataset) as reader:
        return [reader.stored_fields(i)[0][0] for i in range(reader.count)]


@pytest.fixture
def pair(tmp_path: Path) -> tuple[Path, Path, Path]:
    """A folder of JPEGs of every kind, packed with keep and with dct."""
    source = all_kinds(tmp_path / "src")
    pack(source, tmp_path / "keep", encode="keep")
    pack(source, tmp_path / "dct", encode="dct")
    return source, tmp_path / "keep", tmp_path / "dct"


def test_files_come_back(pair: tuple[Path, Path, Path], tmp_path: Path) -> None:
    """Every JPEG, byte for byte, whether it is in the form or not; and the counts say how many are."""
    source, _, dct = pair
    found = kinds(dct)
    with DatasetReader(dct) as reader:
        info = dict(reader.manifest.summary)
    jpegs = [path for path in sorted(source.rglob("*.jpg")) if path.read_bytes()[:2] == b"\xff\xd8"]
    assert info["dct"] == found.count(core.KIND_DCT)
    assert info["dct"] + info["kept"] == len(jpegs) + found.count(core.IMAGE_KINDS["png"])
    assert found.count(core.KIND_DCT) >= len(jpegs) - 2
    unpack(dct, tmp_path / "files")
    again = [path.read_bytes() for path in sorted((tmp_path / "files").rglob("*.jpg"))]
    assert again == [path.read_bytes() for path in jpegs]
    export(dct, tmp_path / "out.tar")
    pack(tmp_path / "out.tar", tmp_path / "from_tar", encode="dct")
    assert_equal_datasets(dct, tmp_path / "from_tar")


@pytest.mark.parametrize("transform", TRANSFORMS, ids=range(len(TRANSFORMS)))
@pytest.mark.parametrize("engine", ["native", "python"])
def test_pixels_are_those_of_the_jpegs(
    pair: tuple[Path, Path, Path], transform: list[Any], engine: Any
) -> None:
    """On every engine, and of single samples."""
    _, keep, dct = pair

    def epoch(dataset: Path) -> list[Any]:
        with FastLoader(
            PackedDataset(dataset, transform), batch_size=4, num_workers=2, seed=3, engine=engine
        ) as loader:
            assert dataset is keep or engine != "native" or loader.stats()["fallbacks"] == 0
            return [
                tensor
                for images, labels in loader
                for tensor in (*(images if isinstance(images, list) else [images]), labels)
            ]

    for mine, theirs in zip(epoch(dct), epoch(keep), strict=True):
        assert torch.equal(mine, theirs)
    one, other = PackedDataset(dct), PackedDataset(keep)
    for index in range(len(one)):
        assert torch.equal(one[index][0], other[index][0])


def test_verify_index_and_append(pair: tuple[Path, Path, Path], tmp_path: Path) -> None:
    """Verify decodes the form; `index` adds nothing to it; `append` goes on with it."""
    _, _, dct = pair
    report = verify(dct, decode=True)
    assert report.ok
    before = kinds(dct)
    assert fastload.index(dct).added == 0
    more = tree(
        tmp_path / "more",
        {"a/x.jpg": encoded(picture(90, 200, 220)), "b/y.jpg": encoded(picture(91, 210, 200))},
    )
    fastload.append(dct, more)
    assert kinds(dct) == [*before, core.KIND_DCT, core.KIND_DCT]


def test_what_stays_a_jpeg(tmp_path: Path) -> None:
    """Files that decode with warnings, that are CMYK, or whose form is much larger; each comes back."""
    photo = encoded(picture(1, 200, 220), quality=90)
    files = {
        "a/0.jpg": photo[:-2] + bytes(64),
        "a/1.jpg": encoded(picture(4, 30, 30), quality=5),
        "a/2.jpg": encoded(picture(2, 200, 200).convert("CMYK")),
        "a/3.jpg": encoded(picture(3, 5, 5)),
        "a/4.jpg": photo.replace(b"\xff\xd9", b"\x00\x00\xff\xd9"),
    }
    summary = pack(tree(tmp_path / "src", files), tmp_path / "ds", encode="dct")
    assert (summary.kept, summary.dct) == (len(files), 0)
    unpack(tmp_path / "ds", tmp_path / "files")
    assert [path.read_bytes() for path in sorted((tmp_path / "files").rglob("*.jpg"))] == list(files.values())


@pytest.mark.parametrize("options", [{"max_side": 96}, {"exif": "apply"}], ids=str)
def test_images_that_packing_changes(tmp_path: Path, options: dict[str, Any]) -> None:
    """What is shrunk or turned is made anew as under lossless, and then stored in the form."""
    orientation = b"Exif\0\0II*\0\x08\0\0\0\x01\0\x12\x01\x03\0\x01\0\0\0\x06\0\0\0\0\0\0\0"
    source = tree(tmp_path / "src", {"a/0.jpg": encoded(picture(1, 128, 192), exif=orientation)})
    summary = pack(source, tmp_path / "dct", encode="dct", **options)
    pack(source, tmp_path / "lossless", encode="lossless", **options)
    assert summary.dct == 1
    assert kinds(tmp_path / "dct") == [core.KIND_DCT]
    one, other = PackedDataset(tmp_path / "dct"), PackedDataset(tmp_path / "lossless")
    assert torch.equal(one[0][0], other[0][0])


def test_options_that_contradict(tmp_path: Path) -> None:
    source = tree(tmp_path / "src", {"a/0.jpg": encoded(picture(1, 64, 64))})
    with pytest.raises(
        fastload.errors.ArgumentError, match="optimize_huffman writes JPEGs anew, which encode='dct' does not"
    ):
        pack(source, tmp_path / "ds", encode="dct", optimize_huffman=True)


def forged(path: Path, data: bytes, size: tuple[int, int]) -> Path:
    """A dataset of one image whose bytes are as given, with a checksum that fits."""
    entries = [(0, core.KIND_DCT, data)]
    with DatasetWriter(path, Schema((Field("image", "image"),)), shard_size=1 << 20, options={}) as writer:
        record, crc = core.build_record(entries)
        writer.append_prepared(fastload.store.Prepared(record, crc, [], *size), state=dict)
        writer.finish(None, {}, max_pixels=1 << 28)
    return path


def first_pixels(dataset: PackedDataset, engine: Any) -> torch.Tensor | None:
    """The pixels of the first sample; None: it is an error, which names the sample."""
    with FastLoader(dataset, batch_size=1, num_workers=0, engine=engine) as loader:
        try:
            return next(iter(loader))["image"]
        except SampleError as error:
            assert "sample 0 of" in str(error)
            return None


def test_damage_is_an_error_of_its_sample(tmp_path: Path) -> None:
    """Cut and changed bytes with checksums that fit: an error that names the sample, or pixels; and never
    a JPEG's bytes as the form."""
    jpeg = encoded(picture(7, 120, 130), quality=90)
    form, _ = core.DctCoder().encode(jpeg)
    assert form is not None
    rng = random.Random(5)
    damaged = [form[: rng.randrange(4, len(form))] for _ in range(6)]
    for _ in range(20):
        at = rng.randrange(len(form))
        damaged.append(form[:at] + bytes([form[at] ^ 1 << rng.randrange(8)]) + form[at + 1 :])
    for number, data in enumerate([jpeg, b"", form[:3], *damaged]):
        dataset = PackedDataset(forged(tmp_path / f"ds{number}", data, (120, 130)))
        native, python = (first_pixels(dataset, engine) for engine in ("native", "python"))
        assert (native is None) == (python is None)
        assert native is None or torch.equal(native, python)
        report = verify(tmp_path / f"ds{number}", decode=True)
        assert report.ok or len(report.bad) == 1
        if number < 3:
            assert native is None
            assert not report.ok


def test_the_writer_checks_the_form(tmp_path: Path) -> None:
    with DatasetWriter(
        tmp_path / "ds", Schema((Field("image", "image"),)), shard_size=1 << 20, options={}
    ) as writer:
        with pytest.raises(PackError, match="DCT form"):
            writer.append({"image": b"\xff\xd8no form"}, image_kind="dct", height=4, width=4)
        writer.append({"image": np.zeros((4, 4, 3), np.uint8)}, image_kind="raw", height=4, width=4)
        writer.finish(None, {}, max_pixels=1 << 28)


def test_explain_names_the_form(pair: tuple[Path, Path, Path]) -> None:
    """Of JPEGs with Huffman codes explain() says that there is a form without; of the form nothing."""
    _, keep, dct = pair
    for dataset, said in ((keep, True), (dct, False)):
        with FastLoader(PackedDataset(dataset, [T.CenterCrop(32)]), 4) as loader:
            assert ("--encode dct" in str(loader.explain(all=True))) is said
