"""What unpack and export write, pack reads again: every field of every kind is equal, byte for byte."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from annotated_folders import write_layouts
from any_fields import Anything
from hypothesis import given, settings
from hypothesis import strategies as st
from stored_equal import assert_equal_datasets

import fastload
from fastload.errors import PackError
from fastload.packing import Item, export, unpack
from fastload.store import Field

pytest.importorskip("pyarrow")


@given(seed=st.integers(0, 2**32), count=st.integers(1, 4))
@settings(max_examples=40)
def test_every_field_of_every_kind(seed: int, count: int) -> None:
    """A dataset of any fields comes back from files, from a tar and from Parquet; a tar has no infinities."""
    source = Anything(seed, count)
    with tempfile.TemporaryDirectory() as folder:
        top = Path(folder)
        fastload.pack(source, top / "first", workers=1)
        unpack(top / "first", top / "files", layout="folders", workers=1)
        export(top / "first", top / "out.tar", workers=1)
        export(top / "first", top / "out.parquet", workers=1)
        fastload.pack(top / "files", top / "again", workers=1)
        assert_equal_datasets(top / "first", top / "again")
        fastload.pack(top / "out.parquet", top / "from_parquet", workers=1)
        assert_equal_datasets(top / "first", top / "from_parquet")
        fastload.pack(top / "out.tar", top / "from_tar", workers=1)
        assert_equal_datasets(top / "first", top / "from_tar", infinite=False)


class Classed:
    """Images of classes, in a given order of labels."""

    def __init__(self, labels: list[int], classes: list[str] | None) -> None:
        self._labels, self.classes = labels, classes

    def __len__(self) -> int:
        return len(self._labels)

    def __getitem__(self, index: int) -> Any:
        return np.full((2, 3, 3), index, np.uint8), self._labels[index]


@pytest.mark.parametrize(
    ("labels", "classes", "plain"),
    [
        ([0, 0, 1, 2], ["a", "b", "c"], True),
        ([0, 1, 0, 2], ["a", "b", "c"], False),
        ([0, 0, 2, 2], ["a", "b", "c"], False),
        ([0, 1, 1, 2], ["c", "b", "a"], False),
        ([0, 1, 1, 2], ["a", "a/b", "b"], False),
        ([0, 1, 1], ["images", "labels"], False),
        ([0, 0, 1], ["img", "mask"], False),
        ([0, 1, 1], ["gtFine", "leftImg8bit"], False),
        ([0, 1, 1], ["Annotations", "JPEGImages"], False),
        ([0, 1, 1], ["train", "val"], False),
        ([0, 1, 1], [".git", "data.mdb"], True),
        ([0, 1, 1, 2], None, False),
        ([-3, 7, 7, 9], None, False),
    ],
)
def test_class_folders(tmp_path: Path, labels: list[int], classes: list[str] | None, plain: bool) -> None:
    """Images and labels come back in their order, with their class names; class folders that say all stand
    alone."""
    fastload.pack(Classed(labels, classes), tmp_path / "first")
    unpack(tmp_path / "first", tmp_path / "files")
    assert (tmp_path / "files/fastload.json").exists() != plain
    fastload.pack(tmp_path / "files", tmp_path / "again")
    assert_equal_datasets(tmp_path / "first", tmp_path / "again")


@pytest.mark.parametrize(
    ("labels", "classes", "renumbered"),
    [
        ([0, 0, 2, 2], ["a", "b", "c"], False),
        ([1, 2], ["a", "b", "c", "d", "e"], False),
        ([0, 1, 3], ["a", "b", "b/x", "b_x"], False),
        ([0, 1], ["b", "a"], True),
        ([0, 1, 2], ["b", "a", "c"], True),
        ([0, 5], ["a", "b"], True),
        ([0, 2], None, True),
        ([0, 1, 2], None, False),
    ],
)
def test_torchvision_numbers_class_folders_alike(
    tmp_path: Path, labels: list[int], classes: list[str] | None, renumbered: bool
) -> None:
    """Class folders have the dataset's labels in torchvision too, also beside classes without a sample, or
    unpack says otherwise."""
    folder = pytest.importorskip("torchvision.datasets").ImageFolder
    fastload.pack(Classed(labels, classes), tmp_path / "first")
    summary = unpack(tmp_path / "first", tmp_path / "files")
    found = folder(tmp_path / "files", allow_empty=True)
    numbers = {int(Path(path).stem): label for path, label in found.samples}
    assert summary.renumbered == renumbered == (numbers != dict(enumerate(labels)))
    assert summary.folders == len(found.classes) >= len(classes or ())


@pytest.fixture(scope="module")
def layouts(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Datasets for detection and segmentation in the layouts that `pack` recognises."""
    root = tmp_path_factory.mktemp("layouts")
    write_layouts(root)
    return root


