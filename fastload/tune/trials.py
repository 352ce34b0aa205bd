"""Trials: the values of one setting after another, each tried with the choices before it; and the result
as JSON."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from fastload.bench import measure
from fastload.errors import FastloadError
from fastload.tune.choose import Choice, Margin, Rates, choose, least_rounds
from fastload.tune.rounds import interleaved

SCHEMA = 1
Json = dict[str, Any]
_REST_S = 2.0
"""Most seconds for which a loader is waited for after its turn."""
Arguments = Mapping[str, Any]
"""Arguments of FastLoader, as JSON has them."""


@dataclass(frozen=True, slots=True)
class Setting:
    """A setting with the values to try.

    Attributes:
        name: the argument of FastLoader, or what else is set.
        values: the values in order of cost.
        default: the value without a choice; one of them.
        needs: an argument without which, or at 0, this one has no effect; "": none.
    """

    name: str
    values: tuple[Any, ...]
    default: Any
    needs: str = ""


class Stream:
    """Batches of a loader, epoch after epoch, of which turns take some.

    Args:
        make: makes the loader, which is closed with the stream.
        rows: samples of a batch.
        ahead: batches that the loader makes while nobody asks. They are ready at the start of a turn, and are
            not counted.
        step_s: seconds of the loop's own work on a batch, for which a turn sleeps.
    """

    def __init__(self, make: Callable[[], Iterable[Any]], rows: int, ahead: int, step_s: float = 0.0) -> None:
        self._make, self._rows, self._ahead, self._step_s = make, rows, ahead, step_s
        self._batches: Iterator[Any] | None = None
        self._closing = contextlib.ExitStack()

    def turn(self, seconds: float) -> float:
        """Samples a second of at least one batch and so many seconds.

        Afterwards it waits about as long as the loader takes for the batches that it makes ahead, so that it
        rests in others' turns.
        """
        if self._batches is None:
            self._batches = self._epochs(self._make())
        for _ in range(self._ahead):
            next(self._batches)
        count, began = 0, time.perf_counter()
        while not count or time.perf_counter() - began < seconds:
            next(self._batches)
            time.sleep(self._step_s)
            count += 1
        took = time.perf_counter() - began
        time.sleep(min(self._ahead * took / count, _REST_S))
        return count * self._rows / took

    def _epochs(self, loader: Any) -> Iterator[Any]:
        self._closing.callback(loader.close)
        while True:
            yield from loader

    def __enter__(self) -> Stream:
        return self

    def __exit__(self, *_: object) -> None:
        self._batches = None
        self._closing.close()


@dataclass(frozen=True, slots=True)
class Trial:
    """The measurements of a setting, and what was chosen by them."""

    setting: Setting
    rates: Rates
    choice: Choice

    @property
    def value(self) -> Any:
        """The value that is chosen."""
        return next(value for value in self.setting.values if str(value) == self.choice.value)

    def to_json(self) -> Json:
        """Every value's rates, its rate as a share of the chosen one's with the margin of error, and the
        verdict."""
        return {
            "setting": self.setting.name,
            "default": self.setting.default,
            "chosen": self.value,
            "values": [self._row(value) for value in self.setting.values],
        }

    def _row(self, value: object) -> Json:
        name = str(value)
        there = self.choice.to_others.get(name, Margin(None, None, None))
        share = [None if each is None else 1 / each for each in (there.ratio, there.high, there.low)]
        return {
            "value": value,
            "samples_per_s": measure.median(self.rates[name]),
            "of_chosen": share[0],
            "margin": None if there.low is None else share[1:],
            "verdict": self._verdict(name, there),
            "rounds": list(self.rates[name]),
        }

    def _verdict(self, name: str, there: Margin) -> str:
        if name == self.choice.value:
            return "chosen"
        if name in self.choice.slower:
            faster = "" if there.is_clear else f" than {self.choice.slower[name]}"
            return f"clearly slower{faster}"
        if there.low is None:
            return f"{len(self.rates[name])} of {least_rounds(len(self.rates))} rounds: not known"
        return "no clear difference"


class TuneError(FastloadError, RuntimeError):
    """Nothing could be tried."""


class Budget:
    """The time of all trials, in shares: what one does not use is for those after it."""

    def __init__(self, seconds: float, shares: int) -> None:
        self._until, self._shares = time.monotonic() + seconds, shares

    def take(self, shares: int) -> float:
        """Seconds of a trial."""
        left = max(0.0, self._until - time.monotonic())
        seconds = left * shares / max(shares, self._shares)
        self._shares -= shares
        return seconds


Open = Callable[[Arguments], Stream]
"""Makes the stream of a loader with these arguments."""
COMPARED = "choice against defaults"


def tried(setting: Setting, streams: Mapping[str, Stream], seconds: float) -> Trial:
    """The trial of a setting, with a stream for each value."""
    with contextlib.ExitStack() as closing:
        for stream in streams.values():
            closing.enter_context(stream)
        rates = interleaved({name: stream.turn for name, stream in streams.items()}, seconds)
    return Trial(setting, rates, choose(rates, str(setting.default)))


def shares_of(settings: Sequence[Setting]) -> int:
    """Shares of a budget that `tune_arguments` takes: one for each value, and two for the comparison at
    the end."""
    return sum(len(setting.values) for setting in settings) + 2


def tune_arguments(
    settings: Sequence[Setting], open_stream: Open, budget: Budget
) -> tuple[list[Trial], Json]:
    """Tries one argument after another, each with the choices before it; at the end all choices together
    against the defaults.

    Args:
        settings: the arguments. One with a single value, or without effect, is not tried.
        open_stream: makes a loader's stream.
        budget: the time, of which `shares_of(settings)` are taken.

    Returns:
        tuple: the trials, and the arguments that are advised: the choices, or the defaults if those may be
            faster.
    """
    defaults = {setting.name: setting.default for setting in settings}
    arguments, trials = dict(defaults), list[Trial]()
    for setting in settings:
        seconds = budget.take(len(setting.values))
        if len(setting.values) > 1 and (not setting.needs or arguments[setting.needs]):
            streams = {str(value): open_stream(arguments | {setting.name: value}) for value in setting.values}
            trials.append(tried(setting, streams, seconds))
            arguments[setting.name] = trials[-1].value
    if arguments != defaults:
        setting = Setting(COMPARED, ("choice", "defaults"), "defaults")
        streams = {"choice": open_stream(arguments), "defaults": open_stream(defaults)}
        trials.append(tried(setting, streams, budget.take(2)))
        if trials[-1].value == "defaults":
            arguments = defaults
    return trials, arguments
