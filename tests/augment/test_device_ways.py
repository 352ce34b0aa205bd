"""What runs on a device, as far as it can be shown without one.

No op reads a value back: the meta device has none to give, and raises where one is asked for. And where ops
go another way on a device than on the CPU, the other way gives the same pixels: the CPU can go it, too.
"""

from __future__ import annotations

from typing import Any

import pytest
import torch
from augment_helpers import EPOCH, SEED, levels_apart, pictures
from test_by_params import module

from fastload import augment as A
from fastload.augment import kernels
from fastload.augment.kornia_classes import ROWWISE
from fastload.device.to_float import eager

ROWS = 32
OPS = [
    A.RandomHorizontalFlip(),
    A.RandomVerticalFlip(),
    A.RandomCrop(60, 4, fill=(1, 2, 3)),
    A.RandomAffine(15, (0.1, 0.1), (0.9, 1.1), 5, fill=9, p=0.5),
    A.RandomRotation(20, "bilinear"),
    A.ColorJitter(0.4, 0.4, 0.4, 0.1),
    A.RandomGrayscale(0.5),
    A.RandomInvert(),
    A.RandomSolarize(100),
    A.RandomPosterize(3),
    A.RandomEqualize(),
    A.RandomAutocontrast(),
    A.RandomAdjustSharpness(2),
    A.GaussianBlur(5, p=0.5),
    A.RandomErasing(1.0),
    A.RandAugment(2, 9),
    A.TrivialAugmentWide(),
    A.AutoAugment(),
]


def valueless(dtype: torch.dtype) -> torch.Tensor:
    return torch.empty((ROWS, 3, 64, 72), dtype=dtype, device="meta")


@pytest.mark.parametrize("dtype", [torch.uint8, torch.float32, torch.bfloat16])
@pytest.mark.parametrize("op", OPS, ids=lambda op: type(op).__name__)
def test_ops(op: Any, dtype: torch.dtype) -> None:
    """Ours, on some rows and on all."""
    out = A.AugmentBatch([op, op])(valueless(dtype), seed=SEED, epoch=EPOCH, indices=range(ROWS))
    assert (out.device.type, out.dtype, len(out)) == ("meta", dtype, ROWS)


@pytest.mark.parametrize("name", sorted(ROWWISE))
def test_kornias_modules(name: str) -> None:
    """Kornia's, by their parameters."""
    dtype = torch.float32 if ROWWISE[name].floats else torch.uint8
    out = A.AugmentBatch([module(name)])(valueless(dtype), seed=SEED, epoch=EPOCH, indices=range(ROWS))
    assert (out.device.type, out.dtype, len(out)) == ("meta", dtype, ROWS)
    assert (out.shape == (ROWS, 3, 64, 72)) != ROWWISE[name].resizes


@pytest.mark.parametrize(
    "name", sorted(name for name, traits in ROWWISE.items() if traits.moves and traits.objects)
)
def test_objects_of_kornias_modules(name: str) -> None:
    """Masks, boxes and keypoints that Kornia's move."""
    kinds = {"masks": (ROWS, 64, 72), "boxes": (ROWS, 3, 4), "keypoints": (ROWS, 5, 2)}
    given = {
        kind: torch.empty(shape, device="meta")
        for kind, shape in kinds.items()
        if kind in ROWWISE[name].objects
    }
    out = A.AugmentBatch([module(name)])(
        valueless(torch.uint8), seed=SEED, epoch=EPOCH, indices=range(ROWS), **given
    )
    assert out.masks.shape == (ROWS, *out.images.shape[2:])
    assert all(getattr(out, kind).device.type == "meta" for kind in given)


@pytest.mark.parametrize(
    "mix", [A.MixUp(0.2, 10), A.CutMix(1.0, 10), A.RandomChoice((A.MixUp(0.2, 10), A.CutMix(1.0, 10)))]
)
def test_mixes(mix: Any) -> None:
    """Images and labels."""
    labels = torch.empty(ROWS, dtype=torch.int64, device="meta")
    images, targets = mix(valueless(torch.uint8), labels, seed=SEED, epoch=EPOCH, indices=range(ROWS))
    assert images.device == targets.device == labels.device
    assert targets.shape == (ROWS, 10)


def test_the_pass_to_floats() -> None:
    """In torch's own ops."""
    out = eager(valueless(torch.uint8), torch.bfloat16, (0.5,) * 3, (0.25,) * 3, torch.channels_last)
    assert (out.device.type, out.dtype) == ("meta", torch.bfloat16)


@pytest.mark.parametrize("dtype", [torch.uint8, torch.float32])
@pytest.mark.parametrize(
    "op",
    [*OPS, *(A.KorniaOp(module(n)) for n in ("RandomPosterize", "ColorJitter", "RandomResizedCrop"))],
    ids=lambda op: repr(op)[:30],
)
def test_the_devices_way_on_the_cpu(op: Any, dtype: torch.dtype, monkeypatch: pytest.MonkeyPatch) -> None:
    """The same pixels, but for the rounding of a filter."""
    x = pictures(ROWS, 64, 72)
    x = x if dtype == torch.uint8 else x.to(dtype) / 255
    augment = A.AugmentBatch([op, op])
    want = augment(x, seed=SEED, epoch=EPOCH, indices=range(ROWS))
    monkeypatch.setattr(kernels, "on_cpu", lambda device: False)
    got = augment(x, seed=SEED, epoch=EPOCH, indices=range(ROWS))
    if dtype == torch.uint8:
        assert torch.equal(got, want)
    assert float(levels_apart(got, want).max()) < 0.001
