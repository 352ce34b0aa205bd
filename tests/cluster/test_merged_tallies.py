"""Gathered: tallies of ranges that end in any order make that of the whole pack, and few names are held
meanwhile."""

from __future__ import annotations

import random

import pytest

from fastload.packing.cluster.driver import Gathered
from fastload.packing.cluster.records import DoneRecord
from fastload.packing.cluster.task import RangeDone
from fastload.packing.summary import NAMES_KEPT, Tally

RANGES, EACH, AHEAD = 60, 300, 4


def range_of(number: int) -> RangeDone:
    """The result of a range of which every sample decodes with a warning, and every third is left out."""
    tally = Tally()
    for place in range(number * EACH, (number + 1) * EACH):
        tally.position += 1
        tally.noted += 1
        tally.formats[f"kind {number % 3}"] = tally.formats.get(f"kind {number % 3}", 0) + 1
        tally.warn(f"sample {place}", "extraneous bytes")
        if place % 3 == 0:
            tally.skip(f"sample {place}", "truncated")
            tally.notices.add("deep", f"sample {place}")
    tally.max_pixels = number
    return RangeDone(number, DoneRecord(None, None, (0, 0), tally.state()), number)


def ends(seed: int, ahead: int) -> list[int]:
    """Numbers of the ranges in an order in which they may end, with so many under way."""
    draws, waiting = random.Random(seed), list(range(RANGES))
    order: list[int] = []
    running: list[int] = []
    while running or waiting:
        while waiting and len(running) < ahead:
            running.append(waiting.pop(0))
        order.append(running.pop(draws.randrange(len(running))))
    return order


@pytest.mark.parametrize("ahead", [1, AHEAD, RANGES])
def test_tallies_in_any_order(ahead: int) -> None:
    """Counts, names and examples are those of the ranges merged one after the other."""
    whole = Tally()
    for number in range(RANGES):
        whole.merge(Tally(range_of(number).record.state))
    for seed in range(5):
        found = Gathered()
        for number in ends(seed, ahead):
            found.add(range_of(number))
        assert found.tally().state() == whole.state(), f"seed {seed}"
        assert sorted(found.records) == list(range(RANGES))
        assert found.packed == sum(range(RANGES))


def test_names_that_are_held() -> None:
    """However many ranges have ended, the names of no more than `NAMES_KEPT` samples are held for each gap
    that ranges under way leave."""
    found = Gathered()
    for number in ends(7, AHEAD):
        found.add(range_of(number))
        tallies = [tally for _, tally in found._tallies.values()]
        assert len(tallies) <= AHEAD
        assert all(
            len(tally.warnings) <= NAMES_KEPT and len(tally.skipped) <= NAMES_KEPT for tally in tallies
        )
        assert all(not record.state for record in found.records.values())
