"""choose: the choice between values of one setting, from rates measured in interleaved rounds.

NOTE [ tune: what counts as a difference ]
1. Two values are compared by the ratios of their rates in the same round, so that a machine that slows down
   slows both. The margin of a ratio is the interval of the sign test for the median: it takes no normal
   distribution, and one bad round does not move it.
2. The margins of all pairs of values hold together with probability 95 %: each pair's level is 5 % over the
   number of pairs. With fewer rounds than that level needs there is no margin, and nothing is claimed.
3. A value is clearly slower than another if the whole margin of the other's ratio to it lies above 1.02. Less
   is not worth a larger setting.
4. A default that is clearly slower than no other value stays, unless a cheaper value ties with it. One that
   is clearly slower than another makes room for the value that is faster by the greatest ratio, unless a
   cheaper value that is clearly slower than none ties with that.
5. A tie is shown, too: the whole margin lies below 1.05. What the noise hides is no tie, and is no reason for
   a change.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

ERROR = 0.05
"""Greatest probability that one of the margins of a setting does not have the true ratio."""
WORTH = 1.02
"""Ratio of two rates up to which a difference is not worth a larger setting."""

CLOSE = 1.05
"""Ratio up to which the cheaper of two values is as good."""

Rates = Mapping[str, Sequence[float]]
"""Samples a second of each value, round by round, values in order of cost. One that left early has fewer
rounds."""


@dataclass(frozen=True, slots=True)
class Margin:
    """Ratio of two values' rates with its margin of error.

    Attributes:
        ratio: the median over the rounds that both had; None: they had none.
        low, high: ends of the margin; None: too few rounds for one.
    """

    ratio: float | None
    low: float | None
    high: float | None

    @property
    def is_clear(self) -> bool:
        """True if the first is faster by more than the noise, and than what is worth it."""
        return self.low is not None and self.low > WORTH

    @property
    def is_tie(self) -> bool:
        """True if the first is shown to be faster by little, or not at all."""
        return self.high is not None and self.high < CLOSE


@dataclass(frozen=True, slots=True)
class Choice:
    """Result of the trials of one setting.

    Attributes:
        value: the value that is chosen.
        to_others: the chosen value's ratio to each other value.
        slower: values that are clearly slower than another, each with the value of the greatest ratio to it.
    """

    value: str
    to_others: Mapping[str, Margin]
    slower: Mapping[str, str]


def choose(rates: Rates, default: str) -> Choice:
    """Chooses one of several values. See NOTE [ tune: what counts as a difference ].

    Args:
        rates: rates of at least one value, all above 0.
        default: the value that is in force without a choice.
    """
    level = pair_level(len(rates))
    slower: dict[str, str] = {}
    for name in rates:
        margins = {other: margin(rates[other], rates[name], level) for other in rates if other != name}
        clear = {other: each.ratio or 0.0 for other, each in margins.items() if each.is_clear}
        if clear:
            slower[name] = max(clear, key=clear.__getitem__)
    best = slower.get(default, default)
    ties = (name for name in rates if name not in slower and margin(rates[best], rates[name], level).is_tie)
    value = min(best, next(ties, best), key=list(rates).index)
    to_others = {name: margin(rates[value], rates[name], level) for name in rates if name != value}
    return Choice(value, to_others, slower)


def pair_level(values: int) -> float:
    """The level of each pair of so many values."""
    return ERROR / max(1, math.comb(values, 2))


def least_rounds(values: int) -> int:
    """Rounds from which so many values have margins."""
    return math.ceil(1 - math.log2(pair_level(values)))


def margin(above: Sequence[float], below: Sequence[float], level: float) -> Margin:
    """The ratio of two values' rates, and the interval that misses the true median with at most this
    probability."""
    ratios = sorted(first / second for first, second in zip(above, below, strict=False))
    if not ratios:
        return Margin(None, None, None)
    count, left_out, tail = len(ratios), -1, 0.0
    while 2 * (tail := tail + math.comb(count, left_out + 1) / 2**count) <= level:
        left_out += 1
    middle = statistics.median(ratios)
    if left_out < 0:
        return Margin(middle, None, None)
    return Margin(middle, ratios[left_out], ratios[-1 - left_out])
