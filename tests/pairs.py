"""Pairwise tables: few combinations of arguments, in which every two values of two arguments meet."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import combinations, product
from typing import Any


def pairwise(*axes: Sequence[Any]) -> list[tuple[Any, ...]]:
    """Returns rows of the product of `axes`, the same ones each time, in which each pair of values of two
    axes occurs.

    Each row is the one of the product that has the most pairs which no earlier row has.
    """
    rows = list(product(*(range(len(axis)) for axis in axes)))
    pairs = {row: set(combinations(enumerate(row), 2)) for row in rows}
    left: set[Any] = set().union(*pairs.values())
    chosen = []
    while left:
        row = max(rows, key=lambda row: len(pairs[row] & left))
        left -= pairs[row]
        chosen.append(row)
    return [tuple(axis[at] for axis, at in zip(axes, row, strict=True)) for row in chosen]
