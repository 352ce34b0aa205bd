"""The native transforms against torchvision's own (transforms v2): boxes, sizes, windows, pixels, and the
draws' distributions."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image

from fastload import PackedDataset
from fastload import transforms as T
from fastload.errors import ArgumentError
from fastload.transforms.compiler import compile_plan

v2 = pytest.importorskip("torchvision.transforms.v2")
F = v2.functional
to_tensor = pytest.importorskip("torchvision.transforms.functional").to_tensor

sides = st.integers(1, 600)
DRAWS = 4000


def meta(height: int, width: int) -> torch.Tensor:
    """An image of that size and no pixels: torchvision computes sizes from it."""
    return torch.empty((3, height, width), dtype=torch.uint8, device="meta")


def ks(a: npt.NDArray[Any], b: npt.NDArray[Any]) -> float:
    """The two-sample Kolmogorov-Smirnov statistic, over the bound that equal distributions pass with
    probability 0.9999."""
    points = np.union1d(a, b)
    distance = np.abs(
        np.searchsorted(np.sort(a), points, "right") / len(a)
        - np.searchsorted(np.sort(b), points, "right") / len(b)
    ).max()
    return float(
        distance / (math.sqrt(-math.log(0.0001 / 2) / 2) * math.sqrt((len(a) + len(b)) / (len(a) * len(b))))
    )


def native_boxes(transform: T.Transform, height: int, width: int) -> npt.NDArray[np.int64]:
    """DRAWS boxes (left, top, width, height) of the native transform."""
    program = compile_plan(transform).program
    return np.array([program.resolve(width, height, 17, 0, i)["box"] for i in range(DRAWS)])


def torchvision_boxes(transform: Any, height: int, width: int) -> npt.NDArray[np.int64]:
    """DRAWS boxes of torchvision's transform."""
    torch.manual_seed(17)
    drawn = [transform.make_params([meta(height, width)]) for _ in range(DRAWS)]
    return np.array([(p["left"], p["top"], p["width"], p["height"]) for p in drawn])


ASPECTS = (
    *(lambda boxes, column=column: boxes[:, column] for column in range(4)),
    lambda boxes: boxes[:, 2] * boxes[:, 3],
    lambda boxes: boxes[:, 2] / boxes[:, 3],
)
"""What is compared of boxes: left, top, width, height, area, ratio."""


@pytest.mark.parametrize(
    ("height", "width", "scale", "ratio"),
    [
        (97, 131, (0.08, 1.0), (3 / 4, 4 / 3)),
        (400, 300, (0.2, 0.6), (0.5, 2.0)),
        (40, 400, (0.08, 1.0), (3 / 4, 4 / 3)),  # most tries miss: the fallback is part of the distribution
        (301, 33, (0.5, 1.0), (1.0, 3.0)),
        (7, 5, (0.08, 1.0), (3 / 4, 4 / 3)),
    ],
)
def test_random_resized_crop_draws_alike(
    height: int, width: int, scale: tuple[float, float], ratio: tuple[float, float]
) -> None:
    """Left, top, width, height, area and ratio of the boxes are distributed as torchvision's."""
    mine = native_boxes(T.RandomResizedCrop(32, scale=scale, ratio=ratio), height, width)
    theirs = torchvision_boxes(v2.RandomResizedCrop(32, scale=scale, ratio=ratio), height, width)
    for aspect in ASPECTS:
        assert ks(aspect(mine), aspect(theirs)) < 1
    whole = (mine == mine[0]).all(axis=1).mean(), (theirs == mine[0]).all(axis=1).mean()
    assert abs(whole[0] - whole[1]) < 0.05


@pytest.mark.parametrize(
    "wrong",
    [{"scale": (0.08, 0.8)}, {"scale": (0.12, 1.0)}, {"ratio": (0.7, 4 / 3)}, {"ratio": (3 / 4, 1.25)}],
)
def test_distributions_would_be_told_apart(wrong: dict[str, tuple[float, float]]) -> None:
    """The test above would reject a scale or a ratio that begins or ends elsewhere."""
    mine = native_boxes(T.RandomResizedCrop(32, **wrong), 97, 131)
    theirs = torchvision_boxes(v2.RandomResizedCrop(32), 97, 131)
    assert max(ks(aspect(mine), aspect(theirs)) for aspect in ASPECTS) > 1


