"""Options that several commands have: the flags of those that pack, made from the declarations of the
options, and others."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Iterable
from typing import Annotated, Any, Literal, get_args, get_origin

import typer

from fastload.common.limits import parse_timeout
from fastload.common.urls import is_url, local_path, shown
from fastload.errors import ArgumentError
from fastload.packing.keywords import Keyword, keywords
from fastload.packing.options import OPTIONS
from fastload.sources.options import declared


def in_a_folder(dataset: str) -> str:
    """The dataset's folder, of a path or a file:// URL. Raises ArgumentError if it is another URL."""
    if not is_url(dataset):
        return dataset
    if (path := local_path(dataset)) is not None:
        return path
    url = shown(dataset)
    raise ArgumentError(
        f"{url} is a URL, and this command needs a dataset in a folder: `fastload pull {url} OUT` makes one"
    )


LocalDataset = Annotated[
    str, typer.Argument(metavar="DATASET", help="A packed dataset.", callback=in_a_folder)
]
Quiet = Annotated[bool, typer.Option("--quiet", "-q", help=declared(OPTIONS["progress"]).help)]
StorageOptions = Annotated[
    list[str] | None,
    typer.Option("--storage-option", metavar="KEY=VALUE", help=declared(OPTIONS["storage_options"]).help),
]


def _is_timeout(given: str | None) -> str | None:
    if given is not None:
        parsed_timeout(given)
    return given


Timeout = Annotated[
    str | None,
    typer.Option("--timeout", metavar="TIME", help=declared(OPTIONS["timeout"]).help, callback=_is_timeout),
]


def parsed_timeout(given: str | None) -> float:
    """The seconds that ``--timeout`` names, with a unit or without; 60 without the option. Raises
    ArgumentError."""
    if given is None:
        return 60.0
    try:
        return parse_timeout(float(given), "--timeout")
    except ValueError:  # ArgumentError is one: the text is shown as it was given
        return parse_timeout(given, "--timeout")


def parsed_options(given: Iterable[str] | None) -> dict[str, object] | None:
    """The storage_options that ``--storage-option`` names; None if there are none. `A.B=C` is an entry of the
    dict `A`.

    Raises:
        ArgumentError: one is not of the form KEY=VALUE. The message does not show it: a value may be secret.
    """
    found: dict[str, object] = {}
    for each in given or ():
        key, equals, value = each.partition("=")
        if not equals or not key.strip("."):
            raise ArgumentError(
                "a --storage-option is not of the form KEY=VALUE (it is not shown: it may be secret)"
            )
        outer, dot, inner = key.partition(".")
        if not dot:
            found[key] = value
            continue
        nested = found.setdefault(outer, {})
        if not isinstance(nested, dict):
            raise ArgumentError(f"--storage-option {outer} is given both as a value and as {outer}.KEY=VALUE")
        nested[inner] = {"true": True, "false": False}.get(value.lower(), value)
    return found or None


_VALUES: dict[str, Callable[[Any], Any]] = {
    "annotations": lambda given: given or None,
    "storage_options": parsed_options,
    "timeout": lambda given: None if given is None else parsed_timeout(given),
    "ray": lambda given: True if given == "" else given,
}
"""The value of a keyword from that of its flag, where they differ."""


def takes_flags(command: Callable[..., None]) -> Callable[..., None]:
    """A command with a flag for each keyword of the function of its name. `command` gets the keywords'
    values as its ``**options``."""
    shown = keywords(command.__name__)

    @functools.wraps(command)
    def run(*, quiet: bool, **given: object) -> None:
        options = {
            name: _VALUES.get(name, lambda value: value)(given.pop(name))
            for name in shown
            if name != "progress"
        }
        command(**given, **options, progress=not quiet)

    signature, hints = inspect.signature(command, eval_str=True), dict(command.__annotations__)
    flags = [_flag(each) for each in shown.values()]
    *own, _ = signature.parameters.values()
    own = [each.replace(kind=inspect.Parameter.KEYWORD_ONLY) for each in own]
    run.__signature__ = signature.replace(parameters=[*own, *flags])  # type: ignore[attr-defined]
    run.__annotations__ = {each.name: each.annotation for each in (*own, *flags)} | {
        "return": hints["return"]
    }
    return run


def _flag(keyword: Keyword) -> inspect.Parameter:
    """The parameter from which typer makes the flag of a keyword."""
    if keyword.name == "progress":
        return inspect.Parameter("quiet", inspect.Parameter.KEYWORD_ONLY, default=False, annotation=Quiet)
    option, kind = keyword.option, _flag_type(keyword)
    name = f"--{keyword.name.replace('_', '-')}"
    if option.flag:
        name = option.flag
    elif bool in (kind, *get_args(kind)) and keyword.default is not False:
        name = f"{name}/--no-{name.removeprefix('--')}"
    least, most = option.limits or (None, None)
    about = typer.Option(
        name, min=least, max=most if option.most_shown else None, metavar=option.metavar, help=keyword.help
    )
    return inspect.Parameter(
        keyword.name,
        inspect.Parameter.KEYWORD_ONLY,
        default=keyword.default,
        annotation=Annotated[kind, about],
    )


def _flag_type(keyword: Keyword) -> object:
    """The type of a flag's value: text where the keyword takes text among others, or several of it."""
    if keyword.option.repeated:
        return list[str] | None
    return (
        str | None
        if str in get_args(keyword.type) and get_origin(keyword.type) is not Literal
        else keyword.type
    )
