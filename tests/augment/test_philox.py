"""The batch generator gives the native generator's words, and what is made of them has the distribution it claims."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from augment_helpers import DRAWS, assert_frequencies, assert_uniform, draws
from hypothesis import given, settings
from hypothesis import strategies as st

from fastload._native import core
from fastload.augment import philox
from fastload.augment.jitter import ORDERS
from fastload.errors import ArgumentError

U64 = st.integers(0, 2**64 - 1)


@given(U64, st.integers(0, 2**32 - 1), st.lists(U64, min_size=1, max_size=5), st.integers(0, 0xFFFF), st.integers(1, 30))
@settings(max_examples=200, deadline=None)
def test_words_are_the_native_ones(seed: int, epoch: int, indices: list[int], stream: int, count: int) -> None:
    """Every row is core.random_words() of its index."""
    got = philox.words(seed, epoch, np.array(indices, np.uint64), stream, count)
    assert got.tolist() == [core.random_words(seed, epoch, index, stream, count) for index in indices]


def test_several_streams_in_one_pass() -> None:
    """Streams drawn together are those drawn alone, also of no words."""
    rows = philox.as_indices([5, 900])
    many = philox.words_of(7, 1, rows, [(0x8000, 5), (0x8001, 0), (0x8002, 2)])
    for got, (stream, count) in zip(many, [(0x8000, 5), (0x8001, 0), (0x8002, 2)], strict=True):
        assert got.shape == (2, count)
        assert got.tolist() == [core.random_words(7, 1, i, stream, count) for i in (5, 900)]


@pytest.mark.parametrize(
    "indices", [[1, 2], (1, 2), np.array([1, 2], np.int32), torch.tensor([1, 2])], ids=["list", "tuple", "numpy", "torch"]
)
def test_kinds_of_indices(indices: object) -> None:
    """Lists, arrays and tensors of integers are the same."""
    assert philox.as_indices(indices).tolist() == [1, 2]


@pytest.mark.parametrize("indices", [[-1, 2], [0.5], [[1, 2]], ["a"]])
def test_bad_indices(indices: object) -> None:
    """Anything but integers of at least 0 in one dimension is refused."""
    with pytest.raises(ArgumentError, match="indices"):
        philox.as_indices(indices)


def test_streams_do_not_collide() -> None:
    """Ops, mixes, native transforms and seeds have streams of their own."""
    assert philox.OP_STREAM + 0x4000 == philox.MIX_STREAM
    assert philox.MIX_STREAM + 4 < 0xFFFE


def test_uniform_and_below() -> None:
    """uniform() is uniform; below() is unbiased; chance() happens as often as it says."""
    draw = draws(DRAWS, 8)
    assert_uniform(draw.uniform())
    assert_uniform((draw.uniform(-3.0, 5.0) + 3.0) / 8.0)
    assert_frequencies(np.bincount(draw.below(24), minlength=len(ORDERS)), np.ones(24))
    happened = len(draw.chance(0.3))
    assert_frequencies([happened, DRAWS - happened], [0.3, 0.7])


@pytest.mark.parametrize(
    ("alpha", "cdf"),
    [
        (1.0, lambda x: x),
        (0.5, lambda x: 2 / np.pi * np.arcsin(np.sqrt(x))),
        (2.0, lambda x: 3 * x**2 - 2 * x**3),
    ],
)
def test_beta(alpha: float, cdf: object) -> None:
    """beta() has Beta(alpha, alpha)'s distribution, where that has a closed form."""
    values = philox.beta(draws(DRAWS, philox.BETA_WORDS), alpha)
    assert_uniform(cdf(values))  # type: ignore[operator]


@pytest.mark.parametrize("alpha", [1e-3, 0.1, 0.2, 0.8, 8.0])
def test_beta_moments(alpha: float) -> None:
    """Mean 1/2 and variance 1 / (8 alpha + 4) within four of their own standard errors; never outside [0, 1], never NaN."""
    values = philox.beta(draws(DRAWS, philox.BETA_WORDS), alpha)
    assert ((values >= 0) & (values <= 1)).all()
    variance = 1 / (8 * alpha + 4)
    assert abs(values.mean() - 0.5) < 4 * np.sqrt(variance / DRAWS)
    squares = (values - 0.5) ** 2
    assert abs(squares.mean() - variance) <= 4 * squares.std() / np.sqrt(DRAWS) + 1e-12
