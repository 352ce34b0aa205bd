"""Rounds: interleaved turns of the values of one setting, within a limit of time."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping

from fastload.tune.choose import least_rounds, margin, pair_level

Trial = Callable[[float], float]
"""Takes one turn of at least so many seconds; returns samples a second."""
MOST = 40
"""Rounds after which more would narrow no margin much."""
AIM = 14
"""Rounds that fit the time, as turns are made; values that leave early make room for more."""
TURN_S = (0.05, 1.0)
"""Least and most seconds of a turn."""
FAR = 1.1
"""Ratio above which a slower value gets no more turns. It is above what `choose` asks for, since it is
looked at after each round."""


def interleaved(turns: Mapping[str, Trial], seconds: float) -> dict[str, list[float]]:
    """Rates of each value, round by round: A B C, B C A, C A B, ... A value that is far slower than another
    leaves.

    A first round is not counted: it brings data into memory, starts threads, and shows how long a turn takes.

    Args:
        turns: the values in order of cost.
        seconds: time for all rounds. A turn that has begun is finished, and each value has two.

    Returns:
        dict: samples a second of each value, one a round that it took part in, from the first on.
    """
    began = time.monotonic()
    for turn in turns.values():
        turn(TURN_S[0])
    beside = (time.monotonic() - began) / len(turns) - TURN_S[0]
    turn_s = min(max((seconds - len(turns) * beside) / (len(turns) * AIM) - beside, TURN_S[0]), TURN_S[1])
    least, level = least_rounds(len(turns)), pair_level(len(turns))
    rates: dict[str, list[float]] = {name: [] for name in turns}
    running = list(turns)
    for number in range(MOST):
        first = number % len(running)
        for name in running[first:] + running[:first]:
            if number and time.monotonic() >= began + seconds:
                return rates
            rates[name].append(turns[name](turn_s))
        if number + 1 >= least:
            running = [name for name in running if not _is_far_behind(rates, name, level)]
        if len(running) == 1 and len(turns) > 1:
            break
    return rates


def _is_far_behind(rates: Mapping[str, list[float]], name: str, level: float) -> bool:
    lows = (margin(rates[other], rates[name], level).low for other in rates if other != name)
    return any(low is not None and low > FAR for low in lows)
