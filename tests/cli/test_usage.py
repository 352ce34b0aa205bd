"""Wrong usage: one sentence in our own words for each mistake, which says what was given, where, and what
may stand there."""

from __future__ import annotations

import inspect
import json
import runpy
import shlex
import signal
import sys
from pathlib import Path
from typing import Any, get_args, get_type_hints

import pytest
from pictures import write_folder

import fastload
from fastload.cli import main as main_module
from fastload.cli.usage import example
from fastload.sources.unpacked import UNFINISHED

Run = Any


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Run:
    """Runs a command in a folder of its own. Returns its one line of error."""
    monkeypatch.chdir(tmp_path)

    def call(line: str) -> str:
        monkeypatch.setattr(sys, "argv", ["fastload", *shlex.split(line)])
        with pytest.raises(SystemExit) as ended:
            main_module.main()
        printed = capsys.readouterr()
        assert ended.value.code == 2, printed
        assert printed.out == ""
        (text,) = printed.err.splitlines()
        assert text.startswith("fastload: ")
        return text.removeprefix("fastload: ")

    return call


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("pack photos", "OUT is missing: `fastload pack` is called as in `fastload pack photos train.fl`"),
        ("pack", "SRC and OUT are missing: `fastload pack` is called as in `fastload pack photos train.fl`"),
        ("pack -q photos --workers 2", "OUT is missing"),
        ("attach photos", "INDEX is missing"),
        ("append train.fl", "SRC is missing"),
        ("columns train.fl", "add|drop is missing"),
        ("columns train.fl add", "no file is named: name one, or give --tokenize DIR"),
        (
            "drop train.fl",
            "--where is missing: `fastload drop` is called as in `fastload drop train.fl --where "
            "'label = 3'`",
        ),
        ("unpack train.fl", "DIR is missing"),
        ("export train.fl", "FILE is missing"),
        ("pull s3://bucket/x", "OUT is missing"),
        ("push train.fl", "URL is missing"),
        ("columns train.fl ad x.csv", "add|drop 'ad': give add or drop"),
        ("pack a b --quality 999", "--quality '999': give a whole number from 1 to 100"),
        ("pack a b --quality=high", "--quality 'high': give a whole number from 1 to 100"),
        ("pack a b --workers 0", "--workers '0': give a whole number of at least 1"),
        ("pack a b --encode rw", "--encode 'rw': give lossless, keep, dct, jpeg or raw"),
        ("unpack a b --layout z", "--layout 'z': give folders, pairs or coco"),
        ("bench a --seconds soon", "--seconds 'soon': give a number of at least 0.0"),
        ("pack a b --split", "--split needs a value after it; `fastload pack --help` shows all"),
        ("pack a b --quiet=3", "--quiet takes no value, and --quiet=3 has one"),
        ("pack a b --encod raw", "fastload pack has no option --encod; did you mean --encode"),
        ("packs a b", "there is no command packs; did you mean pack or unpack? `fastload --help` lists all"),
        ("xyz", "there is no command xyz; `fastload --help` lists all"),
        ("--fast pack a b", "fastload has no option --fast before a command"),
        ("info a b", "b is more than `fastload info` takes: it is called as in `fastload info train.fl`"),
    ],
)
def test_mistakes(run: Run, line: str, message: str) -> None:
    """A missing, misspelt, wrong or superfluous argument is named as the user typed it."""
    assert message in run(line)


def wrong_values() -> list[Any]:
    """Each option of each command that is a number or one of several words, with a value that is none of
    them."""
    found = []
    for name, command in main_module.COMMANDS.items():
        hints = get_type_hints(command, include_extras=True)
        for parameter in inspect.signature(command).parameters:
            kind, about = get_args(hints[parameter])
            if type(about).__name__ == "OptionInfo" and any(
                word in str(kind) for word in ("int", "float", "Literal")
            ):
                flag = next(
                    (each for each in about.param_decls or () if each.startswith("--")),
                    f"--{parameter.replace('_', '-')}",
                )
                found.append(pytest.param(name, flag, id=f"{name} {flag}"))
    return found


@pytest.mark.parametrize(("name", "flag"), wrong_values())
def test_every_option_says_what_it_takes(run: Run, name: str, flag: str) -> None:
    """A value of another kind gives a sentence with the option, the value and what is allowed, and no word
    of a library."""
    rest = example(name).strip("`").removeprefix(f"fastload {name} ").replace("--encode dct", "")
    text = run(f"{name} {flag} wrong {rest}")
    assert text.startswith(f"{flag} 'wrong': give ")
    assert "nput should" not in text
    assert "Value error" not in text


def test_a_folder_of_photos_is_no_dataset(run: Run, tmp_path: Path) -> None:
    """Every command that needs a dataset says so of a folder of photos, and advises to pack into another
    folder."""
    photos = write_folder(tmp_path / "photos", 2)
    fastload.pack(photos, tmp_path / "ds")
    before = sorted(photos.rglob("*"))
    for line in (
        "info photos",
        "verify photos", "index photos", "unpack photos out", "export photos out.tar", "prune photos",
        "rebase photos photos",
        "drop photos --where label=1", "append photos photos", "concat ds photos out",
        "columns photos drop label", "push photos file:///x/y",
        "convert photos out",
    ):  # fmt: skip
        text = run(line)
        assert "photos holds no packed dataset" in text, line
        assert "photos.fl`" in text, line
        assert "SRC" not in text, line
    assert sorted(photos.rglob("*")) == before


