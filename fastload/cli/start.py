"""Start of the ``fastload`` command: Ctrl-C is answered with a sentence before the program is imported, and
while it reads its arguments.

An exception cannot do that: one that is raised in a callback of the import system is printed and forgotten,
and the command goes on.
"""

from __future__ import annotations

import signal
import sys

from fastload import portable
from fastload.cli.interrupts import leave


def main() -> None:
    """Runs `fastload.cli.main.main`. Until a command begins, Ctrl-C ends the process with status 130;
    nothing has to be put away."""
    if portable.LACKING:
        portable.command()
    # Ignored in a job of a shell's background.
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        signal.signal(signal.SIGINT, leave)
    try:
        from fastload.common.streams import open_closed_descriptors

        # Its program gets what this one was given.
        open_closed_descriptors(inherited=sys.argv[1:2] != ["run"])
        from fastload.cli.main import main as run

        run()
    except KeyboardInterrupt:
        leave()
