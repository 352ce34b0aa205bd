"""Samples of any number of images that stay in their files: what is stored of them, reads, and moved or
changed files."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest
import torch
from documents import documents, write_json, write_parquet, write_tar

import fastload
from fastload import FastLoader, PackedDataset
from fastload import transforms as T
from fastload.errors import FastloadError, PackError, SampleError
from fastload.packing import attach, convert, rebase, unpack, verify
from fastload.store import DatasetReader

ENGINES = ({}, {"engine": "python"}, {"num_workers": 0})


def batches(path: Path, **engine: object) -> list[torch.Tensor]:
    """The images of one epoch, flat."""
    dataset = PackedDataset(path, [T.RandomResizedCrop(24)])
    with FastLoader(dataset, 4, collate="flat", seed=3, **{"num_workers": 2, **engine}) as loader:
        return [batch["images"].values for batch in loader]


@pytest.mark.parametrize("name", ["jsonl", "tar", "unpacked"])
def test_attached_lists_are_the_packed_ones(name: str, tmp_path: Path) -> None:
    """On every engine; a place and its index take a part of an image's bytes, which packing copies later."""
    source = write_tar(tmp_path / "a.tar") if name == "tar" else write_json(tmp_path, "a.jsonl")
    packed, attached, whole = (tmp_path / each for each in ("packed", "attached", "whole"))
    fastload.pack(source, packed, encode="keep")
    if name == "unpacked":
        source = tmp_path / "unpacked"
        unpack(packed, source)
    summary = attach(source, attached)
    assert summary.samples == len(documents())
    with DatasetReader(attached / "images") as images:
        assert images.manifest.shards[0].base is not None
    wanted = batches(packed)
    for engine in ENGINES:
        assert all(map(torch.equal, batches(attached, **engine), wanted))
    assert verify(attached, decode=True).ok
    convert(attached, whole, encode="keep")
    shutil.rmtree(tmp_path / "unpacked") if name == "unpacked" else os.unlink(source)
    assert all(map(torch.equal, batches(whole), wanted))


def test_files_that_moved_or_changed(tmp_path: Path) -> None:
    """A base is relative to the dataset; rebase names another; a changed file is its sample's error."""
    (tmp_path / "data").mkdir()
    source = write_json(tmp_path / "data", "a.jsonl")
    attach(source, tmp_path / "index", base="../data")
    wanted = batches(tmp_path / "index")
    (tmp_path / "all").mkdir()
    for each in ("data", "index"):
        shutil.move(tmp_path / each, tmp_path / "all" / each)
    index = tmp_path / "all" / "index"
    assert all(map(torch.equal, batches(index), wanted))
    shutil.move(tmp_path / "all" / "data", tmp_path / "elsewhere")
    with pytest.raises(FastloadError, match=r"elsewhere|data"):
        batches(index)
    found = [sample["images"] for sample in PackedDataset(index, base=tmp_path / "elsewhere")]
    assert [len(images) for images in found] == [len(row["images"]) for row in documents()]
    assert rebase(index, "../../elsewhere") == len(documents())
    assert all(map(torch.equal, batches(index), wanted))
    assert rebase(index, tmp_path / "elsewhere") == len(documents())
    assert all(map(torch.equal, batches(index), wanted))
    dataset = PackedDataset(index)
    one = next(at for at in range(len(dataset)) if len(dataset[at]["images"]))
    name = sorted((tmp_path / "elsewhere").rglob("*.jpg"))[0]
    name.write_bytes(name.read_bytes()[:-1] + b"\0")
    assert not verify(index).ok
    with pytest.raises(SampleError, match=rf"sample {one}.*{name.name}"):
        PackedDataset(index)[one]


def test_what_cannot_be_attached(tmp_path: Path) -> None:
    with pytest.raises(PackError, match="lists of images do not lie in files: pack it"):
        attach(write_parquet(tmp_path / "a.parquet"), tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_a_resume_goes_on(tmp_path: Path) -> None:
    """Lists whose images are named by several samples are stored once, in their files."""
    source = write_json(tmp_path, "a.jsonl")
    lines = source.read_text().splitlines(keepends=True)
    source.write_text("".join(lines) + "".join(lines).replace('"n": ', '"n": 1'))
    attach(source, tmp_path / "index")
    assert len(PackedDataset(tmp_path / "index")) == 2 * len(documents())
    again = attach(source, tmp_path / "index", resume=True)
    assert (again.samples, again.packed_now) == (2 * len(documents()), 0)
