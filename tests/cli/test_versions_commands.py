"""The commands that change datasets: what they print, what they refuse."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest
from pictures import write_folder

from fastload.cli.main import main
from fastload.store import Manifest


def run(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, *arguments: object
) -> tuple[int, str]:
    """Runs a command; its exit code and all that it printed."""
    monkeypatch.setattr(sys, "argv", ["fastload", *map(str, arguments)])
    with pytest.raises(SystemExit) as ended:
        main()
    printed = capsys.readouterr()
    return int(ended.value.code or 0), printed.out + printed.err


def test_a_dataset_that_lives(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Every command of the guide's example, one after another, says its version and counts; a wrong one is
    one line and exit code 2."""
    photos, out = write_folder(tmp_path / "photos", 12), tmp_path / "ds"
    (tmp_path / "captions.csv").write_text("caption\n" + "".join(f"photo {number}\n" for number in range(24)))
    steps: list[tuple[list[object], int, str]] = [
        (["pack", photos, out, "-q"], 0, ""),
        (["append", out, photos, "-q"], 0, "version 2, 24 samples, 12 of them new"),
        (["append", out, photos, "-q", "--resume"], 2, "there is no append to go on with"),
        (["columns", out, "add", tmp_path / "captions.csv"], 0, "version 3, 24 samples with caption"),
        (["columns", out, "add", tmp_path / "captions.csv"], 2, "has a field 'caption' already"),
        (["columns", out, "drop", "caption", "--key", "label"], 2, "--key and --column are for"),
        (["drop", out, "--where", "caption like '%7'"], 0, "version 4, 22 samples, 2 taken out"),
        (["drop", out, "--where", "label = 77"], 0, "stays at version 4 with 22 samples"),
        (["drop", out, "--where", "label = "], 2, "where("),
        (["columns", out, "drop", "caption"], 0, "version 5, without caption"),
        (["concat", out, out, tmp_path / "both"], 0, "44 samples in 4 shards of 2 datasets"),
        (["concat", out, tmp_path / "more"], 2, "two or more"),
        (["info", out], 0, "5 of 1, 2, 3, 4, 5"),
        (["info", out, "--version", "9"], 2, "has no version 9"),
        (["verify", out, "--version", "2", "-q"], 0, "24 samples in 2 shards hold"),
        (["prune", out, "--keep", "2"], 0, "versions 1, 2, 3 given up"),
        (["verify", tmp_path / "both", "-q"], 0, "44 samples"),
    ]
    for arguments, code, text in steps:
        found, printed = run(capsys, monkeypatch, *arguments)
        assert (found, text in printed) == (code, True), (arguments, printed)
        if code == 2:
            assert printed.count("\n") == 1
    _, printed = run(capsys, monkeypatch, "info", out, "--json", "--version", "4")
    shown = json.loads(printed)
    assert (shown["version"], shown["versions"], shown["samples"]) == (4, [4, 5], 22)
    assert Manifest.load(out).version == 5
    assert "version 4 given up" in run(capsys, monkeypatch, "prune", out)[1]
