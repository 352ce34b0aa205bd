"""Columns of objects (fastload/sources/object_column.py): boxes, labels and what else Hugging Face's
detection datasets have."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hugging_face_files import IMAGE, arrow, jpeg, parquet
from hypothesis import given
from hypothesis import strategies as st
from torchvision import tv_tensors
from torchvision.transforms import v2

import fastload
from fastload import PackedDataset
from fastload.errors import ArgumentError, PackError, PackStoppedError
from fastload.sources.object_column import ObjectColumn
from fastload.store import Field

pa = pytest.importorskip("pyarrow")

Objects = dict[str, list[Any]]
NAMES = ["coin", "cell", "leaf"]
MEMBERS = {
    "id": pa.int64(),
    "bbox": pa.list_(pa.float32(), 4),
    "area": pa.float32(),
    "category": pa.int64(),
    "crowd": pa.bool_(),
    "outline": pa.list_(pa.list_(pa.float64())),
}
FIELDS = [
    Field("id", "int"),
    Field("boxes", "boxes", format="xywh"),
    Field("objects_id", "array", "int64", (None,), of="boxes"),
    Field("area", "array", "float32", (None,), of="boxes"),
    Field("labels", "array", "int64", (None,), of="boxes"),
    Field("crowd", "array", "bool", (None,), of="boxes"),
    Field("outline", "json"),
]


def objects(count: int, first: int = 0) -> Objects:
    """Some objects of an image of 40 x 50 or more."""
    numbers = range(first, first + count)
    return {
        "id": [2**60 + n for n in numbers],
        "bbox": [[n % 9 + 0.5, 3, 10, 20 + n % 7] for n in numbers],
        "area": [200.25 + n for n in numbers],
        "category": [n % 3 for n in numbers],
        "crowd": [n % 2 == 0 for n in numbers],
        "outline": [[[1.0, 2.0, 3.0, 4.0 + n]] for n in numbers],
    }


OF = [objects(0), objects(2), objects(5, 2), objects(0), objects(1, 7)]


def of_lists(samples: list[Objects]) -> Any:
    """The column as Hugging Face's library writes a dict of lists."""
    return pa.array(samples, pa.struct([(name, pa.list_(kind)) for name, kind in MEMBERS.items()]))


def of_dicts(samples: list[Objects]) -> Any:
    """The column as it writes a list of dicts."""
    rows = [
        [dict(zip(each, values, strict=True)) for values in zip(*each.values(), strict=True)]
        for each in samples
    ]
    return pa.array(rows, pa.list_(pa.struct(list(MEMBERS.items()))))


def table(column: Any, feature: Any = None) -> Any:
    features = {
        "info": {
            "features": {
                "objects": feature or {"category": {"feature": {"names": NAMES, "_type": "ClassLabel"}}}
            }
        }
    }
    images = pa.array([{"bytes": jpeg(n), "path": None} for n in range(len(column))], IMAGE)
    columns = {"image": images, "id": pa.array(range(len(column))), "objects": column}
    return pa.table(columns).replace_schema_metadata({"huggingface": json.dumps(features)})


def dataset(root: Path, rows: Any) -> Any:
    hf = pytest.importorskip("datasets")
    found = hf.Dataset.from_parquet(str(parquet(root, rows)), cache_dir=str(root / "cache"))
    return found.cast_column("image", hf.Image())


def rows_of(root: Path, rows: Any) -> list[dict[str, Any]]:
    """A Dataset of dicts that nobody describes."""
    return [{**row, "image": row["image"]["bytes"]} for row in rows.to_pylist()]


def assert_holds(path: Path, samples: list[Objects], like: list[Field] = FIELDS) -> None:
    found = PackedDataset(path)
    assert [field.name for field in found.opened.reader.schema] == ["image", *(field.name for field in like)]
    assert len(found) == len(samples)
    for number, want in enumerate(samples):
        got = found[number]
        assert got["id"] == number
        assert got["boxes"].tolist() == np.array(want["bbox"], np.float32).reshape(-1, 4).tolist()
        names = {"objects_id": "id", "area": "area", "labels": "category", "crowd": "crowd"}
        assert {name: got[name].tolist() for name in names} == {
            name: want[member] for name, member in names.items()
        }
        assert got["outline"] == want["outline"]


