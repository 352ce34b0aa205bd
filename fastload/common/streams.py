"""Standard streams of this process, any of which may be closed, or be a full disk or a pipe that nobody
reads."""

from __future__ import annotations

import contextlib
import os
import sys

from fastload.errors import printable


def tell(line: object) -> None:
    """Writes one line to stderr, as far as stderr takes it: a job does not end because nobody can be told
    how it goes."""
    # Full or without a reader; closed in Python; closed before it.
    with contextlib.suppress(OSError, ValueError, AttributeError):
        sys.stderr.write(f"{printable(line)}\n")
        sys.stderr.flush()


def flush_streams() -> None:
    """Writes out what stdout and stderr hold, as far as they take it, before the process is replaced or
    ended at once."""
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(OSError, ValueError, AttributeError):
            stream.flush()


def open_closed_descriptors(*, inherited: bool) -> None:
    """Opens /dev/null in place of each standard descriptor that is closed; sys.stdout and the others are
    streams from then on.

    A file that is opened next would get the free number, and what a library or a child process prints would
    go into it.

    Args:
        inherited: programs that this process starts, or becomes, get these descriptors too; else theirs are
            closed as before.
    """
    for number, name in enumerate(("stdin", "stdout", "stderr")):
        try:
            os.fstat(number)
        except OSError:
            opened = os.open(os.devnull, os.O_RDWR)  # has this number: those below are open
            os.set_inheritable(opened, inherited)
        if getattr(sys, name) is None:
            stream = open(number, "r" if name == "stdin" else "w", encoding="utf-8", closefd=False)
            setattr(sys, name, stream)
            setattr(sys, f"__{name}__", stream)