@given(sides, sides, st.sampled_from([0.25, 0.5, 1.0]), st.floats(0.2, 5), st.integers(0, 2**32))
def test_random_resized_crop_of_fixed_scale_and_ratio(
    height: int, width: int, scale: float, ratio: float, seed: int
) -> None:
    """With one scale and one ratio the box's size is determined, fallback included: torchvision's, but at
    least 1 where that is 0."""
    box = compile_plan(T.RandomResizedCrop(8, scale=(scale, scale), ratio=(ratio, ratio))).program.resolve(
        width, height, seed, 0, 0
    )["box"]
    drawn = v2.RandomResizedCrop(8, scale=(scale, scale), ratio=(ratio, ratio)).make_params(
        [meta(height, width)]
    )
    if not _near_a_tie(height, width, scale, ratio):
        assert box[2:] == (max(drawn["width"], 1), max(drawn["height"], 1))
    x, y, w, h = box
    assert 0 <= x <= width - w
    assert 0 <= y <= height - h


def _near_a_tie(height: int, width: int, scale: float, ratio: float) -> bool:
    """Whether float32, in which torchvision keeps the ratio, and float64 may round a side, or the
    fallback's, differently."""
    area = height * width * scale
    fallback = (width / ratio, height * ratio)
    return any(
        abs(value % 1 - 0.5) < 1e-3 for value in (math.sqrt(area * ratio), math.sqrt(area / ratio), *fallback)
    )


@given(sides, sides)
def test_random_resized_crop_fallback(height: int, width: int) -> None:
    """Where no try can fit, the centred box of the nearest ratio is torchvision's, its place included."""
    for ratio in ((20.0, 30.0), (1 / 30, 1 / 20)):
        if not 1 / 15 < width / height < 15:
            continue  # a try may fit
        mine = compile_plan(T.RandomResizedCrop(8, scale=(1.0, 1.0), ratio=ratio)).program.resolve(
            width, height, 3, 0, 0
        )["box"]
        drawn = v2.RandomResizedCrop(8, scale=(1.0, 1.0), ratio=ratio).make_params([meta(height, width)])
        expected = (drawn["left"], drawn["top"], drawn["width"], drawn["height"])
        # torchvision's box of a very thin image may be empty, which no resize takes.
        if min(expected[2:]) > 0:
            assert mine == expected
        else:
            assert min(mine[2:]) == 1


@given(sides, sides, st.integers(1, 400), st.none() | st.integers(401, 900))
def test_resize_sizes(height: int, width: int, size: int, max_size: int | None) -> None:
    """Resize of one int, with and without max_size, ends at torchvision's size."""
    expected = (
        F.resize(meta(height, width), [size], max_size=max_size)
        if _resizable(height, width, size, max_size)
        else None
    )
    if expected is not None:
        mine = compile_plan(T.Resize(size, max_size=max_size)).program.size(width, height)
        assert (mine[1], mine[0]) == tuple(expected.shape[1:])


def _resizable(height: int, width: int, size: int, max_size: int | None) -> bool:
    """Whether torchvision's size has no side of 0 (which it refuses to make, and fastload makes 1)."""
    short, long = sorted((height, width))
    return (
        max_size is None
        or int(size * long / short) <= max_size
        or int(max_size * size / int(size * long / short)) > 0
    )


@given(st.integers(1, 60), st.integers(1, 60), st.integers(1, 70), st.integers(1, 70))
def test_center_crop_window(height: int, width: int, crop_height: int, crop_width: int) -> None:
    """CenterCrop shows the same pixels of the image and the same padding around them."""
    numbered = torch.arange(1, height * width + 1, dtype=torch.int32).reshape(1, height, width)
    expected = F.center_crop(numbered, [crop_height, crop_width])
    assert torch.equal(
        cut(
            numbered,
            compile_plan(T.CenterCrop((crop_height, crop_width))).program.resolve(width, height, 0, 0, 0),
        ),
        expected,
    )


def cut(image: torch.Tensor, resolved: dict[str, Any]) -> torch.Tensor:
    """A resolved window cut from an image (channels, height, width), 0 outside it."""
    x, y, w, h = resolved["window"]
    vx, vy, vw, vh = resolved["visible"]
    out = torch.zeros((image.shape[0], h, w), dtype=image.dtype)
    out[:, vy - y : vy - y + vh, vx - x : vx - x + vw] = image[:, vy : vy + vh, vx : vx + vw]
    return out


