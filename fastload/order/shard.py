"""The argument shard=: which of how many ranks this process is."""

from __future__ import annotations

import os
from typing import Any, Literal

from torch import distributed

from fastload.common.positions import position_of
from fastload.errors import ArgumentError
from fastload.window.ranks import grouped

Shard = Literal["auto"] | tuple[int, int]


def checked_shard(shard: Any) -> Shard | None:
    """The argument shard= as "auto" or (rank, world); None stays None.

    Raises:
        ArgumentError: it is neither, or the rank is none of that many.
    """
    if shard is None:
        return None
    if isinstance(shard, str) and shard == "auto":
        return "auto"
    try:
        rank, world = (position_of(each) for each in shard)
    except (TypeError, ValueError):
        raise ArgumentError(f'shard={shard!r}: give "auto", or (rank, world), such as (0, 8)') from None
    return _checked(rank, world, f"shard={shard!r}")


def rank_and_world(shard: Shard) -> tuple[int, int]:
    """(rank, world) as they are now: of "auto" those of the process group, else of torchrun's variables, else (0, 1).

    Raises:
        ArgumentError: RANK and WORLD_SIZE are no rank and number of ranks.
    """
    if shard != "auto":
        return shard
    if grouped():
        return distributed.get_rank(), distributed.get_world_size()
    rank, world = os.environ.get("RANK"), os.environ.get("WORLD_SIZE")
    if not rank and (world or "1") == "1":
        return 0, 1
    told = f'shard="auto": the environment has RANK={rank or ""} and WORLD_SIZE={world or ""}'
    if not ((rank or "").isdecimal() and (world or "").isdecimal()):
        raise ArgumentError(f"{told}, which do not tell the rank: call torch.distributed.init_process_group(), or give shard=(rank, world)")
    return _checked(int(rank or 0), int(world or 1), told)


def process_rank(shard: Shard | None) -> tuple[int, int]:
    """(rank, world) of this process, whatever part of the samples it has: of the process group, else of torchrun's variables, else of
    shard=(rank, world), else (0, 1)."""
    if not grouped() and not _from_environment():
        return shard if shard is not None and shard != "auto" else (0, 1)
    return rank_and_world("auto")


def _from_environment() -> bool:
    rank, world = os.environ.get("RANK") or "", os.environ.get("WORLD_SIZE") or ""
    return rank.isdecimal() and world.isdecimal() and int(rank) < int(world)


def _checked(rank: int, world: int, told: str) -> tuple[int, int]:
    if world < 1 or not 0 <= rank < world:
        raise ArgumentError(f"{told}: of a world of {world}, ranks are counted from 0 to {world - 1}")
    return rank, world
