"""Datasets of torch whose samples have masks, boxes and further images: tv_tensors, detection targets,
Pillow pictures."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image

import fastload
from fastload import PackedDataset
from fastload.errors import PackStoppedError
from fastload.sources.dataset import DatasetSource
from fastload.store import Field


class Made:
    """A map-style Dataset of what `make` makes of (index, random generator)."""

    def __init__(self, make: Callable[[int, np.random.Generator], Any], count: int = 5) -> None:
        self._make, self._count = make, count

    def __len__(self) -> int:
        return self._count

    def __getitem__(self, index: int) -> Any:
        return self._make(index, np.random.default_rng(index))


def picture(rng: np.random.Generator, mode: str = "RGB", size: tuple[int, int] = (12, 10)) -> Image.Image:
    """A Pillow image of noise, of (width, height); of mode P with colours that are other numbers than its
    indices."""
    shape = (size[1], size[0], 3) if mode == "RGB" else (size[1], size[0])
    if mode == "I;16":
        return Image.fromarray(rng.integers(0, 65536, shape, dtype=np.uint16))
    image = Image.fromarray(rng.integers(0, 21, shape, dtype=np.uint8))
    if mode == "P":
        image.putpalette([(7 * value + 90) % 256 for value in range(768)])
    return image


def boxes(rng: np.random.Generator, count: int) -> torch.Tensor:
    """Boxes as xyxy, float32."""
    corners = torch.from_numpy(rng.random((count, 4), np.float32) * 5)
    corners[:, 2:] += corners[:, :2]
    return corners


def target(index: int, rng: np.random.Generator) -> Any:
    """A sample of torchvision's detection references, with 0, 2, 4, ... objects."""
    count = 2 * index
    return torch.from_numpy(rng.integers(0, 256, (3, 10, 12), dtype=np.uint8)), {
        "boxes": boxes(rng, count),
        "labels": torch.from_numpy(rng.integers(1, 91, count)),
        "masks": torch.from_numpy(rng.integers(0, 2, (count, 10, 12), dtype=np.uint8)),
        "keypoints": torch.from_numpy(rng.random((count, 17, 3), np.float32)),
        "area": torch.from_numpy(rng.random(count, np.float32)),
        "iscrowd": torch.zeros(count, dtype=torch.bool),
        "image_id": index + 1000,
    }


def same(found: Any, wanted: Any) -> bool:
    """Whether a packed value is that of the Dataset."""
    wanted = np.asarray(wanted)
    return bool(np.array_equal(np.asarray(found), wanted))


def packed(dataset: Any, folder: Path) -> PackedDataset:
    """The dataset, packed without loss."""
    fastload.pack(dataset, folder / "d")
    return PackedDataset(folder / "d")


def test_detection_targets(tmp_path: Path) -> None:
    """(image, target) pairs: what has as many rows as there are boxes belongs to them, whatever their
    number."""
    dataset = Made(target)
    assert DatasetSource(dataset).fields == (
        Field("boxes", "boxes", format="xyxy"),
        Field("labels", "array", "int64", (None,), of="boxes"),
        Field("masks", "instances", of="boxes"),
        Field("keypoints", "keypoints", shape=(17, 3), of="boxes"),
        Field("area", "array", "float32", (None,), of="boxes"),
        Field("iscrowd", "array", "bool", (None,), of="boxes"),
        Field("image_id", "int"),
    )
    for index, found in enumerate(packed(dataset, tmp_path)):
        image, wanted = dataset[index]
        assert torch.equal(found["image"], image)
        assert all(same(found[name], value) for name, value in wanted.items())


@pytest.mark.parametrize("bare", [{0}, {0, 1, 3}, {4}])
def test_targets_without_boxes(bare: set[int], tmp_path: Path) -> None:
    """A target that lacks its keys, as torchvision's wrapped CocoDetection gives of an image without
    annotations, has no objects."""

    def make(index: int, rng: np.random.Generator) -> Any:
        image, given = target(index, rng)
        return image, {"image_id": given["image_id"]} if index in bare else given

    found, whole = packed(Made(make), tmp_path / "one"), packed(Made(target), tmp_path / "other")
    assert set(found.fields) == set(whole.fields)
    for index in range(5):
        sample, wanted = found[index], whole[index]
        for name in whole.fields:
            if index in bare and whole.kinds[name] != "int" and name != "image":
                assert (len(sample[name]), sample[name].shape[1:]) == (0, wanted[name].shape[1:]), name
                assert sample[name].dtype == wanted[name].dtype, name
            else:
                assert same(sample[name], wanted[name]), name


