"""AugmentBatch's rules: a sample's result depends on (seed, epoch, index) alone, nothing global is
touched, bad input is named."""

from __future__ import annotations

import dataclasses
import pickle
import random
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import warm
from augment_helpers import (
    DRAWS,
    EPOCH,
    SEED,
    assert_frequencies,
    assert_levels,
    assert_uniform,
    draws,
    pictures,
)
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor
from torchvision.transforms import v2

from fastload import FastLoader
from fastload import augment as A
from fastload import transforms as T
from fastload.augment import kernels
from fastload.augment.steps import Frame
from fastload.engines import plan
from fastload.errors import ArgumentError, TransformError

SIZE = (36, 40)
OPS: tuple[Any, ...] = (
    A.RandomHorizontalFlip(),
    A.RandomVerticalFlip(0.2),
    A.RandomAffine(20, (0.1, 0.2), (0.8, 1.2), (-5, 5, -9, 9), "bilinear", fill=(9, 8, 7), p=0.6),
    A.RandomRotation((-10, 50), p=0.5),
    A.ColorJitter(0.4, 0.4, 0.4, 0.1, p=0.8),
    A.RandomGrayscale(0.2),
    A.GaussianBlur(5, p=0.5),
    A.RandomSolarize(128, 0.3),
    A.RandomPosterize(3, 0.3),
    A.RandomEqualize(0.3),
    A.RandomAdjustSharpness(2.0),
    A.RandomAutocontrast(0.3),
    A.RandomInvert(0.3),
    A.RandomErasing(),
    A.RandomCrop(32, 4),
    A.RandAugment(),
    A.TrivialAugmentWide(),
    A.AutoAugment(),
)
DTYPES = [torch.uint8, torch.float16, torch.bfloat16, torch.float32]


def batch(count: int, dtype: torch.dtype = torch.uint8) -> Tensor:
    x = pictures(count, *SIZE)
    return x if dtype == torch.uint8 else (x / 255).to(dtype)


POOL = {dtype: batch(16, dtype) for dtype in DTYPES}


@given(
    st.lists(st.sampled_from(OPS), min_size=1, max_size=3),
    st.lists(st.integers(0, 15), min_size=1, max_size=9),
    st.sampled_from(DTYPES),
    st.integers(0, 2**64 - 1),
    st.booleans(),
    st.data(),
)
@settings(max_examples=80)
def test_rows_do_not_depend_on_the_batch(
    ops: list[Any], picked: list[int], dtype: torch.dtype, seed: int, last: bool, data: Any
) -> None:
    """aug(batch)[i] == aug(that sample alone), bit for bit, for any list of ops, any batch, dtype and
    memory format."""
    augment = A.AugmentBatch(ops)
    x = POOL[dtype][picked]
    x = x.contiguous(memory_format=torch.channels_last) if last else x
    indices = [1000 * i + 7 for i in picked]
    together = augment(x, seed=seed, epoch=EPOCH, indices=indices)
    i = data.draw(st.integers(0, len(picked) - 1))
    alone = augment(x[i : i + 1], seed=seed, epoch=EPOCH, indices=indices[i : i + 1])
    assert torch.equal(together[i], alone[0])


