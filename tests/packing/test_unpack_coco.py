"""The COCO layout of unpack: pycocotools reads it, pack gives the same dataset, and what it cannot hold is
named."""

from __future__ import annotations

import json
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from annotated_folders import SIZE, write_layouts
from hypothesis import given, settings
from hypothesis import strategies as st
from packing_helpers import encoded, picture
from stored_equal import assert_equal_datasets

import fastload
from fastload import PackedDataset
from fastload.errors import ArgumentError, PackError
from fastload.packing import Item, unpack
from fastload.store import Field
from fastload.unpacking.layouts import CocoLayout

coco_module = pytest.importorskip("pycocotools.coco")

CATEGORIES = [
    {"id": 11, "name": "owl", "keypoints": ["eye", "beak"]},
    {"id": 2, "name": "ant", "keypoints": ["eye", "beak"]},
    {"id": 5, "name": "bee", "keypoints": ["eye", "beak"]},
    {"id": 4, "name": "cat", "keypoints": ["eye", "beak"]},
]


@pytest.fixture(scope="module")
def layouts(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Datasets for detection and segmentation in the layouts that `pack` recognises."""
    root = tmp_path_factory.mktemp("layouts")
    write_layouts(root)
    return root


def write_coco(
    root: Path, annotations: list[dict[str, Any]], categories: list[dict[str, Any]], count: int = 3
) -> Path:
    """A folder of images 10, 11, ... and their annotation file."""
    (root / "annotations").mkdir(parents=True)
    images = []
    for n in range(count):
        (root / f"{n}.jpg").write_bytes(encoded(picture(n, 40, 50)))
        images.append({"id": 10 + n, "file_name": f"{n}.jpg", "height": 40, "width": 50})
    content = {"images": images, "annotations": annotations, "categories": categories}
    (root / "annotations/instances_some.json").write_text(json.dumps(content))
    return root


def test_everything_that_coco_has(tmp_path: Path) -> None:
    """Polygons, an RLE, crowds, keypoints and captions; sparse category ids of which most have no object."""
    annotations: list[dict[str, Any]] = [
        {
            "id": 7, "image_id": 10, "category_id": 5, "bbox": [1.1, 2.2, 30.3, 20.4], "area": 99.9,
            "iscrowd": 0,
            "segmentation": [[1, 2, 30, 2, 30, 20], [3.5, 30, 9, 30, 9, 39]], "keypoints": [3, 4, 2, 0, 0, 0],
            "num_keypoints": 1,
        },
        {
            "id": 9, "image_id": 12, "category_id": 11, "bbox": [0, 0, 50, 40], "area": 2000, "iscrowd": 1,
            "segmentation": {"size": [40, 50], "counts": [0, 2000]},
        },
        {"id": 8, "image_id": 12, "caption": "an owl"},
    ]  # fmt: skip
    fastload.pack(write_coco(tmp_path / "source", annotations, CATEGORIES), tmp_path / "first")
    assert unpack(tmp_path / "first", tmp_path / "files").layout == "coco"
    fastload.pack(tmp_path / "files", tmp_path / "again")
    assert_equal_datasets(tmp_path / "first", tmp_path / "again")
    assert PackedDataset(tmp_path / "again").classes == ["ant", "cat", "bee", "owl"]
    made = json.loads((tmp_path / "files/annotations/instances.json").read_text())
    assert [(each["id"], each["name"]) for each in made["categories"]] == [
        (1, "ant"),
        (2, "cat"),
        (5, "bee"),
        (11, "owl"),
    ]
    assert made["annotations"][0]["bbox"] == [1.1, 2.2, 30.3, 20.4]
    assert made["annotations"][0]["num_keypoints"] == 1
    assert made["annotations"][2] == {"id": 3, "image_id": 12, "caption": "an owl"}


@pytest.mark.filterwarnings("ignore:__array__ implementation:DeprecationWarning")  # pycocotools' own decode
def test_pycocotools_reads_it(layouts: Path, tmp_path: Path) -> None:
    """Boxes, categories and masks by pycocotools are those of the samples."""
    fastload.pack(layouts / "coco", tmp_path / "d")
    unpack(tmp_path / "d", tmp_path / "files")
    coco = coco_module.COCO(str(tmp_path / "files/annotations/instances.json"))
    dataset = PackedDataset(tmp_path / "d")
    assert {each["id"]: each["name"] for each in coco.loadCats(coco.getCatIds())} == {1: "person", 3: "car"}
    for sample in (dataset[index] for index in range(len(dataset))):
        (entry,) = coco.loadImgs([sample["image_id"]])
        assert (entry["height"], entry["width"]) == SIZE
        assert (tmp_path / "files/images" / entry["file_name"]).is_file()
        found = coco.loadAnns(coco.getAnnIds(imgIds=[sample["image_id"]]))
        assert [each["bbox"] for each in found] == sample["boxes"].tolist()
        assert [each["category_id"] for each in found] == sample["category_id"].tolist()
        assert all(
            np.array_equal(coco.annToMask(each), mask)
            for each, mask in zip(found, sample["instances"].numpy(), strict=True)
        )


def test_other_boxes_become_coco(layouts: Path, tmp_path: Path) -> None:
    """Of Pascal VOC and YOLO, where the user asks for COCO: boxes as [x, y, width, height], and other
    values as further keys."""
    for name, options in (("VOC2012", {"format": "voc"}), ("yolo", {})):
        fastload.pack(layouts / name, tmp_path / name, split="train", **options)  # type: ignore[arg-type]
        unpack(tmp_path / name, tmp_path / f"{name}-files", layout="coco")
        made = json.loads((tmp_path / f"{name}-files/annotations/instances.json").read_text())
        fastload.pack(tmp_path / f"{name}-files", tmp_path / f"{name}-again")
        first, again = PackedDataset(tmp_path / name), PackedDataset(tmp_path / f"{name}-again")
        assert again.classes == first.classes
        form = first.opened.reader.schema["boxes"].format
        for index in range(len(first)):
            wanted, found = first[index]["boxes"].numpy().copy(), again[index]["boxes"].numpy()
            if form == "xyxy":
                wanted[:, 2:] -= wanted[:, :2]
            elif form == "cxcywh":
                wanted[:, :2] -= wanted[:, 2:] / 2
            assert np.allclose(wanted, found, atol=1e-4)
            assert np.array_equal(first[index]["labels"], again[index]["labels"])
        others = {f.name for f in first.opened.reader.schema if f.of == "boxes"} - {"labels"}
        assert all(others <= set(each) for each in made["annotations"])


class Labelled:
    """Images with one box each, of a label and a category id; and other fields."""

    title, classes, concurrent = "labelled", None, True

    def __init__(self, pairs: list[tuple[int, int]], *more: Field) -> None:
        self._pairs = pairs
        ofs = (Field(name, "array", "int64", (None,), of="boxes") for name in ("labels", "category_id"))
        self.fields = (Field("image_id", "int"), Field("boxes", "boxes", format="xywh"), *ofs, *more)

    def __len__(self) -> int:
        return len(self._pairs)

    def name(self, position: int) -> str:
        return f"sample {position}"

    def read(self, position: int) -> Item:
        label, own = self._pairs[position]
        values: dict[str, Any] = {
            "image_id": 7,
            "boxes": [[0, 0, 1, 1]],
            "labels": [label],
            "category_id": [own],
            "note": "n",
            "blob": b"b",
        }
        values |= {"mask": np.zeros((2, 2), np.uint8), "tilted": [[0, 0, 1, 1, 30.0]], "bbox": 3}
        return Item(
            self.name(position), np.zeros((2, 2, 3), np.uint8), {f.name: values[f.name] for f in self.fields}
        )


@pytest.mark.parametrize("pairs", [[(0, 1), (0, 2)], [(-1, 0)], [(0, 5), (1, 4)], [(0, 5), (2, 6)]])
def test_labels_that_are_no_order_of_ids(tmp_path: Path, pairs: list[tuple[int, int]]) -> None:
    """Labels follow the order of category ids in COCO's form; others are refused, and the other layout is
    named."""
    fastload.pack(Labelled(pairs), tmp_path / "d")
    with pytest.raises(PackError, match=r"category id.*choose the layout folders"):
        unpack(tmp_path / "d", tmp_path / "files", layout="coco")


def test_image_ids_that_are_there_twice(tmp_path: Path) -> None:
    """Of joined datasets the layout is another one by default, and asked for COCO the images are numbered."""
    fastload.pack(Labelled([(0, 1), (1, 2)], Field("note", "text")), tmp_path / "d")
    assert unpack(tmp_path / "d", tmp_path / "files").layout == "folders"
    unpack(tmp_path / "d", tmp_path / "coco", layout="coco")
    made = json.loads((tmp_path / "coco/annotations/instances.json").read_text())
    assert [(image["id"], image["note"]) for image in made["images"]] == [(0, "n"), (1, "n")]
    assert [each["image_id"] for each in made["annotations"]] == [0, 1]


@pytest.mark.parametrize(
    "field",
    [
        Field("mask", "mask"),
        Field("blob", "bytes"),
        Field("tilted", "boxes", format="xywhr"),
        Field("bbox", "int"),
    ],
    ids=lambda field: field.name,
)
def test_fields_without_a_place(tmp_path: Path, field: Field) -> None:
    """A field that the layout has no place for is named, with what to do; nothing is written."""
    fastload.pack(Labelled([(0, 1)], field), tmp_path / "d")
    with pytest.raises(
        ArgumentError,
        match=f"has the field '{field.name}' .* the layout coco has no place: choose the layout folders",
    ):
        unpack(tmp_path / "d", tmp_path / "files", layout="coco")
    with pytest.raises(ArgumentError, match="the layout pairs has no place"):
        unpack(tmp_path / "d", tmp_path / "files", layout="pairs")
    with pytest.raises(ArgumentError, match="layout='voc' is none of folders, pairs, coco"):
        unpack(tmp_path / "d", tmp_path / "files", layout="voc")  # type: ignore[arg-type]
    assert not (tmp_path / "files").exists()


@pytest.mark.parametrize(
    "field",
    [
        Field("labels", "array", "float32", (None,), of="boxes"),
        Field("category_id", "array", "int64", (None, 2), of="boxes"),
        Field("image_id", "array", "int64", (None,), of="boxes"),
        Field("image_id", "text"),
        Field("keypoints", "array", "int64", (None,), of="boxes"),
    ],
    ids=str,
)
def test_other_values_under_names_of_coco(tmp_path: Path, field: Field) -> None:
    """A field that has the name of one of COCO's keys, and is something else, is named."""
    shape = (1, *(field.row_shape)) if field.is_varying else ()
    value: Any = np.zeros(shape, field.dtype) if shape else "text"
    fields = (Field("boxes", "boxes", format="xywh"), field)
    fastload.pack(Samples(fields, {"boxes": [[0, 0, 1, 1]], field.name: value}), tmp_path / "d")
    with pytest.raises(ArgumentError, match=f"has the field '{field.name}' .* the layout coco has no place"):
        unpack(tmp_path / "d", tmp_path / "files", layout="coco")


class Samples:
    """One sample of given fields."""

    title, concurrent, classes = "samples", True, None

    def __init__(self, fields: tuple[Field, ...], values: dict[str, Any]) -> None:
        self.fields, self._values = fields, values

    def __len__(self) -> int:
        return 1

    def name(self, position: int) -> str:
        return f"sample-{position}"

    def read(self, position: int) -> Item:
        return Item(self.name(position), np.zeros((2, 2, 3), np.uint8), self._values)


@pytest.mark.parametrize(("boxes", "masks"), [(1, 2), (2, 1), (0, 1), (1, 0)])
def test_numbers_of_objects_that_differ(tmp_path: Path, boxes: int, masks: int) -> None:
    """Instances that are not those of the boxes are not cut to their number, but refused."""
    fields = (Field("boxes", "boxes", format="xywh"), Field("instances", "instances"))
    values = {"boxes": [[0, 0, 1, 1]] * boxes, "instances": np.ones((masks, 2, 2), np.uint8)}
    fastload.pack(Samples(fields, values), tmp_path / "d")
    with pytest.raises(PackError, match=f"sample 0: it has {masks} of segmentation and {boxes} of bbox"):
        unpack(tmp_path / "d", tmp_path / "files", layout="coco")


def test_a_label_far_beyond_classes(tmp_path: Path) -> None:
    """A huge label is refused before a category is made of each number below it."""
    fields = (Field("boxes", "boxes", format="xywh"), Field("labels", "array", "int64", (None,), of="boxes"))
    fastload.pack(Samples(fields, {"boxes": [[0, 0, 1, 1]], "labels": [2**62]}), tmp_path / "d")
    with pytest.raises(
        PackError, match=f"sample 0: the label {2**62} is larger than 1,048,576; choose the layout folders"
    ):
        unpack(tmp_path / "d", tmp_path / "files", layout="coco")


def test_keypoints_without_labels(tmp_path: Path) -> None:
    """A category names the points of objects that have no label, without which `pack` would not take them;
    and NaN is null."""
    fields = (
        Field("keypoints", "keypoints", shape=(2, 3)),
        Field("instances", "instances"),
        Field("score", "float"),
    )
    points = np.arange(12).reshape(2, 2, 3)
    fastload.pack(
        Samples(
            fields, {"keypoints": points, "instances": np.ones((2, 2, 2), np.uint8), "score": float("nan")}
        ),
        tmp_path / "d",
    )
    unpack(tmp_path / "d", tmp_path / "files", layout="coco")
    found = json.loads(
        (tmp_path / "files/annotations/instances.json").read_text(), parse_constant=pytest.fail
    )
    assert found["categories"] == [{"id": 1, "name": "object", "keypoints": ["0", "1"]}]
    assert found["images"][0]["score"] is None
    fastload.pack(tmp_path / "files", tmp_path / "again")
    assert np.array_equal(PackedDataset(tmp_path / "again")[0]["keypoints"], points)


@pytest.mark.parametrize("names", [(), ("nose", "left_eye", "right_eye")])
def test_pairs_of_keypoints_come_back(tmp_path: Path, names: tuple[str, ...]) -> None:
    """Names of keypoints are those of the category, and pairs without names get some that say left and
    right."""
    fields = (
        Field("keypoints", "keypoints", shape=(3, 3), names=names, pairs=((1, 2),)),
        Field("instances", "instances"),
    )
    values = {"keypoints": np.ones((1, 3, 3)), "instances": np.ones((1, 2, 2), np.uint8)}
    fastload.pack(Samples(fields, values), tmp_path / "d")
    unpack(tmp_path / "d", tmp_path / "files", layout="coco")
    fastload.pack(tmp_path / "files", tmp_path / "again")
    field = PackedDataset(tmp_path / "again").opened.reader.schema["keypoints"]
    assert field.pairs == ((1, 2),)
    assert field.names == (names or ("0", "left_1_2", "right_1_2"))


@given(st.lists(st.integers(0, 40), min_size=1, max_size=12, unique=True), st.data())
def test_category_ids(ids: list[int], data: st.DataObject) -> None:
    """Any ascending ids, of which only some have objects, become ids by whose order every label is what it
    was."""
    ordered = sorted(ids)
    seen = data.draw(st.sets(st.integers(0, len(ids) - 1)))
    layout = CocoLayout.__new__(CocoLayout)
    layout._ids = {label: ordered[label] for label in seen}
    found = layout._category_ids(len(ids))
    assert all(found[label] == ordered[label] for label in seen)
    assert found == sorted(set(found))
    assert len(found) == len(ids)


def annotations_of(
    rng: np.random.Generator, ids: list[int], points: bool, captions: bool
) -> list[dict[str, Any]]:
    """Annotations of three images of 40 x 50 pixels: of polygons, run lengths or a box alone, with or
    without area, crowds among them."""
    found: list[dict[str, Any]] = []
    for number in range(int(rng.integers(1, 8))):
        box = (rng.random(4) * (20, 15, 30, 25)).round(int(rng.integers(0, 4))).tolist()
        entry = {
            "id": number + 1,
            "image_id": int(rng.integers(10, 13)),
            "category_id": int(rng.choice(ids)),
            "bbox": box,
        }
        form = int(rng.integers(3))
        if form == 0:
            entry["segmentation"] = [
                (rng.random(2 * rng.integers(3, 6)) * 40).round(2).tolist() for _ in range(rng.integers(1, 3))
            ]
        elif form == 1:
            ends = np.sort(rng.integers(0, 2001, int(rng.integers(0, 9))))
            entry["segmentation"] = {
                "size": [40, 50],
                "counts": np.diff(ends, prepend=0, append=2000).tolist(),
            }
        entry |= {"area": float(rng.random() * 99)} if rng.random() < 0.5 else {}
        entry |= {"iscrowd": int(rng.integers(2))} if rng.random() < 0.5 else {}
        if points and rng.random() < 0.7:
            entry["keypoints"] = (
                np.concatenate([rng.random((2, 2)) * 40, rng.integers(0, 3, (2, 1))], 1)
                .round(3)
                .reshape(-1)
                .tolist()
            )
        found.append(entry)
    if captions:
        found += [
            {"id": 90 + n, "image_id": int(rng.integers(10, 13)), "caption": f"\u732b {n}"}
            for n in range(rng.integers(1, 4))
        ]
    return found


@given(
    st.integers(0, 2**32),
    st.lists(st.integers(0, 90), min_size=1, max_size=6, unique=True),
    st.booleans(),
    st.booleans(),
)
@settings(max_examples=25)
def test_any_coco_comes_back(seed: int, ids: list[int], points: bool, captions: bool) -> None:
    """Packed, unpacked and packed again, a COCO dataset has equal fields, labels and class names; its
    layout is COCO's."""
    names = {"keypoints": ["eye", "beak"]} if points else {}
    categories = [{"id": own, "name": f"class {own}", **names} for own in ids]
    annotations = annotations_of(np.random.default_rng(seed), ids, points, captions)
    with tempfile.TemporaryDirectory() as folder:
        top = Path(folder)
        fastload.pack(write_coco(top / "source", annotations, categories), top / "first", workers=1)
        assert unpack(top / "first", top / "files", workers=1).layout == "coco"
        fastload.pack(top / "files", top / "again", workers=1)
        assert_equal_datasets(top / "first", top / "again")
