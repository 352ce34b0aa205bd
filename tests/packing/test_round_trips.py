"""What unpack and export write, pack reads again: every field of every kind is equal, byte for byte."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from annotated_folders import write_layouts
from hypothesis import given, settings
from hypothesis import strategies as st
from packing_helpers import encoded, picture
from stored_equal import assert_equal_datasets

import fastload
from fastload.errors import PackError
from fastload.packing import Item, export, unpack
from fastload.store import BOX_SIDES, Field
from fastload.store.kinds.arrays import ARRAY_DTYPES

pytest.importorskip("pyarrow")

NAMES = (
    "00000000.png",
    "mask",
    "boxes",
    "path",
    "json",
    "jpg",
    "Boxes",
    "a/b",
    "..",
    "x.y",
    "\u732b",
    "label",
    "fields.jsonl",
    "image2",
    "cls",
)


def fields_of(rng: np.random.Generator) -> tuple[Field, ...]:
    """Fields of random kinds, dtypes and shapes, under names that are hard on files."""
    names = rng.permutation(NAMES)[: rng.integers(0, 9)].tolist()
    owner = names[0] if names else ""
    found = []
    for name in names:
        of = owner if rng.random() < 0.5 else ""
        sides = tuple(int(side) for side in rng.integers(1, 4, rng.integers(0, 3)))
        choices = (
            Field(name, "int"),
            Field(name, "float"),
            Field(name, "text"),
            Field(name, "json"),
            Field(name, "bytes"),
            Field(name, "array", str(rng.choice(ARRAY_DTYPES)), sides),
            Field(
                name, "array", str(rng.choice(ARRAY_DTYPES)), (None, *(int(side) for side in rng.integers(1, 4, rng.integers(0, 2)))), of=of
            ),
            Field(name, "mask", str(rng.choice(["uint8", "uint16"]))),
            Field(name, "image", str(rng.choice(["uint8", "uint16"])), (int(rng.choice([1, 3, 4])),)),
            Field(name, "keypoints", shape=(int(rng.integers(1, 4)), int(rng.choice([2, 3]))), of=of),
            Field(name, "polygons", of=of),
            Field(name, "instances", of=of),
        )
        if name == owner or rng.random() < 0.1:
            found.append(Field(name, "boxes", str(rng.choice(["float32", "int64"])), format=str(rng.choice(list(BOX_SIDES)))))
        else:
            found.append(choices[rng.integers(len(choices))])
    return tuple(found)


class Anything:
    """A source of samples of random fields, which follow from a seed."""

    title, concurrent = "anything", True

    def __init__(self, seed: int, count: int) -> None:
        rng = np.random.default_rng(seed)
        self.fields = fields_of(rng)
        self.classes = (None, ("a", "B/b", ".."), ("x",))[rng.integers(3)]
        dtype, channels = [("uint8", 3), ("uint8", 3), ("uint16", 1), ("uint8", 4), ("uint16", 3)][rng.integers(5)]
        self.image_field = Field("image", "image", str(dtype), (int(channels),))
        self._seed, self._count = seed, count

    def __len__(self) -> int:
        return self._count

    def name(self, position: int) -> str:
        return f"sample-{position}"

    def read(self, position: int) -> Item:
        rng = np.random.default_rng((self._seed, position))
        size, objects = (int(rng.integers(1, 9)), int(rng.integers(1, 9))), int(rng.choice([0, 1, 5]))
        image: Any = _pixels(rng, self.image_field, size)
        if self.image_field.is_rgb and position % 2:
            image = encoded(picture(position, *size))
        return Item(self.name(position), image, {field.name: _value(rng, field, size, objects) for field in self.fields})


def _pixels(rng: np.random.Generator, field: Field, size: tuple[int, int]) -> np.ndarray[Any, Any]:
    shape = size if field.channels == 1 else (*size, field.channels)
    return rng.integers(0, np.iinfo(field.dtype or "uint8").max, shape, field.dtype or "uint8", endpoint=True)


def _value(rng: np.random.Generator, field: Field, size: tuple[int, int], objects: int) -> Any:
    count = objects if field.kind == "boxes" or field.of else int(rng.integers(0, 4))
    if field.kind == "int":
        return int(rng.integers(-3, 5))
    if field.kind == "float":
        return float(rng.choice([rng.normal(), 0.1, -0.0, np.nan, np.inf]))
    if field.kind == "text":
        return str(rng.choice(["", "a\nb", '"\u2028\\", ', "\u732b\0x"]))
    if field.kind == "json":
        return [None, {"a": [1.5, True]}, "text", 3, []][rng.integers(5)]
    if field.kind == "bytes":
        return rng.bytes(count)
    if field.kind == "mask":
        return _pixels(rng, field, size)
    if field.kind == "image":
        return _pixels(rng, field, (int(rng.integers(1, 9)), 3))
    if field.kind == "polygons":
        return [[rng.normal(0, 9, 2 * rng.integers(0, 4)).tolist() for _ in range(rng.integers(0, 3))] for _ in range(count)]
    if field.kind == "instances":
        return rng.integers(0, 2, (count, *size), dtype=np.uint8)
    shape = (count, *field.row_shape) if field.is_varying else field.shape
    if field.kind == "boxes":
        return rng.integers(0, 50, shape) + (0.1 if field.dtype == "float32" else 0) + (np.arange(shape[1]) > 1) * 50
    return _numbers(rng, np.dtype(field.dtype), shape, finite=field.kind == "keypoints")


def _numbers(rng: np.random.Generator, dtype: np.dtype[Any], shape: Any, finite: bool) -> np.ndarray[Any, Any]:
    if dtype.kind == "f":
        values = (rng.normal(size=shape) * 10.0 ** rng.integers(-6, 4, shape)).astype(dtype)
        return values if finite else np.where(rng.random(shape) < 0.1, dtype.type(np.nan), values)
    if dtype.kind == "b":
        return rng.random(shape) < 0.5
    limits = np.iinfo(dtype)
    return rng.integers(limits.min, limits.max, shape, dtype, endpoint=True)


@given(seed=st.integers(0, 2**32), count=st.integers(1, 4))
@settings(max_examples=40, deadline=None)
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
    """Images and labels come back in their order, with their class names; class folders that say all stand alone."""
    fastload.pack(Classed(labels, classes), tmp_path / "first")
    unpack(tmp_path / "first", tmp_path / "files")
    assert (tmp_path / "files/fastload.json").exists() != plain
    fastload.pack(tmp_path / "files", tmp_path / "again")
    assert_equal_datasets(tmp_path / "first", tmp_path / "again")


@pytest.fixture(scope="module")
def layouts(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Datasets for detection and segmentation in the layouts that `pack` recognises."""
    root = tmp_path_factory.mktemp("layouts")
    write_layouts(root)
    return root


