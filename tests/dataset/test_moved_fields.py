"""dataset[i] under transforms: image, mask, boxes, keypoints and instances are what torchvision v2 makes of
them at the drawn parameters.

ORACLE_SAMPLES=100000 compares as many random samples; by default it is fewer.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

pytest.importorskip("torchvision")
from geometry_oracle import Array, as_boxes, as_points, through
from scenes import ODD, Scenes
from torchvision import tv_tensors

import fastload
from fastload import PackedDataset
from fastload import transforms as T
from fastload._native import core

COUNT = 24
SAMPLES = int(os.environ.get("ORACLE_SAMPLES", "300"))
LISTS: dict[str, list[T.Transform]] = {
    "flips": [T.RandomHorizontalFlip(), T.RandomVerticalFlip()],
    "resized crop": [T.RandomHorizontalFlip(), T.RandomResizedCrop(40, dct_scale=False)],
    "jitter, padded crop": [
        T.ScaleJitter((64, 64), scale_range=(0.3, 2.0), dct_scale=False),
        T.RandomCrop(48, pad_if_needed=True),
        T.RandomHorizontalFlip(),
    ],
    "zoom out, IoU crop": [
        T.RandomZoomOut(),
        T.RandomIoUCrop(),
        T.Resize((36, 52), dct_scale=False),
        T.RandomHorizontalFlip(),
        T.SanitizeBoundingBoxes(2, 4),
    ],
    "IoU crop": [T.RandomIoUCrop(), T.RandomHorizontalFlip(), T.SanitizeBoundingBoxes(2, 4)],
    "IoU crop, jitter": [
        T.RandomIoUCrop(),
        T.ScaleJitter((64, 48), dct_scale=False),
        T.SanitizeBoundingBoxes(),
    ],
    "letterbox": [T.RandomVerticalFlip(), T.Letterbox((48, 64), fill=0, dct_scale=False)],
    "shortest size": [
        T.RandomShortestSize([30, 50, 70], max_size=100, dct_scale=False),
        T.SanitizeBoundingBoxes(3, 20),
    ],
    "random size": [T.RandomResize(10, 80, dct_scale=False), T.CenterCrop(44)],
}


@pytest.fixture(autouse=True, scope="module")
def _one_thread() -> Iterator[None]:
    """Tensors this small are slower in several threads."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


@pytest.fixture(scope="module")
def scenes(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, list[dict[str, Any]]]:
    """The packed scenes, and their samples without a transform."""
    path = tmp_path_factory.mktemp("scenes") / "d"
    fastload.pack(Scenes(COUNT), path)
    return path, list(PackedDataset(path))


def drawn(dataset: PackedDataset, sample: dict[str, Any], seed: int, epoch: int, index: int) -> core.Geometry:
    """The geometry of one sample."""
    height, width = sample["mask"].shape
    return core.Geometry(
        dataset.plan.program, (width, height), seed, epoch, index, sample["boxes"].numpy(), "xyxy"
    )


