"""Wrong usage of the command line: one sentence for each mistake, which says what was given, where, and what
may stand there.

typer's own words come from libraries that change with its versions. So a message is made of the command's
signature and of what was typed.
"""

from __future__ import annotations

import difflib
import os
import shlex
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal, get_args, get_origin, get_type_hints

import typer

from fastload.common.urls import is_url

USAGE_ERROR: type[Exception] = typer.BadParameter.__mro__[1]
"""The base of all errors of usage. Its module differs between versions of typer."""
_EXAMPLES = {
    "run": "train.py",
    "pack": "photos train.fl",
    "attach": "photos index.fl",
    "append": "train.fl photos",
    "convert": "train.fl fast.fl --encode dct",
    "columns": "train.fl add captions.csv",
    "drop": "train.fl --where 'label = 3'",
    "concat": "a.fl b.fl both.fl",
    "prune": "train.fl",
    "rebase": "index.fl photos",
    "push": "train.fl s3://bucket/train.fl",
    "pull": "s3://bucket/train.fl train.fl",
    "cache": "s3://bucket/train.fl",
    "info": "train.fl",
    "view": "train.fl",
    "verify": "train.fl",
    "index": "train.fl",
    "unpack": "train.fl files",
    "export": "train.fl train.tar",
    "bench": "train.fl",
    "doctor": "train.fl",
    "tune": "train.fl",
}
_KINDS = {int: "a whole number", float: "a number", bool: "true or false"}


def usage_message(error: Any, commands: Mapping[str, Callable[..., Any]], arguments: Sequence[str]) -> str:
    """The sentence for an error of usage; `arguments` are those of the program."""
    name = next((each for each in arguments if not each.startswith("-")), "")
    if name not in commands:
        return _no_command(name or arguments[0], commands)
    see = f"`fastload {name} --help` shows all"
    option = getattr(error, "option_name", None)
    if option is not None and hasattr(error, "possibilities"):  # there is no such option
        if any(each.startswith(option) for each in arguments[: list(arguments).index(name)]):
            return _no_command(option, commands)
        near = " or ".join(sorted(error.possibilities or ()))
        return f"fastload {name} has no option {option}" + (
            f"; did you mean {near}? {see}" if near else f"; {see}"
        )
    if option is not None:
        with_value = next((each for each in arguments if each.startswith(f"{option}=")), None)
        return (
            f"{option} takes no value, and {with_value} has one"
            if with_value
            else f"{option} needs a value after it; {see}"
        )
    given, extra = _given(error.ctx, arguments[list(arguments).index(name) + 1 :])
    absent = [
        _metavar(each) for each in error.ctx.command.params if each.required and not given.get(each.name)
    ]
    if absent:
        verb = "are" if len(absent) > 1 else "is"
        return f"{' and '.join(absent)} {verb} missing: `fastload {name}` is called as in {example(name)}"
    if extra:
        return f"{shlex.join(extra)} is more than `fastload {name}` takes: it is called as in {example(name)}"
    parameter = getattr(error, "param", None)
    if parameter is None:
        return f"{' '.join(error.format_message().split())} {see}"
    raw = given.get(parameter.name)
    hint = get_type_hints(commands[name], include_extras=True)[parameter.name]
    wrong = next(
        (each for each in ([raw] if isinstance(raw, str) else raw or ()) if not _allowed(hint, each)), raw
    )
    shown = parameter.opts[0] if parameter.param_type_name == "option" else _metavar(parameter)
    return f"{shown} {wrong!r}: give {_wanted(hint)}"


def example(name: str) -> str:
    """A command with all that it needs."""
    return f"`fastload {name} {_EXAMPLES[name]}`"


def _no_command(name: str, commands: Mapping[str, Any]) -> str:
    if name.startswith("-"):
        return f"fastload has no option {name} before a command; `fastload --help` shows all"
    if name.endswith(".py"):
        return f"there is no command {name}: write `fastload run {name}` to run it"
    if os.path.exists(name) or os.path.splitext(name)[1] or is_url(name):
        return (
            f"there is no command {name}: a command stands before a path, as in `fastload info {name}`; "
            "`fastload --help` lists all"
        )
    near = difflib.get_close_matches(name, commands, 3, 0.5)
    return (
        f"there is no command {name}"
        + (f"; did you mean {' or '.join(near)}?" if near else ";")
        + " `fastload --help` lists all"
    )


def _given(context: typer.Context, arguments: Sequence[str]) -> tuple[dict[str, Any], list[str]]:
    """(texts typed for each parameter, texts too much). If positional arguments are missing, they are the
    last ones."""
    values, extra, _ = context.command.make_parser(context).parse_args(list(arguments))
    positional = [
        parameter for parameter in context.command.params if parameter.param_type_name == "argument"
    ]
    typed: list[str] = []
    for parameter in positional:
        value = values.pop(parameter.name, None)
        typed += (
            [value] if isinstance(value, str) else [each for each in value or () if isinstance(each, str)]
        )
    found = dict(values)
    for number, parameter in enumerate(positional):
        if typed and parameter.nargs == -1:
            most = max(1, len(typed) - (len(positional) - number - 1))
            found[parameter.name], typed = typed[:most], typed[most:]
        elif typed:
            found[parameter.name], *typed = typed
    return found, list(extra)


def _metavar(parameter: Any) -> str:
    return str(parameter.metavar or parameter.opts[0]).removesuffix("...").strip("[]")


def _parts(hint: object) -> tuple[Any, object]:
    """The type of one value, and typer's description, of a parameter's annotation."""
    kind, *others = get_args(hint)
    about = others[0] if others else None
    inner = [each for each in get_args(kind) if each is not type(None)]
    if get_origin(kind) is not Literal and inner:
        kind = inner[0]
    return (get_args(kind)[0] if get_origin(kind) is list else kind), about


def _allowed(hint: object, text: object) -> bool:
    kind, about = _parts(hint)
    if get_origin(kind) is Literal:
        return text in get_args(kind)
    try:
        value = kind(text)
    except (TypeError, ValueError):
        return False
    least, most = getattr(about, "min", None), getattr(about, "max", None)
    return (least is None or value >= least) and (most is None or value <= most)


def _wanted(hint: object) -> str:
    kind, about = _parts(hint)
    if get_origin(kind) is Literal:
        *most, last = map(str, get_args(kind))
        return f"{', '.join(most)} or {last}" if most else last
    what = _KINDS.get(kind, "a text")
    least, most_allowed = getattr(about, "min", None), getattr(about, "max", None)
    if least is not None and most_allowed is not None:
        return f"{what} from {least} to {most_allowed}"
    return what if least is None else f"{what} of at least {least}"