@pytest.mark.parametrize("chunk", [1, 3 * 4 * 3 * SIZE[0] * SIZE[1]])
def test_chunks_change_no_pixel(chunk: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """On the CPU kernels run over a few rows at a time; by how many changes nothing, for every op."""
    for dtype in (torch.uint8, torch.float32):
        x = batch(16, dtype)
        for ops in [*([op] for op in OPS), list(OPS)]:
            augment = A.AugmentBatch(ops)
            monkeypatch.setattr("fastload.augment.steps._CHUNK_BYTES", 1 << 40)
            want = augment(x, seed=SEED, epoch=EPOCH, indices=range(16))
            monkeypatch.setattr("fastload.augment.steps._CHUNK_BYTES", chunk)
            assert torch.equal(augment(x, seed=SEED, epoch=EPOCH, indices=range(16)), want), ops


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("memory_format", [torch.contiguous_format, torch.channels_last])
def test_dtype_format_and_input_are_kept(dtype: torch.dtype, memory_format: torch.memory_format) -> None:
    """Every op, and all together, keep dtype and memory format, and leave the input as it was; floats stay
    in 0..1."""
    x = batch(16, dtype).contiguous(memory_format=memory_format)
    before = x.clone()
    for ops in [*([op] for op in OPS), list(OPS)]:
        got = A.AugmentBatch(ops)(x, seed=SEED, epoch=EPOCH, indices=range(16))
        assert got.dtype == dtype
        assert got.is_contiguous(memory_format=memory_format), ops
        assert got.shape == (16, 3, 32, 32) if A.RandomCrop(32, 4) in ops else x.shape
        assert torch.equal(x, before), ops
        assert bool((got >= 0).all())
        assert bool((got <= (255 if dtype == torch.uint8 else 1.001)).all())


@pytest.mark.parametrize(
    "op", [*OPS[:15], A.RandAugment(1), A.TrivialAugmentWide()], ids=lambda op: type(op).__name__
)
def test_half_precision_is_float32_rounded(op: Any) -> None:
    """One op on float16 comes out as on float32, within half a level, but for pixels at a threshold;
    float32 is what is computed in."""
    half = batch(16, torch.float16)
    got = A.AugmentBatch([op])(half, seed=SEED, epoch=EPOCH, indices=range(16))
    want = A.AugmentBatch([op])(half.float(), seed=SEED, epoch=EPOCH, indices=range(16))
    assert_levels(got.float(), want, 0.5, share=0.002)


def test_same_again_and_other_otherwise() -> None:
    """The same seed, epoch and indices give the same pixels; another of any of them gives others; the op's
    place in the list counts."""
    augment = A.AugmentBatch([A.RandAugment(), A.RandomErasing(1.0)])
    x = pictures(1, *SIZE).expand(8, -1, -1, -1)

    def run(seed: int = 1, epoch: int = 2, start: int = 3, this: A.AugmentBatch = augment) -> Tensor:
        return this(x, seed=seed, epoch=epoch, indices=range(start, start + 8))

    assert torch.equal(run(), run())
    assert not torch.equal(run(), run(seed=4))
    assert not torch.equal(run(), run(epoch=4))
    assert not torch.equal(run(), run(start=4))
    assert torch.equal(run()[1:], run(start=4)[:-1])
    twice = A.AugmentBatch([A.RandomErasing(1.0, value=1), A.RandomErasing(1.0, value=2)])
    assert {1, 2} <= set(run(this=twice)[0].flatten().tolist())


def test_global_generators_are_left_alone() -> None:
    """Global generators are neither advanced nor heeded."""
    augment = A.AugmentBatch(OPS)
    x = batch(8)
    states = torch.get_rng_state(), random.getstate(), np.random.get_state()[1].tobytes()
    first = augment(x, seed=1, epoch=0, indices=range(8))
    assert torch.equal(states[0], torch.get_rng_state())
    assert states[1:] == (random.getstate(), np.random.get_state()[1].tobytes())
    torch.manual_seed(5)
    assert torch.equal(first, augment(x, seed=1, epoch=0, indices=range(8)))


def test_plain_value() -> None:
    """Pickles, compares, hashes, and its repr makes it again."""
    augment = A.AugmentBatch(OPS)
    assert pickle.loads(pickle.dumps(augment)) == augment == eval(repr(augment), vars(A))
    assert len({augment, A.AugmentBatch(list(OPS)), A.AugmentBatch(OPS[1:])}) == 2
    with pytest.raises(dataclasses.FrozenInstanceError):
        augment.ops[0].p = 1.0


def test_nothing_to_do_is_free() -> None:
    """Without rows to change, the input itself is returned; an empty batch stays empty."""
    x = batch(4)
    assert A.AugmentBatch([A.RandomInvert(0.0)])(x, seed=1, epoch=0, indices=range(4)) is x
    assert A.AugmentBatch([])(x, seed=1, epoch=0, indices=range(4)) is x
    for ops in OPS, [A.RandAugment()]:
        got = A.AugmentBatch(ops)(x[:0], seed=1, epoch=0, indices=[])
        assert got.shape[:2] == (0, 3)


def test_bad_batches() -> None:
    """Shape, dtype and number of indices are checked before anything is done."""
    augment = A.AugmentBatch([A.RandomInvert()])
    x = batch(2)
    for images in x[0], x[:, :1], x.double(), x.int():
        with pytest.raises(ArgumentError, match="AugmentBatch takes"):
            augment(images, seed=0, epoch=0, indices=[0, 1])
    with pytest.raises(ArgumentError, match="3 indices for 2 images"):
        augment(x, seed=0, epoch=0, indices=[0, 1, 2])


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: A.AugmentBatch([A.RandomInvert(), T.Resize(3)]), "position 1"),
        (lambda: A.AugmentBatch([torch.nn.Identity()]), "batch_transform"),
        (lambda: A.RandomInvert(1.5), "p=1.5"),
        (lambda: A.RandomGrayscale(-0.1), "p=-0.1"),
        (lambda: A.RandomSolarize(300), "threshold"),
        (lambda: A.RandomPosterize(9), "bits"),
        (lambda: A.RandomAdjustSharpness(-1), "sharpness_factor"),
        (lambda: A.GaussianBlur(4), "kernel_size"),
        (lambda: A.GaussianBlur(3, (2.0, 1.0)), "sigma"),
        (lambda: A.GaussianBlur(3, 0.0), "sigma"),
        (lambda: A.RandomErasing(value="random"), "noise"),
        (lambda: A.RandomErasing(value=(1, 2)), "value"),
        (lambda: A.RandomErasing(ratio=(0.0, 1.0)), "ratio"),
        (lambda: A.RandomErasing(scale=(0.1, 1.2)), "scale"),
        (lambda: A.RandomRotation((3, 1)), "degrees"),
        (lambda: A.RandomRotation(3, "bicubic"), "interpolation"),
        (lambda: A.RandomRotation(3, fill=256), "fill"),
        (lambda: A.RandomAffine(0, (0.1, 1.1)), "translate"),
        (lambda: A.RandomAffine(0, scale=(0.0, 1.0)), "scale"),
        (lambda: A.RandomAffine(0, shear=(1, 2, 3)), "shear"),
        (lambda: A.ColorJitter(-0.1), "brightness"),
        (lambda: A.ColorJitter(hue=0.6), "hue"),
        (lambda: A.RandAugment(magnitude=31), "magnitude"),
        (lambda: A.RandAugment(-1), "num_ops"),
        (lambda: A.TrivialAugmentWide(1), "num_magnitude_bins"),
        (lambda: A.AutoAugment("cifar10"), "cifar10"),
    ],
)
def test_bad_specs(make: Any, message: str) -> None:
    """A wrong parameter is an error at once, and the message names it."""
    with pytest.raises(TransformError, match=message):
        make()


