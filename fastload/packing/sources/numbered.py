"""Samples that are known by their number in one of several files: what sources of rows and records have in common."""

from __future__ import annotations

from collections.abc import Sequence


class NumberedInFiles:
    """Titles, names and keys of a source whose samples are numbered in its files, each from 0. Fields are known when a sample is read.

    Attributes:
        title: the source, for messages.
        paths: the files, in order.
    """

    def __init__(self, paths: Sequence[str], unit: str, title: str = "") -> None:
        """`unit`: what a sample is called in its file: a row, a record. `title`: by default the first of the files."""
        self.paths = paths
        self.title = title or title_of(paths)
        self._unit = unit

    def numbered(self, position: int) -> tuple[int, int]:
        """(file, number in it) of a sample."""
        raise NotImplementedError

    def name(self, position: int) -> str:
        """What to call the sample in messages."""
        file, number = self.numbered(position)
        return f"{self.paths[file]}: {self._unit} {number}"

    def key(self, position: int) -> str:
        """The sample's name, without paths."""
        file, number = self.numbered(position)
        return f"{file}:{number}"

    def fields_of(self, position: int) -> None:
        """None: the sample has to be read."""


def title_of(paths: Sequence[str]) -> str:
    """What several files are called in messages."""
    return paths[0] if len(paths) == 1 else f"{paths[0]} and {len(paths) - 1} more"
