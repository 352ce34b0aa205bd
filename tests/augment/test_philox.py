"""The batch generator gives the native generator's words, and what is made of them has the distribution it
claims."""

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
from fastload.common import rng
from fastload.errors import ArgumentError

U64 = st.integers(0, 2**64 - 1)


@given(
    U64,
    st.integers(0, 2**32 - 1),
    st.lists(U64, min_size=1, max_size=5),
    st.integers(0, 0xFFFF),
    st.integers(1, 30),
)
@settings(max_examples=200)
def test_words_are_the_native_ones(
    seed: int, epoch: int, indices: list[int], stream: int, count: int
) -> None:
    """Every row is core.random_words() of its index."""
    got = philox.words(seed, epoch, np.array(indices, np.uint64), stream, count)
    assert got.tolist() == [core.random_words(seed, epoch, index, stream, count) for index in indices]


WANT = st.tuples(st.integers(0, 0xFFFF), st.integers(0, 30))


@given(
    st.integers(-(2**63), 2**65), st.integers(0, 2**40), st.lists(U64, max_size=5), st.lists(WANT, max_size=4)
)
@settings(max_examples=200)
def test_native_rows_are_native_words(
    seed: int, epoch: int, indices: list[int], wants: list[tuple[int, int]]
) -> None:
    """random_rows() is random_words() of every index and stream, side by side; also of no index, no
    stream, no word, and wrapped keys."""
    got = core.random_rows(seed, epoch, np.array(indices, np.uint64), wants)
    assert got.dtype == np.uint32
    assert got.shape == (len(indices), sum(count for _, count in wants))
    for row, index in zip(got.tolist(), indices, strict=True):
        assert row == [
            word for stream, count in wants for word in core.random_words(seed, epoch, index, stream, count)
        ]


@pytest.mark.parametrize("want", [(-1, 4), (0x10000, 4), (3, -1), (3, (1 << 18) + 1)])
def test_native_rows_refuse_what_no_stream_has(want: tuple[int, int]) -> None:
    """A stream of more than 16 bits or longer than its blocks can count, or a negative count, is named."""
    with pytest.raises(ArgumentError, match=f"{want[1]} words of stream {want[0]}:"):
        core.random_rows(1, 2, np.zeros(3, np.uint64), [(0, 2), want])


def paper_philox(counter: list[int], key: list[int]) -> list[int]:
    """Philox4x32-10 as the paper defines it, in Python's integers."""
    c, k = list(counter), list(key)
    for _ in range(10):
        a, b = 0xD2511F53 * c[0], 0xCD9E8D57 * c[2]
        c = [b >> 32 ^ c[1] ^ k[0], b & 0xFFFFFFFF, a >> 32 ^ c[3] ^ k[1], a & 0xFFFFFFFF]
        k = [k[0] + 0x9E3779B9 & 0xFFFFFFFF, k[1] + 0xBB67AE85 & 0xFFFFFFFF]
    return c


@given(U64, st.integers(0, 2**32 - 1), U64, st.integers(0, 0xFFFF), st.integers(1, 12))
def test_words_are_the_papers(seed: int, epoch: int, index: int, stream: int, count: int) -> None:
    """Every bit of the seed and of the index is in the key and the counter."""
    low, words = 0xFFFFFFFF, []
    for block in range(3):
        words += paper_philox(
            [index & low, index >> 32, epoch, stream << 16 | block], [seed & low, seed >> 32]
        )
    assert core.random_words(seed, epoch, index, stream, count) == words[:count]


def test_native_rows_to_the_end_of_a_stream() -> None:
    """The longest stream's last block is the paper's Philox at the last counter, and shares no word's
    counter with the next stream."""
    got = core.random_rows(5, 6, np.array([7], np.uint64), [(3, 1 << 18)])[0]
    assert got[-4:].tolist() == paper_philox([7, 0, 6, 3 << 16 | 0xFFFF], [5, 0])


@pytest.mark.parametrize(
    "indices", [None, np.zeros(3), np.zeros((3, 1), np.uint64), np.zeros(6, np.uint64)[::2], [1, 2]]
)
def test_native_rows_take_one_kind_of_indices(indices: object) -> None:
    """Other than contiguous uint64 in one dimension is refused, not read as if it were."""
    with pytest.raises((TypeError, ValueError)):
        core.random_rows(1, 2, indices, [(0, 4)])  # type: ignore[arg-type]


def test_several_streams_in_one_pass() -> None:
    """Streams drawn together are those drawn alone, also of no words."""
    rows = philox.as_indices([5, 900])
    many = philox.words_of(7, 1, rows, [(0x8000, 5), (0x8001, 0), (0x8002, 2)])
    for got, (stream, count) in zip(many, [(0x8000, 5), (0x8001, 0), (0x8002, 2)], strict=True):
        assert got.shape == (2, count)
        assert got.tolist() == [core.random_words(7, 1, i, stream, count) for i in (5, 900)]


@pytest.mark.parametrize(
    "indices",
    [[1, 2], (1, 2), np.array([1, 2], np.int32), torch.tensor([1, 2])],
    ids=["list", "tuple", "numpy", "torch"],
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
    assert rng.OP_STREAM + 0x4000 == rng.MIX_STREAM
    assert rng.MIX_STREAM + 4 < rng.SUBSTITUTE_STREAM
    assert rng.MIX_STREAM + 4 < rng.HOST_STREAM < rng.INTERLEAVING_STREAM


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
    """Mean 1/2 and variance 1 / (8 alpha + 4) within four of their own standard errors; never outside [0,
    1], never NaN."""
    values = philox.beta(draws(DRAWS, philox.BETA_WORDS), alpha)
    assert ((values >= 0) & (values <= 1)).all()
    variance = 1 / (8 * alpha + 4)
    assert abs(values.mean() - 0.5) < 4 * np.sqrt(variance / DRAWS)
    squares = (values - 0.5) ** 2
    assert abs(squares.mean() - variance) <= 4 * squares.std() / np.sqrt(DRAWS) + 1e-12
