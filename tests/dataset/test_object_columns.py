"""Boxes, keypoints, instances, polygons and rows of any number are columns of table() and of conditions:
those of the samples."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scenes import Scenes

import fastload
from fastload import PackedDataset
from fastload.errors import ArgumentError
from fastload.packing import Item
from fastload.store import DatasetWriter, Field, Schema

pytest.importorskip("duckdb")
pa = pytest.importorskip("pyarrow")
coco_mask = pytest.importorskip("pycocotools.mask")

COUNT = 20


class WithPolygons(Scenes):
    """Scenes with a further image, and an outline for each box: of one triangle, of several parts, or of
    none."""

    fields = (
        *Scenes.fields,
        Field("right", "image"),
        Field("lines", "polygons", of="boxes"),
        Field("flags", "array", "bool", (None, 2)),
    )

    def read(self, position: int) -> Item:
        item = super().read(position)
        rng = np.random.default_rng(position)
        count = len(np.asarray(item.values["boxes"]))
        item.values["lines"] = [[rng.random(6).tolist()] * (row % 3) for row in range(count)]
        item.values["flags"] = rng.random((position % 3, 2)) < 0.5
        item.values["right"] = np.zeros((4 + position, 5, 3), np.uint8)
        return item


@pytest.fixture(scope="module")
def dataset(tmp_path_factory: pytest.TempPathFactory) -> PackedDataset:
    """The scenes, packed; of the first six, 0 has no objects and 2 a thousand."""
    out = tmp_path_factory.mktemp("columns") / "scenes.fl"
    fastload.pack(WithPolygons(COUNT), out, workers=2)
    return PackedDataset(out)


def found(dataset: PackedDataset, condition: str) -> list[int]:
    """Indices of the samples for which a condition is true."""
    return [int(index) for index in dataset.where(condition).indices]


@pytest.mark.filterwarnings("ignore:__array__ implementation:DeprecationWarning")  # pycocotools' own decode
def test_the_table_has_the_values_of_the_samples(dataset: PackedDataset) -> None:
    """Each row is what dataset[i] has; instances are what pycocotools decodes to the masks."""
    table = dataset.table()
    rows = table.to_pylist()
    for index in range(COUNT):
        sample, row = dataset[index], rows[index]
        for name in ("boxes", "labels", "points", "tokens", "flags"):
            assert np.array_equal(
                np.array(row[name], sample[name].numpy().dtype).reshape(sample[name].shape),
                sample[name].numpy(),
            ), name
        masks = [coco_mask.decode(each) for each in row["masks"]]
        assert len(masks) == len(sample["masks"])
        assert all(
            np.array_equal(mask, wanted) for mask, wanted in zip(masks, sample["masks"].numpy(), strict=True)
        )
        assert [[len(part) for part in parts] for parts in row["lines"]] == [
            [2 * len(p) for p in parts] for parts in sample["lines"]
        ]
        flat = [number for parts in row["lines"] for part in parts for number in part]
        assert flat == [
            number for parts in sample["lines"] for part in parts for number in part.reshape(-1).tolist()
        ]
        assert (row["boxes_count"], row["tokens_count"]) == (len(sample["boxes"]), len(sample["tokens"]))
        assert (row["width"], row["right_height"]) == (sample["image"].shape[2], sample["right"].shape[1])


def test_types(dataset: PackedDataset) -> None:
    """Rows are lists of lists of fixed size in their field's dtype; the columns follow the fields, without
    pixels."""
    schema = dataset.table().schema
    assert schema.names == [
        "number", "boxes", "labels", "points", "masks", "tokens", "lines", "flags", "width", "height",
        "boxes_count", "tokens_count",
        "right_width", "right_height", "flags_count",
    ]  # fmt: skip
    assert schema.field("boxes").type.equals(pa.large_list(pa.list_(pa.float32(), 4)))
    assert schema.field("points").type.equals(pa.large_list(pa.list_(pa.list_(pa.float32(), 3), 3)))
    assert schema.field("labels").type.equals(pa.large_list(pa.int64()))
    assert schema.field("flags").type.equals(pa.large_list(pa.list_(pa.bool_(), 2)))


CONDITIONS = {
    "boxes_count > 3": lambda sample: len(sample["boxes"]) > 3,
    "len(boxes) = 0": lambda sample: len(sample["boxes"]) == 0,
    "boxes_count = len(labels) and len(points) = len(masks)": lambda sample: True,
    "901 in labels": lambda sample: 901 in sample["labels"],
    "list_max(list_transform(boxes, lambda b: b[3] - b[1])) > 50": lambda s: (
        len(s["boxes"]) > 0 and bool(((s["boxes"][:, 2] - s["boxes"][:, 0]).max() > 50).item())
    ),
    "list_sum(tokens) between 1 and 3": lambda sample: (
        len(sample["tokens"]) > 0 and 1 <= int(sample["tokens"].sum()) <= 3
    ),
    "len(list_filter(points, lambda p: p[1][3] = 2)) >= 2": lambda sample: (
        int((sample["points"][:, 0, 2] == 2).sum()) >= 2
    ),
    "len(lines[2]) = 1 and len(lines[2][1]) = 6": lambda sample: len(sample["lines"]) > 1,
    "masks[1].size[1] < 40": lambda sample: len(sample["masks"]) > 0 and sample["masks"].shape[1] < 40,
    "list_contains(list_transform(flags, lambda f: f[1]), true)": lambda sample: bool(
        sample["flags"][:, 0].any()
    ),
    "right_height = 9": lambda sample: sample["right"].shape[1] == 9,
}


@pytest.mark.parametrize("condition", CONDITIONS)
def test_conditions(dataset: PackedDataset, condition: str) -> None:
    """A condition over objects finds what Python finds sample by sample, those without objects among them."""
    wanted = [index for index in range(COUNT) if CONDITIONS[condition](dataset[index])]
    assert found(dataset, condition) == wanted
    assert wanted


@given(st.integers(0, 1100), st.sampled_from(["<", "<=", "=", ">=", ">", "<>"]))
def test_counts_and_lengths_agree(dataset: PackedDataset, bound: int, sign: str) -> None:
    """The number of rows of the hidden column is the length of the list, for every comparison."""
    assert found(dataset, f"boxes_count {sign} {bound}") == found(dataset, f"len(boxes) {sign} {bound}")


def test_counts_read_no_records(dataset: PackedDataset) -> None:
    """A condition on a number of rows or a size is answered without a pass over the dataset."""
    columns = dataset.opened.columns
    assert not any(
        columns.lies_in_records(name) for name in ("boxes_count", "right_width", "width", "number")
    )
    assert columns.lies_in_records("boxes")


@pytest.mark.parametrize(
    ("name", "kind"), [("mask", "mask"), ("right", "image"), ("image", "image"), ("RIGHT", "image")]
)
def test_pixels_are_no_column(dataset: PackedDataset, name: str, kind: str) -> None:
    """A condition that names a field of pixels is told so, with what to do."""
    with pytest.raises(
        ArgumentError,
        match=f"there is no column '{name}': it is a field of kind {kind}, .* compare its width",
    ):
        dataset.where(f'"{name}" = 1')


def test_names_that_fields_have(tmp_path: Path) -> None:
    """A field of the name of a derived column comes before it."""
    schema = Schema(
        (Field("image", "image"), Field("boxes", "boxes", format="xyxy"), Field("boxes_count", "text"))
    )
    writer = DatasetWriter(tmp_path / "d", schema, shard_size=1 << 20, options={})
    writer.append(
        {"image": np.zeros((2, 2, 3), np.uint8), "boxes": [], "boxes_count": "mine"},
        image_kind="raw",
        height=2,
        width=2,
    )
    writer.finish(None, {})
    assert PackedDataset(tmp_path / "d").table().to_pylist() == [
        {"boxes": [], "boxes_count": "mine", "width": 2, "height": 2}
    ]
