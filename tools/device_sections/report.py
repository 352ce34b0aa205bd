"""Report: the parts of a section as a JSON file that is written anew for each part, so that a process that
dies leaves what it knew."""

from __future__ import annotations

import faulthandler
import json
import os
import time
import traceback
from collections import Counter
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

RIGHT, WRONG, NOT_LATE, ERROR, CRASHED, SKIPPED, MEASURED = (
    "right",
    "wrong",
    "could not be late",
    "error",
    "crashed",
    "skipped",
    "measured",
)
_FAILED = frozenset([WRONG, NOT_LATE, ERROR, CRASHED])
Details = dict[str, Any]


class Wrong(Exception):
    """A part that is not as it should be.

    Args:
        said: a sentence.
        details: figures for the report.
    """

    verdict = WRONG

    def __init__(self, said: str, **details: Any) -> None:
        super().__init__(said)
        self.details = details


class NotLate(Wrong):
    """The device did nothing late, so that a probe of late work shows nothing."""

    verdict = NOT_LATE


class Skipped(Wrong):
    """A part that cannot be done here."""

    verdict = SKIPPED


class Report:
    """The parts of one section.

    Args:
        file: the JSON file; parts that are in it already are not done again.
        patience: factor of every part's limit.
    """

    def __init__(self, file: Path, patience: float = 1) -> None:
        self._file, self._patience = file, patience
        self._found = read(file)

    def add(self, name: str, verdict: str, **details: Any) -> None:
        """Adds a part, or replaces it."""
        self._found["parts"][name] = {"verdict": verdict, **details}
        self._write(None)

    def note(self, name: str, **details: Any) -> None:
        """Adds details to a part."""
        self._found["parts"][name] |= details
        self._write(None)

    def run(self, name: str, part: Callable[[], Details], limit: float = 60, ended: str = RIGHT) -> Details:
        """Runs a part, which returns its details, and adds it with the verdict `ended`, or that of what it
        raised.

        Args:
            name: the part's name; a part that was reported before is not run.
            part: returns details.
            limit: seconds after which the process ends, with the stack of each of its threads on stderr.
            ended: the verdict of a part that returns.

        Returns:
            The part as it is reported.
        """
        if name not in self._found["parts"]:
            self._write(name)
            faulthandler.dump_traceback_later(limit * self._patience, exit=True)
            try:
                self._found["parts"][name] = verdict(part, ended)
            finally:
                faulthandler.cancel_dump_traceback_later()
            self._write(None)
        done: Details = self._found["parts"][name]
        return done

    def _write(self, running: str | None) -> None:
        write_json(self._file, self._found | {"running": running})


def verdict(part: Callable[[], Details], ended: str = RIGHT) -> Details:
    """The verdict on a part and its details, whatever it raises."""
    began = time.monotonic()
    try:
        found = {"verdict": ended, **part()}
    except Wrong as error:
        found = {"verdict": error.verdict, "said": str(error), **error.details}
    except Exception as error:  # every error is a finding; the parts after it are done all the same
        said = f"{type(error).__name__}: {error}".partition("\n")[0]
        found = {"verdict": ERROR, "said": said, "traceback": traceback.format_exc().splitlines()[-40:]}
    return found | {"seconds": round(time.monotonic() - began, 2)}


def read(file: Path) -> dict[str, Any]:
    """A report's content; that of an empty one if there is no file."""
    found: dict[str, Any] = json.loads(file.read_text()) if file.exists() else {"parts": {}, "running": None}
    return found


def write_json(file: Path, value: Any) -> None:
    """Replaces a JSON file, at once."""
    new = file.with_name(file.name + ".new")
    new.write_text(json.dumps(value, indent=1, default=str) + "\n")
    os.replace(new, file)


def failed(parts: Mapping[str, Mapping[str, Any]]) -> bool:
    """Returns True if one of the parts is not as it should be."""
    return any(part["verdict"] in _FAILED for part in parts.values())


def in_words(parts: Mapping[str, Mapping[str, Any]]) -> str:
    """The numbers of parts by verdict, and the short texts that parts have for the table."""
    counts = Counter(part["verdict"] for part in parts.values())
    told = [
        ", ".join(f"{count} {name}" for name, count in counts.items()),
        *(part["table"] for part in parts.values() if "table" in part),
    ]
    return "; ".join(told)