def test_tv_tensors(tmp_path: Path) -> None:
    """A dict of tv_tensors: images of any form, masks, instances, boxes of any format, keypoints."""
    tv = pytest.importorskip("torchvision.tv_tensors")

    def make(index: int, rng: np.random.Generator) -> Any:
        count, canvas = index, (10, 12)
        return {
            "boxes": tv.BoundingBoxes(
                torch.from_numpy(rng.integers(0, 5, (count, 4))), format="CXCYWH", canvas_size=canvas
            ),
            "picture": tv.Image(torch.from_numpy(rng.integers(0, 256, (3, *canvas), dtype=np.uint8))),
            "second": tv.Image(torch.from_numpy(rng.integers(0, 256, (1, 4, 5), dtype=np.uint8))),
            "third": tv.Image(torch.from_numpy(rng.integers(0, 256, (3, 4, 5), dtype=np.uint8))),
            "mask": tv.Mask(torch.from_numpy(rng.integers(0, 300, (1, *canvas)))),
            "masks": tv.Mask(torch.from_numpy(rng.integers(0, 2, (count, *canvas), dtype=np.uint8))),
            "points": tv.KeyPoints(
                torch.from_numpy(rng.random((count, 5, 2), np.float32)), canvas_size=canvas
            ),
            "labels": torch.from_numpy(rng.integers(0, 9, count)),
        }

    dataset = Made(make)
    assert DatasetSource(dataset).fields == (
        Field("boxes", "boxes", "int64", format="cxcywh"),
        Field("second", "image", "uint8", (1,)),
        Field("third", "image"),
        Field("mask", "mask", "uint16"),
        Field("masks", "instances", of="boxes"),
        Field("points", "keypoints", shape=(5, 2), of="boxes"),
        Field("labels", "array", "int64", (None,), of="boxes"),
    )
    for index, found in enumerate(packed(dataset, tmp_path)):
        wanted = dataset[index]
        assert same(found["image"], wanted["picture"])
        assert same(found["mask"], wanted["mask"][0])
        assert all(
            same(found[name], wanted[name])
            for name in ("boxes", "second", "third", "masks", "points", "labels")
        )


MASK = Field("mask", "mask")


@pytest.mark.parametrize(
    ("mode", "field"),
    [("P", MASK), ("L", MASK), ("I;16", Field("mask", "mask", "uint16")), ("RGB", Field("image2", "image"))],
)
def test_pairs_of_pictures(mode: str, field: Field, tmp_path: Path) -> None:
    """(image, mask) as torchvision's segmentation datasets have them: indices, not colours; and (image,
    image)."""
    dataset = Made(lambda index, rng: (picture(rng), picture(rng, mode)))
    assert DatasetSource(dataset).fields == (field,)
    for index, found in enumerate(packed(dataset, tmp_path)):
        image, other = (np.asarray(each) for each in dataset[index])
        if field.kind == "mask":  # a pair again
            assert same(found[0].permute(1, 2, 0), image)
            assert same(found[1], other)
        else:
            assert same(found["image"].permute(1, 2, 0), image)
            assert same(found[field.name].permute(1, 2, 0), other)


def test_depth(tmp_path: Path) -> None:
    """A grey picture that is called depth is an image, of 16 bits where it has them."""
    dataset = Made(
        lambda index, rng: {"image": picture(rng), "depth_map": picture(rng, "I;16", (7, 6)), "label": index}
    )
    assert DatasetSource(dataset).fields == (
        Field("depth_map", "image", "uint16", (1,)),
        Field("label", "int"),
    )
    assert all(
        same(found["depth_map"][0], dataset[index]["depth_map"])
        for index, found in enumerate(packed(dataset, tmp_path))
    )


def test_others_as_ever() -> None:
    """Without spatial values and arrays the first sample decides, and nobody else is read; others tell
    whether arrays are of one length."""
    read = []

    def make(index: int, rng: np.random.Generator) -> Any:
        read.append(index)
        return {"image": picture(rng), "name": "x"}

    assert DatasetSource(Made(make)).fields == (Field("name", "text"),)
    assert read == [0]

    def arrays(index: int, rng: np.random.Generator) -> Any:
        return {"image": picture(rng), "labels": np.arange(3), "ids": np.arange(index + 2)}

    assert DatasetSource(Made(arrays)).fields == (
        Field("label", "array", "int64", (3,)),
        Field("ids", "array", "int64", (None,)),
    )


