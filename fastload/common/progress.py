"""Progress display of a long job: a bar on a terminal, or lines at intervals in a log."""

from __future__ import annotations

import contextlib
import time
from types import TracebackType
from typing import TYPE_CHECKING, Protocol

from fastload.common.streams import tell
from fastload.errors import printable

if TYPE_CHECKING:
    from rich.console import Console

_DRAW_EVERY = 0.1
"""Seconds between two updates of a bar: drawing costs more than packing a small image."""
_BAR, _TITLE = 10, 16
"""Columns of the bar and, at most, of its title: 80 are enough beside numbers of ten million samples."""
_LINE_EVERY = 15.0
"""Seconds between two lines if stderr is not a terminal."""


class _Display(Protocol):
    """A way to show progress; `every` is the least time between two updates, in seconds. `size` and `left`,
    the time that is left, may be empty."""

    every: float

    def start(self, done: int) -> None: ...
    def update(self, done: int, rate: str, size: str, left: str) -> None: ...
    def stop(self) -> None: ...


class Progress:
    """Shows the progress of a job: what is done, one rate, and the time that is left. With shown=False it
    does nothing and imports nothing.

    The rate is that of samples, called `unit`; unit="" is for a job whose time goes with its bytes, and shows
    theirs.
    """

    def __init__(self, total: int, title: str, *, shown: bool, unit: str = "images") -> None:
        self._total = total
        self._unit = unit
        self._next = 0.0
        self._began = 0.0
        self._from = (0, 0)
        self._view: _Display | None = _make_view(total, printable(title)) if shown else None

    def __enter__(self) -> Progress:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._view is not None:
            self._view.stop()

    def start(self, done: int, size: int) -> None:
        """Starts the display. `done` samples and `size` bytes were done before, and do not count for the
        speed."""
        self._began = time.monotonic()
        self._from = (done, size)
        if self._view is not None:
            self._next = self._began + self._view.every
            self._view.start(done)

    def update(self, done: int, size: int) -> None:
        """Shows that `done` samples and `size` bytes are done."""
        if self._view is None:
            return
        now = time.monotonic()
        if now < self._next and done < self._total:
            return
        self._next = now + self._view.every
        spent = max(now - self._began, 1e-6)
        speed = (done - self._from[0]) / spent
        if self._unit:
            rate = f"{speed:,.0f} {self._unit}/s"
        else:
            rate = f"{human_bytes((size - self._from[1]) / spent)}/s"
        left = ""
        if speed > 0 and done < self._total:
            left = f", {human_seconds((self._total - done) / speed)} left"
        self._view.update(done, rate, human_bytes(size) if size else "", left)


class _Lines:
    """Plain lines on stderr, for logs and pipes."""

    def __init__(self, total: int, title: str) -> None:
        self.every = _LINE_EVERY
        self._total = total
        self._title = title

    def start(self, done: int) -> None:
        pass

    def update(self, done: int, rate: str, size: str, left: str) -> None:
        tell(f"{self._title}: {done:,} of {self._total:,}, {rate}{', ' if size else ''}{size}{left}")

    def stop(self) -> None:
        pass


class _Bar:
    """A bar that rich draws on a terminal, or in a notebook."""

    def __init__(self, total: int, title: str, console: Console) -> None:
        from rich.progress import BarColumn, TextColumn
        from rich.progress import Progress as RichProgress

        self.every = _DRAW_EVERY
        self._bar = RichProgress(
            TextColumn("{task.description}", markup=False),
            BarColumn(_BAR),
            TextColumn("{task.fields[state]}", markup=False),
            console=console,
        )
        self._task = self._bar.add_task(_short(title), total=total, start=False, state="")
        self._total = total
        self._bar.start()

    def start(self, done: int) -> None:
        self._bar.update(self._task, completed=done)
        self._bar.start_task(self._task)

    def update(self, done: int, rate: str, size: str, left: str) -> None:
        self._bar.update(self._task, completed=done, state=f"{done:,}/{self._total:,}, {rate}{left}")

    def stop(self) -> None:
        with contextlib.suppress(OSError):  # the terminal is gone
            self._bar.stop()


def _short(title: str) -> str:
    """The end of a long title, such as a path's, so that a line of the bar fits 80 columns."""
    return title if len(title) <= _TITLE else f"...{title[3 - _TITLE :]}"


def _make_view(total: int, title: str) -> _Display:
    from rich.console import Console

    console = Console(stderr=True)
    if console.is_jupyter or (console.is_terminal and not console.is_dumb_terminal):
        return _Bar(total, title, console)
    return _Lines(total, title)


def human_bytes(size: float) -> str:
    """A size in readable form: 1.5 GiB."""
    for unit in ("B", "KiB", "MiB", "GiB"):
        if abs(size) < 1024:
            return f"{size:.0f} {unit}" if unit == "B" else f"{size:.1f} {unit}"
        size /= 1024
    return f"{size:.1f} TiB"


def human_seconds(seconds: float) -> str:
    """A time in readable form: 45 s, 12 min, 3 h 20 min."""
    if seconds < 90:
        return f"{seconds:.0f} s"
    minutes = round(seconds / 60)
    return f"{minutes} min" if minutes < 90 else f"{minutes // 60} h {minutes % 60} min"
