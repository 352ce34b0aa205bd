"""Counts of what became of lazy images in this process, and of the lines of the user's program that asked for
their pixels.

A worker sends them to the loader's process with its reports.
"""

from __future__ import annotations

import os
import sys
from collections import Counter
from dataclasses import dataclass, field
from types import FrameType

_LIBRARIES = ("site-packages", "dist-packages", os.path.dirname(os.__file__) + os.sep, "<frozen ")
"""Parts of the names of files of installed packages and of the standard library: code in them is no
user's."""


@dataclass
class LazyCounts:
    """Counts of the images that Pillow opened, by their fate.

    Attributes:
        opened: JPEGs that were opened as lazy images.
        straight: times that pixels were decoded straight into an array.
        composed: calls of transforms after which the image was still a recipe, by class.
        ended: those after which it was not, by class and what was made.
        whole: images whose pixels were made as a Pillow image, by the function that asked for them.
        left: images that Pillow has loaded itself, by the reason.
        line: the first line of the user's program that asked for pixels as a Pillow image, and the function
            that it called; "" for none.
    """

    opened: int = 0
    straight: int = 0
    composed: Counter[str] = field(default_factory=Counter)
    ended: Counter[str] = field(default_factory=Counter)
    whole: Counter[str] = field(default_factory=Counter)
    left: Counter[str] = field(default_factory=Counter)
    line: str = ""

    def __bool__(self) -> bool:
        return bool(self.opened or self.straight or self.whole or self.left)

    def add(self, other: LazyCounts) -> None:
        """Adds the counts of another process."""
        self.opened += other.opened
        self.straight += other.straight
        self.composed.update(other.composed)
        self.ended.update(other.ended)
        self.whole.update(other.whole)
        self.left.update(other.left)
        self.line = self.line or other.line


_counts = LazyCounts()


def take() -> LazyCounts | None:
    """The counts since the last call; None where there are none."""
    global _counts
    if not _counts:
        return None
    taken, _counts = _counts, LazyCounts()
    return taken


def opened() -> None:
    """Counts a JPEG that was opened as a lazy image."""
    _counts.opened += 1


def straight() -> None:
    """Counts pixels that go straight into an array."""
    _counts.straight += 1


def composed(name: str) -> None:
    """Counts a call of a transform after which the image is a recipe still, by its class."""
    _counts.composed[name] += 1


def ended(name: str, made: str) -> None:
    """Counts a call of a transform after which it is none, by its class and what it made."""
    _counts.ended[f"{name} ({made})"] += 1


def left(why: str) -> None:
    """Counts an image that Pillow loads itself."""
    _counts.left[why] += 1


def whole(method: str = "im") -> None:
    """Counts an image whose pixels are asked for as a Pillow image, by the function that asks, or the
    method of the image."""
    frame: FrameType | None = sys._getframe(1)
    while frame is not None and _module(frame).startswith(("fastload.lazy", "fastload.composing")):
        frame = frame.f_back
    name = f"PIL.Image.{method}"
    while frame is not None and _module(frame).startswith("PIL."):
        name, frame = f"{_module(frame)}.{frame.f_code.co_name}", frame.f_back
    _counts.whole[name] += 1
    if not _counts.line:
        while frame is not None and any(folder in frame.f_code.co_filename for folder in _LIBRARIES):
            frame = frame.f_back
        # A worker's own line: no library was called by a user's.
        if frame is not None and not _module(frame).startswith("fastload."):
            _counts.line = f"{frame.f_code.co_filename}:{frame.f_lineno}, by {name}"


def _module(frame: FrameType) -> str:
    return str(frame.f_globals.get("__name__", ""))
