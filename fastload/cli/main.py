"""``fastload``: the console script. Errors are one line on stderr and exit code 2; see `main`."""

from __future__ import annotations

import errno
import sys
from collections.abc import Callable, Iterable
from typing import Annotated, NoReturn

import typer

from fastload.cli.attach import attach, rebase
from fastload.cli.bench import bench
from fastload.cli.bucket import cache, pull, push
from fastload.cli.convert import convert
from fastload.cli.doctor import doctor
from fastload.cli.help import HELP_NAMES, HelpfulCommand, HelpfulGroup, program_help
from fastload.cli.output import OutputError, checked_output, drop_unwritten, say, write_any_text
from fastload.cli.pack import pack
from fastload.cli.run import run
from fastload.cli.stopped import stoppable
from fastload.cli.tools import export, index, info, unpack, verify
from fastload.cli.tune import tune
from fastload.cli.usage import USAGE_ERROR, usage_message
from fastload.cli.versions import append, columns, concat, drop, prune
from fastload.cli.view import view
from fastload.errors import FastloadError

_ABOUT = "Runs training programs with FastLoader; packs image datasets, and checks, shows and measures them."

GROUPS: dict[str, tuple[Callable[..., None], ...]] = {
    "Train": (run, bench, doctor, tune),
    "Make a dataset": (pack, attach, convert, concat),
    "Look into a dataset": (info, view, verify),
    "Change a dataset": (append, columns, drop, prune, index, rebase),
    "Make files of a dataset": (unpack, export),
    "Datasets in a bucket": (push, pull, cache),
}
"""All commands, as `fastload --help` shows them."""
COMMANDS = {command.__name__: command for group in GROUPS.values() for command in group}
_OPTIONS = (
    ("--version", "Show the version and exit."),
    ("--install-completion", "Let this shell complete commands and options."),
    ("--show-completion", "Print what --install-completion would write."),
)


class _Program(HelpfulGroup):
    def text(self) -> str:
        return program_help(_ABOUT, GROUPS, _OPTIONS)


def _show_version(shown: bool) -> None:
    if shown:
        from fastload import __version__

        typer.echo(f"fastload {__version__}")
        raise typer.Exit


def _options(
    version: Annotated[
        bool,
        typer.Option("--version", callback=_show_version, is_eager=True, help="Show the version and exit."),
    ] = False,
) -> None:
    """Options before a command."""


def _program(commands: Iterable[Callable[..., None]]) -> typer.Typer:
    """The program with some of its commands: typer reads the signature of each, which takes longer than
    all else that it does."""
    settings = {"help_option_names": list(reversed(HELP_NAMES))}
    made = typer.Typer(
        name="fastload", help=_ABOUT, cls=_Program, context_settings=settings, pretty_exceptions_enable=False
    )
    made.callback(help=_ABOUT)(_options)
    for command in commands:
        # All that stands after a program's name is the program's.
        own = settings | {"allow_interspersed_args": command is not run}
        made.command(cls=HelpfulCommand, context_settings=own)(stoppable(command))
    return made


app = _program(COMMANDS.values())


def main() -> None:
    """Runs the command line. Exit code 0: done; 1: `verify` found bad samples, or `doctor` a fault; 2: an
    error, told in one line on stderr; 130: Ctrl-C.

    Raises:
        KeyboardInterrupt: Ctrl-C before a command has begun.
    """
    write_any_text()
    try:
        sys.exit(_run(_with_values(sys.argv[1:])))
    finally:
        drop_unwritten()


def _run(arguments: list[str]) -> int:
    """Runs the command line with these arguments; its exit code."""
    try:
        with checked_output():
            named = COMMANDS.get(arguments[0]) if arguments else None
            code = (_program([named]) if named else app)(
                arguments or ["--help"], prog_name="fastload", standalone_mode=False
            )
    except OutputError as error:
        if error.error.errno == errno.EPIPE:  # whoever read it has left, and nobody is there to be told
            return 2
        _fail(str(error))
    except USAGE_ERROR as error:
        _fail(usage_message(error, COMMANDS, arguments))
    except typer.Abort:  # as some versions of typer have it from Ctrl-C; others return the status
        raise KeyboardInterrupt from None
    except FastloadError as error:
        _fail(str(error))
    except OSError as error:
        _fail(f"{error.filename}: {error.strerror}" if error.filename else str(error))
    if code == 130:  # outside of a command, which would have ended the program
        raise KeyboardInterrupt
    return (code or 0) if arguments else 2


def _with_values(arguments: list[str]) -> list[str]:
    """The arguments, with an empty value for --ray where it has none: its value may be left out, which
    typer does not know."""
    if arguments[:1] == [run.__name__]:
        return arguments
    after = [*arguments, "-"][1:]
    return [
        "--ray=" if each == "--ray" and following.startswith("-") else each
        for each, following in zip(arguments, after, strict=True)
    ]


def _fail(text: str) -> NoReturn:
    say(f"fastload: {' '.join(text.splitlines())}", err=True)
    sys.exit(2)
