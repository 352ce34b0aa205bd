"""Commands that are stopped, by Ctrl-C or at a sample: each ends with one sentence that names the command
to run next."""

from __future__ import annotations

import functools
import shlex
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import ParamSpec, TypeVar

from fastload.cli.interrupts import command_begins
from fastload.cli.output import say
from fastload.common.urls import is_url, shown
from fastload.errors import PackError, PackStoppedError

P = ParamSpec("P")
R = TypeVar("R")

_GOES_ON = "this goes on with it"
_LEFT = {
    "verify": "it writes nothing; this begins anew",
    "unpack": "this goes on with what is written",
    "export": "no file was written; this begins anew",
    "info": "this shows it",
    "view": "it changes nothing; this serves the page again",
    "bench": "nothing was written; this begins anew",
    "doctor": "it changes nothing; this begins anew",
    "tune": "it changes nothing; this begins anew",
    "index": f"the dataset is whole, and {_GOES_ON}",
    "push": _GOES_ON,
    "pull": _GOES_ON,
    "cache": _GOES_ON,
}
"""State that a stopped command leaves, by its name; after any other, the dataset is whole: a change is
made at once, or not at all."""
_WHOLE = "the dataset is as it was, or has the whole change; this runs the command again"


def stoppable(command: Callable[P, R]) -> Callable[P, R]:
    """A command that says, where Ctrl-C stops it, what is left and what to run. Commands that say it
    themselves are not changed."""

    @functools.wraps(command)
    def run(*arguments: P.args, **options: P.kwargs) -> R:
        try:
            command_begins()
            return command(*arguments, **options)
        except KeyboardInterrupt:
            name = command.__name__
            raise _stopped(f"{_LEFT.get(name, _WHOLE)}: {_again(name, resume=False)}") from None

    return run


@contextmanager
def run_again(command: str, first: str = "") -> Iterator[None]:
    """Names the command that goes on by --resume, where what this runs is stopped; `first` is said before
    it."""
    try:
        yield
    except PackStoppedError as error:
        raise PackError(
            f"{error.reason}. Repair or remove it, and go on: {_again(command)} -- "
            f"or leave such samples out: {_again(command, '--on-error', 'skip')}"
        ) from error
    except KeyboardInterrupt:
        raise _stopped(f"{first}this goes on: {_again(command)}") from None


def _stopped(advice: str) -> SystemExit:
    """Says that a command was stopped by Ctrl-C, and what to do; returns what ends the program with status
    130."""
    say(f"fastload: stopped; {advice}", err=True)
    return SystemExit(130)


def _again(command: str, *changed: str, resume: bool = True) -> str:
    """The command that goes on with this one, as the shell takes it: with --resume and the changed
    options, or the same."""
    kept: list[str] = []
    arguments = _typed()
    for argument in arguments:
        if changed and argument == "--on-error":
            next(arguments, None)
        elif not (resume and argument in ("--overwrite", "--resume")) and not (
            changed and argument.startswith("--on-error=")
        ):
            kept.append(argument)
    return f"`{shlex.join(['fastload', command, *(['--resume'] if resume else []), *changed, *kept])}`"


def _typed() -> Iterator[str]:
    """The arguments of the command that runs, as they were typed, but for what may be secret."""
    arguments = iter(sys.argv[2:])
    for argument in arguments:
        if argument.partition("=")[0] == "--storage-option":
            key = argument.partition("=")[2] or next(arguments, "")
            yield f"--storage-option={key.partition('=')[0]}=..."
        else:
            yield shown(argument) if is_url(argument) else argument
