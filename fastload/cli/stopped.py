"""Commands that are stopped by Ctrl-C: each ends with one sentence that names the command to run next, and exit code 130."""

from __future__ import annotations

import functools
import shlex
import sys
from collections.abc import Callable, Iterator
from typing import Any

import typer

from fastload.cli.output import say
from fastload.urls import is_url, shown

_LEFT = {
    "verify": "it writes nothing; this begins anew",
    "unpack": "this goes on with what is written",
    "export": "no file was written; this begins anew",
    "info": "this shows it",
    "bench": "nothing was written; this begins anew",
}
"""What a stopped command leaves behind, by its name; of others, the dataset is whole: a change is made at once, or not at all."""
_WHOLE = "the dataset is as it was, or has the whole change; this runs the command again"


def stoppable(command: Callable[..., Any]) -> Callable[..., Any]:
    """A command that says, where Ctrl-C stops it, what is left and what to run. Commands that say it themselves are not changed."""

    @functools.wraps(command)
    def run(*arguments: Any, **options: Any) -> Any:
        try:
            return command(*arguments, **options)
        except KeyboardInterrupt:
            name = command.__name__
            say(f"fastload: stopped; {_LEFT.get(name, _WHOLE)}: `{shlex.join(['fastload', name, *typed()])}`", err=True)
            raise typer.Exit(130) from None

    return run


def typed() -> Iterator[str]:
    """The arguments of the command that runs, as they were typed, but for what may be secret."""
    arguments = iter(sys.argv[2:])
    for argument in arguments:
        if argument.partition("=")[0] == "--storage-option":
            key = argument.partition("=")[2] or next(arguments, "")
            yield f"--storage-option={key.partition('=')[0]}=..."
        else:
            yield shown(argument) if is_url(argument) else argument
