"""The label of a sample, and the labels of its objects: which fields they are, and what shows them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from coco_objects import write_coco

import fastload
from fastload import PackedDataset
from fastload.dataset.drawing import colour_of
from fastload.store import DatasetReader, Field, Schema
from fastload.store.labels import label_field, object_labels


@pytest.fixture(scope="module")
def coco(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("coco")
    fastload.pack(write_coco(root / "src"), root / "coco.fl", workers=1)
    return root / "coco.fl"


def test_a_detection_dataset_has_no_label_of_an_image(coco: Path) -> None:
    """An image's id is no class: there are no targets, and the error says where the classes of objects
    are."""
    dataset = PackedDataset(coco)
    assert dataset.classes == ["person", "dog", "car"]
    with pytest.raises(
        AttributeError, match=r"has no targets.*a class of an image; those of objects are in 'labels'"
    ):
        dataset.targets  # noqa: B018
    assert not hasattr(dataset, "targets")
    assert not hasattr(PackedDataset(coco, fields=("image", "image_id")), "targets")


@pytest.mark.parametrize("name", ["id", "Id", "image_id", "ImageID", "index", "img_id"])
def test_ids_are_no_labels(name: str) -> None:
    """The one whole number of a sample is its label, unless it is an id by its name."""
    assert label_field(Schema((Field("image", "image"), Field(name, "int")))) is None
    found = label_field(
        Schema((Field("image", "image"), Field(name, "int"), Field("label", "int"), Field("width", "int")))
    )
    assert found is not None
    assert found.name == "label"


@pytest.mark.parametrize(
    ("fields", "wanted"),
    [
        ([Field("y", "int")], "y"),
        ([Field("y", "int"), Field("z", "int")], None),
        ([Field("y", "float")], None),
        ([Field("scene", "int"), Field("boxes", "boxes", format="xywh")], None),
        ([Field("label", "int"), Field("boxes", "boxes", format="xywh")], "label"),
        ([Field("scene", "int"), Field("mask", "mask")], None),
        ([Field("scene", "int"), Field("masks", "instances")], None),
        ([Field("label", "int"), Field("mask", "mask")], "label"),
        ([Field("pose", "int"), Field("points", "keypoints", shape=(3, 2))], "pose"),
    ],
)
def test_which_field_is_the_label(fields: list[Field], wanted: str | None) -> None:
    """`label`, or the one whole number of a sample without objects and masks, whose classes are those of
    the objects."""
    found = label_field(Schema((Field("image", "image"), *fields)))
    assert (found and found.name) == wanted


def rows(name: str, dtype: str = "int64", of: str = "boxes") -> Field:
    return Field(name, "array", dtype, (None,), of=of)


@pytest.mark.parametrize(
    ("fields", "wanted"),
    [
        ([rows("iscrowd"), rows("category_id"), rows("labels")], ["labels"]),
        ([rows("category"), rows("difficult")], ["category"]),
        ([rows("kind")], ["kind"]),
        ([rows("kind"), rows("colour")], []),
        ([rows("iscrowd")], []),
        ([rows("area", "float32")], []),
        (
            [rows("labels"), Field("more", "boxes", format="xyxy"), rows("more_labels", of="more")],
            ["labels", "more_labels"],
        ),
        ([rows("labels", of=""), rows("tokens", of="")], []),
        ([rows("labels", of=""), Field("masks", "instances")], ["labels"]),
    ],
)
def test_which_fields_are_the_labels_of_objects(fields: list[Field], wanted: list[str]) -> None:
    """Of each field of boxes the one with the classes, of COCO's several numbers too; of instances without
    boxes the field `labels`."""
    schema = Schema((Field("image", "image"), Field("boxes", "boxes", format="xyxy"), *fields))
    assert [field.name for field in object_labels(schema)] == wanted


def test_show_draws_boxes_with_their_classes(coco: Path, tmp_path: Path) -> None:
    """Boxes lie where the objects are, in their colours, and their classes' names beside them; no image is
    said to be of a class."""
    fastload.pack(write_coco(tmp_path / "src", names=("a", "b", "c")), tmp_path / "other.fl", workers=1)
    sheet, other = (
        np.asarray(PackedDataset(path).show(3, side=128)) for path in (coco, tmp_path / "other.fl")
    )
    plain = np.asarray(PackedDataset(coco, fields=("image",)).show(3, side=128))
    cells = [slice(4 + 132 * place, 132 + 132 * place) for place in range(3)]
    for place, cell in enumerate(cells):
        drawn = (sheet[4:132, cell] != plain[4:132, cell]).any(2)
        assert drawn.any() == (place != 1)
        assert (sheet[132:146, cell] == plain[132:146, cell]).all()  # the captions
        assert (sheet[4:132, cell] != other[4:132, cell]).any() == (place != 1)  # the names
    top = 4 + 16 + 20  # of a box, below the border of an image that is wider than tall
    for row in range(3):
        assert tuple(sheet[top + 39, cells[2]][10 + 30 * row]) == colour_of(row + 1)


def test_show_of_masks_and_instances(tmp_path: Path) -> None:
    """Labels of a mask and instances tint the pixels on which they lie, and no others."""
    mask = np.zeros((64, 64), np.uint8)
    mask[10:20, 30:50] = 3

    class Masked:
        def __len__(self) -> int:
            return 1

        def __getitem__(self, index: int) -> Any:
            return {"image": np.full((64, 64, 3), 200, np.uint8), "mask": mask_image(mask)}

    fastload.pack(Masked(), tmp_path / "masked.fl", workers=1)
    with DatasetReader(tmp_path / "masked.fl") as reader:
        assert [field.kind for field in reader.schema] == ["image", "mask"]
    sheet = np.asarray(PackedDataset(tmp_path / "masked.fl").show(1, side=64))[4:68, 4:68]
    assert np.array_equal((sheet != 200).any(2), mask > 0)


@pytest.mark.parametrize("name", ["grey", "turned", "kinds"])
def test_show_of_other_pixels(name: str) -> None:
    """Images of one channel and of 16 bits are shown too, with their boxes of every format."""
    sheet = PackedDataset(Path(__file__).parents[1] / f"golden/data/{name}.fl").show(7, side=64)
    assert sheet.size == (7 * 68 + 4, 86)


def mask_image(mask: Any) -> Any:
    from PIL import Image

    return Image.fromarray(mask)
