"""Datasets of every layout, packed and read: samples are what independent readers make of the same files."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from annotated_folders import SIZE, labels, write_layouts
from PIL import Image
from pycocotools.coco import COCO
from torchvision.datasets import VOCSegmentation
from typer.testing import CliRunner

import fastload
from fastload.cli.main import app
from fastload.errors import ArgumentError, PackStoppedError
from fastload.store import Manifest


@pytest.fixture(scope="module")
def given(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The layouts, written once."""
    root = tmp_path_factory.mktemp("layouts")
    write_layouts(root)
    return root


def packed(source: Path, out: Path, **options: Any) -> fastload.PackedDataset:
    fastload.pack(source, out, **options)
    return fastload.PackedDataset(out)


def pixels(path: Path) -> torch.Tensor:
    return torch.from_numpy(np.array(Image.open(path).convert("RGB"))).permute(2, 0, 1)


@pytest.mark.filterwarnings("ignore:__array__ implementation")  # within pycocotools' annToMask
def test_coco(given: Path, tmp_path: Path) -> None:
    """Boxes, labels and instances are those of pycocotools, masks as its annToMask makes them; an image
    without any is a sample."""
    oracle = COCO(str(given / "coco/annotations/instances_train2017.json"))
    dataset = packed(given / "coco", tmp_path / "out")
    assert tuple(dataset.classes) == ("person", "car")
    assert len(dataset) == 4
    for sample in (dataset[n] for n in range(4)):
        own = int(sample["image_id"])
        found = oracle.loadAnns(oracle.getAnnIds([own]))
        assert sample["boxes"].tolist() == [each["bbox"] for each in found]
        assert sample["category_id"].tolist() == [each["category_id"] for each in found]
        assert [dataset.classes[label] for label in sample["labels"]] == [
            oracle.cats[each["category_id"]]["name"] for each in found
        ]
        assert sample["instances"].shape == (len(found), *SIZE)
        for ours, each in zip(sample["instances"], found, strict=True):
            assert np.array_equal(ours.numpy(), oracle.annToMask(each))


def test_panoptic(given: Path, tmp_path: Path) -> None:
    """The number of each pixel's segment leads to its row, whose box encloses those pixels."""
    dataset = packed(given / "panoptic", tmp_path / "out")
    for sample in (dataset[n] for n in range(4)):
        rows, columns = torch.nonzero(sample["instance_mask"] == int(sample["segment"][0]), as_tuple=True)
        x, y, w, h = sample["boxes"][0].tolist()
        assert (columns.min(), rows.min(), columns.max() + 1, rows.max() + 1) == (x, y, x + w, y + h)
        assert sample["mask"].unique().tolist() == [0, 255]
        assert sample["mask"].dtype == torch.uint8


def test_voc(given: Path, tmp_path: Path) -> None:
    """Boxes of Main's split; masks of Segmentation's, equal to torchvision's."""
    dataset = packed(given / "VOC2012", tmp_path / "boxes", split="val")
    assert len(dataset) == 4
    sample = dataset[0]
    assert dataset.classes[int(sample["labels"][0])] == "dog"
    x, y, w, h = (sample["boxes"][0, k].item() for k in range(4))
    assert (x >= 0, y >= 0, w > x, h > y) == (True,) * 4
    root = tmp_path / "VOCdevkit"
    root.mkdir()
    (root / "VOC2012").symlink_to(given / "VOC2012", target_is_directory=True)
    theirs = VOCSegmentation(str(tmp_path), "2012", "train")
    dataset = packed(root, tmp_path / "masks", format="voc-segmentation", split="train")
    for n, (_, mask) in enumerate(theirs):
        assert np.array_equal(dataset[n]["mask"].numpy(), np.asarray(mask))
        assert dataset[n]["mask"].max() == 255


