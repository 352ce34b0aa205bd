"""Each op against torchvision (and Pillow) on the same parameters, sample by sample, in uint8 and float32.

Tolerances, in levels of 0..255, uint8 / float32:
    flips, crop, erasing, grayscale, solarize, posterize, autocontrast, equalize, invert    0 / 0.01
    brightness, contrast, saturation, sharpness                                             1 / 0.01
    hue and colour jitter                                                                   1 / 0.01, see
    assert_jitter gaussian blur                                                                           1 /
    0.01 affine and rotation, bilinear                                                           1 / 0.5, but
    for 0.1% of the pixels affine and rotation, nearest     equal but for 0.5% of the pixels, which lie
    half-way between two
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
import torchvision.transforms.v2.functional as F
from augment_helpers import EPOCH, SEED, assert_levels, draws, levels_apart, pictures
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image, ImageOps
from stable_ids import named
from torch import Tensor
from torchvision.transforms import InterpolationMode

from fastload import augment as A
from fastload.augment import kernels
from fastload.augment.space import inverse_matrices
from fastload.errors import BatchShapeError

COUNT = 6
DTYPES = [torch.uint8, torch.float32]


def batch(dtype: torch.dtype, count: int = COUNT) -> Tensor:
    x = pictures(count)
    return x if dtype == torch.uint8 else x.to(dtype) / 255


def augmented(spec: Any, x: Tensor) -> Tensor:
    return A.AugmentBatch([spec])(x, seed=SEED, epoch=EPOCH, indices=range(len(x)))


def each(x: Tensor, op: Callable[[Tensor], Tensor]) -> Tensor:
    return torch.stack([op(row) for row in x])


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize(
    ("spec", "reference", "level"),
    [
        (A.RandomHorizontalFlip(1), F.horizontal_flip, 0),
        (A.RandomVerticalFlip(1), F.vertical_flip, 0),
        (A.RandomGrayscale(1), lambda x: F.rgb_to_grayscale(x, 3), 0),
        (A.RandomSolarize(100, 1), lambda x: F.solarize(x, 100 if x.dtype == torch.uint8 else 100 / 255), 0),
        (A.RandomPosterize(0, 1), lambda x: F.posterize(x, 0), 0),
        (A.RandomPosterize(3, 1), lambda x: F.posterize(x, 3), 0),
        (A.RandomPosterize(8, 1), lambda x: F.posterize(x, 8), 0),
        (A.RandomEqualize(1), F.equalize, 0),
        (A.RandomAutocontrast(1), F.autocontrast, 0),
        (A.RandomInvert(1), F.invert, 0),
        (A.RandomAdjustSharpness(0.0, 1), lambda x: F.adjust_sharpness(x, 0.0), 1),
        (A.RandomAdjustSharpness(1.9, 1), lambda x: F.adjust_sharpness(x, 1.9), 1),
        (A.GaussianBlur((5, 9), 1.3), lambda x: F.gaussian_blur(x, [5, 9], [1.3, 1.3]), 1),
        (A.GaussianBlur(23, 0.4), lambda x: F.gaussian_blur(x, [23, 23], [0.4, 0.4]), 1),
    ],
    ids=named,
)
def test_ops_without_draws(
    spec: Any, reference: Callable[[Tensor], Tensor], level: int, dtype: torch.dtype
) -> None:
    """Ops with one outcome give torchvision's."""
    x = batch(dtype)
    assert_levels(augmented(spec, x), each(x, reference), level if dtype == torch.uint8 else 0.01)


@pytest.mark.parametrize(
    ("spec", "reference"),
    [
        (A.RandomEqualize(1), ImageOps.equalize),
        (A.RandomInvert(1), ImageOps.invert),
        (A.RandomSolarize(90, 1), lambda image: ImageOps.solarize(image, 90)),
        (A.RandomPosterize(2, 1), lambda image: ImageOps.posterize(image, 2)),
        (A.RandomHorizontalFlip(1), ImageOps.mirror),
    ],
    ids=named,
)
def test_against_pillow(spec: Any, reference: Callable[[Image.Image], Image.Image]) -> None:
    """The ops that Pillow defines on bytes are Pillow's, bit for bit."""
    x = batch(torch.uint8)
    want = [np.asarray(reference(Image.fromarray(row.permute(1, 2, 0).numpy()))) for row in x]
    assert torch.equal(augmented(spec, x).permute(0, 2, 3, 1), torch.from_numpy(np.stack(want)))