def check(got: dict[str, Any], sample: dict[str, Any], geometry: core.Geometry, where: str) -> None:
    """Compares with torchvision's functionals on the stored sample: images within 1, boxes and keypoints
    within 1e-4, all else equal."""
    height, width = sample["mask"].shape
    steps, keep = geometry.steps, geometry.keep
    assert keep is not None
    size = geometry.size[1], geometry.size[0]
    assert got["image"].shape == (3, *size), where
    expected: Array = through(tv_tensors.Image(sample["image"]), steps)
    assert np.abs(got["image"].numpy().astype(int) - expected).max() <= 1, where
    np.testing.assert_array_equal(
        got["mask"].numpy(), through(tv_tensors.Mask(sample["mask"]), steps), err_msg=where
    )
    boxes = through(as_boxes(sample["boxes"].numpy(), "xyxy", width, height), steps)
    np.testing.assert_allclose(got["boxes"].numpy(), boxes[keep], rtol=1e-6, atol=1e-4, err_msg=where)
    np.testing.assert_array_equal(got["labels"].numpy(), sample["labels"].numpy()[keep], err_msg=where)
    np.testing.assert_array_equal(got["tokens"].numpy(), sample["tokens"].numpy(), err_msg=where)
    points = sample["points"].numpy()
    moved = points.copy()
    moved[..., :2] = through(as_points(points[..., :2].reshape(-1, 2), width, height), steps).reshape(
        *points.shape[:2], 2
    )
    moved[points[..., 2] == 0] = 0
    np.testing.assert_allclose(got["points"].numpy(), moved[keep], rtol=0, atol=1e-4, err_msg=where)
    assert got["masks"].shape == (keep.sum(), *size), where
    masks = (
        through(tv_tensors.Mask(sample["masks"]), steps)
        if len(keep)
        else sample["masks"].numpy().reshape(0, *size)
    )
    np.testing.assert_array_equal(got["masks"].numpy(), masks[keep], err_msg=where)


def compare(scenes: tuple[Path, list[dict[str, Any]]], name: str, seed: int, epoch: int, index: int) -> None:
    path, samples = scenes
    dataset = PackedDataset(path, LISTS[name], seed=seed)
    dataset.set_epoch(epoch)
    geometry = drawn(dataset, samples[index], seed, epoch, index)
    check(dataset[index], samples[index], geometry, f"{name}, seed {seed}, epoch {epoch}, index {index}")


def test_samples_are_torchvisions(scenes: tuple[Path, list[dict[str, Any]]]) -> None:
    """Random samples of every list."""
    path, samples = scenes
    datasets = {name: PackedDataset(path, transform, seed=16) for name, transform in LISTS.items()}
    for number in range(SAMPLES):
        name = list(LISTS)[number % len(LISTS)]
        epoch, index = divmod(number // len(LISTS), COUNT)
        datasets[name].set_epoch(epoch)
        if number % 1000 and index == 2:
            continue  # a thousand objects take a thousand times as long
        geometry = drawn(datasets[name], samples[index], 16, epoch, index)
        check(datasets[name][index], samples[index], geometry, f"{name}, epoch {epoch}, index {index}")


@pytest.mark.parametrize("name", LISTS)
@pytest.mark.parametrize("index", range(ODD))
def test_odd_samples(scenes: tuple[Path, list[dict[str, Any]]], name: str, index: int) -> None:
    """No object, one pixel, a thousand objects, boxes on edges and outside, masks of one pixel: under
    every list."""
    for seed in range(1 if index == 2 else 4):
        compare(scenes, name, seed, 1, index)


@settings(max_examples=40)
@given(
    st.sampled_from(list(LISTS)),
    st.integers(0, 2**64 - 1),
    st.integers(0, 2**32 - 1),
    st.integers(3, COUNT - 1),
)
def test_any_draw(
    scenes: tuple[Path, list[dict[str, Any]]], name: str, seed: int, epoch: int, index: int
) -> None:
    """Seeds and epochs over their whole range."""
    compare(scenes, name, seed, epoch, index)


def test_fields_left_out_change_nothing(scenes: tuple[Path, list[dict[str, Any]]]) -> None:
    """The draw is the sample's: with fewer fields, and without its boxes, the rest is the same."""
    path, _ = scenes
    for name, transform in LISTS.items():
        whole = PackedDataset(path, transform, seed=5)
        for fields in (["image", "mask"], ["mask", "labels"], ["boxes"], ["image", "number"]):
            part = PackedDataset(path, transform, seed=5, fields=fields)
            for index in (4, 9, 17):
                found, expected = part[index], whole[index]
                values = dict(zip(fields, found, strict=True)) if isinstance(found, tuple) else found
                for field in fields:
                    assert torch.equal(torch.as_tensor(values[field]), torch.as_tensor(expected[field])), (
                        name,
                        fields,
                        index,
                    )
