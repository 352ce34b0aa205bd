"""``fastload run``: a training program with FastLoader in place of torch's DataLoader."""

from __future__ import annotations

from typing import Annotated

import typer

from fastload.run.launch import COMPARE_HELP, MODULE_HELP, PROGRAM_HELP, QUIET_HELP, RunOptions, start


def run(
    program: Annotated[list[str], typer.Argument(metavar="PROGRAM...", help=PROGRAM_HELP)],
    module: Annotated[bool, typer.Option("-m", help=MODULE_HELP)] = False,
    compare: Annotated[int, typer.Option("--compare", min=0, metavar="N", help=COMPARE_HELP)] = 0,
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help=QUIET_HELP)] = False,
) -> None:
    """Runs a program as `python PROGRAM` does, with FastLoader wherever it uses torch's DataLoader. No file
    of the program changes. Options of fastload stand before PROGRAM."""
    start(RunOptions(compare, quiet), program, module=module)
