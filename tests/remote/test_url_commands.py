"""The commands on URLs: what they print and return, and that no secret is ever in it."""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path
from typing import Any

import pytest
from servers.process import HOST, free_ports
from servers.seaweedfs import SeaweedFS
from transfer_helpers import dataset_of, files_of, source_of

from fastload.cli.main import main
from fastload.cli.options import parsed_options
from fastload.errors import ArgumentError
from fastload.store import Manifest


class Commands:
    """Runs `fastload` with the options of the server."""

    def __init__(
        self, server: SeaweedFS, patch: pytest.MonkeyPatch, captured: pytest.CaptureFixture[str]
    ) -> None:
        self._options = [f"--storage-option={key}={value}" for key, value in server.options().items()]
        self._secret = server.secret
        self._patch = patch
        self._captured = captured

    def __call__(self, *arguments: object, code: int = 0, options: list[str] | None = None) -> str:
        """What a command that ends with this exit code writes. It is one line if it fails, and has no
        secret in it."""
        given = self._options if options is None else options
        self._patch.setattr(sys, "argv", ["fastload", *map(str, arguments), *given])
        try:
            main()
        except SystemExit as ended:
            assert int(ended.code or 0) == code, self._captured.readouterr()
        else:
            assert code == 0
        out, err = self._captured.readouterr()
        assert self._secret not in out + err
        assert "sesame" not in out + err
        failed = [line for line in err.splitlines() if not line.startswith("this takes about")]
        assert code != 2 or len(failed) == 1, err
        return str(out + err)


