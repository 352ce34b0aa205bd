"""Sizes as users write them: which texts are sizes, and what the error of any other says."""

from __future__ import annotations

from typing import Any

import pytest

from fastload.common.limits import parse_size
from fastload.errors import ArgumentError
from fastload.packing.options import RunOptions


@pytest.mark.parametrize(
    ("size", "expected"),
    [
        ("1GiB", 1 << 30),
        ("500MB", 500_000_000),
        ("64M", 64 << 20),
        (" 1.5 kib ", 1536),
        ("7", 7),
        ("7b", 7),
        ("2T", 2 << 40),
        (9, 9),
    ],
)
def test_sizes(size: Any, expected: int) -> None:
    """Decimal units end in B alone, binary ones in iB or are one letter."""
    assert parse_size(size, "it") == expected


@pytest.mark.parametrize(
    "size", ["", "GiB", "-1", "1 XB", "1GiBit", "1e3", "٣", "9" * 400, None, 1.5, True, b"1"]
)
def test_no_sizes(size: Any) -> None:
    """Anything else is one error with the argument's name."""
    with pytest.raises(ArgumentError, match=r"cache_size .* is no size; write 1GiB"):
        parse_size(size, "cache_size")


def test_shards_have_a_least_size() -> None:
    """A shard is a file of its own: less than 1 MiB is refused."""
    assert RunOptions(shard_size="1MiB").shard_bytes == 1 << 20
    with pytest.raises(ArgumentError, match="less than 1 MiB"):
        RunOptions(shard_size="1000KB")
