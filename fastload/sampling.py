"""Which sample, when: seeds of epochs, substitutes for bad samples, and positions of a loader's dataset in packed ones."""

from __future__ import annotations

from fastload._native import core

ORDER_STREAM = 0xFFFE
SUBSTITUTE_STREAM = 0xFFFF
SUBSTITUTES = 16
"""How many substitutes are tried for a sample that cannot be made."""


def order_seed(seed: int, epoch: int) -> int:
    """The seed of one epoch's order, a pure function of (seed, epoch); 63 bits."""
    low, high = core.random_words(seed, epoch, 0, ORDER_STREAM, 2)
    return (high << 32 | low) & 0x7FFF_FFFF_FFFF_FFFF


def substitutes(seed: int, epoch: int, index: int, count: int) -> list[int]:
    """Positions (0 .. count-1) to try, in order, in place of the sample `index`: a pure function of its arguments."""
    return [word % count for word in core.random_words(seed, epoch, index, SUBSTITUTE_STREAM, SUBSTITUTES)]
