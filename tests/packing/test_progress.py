"""Progress where nobody looks at a terminal: a line now and then, each whole, on stderr."""

from __future__ import annotations

import pytest

from fastload.common import progress
from fastload.common.progress import Progress, human_seconds


def test_a_log_gets_lines(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    """A line whenever the time is over, with what is done and left, and one at the end; the bar of a
    terminal is not drawn."""
    now = [0.0]
    monkeypatch.setattr(progress.time, "monotonic", lambda: now[0])
    with Progress(2000, "a\x1b[31m", shown=True) as bar:
        bar.start(500, 0)
        for done in range(501, 2001):
            now[0] += 0.125
            bar.update(done, done * 1024)
    lines = capsys.readouterr().err.splitlines()
    assert len(lines) == 13  # in 187.5 seconds
    assert lines[0].startswith(r"a\x1b[31m: 620 of 2,000, 8 images/s, 620.0 KiB, ")
    assert lines[0].endswith(", 3 min left")
    assert "2,000 of 2,000" in lines[-1]
    assert not any(c in "".join(lines) for c in "\x1b\r")


def test_nothing_is_shown_unless_asked(capsys: pytest.CaptureFixture[str]) -> None:
    """shown=False writes nothing."""
    with Progress(1, "x", shown=False) as bar:
        bar.start(0, 0)
        bar.update(1, 1)
    assert capsys.readouterr().err == ""


def test_times_for_people() -> None:
    """Seconds, minutes, hours."""
    assert [human_seconds(s) for s in (4.2, 89, 100, 3600, 5400, 12000)] == [
        "4 s",
        "89 s",
        "2 min",
        "60 min",
        "1 h 30 min",
        "3 h 20 min",
    ]
