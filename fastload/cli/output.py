"""Output of commands: lines of printable text, in whatever encoding the terminal or file has."""

from __future__ import annotations

import shutil
import sys
import textwrap

from fastload.errors import printable


def say(line: object, *, err: bool = False) -> None:
    """Writes one line to stdout (or stderr); what is not printable in it, a line break too, is written as an escape."""
    stream = sys.stderr if err else sys.stdout
    stream.write(f"{printable(line)}\n")  # not typer.echo, which writes UTF-8 where the encoding is ASCII
    stream.flush()


def counted(count: int, noun: str) -> str:
    """A number of things in words: 1 shard, 1,200 shards, 2 classes."""
    return f"{count:,} {noun}" + ("" if count == 1 else "es" if noun.endswith("s") else "s")


def shortened(text: str, width: int) -> str:
    """A text of one line that is at most so wide; words are left out at its end, and none is cut but one that is wider itself."""
    if len(text) <= width:
        return text
    kept = text[: width - 3].rpartition(" ")[0] or text[: width - 4]
    return f"{kept} ..."


def say_filled(label: str, text: str, width: int, column: int) -> None:
    """Writes a text beside its label, on as many lines as it takes; what has no space to break at is not cut, so that it can be copied."""
    label = f"  {printable(label)}"
    if len(label) >= column:
        say(label)
        label = ""
    options = {
        "initial_indent": label.ljust(column),
        "subsequent_indent": " " * column,
        "break_long_words": False,
        "break_on_hyphens": False,
    }
    for line in textwrap.wrap(text, width, **options) or [label]:  # type: ignore[arg-type]
        say(line)


def say_wrapped(text: str) -> None:
    """Writes a sentence in lines that fit the terminal; no word is cut."""
    width = max(40, shutil.get_terminal_size((80, 24)).columns)
    for line in textwrap.wrap(printable(text), width, break_long_words=False, break_on_hyphens=False):
        say(line)


def write_any_text() -> None:
    r"""Lets stdout and stderr take any text: what their encoding does not have is written as ``\xfc`` or ``\u732b``."""
    for stream in (sys.stdout, sys.stderr):
        if hasattr(stream, "reconfigure"):  # not where a test or a notebook put an object of its own
            stream.reconfigure(errors="backslashreplace")