def test_autocontrast_against_pillow() -> None:
    """Autocontrast is Pillow's within one level: Pillow rounds in a table, torchvision per pixel."""
    x = batch(torch.uint8)
    want = [np.asarray(ImageOps.autocontrast(Image.fromarray(row.permute(1, 2, 0).numpy()))) for row in x]
    assert_levels(
        augmented(A.RandomAutocontrast(1), x).permute(0, 2, 3, 1), torch.from_numpy(np.stack(want)), 1
    )


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize(
    ("kernel", "reference", "low", "high"),
    [
        (kernels.brightness, F.adjust_brightness, 0.0, 2.0),
        (kernels.contrast, F.adjust_contrast, 0.0, 2.0),
        (kernels.saturation, F.adjust_saturation, 0.0, 2.0),
        (kernels.sharpness, F.adjust_sharpness, 0.0, 2.0),
        (kernels.hue, F.adjust_hue, -0.5, 0.5),
    ],
    ids=["brightness", "contrast", "saturation", "sharpness", "hue"],
)
def test_factors(
    kernel: Callable[..., Tensor],
    reference: Callable[..., Tensor],
    low: float,
    high: float,
    dtype: torch.dtype,
) -> None:
    """Each row by a factor of its own gives torchvision's result for that factor, ends included."""
    x = batch(dtype, 12)
    factors = np.linspace(low, high, len(x)).astype(np.float32)
    want = torch.stack([reference(row, float(f)) for row, f in zip(x, factors, strict=True)])
    assert_levels(kernel(x, torch.from_numpy(factors)), want, 1 if dtype == torch.uint8 else 0.01)


def torchvision_jitter(x: Tensor, factors: np.ndarray, order: np.ndarray) -> Tensor:
    ops = F.adjust_brightness, F.adjust_contrast, F.adjust_saturation, F.adjust_hue
    for op in order:
        x = ops[op](x, float(factors[op]))
    return x


def assert_jitter(got: Tensor, want: Tensor) -> None:
    """Floats within 0.01 level. Bytes: one level off in one op becomes as many as later factors make of it,
    and hue turns grey pixels (of which one level is their whole colour) by more: 99% within 1 level, all
    within 8."""
    if got.dtype != torch.uint8:
        assert_levels(got, want, 0.01)
    else:
        assert_levels(got, want, 1, share=0.01)
        assert_levels(got, want, 8)


JITTER = A.ColorJitter(0.4, 0.4, 0.4, 0.2, p=0.8)


@pytest.mark.parametrize("dtype", DTYPES)
def test_color_jitter(dtype: torch.dtype) -> None:
    """Factors and order of each sample, done by torchvision one after the other, give the same pixels."""
    x = batch(dtype, 64)
    rows, factors, order = JITTER.factors(draws(64, JITTER.words))
    assert 40 < len(rows) < 64
    want = x.clone()
    for row, f, o in zip(rows, factors.astype(np.float32), order, strict=True):
        want[row] = torchvision_jitter(x[row], f, o)
    assert_jitter(augmented(JITTER, x), want)


ANGLES = st.floats(-180, 180)
SHEARS = st.floats(-60, 60)


@given(
    ANGLES,
    st.integers(-20, 20),
    st.integers(-20, 20),
    st.floats(0.3, 3.0),
    SHEARS,
    SHEARS,
    st.sampled_from(["nearest", "bilinear"]),
)
@settings(max_examples=60)
def test_affine(
    angle: float, shift_x: int, shift_y: int, scale: float, shear_x: float, shear_y: float, mode: str
) -> None:
    """The affine kernel under our matrix is torchvision's affine() with those parameters, filled with the
    same colour.

    Not compared: where a bilinear sample is partly outside. There torchvision weights the picture by its
    share twice, and ours once.
    """
    x = pictures(1)
    matrix = torch.from_numpy(
        inverse_matrices([angle], [shift_x], [shift_y], [scale], [shear_x], [shear_y]).astype(np.float32)
    )
    got = kernels.affine(x, matrix, torch.tensor([9.0, 120.0, 255.0]), mode=mode)
    parameters = angle, [shift_x, shift_y], scale, [shear_x, shear_y], InterpolationMode(mode)
    want = F.affine(x, *parameters, [9.0, 120.0, 255.0])
    inside = F.affine(torch.ones_like(x, dtype=torch.float32), *parameters)
    whole = (inside < 1e-4) | (inside > 1 - 1e-4)
    assert_levels(
        got[whole], want[whole], 1 if mode == "bilinear" else 0, share=0.001 if mode == "bilinear" else 0.005
    )


