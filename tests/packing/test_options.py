"""The options of a pack are the same as a keyword of fastload.pack, as a flag of `fastload pack` and in
fastload.packing.options."""

from __future__ import annotations

import dataclasses
import inspect
import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any, get_args, get_type_hints

import pytest
import typer
from pictures import write_folder

import fastload
from fastload.cli.pack import pack as command
from fastload.common import limits
from fastload.errors import ArgumentError
from fastload.packing.options import CHOICES, COMMANDS, LIMITS, OPTIONS, TYPES, PackOptions, RunOptions
from fastload.sources.options import (
    BoxFormat,
    ColumnOptions,
    LayoutOptions,
    LmdbOptions,
    SourceOptions,
    TableOptions,
)
from fastload.store import BOX_SIDES

KEYWORDS = {
    name: each
    for name, each in inspect.signature(fastload.pack).parameters.items()
    if each.kind is each.KEYWORD_ONLY
}
FLAGS = {
    name: each
    for name, each in inspect.signature(command).parameters.items()
    if name not in ("sources", "out")
}


def options() -> dict[str, Any]:
    """Default of each option by name. That of max_pixels is None, for FASTLOAD_MAX_PIXELS, wherever a user
    gives it."""
    kinds = (PackOptions, TableOptions, LmdbOptions, LayoutOptions, ColumnOptions, RunOptions)
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
        table=TableOptions(header=False), columns=ColumnOptions("xywh")
    )
    with pytest.raises(TypeError, match=r"^quality: no option for reading a source$"):
        SourceOptions.of(quality=90)


def test_formats_of_boxes() -> None:
    """A user may name the formats that boxes can have, and no other."""
    assert get_args(BoxFormat) == tuple(BOX_SIDES)
    with pytest.raises(ArgumentError, match=r"^box_format='yxyx' is none of xyxy, xywh, "):
        ColumnOptions("yxyx")  # type: ignore[arg-type]


def test_the_limit_of_pixels(monkeypatch: pytest.MonkeyPatch) -> None:
    """What None stands for, without the variable, is the default of the object."""
    monkeypatch.delenv("FASTLOAD_MAX_PIXELS", raising=False)
    assert limits.default_max_pixels() == PackOptions().max_pixels


def test_choices() -> None:
    """Words that an option may be are the same for a keyword, a flag and an object, and all others are
    refused."""
    keywords, flags, fields = (get_type_hints(each) for each in (fastload.pack, command, PackOptions))
    for name, kind in CHOICES.items():
        assert keywords[name] == flags[name] == fields[name] == kind
        for word in get_args(kind):
            PackOptions(**{name: word})
        with pytest.raises(ArgumentError, match=f"^{name}='other' is none of "):
            PackOptions(**{name: "other"})


@pytest.mark.parametrize("name", LIMITS)
def test_limits(name: str) -> None:
    """Each object takes a number from its least to its most, and no other; a flag refuses none that the
    object takes."""
    kind = PackOptions if name in {each.name for each in dataclasses.fields(PackOptions)} else RunOptions
    least, most = LIMITS[name]
    for value in (least, most):
        kind(**{name: value})
    for wrong in (least - 1, most + 1, True, 1.0, "1"):
        with pytest.raises(
            ArgumentError, match=f"^{name}={wrong!r} is no whole number between {least} and {most}$"
        ):
            kind(**{name: wrong})
    (flag,) = (
        each
        for each in get_args(get_type_hints(command, include_extras=True)[name])
        if isinstance(each, typer.models.OptionInfo)
    )
    assert flag.min == least
    assert flag.max in (None, most)


@pytest.mark.parametrize("name", COMMANDS)
def test_the_type_checkers_keywords(name: str) -> None:
    """A TypedDict has the type of each option's field, or None besides it where that is the default;
    help() describes each once."""
    function = getattr(fastload, name)
    shown = inspect.signature(function).parameters
    for keyword, kind in get_type_hints(COMMANDS[name]).items():
        same = kind == TYPES[keyword]
        assert same or kind == TYPES[keyword] | None, keyword
        assert shown[keyword].default == (OPTIONS[keyword].default if same else None)
        assert len(re.findall(rf"^    {keyword}: \S", inspect.getdoc(function) or "", re.MULTILINE)) == 1
    assert not {each for each in shown if each not in COMMANDS[name].__annotations__} - {
        "source",
        "out",
        "base",
        "fields",
    }


