"""Output of commands: lines of printable text, in whatever encoding the terminal or file has."""

from __future__ import annotations

import sys

import typer

from fastload.errors import printable


def say(line: object, *, err: bool = False) -> None:
    """Writes one line to stdout (or stderr); what is not printable in it, a line break too, is written as an escape."""
    typer.echo(printable(line), err=err)


def write_any_text() -> None:
    r"""Lets stdout and stderr take any text: what their encoding does not have is written as ``\xfc`` or ``\u732b``."""
    for stream in (sys.stdout, sys.stderr):
        if hasattr(stream, "reconfigure"):  # not where a test or a notebook put an object of its own
            stream.reconfigure(errors="backslashreplace")
