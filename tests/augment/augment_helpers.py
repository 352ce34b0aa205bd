"""What the tests of augmentation share: pictures, comparisons with a stated tolerance, and two
goodness-of-fit tests."""

from __future__ import annotations

import math

import numpy as np
import numpy.typing as npt
import torch
from pictures import photo
from torch import Tensor

from fastload.augment.philox import Draw, as_indices, words_of

SEED, EPOCH = 20261121, 3
DRAWS = 10_000


def pictures(count: int, height: int = 45, width: int = 52) -> Tensor:
    """uint8 (count, 3, height, width): photographs, and among them noise, one colour, and two colours."""
    rng = np.random.default_rng(count)
    made = [np.asarray(photo(i, height, width)) for i in range(count)]
    for i, flat in (
        (1, rng.integers(0, 256, (height, width, 3))),
        (2, np.full((height, width, 3), 77)),
        (3, np.arange(width) % 2 * 200),
    ):
        if i < count:
            made[i] = np.broadcast_to(flat[None, :, None] if flat.ndim == 1 else flat, (height, width, 3))
    return torch.from_numpy(np.stack(made).astype(np.uint8)).permute(0, 3, 1, 2).contiguous()


def draws(count: int, words: int, stream: int = 0x8000) -> Draw:
    """The words of `count` samples for one op."""
    return Draw(words_of(SEED, EPOCH, as_indices(range(count)), [(stream, words)])[0])


def levels_apart(got: Tensor, want: Tensor) -> Tensor:
    """Differences in levels of 0..255, float32."""
    assert got.shape == want.shape
    assert got.dtype == want.dtype
    return (got.float() - want.float()).abs() * (1.0 if got.dtype == torch.uint8 else 255.0)


def assert_levels(got: Tensor, want: Tensor, most: float, share: float = 0.0) -> None:
    """No pixel is off by more than `most` levels, but for this share of them."""
    apart = levels_apart(got, want)
    beyond = float((apart > most).float().mean())
    assert beyond <= share, (
        f"{beyond:.2%} of the values are more than {most} levels off, up to {float(apart.max()):.1f}"
    )


def assert_frequencies(counts: npt.ArrayLike, chances: npt.ArrayLike) -> None:
    """Pearson's chi-square at 0.1%; its quantile by Wilson and Hilferty."""
    seen, share = np.asarray(counts, float), np.asarray(chances, float)
    want = share / share.sum() * seen.sum()
    assert (seen[want == 0] == 0).all()
    seen, want = seen[want > 0], want[want > 0]
    degrees = len(seen) - 1
    critical = degrees * (1 - 2 / (9 * degrees) + 3.0902 * math.sqrt(2 / (9 * degrees))) ** 3
    statistic = float(((seen - want) ** 2 / want).sum())
    assert statistic < critical, (
        f"chi-square {statistic:.1f} over {degrees} degrees of freedom, more than {critical:.1f}: "
        f"{seen} for {want}"
    )


def assert_uniform(values: npt.ArrayLike) -> None:
    """Kolmogorov and Smirnov's test for uniform on [0, 1] at 0.1%."""
    ordered = np.sort(np.asarray(values, float))
    steps = np.arange(len(ordered) + 1) / len(ordered)
    distance = max((ordered - steps[:-1]).max(), (steps[1:] - ordered).max())
    assert distance < 1.949 / math.sqrt(len(ordered)), f"KS distance {distance:.4f} over {len(ordered)} draws"
