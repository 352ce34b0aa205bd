"""``python -m fastload.run [-q] [--compare N] [-m] PROGRAM [ARGS]``: `fastload run` without the command
line's libraries.

torchrun starts it so: ``torchrun --nproc-per-node 2 -m fastload.run train.py``.
"""

from __future__ import annotations

import argparse
import sys
from typing import NoReturn

from fastload.common.streams import tell
from fastload.errors import FastloadError
from fastload.run.launch import COMPARE_HELP, MODULE_HELP, PROGRAM_HELP, QUIET_HELP, RunOptions, start


def main() -> NoReturn:
    """Reads the options before the program, and becomes the program."""
    parser = argparse.ArgumentParser(
        prog="python -m fastload.run", description="Runs a program with FastLoader in place of DataLoader."
    )
    parser.add_argument("-q", "--quiet", action="store_true", help=QUIET_HELP)
    parser.add_argument("--compare", type=int, default=0, metavar="N", help=COMPARE_HELP)
    parser.add_argument("-m", action="store_true", dest="module", help=MODULE_HELP)
    parser.add_argument("program", nargs=argparse.REMAINDER, metavar="PROGRAM [ARGS]", help=PROGRAM_HELP)
    given = parser.parse_args()
    if not given.program:
        parser.error("PROGRAM is missing, such as train.py")
    if given.compare < 0:
        parser.error("--compare takes a number of batches, 0 or more")
    try:
        start(RunOptions(given.compare, given.quiet), given.program, module=given.module)
    except (FastloadError, OSError) as error:
        tell(f"fastload run: {error}")
        sys.exit(2)


if __name__ == "__main__":
    main()