SOURCES = {
    "coco": ("coco", {}), "panoptic": ("folders", {}), "VOC2012": ("folders", {"format": "voc",
    "split": "train"}),
    "yolo": ("folders", {"split": "train"}), "pairs": ("pairs", {}), "ade": ("pairs", {"split": "training"}),
    "cityscapes": ("folders", {"split": "train"}),
}  # fmt: skip


@pytest.mark.parametrize("name", SOURCES)
def test_layouts(layouts: Path, tmp_path: Path, name: str) -> None:
    """A dataset of each layout is unpacked to the best known layout that holds all its fields, which gives
    an equal dataset."""
    layout, options = SOURCES[name]
    fastload.pack(layouts / name, tmp_path / "first", **options)
    summary = unpack(tmp_path / "first", tmp_path / "files")
    assert summary.layout == layout
    fastload.pack(tmp_path / "files", tmp_path / "again")
    assert_equal_datasets(tmp_path / "first", tmp_path / "again")


class Long:
    """One sample with as many bytes as a field holds."""

    title, concurrent, classes = "long", True, None
    fields = (Field("blob", "bytes"),)

    def __len__(self) -> int:
        return 1

    def name(self, position: int) -> str:
        return f"sample-{position}"

    def read(self, position: int) -> Item:
        return Item(self.name(position), np.zeros((2, 2, 3), np.uint8), {"blob": b"12345"})


@pytest.mark.parametrize("too_long", [False, True])
def test_values_that_no_line_holds(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, too_long: bool) -> None:
    """More JSON than `pack` reads is not written, but refused, and Parquet is named; up to that it is read
    again."""
    fastload.pack(Long(), tmp_path / "first")
    line, member = '{"path": "00000000.png", "blob": "MTIzNDU="}\n', '{"blob": "MTIzNDU="}'
    monkeypatch.setattr("fastload.sources.declaration.JSON_BYTES", len(line) - too_long)
    if too_long:
        with pytest.raises(
            PackError, match=r"^sample 0: its values are 44 bytes of JSON, .* 44: export to .parquet holds"
        ):
            unpack(tmp_path / "first", tmp_path / "files")
        monkeypatch.setattr("fastload.sources.declaration.JSON_BYTES", len(member))
        with pytest.raises(
            PackError, match=r"^sample 0: its values are 20 bytes of JSON, .*: a .parquet file holds them"
        ):
            export(tmp_path / "first", tmp_path / "out.tar")
        return
    unpack(tmp_path / "first", tmp_path / "files")
    monkeypatch.undo()
    fastload.pack(tmp_path / "files", tmp_path / "again")
    assert_equal_datasets(tmp_path / "first", tmp_path / "again")


def test_a_picture_that_is_not_beside_the_table(tmp_path: Path) -> None:
    """A further picture whose bytes were taken out of an exported table is looked for by its path, and
    named where it is not there."""
    arrow, parquet = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
    write_layouts(tmp_path)
    fastload.pack(tmp_path / "pairs", tmp_path / "first")
    export(tmp_path / "first", tmp_path / "out.parquet")
    table = parquet.read_table(tmp_path / "out.parquet")
    at = table.schema.get_field_index("mask")
    masks = arrow.array([{"bytes": None, "path": "gone.png"}] * len(table), table.schema.types[at])
    parquet.write_table(table.set_column(at, table.schema.field(at), masks), tmp_path / "out.parquet")
    with pytest.raises(PackError, match=r"row 0: its 'mask': .*gone.png cannot be read: No such file"):
        fastload.pack(tmp_path / "out.parquet", tmp_path / "again")
