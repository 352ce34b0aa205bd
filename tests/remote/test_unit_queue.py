"""A queue of units gives each once, those of one shard in a row, and no unit long after its turn."""

from __future__ import annotations

import random
from itertools import pairwise

import pytest

from fastload.remote.fetcher import NEAR, UnitQueue
from fastload.remote.objects import MOST


@pytest.mark.parametrize("shards", [1, 7, 1000])
def test_each_unit_comes_once_and_soon(shards: int) -> None:
    """Whatever the shards, every unit comes once, from among the next NEAR, and the first of them is
    passed over fewer than MOST times."""
    rng = random.Random(shards)
    left = [(rng.randrange(shards), number) for number in range(1000)]
    queue = UnitQueue()
    for unit in left:
        queue.append(unit)
    passed_over = 0
    while left:
        assert queue.first == left[0]
        unit = queue.take()
        passed_over = 0 if unit == left[0] else passed_over + 1
        assert left.index(unit) < NEAR
        assert passed_over < MOST
        left.remove(unit)
    assert not len(queue)


def test_units_of_a_shard_follow_each_other() -> None:
    """Of seven shards in random order, most units come in runs of MOST."""
    rng = random.Random(0)
    queue = UnitQueue()
    for number in range(700):
        queue.append((rng.randrange(7), number))
    shards = [queue.take()[0] for _ in range(600)]
    runs = 1 + sum(one != other for one, other in pairwise(shards))
    assert runs < 100


def test_an_emptied_queue_begins_anew() -> None:
    """After `clear` nothing is left of the units or of the shard that was under way."""
    queue = UnitQueue()
    for unit in [(3, 0), (3, 1)]:
        queue.append(unit)
    queue.take()
    queue.clear()
    assert not len(queue)
    for unit in [(1, 0), (3, 1)]:
        queue.append(unit)
    assert [queue.take(), queue.take()] == [(1, 0), (3, 1)]
    with pytest.raises(IndexError):
        queue.take()