@pytest.mark.parametrize("column", [of_lists, of_dicts])
@pytest.mark.parametrize("source", [parquet, arrow, dataset, rows_of])
def test_objects_are_fields(
    tmp_path: Path, source: Callable[[Path, Any], Any], column: Callable[[list[Objects]], Any]
) -> None:
    """Boxes in their format, one row a box of each number, and JSON of all else, whatever the source and
    the form of the column."""
    given_rows = source(tmp_path / "src", table(column(OF)))
    summary = fastload.pack(given_rows, tmp_path / "out.fl", box_format="xywh")
    assert summary.notices == ()
    assert_holds(tmp_path / "out.fl", OF)
    if source in (parquet, arrow):
        assert list(PackedDataset(tmp_path / "out.fl").opened.reader.schema)[1:] == FIELDS


@pytest.mark.parametrize("source", [parquet, arrow])
def test_names_of_classes(tmp_path: Path, source: Callable[[Path, Any], Any]) -> None:
    """Of the ClassLabel among the objects, in each form that Hugging Face's library has described it; a
    label beyond them is an error."""
    label = {"names": NAMES, "_type": "ClassLabel"}
    forms: list[Any] = [
        {"category": {"feature": label, "_type": "List"}},
        {"feature": {"category": label}, "_type": "Sequence"},
        [{"category": label}],
    ]
    for number, feature in enumerate(forms):
        fastload.pack(
            source(tmp_path / str(number), table(of_lists(OF), feature)),
            tmp_path / f"{number}.fl",
            box_format="xywh",
        )
        assert PackedDataset(tmp_path / f"{number}.fl").classes == NAMES
    wrong = [*OF[:2], {**objects(1), "category": [3]}]
    with pytest.raises(PackStoppedError, match="row 2: its 'labels' has the label 3, the classes are 0 to 2"):
        fastload.pack(
            source(tmp_path / "wrong", table(of_lists(wrong))), tmp_path / "wrong.fl", box_format="xywh"
        )


def test_names_in_the_features_of_a_dataset(tmp_path: Path) -> None:
    """A Dataset of Hugging Face names its classes, those of the sample before those of its objects."""
    hf = pytest.importorskip("datasets")
    box = hf.Sequence(hf.Value("float32"), length=4)
    features = {
        "image": hf.Image(),
        "objects": hf.Sequence({"bbox": box, "category": hf.ClassLabel(names=NAMES)}),
    }
    values = {
        "image": [{"bytes": jpeg(0), "path": None}],
        "objects": [{"bbox": [[1, 2, 3, 4]], "category": [2]}],
    }
    fastload.pack(hf.Dataset.from_dict(values, hf.Features(features)), tmp_path / "a.fl", box_format="xyxy")
    assert PackedDataset(tmp_path / "a.fl").classes == NAMES
    both = hf.Dataset.from_dict(
        {**values, "label": [1]}, hf.Features({**features, "label": hf.ClassLabel(names=["x", "y"])})
    )
    fastload.pack(both, tmp_path / "b.fl", box_format="xyxy")
    assert PackedDataset(tmp_path / "b.fl").classes == ["x", "y"]
    fastload.pack(both.remove_columns("objects"), tmp_path / "c.fl")
    assert PackedDataset(tmp_path / "c.fl").classes == ["x", "y"]
    tags = hf.Dataset.from_dict(
        {**values, "label": [[1, 0]]}, hf.Features({**features, "label": [hf.ClassLabel(names=["x", "y"])]})
    )
    fastload.pack(tags, tmp_path / "d.fl", box_format="xyxy")
    assert PackedDataset(tmp_path / "d.fl").classes == NAMES