@pytest.mark.parametrize(
    ("height", "width", "size", "padding", "pad_if_needed"),
    [
        (6, 5, (3, 3), None, False),
        (6, 5, (3, 2), 1, False),
        (4, 4, (4, 4), (1, 2), False),
        (5, 4, (5, 5), (0, 1, 2, 1), False),
        (3, 5, (6, 4), None, True),
        (2, 3, (5, 6), 1, True),
    ],
)
def test_random_crop_windows(
    height: int, width: int, size: tuple[int, int], padding: Any, pad_if_needed: bool
) -> None:
    """RandomCrop reaches the same windows of the padded image as torchvision's, each as often."""
    program = compile_plan(T.RandomCrop(size, padding=padding, pad_if_needed=pad_if_needed)).program
    mine = [program.resolve(width, height, 3, 0, i)["window"] for i in range(DRAWS)]
    reference = v2.RandomCrop(
        size,
        padding=padding if padding is None or isinstance(padding, int) else list(padding),
        pad_if_needed=pad_if_needed,
    )
    torch.manual_seed(3)
    theirs = []
    for _ in range(DRAWS):
        drawn = reference.make_params([meta(height, width)])
        theirs.append(
            (
                drawn["left"] - drawn["padding"][0],
                drawn["top"] - drawn["padding"][1],
                drawn["width"],
                drawn["height"],
            )
        )
    assert set(mine) == set(theirs)
    for place in (0, 1):
        assert ks(np.array(mine)[:, place], np.array(theirs)[:, place]) < 1


def test_random_crop_that_does_not_fit() -> None:
    """A crop larger than the padded image is an error in both."""
    with pytest.raises(ArgumentError, match="larger than"):
        compile_plan(T.RandomCrop(9, padding=1)).program.resolve(6, 6, 0, 0, 0)
    with pytest.raises(ValueError, match="larger than"):
        v2.RandomCrop(9, padding=1)(torch.zeros((3, 6, 6)))


@pytest.mark.parametrize("p", [0.0, 0.3, 0.5, 1.0])
def test_flip_probability(p: float) -> None:
    """Flips happen as often as torchvision's."""
    for mine, theirs, key in (
        (T.RandomHorizontalFlip(p), v2.RandomHorizontalFlip(p), "hflip"),
        (T.RandomVerticalFlip(p), v2.RandomVerticalFlip(p), "vflip"),
    ):
        program = compile_plan(mine).program
        flipped = sum(program.resolve(4, 4, 8, 0, i)[key] for i in range(DRAWS)) / DRAWS
        torch.manual_seed(8)
        probe = torch.arange(4.0).reshape(1, 2, 2)
        expected = sum(not torch.equal(theirs(probe), probe) for _ in range(DRAWS)) / DRAWS
        assert abs(flipped - expected) < 5 * math.sqrt(0.5 / DRAWS)
        assert p not in (0.0, 1.0) or flipped == expected == p


# ---- pixels: the image as fastload decodes it, transformed by torchvision through Pillow


def original(packed: Path, index: int) -> Image.Image:
    """Sample index, decoded whole."""
    image = PackedDataset(packed)[index][0]
    return Image.fromarray(image.permute(1, 2, 0).numpy())


def transformed(packed: Path, transform: Any, index: int) -> torch.Tensor:
    """Sample index of seed 5 and epoch 0 under the native transform."""
    image: torch.Tensor = PackedDataset(packed, transform=transform, seed=5)[index][0]
    return image


def difference(mine: torch.Tensor, theirs: torch.Tensor) -> int:
    """The largest difference of two uint8 images of one shape."""
    assert mine.shape == theirs.shape
    return int((mine.int() - theirs.int()).abs().max())


def resolved(transform: Any, image: Image.Image, index: int) -> dict[str, Any]:
    """What the native transform drew for sample index of seed 5 and epoch 0."""
    return compile_plan(transform).program.resolve(image.width, image.height, 5, 0, index)


@pytest.mark.parametrize("interpolation", ["bilinear", "bicubic"])
def test_random_resized_crop_pixels(packed: Path, interpolation: str) -> None:
    """Crop and antialiased resize are within 1 of torchvision's, which Pillow computes."""
    transform = T.RandomResizedCrop((56, 72), interpolation=interpolation, dct_scale=False)
    for index in range(0, 50, 3):
        image = original(packed, index)
        x, y, w, h = resolved(transform, image, index)["box"]
        mode = v2.InterpolationMode(interpolation)
        expected = F.pil_to_tensor(
            F.resized_crop(image, y, x, h, w, [56, 72], interpolation=mode, antialias=True)
        )
        assert difference(transformed(packed, transform, index), expected) <= 1, index


