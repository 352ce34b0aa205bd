"""Output of commands: lines of printable text, in whatever encoding the terminal or file has."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import sys
import textwrap
from collections.abc import Iterator
from typing import TextIO

from fastload.common.streams import tell
from fastload.errors import printable


class OutputError(Exception):
    """stdout does not take what a command shows. No OSError, of which libraries make an exit status of their
    own.

    Attributes:
        error: the system's error.
    """

    def __init__(self, error: OSError) -> None:
        super().__init__(f"what it shows cannot be written to stdout: {error.strerror}")
        self.error = error


class _Checked:
    """A stream whose errors are OutputError; else the stream itself."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream

    def write(self, text: str) -> int:
        with self._errors():
            return int(self._stream.write(text))

    def flush(self) -> None:
        with self._errors():
            self._stream.flush()

    @contextlib.contextmanager
    def _errors(self) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            raise OutputError(error) from error

    def __getattr__(self, name: str) -> object:
        found: object = getattr(self._stream, name)
        return found


@contextlib.contextmanager
def checked_output() -> Iterator[None]:
    """Lets whoever writes to stdout fail by OutputError."""
    given = sys.stdout
    sys.stdout = _Checked(given)
    try:
        yield
        sys.stdout.flush()
    finally:
        sys.stdout = given


def drop_unwritten() -> None:
    """Drops what stdout and stderr do not take: the interpreter's end would try again, and have an exit
    status of its own."""
    for stream in (sys.stdout, sys.stderr):
        if not _flushes(stream):
            os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())


def _flushes(stream: TextIO) -> bool:
    try:
        stream.flush()
    except OSError:
        return False
    return True


def say(line: object, *, err: bool = False) -> None:
    """Writes one line to stdout (or stderr); what is not printable in it, a line break too, is written as
    an escape."""
    if err:
        tell(line)
        return
    sys.stdout.write(f"{printable(line)}\n")  # not typer.echo, which writes UTF-8 where the encoding is ASCII
    sys.stdout.flush()


def say_json(document: object) -> None:
    """Writes a document to stdout, in ASCII."""
    sys.stdout.write(f"{json.dumps(document, indent=2, ensure_ascii=True)}\n")
    sys.stdout.flush()


def counted(count: int, noun: str) -> str:
    """A number of things in words: 1 shard, 1,200 shards, 2 classes."""
    if count == 1:
        return f"{count:,} {noun}"
    return f"{count:,} {noun}{'es' if noun.endswith('s') else 's'}"


def shortened(text: str, width: int) -> str:
    """A text of one line that is at most so wide; words are left out at its end, and none is cut but one
    that is wider itself."""
    if len(text) <= width:
        return text
    kept = text[: width - 3].rpartition(" ")[0] or text[: width - 4]
    return f"{kept} ..."


def say_filled(label: str, text: str, width: int, column: int) -> None:
    """Writes a text beside its label, on as many lines as it takes; what has no space to break at is not
    cut, so that it can be copied."""
    label = f"  {printable(label)}"
    if len(label) >= column:
        say(label)
        label = ""
    lines = textwrap.wrap(
        text,
        width,
        initial_indent=label.ljust(column),
        subsequent_indent=" " * column,
        break_long_words=False,
        break_on_hyphens=False,
    )
    for line in lines or [label]:
        say(line)


def say_wrapped(text: str) -> None:
    """Writes a sentence in lines that fit the terminal; no word is cut."""
    width = max(40, shutil.get_terminal_size((80, 24)).columns)
    for line in textwrap.wrap(printable(text), width, break_long_words=False, break_on_hyphens=False):
        say(line)


def write_any_text() -> None:
    r"""Lets stdout and stderr take any text: what their encoding does not have is written as ``\xfc`` or
    ``\u732b``."""
    for stream in (sys.stdout, sys.stderr):
        if hasattr(stream, "reconfigure"):  # not where a test or a notebook put an object of its own
            stream.reconfigure(errors="backslashreplace")
