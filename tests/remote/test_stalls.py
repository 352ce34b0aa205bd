"""A timeout may be hours: a call that stalls is reported at INFO, once a minute for a client, and Ctrl-C
ends it."""

from __future__ import annotations

import asyncio
import logging
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import fsspec
import pytest
from fsspec.implementations.local import LocalFileSystem
from servers.proxy import Proxy

from fastload.common.limits import LONGEST_TIMEOUT, parse_timeout
from fastload.errors import ArgumentError
from fastload.remote.client import open_objects
from fastload.remote.objects import Objects

Open = Callable[..., Objects]
EVERY = 0.5
"""Seconds that stand for a minute here."""
LINE = (
    r"^reading bytes 0-9 of s3://fastload/test-\d+/a has stalled for \d+ s \(\d+ tr(y|ies), .*\), 7\d{3} "
    r"s are left"
)


@pytest.fixture(autouse=True)
def _short_minute(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("fastload.remote.failures.STALL_S", EVERY)
    monkeypatch.setattr("fastload.remote.fsspec.STALL_S", EVERY)


def lines(caplog: pytest.LogCaptureFixture) -> list[str]:
    """What was said at INFO by the package's logger; it has said nothing else."""
    assert {(record.name, record.levelno) for record in caplog.records} <= {("fastload", logging.INFO)}
    return [record.getMessage() for record in caplog.records]


def test_a_stall_is_reported_once_a_minute_for_all_calls(
    open_s3: Open, proxy: Proxy, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Twenty calls, of which each fails again and again: about one line a minute, with the object, the
    time, the tries and the cause."""
    open_s3().put("a", b"0123456789")
    objects = open_s3(endpoint=proxy.endpoint, timeout=7200.0)
    proxy.refuse()

    async def all_of_them() -> None:
        calls = [asyncio.ensure_future(objects.fetch("a", 0, 10)) for _ in range(20)]
        await asyncio.sleep(4 * EVERY + 0.3)
        proxy.refuse(False)
        assert [bytes(body) for body in await asyncio.gather(*calls)] == [b"0123456789"] * 20

    with caplog.at_level(logging.INFO, "fastload"):
        asyncio.run(all_of_them())
        found = lines(caplog)
        assert 2 <= len(found) <= 12
        caplog.clear()
        time.sleep(2 * EVERY)
        assert not lines(caplog)

    assert all(re.search(LINE, each) for each in found), found
    assert any(
        "the last one: the connection was refused" in each or "no connection could be made" in each
        for each in found
    ), found
    assert any("so do 19 other calls" in each for each in found)


def test_a_request_that_is_silent_is_reported_while_it_waits(
    open_s3: Open, proxy: Proxy, caplog: pytest.LogCaptureFixture
) -> None:
    """A blocking call too, and one whose first try has not ended; a call that goes on is no stall."""
    open_s3().put("a", b"0123456789")
    objects = open_s3(endpoint=proxy.endpoint, timeout=7200.0)
    with caplog.at_level(logging.INFO, "fastload"):
        proxy.spoil("silence", seconds=3 * EVERY)
        assert bytes(objects.get_range("a", 0, 10)) == b"0123456789"
        assert "no answer has come yet" in lines(caplog)[0]
        caplog.clear()
        assert bytes(objects.get_range("a", 0, 10)) == b"0123456789"
        assert not lines(caplog)


def test_an_upload_that_goes_on_is_no_stall(
    open_s3: Open,
    proxy: Proxy,
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Though it takes longer than a minute, while its parts go."""
    monkeypatch.setattr("fastload.remote.failures.STALL_S", 2.0)
    file = tmp_path / "file"
    file.write_bytes(bytes(96 << 20))
    objects = open_s3(endpoint=proxy.endpoint, timeout=7200.0)
    proxy.set(bandwidth=32e6)
    began = time.monotonic()
    with caplog.at_level(logging.INFO, "fastload"):
        objects.put_file("up", file)
    assert time.monotonic() - began > 2.5
    assert not lines(caplog)


class SlowFileSystem(LocalFileSystem):
    """The local file system, whose reads take long."""

    protocol = ("slow",)

    def cat_file(self, path: str, *args: object, **kwargs: object) -> bytes:
        time.sleep(2.5 * EVERY)
        return bytes(super().cat_file(path.removeprefix("slow://"), *args, **kwargs))


fsspec.register_implementation("slow", SlowFileSystem, clobber=True)


def test_stalls_of_fsspec(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """As those of a bucket."""
    (tmp_path / "a").write_bytes(b"0123456789")
    objects = open_objects(f"slow://{tmp_path}", timeout="2h")
    with caplog.at_level(logging.INFO, "fastload"):
        assert bytes(objects.get_range("a", 0, 10)) == b"0123456789"
    assert len(lines(caplog)) in (1, 2)
    objects.close()


@pytest.mark.parametrize(
    ("given", "seconds"),
    [
        (90, 90.0),
        (0.5, 0.5),
        ("90s", 90.0),
        ("30min", 1800.0),
        ("1.5h", 5400.0),
        (" 6 H ", 21600.0),
        ("2d", 172800.0),
        ("30d", LONGEST_TIMEOUT),
    ],
)
def test_timeouts(given: object, seconds: float) -> None:
    assert parse_timeout(given) == seconds


@pytest.mark.parametrize(
    "given",
    [
        0,
        -1,
        True,
        None,
        float("nan"),
        float("inf"),
        10**400,
        LONGEST_TIMEOUT + 1,
        "31d",
        "0s",
        "1",
        "h",
        "1h 5min",
        "",
        b"1h",
        [60],
    ],
)
def test_what_is_no_timeout(given: object) -> None:
    """One sentence that says how to write one."""
    with pytest.raises(
        ArgumentError,
        match=r"^timeout=.* is no time: write a number of seconds, or 90s, 30min, 6h, 2d; at most 30 days$",
    ):
        parse_timeout(given)
    with pytest.raises(ArgumentError, match="is no time"):
        open_objects("s3://bucket/x", {}, given)  # type: ignore[arg-type]


def test_the_longest_timeout_is_one(open_s3: Open) -> None:
    """Neither the client nor a pause overflows."""
    objects = open_s3(timeout=LONGEST_TIMEOUT)
    objects.put("a", b"x")
    assert objects.get("a", 1) == b"x"


@pytest.mark.long
@pytest.mark.parametrize("command", [["info"], ["verify"], ["cache"], ["pull", "OUT"]])
def test_commands_take_hours(command: list[str], proxy: Proxy, tmp_path: Path) -> None:
    """--timeout 6h: Ctrl-C ends the command within 3 s, between two tries; a wrong one is one sentence."""
    name, *rest = command
    settings = {"endpoint": proxy.endpoint, "access_key_id": "k", "secret_access_key": "s", "region": "x"}
    options = [f"--storage-option={key}={value}" for key, value in settings.items()]
    given = [name, "s3://bucket/x", *(str(tmp_path / each) for each in rest), *options]
    program = [sys.executable, "-m", "fastload", *given, "--timeout"]
    wrong = subprocess.run([*program, "6 weeks"], capture_output=True, text=True, timeout=60, check=False)
    assert wrong.returncode == 2
    assert "--timeout='6 weeks' is no time" in wrong.stderr
    proxy.refuse()
    running = subprocess.Popen([*program, "6h"], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    while not any(
        Path(task, "comm").read_text().startswith("tokio")
        for task in Path(f"/proc/{running.pid}/task").iterdir()
    ):
        time.sleep(0.1)  # until the client is there, which has threads of its own
    time.sleep(2)
    assert running.poll() is None, running.communicate()
    running.send_signal(signal.SIGINT)
    running.communicate(timeout=3)
    assert running.returncode == 130