def test_yolo(given: Path, tmp_path: Path) -> None:
    """Boxes in pixels are the fractions of the files times the image's sides."""
    dataset = packed(given / "yolo", tmp_path / "out", split="train")
    for n in range(4):
        label, *box = map(float, (given / f"yolo/labels/train/{n}.txt").read_text().split())
        sample = dataset[n]
        assert sample["labels"].tolist() == [label]
        assert np.allclose(sample["boxes"], np.array([box]) * [SIZE[1], SIZE[0], SIZE[1], SIZE[0]])


@pytest.mark.parametrize(
    ("name", "options", "top", "deep"),
    [
        ("pairs", {}, 4, False),
        ("ade", {"split": "training"}, 151, False),
        ("cityscapes", {"split": "val"}, 34, True),
    ],
)
def test_masks(given: Path, tmp_path: Path, name: str, options: dict[str, Any], top: int, deep: bool) -> None:
    """Masks come back number for number, of 8 and of 16 bits."""
    dataset = packed(given / name, tmp_path / "out", **options)
    assert len(dataset) == 4
    for n in range(4):
        sample = dataset[n]
        assert np.array_equal((sample["mask"] if deep else sample[1]).numpy(), labels(n, top))
        if deep:
            assert sample["instance_mask"].dtype == torch.uint16
            assert np.array_equal(sample["instance_mask"].numpy(), labels(n, top).astype(np.uint16) * 100)


def test_what_is_wrong_is_skipped_and_named(given: Path, tmp_path: Path) -> None:
    """Under on_error="skip" each bad annotation leaves out its image, and the summary says why; else the
    pack stops there."""
    made = json.loads((given / "coco/annotations/instances_train2017.json").read_text())
    made["annotations"][0]["bbox"][2] = -1
    made["annotations"][2]["segmentation"] = {"size": list(SIZE), "counts": "0"}
    made["annotations"].append(made["annotations"][1] | {"id": 99, "image_id": 77})
    path = tmp_path / "bad.json"
    path.write_text(json.dumps(made))
    with pytest.raises(
        PackStoppedError, match=r"bad.json: annotation 1 of image 1 \(000000000001.jpg\): its bbox .*x2 < x1"
    ):
        fastload.pack(given / "coco/train2017", tmp_path / "stopped", annotations=path)
    summary = fastload.pack(given / "coco/train2017", tmp_path / "out", annotations=path, on_error="skip")
    assert (summary.samples, summary.skipped_count) == (2, 3)
    reasons = dict(summary.skipped)
    assert any(
        "annotation 99 of image 77, which is not among its images" in reason for reason in reasons.values()
    )
    assert any("annotation 3" in reason for reason in reasons.values()), reasons


def test_options_that_change_images_are_refused(given: Path, tmp_path: Path) -> None:
    """Boxes and masks do not change with the image."""
    with pytest.raises(ArgumentError, match="max_side changes images, but not the field"):
        fastload.pack(given / "pairs", tmp_path / "out", max_side=32)


def test_flags(given: Path, tmp_path: Path) -> None:
    """The command line has the same options, and append and attach take them too."""
    run = CliRunner()
    sources = [
        str(given / "coco/train2017"),
        "--annotations",
        str(given / "coco/annotations/instances_train2017.json"),
    ]
    out = str(tmp_path / "out")
    assert run.invoke(app, ["pack", *sources[:1], out, *sources[1:], "--quiet"]).exit_code == 0
    done = run.invoke(app, ["append", out, *sources, "--quiet"])
    assert done.exit_code == 0, done.output
    assert Manifest.load(out).count == 8
    done = run.invoke(
        app,
        [
            "attach",
            str(given / "pairs/images"),
            str(tmp_path / "index"),
            "--masks",
            str(given / "pairs/masks"),
            "--quiet",
        ],
    )
    assert done.exit_code == 0, done.output
    dataset = fastload.PackedDataset(tmp_path / "index")
    assert np.array_equal(dataset[1][1].numpy(), labels(1))
    assert torch.equal(dataset[1][0], pixels(given / "pairs/images/1.jpg"))