def test_transforms_move_the_boxes(tmp_path: Path) -> None:
    """The stored boxes are those of torchvision's functional, in the format that was given."""
    fastload.pack(parquet(tmp_path, table(of_lists(OF))), tmp_path / "out.fl", box_format="xywh")
    moved = PackedDataset(
        tmp_path / "out.fl",
        [fastload.transforms.Resize((20, 30)), fastload.transforms.RandomHorizontalFlip(1.0)],
    )
    for number in (1, 2, 4):
        size = (40 + number, 50)
        boxes = tv_tensors.BoundingBoxes(torch.tensor(OF[number]["bbox"]), format="XYWH", canvas_size=size)  # type: ignore[call-arg]
        want = v2.functional.horizontal_flip(v2.functional.resize(boxes, [20, 30]))
        torch.testing.assert_close(moved[number]["boxes"], want.as_subclass(torch.Tensor), rtol=0, atol=1e-4)


@pytest.mark.parametrize("source", [parquet, arrow, dataset, rows_of])
def test_without_a_format_they_are_json(tmp_path: Path, source: Callable[[Path, Any], Any]) -> None:
    """And the summary says what would make boxes of them."""
    (notice,) = fastload.pack(source(tmp_path / "src", table(of_lists(OF[1:]))), tmp_path / "out.fl").notices
    assert (notice.kind, notice.count, notice.examples) == ("objects", 1, ("objects",))
    assert "--box-format xywh" in notice.text
    assert PackedDataset(tmp_path / "out.fl")[0]["objects"] == OF[1]


def test_append_and_attach(tmp_path: Path) -> None:
    """They take the format as packing does; without it what is appended has other fields."""
    source = arrow(tmp_path / "src", table(of_lists(OF)))
    fastload.attach(source, tmp_path / "out.fl", box_format="xywh")
    assert_holds(tmp_path / "out.fl", OF)
    fastload.append(tmp_path / "out.fl", source, box_format="xywh")
    assert len(PackedDataset(tmp_path / "out.fl")) == 2 * len(OF)
    assert PackedDataset(tmp_path / "out.fl")[7]["boxes"].tolist() == OF[2]["bbox"]
    with pytest.raises(PackError, match="it has no field 'boxes'"):
        fastload.append(tmp_path / "out.fl", source)


def test_sources_without_objects(tmp_path: Path) -> None:
    """The format is refused where nothing would heed it: folders, columns without boxes, and files that
    say what their boxes are."""
    (tmp_path / "folder/a").mkdir(parents=True)
    (tmp_path / "folder/a/0.jpg").write_bytes(jpeg(0))
    fastload.pack(parquet(tmp_path / "src", table(of_lists(OF))), tmp_path / "out.fl", box_format="xywh")
    fastload.export(tmp_path / "out.fl", tmp_path / "exported.parquet")
    plain = parquet(tmp_path / "plain", table(of_lists(OF)).drop_columns("objects"))
    for source in (
        tmp_path / "folder",
        plain,
        [plain],
        tmp_path / "exported.parquet",
        [{"image": jpeg(0), "label": 1}],
    ):
        with pytest.raises(
            ArgumentError,
            match=r"^box_format='xyxy' \(--box-format\) is for a column of objects .* has none$",
        ):
            fastload.pack(source, tmp_path / "x.fl", box_format="xyxy")
    assert not (tmp_path / "x.fl").exists()


WRONG: dict[str, tuple[dict[str, Any], str]] = {
    "another number of entries": (
        {"category": [1]},
        "its objects.category has 1 entries, and there are 2 boxes",
    ),
    "a box of three": (
        {"bbox": [[1, 2, 3, 4], [1, 2, 3]]},
        r"its objects.bbox, box 1 \(from 0\) is no list of 4 numbers",
    ),
    "a box of NaN": (
        {"bbox": [[1, 2, 3, float("nan")], [1, 2, 3, 4]]},
        r"its objects.bbox, box 0 .* has a number in it that is NaN",
    ),
    "x2 < x1": (
        {"bbox": [[1, 2, 3, 4], [1, 2, -3, 4]]},
        r"its objects.bbox, box 1 \(from 0\): .* has x2 < x1 or y2 < y1 \(xywh\)",
    ),
    "a label that is null": (
        {"category": [None, 1]},
        "its objects.category has other values than numbers in it",
    ),
    "boxes that are null": ({"bbox": None}, "its objects.bbox is no list with an entry an object"),
    "an area that is infinite": (
        {"area": [1.0, float("inf")]},
        "its objects.area has a number in it that is NaN, infinite or too large",
    ),
    "a truth that is null": ({"crowd": [None, True]}, "its objects.crowd is no list of true and false"),
}


