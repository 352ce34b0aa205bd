"""The command: its address, its end by Ctrl-C, its report, and its sentences for what it cannot do."""

from __future__ import annotations

import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from http.client import HTTPConnection
from pathlib import Path
from urllib.parse import urlsplit

import pytest
from pictures import photo

from fastload import pack
from fastload.cli import main as main_module
from fastload.view.opening import open_subject
from fastload.view.report import write_report
from fastload.view.subject import PageSettings

COMMAND = [sys.executable, "-m", "fastload", "view"]


@contextmanager
def running(*arguments: str | Path, cwd: Path | None = None) -> Iterator[tuple[subprocess.Popen[str], str]]:
    """The command in a process of its own, and the address that it prints."""
    command = [*COMMAND, *map(str, arguments), "--no-browser"]
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, cwd=cwd
    ) as process:
        assert process.stdout is not None
        try:
            yield process, process.stdout.readline().strip()
        finally:
            process.kill()


def answer(address: str, path: str = "") -> tuple[int, str]:
    """(status, content) of a request to an address, with its token, or of another path with the cookie
    that it gives."""
    parts = urlsplit(address)
    connection = HTTPConnection(parts.netloc, timeout=30)
    try:
        connection.request("GET", f"{parts.path}?{parts.query}")
        response = connection.getresponse()
        content, cookie = response.read().decode(), response.headers["Set-Cookie"].partition(";")[0]
        if path:
            connection.request("GET", path, headers={"Cookie": cookie})
            response = connection.getresponse()
            content = response.read().decode()
        return response.status, content
    finally:
        connection.close()


Failed = Callable[..., str]


@pytest.fixture
def failed(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Failed:
    """Runs the command in a folder of its own. Returns its one line of error, with which it ends with
    status 2."""
    monkeypatch.chdir(tmp_path)

    def call(*arguments: str | Path) -> str:
        monkeypatch.setattr(sys, "argv", ["fastload", "view", *map(str, arguments), "--no-browser"])
        with pytest.raises(SystemExit) as ended:
            main_module.main()
        printed = capsys.readouterr()
        assert (ended.value.code, printed.out) == (2, "")
        (line,) = printed.err.splitlines()
        return line

    return call


def test_it_serves_until_ctrl_c(packed: Path) -> None:
    """It prints an address that opens, and ends soon after Ctrl-C, with a sentence, though a check is
    under way and a client is there."""
    with running(packed) as (process, address):
        assert answer(address)[0] == 200
        assert '"samples": 50' in answer(address, "/dataset")[1]
        assert answer(address, "/check?start=0")[0] == 200
        idle = HTTPConnection(urlsplit(address).netloc)
        idle.connect()
        process.send_signal(signal.SIGINT)
        began = time.monotonic()
        _, err = process.communicate(timeout=30)
        assert time.monotonic() - began < 10  # a second on a machine that does nothing else
        idle.close()
    assert process.returncode == 130
    assert err.splitlines()[-1] == (
        f"fastload: stopped; it changes nothing; this serves the page again: `fastload view {packed} "
        "--no-browser`"
    )
    assert "Traceback" not in err
    assert "uvicorn" not in err


def test_its_options(packed: Path, tmp_path: Path) -> None:
    """The condition, the transform of a module in the working folder, seed and epoch are the page's."""
    (tmp_path / "train.py").write_text(
        "from fastload.transforms import CenterCrop\n\ndef steps():\n    return [CenterCrop(40)]\n"
    )
    options = [
        "--where",
        "label = 1",
        "--transform",
        "train:steps",
        "--seed",
        "4",
        "--epoch",
        "9",
        "--version",
        "1",
    ]
    with running(packed, *options, cwd=tmp_path) as (_, address):
        _, content = answer(address, "/dataset")
        assert '"where": "label = 1"' in content
        assert '"transform": "train:steps"' in content
        assert '"seed": 4' in content
        assert '"epoch": 9' in content
        assert "CenterCrop" in answer(address, "/draws/1?count=1")[1]


def test_a_report(packed: Path, tmp_path: Path) -> None:
    """--html writes one file and ends; it needs no server's library."""
    out = tmp_path / "report.html"
    code = "import sys; sys.modules.update(starlette=None, uvicorn=None)"
    script = f"{code}\nfrom fastload.cli.main import main\nmain()"
    done = subprocess.run(
        [sys.executable, "-c", script, "view", packed, "--html", out, "--where", "label = 2"],
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert (done.returncode, done.stderr, done.stdout) == (0, "", f"16 samples: {out}\n")
    assert out.read_text().count("data:image/jpeg;base64,") == 16 * 5
    assert list(tmp_path.iterdir()) == [out]


def test_a_report_of_photographs_is_small(tmp_path: Path) -> None:
    """60 photographs of 500 x 375 pixels are a file below 3 MB."""
    (tmp_path / "photos").mkdir()
    for index in range(60):
        photo(index % 6, 500, 375).save(tmp_path / "photos" / f"{index:02d}.jpg", quality=90)
    pack(tmp_path / "photos", tmp_path / "d", encode="keep", index=False, check="structure")
    subject = open_subject(str(tmp_path / "d"), PageSettings())
    with closing(subject.dataset):
        assert write_report(subject, tmp_path / "report.html") == 60
    assert (tmp_path / "report.html").stat().st_size < 3_000_000


def test_what_is_missing(
    packed: Path, tmp_path: Path, failed: Failed, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each is one sentence, which says what to do."""
    assert "manifest.json" in failed(tmp_path)
    assert "--transform 'x': give MODULE:NAME" in failed(packed, "--transform", "x")
    assert "--transform nothing:here: ModuleNotFoundError" in failed(packed, "--transform", "nothing:here")
    assert "is a folder" in failed(packed, "--html", tmp_path)
    assert "no sample to report on" in failed(packed, "--html", tmp_path / "x.html", "--where", "label = 77")
    assert "there is no column" in failed(packed, "--html", tmp_path / "x.html", "--where", "none = 77")
    for port in ("70000", "-1", "x"):
        assert "give a whole number from 0 to 65535" in failed(packed, "--port", port)
    for module in ("starlette.requests", "starlette.applications", "uvicorn"):
        with monkeypatch.context() as patch:
            patch.setitem(sys.modules, module, None)
            line = failed(packed)
        assert line.startswith("fastload: fastload view needs ")
        assert line.endswith("pip install 'torch-fastload[view]'")
