"""convert: a dataset of another one, with images in another form: every other byte is the same, and
nothing is lost on the way back."""

from __future__ import annotations

import io
import shutil
import tarfile
import tempfile
from pathlib import Path

import pytest
import torch
from any_fields import Anything
from hypothesis import given, settings
from hypothesis import strategies as st
from packing_helpers import all_kinds, encoded, picture, tree
from stored_equal import assert_equal_datasets

import fastload
from fastload import PackedDataset
from fastload._native import core
from fastload.errors import ArgumentError, DatasetError, PackError
from fastload.packing import convert, pack, verify
from fastload.store import DatasetReader


def test_there_and_back(tmp_path: Path) -> None:
    """keep to dct to keep, and dct to lossless, are what packing the source makes."""
    source = all_kinds(tmp_path / "src")
    for encode in ("lossless", "keep", "dct"):
        pack(source, tmp_path / encode, encode=encode)
    summary = convert(tmp_path / "keep", tmp_path / "to_dct", encode="dct")
    with DatasetReader(tmp_path / "dct") as reader:
        assert summary.dct == reader.manifest.summary["dct"] > 0
    assert_equal_datasets(tmp_path / "dct", tmp_path / "to_dct")
    convert(tmp_path / "to_dct", tmp_path / "to_keep", encode="keep")
    assert_equal_datasets(tmp_path / "keep", tmp_path / "to_keep")
    convert(tmp_path / "dct", tmp_path / "to_lossless")
    assert_equal_datasets(tmp_path / "lossless", tmp_path / "to_lossless")
    assert verify(tmp_path / "to_dct", decode=True).ok


@given(seed=st.integers(0, 2**32), count=st.integers(1, 4))
@settings(max_examples=25)
def test_every_field_of_every_kind(seed: int, count: int) -> None:
    """All other fields stay, byte for byte; images of other forms too."""
    with tempfile.TemporaryDirectory() as folder:
        top = Path(folder)
        pack(Anything(seed, count), top / "first", workers=1, encode="keep")
        convert(top / "first", top / "dct", encode="dct", workers=1)
        convert(top / "dct", top / "back", encode="keep", workers=1)
        assert_equal_datasets(top / "first", top / "back")


def test_versions(tmp_path: Path) -> None:
    """Dropped samples are left out; appended ones and added fields are there."""
    files = {f"{'ab'[i % 2]}/{i}.jpg": encoded(picture(i, 90, 100)) for i in range(8)}
    pack(tree(tmp_path / "src", files), tmp_path / "ds", encode="keep", shard_samples=3)
    more = {"b/x.jpg": encoded(picture(50, 80, 90)), "c/y.jpg": encoded(picture(51, 80, 90))}
    fastload.append(tmp_path / "ds", tree(tmp_path / "more", more))
    fastload.drop(tmp_path / "ds", indices=[1, 4, 9])
    (tmp_path / "columns.csv").write_text("score,note\n" + "".join(f"{i / 2},n{i}\n" for i in range(7)))
    fastload.add_columns(tmp_path / "ds", tmp_path / "columns.csv")
    convert(tmp_path / "ds", tmp_path / "dct", encode="dct", shard_samples=2)
    one, other = PackedDataset(tmp_path / "ds"), PackedDataset(tmp_path / "dct")
    assert len(other) == 7
    assert other.classes == one.classes == ["a", "b", "c"]
    for i in range(7):
        for mine, theirs in zip(one[i], other[i], strict=True):
            assert torch.equal(mine, theirs) if isinstance(mine, torch.Tensor) else mine == theirs


def test_attached_images_are_stored(tmp_path: Path) -> None:
    """Images that lay in their files are in the dataset afterwards."""
    source = tree(tmp_path / "src", {f"a/{i}.jpg": encoded(picture(i, 90, 100)) for i in range(4)})
    fastload.attach(source, tmp_path / "index")
    wanted = [PackedDataset(tmp_path / "index")[i][0] for i in range(4)]
    assert convert(tmp_path / "index", tmp_path / "ds", encode="dct").dct == 4
    shutil.rmtree(source)
    assert all(torch.equal(PackedDataset(tmp_path / "ds")[i][0], wanted[i]) for i in range(4))


