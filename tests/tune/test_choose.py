"""choose(): no difference within the noise decides, ties go to the cheaper value, and the same
measurements give the same choice."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fastload.tune.choose import CLOSE, ERROR, WORTH, Margin, choose, least_rounds, margin, pair_level

RATES = st.floats(1.0, 1e6)


def sign_test(first: list[float], second: list[float], above: float) -> float:
    """Two-sided p of the sign test that the median ratio is not above a number, from its definition."""
    ratios = [one / other for one, other in zip(first, second, strict=False)]
    wins = sum(ratio > above * (1 - 1e-12) for ratio in ratios)
    return 2 * sum(math.comb(len(ratios), k) for k in range(wins, len(ratios) + 1)) / 2 ** len(ratios)


@st.composite
def measured(draw: st.DrawFn) -> tuple[dict[str, list[float]], str]:
    """Rates of some values, close together or not, and the default."""
    rates = draw(
        st.dictionaries(st.sampled_from("abcdef"), st.lists(RATES, min_size=1, max_size=20), min_size=1)
    )
    if draw(st.booleans()):  # rates that differ by the value more than by the round
        rates = {name: [each[0] * (1 + 1e-8 * rate) for rate in each] for name, each in rates.items()}
    return rates, draw(st.sampled_from(sorted(rates)))


@given(measured())
def test_the_default_changes_only_for_what_the_noise_does_not_hide(
    given_: tuple[dict[str, list[float]], str],
) -> None:
    """Unless the default is clearly slower, a costlier value is never chosen, and a cheaper one only if it
    is shown to be as good."""
    rates, default = given_
    choice, level = choose(rates, default), ERROR / math.comb(len(rates), 2) if len(rates) > 1 else ERROR
    names = list(rates)
    if choice.value == default:
        return
    if default in choice.slower:
        assert sign_test(rates[choice.slower[default]], rates[default], above=WORTH) <= level
    else:
        assert names.index(choice.value) < names.index(default)
        assert sign_test(rates[choice.value], rates[default], above=1 / CLOSE) <= level


@given(measured())
def test_each_claim_is_beyond_the_noise(given_: tuple[dict[str, list[float]], str]) -> None:
    """Every "clearly slower" passes the sign test at the level of all pairs; a choice that is slower than
    another is clearly faster than the default; and the same measurements give the same choice."""
    rates, default = given_
    choice = choose(rates, default)
    for name, faster in choice.slower.items():
        assert sign_test(rates[faster], rates[name], above=WORTH) <= ERROR / math.comb(len(rates), 2)
    if choice.value in choice.slower:
        assert choice.slower[default] == choice.value
    assert choose(rates, default) == choice


@given(st.integers(1, 6), st.data())
def test_ties_go_to_the_cheapest(values: int, data: st.DataObject) -> None:
    """Of values with the same rates the first is chosen, however much the rounds differ, whatever the
    default is."""
    rates = data.draw(st.lists(RATES, min_size=least_rounds(values), max_size=20))
    choice = choose(
        {str(value): rates for value in range(values)}, str(data.draw(st.integers(0, values - 1)))
    )
    assert choice.value == "0"
    assert not choice.slower


@given(measured(), st.lists(st.sampled_from([0.25, 0.5, 1.0, 2.0, 4.0]), min_size=20, max_size=20))
def test_a_machine_that_slows_down_for_a_round_changes_nothing(
    given_: tuple[dict[str, list[float]], str], speeds: list[float]
) -> None:
    """What slows all values of a round alike leaves choice and margins as they are."""
    rates, default = given_
    slowed = {
        name: [rate * speed for rate, speed in zip(each, speeds, strict=False)]
        for name, each in rates.items()
    }
    assert choose(slowed, default) == choose(rates, default)


@given(st.data(), st.integers(2, 6))
def test_too_few_rounds_claim_nothing(data: st.DataObject, values: int) -> None:
    """Below the least number of rounds the default stays, whatever the rates; with it, a difference that
    is always there is found."""
    rounds, default = (
        data.draw(st.integers(1, least_rounds(values) - 1)),
        str(data.draw(st.integers(0, values - 1))),
    )
    rates = {str(value): [10.0 ** (value + 1)] * rounds for value in range(values)}
    choice = choose(rates, default)
    assert (choice.value, choice.slower) == (default, {})
    assert all(each.low is None for each in choice.to_others.values())
    enough = choose({name: each[:1] * least_rounds(values) for name, each in rates.items()}, default)
    assert enough.value == str(values - 1)


@given(
    st.lists(RATES, min_size=1, max_size=20), st.lists(RATES, min_size=1, max_size=20), st.floats(1e-4, 0.5)
)
def test_a_margin_holds_its_median_and_turns_with_its_values(
    above: list[float], below: list[float], level: float
) -> None:
    """low <= ratio <= high; and the margin of the inverse ratio is the inverse margin."""
    found, turned = margin(above, below, level), margin(below, above, level)
    assert (found.low is None) == (turned.low is None) == (found.high is None)
    if found.low is not None and found.high is not None and found.ratio is not None:
        assert found.low <= found.ratio <= found.high
        assert turned.low == pytest.approx(1 / found.high)
        assert turned.high == pytest.approx(1 / found.low)


def test_a_margin_misses_the_median_as_rarely_as_its_level_says() -> None:
    """Of 4,000 margins of skewed noise, no more miss the true ratio than the level allows, but for what
    chance does."""
    generator = np.random.default_rng(5)
    for rounds, level in ((8, 0.05), (14, 0.01)):
        noise = np.exp(generator.exponential(0.2, (4000, rounds)) - 0.2 * math.log(2))
        found = [margin(list(each), [1.0] * rounds, level) for each in noise]
        missed = sum(
            not (each.low is not None and each.high is not None and each.low <= 1 <= each.high)
            for each in found
        )
        assert missed <= 4000 * level + 3 * math.sqrt(4000 * level)


def test_equal_values_are_told_apart_as_rarely_as_promised() -> None:
    """Of 400 trials of four values that are equal but for noise of 10 %, at most one in twenty claims a
    difference."""
    generator = np.random.default_rng(7)
    claims = 0
    for _ in range(400):
        rates = generator.normal(1000, 100, (4, 14))
        claims += bool(choose({str(number): list(each) for number, each in enumerate(rates)}, "0").slower)
    assert claims <= 400 * ERROR


def test_a_small_gain_is_not_worth_a_larger_setting() -> None:
    """1 % without any noise is not chosen, 3 % is; and 3 % are no tie that a smaller setting wins, since
    they are clear."""
    assert choose({"1": [100.0] * 20, "2": [101.0] * 20}, "1").value == "1"
    assert choose({"1": [100.0] * 20, "2": [103.0] * 20}, "1").value == "2"
    assert choose({"1": [100.0] * 20, "2": [103.0] * 20}, "2").value == "2"


def test_noise_is_no_tie() -> None:
    """A cheaper value that the noise does not tell from the default is not chosen; one that is shown to be
    as fast is."""
    loud = [80.0, 120.0] * 10
    assert choose({"1": loud, "2": loud[1:] + loud[:1]}, "2").value == "2"
    assert choose({"1": loud, "2": loud}, "2").value == "1"


def test_values_that_beat_each_other_in_a_circle_have_a_choice() -> None:
    """Of three of which each is slower than another in most rounds, the one that beats the default is
    taken."""
    circle = {"a": [1.0, 2.0, 3.1] * 40, "b": [2.1, 3.2, 1.0] * 40, "c": [3.0, 1.0, 2.2] * 40}
    choice = choose(circle, "b")
    assert set(choice.slower) == set(circle)
    assert choice.value == choice.slower["b"]


def test_the_level_of_one_value_and_of_no_common_round() -> None:
    """A single value is compared with nothing; values without a common round have no ratio."""
    assert pair_level(1) == ERROR
    assert choose({"a": [1.0]}, "a").value == "a"
    assert margin([], [1.0], 0.05) == Margin(None, None, None)