def test_blur_wider_than_the_image() -> None:
    """A reflection needs pixels to reflect; the message names both sizes."""
    with pytest.raises(TransformError, match="36x40"):
        A.AugmentBatch([A.GaussianBlur(81)])(batch(2), seed=0, epoch=0, indices=[0, 1])


@pytest.mark.parametrize(
    "op",
    [
        op
        for op in OPS
        if hasattr(op, "p") and isinstance(op, A.RandomInvert | A.ColorJitter | A.RandomRotation)
    ],
    ids=repr,
)
def test_probabilities(op: Any) -> None:
    """Over 10,000 samples an op happens as often as its p says."""
    step = op.plan(draws(DRAWS, op.words), Frame(DRAWS, 32, 32, False))
    rows = len(np.unique(np.concatenate([s.rows for s in step])))
    assert_frequencies([rows, DRAWS - rows], [op.p, 1 - op.p])


def test_jitter_draws() -> None:
    """Over 10,000 samples factors are uniform over their ranges and every order is as likely as any other."""
    spec = A.ColorJitter(0.4, (0.2, 0.9), 1.5, 0.1)
    assert spec.saturation == (0.0, 2.5)
    rows, factors, order = spec.factors(draws(DRAWS, spec.words))
    assert len(rows) == DRAWS
    for column, (low, high) in zip(factors.T, [(0.6, 1.4), (0.2, 0.9), (0.0, 2.5), (-0.1, 0.1)], strict=True):
        assert_uniform((column - low) / (high - low))
    assert_frequencies(np.unique(order @ [64, 16, 4, 1], return_counts=True)[1], np.ones(24))


