"""Seeds and random streams: every random choice about a sample is a pure function of (seed, epoch, index,
occurrence).

NOTE [ rng: the registry of Philox streams ]
A Philox key is (seed, epoch, index, stream). Two uses of one stream would draw the same numbers, so that each
has a stream of its own:
  0 ...            the native transforms, by their position in the transform; in view k of several (from 0) k
  * VIEW_STREAMS further OP_STREAM ...      the ops of AugmentBatch, counted over all batch transforms of a
    loader, and before them the native steps that stand for such ops
  MIX_STREAM ...     MixUp, CutMix and the choice between them, and the batch seeds of Seeded: draws for a
  whole batch OCCURRENCE_STREAM  the seeds of samples that came before in their pass
  INTERLEAVING_STREAM  the key of a mixture's order of sources in one epoch
  SOURCE_STREAM      the keys of a mixture's passes over its sources
  SUBSTITUTE_STREAM  the substitutes of a bad sample
  ORDER_STREAM       the seed of an epoch's order, and of the order of the steps in each of its pools
  HOST_STREAM        the line of blocks that hosts share out, and the key of each host's order in one epoch
  SAMPLE_STREAM      the seeds of Python's, NumPy's and torch's generators under seed_by="sample"

`KeyedPermutation` is a random order of any number of samples that takes no memory: a pure function of a key.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from math import isqrt

import numpy as np
import numpy.typing as npt

from fastload._native import core
from fastload.common.positions import position_of
from fastload.errors import ArgumentError

COUNT_LIMIT = 1 << 60
"""Limit on samples: the product of a half's size, at most 2**30 + 1, and 32 random bits stays below 2**63."""
ROUNDS = 8
"""Rounds of the Feistel network, as FF3 has, which NIST standardised for the same construction."""
SMALL_COUNT, SMALL_ROUNDS = 1 << 16, 24
"""With fewer elements than that, halves are small and mix less in a round: differences of neighbours show
it below about 1,000 elements."""
CHUNK = 1 << 12
"""Positions that are mapped at a time: what NumPy works on stays in a core's own cache."""
_STREAM = 2
"""Stream of the key's Philox generator whose words are the rounds' keys; WindowOrder has the streams 0 and
1."""
_MULTIPLIER = np.uint64(0x9E3779B97F4A7C15)
_MIXER = np.uint64(0xD6E8FEB86659FD93)
_HALF_WORD = np.uint64(32)

_Words = npt.NDArray[np.uint64]
_Positions = npt.NDArray[np.int64]