SOURCES = {
    "coco": ("coco", {}), "panoptic": ("folders", {}), "VOC2012": ("folders", {"format": "voc", "split": "train"}),
    "yolo": ("folders", {"split": "train"}), "pairs": ("pairs", {}), "ade": ("pairs", {"split": "training"}),
    "cityscapes": ("folders", {"split": "train"}),
}  # fmt: skip


@pytest.mark.parametrize("name", SOURCES)
def test_layouts(layouts: Path, tmp_path: Path, name: str) -> None:
    """A dataset of each layout is unpacked to the best known layout that holds all its fields, which gives an equal dataset."""
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
    """More JSON than `pack` reads is not written, but refused, and Parquet is named; up to that it is read again."""
    fastload.pack(Long(), tmp_path / "first")
    line, member = '{"path": "00000000.png", "blob": "MTIzNDU="}\n', '{"blob": "MTIzNDU="}'
    monkeypatch.setattr("fastload.packing.sources.declaration.JSON_BYTES", len(line) - too_long)
    if too_long:
        with pytest.raises(PackError, match=r"^sample 0: its values are 44 bytes of JSON, .* 44: export to .parquet holds"):
            unpack(tmp_path / "first", tmp_path / "files")
        monkeypatch.setattr("fastload.packing.sources.declaration.JSON_BYTES", len(member))
        with pytest.raises(PackError, match=r"^sample 0: its values are 20 bytes of JSON, .*: a .parquet file holds them"):
            export(tmp_path / "first", tmp_path / "out.tar")
        return
    unpack(tmp_path / "first", tmp_path / "files")
    monkeypatch.undo()
    fastload.pack(tmp_path / "files", tmp_path / "again")
    assert_equal_datasets(tmp_path / "first", tmp_path / "again")


def test_a_picture_that_is_not_beside_the_table(tmp_path: Path) -> None:
    """A further picture whose bytes were taken out of an exported table is looked for by its path, and named where it is not there."""
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