def test_blur_rotation_and_affine_draws() -> None:
    """Over 10,000 samples sigmas, angles and scales are uniform over their ranges; shifts are whole pixels
    within theirs."""
    frame = Frame(DRAWS, 50, 80, False)
    blur, turn = A.GaussianBlur(3, (0.5, 2.5)), A.RandomRotation((-20, 40))
    assert_uniform((blur.plan(draws(DRAWS, blur.words), frame)[0].arrays["sigma"] - 0.5) / 2.0)
    matrix = turn.plan(draws(DRAWS, turn.words), frame)[0].arrays["matrix"]
    assert_uniform((np.degrees(np.arctan2(matrix[:, 1, 0], matrix[:, 0, 0])) + 20) / 60)
    moved = A.RandomAffine(0, (0.1, 0.06), (0.5, 2.0))
    matrix = moved.plan(draws(DRAWS, moved.words), frame)[0].arrays["matrix"].astype(float)
    assert_uniform((1 / matrix[:, 0, 0] - 0.5) / 1.5)
    for axis, most in ((0, 8), (1, 3)):
        shifts = -matrix[:, axis, 2] / matrix[:, 0, 0]
        assert np.abs(shifts - shifts.round()).max() < 1e-4
        # The outermost whole pixels get half a share: what is rounded is uniform.
        share = [0.5, *[1.0] * (2 * most - 1), 0.5]
        assert_frequencies(np.bincount(shifts.round().astype(int) + most, minlength=2 * most + 1), share)


def test_erasing_draws() -> None:
    """Over 10,000 samples boxes lie inside, have the area and ratio asked for, and are everywhere; a box
    that fits is found."""
    spec = A.RandomErasing(1.0, (0.05, 0.2), (0.5, 2.0))
    fits, boxes = spec.boxes(draws(DRAWS, 44), 224, 200)
    assert fits.all()
    top, left, bottom, right = boxes.T.astype(float)
    assert (
        (top >= 0) & (left >= 0) & (bottom <= 224) & (right <= 200) & (bottom > top) & (right > left)
    ).all()
    assert_uniform(((bottom - top) * (right - left) / (224 * 200) - 0.05) / 0.15)
    ratio = np.log((bottom - top) / (right - left)) / np.log(2.0)
    assert_frequencies(np.histogram(ratio, 4, (-1.02, 1.02))[0], np.ones(4))
    assert_frequencies(np.histogram(top / (224 - (bottom - top) + 1), 8, (0, 1))[0], np.ones(8))
    _, quarters = A.RandomErasing(1.0, (0.25, 0.25), (1.0, 1.0)).boxes(draws(DRAWS, 45), 8, 8)
    for corner in quarters[:, :2].T:  # up to the last row and column
        assert_frequencies(np.bincount(corner, minlength=5), np.ones(5))
    crowded, _ = A.RandomErasing(1.0, (1.0, 1.0), (1.0, 1.0)).boxes(draws(DRAWS, 44), 20, 20)
    assert not crowded.any()


def test_crop_draws() -> None:
    """Over 10,000 samples every corner is as likely as any other."""
    spec = A.RandomCrop(32, 2)
    steps = A.AugmentBatch([spec]).steps(
        torch.empty(DRAWS, 3, 32, 32, dtype=torch.uint8, device="meta"),
        SEED,
        EPOCH,
        np.arange(DRAWS, dtype=np.uint64),
    )
    corner = steps[0].arrays["corner"]
    assert_frequencies(np.bincount(corner[:, 0] * 5 + corner[:, 1], minlength=25), np.ones(25))


WITHOUT_KORNIA = """
import sys
sys.modules["kornia"] = None
import torch
from fastload import augment as A
from fastload.errors import FastloadError

ops = [A.ColorJitter(0.4), A.RandomAffine(9), A.RandAugment(), A.TrivialAugmentWide(), A.AutoAugment(),
    A.RandomErasing(), A.RandomCrop(8)]
A.AugmentBatch(ops)(torch.zeros((2, 3, 9, 9), dtype=torch.uint8), seed=0, epoch=0, indices=[0, 1])
A.Seeded(torch.nn.Dropout())(torch.ones(3), seed=0, epoch=0, batch=0)
try:
    A.GaussianBlur(3)
except ImportError as error:
    assert isinstance(error, FastloadError), type(error)
    print(error)
"""


