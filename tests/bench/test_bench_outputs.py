"""What `fastload bench` is to write is looked at before it measures for minutes."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from fastload.bench import harness
from fastload.cli.main import main


@pytest.fixture(autouse=True)
def nothing_is_measured(monkeypatch: pytest.MonkeyPatch) -> None:
    """Measuring is an error here."""

    def compare(*arguments: object) -> None:
        raise AssertionError("measured")

    monkeypatch.setattr(harness, "compare", compare)


def error(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, *arguments: str) -> str:
    """The line on stderr of a command that ends with exit code 2."""
    monkeypatch.setattr(sys, "argv", ["fastload", "bench", *arguments])
    with pytest.raises(SystemExit) as ended:
        main()
    assert ended.value.code == 2
    return capsys.readouterr().err


def test_a_plot_without_matplotlib(
    packed: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Said at once, with what to install."""
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    assert "--plot needs matplotlib: pip install 'torch-fastload[bench]'" in error(
        capsys, monkeypatch, str(packed), "--plot", "x.png"
    )


def test_a_file_that_cannot_be_written(
    packed: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A folder that is not there, or a folder instead of a file, for both outputs."""
    pytest.importorskip("matplotlib")
    for option in ("--json", "--plot"):
        assert f"{option} {tmp_path}/gone/x: there is no such folder" in error(
            capsys, monkeypatch, str(packed), option, f"{tmp_path}/gone/x"
        )
        assert f"{option} {tmp_path}: a folder" in error(
            capsys, monkeypatch, str(packed), option, str(tmp_path)
        )