def test_bad_target(tmp_path: Path) -> None:
    """A box with x2 < x1 is an error that names the sample."""

    def make(index: int, rng: np.random.Generator) -> Any:
        image, values = target(index, rng)
        if index == 3:
            values["boxes"][1, 2] = -1
        return image, values

    with pytest.raises(PackStoppedError, match=r"Made\[3\]: .*row 1 .*x2 < x1"):
        fastload.pack(Made(make), tmp_path / "d")
    assert fastload.pack(Made(make), tmp_path / "e", on_error="skip").samples == 4


def test_torchvision_is_not_imported() -> None:
    """A Dataset without it is packed without it."""
    code = "import sys, fastload.sources.dataset; assert not {'torch', 'torchvision'} & set(sys.modules)"
    subprocess.run([sys.executable, "-c", code], check=True)


@pytest.mark.parametrize("dtype", [np.int32, np.uint16, np.int16])
def test_labels_that_grow_later(dtype: Any, tmp_path: Path) -> None:
    """Masks of 16 or 32 bits are stored with 16, whatever labels the first samples have."""

    def make(index: int, rng: np.random.Generator) -> Any:
        tv = pytest.importorskip("torchvision.tv_tensors")
        labels = np.full((10, 12), 300 if index == 40 else 3, dtype)
        if dtype == np.int32:
            return picture(rng), Image.fromarray(labels)
        return picture(rng), tv.Mask(torch.from_numpy(labels))

    dataset = Made(make, 42)
    assert DatasetSource(dataset).fields == (Field("mask", "mask", "uint16"),)
    assert [int(mask.numpy().max()) for _, mask in packed(dataset, tmp_path)] == [3] * 40 + [300, 3]


def test_int64_labels_that_grow_later(tmp_path: Path) -> None:
    """Of int64 the first labels decide, and the error at a larger one says what to do."""

    def make(index: int, rng: np.random.Generator) -> Any:
        tv = pytest.importorskip("torchvision.tv_tensors")
        return picture(rng), tv.Mask(torch.full((10, 12), 300 if index == 40 else 3))

    with pytest.raises(
        PackStoppedError,
        match=r"Made\[40\]: its 'mask' has the label 300, .* 8 bits: give masks .* as uint16 or int32",
    ):
        fastload.pack(Made(make, 42), tmp_path / "a")
    assert fastload.pack(Made(make, 42), tmp_path / "b", on_error="skip").skipped_count == 1


def test_several_pictures_as_a_tuple(tmp_path: Path) -> None:
    """(image, (mask, instances, colours, dict)), as Cityscapes gives of several target types: each is a
    field."""
    dataset = Made(
        lambda index, rng: (
            picture(rng),
            (picture(rng, "L"), picture(rng, "I;16"), picture(rng), {"objects": [index]}),
        )
    )
    assert DatasetSource(dataset).fields == (
        Field("mask", "mask"),
        Field("mask2", "mask", "uint16"),
        Field("image2", "image"),
        Field("field4", "json"),
    )
    for index, found in enumerate(packed(dataset, tmp_path)):
        image, (mask, instances, colours, json) = dataset[index]
        assert same(found["image"].permute(1, 2, 0), image)
        assert same(found["mask"], mask)
        assert same(found["mask2"].numpy(), instances)
        assert same(found["image2"].permute(1, 2, 0), colours)
        assert found["field4"] == json


def test_the_first_boxes_come_late(tmp_path: Path) -> None:
    """Targets have boxes if one of the first 256 samples has; a later one is an error that says so, and
    names itself."""

    def make(index: int, rng: np.random.Generator) -> Any:
        image, given = target(2, rng)
        bare = {"image_id": index}
        return image, {**given, **bare, "segmentation": [[[1, 2, 3]]] * 4} if index >= first else bare

    first = 40
    found = packed(Made(make, 42), tmp_path / "one")
    assert [len(sample["boxes"]) for sample in found] == [0] * 40 + [4, 4]
    assert [sample["segmentation"] for sample in found][39:] == [[], *[[[[1, 2, 3]]] * 4] * 2]
    first = 256
    with pytest.raises(
        PackStoppedError,
        match=r"Made\[256\]: its target has boxes, and none of the first 256 samples has any",
    ):
        fastload.pack(Made(make, 257), tmp_path / "b")
    assert fastload.pack(Made(make, 257), tmp_path / "c", on_error="skip").skipped_count == 1
