"""What commands print: numbers of things, ten lines of `info`, and lines that cut no word."""

from __future__ import annotations

import io
import re
import sys
from pathlib import Path

import pytest
from pictures import write_folder

from fastload.cli import main as main_module
from fastload.cli.output import counted, shortened
from fastload.common.progress import Progress
from fastload.packing import pack


def test_one_is_singular() -> None:
    assert [counted(count, "shard") for count in (0, 1, 1200)] == ["0 shards", "1 shard", "1,200 shards"]
    assert counted(2, "class") == "2 classes"


def test_a_long_text_ends_at_a_word() -> None:
    assert shortened("one two three", 13) == "one two three"
    assert shortened("one two three", 12) == "one two ..."
    assert len(shortened("x" * 100, 20)) <= 20


def test_info_is_ten_lines(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without --all the first ten lines, each on a line of its own, with the command that shows the rest;
    with --all everything."""
    write_folder(tmp_path / "photos", 12)
    pack(tmp_path / "photos", tmp_path / "train.fl", progress=False)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "80")
    printed = []
    for arguments in ([], ["--all"]):
        monkeypatch.setattr(sys, "argv", ["fastload", "info", "train.fl", *arguments])
        with pytest.raises(SystemExit) as ended:
            main_module.main()
        assert ended.value.code == 0
        printed.append(capsys.readouterr().out)
    short, full = (text.splitlines() for text in printed)
    assert len(short) == 10
    assert max(map(len, short)) <= 80
    assert short[0] == "train.fl"
    assert short[1].split() == ["samples", "12"]
    assert short[2].endswith(" in 1 shard")
    assert short[-1].endswith("lines more: fastload info --all train.fl")
    assert len(full) > 20
    assert short[1:3] == full[1:3]
    assert any("packed with quality" in line for line in full)


def test_a_bar_fits_80_columns(monkeypatch: pytest.MonkeyPatch) -> None:
    """With the largest numbers and a long path as the title, one line has what is done, one rate and the
    time that is left."""
    from rich import console

    out = io.StringIO()
    made = console.Console(file=out, force_terminal=True, width=80, legacy_windows=False)
    monkeypatch.setattr(console, "Console", lambda **_: made)
    monkeypatch.setenv("TERM", "xterm")
    with Progress(10_000_000, "/a/very/long/path/to/a/folder/of/photos", shown=True) as bar:
        bar.start(0, 0)
        bar._next = 0.0
        bar._began -= 100.0
        bar.update(1_234_567, 1 << 40)
    text = out.getvalue()
    (line,) = re.findall(r"\.\.\.[^\r\n]*left", re.sub(r"\x1b\[[?\d;]*[a-zA-Z]", "", text))
    assert line.startswith("...der/of/photos ")
    assert len(line) <= 80
    assert "1,234,567/10,000,000, 12,3" in text
    assert " images/s, 12 min left" in text
    assert "…" not in text
