"""Samples of any number of images that stay in their files: what is stored of them, reads, and moved or
changed files."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pyarrow as pa
import pytest
import torch
from documents import STRUCT, documents, file_of, write_arrow, write_json, write_parquet, write_tar

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


WRITERS = {
    "jsonl": lambda folder: write_json(folder, "a.jsonl"),
    "tar": lambda folder: write_tar(folder / "a.tar"),
    "arrow": lambda folder: write_arrow(folder / "a.arrow"),
}


@pytest.mark.parametrize("name", ["jsonl", "tar", "arrow", "unpacked"])
def test_attached_lists_are_the_packed_ones(name: str, tmp_path: Path) -> None:
    """On every engine; a place and its index take a part of an image's bytes, which packing copies later."""
    source = WRITERS.get(name, WRITERS["jsonl"])(tmp_path)
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
    compressed = write_arrow(tmp_path / "a.arrow", compression="zstd")
    with pytest.raises(PackError, match="row 1: its images are compressed: pack the source"):
        attach(compressed, tmp_path / "out")


@pytest.mark.parametrize("large", [False, True])
def test_lists_in_arrow_files_have_nulls_and_paths(large: bool, tmp_path: Path) -> None:
    """Null lists and null images are none; an image without bytes is the file that it names."""
    first, second, third = (file_of(9, number) for number in range(3))
    (tmp_path / "one.jpg").write_bytes(second)
    image = [{"bytes": data, "path": "one.jpg"} for data in (first, None, third)]
    rows = [None, [image[0], None, image[1]], [], [None], [image[1], image[2], image[2]]]
    lists = (pa.large_list if large else pa.list_)(STRUCT)
    columns = pa.table({"n": list(range(len(rows))), "images": pa.array(rows, lists)})
    source = write_arrow(tmp_path / "a.arrow", columns)
    fastload.pack(source, tmp_path / "packed", encode="keep")
    attach(source, tmp_path / "attached")
    packed, attached = (PackedDataset(tmp_path / name) for name in ("packed", "attached"))
    assert [len(sample["images"]) for sample in attached] == [0, 2, 0, 0, 3]
    for one, other in zip(packed, attached, strict=True):
        assert all(map(torch.equal, one["images"], other["images"]))


def test_a_missing_image_is_its_samples_error(tmp_path: Path) -> None:
    """The first one, too, by which the folder of several files is found."""
    (tmp_path / "there.jpg").write_bytes(file_of(9, 0))
    for name, paths in {"a": ["gone.jpg", "there.jpg"], "b": ["there.jpg"]}.items():
        rows = [[{"bytes": None, "path": path}] for path in paths]
        write_arrow(tmp_path / f"{name}.arrow", pa.table({"images": pa.array(rows, pa.list_(STRUCT))}))
    summary = attach(str(tmp_path / "*.arrow"), tmp_path / "index", on_error="skip")
    assert (summary.samples, summary.skipped_count) == (2, 1)
    with pytest.raises(PackError, match="row 0: cannot be read: No such file"):
        attach(str(tmp_path / "*.arrow"), tmp_path / "other")


def test_a_base_of_several_files(tmp_path: Path) -> None:
    """It is the folder of the first image."""
    (tmp_path / "data").mkdir()
    for name in ("a", "b"):
        write_arrow(tmp_path / "data" / f"{name}.arrow")
    attach(str(tmp_path / "data" / "*.arrow"), tmp_path / "index", base="../data")
    wanted = batches(tmp_path / "index")
    shutil.move(tmp_path / "data", tmp_path / "moved")
    assert rebase(tmp_path / "index", "../moved") == 2 * len(documents())
    assert all(map(torch.equal, batches(tmp_path / "index"), wanted))


def test_a_resume_goes_on(tmp_path: Path) -> None:
    """Lists whose images are named by several samples are stored once, in their files."""
    source = write_json(tmp_path, "a.jsonl")
    lines = source.read_text().splitlines(keepends=True)
    source.write_text("".join(lines) + "".join(lines).replace('"n": ', '"n": 1'))
    attach(source, tmp_path / "index")
    assert len(PackedDataset(tmp_path / "index")) == 2 * len(documents())
    again = attach(source, tmp_path / "index", resume=True)
    assert (again.samples, again.packed_now) == (2 * len(documents()), 0)
