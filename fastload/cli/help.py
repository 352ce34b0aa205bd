"""Help texts of the command line, as plain text in 80 columns: no word is cut, and a metavar stays in one
piece.

typer's own are made of boxes whose columns change with its version and the terminal, and cut what does not
fit. These are made of the commands' signatures, as the page of the documentation is.
"""

from __future__ import annotations

import inspect
import re
import shutil
import textwrap
import types
import typing
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Protocol

from typer.core import TyperCommand, TyperGroup
from typer.models import ParameterInfo

WIDTH = 80
"""Most columns of a line: of a wider terminal too, since longer lines are hard to read."""
_NAMES = 24
"""Columns of names; a longer name has a line of its own."""
_COMMANDS = 11
"""Columns of the names of commands."""
_KINDS: Mapping[object, str] = {int: "N", float: "X"}
_KEPT = "\N{NO-BREAK SPACE}"
"""A space at which no line ends."""
HELP_NAMES = ("-h", "--help")


@dataclass(frozen=True, slots=True)
class Parameter:
    """An argument or option as a reader sees it.

    Attributes:
        names: an argument's metavar, or an option's names.
        value: metavar of an option's value; "" for a switch and for an argument.
        default: its value where none is given, as it is typed; "" if there is none to name.
        bounds: the numbers that it may be, in words; "" if any.
        text: its description.
        argument: it has no name before it.
        required: it cannot be left out.
    """

    names: tuple[str, ...]
    value: str
    default: str
    bounds: str
    text: str
    argument: bool
    required: bool

    @property
    def label(self) -> str:
        """Names and value, as they are typed."""
        return ", ".join(self.names) + (f" {self.value}" if self.value else "")

    @property
    def note(self) -> str:
        """Bounds and default in brackets, to stand after the text."""
        if self.argument:
            return ""
        parts = [
            self.bounds,
            f"default: {self.default}" if self.default else "",
            "required" if self.required else "",
        ]
        return f"[{'; '.join(filter(None, parts))}]".replace(" ", _KEPT) if any(parts) else ""


def parameters(command: Callable[..., Any]) -> list[Parameter]:
    """The arguments and options of a command, in the order of its signature."""
    hints = typing.get_type_hints(command, include_extras=True)
    return [
        _parameter(each, *typing.get_args(hints[each.name])[:2])
        for each in inspect.signature(command).parameters.values()
    ]


def _parameter(each: inspect.Parameter, kind: object, about: ParameterInfo) -> Parameter:
    text, required = about.help or "", each.default is inspect.Parameter.empty
    if type(about).__name__ == "ArgumentInfo":
        return Parameter((about.metavar or each.name.upper(),), "", "", "", text, True, required)
    # Inside Annotated, typer takes the first name for the default.
    named = [
        name
        for name in (about.default, *(about.param_decls or ()))
        if isinstance(name, str) and name.startswith("-")
    ]
    names = [part for name in named or [f"--{each.name.replace('_', '-')}"] for part in name.split("/")]
    names.sort(key=lambda name: name.startswith("--"))
    return Parameter(
        tuple(names),
        _value(kind, about),
        "" if required else _default(each.default, names),
        _bounds(about.min, about.max),
        text,
        False,
        required,
    )


def _default(value: object, names: Iterable[str]) -> str:
    """A default as it is typed; "" if there is none to name."""
    if value is None or value is False:
        return ""
    return next(name for name in names if name.startswith("--")) if value is True else str(value)


def _value(kind: object, about: ParameterInfo) -> str:
    union = typing.get_origin(kind) in (types.UnionType, typing.Union)
    kinds = [each for each in (typing.get_args(kind) if union else (kind,)) if each is not types.NoneType]
    if kinds == [bool]:
        return ""
    if typing.get_origin(kinds[0]) is typing.Literal:
        return "|".join(map(str, typing.get_args(kinds[0])))
    return about.metavar or _KINDS.get(kinds[0], "TEXT")


