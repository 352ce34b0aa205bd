"""Ctrl-C before a command begins: it ends the process with a sentence."""

from __future__ import annotations

import os
import signal
import sys

_SENTENCE = b"fastload: stopped before the command began; nothing was changed: run it again\n"


def command_begins() -> None:
    """From here on Ctrl-C raises KeyboardInterrupt, so that a command can put away what it has begun."""
    if signal.getsignal(signal.SIGINT) is leave:
        signal.signal(signal.SIGINT, signal.default_int_handler)


def leave(*_: object) -> None:
    """Ends the process with status 130; nothing has to be put away yet."""
    try:
        os.write(sys.__stderr__.fileno() if sys.__stderr__ else 2, _SENTENCE)
    finally:
        os._exit(130)