def test_a_misspelt_dataset(run: Run, tmp_path: Path) -> None:
    """The dataset beside it with a name like that is named; where there is none, or only a folder of
    photos, none is."""
    photos = write_folder(tmp_path / "photos", 2)
    fastload.pack(photos, tmp_path / "train.fl")
    for line in ("info trian.fl", "verify trian.fl", "drop trian.fl --where label=1", "bench trian.fl"):
        assert (
            run(line) == "there is no trian.fl: did you mean train.fl? `fastload pack SRC trian.fl` makes one"
        )
    assert run("info photo") == "there is no photo: check the path, or pack it with `fastload pack SRC photo`"


@pytest.mark.parametrize("command", ["pack", "attach"])
def test_misspelt_source(run: Run, tmp_path: Path, command: str) -> None:
    """A source that is not there is answered with what is beside it under a like name."""
    write_folder(tmp_path / "photos", 2)
    assert run(f"{command} phtoos new.fl") == "phtoos: no such folder or file; did you mean photos?"
    assert (
        run(f"{command} {tmp_path}/photo new.fl")
        == f"{tmp_path}/photo: no such folder or file; did you mean {tmp_path}/photos?"
    )


@pytest.mark.parametrize("command", ["pack", "attach"])
def test_source_and_dataset_the_wrong_way_round(run: Run, tmp_path: Path, command: str) -> None:
    """Where SRC is a dataset, or not there, and OUT is what could be packed, the message says so and names
    the command that was meant."""
    photos = write_folder(tmp_path / "photos", 2)
    fastload.pack(photos, tmp_path / "ds")
    before = sorted(photos.rglob("*"))
    meant = f"the source comes first: `fastload {command} photos"
    for options in ("", " --overwrite", " --resume"):
        assert (
            run(f"{command} ds photos{options}") == f"ds is a packed dataset, and photos is none: {meant} ds`"
        )
        assert (
            run(f"{command} new photos{options}")
            == f"new: no such folder or file, and photos is there: {meant} new`"
        )
    assert (
        run(f"{command} ds other")
        == "ds is a packed dataset: `fastload concat` makes one of several, without copying them"
    )
    assert run(f"{command} new ds").startswith("new: no such folder or file; give a folder of class folders")
    assert sorted(photos.rglob("*")) == before


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("cache --cache-size lots", "--cache-size 'lots' is no size; write 1GiB, 500MB or a number of bytes"),
        (
            "cache s3://bucket/x --cache-size lots",
            "--cache-size 'lots' is no size; write 1GiB, 500MB or a number of bytes",
        ),
        (
            "cache --cache-size 5GB",
            "--cache-size is for filling the cache, as in `fastload cache s3://bucket/train.fl "
            "--cache-size 5GB`",
        ),
        (
            "cache s3://bucket/x --remove --cache-size 5GB",
            "--cache-size is for filling the cache, as in `fastload cache s3://bucket/",
        ),
    ],
)
def test_the_size_of_the_cache(run: Run, line: str, message: str) -> None:
    """A size that is none, and one where nothing is fetched, is an error that names the option."""
    assert run(line).startswith(message)


@pytest.mark.parametrize("typed", ["s3//bucket/x", "s3:/bucket/x", "s3:bucket/x", "S3:/bucket/x"])
def test_a_url_with_a_typo(run: Run, tmp_path: Path, typed: str) -> None:
    """A URL that lacks a colon or slash is shown as it is meant, and no folder of its name is made."""
    write_folder(tmp_path / "photos", 2)
    fastload.pack(tmp_path / "photos", tmp_path / "ds")
    before = sorted(tmp_path.rglob("*"))
    for line in (
        "info {}",
        "verify {}",
        "pack photos {}",
        "unpack ds {}",
        "concat ds ds {}",
        "pull {} out",
        "push ds {}",
        "cache {}",
    ):
        assert "write s3://bucket/x" in run(line.format(typed)), line
    assert sorted(tmp_path.rglob("*")) == before
    (tmp_path / "s3").mkdir()
    fastload.pack(tmp_path / "photos", "s3//mine")  # of a folder that is there, a path is a path
    assert json.loads((tmp_path / "s3" / "mine" / "manifest.json").read_text())
    assert UNFINISHED not in str(sorted((tmp_path / "s3").rglob("*")))


def test_the_package_is_the_command(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """`python -m fastload` is `fastload`."""
    monkeypatch.setattr(sys, "argv", ["", "--version"])
    before = signal.getsignal(signal.SIGINT)
    with pytest.raises(SystemExit) as ended:
        runpy.run_module("fastload", run_name="__main__", alter_sys=True)
    signal.signal(signal.SIGINT, before)
    assert ended.value.code in (0, None)
    assert capsys.readouterr().out == f"fastload {fastload.__version__}\n"
