"""Layout, fields and classes with their counts: in the summary of a pack, in the manifest, in `info` and
in a dataset's repr."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from coco_objects import write_coco
from packing_helpers import encoded, picture, tree

import fastload
from fastload import PackedDataset
from fastload.errors import PackError
from fastload.packing import Item, convert
from fastload.store import DatasetReader, Field, Manifest
from fastload.store.class_counts import class_counts, class_lines, classes_text

JPEG = encoded(picture(1, 16, 24))


def folder(root: Path, **counts: int) -> Path:
    """Class folders with so many images each."""
    return tree(
        root, {f"{name}/{number}.jpg": JPEG for name, count in counts.items() for number in range(count)}
    )


def counted(path: Path) -> dict[str, dict[int, int]]:
    """The counts that a dataset's manifest has."""
    return class_counts(Manifest.load(path))


def test_a_summary_says_what_was_found(tmp_path: Path) -> None:
    """The layout, each field with its kind, and the samples of each class; so do manifest and repr, which
    name five."""
    summary = fastload.pack(folder(tmp_path / "src", a=1, b=2, c=1, d=3, e=1, f=1, g=2), tmp_path / "x.fl")
    assert summary.layout == "class folders"
    assert summary.fields == (Field("image", "image"), Field("label", "int"))
    assert summary.classes == tuple("abcdefg")
    assert (
        summary.class_counts
        == {"label": {0: 1, 1: 2, 2: 1, 3: 3, 4: 1, 5: 1, 6: 2}}
        == counted(tmp_path / "x.fl")
    )
    assert repr(PackedDataset(tmp_path / "x.fl")).split("\n") == [
        f"PackedDataset('{tmp_path}/x.fl', 11 samples, fields=['image', 'label'])",
        "  layout: class folders",
        "  fields: image (image), label (int)",
        "  classes in label: 7: a (1), b (2), c (1), d (3), e (1), and 2 more",
    ]
    # The classes have names all the same.
    assert repr(PackedDataset(tmp_path / "x.fl", fields=("image",))).count("\n") == 3
    assert repr(fastload.FastLoader(PackedDataset(tmp_path / "x.fl"), batch_size=2)).count("\n") == 1


def test_classes_of_objects(tmp_path: Path) -> None:
    """Objects are counted by the class of each; an image's id is no class."""
    summary = fastload.pack(write_coco(tmp_path / "src", images=4), tmp_path / "x.fl")
    assert summary.layout == "COCO"
    assert summary.class_counts == {"labels": {0: 4, 1: 2, 2: 2}} == counted(tmp_path / "x.fl")
    assert "classes in labels: 3: person (4), dog (2), car (2)" in repr(PackedDataset(tmp_path / "x.fl"))


class Some:
    """Samples of which those of some numbers cannot be read, and whose labels have no names."""

    title, classes, concurrent = "some", None, True
    fields = (Field("label", "int"),)

    def __init__(self, labels: list[int], bad: int = -1) -> None:
        self._labels, self._bad = labels, bad

    def __len__(self) -> int:
        return len(self._labels)

    def name(self, position: int) -> str:
        return f"sample-{position}"

    def read(self, position: int) -> Item:
        return Item(
            self.name(position),
            JPEG if position != self._bad else b"no image",
            {"label": self._labels[position]},
        )


def test_what_is_counted(tmp_path: Path) -> None:
    """Samples that are there, once each, also after a resume; labels without names, if they are few."""
    with pytest.raises(PackError, match="sample-5"):
        fastload.pack(Some([7, 7, 3, 3, 3, 7, 3], bad=5), tmp_path / "x.fl", shard_samples=2)
    summary = fastload.pack(
        Some([7, 7, 3, 3, 3, 7, 3], bad=5), tmp_path / "x.fl", shard_samples=2, resume=True, on_error="skip"
    )
    assert summary.class_counts == {"label": {3: 4, 7: 2}}
    again = fastload.pack(
        Some([7, 7, 3, 3, 3, 7, 3], bad=5), tmp_path / "x.fl", shard_samples=2, resume=True, on_error="skip"
    )
    assert (again.class_counts, again.fields, again.layout) == (
        summary.class_counts,
        summary.fields,
        summary.layout,
    )
    many = fastload.pack(Some(list(range(1001))), tmp_path / "y.fl")
    assert many.class_counts == counted(tmp_path / "y.fl") == {}
    assert "classes" not in repr(PackedDataset(tmp_path / "y.fl"))