@pytest.mark.parametrize("mode", ["nearest", "bilinear"])
def test_fill_meets_its_own_colour_without_a_seam(mode: str) -> None:
    """A picture of one colour, turned, moved and filled with that colour, stays of that colour."""
    x = torch.tensor([7.0, 90.0, 251.0]).view(1, 3, 1, 1).expand(1, 3, 40, 30)
    matrix = torch.from_numpy(inverse_matrices([33.0], [5], [-3], [0.8], [10], [-20]).astype(np.float32))
    got = kernels.affine(x.to(torch.uint8), matrix, torch.tensor([7.0, 90.0, 251.0]), mode=mode)
    assert torch.equal(got, x.to(torch.uint8))


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("mode", ["nearest", "bilinear"])
def test_rotation(mode: str, dtype: torch.dtype) -> None:
    """RandomRotation's angles, read from its matrices, are torchvision's rotate()."""
    x = batch(dtype)
    spec = A.RandomRotation(70, mode)
    (step,) = A.AugmentBatch([spec]).steps(x, SEED, EPOCH, np.arange(COUNT, dtype=np.uint64))
    angles = np.degrees(np.arctan2(step.arrays["matrix"][:, 1, 0], step.arrays["matrix"][:, 0, 0]))
    assert len(set(angles.round(3))) == COUNT
    want = torch.stack(
        [F.rotate(row, float(a), InterpolationMode(mode)) for row, a in zip(x, angles, strict=True)]
    )
    got = augmented(spec, x)
    if mode == "nearest":
        assert_levels(got, want, 0.01, share=0.005)
    else:
        assert_levels(got, want, 1 if dtype == torch.uint8 else 0.5, share=0.001)


@pytest.mark.parametrize("mode", ["nearest", "bilinear"])
def test_flips_fold_into_what_follows(mode: str) -> None:
    """Flips before a rotation give the pixels of flipping first, by one pass less."""
    x = batch(torch.float32, 32)
    ops = [A.RandomHorizontalFlip(), A.RandomVerticalFlip(), A.RandomRotation(40, mode, p=0.7)]
    steps = A.AugmentBatch(ops).steps(x, SEED, EPOCH, np.arange(32, dtype=np.uint64))
    turned = steps[-1].rows
    assert steps[-1].kernel is kernels.affine
    assert all(not np.isin(step.rows, turned).any() for step in steps[:-1])
    flipped = A.AugmentBatch(ops[:2])(x, seed=SEED, epoch=EPOCH, indices=range(32))
    alone = ops[2].plan(draws(32, ops[2].words, 0x8002), _frame(x))[0]
    want = flipped.clone()
    want[alone.rows] = kernels.affine(
        flipped[alone.rows], torch.from_numpy(alone.arrays["matrix"]), mode=mode
    )
    assert_levels(A.AugmentBatch(ops)(x, seed=SEED, epoch=EPOCH, indices=range(32)), want, 0.5, share=0.005)


def _frame(x: Tensor) -> Any:
    from fastload.augment.steps import Frame

    return Frame(len(x), x.shape[2], x.shape[3], x.dtype != torch.uint8)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("fill", [0, (10, 20, 255)])
@pytest.mark.parametrize("padding", [0, 4, (1, 2, 3, 4)])
def test_random_crop(padding: Any, fill: Any, dtype: torch.dtype) -> None:
    """Every row is a window of its own of the padded image, by the drawn corner."""
    x = batch(dtype, 40)
    spec = A.RandomCrop((30, 41), padding, fill=fill)
    (step,) = A.AugmentBatch([spec]).steps(x, SEED, EPOCH, np.arange(40, dtype=np.uint64))
    corners = step.arrays["corner"]
    assert len({tuple(c) for c in corners}) > 20
    colour = [
        v * (1 if dtype == torch.uint8 else 1 / 255)
        for v in (fill if isinstance(fill, tuple) else (fill,) * 3)
    ]
    sides = [padding] if isinstance(padding, int) else list(padding)
    padded = F.pad(x, sides, fill=colour)
    want = torch.stack(
        [F.crop(row, int(t), int(left), 30, 41) for row, (t, left) in zip(padded, corners, strict=True)]
    )
    assert_levels(augmented(spec, x), want, 0.0001)


def test_random_crop_of_small_images() -> None:
    """Images smaller than the crop are refused, or padded on both sides with pad_if_needed."""
    x = pictures(3, 20, 60)
    with pytest.raises(BatchShapeError, match="20x60"):
        augmented(A.RandomCrop(32), x)
    got = augmented(A.RandomCrop(32, pad_if_needed=True, fill=7), x)
    assert got.shape == (3, 3, 32, 32)
    assert bool((got[:, :, 0] == 7).all() | (got[:, :, -1] == 7).all())


@pytest.mark.parametrize("dtype", DTYPES)
def test_erasing(dtype: torch.dtype) -> None:
    """The drawn box, and nothing else, has the value."""
    x = batch(dtype, 50)
    spec = A.RandomErasing(0.7, value=(1, 2, 250))
    (step,) = A.AugmentBatch([spec]).steps(x, SEED, EPOCH, np.arange(50, dtype=np.uint64))
    value = torch.tensor([1.0, 2.0, 250.0]) / (1 if dtype == torch.uint8 else 255)
    want = x.clone()
    for row, (top, left, bottom, right) in zip(step.rows, step.arrays["box"], strict=True):
        want[row] = F.erase(x[row], top, left, bottom - top, right - left, value.to(dtype).view(3, 1, 1))
    assert 25 < len(step.rows) < 45
    assert float(levels_apart(augmented(spec, x), want).max()) < 0.001
