"""Names that somebody else chose, on a terminal: nothing in them is obeyed, and no encoding stops a
command."""

from __future__ import annotations

import io
import os
import sys
from dataclasses import dataclass
from pathlib import Path
from unittest import mock

import numpy as np
import pytest
from PIL import EpsImagePlugin, Image, UnidentifiedImageError

from fastload.bench.rivals import PillowFolder
from fastload.cli.main import main
from fastload.errors import DatasetError, SampleError, printable
from fastload.packing import pack
from fastload.store import Manifest

EVIL = "\x1b]0;pwned\x07\x1b[2J\x9b31m\u202e\r[red]\udcff"
"""A window's title, a cleared screen, colour by a C1 code, reversed text, a return, rich's markup, a byte
that is no UTF-8."""


def jpeg(seed: int = 0) -> bytes:
    pixels = np.random.default_rng(seed).integers(0, 256, (24, 32, 3), dtype=np.uint8)
    out = io.BytesIO()
    Image.fromarray(pixels).save(out, "JPEG")
    return out.getvalue()


@dataclass(frozen=True)
class Result:
    """What a command wrote, stdout and stderr together, and its exit code."""

    code: int
    output: bytes


def run(*arguments: str, encoding: str = "utf-8") -> Result:
    """Runs the command line in this process, its streams of the given encoding; an exception is one."""
    output = io.BytesIO()
    stream = io.TextIOWrapper(output, encoding=encoding, write_through=True)
    with mock.patch.multiple(sys, stdout=stream, stderr=stream, argv=["fastload", *arguments]):
        try:
            main()
        except SystemExit as ended:
            code = int(ended.code or 0)
        else:
            code = 0
        return Result(code, output.getvalue())


def harmless(result: Result) -> str:
    """What a command wrote, once it is seen that no character in it is more than a character."""
    text = result.output.decode("utf-8")
    assert [c for c in text if not c.isprintable() and c != "\n"] == []
    return text


@pytest.fixture
def source(tmp_path: Path) -> Path:
    """A class, an image and a damaged image of hostile names, and a folder of one."""
    folder = tmp_path / f"src{EVIL}" / f"class{EVIL}"
    folder.mkdir(parents=True)
    for number in range(3):
        (folder / f"{number}{EVIL}.jpg").write_bytes(jpeg(number))
    (folder / f"bad{EVIL}.jpg").write_bytes(jpeg()[:100])
    return folder.parent


def test_commands_print_no_name_raw(source: Path, tmp_path: Path) -> None:
    """Every command, in its result and in its errors."""
    out = str(tmp_path / f"out{EVIL}")
    assert "class" in harmless(run("pack", str(source), out))  # stops at the damaged one
    harmless(run("info", out))
    harmless(run("pack", str(source), out))
    assert "left out" in harmless(run("pack", str(source), out, "--overwrite", "--on-error", "skip"))
    for command in (["info"], ["info", "--json"], ["verify"], ["index"]):
        result = run(*command, out)
        assert result.code == 0, harmless(result)
        assert "out\\x1b" in harmless(result) or "out\\u001b" in harmless(result)
    harmless(run("unpack", out, str(tmp_path / f"files{EVIL}")))
    harmless(run("bench", out, "--against", str(tmp_path / f"gone{EVIL}")))
    shard = Path(out) / Manifest.load(out).shards[0].file
    shard.write_bytes(shard.read_bytes()[:-4096])
    result = run("verify", out)
    assert result.code == 1
    harmless(result)
    (Path(out) / "manifest.json").unlink()
    for command in ("info", "verify", "index"):
        result = run(command, out)
        assert harmless(result)
        assert result.code == 2


