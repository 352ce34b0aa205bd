"""Seeds and random streams: every random choice about a sample is a pure function of (seed, epoch, index).

NOTE [ rng: the registry of Philox streams ]
A Philox key is (seed, epoch, index, stream). Two uses of one stream would draw the same numbers, so that each has a stream of its own:
  0 ...            the native transforms, by their position in the transform; in view k of several (from 0) k * VIEW_STREAMS further
  OP_STREAM ...      the ops of AugmentBatch, counted over all batch transforms of a loader
  MIX_STREAM ...     MixUp, CutMix and the choice between them, and the batch seeds of Seeded: draws for a whole batch
  INTERLEAVING_STREAM  the key of a mixture's order of sources in one epoch
  SOURCE_STREAM      the keys of a mixture's passes over its sources
  SUBSTITUTE_STREAM  the substitutes of a bad sample
  ORDER_STREAM       the seed of an epoch's order
  SAMPLE_STREAM      the seeds of Python's, NumPy's and torch's generators under seed_by="sample"
"""

from __future__ import annotations

from typing import Any

from fastload._native import core
from fastload.errors import ArgumentError
from fastload.positions import position_of

OP_STREAM = 0x8000
MIX_STREAM = 0xC000
VIEW_STREAMS = 512
"""Streams of one view: 64 views have those below OP_STREAM."""
INTERLEAVING_STREAM = 0xFFFB
SOURCE_STREAM = 0xFFFC
SUBSTITUTE_STREAM = 0xFFFD
ORDER_STREAM = 0xFFFE
SAMPLE_STREAM = 0xFFFF
SUBSTITUTES = 16
"""How many substitutes are tried for a sample that cannot be made."""


def checked_seed(seed: Any) -> int | None:
    """A seed argument as an int of 64 bits; None stays None.

    Raises:
        ArgumentError: it is no integer from 0 to 2**64 - 1.
    """
    if seed is None:
        return None
    number = _natural(seed)
    if number is None or number >= 1 << 64:
        raise ArgumentError(f"seed={seed!r}: give an integer from 0 to 2**64 - 1, or None for a seed from torch's generator")
    return number


def checked_epoch(epoch: Any) -> int:
    """An epoch's number as an int.

    Raises:
        ArgumentError: it is no integer from 0 to 2**63 - 1.
    """
    number = _natural(epoch)
    if number is None or number >= 1 << 63:
        raise ArgumentError(f"epoch {epoch!r}: give its number, an integer from 0 to 2**63 - 1")
    return number


def _natural(value: Any) -> int | None:
    """The value as an int; None where it is negative or no integer."""
    try:
        number = position_of(value)
    except TypeError:
        return None
    return number if number >= 0 else None


def order_seed(seed: int, epoch: int) -> int:
    """The seed of one epoch's order, a pure function of (seed, epoch); 63 bits."""
    return _key(seed, epoch, 0, ORDER_STREAM)


def interleaving_seed(seed: int, epoch: int) -> int:
    """The key of a mixture's order of sources in one epoch; 63 bits."""
    return _key(seed, epoch, 0, INTERLEAVING_STREAM)


def source_seed(seed: int, source: int, number: int) -> int:
    """The key of one pass over a source of a mixture, of the passes that are counted through all epochs; 63 bits."""
    return _key(seed, source, number, SOURCE_STREAM)


def _key(seed: int, epoch: int, index: int, stream: int) -> int:
    low, high = core.random_words(seed, epoch, index, stream, 2)
    return (high << 32 | low) & 0x7FFF_FFFF_FFFF_FFFF


def substitutes(seed: int, epoch: int, index: int, count: int) -> list[int]:
    """Positions (0 .. count-1) to try, in order, in place of the sample `index`: a pure function of its arguments."""
    return [word % count for word in core.random_words(seed, epoch, index, SUBSTITUTE_STREAM, SUBSTITUTES)]