@pytest.mark.parametrize("size", [48, 210, (40, 90), (300, 20)])
def test_resize_pixels(packed: Path, size: Any) -> None:
    """Resize, smaller and larger, of one side or both, is within 1 of torchvision's."""
    for index in range(0, 50, 7):
        expected = F.pil_to_tensor(v2.Resize(size, antialias=True)(original(packed, index)))
        assert difference(transformed(packed, T.Resize(size, dct_scale=False), index), expected) <= 1, index


def test_evaluation_pipeline_pixels(packed: Path) -> None:
    """Resize, CenterCrop and Normalize together: within one step of a byte of torchvision's floats."""
    mean, std = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)
    native = [T.Resize(64, dct_scale=False), T.CenterCrop(56), T.Normalize(mean, std)]
    reference = v2.Compose(
        [
            v2.Resize(64, antialias=True),
            v2.CenterCrop(56),
            v2.PILToTensor(),
            v2.ToDtype(torch.float32, scale=True),
            v2.Normalize(mean, std),
        ]
    )
    step = torch.tensor([1 / 255 / s for s in std]).view(3, 1, 1)
    for index in range(0, 50, 7):
        mine, theirs = transformed(packed, native, index), reference(original(packed, index))
        assert mine.shape == theirs.shape
        assert ((mine - theirs).abs() <= step * 1.001).all(), index


@pytest.mark.parametrize("size", [64, (100, 90), (300, 500)])
def test_center_crop_pixels(packed: Path, size: Any) -> None:
    """CenterCrop, larger than the image too, is torchvision's to the byte."""
    for index in range(0, 50, 7):
        assert (
            difference(
                transformed(packed, T.CenterCrop(size), index),
                F.pil_to_tensor(v2.CenterCrop(size)(original(packed, index))),
            )
            == 0
        )


@pytest.mark.parametrize("padding", [None, 8, (3, 5, 7, 11)])
def test_random_crop_pixels(packed: Path, padding: Any) -> None:
    """RandomCrop with padding and fill is torchvision's pad and crop at the same place, to the byte."""
    transform = T.RandomCrop((140, 150), padding=padding, fill=(9, 60, 200), pad_if_needed=True)
    for index in range(0, 50, 7):
        image = original(packed, index)
        x, y, w, h = resolved(transform, image, index)["window"]
        border = 200
        padded = F.pad(image, [border], fill=(9, 60, 200))
        expected = F.pil_to_tensor(F.crop(padded, y + border, x + border, h, w))
        assert difference(transformed(packed, transform, index), expected) == 0, index


def test_flip_pixels(packed: Path) -> None:
    """Flips, alone and after a crop, are torchvision's to the byte."""
    for index in range(0, 50, 7):
        image = original(packed, index)
        for native, reference in (
            ([T.RandomHorizontalFlip(1.0)], [v2.RandomHorizontalFlip(1.0)]),
            ([T.RandomVerticalFlip(1.0)], [v2.RandomVerticalFlip(1.0)]),
            (
                [T.CenterCrop(90), T.RandomHorizontalFlip(1.0)],
                [v2.CenterCrop(90), v2.RandomHorizontalFlip(1.0)],
            ),
            (
                [T.RandomHorizontalFlip(1.0), T.CenterCrop(91)],
                [v2.RandomHorizontalFlip(1.0), v2.CenterCrop(91)],
            ),
        ):
            assert (
                difference(transformed(packed, native, index), F.pil_to_tensor(v2.Compose(reference)(image)))
                == 0
            ), (index, native)


def test_floats_are_torchvisions(packed: Path) -> None:
    """ToFloat and Normalize give, bit for bit, the float32 of ToTensor and Normalize.

    ToDtype(scale=True) multiplies by the rounded 1/255 where ToTensor divides by 255: its values are a last
    digit away.
    """
    image = original(packed, 4)
    mean, std = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)
    divided = to_tensor(image)
    multiplied = v2.Compose([v2.PILToTensor(), v2.ToDtype(torch.float32, scale=True)])(image)
    mine = transformed(packed, [T.ToFloat()], 4)
    assert torch.equal(mine, divided)
    assert torch.allclose(mine, multiplied, rtol=2**-23, atol=0)
    assert torch.equal(transformed(packed, [T.Normalize(mean, std)], 4), v2.Normalize(mean, std)(divided))