def test_further_images(tmp_path: Path) -> None:
    """Each is in the form, and none has the index of a JPEG."""
    with tarfile.open(tmp_path / "two.tar", "w") as tar:
        for name, data in (
            (f"{i}.{end}", encoded(picture(i + len(end), 80, 90)))
            for i in range(5)
            for end in ("jpg", "right.jpg")
        ):
            entry = tarfile.TarInfo(name)
            entry.size = len(data)
            tar.addfile(entry, io.BytesIO(data))
    pack(tmp_path / "two.tar", tmp_path / "ds", encode="lossless")
    convert(tmp_path / "ds", tmp_path / "dct", encode="dct")
    with DatasetReader(tmp_path / "dct") as reader:
        for i in range(5):
            fields = reader.record_fields(i)
            assert [kind for _, kind, _ in fields] == [core.KIND_DCT, core.KIND_DCT]
    convert(tmp_path / "dct", tmp_path / "back", encode="lossless")
    assert_equal_datasets(tmp_path / "ds", tmp_path / "back")


def test_what_append_goes_on_with(tmp_path: Path) -> None:
    """Options that changed images stay in the manifest, and change no image again."""
    source = tree(tmp_path / "src", {f"a/{i}.jpg": encoded(picture(i, 90, 200)) for i in range(3)})
    pack(source, tmp_path / "ds", max_side=100)
    convert(tmp_path / "ds", tmp_path / "dct", encode="dct")
    fastload.append(tmp_path / "dct", tree(tmp_path / "more", {"a/x.jpg": encoded(picture(50, 80, 200))}))
    assert [tuple(PackedDataset(tmp_path / "dct")[i][0].shape[1:]) for i in range(4)] == [(45, 100)] * 3 + [
        (40, 100)
    ]


def test_refused(tmp_path: Path) -> None:
    source = tree(tmp_path / "src", {"a/0.jpg": encoded(picture(1, 90, 100))})
    pack(source, tmp_path / "ds")
    with pytest.raises(DatasetError, match="manifest"):
        convert(source, tmp_path / "out")
    with pytest.raises(PackError, match="the source lies in it"):
        convert(tmp_path / "ds", tmp_path / "ds", overwrite=True)
    with pytest.raises(PackError, match=r"--overwrite|exists"):
        convert(tmp_path / "ds", tmp_path / "ds")
    with pytest.raises(ArgumentError, match="encode='zip' is none of lossless, keep, dct, jpeg, raw"):
        convert(tmp_path / "ds", tmp_path / "out", encode="zip")  # type: ignore[typeddict-item]


def test_a_stopped_conversion_goes_on(tmp_path: Path) -> None:
    """A damaged record stops it with its sample's name; what was written stays for resume."""
    files = {f"a/{i}.jpg": encoded(picture(i, 90, 100)) for i in range(6)}
    pack(tree(tmp_path / "src", files), tmp_path / "ds", encode="keep", shard_samples=2)
    with DatasetReader(tmp_path / "ds") as reader:
        shard = tmp_path / "ds" / reader.manifest.shards[1].file
        needle = reader.record(3)[2500:2560]
    data = shard.read_bytes()
    shard.write_bytes(data.replace(needle, bytes(60)))
    with pytest.raises(PackError, match="sample 3"):
        convert(tmp_path / "ds", tmp_path / "out", encode="dct", shard_samples=2, workers=1)
    shard.write_bytes(data)
    assert convert(tmp_path / "ds", tmp_path / "out", encode="dct", shard_samples=2, resume=True).dct == 6
    convert(tmp_path / "ds", tmp_path / "whole", encode="dct", shard_samples=2)
    assert_equal_datasets(tmp_path / "whole", tmp_path / "out")
