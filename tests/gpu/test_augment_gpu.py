"""Augmentation on a real device: the same parameters as on the CPU, and no call that waits."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch

pytestmark = [pytest.mark.gpu, pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device")]

from fastload import augment as A  # noqa: E402

KEY = {"seed": 3, "epoch": 1}
OPS = [
    A.RandomHorizontalFlip(),
    A.RandomCrop(60, 4, fill=(1, 2, 3)),
    A.RandomAffine(15, (0.1, 0.1), (0.9, 1.1), 5, fill=9, p=0.5),
    A.ColorJitter(0.4, 0.4, 0.4, 0.1),
    A.GaussianBlur(5, p=0.5),
    A.RandAugment(2, 9),
    A.TrivialAugmentWide(),
    A.AutoAugment(),
    A.RandomErasing(),
]


def images(dtype: torch.dtype) -> torch.Tensor:
    x = torch.randint(0, 256, (32, 3, 64, 64), dtype=torch.uint8, generator=torch.Generator().manual_seed(1))
    return x if dtype == torch.uint8 else x.to(dtype) / 255


@pytest.mark.parametrize("dtype", [torch.uint8, torch.float32])
@pytest.mark.parametrize("op", OPS, ids=lambda op: type(op).__name__)
def test_as_on_the_cpu(op: object, dtype: torch.dtype) -> None:
    """Each op gives the CPU's pixels, but for rounding: 99.5% within one level."""
    x = images(dtype)
    augment = A.AugmentBatch([op])
    want = augment(x, **KEY, indices=range(32)).float()
    got = augment(x.cuda(), **KEY, indices=range(32)).cpu().float()
    level = 1 if dtype == torch.uint8 else 1 / 255
    assert ((got - want).abs() > level * 1.001).float().mean() < 0.005


def test_nothing_waits(no_waiting: Callable[[], None]) -> None:
    """All ops, MixUp, CutMix and Seeded are queued without one synchronisation, once their kernels are
    built."""
    x, labels = images(torch.uint8).cuda(), torch.arange(32).cuda()
    every = A.AugmentBatch(OPS)
    every(x, **KEY, indices=range(32))
    with torch.cuda.stream(torch.cuda.Stream()):
        no_waiting()
        x = every(x, **KEY, indices=range(32))
        x, targets = A.MixUp(0.2, 32)(x.float(), labels, **KEY, indices=range(32))
        x, targets = A.CutMix(1.0, 32)(x, targets, **KEY, indices=range(32))
        A.Seeded(torch.nn.Dropout())(x, **KEY, batch=1)


def test_device_generator_is_kept() -> None:
    """The device's global generator stands where it stood, and is heeded inside."""
    before = torch.cuda.get_rng_state()
    x = torch.zeros(8, device="cuda")
    first = A.Seeded(lambda t: t + torch.rand_like(t))(x, **KEY, batch=1)
    assert torch.equal(before, torch.cuda.get_rng_state())
    assert torch.equal(first, A.Seeded(lambda t: t + torch.rand_like(t))(x, **KEY, batch=1))
