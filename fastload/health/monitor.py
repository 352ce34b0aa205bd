"""HealthMonitor: times the steps of a loop, and reports them together with its loader's counters.

Sample count and image size of a batch are found without importing the library that its tensors come from, and
not by the walk of `fastload.batch.containers`: that is done at every step and needs only a shape, of arrays
and tensors of any library. Mappings and dataclasses are searched as well, and only a few parts of each
container.
"""

from __future__ import annotations

import json
import logging
import weakref
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import fields, is_dataclass
from itertools import islice
from time import perf_counter
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from fastload._native import core
from fastload.common.text import Text
from fastload.errors import ArgumentError
from fastload.health import advice, exporters
from fastload.health.figures import Figures, measure
from fastload.health.ring import steps_of

if TYPE_CHECKING:
    from fastload.health.exporters import HealthCollector, ScalarWriter

T = TypeVar("T")
Stats = Callable[[], Mapping[str, Any]]
SETTINGS = (
    "num_workers",
    "prefetch_factor",
    "persistent_workers",
    "seed_by",
    "pin_memory",
    "in_order",
    "timeout",
)
"""Attributes of a loader that the advice names."""


_CHANNELS = (1, 3, 4)
_PLAIN = (int, float, str, bytes)
_PARTS = 8
"""Limit on the parts of a container that are searched: a list of a thousand strings must not cost a
thousand looks at every step."""


def count_samples(batch: object) -> int:
    """Samples in a batch: the length of its first tensor or array, else of a mapping's first sized value, or
    of the batch itself; 1 for text, and for what has no length."""
    shape = _first_shape(batch)
    if shape is None:
        return _length(batch)
    return shape[0] if shape else 1


def _shape_of(part: object) -> object:
    try:
        return getattr(part, "shape", None)
    except Exception:  # a nested tensor raises an error
        return None


def _first_shape(batch: Any) -> tuple[int, ...] | None:
    # Fast path for the usual cases: a tensor, (images, labels) and {"image": images}.
    head, kind = (
        batch,
        type(batch),
    )
    if kind is list or kind is tuple:
        head = batch[0] if batch else None
    elif kind is dict:
        head = next(iter(batch.values()), None)
    shape = None if type(head) in _PLAIN else _shape_of(head)
    return shape if isinstance(shape, tuple) else next(_shapes(batch), None)


def image_side(batch: object) -> int | None:
    """The longer side of the batch's pictures: of the first tensor (N, C, H, W) or (N, H, W, C) of 1, 3 or
    4 channels; None if none."""
    for shape in _shapes(batch):
        if len(shape) == 4:
            if shape[1] in _CHANNELS:
                return int(max(shape[2:]))
            if shape[3] in _CHANNELS:
                return int(max(shape[1:3]))
    return None


def _shapes(batch: object) -> Iterator[tuple[int, ...]]:
    if type(batch) in _PLAIN:
        return
    shape = _shape_of(batch)
    if isinstance(shape, tuple):
        yield shape
        return
    for part in islice(_parts(batch), _PARTS):
        yield from _shapes(part)


def _parts(batch: object) -> Iterable[Any]:
    if isinstance(batch, Mapping):
        return batch.values()
    if isinstance(batch, list | tuple):
        return batch
    if is_dataclass(batch) and not isinstance(batch, type):
        return (getattr(batch, field.name) for field in fields(batch))
    return ()


def _length(batch: Any) -> int:
    if isinstance(batch, str | bytes):
        return 1
    if isinstance(batch, Mapping):
        return next(
            (
                _length(value)
                for value in batch.values()
                if not isinstance(value, str | bytes) and hasattr(value, "__len__")
            ),
            1,
        )
    try:
        return len(batch)
    except Exception:  # no length, or another error: counting must not end a loop
        return 1


_log = logging.getLogger("fastload")