@pytest.fixture
def run(
    seaweedfs: SeaweedFS, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> Commands:
    """The command line; staging folders lie below `tmp_path`."""
    monkeypatch.setenv("FASTLOAD_CACHE", str(tmp_path / "cache"))
    return Commands(seaweedfs, monkeypatch, capsys)


def test_there_and_back(tmp_path: Path, s3_url: str, run: Commands) -> None:
    """push, info, verify, pull, and push again."""
    dataset = dataset_of(tmp_path)
    files = len(files_of(dataset)) - 1
    assert f"60 samples in {files} objects of" in run("push", dataset, s3_url, "-q")
    assert f"{files} of them sent now" in run("push", dataset, f"{s3_url}/2", "--quiet")
    assert "0 of them sent now" in run("push", dataset, s3_url, "-q")
    shown = run("info", s3_url)
    assert s3_url in shown
    assert "class0 (20), class1 (20), class2 (20)" in shown
    assert json.loads(run("info", s3_url, "--json"))["samples"] == 60
    assert "hold (checksums of all objects)" in run("verify", s3_url, "-q")
    assert "hold (every image decoded)" in run("verify", s3_url, "-q", "--decode")
    assert f"{files} of them downloaded now" in run("pull", s3_url, tmp_path / "back", "-q")
    assert files_of(tmp_path / "back") == files_of(dataset)


def test_pack_and_the_command_that_goes_on(tmp_path: Path, s3_url: str, run: Commands) -> None:
    """Of a pack that stops, the advice has --resume, the URL without its secrets, and names of options
    without their values."""
    source = source_of(tmp_path, 20)
    bad = source / "class0" / "x.jpg"
    bad.write_bytes(b"")
    text = run(
        "pack",
        source,
        s3_url,
        "-q",
        "--storage-option",
        "endpoint=http://open:sesame@localhost:1",
        code=2,
        options=[],
    )
    assert "localhost" not in text.replace(s3_url, "")
    text = run("pack", source, s3_url, "-q", code=2)
    assert (
        f"fastload pack --resume {source} {s3_url} -q '--storage-option="
        in text.replace("=endpoint=...", "=...")
        or "--resume" in text
    )
    assert "secret_access_key=..." in text
    bad.unlink()
    run("pack", source, s3_url, "-q", "--resume")
    assert "20 samples" in run("verify", s3_url, "-q")
    assert "already holds a packed dataset" in run("pack", source, s3_url, code=2)


def test_damage_is_an_exit_code(tmp_path: Path, s3_url: str, run: Commands, open_s3: Any) -> None:
    """1, with a line for each object."""
    dataset = dataset_of(tmp_path)
    run("push", dataset, s3_url, "-q")
    shards = Manifest.load(dataset).shards
    open_s3().delete(shards[0].file)
    text = run("verify", s3_url, "-q", code=1)
    assert f"{s3_url}/{shards[0].file}: there is no such object" in text
    text = run("verify", s3_url, "-q", "--decode", code=1)
    assert f"{shards[0].count} samples could not be checked" in text


def test_cost(tmp_path: Path, s3_url: str, run: Commands) -> None:
    """Of a URL and of a folder, with known prices and one's own, as tables and as JSON."""
    dataset = dataset_of(tmp_path)
    run("push", dataset, s3_url, "-q")
    for place, options in ((s3_url, None), (dataset, [])):
        text = run("info", place, "--cost", options=options)
        assert "an epoch from a bucket" in text
        assert "https://aws.amazon.com/s3/pricing/" in text
        found = json.loads(
            run(
                "info",
                place,
                "--cost",
                "--json",
                "--cache-size",
                "1MiB",
                "--price-gib",
                "0.5",
                options=options,
            )
        )
        (row,) = found["cost"]["epochs"]
        assert row["later"]["bytes"] == Manifest.load(dataset).bytes - (1 << 20)
        assert list(row["dollars"]) == ["yours"]
        assert row["dollars"]["yours"]["later"]["same_region"] == 0
    assert "are for --cost" in run("info", dataset, "--cache-size", "1MiB", code=2, options=[])
    assert "cache_size 'much' is no size" in run(
        "info", dataset, "--cost", "--cache-size", "much", code=2, options=[]
    )


def test_storage_options() -> None:
    """KEY=VALUE, and dots for what lies in a dict; a value is never shown."""
    assert parsed_options(None) is parsed_options([]) is None
    given = ["region=a=b", "client_options.allow_http=true", "client_options.user_agent=x"]
    assert parsed_options(given) == {
        "region": "a=b",
        "client_options": {"allow_http": True, "user_agent": "x"},
    }
    for wrong in (["sesame"], ["=sesame"], ["a=1", "a.b=sesame"]):
        with pytest.raises(ArgumentError) as refused:
            parsed_options(wrong)
        assert "sesame" not in str(refused.value)


@pytest.mark.parametrize(
    "command",
    [
        ["index", "{url}"],
        ["unpack", "{url}", "out"],
        ["export", "{url}", "out.tar"],
        ["append", "{url}", "src"],
        ["columns", "{url}", "drop", "label"],
        ["drop", "{url}", "--where", "label = 1"],
        ["prune", "{url}"],
        ["concat", "{url}", "{url}", "out"],
        ["rebase", "{url}", "out"],
        ["bench", "{url}"],
    ],
    ids=lambda command: command[0],
)
def test_commands_on_folders_refuse_urls(command: list[str], run: Commands) -> None:
    """In one sentence, with the way out, and without the URL's secrets."""
    url = "s3://open:sesame@bucket/train.fl?token=sesame"
    text = run(*(each.format(url=url) for each in command), code=2, options=[])
    assert "s3://bucket/train.fl is a URL" in text
    assert "`fastload pull s3://bucket/train.fl OUT` makes one" in text


def test_wrong_urls(tmp_path: Path, s3_url: str, run: Commands) -> None:
    """A path where a URL belongs, a dataset that is not there, and a bucket that is not."""
    dataset = dataset_of(tmp_path, 10)
    assert "is no URL; write it as in s3://bucket/train.fl" in run(
        "push", dataset, tmp_path / "there", code=2
    )
    assert "is no URL" in run("pull", dataset, tmp_path / "there", code=2)
    assert "holds no packed dataset" in run("info", s3_url, code=2)
    assert "holds no packed dataset" in run("verify", s3_url, code=2)
    assert "there is no bucket" in run("push", dataset, "s3://no-such-bucket/x", code=2)
    wrong = [
        "--storage-option=endpoint=" + run._options[0].partition("endpoint=")[2],
        "--storage-option=secret_access_key=sesame",
    ]
    assert "access denied" in run(
        "push", dataset, s3_url, code=2, options=[*wrong, "--storage-option=access_key_id=x"]
    )


@pytest.mark.parametrize("command", ["push", "pull", "cache", "info", "verify", "view", "tune", "doctor"])
def test_the_time_given_bounds_the_wait(command: str, tmp_path: Path, s3_url: str, run: Commands) -> None:
    """Each command that takes --timeout gives a server up after it that does not answer, and says when."""
    more = {
        "push": [dataset_of(tmp_path), s3_url],
        "pull": [s3_url, tmp_path / "out"],
        "view": [s3_url, "--html", tmp_path / "out.html"],
        "tune": [s3_url, "--json"],
        "doctor": [s3_url, "--json"],
    }
    nobody = [
        f"--storage-option={each}"
        for each in (f"endpoint=http://{HOST}:{free_ports(1)[0]}", "region=us-east-1", "skip_signature=1")
    ]
    text = run(
        command,
        *more.get(command, [s3_url]),
        "--timeout",
        "0.2",
        options=nobody,
        code=1 if command == "doctor" else 2,
    )
    seconds = re.search(r"failed after .* in (\d+\.\d) s", text)
    assert seconds, text
    assert float(seconds[1]) < 10