def test_an_exceptions_text_is_printable() -> None:
    """Also in a traceback of a user's program; line breaks stay, and `args` has the text as it was."""
    for error in (DatasetError(EVIL + "\n"), SampleError(EVIL + "\n", reason=EVIL)):
        assert str(error) == printable(EVIL) + "\n"
        assert printable(EVIL).isprintable()
        assert error.args[0] == EVIL + "\n"
    assert printable("Zürich 東京 😀") == "Zürich 東京 😀"


@pytest.mark.parametrize("encoding", ["ascii", "latin-1", "cp1252"])
def test_any_name_goes_into_any_encoding(tmp_path: Path, encoding: str) -> None:
    """Class names that stdout's encoding does not have are written as escapes, and the command ends well."""
    for name in ("Zürich", "東京", "кот"):
        (tmp_path / "src" / name).mkdir(parents=True)
        (tmp_path / "src" / name / "1.jpg").write_bytes(jpeg())
    (tmp_path / "src" / "кот" / "bad.jpg").write_bytes(b"")
    out = str(tmp_path / "東京.fl")
    commands: list[list[str]] = [
        ["pack", str(tmp_path / "src"), out, "--on-error", "skip"],
        ["info", out],
        ["verify", out],
    ]
    for command in commands:
        assert run(*command, encoding=encoding).code == 0
    assert rb"\u6771\u4eac" in run("info", out, encoding="ascii").output


@pytest.mark.parametrize("name", ["x.jpg", "x.png"])
def test_no_image_starts_a_program(tmp_path: Path, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """PostScript under an image's name is no image: a Ghostscript that is in PATH is not started, by pack
    or by the benchmark."""
    script = tmp_path / "bin" / "gs"
    script.parent.mkdir()
    script.write_text(f"#!/bin/sh\ntouch '{tmp_path}/started'\necho 10.0\n")
    script.chmod(0o755)
    folder = tmp_path / "src" / "cat"
    folder.mkdir(parents=True)
    (folder / "a.jpg").write_bytes(jpeg())
    (folder / name).write_bytes(
        b"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 10 10\n%%EndComments\nshowpage\n%%EOF\n"
    )
    monkeypatch.setenv("PATH", f"{script.parent}:{os.environ['PATH']}")
    monkeypatch.setattr(EpsImagePlugin, "gs_binary", None)  # where Pillow keeps what it found
    result = run("pack", str(folder.parent), str(tmp_path / "out"), "--on-error", "skip")
    assert f"left out: {folder / name}: neither a JPEG nor another image that is read" in harmless(result)
    with pytest.raises(UnidentifiedImageError):
        PillowFolder([(str(folder / name), 0)], 8)[0]
    assert not (tmp_path / "started").exists()


def test_pillows_own_limit_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An image that Pillow takes for a decompression bomb is left out, and the reason says whose limit it
    is."""
    monkeypatch.setattr(Image, "MAX_IMAGE_PIXELS", 20)
    folder = tmp_path / "src" / "cat"
    folder.mkdir(parents=True)
    (folder / "a.jpg").write_bytes(jpeg())
    Image.fromarray(np.zeros((9, 9, 3), np.uint8)).save(folder / "b.png")
    summary = pack(tmp_path / "src", tmp_path / "out", on_error="skip")
    assert summary.samples == 1
    assert "this limit is Pillow's, PIL.Image.MAX_IMAGE_PIXELS" in summary.skipped[0][1]


def test_formats_that_are_read(tmp_path: Path) -> None:
    """Those that ImageFolder lists, and GIF."""
    folder = tmp_path / "src" / "cat"
    folder.mkdir(parents=True)
    image = Image.fromarray(np.full((8, 9, 3), 99, np.uint8))
    for form in ("PNG", "PPM", "BMP", "TIFF", "WEBP", "GIF", "JPEG"):
        image.save(folder / f"{form}.png", form)
    assert dict(pack(tmp_path / "src", tmp_path / "out").formats) == dict.fromkeys(
        ["png", "ppm", "bmp", "tiff", "webp", "gif", "jpeg"], 1
    )
