"""The options of a pack are the same as a keyword of fastload.pack, as a flag of `fastload pack` and in fastload.packing.options."""

from __future__ import annotations

import dataclasses
import inspect
from typing import Any, get_args, get_type_hints

import pytest
import typer

import fastload
from fastload.cli.pack import pack as command
from fastload.common import limits
from fastload.errors import ArgumentError
from fastload.packing.options import (
    CHOICES,
    LIMITS,
    BoxFormat,
    LayoutOptions,
    LmdbOptions,
    ObjectOptions,
    PackOptions,
    RunOptions,
    SourceOptions,
    TableOptions,
)
from fastload.store import BOX_SIDES

KEYWORDS = {name: each for name, each in inspect.signature(fastload.pack).parameters.items() if each.kind is each.KEYWORD_ONLY}
FLAGS = {name: each for name, each in inspect.signature(command).parameters.items() if name not in ("sources", "out")}


def options() -> dict[str, Any]:
    """Default of each option by name. That of max_pixels is None, for FASTLOAD_MAX_PIXELS, wherever a user gives it."""
    kinds = (PackOptions, TableOptions, LmdbOptions, LayoutOptions, ObjectOptions, RunOptions)
    fields = [each for kind in kinds for each in dataclasses.fields(kind)]
    assert len({each.name for each in fields}) == len(fields), "an option lies in two of the objects"
    return {each.name: each.default for each in fields} | {"max_pixels": None}


def test_keywords() -> None:
    """Names and defaults of the keywords are those of the options, which name their defaults."""
    assert {name: each.default for name, each in KEYWORDS.items()} == options()


def test_flags() -> None:
    """Names and defaults of the flags are those of the options; --quiet is the contrary of progress."""
    shown = {name: each.default for name, each in FLAGS.items()}
    assert shown.pop("quiet") is False
    assert shown == {name: default for name, default in options().items() if name != "progress"}


def test_options_of_a_source() -> None:
    """Keywords go to the object that has them, and an object of which nothing is given is None."""
    assert SourceOptions.of(header=False, split=None, box_format="xywh") == SourceOptions(
        table=TableOptions(header=False), objects=ObjectOptions("xywh")
    )
    with pytest.raises(TypeError, match=r"^quality: no option for reading a source$"):
        SourceOptions.of(quality=90)


def test_formats_of_boxes() -> None:
    """A user may name the formats that boxes can have, and no other."""
    assert get_args(BoxFormat) == tuple(BOX_SIDES)
    with pytest.raises(ArgumentError, match=r"^box_format='yxyx' is none of xyxy, xywh, "):
        ObjectOptions("yxyx")  # type: ignore[arg-type]


def test_the_limit_of_pixels(monkeypatch: pytest.MonkeyPatch) -> None:
    """What None stands for, without the variable, is the default of the object."""
    monkeypatch.delenv("FASTLOAD_MAX_PIXELS", raising=False)
    assert limits.default_max_pixels() == PackOptions().max_pixels


def test_choices() -> None:
    """Words that an option may be are the same for a keyword, a flag and an object, and all others are refused."""
    keywords, flags, fields = (get_type_hints(each) for each in (fastload.pack, command, PackOptions))
    for name, kind in CHOICES.items():
        assert keywords[name] == flags[name] == fields[name] == kind
        for word in get_args(kind):
            PackOptions(**{name: word})
        with pytest.raises(ArgumentError, match=f"^{name}='other' is none of "):
            PackOptions(**{name: "other"})


@pytest.mark.parametrize("name", LIMITS)
def test_limits(name: str) -> None:
    """Each object takes a number from its least to its most, and no other; a flag refuses none that the object takes."""
    kind = PackOptions if name in {each.name for each in dataclasses.fields(PackOptions)} else RunOptions
    least, most = LIMITS[name]
    for value in (least, most):
        kind(**{name: value})
    for wrong in (least - 1, most + 1, True, 1.0, "1"):
        with pytest.raises(ArgumentError, match=f"^{name}={wrong!r} is no whole number between {least} and {most}$"):
            kind(**{name: wrong})
    (flag,) = (each for each in get_args(get_type_hints(command, include_extras=True)[name]) if isinstance(each, typer.models.OptionInfo))
    assert flag.min == least
    assert flag.max in (None, most)