@pytest.mark.parametrize("case", WRONG)
def test_wrong_objects(tmp_path: Path, case: str) -> None:
    """They are their sample's error, which names the row and the member, and are counted under "skip"."""
    change, message = WRONG[case]
    kind = pa.struct(
        [
            (name, pa.list_(each if name != "bbox" else pa.list_(pa.float32())))
            for name, each in MEMBERS.items()
        ]
    )
    source = parquet(tmp_path, table(pa.array([*OF[:2], {**objects(2), **change}, OF[4]], kind)))
    with pytest.raises(PackStoppedError, match=f"a.parquet: row 2: {message}"):
        fastload.pack(source, tmp_path / "out.fl", box_format="xywh")
    summary = fastload.pack(source, tmp_path / "out.fl", box_format="xywh", overwrite=True, on_error="skip")
    assert summary.samples == len(PackedDataset(tmp_path / "out.fl")) == 3
    ((name, reason),) = summary.skipped
    assert name == f"{source}: row 2"
    assert re.match(message, reason)


NUMBERS = st.floats(0, 1e6, width=32)


@given(
    boxes=st.lists(st.tuples(NUMBERS, NUMBERS, NUMBERS, NUMBERS), max_size=50),
    labels=st.data(),
    as_dicts=st.booleans(),
)
def test_any_objects(boxes: list[tuple[float, ...]], labels: st.DataObject, as_dicts: bool) -> None:
    """Any boxes, and any whole number of 64 bits with each, come as they are, in both forms; null is no
    objects."""
    column = ObjectColumn("o", {"label": "int64", "boxes": ""}, "cxcywh", ())
    drawn = labels.draw(st.lists(st.integers(-(2**63), 2**63 - 1), min_size=len(boxes), max_size=len(boxes)))
    value: Any = {"boxes": [list(box) for box in boxes], "label": drawn}
    if as_dicts:
        value = [dict(zip(value, each, strict=True)) for each in zip(*value.values(), strict=True)]
    found = column.values("it", value)
    np.testing.assert_array_equal(found["boxes"], np.array(boxes, np.float32).reshape(-1, 4))  # type: ignore[arg-type]
    assert found["labels"].tolist() == drawn  # type: ignore[union-attr]
    assert {name: len(each) for name, each in column.values("it", None).items()} == {"boxes": 0, "labels": 0}  # type: ignore[arg-type]


@pytest.mark.parametrize("as_dicts", [False, True])
def test_the_first_objects_come_late(tmp_path: Path, as_dicts: bool) -> None:
    """A Dataset's first sample with objects says what they are, if it is among the first 256; else the
    error says so."""

    def rows_with(first: int, count: int) -> list[dict[str, Any]]:
        made: list[dict[str, Any]] = []
        for number in range(count):
            one = {"bbox": [1, 2, 3, 4], "category": 2, "area": 2.5}
            found = [one] if number >= first else []
            made.append(
                {
                    "image": jpeg(0),
                    "objects": found if as_dicts else {name: [each[name] for each in found] for name in one},
                }
            )
        return made

    fastload.pack(rows_with(40, 42), tmp_path / "a.fl", box_format="xywh")
    sample = PackedDataset(tmp_path / "a.fl")[41]
    assert (sample["boxes"].tolist(), sample["labels"].tolist(), sample["area"].tolist()) == (
        [[1, 2, 3, 4]],
        [2],
        [2.5],
    )
    assert [len(PackedDataset(tmp_path / "a.fl")[n]["labels"]) for n in (0, 39, 40)] == [0, 0, 1]
    with pytest.raises(PackError, match="none of its first 256 samples has an object with a box"):
        fastload.pack(rows_with(256, 257), tmp_path / "b.fl", box_format="xywh")
