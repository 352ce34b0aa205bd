"""A bar with rate, bytes and the time left, when someone looks."""

from __future__ import annotations

import time
from types import TracebackType
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rich.progress import Progress as RichProgress
    from rich.progress import TaskID

_EVERY = 0.1
"""Seconds between two updates: drawing costs more than packing a small image."""


class Progress:
    """Shows how far a job is; with shown=False it does nothing and imports nothing."""

    def __init__(self, total: int, title: str, *, shown: bool) -> None:
        self._total = total
        self._title = title
        self._bar: RichProgress | None = None
        self._task: TaskID | None = None
        self._next = 0.0
        self._began = 0.0
        self._from = (0, 0)
        if shown:
            self._bar = _make_bar()

    def __enter__(self) -> Progress:
        if self._bar is not None:
            self._bar.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        if self._bar is not None:
            self._bar.stop()

    def start(self, done: int, size: int) -> None:
        """The job begins with so many samples and bytes done before, which do not count as speed."""
        self._began = time.monotonic()
        self._from = (done, size)
        if self._bar is not None:
            self._task = self._bar.add_task(self._title, total=self._total, completed=done, rate="", size="")

    def update(self, done: int, size: int) -> None:
        """So many samples and bytes are done now."""
        if self._bar is None or self._task is None:
            return
        now = time.monotonic()
        if now < self._next and done < self._total:
            return
        self._next = now + _EVERY
        spent = max(now - self._began, 1e-6)
        rate = (done - self._from[0]) / spent
        speed = (size - self._from[1]) / spent
        self._bar.update(
            self._task,
            completed=done,
            rate=f"{rate:,.0f} images/s",
            size=f"{human_bytes(size)}, {human_bytes(speed)}/s",
        )


def human_bytes(size: float) -> str:
    """A size for people: 1.5 GiB."""
    for unit in ("B", "KiB", "MiB", "GiB"):
        if abs(size) < 1024:
            return f"{size:.0f} {unit}" if unit == "B" else f"{size:.1f} {unit}"
        size /= 1024
    return f"{size:.1f} TiB"


def _make_bar() -> RichProgress:
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeRemainingColumn
    from rich.progress import Progress as RichProgress

    return RichProgress(
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TextColumn("{task.fields[rate]}"),
        TextColumn("{task.fields[size]}"),
        TimeRemainingColumn(),
        console=Console(stderr=True),
    )