class KeyedPermutation:
    """A permutation of 0 .. count-1 that is computed element by element: any of them at once, from a few
    numbers of state.

    It is the generalized Feistel cipher over a * b >= count with cycle walking of J. Black and P. Rogaway,
    "Ciphers with Arbitrary Finite Domains" (CT-RSA 2002): a position is split into (position mod a, position
    div a), each round adds a keyed function of one half to the other, modulo that half's size, and a result
    of count or more is permuted again until it is below. With a and b next to the square root, fewer than a
    numbers lie above count, so that hardly any position is permuted twice. The round function is no cipher's:
    two multiplications, as in the finalizers of hash functions. Orders are random, and not secret.

    Args:
        count: number of elements, 0 .. COUNT_LIMIT.
        key: 0 .. 2**64-1; the permutation is a pure function of count and key, on every machine.

    Raises:
        ValueError: count is out of range.
    """

    def __init__(self, count: int, key: int) -> None:
        if not 0 <= count <= COUNT_LIMIT:
            raise ValueError(f"{count:,} samples: an order has 0 to {COUNT_LIMIT:,}")
        self.count = count
        first = max(1, isqrt(max(0, count - 1)) + 1)
        self._sizes = np.uint64(first), np.uint64(max(1, -(-count // first)))
        # Orders of almost as many samples are others.
        words = np.random.Philox(key=key, counter=[0, 0, count, _STREAM])
        self._keys = np.asarray(words.random_raw(ROUNDS if count >= SMALL_COUNT else SMALL_ROUNDS), np.uint64)

    def at(self, positions: npt.NDArray[np.integer]) -> _Positions:
        """The elements at some positions, each 0 .. count-1."""
        found = self._cipher(positions.astype(np.uint64))
        count = np.uint64(self.count)
        outside = np.flatnonzero(found >= count)
        while len(outside):
            found[outside] = self._cipher(found[outside])
            outside = outside[found[outside] >= count]
        return found.view(np.int64)

    def chunks(self, start: int = 0, step: int = 1, stop: int | None = None) -> Iterator[_Positions]:
        """The elements at the positions range(start, stop, step), in pieces of a few thousand, each computed
        when it is asked for.

        Args:
            start: first position, 0 or more.
            step: 1 or more.
            stop: end of the positions, at most count; None: count.
        """
        places = range(start, self.count if stop is None else min(stop, self.count), step)
        for begin in range(0, len(places), CHUNK):
            part = places[begin : begin + CHUNK]
            yield self.at(np.arange(part.start, part.stop, part.step, dtype=np.int64))

    def _cipher(self, places: _Words) -> _Words:
        """The Feistel network over a * b numbers. `places` is its own to change."""
        size = self._sizes[0]
        upper = places // size
        places -= upper * size
        halves = places, upper
        for number, key in enumerate(self._keys):
            changed = number & 1
            self._round(halves[changed], halves[1 - changed], self._sizes[changed], key)
        upper *= size
        places += upper
        return places

    @staticmethod
    def _round(changed: _Words, other: _Words, size: np.uint64, key: np.uint64) -> None:
        """Adds a number below `size`, random in `other` and `key`, to one half, modulo its size."""
        drawn = mixed(other, key)
        drawn >>= _HALF_WORD  # the upper half of the product has all bits mixed
        drawn *= size
        drawn >>= _HALF_WORD
        changed += drawn
        np.minimum(changed, changed - size, out=changed)  # below the size it wraps to a large number


def mixed(words: _Words, key: int | np.uint64) -> _Words:
    """New words whose upper bits are random in (word, key): the round function, of two multiplications."""
    out: _Words = words ^ np.uint64(key)
    out *= _MULTIPLIER
    out ^= out >> _HALF_WORD
    out *= _MIXER
    return out


OP_STREAM = 0x8000
MIX_STREAM = 0xC000
VIEW_STREAMS = 512
"""Streams of one view: 64 views have those below OP_STREAM."""
OCCURRENCE_STREAM = 0xFFF9
HOST_STREAM = 0xFFFA
INTERLEAVING_STREAM = 0xFFFB
SOURCE_STREAM = 0xFFFC
SUBSTITUTE_STREAM = 0xFFFD
ORDER_STREAM = 0xFFFE
SAMPLE_STREAM = 0xFFFF
SUBSTITUTES = 16
"""Most substitutes that are tried for a sample that cannot be made."""
SUBSTITUTE_OCCURRENCE = 1 << 31
"""Occurrences from here on are of substitutes."""


def checked_seed(seed: object) -> int | None:
    """A seed argument as an int of 64 bits; None stays None.

    Raises:
        ArgumentError: it is no integer from 0 to 2**64 - 1.
    """
    if seed is None:
        return None
    number = _natural(seed)
    if number is None or number >= 1 << 64:
        raise ArgumentError(
            f"seed={seed!r}: give an integer from 0 to 2**64 - 1, or None for a seed from torch's generator"
        )
    return number


def checked_epoch(epoch: object) -> int:
    """An epoch's number as an int.

    Raises:
        ArgumentError: it is no integer from 0 to 2**63 - 1.
    """
    number = _natural(epoch)
    if number is None or number >= 1 << 63:
        raise ArgumentError(f"epoch {epoch!r}: give its number, an integer from 0 to 2**63 - 1")
    return number


def _natural(value: object) -> int | None:
    """The value as an int; None where it is negative or no integer."""
    try:
        number = position_of(value)
    except TypeError:
        return None
    return number if number >= 0 else None


def order_seed(seed: int, epoch: int) -> int:
    """The seed of one epoch's order, a pure function of (seed, epoch); 63 bits."""
    return _key(seed, epoch, 0, ORDER_STREAM)


def pool_seed(seed: int, epoch: int, pool: int) -> int:
    """The key of the order of the steps in one pool of an epoch; 63 bits."""
    return _key(seed, epoch, 1 + pool, ORDER_STREAM)


def hosts_seed(seed: int, period: int) -> int:
    """The key of the line of blocks that hosts share out in a period of epochs; 63 bits."""
    return _key(seed, period, 0, HOST_STREAM)


def host_order_seed(seed: int, epoch: int, host: int) -> int:
    """The seed of one host's order in one epoch; 63 bits."""
    return _key(seed, epoch, 1 + host, HOST_STREAM)


def interleaving_seed(seed: int, epoch: int) -> int:
    """The key of a mixture's order of sources in one epoch; 63 bits."""
    return _key(seed, epoch, 0, INTERLEAVING_STREAM)


def source_seed(seed: int, source: int, number: int) -> int:
    """The key of one pass over a source of a mixture, of the passes that are counted through all epochs;
    63 bits."""
    return _key(seed, source, number, SOURCE_STREAM)


def _key(seed: int, epoch: int, index: int, stream: int) -> int:
    low, high = core.random_words(seed, epoch, index, stream, 2)
    return (high << 32 | low) & 0x7FFF_FFFF_FFFF_FFFF


def row_seeds(
    seed: int, epoch: int, occurrences: npt.NDArray[np.uint32] | None
) -> npt.NDArray[np.uint64] | None:
    """The seeds of samples' draws, by their occurrences; None where all are 0, or None: `seed` itself."""
    if occurrences is None or not occurrences.any():
        return None
    return core.occurrence_seeds(seed, epoch, OCCURRENCE_STREAM, occurrences)


def row_seed(seed: int, epoch: int, occurrence: int) -> int:
    """The seed of one sample's draws. See NOTE [ occurrences: an index that comes again ]."""
    if not occurrence:
        return seed
    return int(core.occurrence_seeds(seed, epoch, OCCURRENCE_STREAM, np.array([occurrence], np.uint32))[0])


def substitutes(seed: int, epoch: int, index: int, count: int, occurrence: int = 0) -> list[int]:
    """Positions (0 .. count-1) to try, in order, in place of the sample `index`: a pure function of its
    arguments."""
    words = core.random_words(row_seed(seed, epoch, occurrence), epoch, index, SUBSTITUTE_STREAM, SUBSTITUTES)
    return [word % count for word in words]


def substitute_occurrence(seed: int, epoch: int, index: int, occurrence: int = 0) -> int:
    """The occurrence of any sample that comes in place of the sample `index`, so that its draws are not
    those of its own turn."""
    words = core.random_words(
        row_seed(seed, epoch, occurrence), epoch, index, SUBSTITUTE_STREAM, SUBSTITUTES + 1
    )
    return SUBSTITUTE_OCCURRENCE | words[-1] >> 1


class _CurrentSample(threading.local):
    """The occurrence of the sample that this thread makes for a loader, and whether a Mixture's passes are
    counted in it."""

    now = 0, False


_turn = _CurrentSample()


def current_occurrence() -> tuple[int, bool]:
    """The occurrence of the sample that is made in this thread, 0 outside of a loader, and True if a
    Mixture's passes are counted in it."""
    return _turn.now


@contextmanager
def occurring(occurrence: int, *, resolved: bool) -> Iterator[None]:
    """Samples of packed data that this thread makes meanwhile are drawn with an occurrence. `resolved`:
    see current_occurrence()."""
    before, _turn.now = _turn.now, (occurrence, resolved)
    try:
        yield
    finally:
        _turn.now = before
