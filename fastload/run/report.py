"""Report of a drop-in run: the loaders of this process, the time that its loops waited for them, and what
FastLoader refused."""

from __future__ import annotations

import atexit
import contextlib
import os
import weakref
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from torch.utils.data import DataLoader as TorchLoader

from fastload.common.streams import tell
from fastload.health import HealthMonitor
from fastload.loader import FastLoader
from fastload.run.launch import RunOptions

_ENGINES = {
    "threads": "on native threads",
    "processes": "on worker processes",
    "caller": "in the calling process",
}
_REFUSED = "by torch's DataLoader"
NOTED = "_drop_in"
"""Attribute of a loader that holds what the report knows of it."""


@dataclass
class _Loader:
    """One loader as the report knows it; it outlives the loader until its counts are added up.

    Attributes:
        monitor: its health monitor, which counts its steps.
        given_workers: num_workers as the program gave it; None if it did not.
        engine: engine of its last epoch; "" before the first.
        users: the loader and its iterators, as long as they live: an iterator goes on when its loader is
            gone.
    """

    monitor: HealthMonitor[Any]
    given_workers: int | None
    engine: str = ""
    users: int = 0


class RunReport:
    """Counts of one process. Loaders add themselves; at the end of the process two lines are written to
    stderr.

    One of several ranks, the first, writes them. A forked child begins anew, and one that iterates no loader
    of its own writes nothing.
    """

    def __init__(self) -> None:
        self._options = RunOptions()
        self._told: set[str] = set()
        self._compared: set[tuple[object, ...]] = set()
        self._clear()
        os.register_at_fork(after_in_child=self._clear)

    def _clear(self) -> None:
        self._loaders: dict[int, _Loader] = {}
        self._by_engine: Counter[str] = Counter()
        self._batches, self._waited_s, self._worked_s = 0, 0.0, 0.0

    def begin(self, options: RunOptions) -> None:
        """Sets the options of the run, and writes the report at the end of the process."""
        self._options = options
        if not options.quiet:
            atexit.register(self._end)

    def note(self, loader: FastLoader[Any], given_workers: int | None) -> None:
        """Counts a loader from now on."""
        known = _Loader(loader._fastload.health, given_workers)
        self._loaders[id(known)] = known
        loader.__dict__[NOTED] = known
        self._follow(loader, known)

    def begun(self, loader: FastLoader[Any], iterator: object) -> None:
        """Notes the engine of an epoch that begins, and its iterator."""
        known: _Loader = loader.__dict__[NOTED]
        known.engine = loader._fastload.plan.engine
        with contextlib.suppress(TypeError):  # an iterator of a subclass, without weak references
            self._follow(iterator, known)

    def _follow(self, user: object, known: _Loader) -> None:
        weakref.finalize(user, self._gone, known).atexit = False
        known.users += 1

    def _gone(self, known: _Loader) -> None:
        known.users -= 1
        if not known.users:
            self._fold(id(known))

    def given_workers(self, loader: TorchLoader[Any]) -> int | None:
        """num_workers as the program gave it to a loader; None if it did not, or torch's DataLoader runs
        it."""
        known: _Loader | None = loader.__dict__.get(NOTED)
        return None if known is None else known.given_workers

    def to_compare(self, loader: FastLoader[Any]) -> tuple[int, int | None]:
        """(batches that a loader is compared by now, its num_workers as given): 0 batches if one of the
        same kind of data was compared."""
        known: _Loader = loader.__dict__[NOTED]
        kind = (
            type(loader.dataset),
            getattr(loader.dataset, "__len__", int)(),
            loader.batch_size,
            known.given_workers,
        )
        if kind in self._compared or not self._options.compare:
            return 0, None
        self._compared.add(kind)
        return self._options.compare, known.given_workers

    def refused(self, loader: TorchLoader[Any], error: Exception) -> None:
        """Says why torch's DataLoader runs a loader, once for each reason."""
        self._by_engine[_REFUSED] += 1
        reason = f"{type(error).__name__}: {error}" if type(error).__module__ == "builtins" else str(error)
        if reason not in self._told:
            self._told.add(reason)
            self.say(f"torch's DataLoader runs the loader of {type(loader.dataset).__name__}: {reason}")

    def say(self, text: str) -> None:
        """Writes one line to stderr, if the process is the first of its ranks."""
        if os.environ.get("RANK", "0") == "0":
            tell(f"fastload run: {text}")

    def _fold(self, key: int) -> None:
        """Adds the counts of a loader that is gone, or of one at the end of the process."""
        known = self._loaders.pop(key, None)
        if known is None or not known.engine:
            return
        figures = known.monitor.figures()
        self._by_engine[_ENGINES[known.engine]] += 1
        self._batches += figures.steps
        self._waited_s += figures.all_wait_s
        self._worked_s += figures.all_step_s

    def _end(self) -> None:
        for key in list(self._loaders):
            self._fold(key)
        for line in self._lines():
            self.say(line)

    def _lines(self) -> Iterator[str]:
        count = self._by_engine.total()
        if not count:
            if os.getpid() == self._options.main:
                yield "no DataLoader was iterated in this process"
            return
        each = ", ".join(f"{number:,} {where}" for where, number in self._by_engine.most_common())
        yield f"{count:,} loader{'s' * (count != 1)}: {each}"
        if whole := self._waited_s + self._worked_s:
            share = self._waited_s / whole
            yield (
                f"{self._batches:,} batches; the loop waited {self._waited_s:,.1f} s for them, "
                f"{share:.0%} of its {whole:,.1f} s"
            )


report = RunReport()
"""The report of this process."""