def test_without_kornia() -> None:
    """Without Kornia all runs but GaussianBlur, which says what to install when it is made, as an
    ImportError and a FastloadError."""
    found = warm.run(WITHOUT_KORNIA)
    assert found.returncode == 0, found.stderr
    assert (
        found.stdout
        == "fastload.augment's GaussianBlur needs Kornia: pip install 'torch-fastload[augment]'\n"
    )


def test_transforms_without_kornia(packed: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without Kornia a transform's steps are left to the device, but for a list with GaussianBlur, which
    native threads do, and of which explain() says why; the batches are made all the same."""
    monkeypatch.setitem(sys.modules, "kornia", None)
    monkeypatch.setattr(plan, "_missing_ops", plan._missing_ops.__wrapped__)
    told = []
    for step in v2.ColorJitter(0.4), v2.GaussianBlur(3):
        steps = [v2.CenterCrop(24), step, v2.ToImage(), v2.ToDtype(torch.float32, scale=True)]
        with FastLoader(packed, 8, transform=steps, device="cpu") as loader:
            told.append(loader.explain(all=True))
            assert loader.explain(all=True) == told[-1]
            assert sum(len(images) for images, _ in loader) == 50
    assert "native but for what the device does" in told[0]
    assert "its transform is native; the device could do a part of it, but" in " ".join(told[1].split())
    assert (
        "GaussianBlur needs Kornia, which is not installed: pip install 'torch-fastload[augment]'" in told[1]
    )


def test_kernels_never_write_to_their_input() -> None:
    """Kernels on float32, which need no conversion, leave their input alone, and never hand it or one
    value in many places out."""
    x = batch(4, torch.float32)
    before = x.clone()
    ones = torch.full((4,), 0.3)
    for kernel in (
        kernels.brightness,
        kernels.contrast,
        kernels.saturation,
        kernels.sharpness,
        kernels.hue,
        kernels.solarize,
    ):
        kernel(x, ones).zero_()
        kernel(x[:, :, :2, :2], ones).zero_()
    for plain in (
        kernels.grayscale,
        kernels.invert,
        kernels.autocontrast,
        kernels.equalize,
        kernels.hflip,
        kernels.vflip,
    ):
        plain(x).zero_()
        plain(x[:, :, :2, :2]).zero_()
    assert torch.equal(x, before)
    for start in (A.RandomGrayscale(1), A.RandomAdjustSharpness(2.0, 1)):
        small = x[:, :, :2, :2].clone()
        A.AugmentBatch([start, A.RandomInvert()])(small, seed=1, epoch=0, indices=range(4))
        assert torch.equal(small, x[:, :, :2, :2])


@pytest.mark.parametrize("dtype", [torch.uint8, torch.float32])
def test_no_trace_of_the_number_of_threads(dtype: torch.dtype) -> None:
    """Large images have the same bits in one batch and one by one, with one thread and with several: also
    what needs an image's mean."""
    noise = torch.randint(
        0, 256, (7, 3, 230, 220), dtype=torch.uint8, generator=torch.Generator().manual_seed(0)
    )
    x = noise if dtype == torch.uint8 else noise.to(dtype) / 255
    augment = A.AugmentBatch(
        [A.ColorJitter(0.4, 0.4, 0.4, 0.1), A.RandAugment(2, 9)]
        if dtype == torch.uint8
        else [A.ColorJitter(0.4, 0.8)]
    )
    before, found = torch.get_num_threads(), []
    try:
        for threads in (1, 3):
            torch.set_num_threads(threads)
            found.append(augment(x, seed=1, epoch=0, indices=range(7)))
            found.append(torch.cat([augment(x[i : i + 1], seed=1, epoch=0, indices=[i]) for i in range(7)]))
    finally:
        torch.set_num_threads(before)
    assert all(torch.equal(each, found[0]) for each in found[1:])
