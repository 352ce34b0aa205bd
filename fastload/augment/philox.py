"""Random numbers for a batch of samples at once: the native generator's words, and what is made of them in
NumPy.

The generator is csrc/common/rng.c's Philox4x32-10: row i of words(seed, epoch, indices, stream, n) is
core.random_words(seed, epoch, indices[i], stream, n).
Plain functions of their arguments: neither the other rows nor their number can change a row.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from itertools import accumulate, pairwise

import numpy as np
import numpy.typing as npt

from fastload._native import core
from fastload.common.rng import row_seeds
from fastload.errors import ArgumentError

Words = npt.NDArray[np.uint32]
Doubles = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]

_HALF = np.uint64(32)
_TRIES = 16
"""Tries of the gamma sampler: each is accepted with more than 95%, so that all fail less than once in
10^20 draws; then it is the mode."""


def as_indices(indices: Sequence[int] | npt.ArrayLike) -> npt.NDArray[np.uint64]:
    """Indices of samples in their dataset, as the generator counts them; shape (B,).

    Raises:
        ArgumentError: not one dimension of integers of at least 0.
    """
    if hasattr(indices, "detach"):
        indices = indices.detach().cpu().numpy()
    found = np.asarray(indices)
    if found.size == 0:
        return np.zeros(0, np.uint64)
    if found.ndim != 1 or found.dtype.kind not in "iu" or (found.dtype.kind == "i" and int(found.min()) < 0):
        raise ArgumentError(
            f"indices: {found.dtype} of shape {found.shape}; give one integer of at least 0 per sample"
        )
    return found.astype(np.uint64)


def as_occurrences(
    occurrences: Sequence[int] | npt.ArrayLike | None, rows: int
) -> npt.NDArray[np.uint32] | None:
    """Occurrences of a batch's indices: the number of times that each came before in the pass, (B,); None
    where none did.

    Raises:
        ArgumentError: not one integer of at least 0 for each index.
    """
    if occurrences is None:
        return None
    found = as_indices(occurrences)
    if len(found) != rows or (rows and int(found.max()) >= 1 << 32):
        raise ArgumentError(f"occurrences: {len(found)} for {rows} indices; give one for each, below 2**32")
    return found.astype(np.uint32) if found.any() else None


def words_of(
    seed: int,
    epoch: int,
    indices: npt.NDArray[np.uint64],
    wants: Sequence[tuple[int, int]],
    occurrences: npt.NDArray[np.uint32] | None = None,
) -> list[Words]:
    """The first words of several streams, in one pass: for each (stream, count) an array (B, count)."""
    drawn = core.random_rows(seed, epoch, indices, wants, row_seeds(seed, epoch, occurrences))
    ends = list(accumulate((count for _, count in wants), initial=0))
    return [drawn[:, start:end] for start, end in pairwise(ends)]


def words(seed: int, epoch: int, indices: Sequence[int] | npt.ArrayLike, stream: int, count: int) -> Words:
    """The first `count` words of one stream for every index; shape (B, count), uint32."""
    return words_of(seed, epoch, as_indices(indices), [(stream, count)])[0]


def batch_key(
    indices: npt.NDArray[np.uint64], occurrences: npt.NDArray[np.uint32] | None = None
) -> npt.NDArray[np.uint64]:
    """One index that stands for a whole batch: 64 bits of BLAKE2b over its indices in their order, and
    their occurrences; shape (1,)."""
    told = b"" if occurrences is None else occurrences.astype("<u4").tobytes()
    digest = hashlib.blake2b(indices.astype("<u8").tobytes() + told, digest_size=8).digest()
    return np.frombuffer(digest, "<u8").astype(np.uint64)


class Draw:
    """The words of one op, one row per sample, taken from the left by what it asks for.

    1. What is asked for depends on the op alone, never on what was drawn: a position has one meaning in every
       row.
    """

    def __init__(self, drawn: Words) -> None:
        self._drawn = drawn
        self._next = 0
        self.rows = len(drawn)

    def words(self, count: int) -> Words:
        """The next `count` words; shape (B, count)."""
        start, self._next = self._next, self._next + count
        if self._next > self._drawn.shape[1]:
            raise AssertionError(f"{self._next} words asked of {self._drawn.shape[1]}")
        return self._drawn[:, start : self._next]

    def uniforms(self, count: int) -> Doubles:
        """Uniform in [0, 1), 53 bits from two words, as fl_rng_uniform; shape (B, count)."""
        pair = self.words(2 * count).reshape(self.rows, count, 2).astype(np.uint64)
        whole = (pair[..., 0] >> np.uint64(5) << np.uint64(26)) | pair[..., 1] >> np.uint64(6)
        drawn: Doubles = whole.astype(np.float64) * 2.0**-53
        return drawn

    def uniform(self, low: float = 0.0, high: float = 1.0) -> Doubles:
        """Uniform in [low, high) from two words; shape (B,)."""
        return low + (high - low) * self.uniforms(1)[:, 0]

    def below(self, bound: int) -> Ints:
        """Uniform in 0 .. bound-1 from one word, as fl_rng_below; shape (B,)."""
        drawn: Ints = (self.words(1)[:, 0].astype(np.uint64) * np.uint64(bound) >> _HALF).astype(np.int64)
        return drawn

    def chance(self, p: float) -> Ints:
        """The rows on which something of probability p happens."""
        return np.flatnonzero(self.uniform() < p)


def _log_gamma(draw: Draw, alpha: float) -> Doubles:
    """log of Gamma(alpha, 1) variates, (B,): Marsaglia and Tsang, "A simple method for generating gamma
    variables" (2000), for alpha + 1, brought down by a uniform's power; in logs, since for a small alpha the
    variate itself underflows."""
    d = alpha + 2.0 / 3.0
    power = np.log1p(-draw.uniform()) / alpha
    first, turn, third = (draw.uniforms(_TRIES) for _ in range(3))
    x = np.sqrt(-2.0 * np.log1p(-first)) * np.cos(2.0 * np.pi * turn)
    v = (1.0 + x / np.sqrt(9.0 * d)) ** 3
    log_v = np.log(np.where(v > 0, v, 1.0))
    accepted = (v > 0) & (np.log1p(-third) < 0.5 * x * x + d * (1.0 - v + log_v))
    found = np.take_along_axis(log_v, accepted.argmax(1)[:, None], axis=1)[:, 0]
    log_gamma: Doubles = np.log(d) + np.where(accepted.any(1), found, 0.0) + power
    return log_gamma


BETA_WORDS = 2 * (6 * _TRIES + 2)
"""Words that one draw of beta() takes."""


def beta(draw: Draw, alpha: float) -> Doubles:
    """Beta(alpha, alpha) variates in [0, 1] as ratios of gamma variates; shape (B,)."""
    return 1.0 / (1.0 + np.exp(np.clip(_log_gamma(draw, alpha) - _log_gamma(draw, alpha), -700.0, 700.0)))