def test_counts_follow_changes(tmp_path: Path) -> None:
    """What append and concat add is counted; after a drop labels are counted by their column; convert
    keeps counts."""
    fastload.pack(folder(tmp_path / "src", a=2, b=1), tmp_path / "x.fl")
    fastload.append(tmp_path / "x.fl", folder(tmp_path / "more", b=1, c=3))
    assert counted(tmp_path / "x.fl") == {"label": {0: 2, 1: 2, 2: 3}}
    fastload.pack(tmp_path / "src", tmp_path / "y.fl")
    fastload.concat([tmp_path / "y.fl", tmp_path / "y.fl"], tmp_path / "z.fl")
    assert counted(tmp_path / "z.fl") == {"label": {0: 4, 1: 2}}
    assert Manifest.load(tmp_path / "z.fl").summary["layout"] == "class folders"
    fastload.drop(tmp_path / "x.fl", indices=[0, 6])
    assert counted(tmp_path / "x.fl") == {}
    with DatasetReader(tmp_path / "x.fl") as reader:
        assert class_counts(reader.manifest, reader) == {"label": {0: 1, 1: 2, 2: 2}}
    assert "3: a (1), b (2), c (2)" in repr(PackedDataset(tmp_path / "x.fl"))
    fastload.pack(write_coco(tmp_path / "coco", images=4), tmp_path / "c.fl")
    convert(tmp_path / "c.fl", tmp_path / "d.fl", encode="dct")
    assert counted(tmp_path / "d.fl") == counted(tmp_path / "c.fl") == {"labels": {0: 4, 1: 2, 2: 2}}
    convert(tmp_path / "x.fl", tmp_path / "e.fl", encode="raw")
    assert counted(tmp_path / "e.fl") == {"label": {0: 1, 1: 2, 2: 2}}
    fastload.drop(tmp_path / "c.fl", indices=[0])
    assert "classes in labels: 3: person, dog, car" in repr(PackedDataset(tmp_path / "c.fl"))


@pytest.mark.parametrize(
    "stored",
    [
        None, 3, [], {}, {"samples": 3}, {"samples": 3, "labels": 1}, {"samples": 3, "labels": {"label": 1}},
        {"samples": "3", "labels": {"label": {"0": 3}}}, {"samples": 3, "labels": {"label": {"x": 3}}},
        {"samples": 3, "labels": {"label": {"0": None}}}, {"samples": 2, "labels": {"label": {"0": 2}}},
        {"samples": 3, "labels": {"other": {"0": 3}}},
    ],
    ids=str,
)  # fmt: skip
def test_counts_that_do_not_hold(tmp_path: Path, stored: Any) -> None:
    """Counts of other samples, as an older release leaves them after a change, and anything else in their
    place are not shown."""
    fastload.pack(folder(tmp_path / "src", a=2, b=1), tmp_path / "x.fl")
    manifest = Manifest.load(tmp_path / "x.fl")
    Manifest(
        manifest.schema, manifest.shards, manifest.classes, manifest.options, {"class_counts": stored}
    ).write(tmp_path / "x.fl")
    assert counted(tmp_path / "x.fl") == {}
    assert "layout" not in repr(PackedDataset(tmp_path / "x.fl"))
    assert "classes in label: 2: a (2), b (1)" in repr(PackedDataset(tmp_path / "x.fl"))


def test_counting_keeps_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Labels of a dataset without counts are counted shard by shard, and no column stays in memory for it."""
    monkeypatch.setattr("fastload.store.reader.HELD_BYTES", 0)
    fastload.pack(folder(tmp_path / "src", a=3, b=2), tmp_path / "x.fl", shard_samples=2)
    with DatasetReader(tmp_path / "x.fl") as reader:
        assert class_counts(replace(reader.manifest, summary={}), reader) == {"label": {0: 3, 1: 2}}
        assert not reader._columns


def test_classes_in_words() -> None:
    """Five classes are named; those without a sample have a 0; a dataset of masks has names alone."""
    assert classes_text(["a", "b"], {0: 1200}) == "2: a (1,200), b (0)"
    assert classes_text(None, {3: 1, 9: 2}) == "2: 3 (1), 9 (2)"
    assert classes_text(["a"], {0: 1, 4: 1}) == "2: a (1), 4 (1)"
    assert classes_text(None, None) == ""
    schema = (Field("image", "image"), Field("mask", "mask"))
    assert class_lines(schema, ["sky", "road"], {}) == [("classes", "2: sky, road")]
    assert class_lines(schema, None, {}) == []


def test_ints_of_numpy_and_bools(tmp_path: Path) -> None:
    """Labels are counted by their number, whatever kind of number a Dataset gives."""

    class Pairs:
        classes = ("no", "yes")

        def __len__(self) -> int:
            return 4

        def __getitem__(self, index: int) -> Any:
            label = (True, np.int64(1), np.uint8(0), 1)[index]
            return np.full((4, 4, 3), index, np.uint8), label

    summary = fastload.pack(Pairs(), tmp_path / "x.fl")
    assert summary.layout == "a Dataset (Pairs)"
    assert summary.class_counts == {"label": {0: 1, 1: 3}}
