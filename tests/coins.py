"""Photographs of coins with a box, a mask and a class for each coin, cut out of scikit-image's picture of
coins and coloured."""

from __future__ import annotations

import json
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
from PIL import Image

CLASSES = ("small coin", "large coin")
_LEAST = 0.5
"""Of a coin that is cut off, the share that has to be seen for it to be an object."""


class Photograph(NamedTuple):
    """One image: RGB pixels, and of each pixel the number of the coin that it shows, 0 for none."""

    pixels: npt.NDArray[np.uint8]
    coins: npt.NDArray[np.int32]


@cache
def _original() -> tuple[npt.NDArray[np.uint8], npt.NDArray[np.int32], npt.NDArray[np.int64]]:
    """scikit-image's picture, its coins' numbers by their label images, and the pixels of each."""
    from skimage import data, filters, measure, morphology, segmentation

    grey = data.coins()
    light = morphology.closing(grey > filters.threshold_otsu(grey), np.ones((3, 3), bool))
    parts = measure.label(segmentation.clear_border(light))
    found = measure.label((np.bincount(parts.reshape(-1)) > 400)[parts] & (parts > 0))
    return grey, found.astype(np.int32), np.bincount(found.reshape(-1))


def photograph(seed: int) -> Photograph:
    """A part of the picture, 90 to 150 pixels high and 110 to 190 wide, enlarged or not, in a colour of
    its own."""
    grey, coins, _ = _original()
    rng = np.random.default_rng(seed)
    height, width = int(rng.integers(90, 151)), int(rng.integers(110, 191))
    top, left = (
        int(rng.integers(0, grey.shape[0] - height + 1)),
        int(rng.integers(0, grey.shape[1] - width + 1)),
    )
    part = (slice(top, top + height), slice(left, left + width))
    pixels = grey[part][..., None] * rng.uniform(0.6, 1.0, 3)
    return Photograph(pixels.astype(np.uint8), coins[part])


def class_of(coin: int) -> int:
    """0: a small coin; 1: one that is larger than most."""
    pixels = _original()[2]
    return int(pixels[coin] > np.median(pixels[1:]))


def objects(image: Photograph) -> list[dict[str, Any]]:
    """COCO's annotation of each coin of which enough is seen, without ids."""
    found = []
    for coin in np.unique(image.coins[image.coins > 0]).tolist():
        mask = image.coins == coin
        if mask.sum() < _LEAST * _original()[2][coin]:
            continue
        rows, columns = np.flatnonzero(mask.any(1)), np.flatnonzero(mask.any(0))
        x, y = float(columns[0]), float(rows[0])
        box = [x, y, float(columns[-1]) + 1 - x, float(rows[-1]) + 1 - y]
        found.append(
            {
                "category_id": class_of(coin) + 1,
                "bbox": box,
                "area": int(mask.sum()),
                "iscrowd": 0,
                "segmentation": _runs(mask),
            }
        )
    return found


def _runs(mask: npt.NDArray[np.bool_]) -> dict[str, Any]:
    """A mask as COCO's run lengths, by columns."""
    values = np.concatenate([[False], mask.T.reshape(-1), [True]])
    edges = np.flatnonzero(values[1:] != values[:-1])
    counts = np.diff(np.concatenate([[0], edges]))
    counts = np.append(counts, mask.size - counts.sum()) if counts.sum() < mask.size else counts
    return {"size": list(mask.shape), "counts": counts.tolist()}


def write_coco(root: Path, count: int) -> Path:
    """Images in root/train2017, instances in root/annotations/instances_train2017.json."""
    (root / "train2017").mkdir(parents=True)
    (root / "annotations").mkdir()
    images: list[dict[str, Any]] = []
    annotations: list[dict[str, Any]] = []
    for number in range(count):
        image = photograph(number)
        name = f"{number:012d}.jpg"
        Image.fromarray(image.pixels).save(root / "train2017" / name, quality=95)
        height, width = image.coins.shape
        images.append({"id": number + 1, "file_name": name, "height": height, "width": width})
        annotations += [
            {"id": len(annotations) + k + 1, "image_id": number + 1, **each}
            for k, each in enumerate(objects(image))
        ]
    categories = [{"id": number + 1, "name": name} for number, name in enumerate(CLASSES)]
    text = json.dumps({"images": images, "annotations": annotations, "categories": categories})
    (root / "annotations" / "instances_train2017.json").write_text(text)
    return root


def write_voc(root: Path, count: int) -> Path:
    """root/VOCdevkit/VOC2012 with the images, and masks with a palette: 0 where there is no coin, else its
    class + 1."""
    top = root / "VOCdevkit" / "VOC2012"
    for folder in ("JPEGImages", "SegmentationClass", "ImageSets/Segmentation"):
        (top / folder).mkdir(parents=True)
    label = np.array([0, *(class_of(coin) + 1 for coin in range(1, len(_original()[2])))], np.uint8)
    names = [f"2012_{number:06d}" for number in range(count)]
    for number, name in enumerate(names):
        image = photograph(number)
        Image.fromarray(image.pixels).save(top / "JPEGImages" / f"{name}.jpg", quality=95)
        mask = Image.fromarray(label[image.coins])
        mask.putpalette([0, 0, 0, 128, 0, 0, 0, 128, 0])
        mask.save(top / "SegmentationClass" / f"{name}.png")
    (top / "ImageSets" / "Segmentation" / "train.txt").write_text("\n".join(names) + "\n")
    return root
