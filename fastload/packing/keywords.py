"""Keywords of `pack`, `attach` and `append`, made from the declarations of the options: signature, docstring,
and the values of a call.

A function that takes them is written as ``def pack(source, out, **options: Unpack[PackKeywords])``: type
checkers read the TypedDict. `takes_options` gives it the signature and the docstring of a function that names
every keyword, so that help() shows them.
"""

from __future__ import annotations

import inspect
import re
import textwrap
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any, TypeVar, get_type_hints

from fastload.packing.options import COMMANDS, OPTIONS, TYPES
from fastload.sources.options import Option, Words, declared

F = TypeVar("F", bound=Callable[..., Any])
_WIDTH = 140


@dataclass(frozen=True, slots=True)
class Keyword:
    """An option as a command takes it.

    Attributes:
        name: the option's.
        type: type of its values.
        annotation: the type as it is written.
        default: its value where none is given.
        doc: its text in help().
        help: its flag's text in ``--help``.
        option: the rest of its declaration.
    """

    name: str
    type: object
    annotation: str
    default: object
    doc: str
    help: str
    option: Option


@cache
def keywords(command: str) -> Mapping[str, Keyword]:
    """The keywords of a command that packs, in the order in which help() and ``--help`` show them."""
    taken = get_type_hints(COMMANDS[command])
    return {name: _keyword(command, name, taken[name]) for name in OPTIONS if name in taken}


def _keyword(command: str, name: str, kind: object) -> Keyword:
    """The keyword for an option; `kind` is its type in the command's TypedDict."""
    field, option = OPTIONS[name], declared(OPTIONS[name])
    same = kind == TYPES[name]
    doc, help = _words(option.doc, command), _words(option.help, command)
    if command == "append" and option.as_packed:
        doc, help = (
            f"{doc} By default as the dataset was packed.",
            f"{help.removesuffix('.')}; as the dataset was packed, unless given.",
        )
    written = str(field.type)
    return Keyword(
        name,
        kind,
        written if same else f"{written} | None",
        field.default if same else None,
        doc,
        help,
        option,
    )


def _words(text: Words, command: str) -> str:
    return text if isinstance(text, str) else text.get(command, text["pack"])


def settled(command: str, given: Mapping[str, Any]) -> dict[str, Any]:
    """The value of each keyword of a command: the one given, or the default. Raises TypeError for a
    keyword that it has not."""
    known = keywords(command)
    for name in given:
        if name not in known:
            raise TypeError(f"{command}() got an unexpected keyword argument {name!r}")
    return {name: given.get(name, each.default) for name, each in known.items()}


def takes_options(function: F) -> F:
    """Shows the keywords of a command where its function shows ``**options``: in the signature and in the
    docstring's Args."""
    command = function.__name__
    signature, hints = inspect.signature(function), dict(function.__annotations__)
    hints.pop("options")
    *own, _ = signature.parameters.values()
    shown = [
        inspect.Parameter(
            each.name, inspect.Parameter.KEYWORD_ONLY, default=each.default, annotation=each.annotation
        )
        for each in keywords(command).values()
    ]
    function.__signature__ = signature.replace(parameters=[*own, *shown])  # type: ignore[attr-defined]
    returned = hints.pop("return")
    function.__annotations__ = {
        **hints,
        **{name: each.type for name, each in keywords(command).items()},
        "return": returned,
    }
    if function.__doc__ is not None:  # python -OO has none
        function.__doc__ = _documented(inspect.cleandoc(function.__doc__), keywords(command).values())
    return function


def _documented(text: str, shown: Iterable[Keyword]) -> str:
    """A docstring with an entry for each keyword at the end of its Args."""
    entries = [
        textwrap.fill(
            f"{each.name}: {each.doc}",
            _WIDTH,
            initial_indent=" " * 4,
            subsequent_indent=" " * 8,
            break_long_words=False,
            break_on_hyphens=False,
        )
        for each in shown
    ]
    return re.sub(r"(?<=\n)(?=\nReturns:)", lambda _: "\n".join(entries) + "\n", text, count=1)