def test_every_option_is_packs() -> None:
    """pack takes every option that is declared; no command takes one that is not."""
    assert set(COMMANDS["pack"].__annotations__) == set(OPTIONS)
    assert all(set(each.__annotations__) <= set(OPTIONS) for each in COMMANDS.values())


def test_an_unknown_keyword() -> None:
    """It is refused as Python refuses it, before anything is read."""
    for name in COMMANDS:
        with pytest.raises(TypeError, match=rf"^{name}\(\) got an unexpected keyword argument 'qualty'$"):
            getattr(fastload, name)("nowhere", "nothing", qualty=3)


FIELD = (
    '    dummy: int = field(default=4, metadata=option("dummy doc", "Dummy help.", limits=(0, 9), '
    "as_packed=True))\n"
)
EDITS = {
    "fastload/packing/options.py": (
        ("    encode: Encode = field", FIELD),
        ("    index: bool\n", "    dummy: int\n"),
        ("    encode: Encode | None\n", "    dummy: int | None\n"),
    ),
}
"""Files that one more option touches, beside the code that obeys it: what is inserted before which text."""
PROGRAM = """
import inspect, json, pickle, sys
import fastload
from fastload.cli.main import COMMANDS, app
from fastload.packing.cluster import cluster_plan, parts
from fastload.packing.options import PackOptions
from fastload.sources.options import SourceOptions
from fastload.store import DatasetReader

def told(name):
    function, flags = getattr(fastload, name), inspect.signature(COMMANDS[name]).parameters
    default = inspect.signature(function).parameters["dummy"].default
    return default, "    dummy: dummy doc" in inspect.getdoc(function), flags["dummy"].default

def stored(path):
    with DatasetReader(path) as reader:
        return reader.manifest.options.get("dummy")

fastload.pack("photos", "a.fl", dummy=7)
fastload.attach("photos", "b.fl", dummy=8)
fastload.append("a.fl", "photos")
app(["pack", "photos", "c.fl", "--dummy", "9", "-q"], standalone_mode=False)
spec = cluster_plan.SourceSpec.of("photos", SourceOptions())
job = cluster_plan.PackJob(spec.open(), PackOptions(dummy=6))
plan = cluster_plan.ClusterPlan(spec, job.options, 2, 1, "out", None, 0, "t", "", cluster_plan.probe(job))
plan = pickle.loads(pickle.dumps(plan))
task = cluster_plan.open_job(plan, "node", parts.part_of(job, 0, 2), cluster_plan.open_whole(plan, "node"))
told = {name: told(name) for name in ("pack", "attach", "append", "convert")}
print(json.dumps([told, [stored(path) for path in ("a.fl", "b.fl", "c.fl")], task.identity()["dummy"]]))
"""


def test_one_more_option(tmp_path: Path) -> None:
    """It is declared in one file: from it the keyword and help() of each command, its flag, the manifest's
    entry, and a cluster's task."""
    package = Path(fastload.__file__).parent
    shutil.copytree(
        package, tmp_path / "fastload", copy_function=os.symlink, ignore=shutil.ignore_patterns("__pycache__")
    )
    for name, edits in EDITS.items():
        text = (package.parent / name).read_text()
        for before, line in edits:
            assert text.count(before) == 1, before
            text = text.replace(before, line + before)
        (tmp_path / name).unlink()
        (tmp_path / name).write_text(text)
    assert len(EDITS) <= 5
    write_folder(tmp_path / "photos", 4)
    environment = {**os.environ, "PYTHONPATH": str(tmp_path)}
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM],
        cwd=tmp_path,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    told, stored, task = json.loads(done.stdout.splitlines()[-1])
    assert told == {
        "pack": [4, True, 4],
        "attach": [4, True, 4],
        "append": [None, True, None],
        "convert": [4, True, 4],
    }
    assert stored == [7, 8, 9]
    assert task == 6