class HealthMonitor(Generic[T]):
    """Monitor of a loop, which measures how long it waits for data and how long it works, and reports why.

    1. Iterate it in place of the iterable it wraps, or wrap nothing and feed it, by observe() or watch().
    2. A step is the wait for a batch and the work until the next batch is requested, when it is counted. An
       epoch's first wait begins at iter(), and is reported separately.
    3. Several threads may observe, and read.
    4. `len()` and attributes that a monitor does not have itself are the wrapped iterable's.

    Args:
        iterable: a FastLoader, torch's DataLoader, or any other.
        stats: gives counters, as FastLoader.stats() does. None: the iterable's own `stats`, if it has one.
        window: number of the last steps, to which times refer.
        count: samples in a batch.

    Raises:
        ArgumentError: window is not positive, or stats cannot be called.
    """

    def __init__(
        self,
        iterable: Iterable[T] | None = None,
        *,
        stats: Stats | None = None,
        window: int = 1000,
        count: Callable[[Any], int] = count_samples,
    ) -> None:
        if stats is not None and not callable(stats):
            raise ArgumentError(
                f"stats={stats!r}: give a function without arguments that returns a dict, such as "
                "loader.stats"
            )
        self._iterable = iterable
        self._stats = stats
        self._count = count
        if isinstance(window, bool) or not isinstance(window, int) or window < 1:
            raise ArgumentError(f"window={window!r}: give the number of steps to look back on, at least 1")
        self._ring = core.StepRing(window)
        self._side: int | None = None
        self._logged = False
        self._owner: weakref.ref[Any] | None = None
        self._stats_of: Callable[[Any], Mapping[str, Any]] = _stats_of
        self._settings_of: Callable[[Any], Mapping[str, Any]] = _settings_of

    @classmethod
    def of(
        cls,
        loader: object,
        stats: Callable[[Any], Mapping[str, Any]] | None = None,
        settings: Callable[[Any], Mapping[str, Any]] | None = None,
        *,
        window: int = 1000,
    ) -> HealthMonitor[Any]:
        """A monitor that the loader owns and feeds itself; the monitor refers to the loader weakly.

        `stats` and `settings` are called with the loader for each report; without them its attributes are
        read, as of any iterable.
        """
        monitor: HealthMonitor[Any] = cls(window=window)
        monitor._owner = weakref.ref(loader)
        monitor._stats_of, monitor._settings_of = stats or _stats_of, settings or _settings_of
        return monitor

    def __iter__(self) -> Iterator[T]:
        if self._iterable is None:
            raise TypeError(
                "this HealthMonitor wraps no iterable: give it one, HealthMonitor(loader), or feed "
                "it by observe()"
            )
        began = perf_counter()
        return self.watch(iter(self._iterable), began)

    def __len__(self) -> int:
        return len(self._iterable)  # type: ignore[arg-type]  # without a length this is the TypeError that len() should raise

    def __bool__(self) -> bool:
        return True

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_") or self._iterable is None:
            raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")
        return getattr(self._iterable, name)

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_owner": None}  # a copy's loader is another one, and its steps are its own

    def observe(self, wait_s: float, step_s: float, samples: int, first: bool = False) -> None:
        """Counts a step: seconds waited for its batch and worked on it, its samples, and whether it began an
        epoch. Raises ArgumentError: a number is negative or not finite."""
        self._ring.add(wait_s, step_s, samples, first)

    def watch(self, iterator: Iterator[T], began: float | None = None) -> core.TimedIterator[T]:
        """The iterator of one pass, its steps counted as they are made.

        The first wait includes the time since `began`, a time.perf_counter(). A wait that fails is not
        counted.
        """
        timed = core.TimedIterator(iterator)
        self.time(timed, began)
        return timed

    def time(self, iterator: core.StepTimer, began: float | None = None) -> None:
        """Counts the steps of an iterator that times itself, from the pass that begins now; otherwise like
        watch()."""
        waited_s = 0.0 if began is None else max(0.0, perf_counter() - began)
        iterator.time_steps(self._ring, waited_s, self._count, self._count is count_samples, self._look_at)

    def _look_at(self, batch: object) -> None:
        self._side = image_side(batch) or self._side

    def figures(self) -> Figures:
        """The current figures."""
        source = self._iterable if self._owner is None else self._owner()
        if source is None:  # nothing is wrapped, or the loader is gone
            return measure(steps_of(self._ring), self._stats() if self._stats else {}, {}, self._side)
        counted = self._stats() if self._stats else self._stats_of(source)
        return measure(steps_of(self._ring), counted, self._settings_of(source), self._side)

    def as_dict(self) -> dict[str, Any]:
        """All figures, and the advice, as JSON values."""
        figures = self.figures()
        return {**figures.as_dict(), "advice": advice.advise(figures)}

    def to_json(self, indent: int | None = None) -> str:
        """as_dict() as JSON text."""
        return json.dumps(self.as_dict(), indent=indent, allow_nan=False)

    def report(self) -> Text:
        """The figures as text, with the advice."""
        return Text(advice.report(self.figures()))

    def _repr_html_(self) -> str:
        return self.report()._repr_html_()

    def log_once(self) -> None:
        """Logs at INFO, once, how long the loop waited for data and what would help most."""
        if not self._logged and _log.isEnabledFor(logging.INFO):
            self._logged = True
            _log.info("the first epoch: %s", advice.advise(self.figures())[0])

    def to_tensorboard(self, writer: ScalarWriter, step: int, prefix: str = "fastload") -> None:
        """Adds every known number as a scalar `prefix/...` to a SummaryWriter, or its like."""
        exporters.to_tensorboard(self.figures(), writer, step, prefix)

    def collector(self, labels: Mapping[str, str] | None = None) -> HealthCollector:
        """A collector for the registry of a Prometheus client: `REGISTRY.register(monitor.collector())`."""
        return exporters.HealthCollector(self.figures, labels)

    def prometheus_text(self, labels: Mapping[str, str] | None = None) -> str:
        """Every known number in Prometheus' text format, with these labels. Raises MissingLibrary, and
        HealthCollector's errors."""
        return exporters.prometheus_text(self.collector(labels))


def _stats_of(source: object) -> Mapping[str, Any]:
    stats = getattr(source, "stats", None)
    return stats() if callable(stats) else {}


def _settings_of(source: object) -> Mapping[str, Any]:
    return {name: getattr(source, name) for name in SETTINGS if hasattr(source, name)}