def _bounds(least: float | None, most: float | None) -> str:
    if most is None:
        return "" if least in (None, 0, 1) else f"at least {least:g}"
    return f"{least:g} to {most:g}"


def first_sentence(text: str) -> str:
    """The first sentence of a text of several, on one line."""
    line = " ".join(text.split())
    found = re.match(r".*?\.(?=\s+[A-Z`\"'])", line)
    return found[0] if found else line


def usage(name: str, command: Callable[..., Any]) -> str:
    """The line that says what is typed, without the program's name."""
    shown = parameters(command)
    words = [
        "[OPTIONS]",
        *(f"{each.names[0]} {each.value}" for each in shown if each.required and not each.argument),
    ]
    return " ".join([name, *words, *(each.names[0] for each in shown if each.argument)])


def command_help(name: str, command: Callable[..., Any]) -> str:
    """The text of ``fastload NAME --help``."""
    shown = parameters(command)
    parts = [
        _filled(f"fastload {usage(name, command)}", "Usage: ", " " * 7),
        "",
        _filled(first_sentence(inspect.getdoc(command) or "")),
    ]
    arguments = [(each.label, first_sentence(each.text)) for each in shown if each.argument]
    options = [
        (each.label, f"{first_sentence(each.text)} {each.note}".strip(" "))
        for each in shown
        if not each.argument
    ]
    options.append((", ".join(HELP_NAMES), "Show this text and exit."))
    for title, rows in (("Arguments", arguments), ("Options", options)):
        parts += ["", f"{title}:", *_table(rows)]
    return "\n".join(parts) + "\n"


def program_help(
    about: str, groups: Mapping[str, Iterable[Callable[..., Any]]], options: Iterable[tuple[str, str]]
) -> str:
    """The text of ``fastload --help``: commands in groups, each with its first sentence."""
    parts = ["Usage: fastload [OPTIONS] COMMAND ...", "", _filled(about)]
    for title, commands in groups.items():
        parts += [
            "",
            f"{title}:",
            *_table(
                [(each.__name__, first_sentence(inspect.getdoc(each) or "")) for each in commands], _COMMANDS
            ),
        ]
    parts += ["", "Options:", *_table([*options, (", ".join(HELP_NAMES), "Show this text and exit.")])]
    parts += [
        "",
        _filled(
            "`fastload COMMAND --help` shows a command's options; the page Command line of the "
            "documentation says more."
        ),
    ]
    return "\n".join(parts) + "\n"


def _columns() -> int:
    return max(40, min(WIDTH, shutil.get_terminal_size((WIDTH, 24)).columns))


def _filled(text: str, first: str = "", later: str = "") -> str:
    filled = textwrap.fill(
        text,
        _columns(),
        initial_indent=first,
        subsequent_indent=later,
        break_long_words=False,
        break_on_hyphens=False,
    )
    return filled.replace(_KEPT, " ")


def _table(rows: Iterable[tuple[str, str]], names: int = _NAMES) -> list[str]:
    """Lines of names with texts beside them, or below a name that is too long."""
    lines = []
    for name, text in rows:
        label = f"  {name}"
        if len(label) + 2 > names:
            lines.append(_filled(name, "  ", "      "))
            label = ""
        if text:
            lines.append(_filled(text, label.ljust(names), " " * names))
        elif label:
            lines.append(label)
    return lines


class _Formatter(Protocol):
    def write(self, string: str) -> None: ...


class HelpfulCommand(TyperCommand):
    """A command whose help is `command_help`."""

    def format_help(self, ctx: object, formatter: _Formatter) -> None:
        """Writes the help of this command."""
        assert self.callback is not None
        formatter.write(
            command_help(
                str(self.name),
                inspect.unwrap(self.callback, stop=lambda each: hasattr(each, "__signature__")),
            )
        )


class HelpfulGroup(TyperGroup):
    """The program, whose help is `program_help` of what a subclass says."""

    def text(self) -> str:
        """The text of the help."""
        raise NotImplementedError

    def format_help(self, ctx: object, formatter: _Formatter) -> None:
        """Writes the help of the program."""
        formatter.write(self.text())
