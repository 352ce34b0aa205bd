"""interleaved(): every value has its turn in every round, and one that is far slower leaves; Stream: ready
batches do not count."""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable, Iterator

import pytest

from fastload.tune.choose import choose, least_rounds
from fastload.tune.rounds import MOST, interleaved
from fastload.tune.trials import Budget, Setting, Stream, tried


def test_every_value_has_a_turn_in_every_round_and_the_first_is_not_counted() -> None:
    """Equal values stay to the end, each beginning a round in its turn; one round more than is returned
    was run."""
    order: list[str] = []

    def turn(name: str) -> Callable[[float], float]:
        return lambda _: order.append(name) or 7.0

    rates = interleaved({name: turn(name) for name in "abc"}, 60.0)
    assert rates == {name: [7.0] * MOST for name in "abc"}
    assert "".join(order[:12]) == "abc" + "abc" + "bca" + "cab"
    assert len(order) == 3 * (MOST + 1)


def test_a_value_that_is_far_slower_leaves_when_that_is_known() -> None:
    """It has the rounds that a margin takes and no more; those that are left go on, and the choice still
    knows it."""
    rates = interleaved({"1": lambda _: 50.0, "2": lambda _: 100.0, "4": lambda _: 101.0}, 60.0)
    assert [len(each) for each in rates.values()] == [least_rounds(3), MOST, MOST]
    choice = choose(rates, "4")
    assert (choice.value, set(choice.slower)) == ("2", {"1"})


def test_no_time_is_one_round() -> None:
    """With no time left each value has the turn that is not counted and at least the first has one that
    is, so that all have a rate."""
    rates = interleaved({"a": lambda _: 1.0, "b": lambda _: 2.0}, 0.0)
    assert rates == {"a": [1.0], "b": [2.0]}


def test_a_failure_in_a_turn_closes_the_loaders() -> None:
    """The error comes through, and every loader that was made is closed."""
    closed: list[str] = []

    class Broken:
        def __init__(self, name: str) -> None:
            self.name = name

        def __iter__(self) -> Iterator[int]:
            yield from range(4)
            raise ValueError("no fifth batch")

        def close(self) -> None:
            closed.append(self.name)

    with pytest.raises(ValueError, match="no fifth batch"):
        tried(
            Setting("x", ("a", "b"), "a"),
            {name: Stream(lambda name=name: Broken(name), 1, 0) for name in "ab"},
            1.0,
        )
    assert "a" in closed


def test_batches_that_were_ready_are_not_counted() -> None:
    """A loader of which a batch takes 20 ms, after two that are there at once: the rate is that of the
    others, in every turn."""

    class TwoReady:
        def __iter__(self) -> Iterator[int]:
            for number in itertools.count():
                if number % 3 == 2:
                    time.sleep(0.02)
                yield number

        def close(self) -> None:
            pass

    with Stream(TwoReady, rows=8, ahead=2) as stream:
        for _ in range(3):
            assert stream.turn(0.0) <= 8 / 0.02


def test_a_budget_gives_what_is_left_in_shares() -> None:
    """Unused time is for those after; all shares together are the whole, and a budget that is spent gives
    nothing."""
    budget = Budget(100.0, 4)
    assert budget.take(2) == pytest.approx(50, abs=1)
    assert budget.take(1) == pytest.approx(50, abs=1)
    assert budget.take(1) == pytest.approx(100, abs=1)
    assert Budget(0.0, 1).take(1) == 0.0
