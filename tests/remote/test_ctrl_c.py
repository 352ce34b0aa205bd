"""Ctrl-C while a server is silent: commands and programs end at once, and commands say in one sentence how
to go on."""

from __future__ import annotations

import os
import shlex
import signal
import socket
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import warm
from pictures import write_folder
from servers.proxy import Proxy
from servers.seaweedfs import SeaweedFS

import fastload

END_S = 3.0
"""Seconds from the signal to the end of a command; on a machine that is so busy that it ran for longer
before the signal, as many."""
TORCH_END_S = 8.0
"""The same of a program with torch, whose own end takes most of it on a busy machine."""
RATE = 300_000
"""Bytes per second of a server that is about to fall silent: slow enough that a transfer of 2 MB is under
way for seconds."""
URL = "s3://bucket/photos.fl"


class Program(warm.Program):
    """A running program, and when it was started."""

    def __init__(self, *arguments: Any, **options: Any) -> None:
        self.began = time.monotonic()
        super().__init__(*arguments, **options)


Start = Callable[..., Program]


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with photos in `source`, and the dataset of them in `photos.fl`: several shards, 2 MB and
    more."""
    folder = tmp_path_factory.mktemp("ctrl-c")
    write_folder(folder / "source", 60)
    fastload.pack(folder / "source", folder / "photos.fl", shard_size=1 << 20)
    return folder


@pytest.fixture
def silent() -> Iterator[socket.socket]:
    """A server that accepts connections and never says a word."""
    with socket.create_server(("127.0.0.1", 0), backlog=64) as server:
        server.settimeout(60)
        yield server


@pytest.fixture
def proxy(seaweedfs: SeaweedFS) -> Iterator[Proxy]:
    with Proxy(seaweedfs.port, bandwidth=RATE) as proxy:
        yield proxy


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Start]:
    """Starts a program's text, with S3's settings in its environment, and a cache and temporary folder of
    its own."""
    started: list[Program] = []

    def start_(endpoint: str, text: str, *arguments: str) -> Program:
        settings = {
            "AWS_ENDPOINT_URL": endpoint,
            "AWS_ACCESS_KEY_ID": SeaweedFS.key,
            "AWS_SECRET_ACCESS_KEY": SeaweedFS.secret,
            "AWS_REGION": "us-east-1",
            "FASTLOAD_CACHE": str(tmp_path / "cache"),
            "TMPDIR": str(tmp_path),
        }
        process = Program(text, *arguments, environment={**os.environ, **settings})
        started.append(process)
        return process

    yield start_
    for process in started:
        process.kill()
        process.communicate()


def interrupted(process: Program, end: float = END_S) -> str:
    """Sends Ctrl-C to a process, which must end soon; returns what it wrote to the standard error."""
    time.sleep(0.3)
    assert process.poll() is None, process.communicate()
    process.send_signal(signal.SIGINT)
    began = time.monotonic()
    end = max(end, began - process.began)
    try:
        _, err = process.communicate(timeout=end)
    except subprocess.TimeoutExpired:
        pytest.fail(f"it did not end within {end:g} s")
    assert time.monotonic() - began < end
    return err


def check_told(process: Program, err: str, again: str) -> None:
    """A command that was stopped says in one line which command goes on, and ends with status 130."""
    (line,) = [each for each in err.splitlines() if each.strip()][-1:]
    assert process.returncode == 130, err
    assert "Traceback" not in err
    assert line.startswith("fastload: stopped"), err
    assert shlex.split(line.split("`")[1])[:2] == ["fastload", again], err


COMMANDS = {
    "push": ["push", "{photos}", URL],
    "pull": ["pull", URL, "{tmp}/copy.fl"],
    "verify": ["verify", URL],
    "verify --decode": ["verify", "--decode", URL],
    "info": ["info", URL],
    "pack": ["pack", "{source}", URL],
    "cache": ["cache", URL],
}


def arguments(command: str, files: Path, tmp: Path, url: str = URL) -> list[str]:
    """The arguments of one of COMMANDS."""
    given = [
        each.format(photos=files / "photos.fl", source=files / "source", tmp=tmp)
        for each in COMMANDS[command]
    ]
    return [url if each == URL else each for each in given]


@pytest.mark.long
@pytest.mark.parametrize("command", COMMANDS)
def test_a_command_at_a_server_that_never_answers(
    command: str, silent: socket.socket, start: Start, files: Path, tmp_path: Path
) -> None:
    """Ctrl-C ends it, and it says how to go on."""
    process = start(
        f"http://127.0.0.1:{silent.getsockname()[1]}", warm.COMMAND, *arguments(command, files, tmp_path)
    )
    connection, _ = silent.accept()
    with connection:
        check_told(process, interrupted(process), COMMANDS[command][0])


@pytest.mark.long
@pytest.mark.parametrize("command", ["push", "pull", "verify", "verify --decode", "pack", "cache"])
def test_a_command_in_the_middle_of_a_body(
    command: str,
    seaweedfs: SeaweedFS,
    proxy: Proxy,
    start: Start,
    files: Path,
    s3_url: str,
    tmp_path: Path,
) -> None:
    """Ctrl-C ends a transfer of which some bytes came, or went, and no more do; the command that it names
    goes on and finishes."""
    sends = command in ("push", "pack")
    if not sends:
        fastload.push(files / "photos.fl", s3_url, storage_options=seaweedfs.options())
    process = start(proxy.endpoint, warm.COMMAND, *arguments(command, files, tmp_path, s3_url))
    while proxy.counts()["up" if sends else "down"] < 300_000 and process.poll() is None:
        time.sleep(0.02)
    proxy.set(bandwidth=1.0)
    err = interrupted(process)
    check_told(process, err, COMMANDS[command][0])
    again = start(seaweedfs.endpoint, warm.COMMAND, *shlex.split(err.split("`")[1])[1:])
    _, err = again.communicate(timeout=60)
    assert again.returncode == 0, err
    if sends:
        assert fastload.packing.verify(s3_url, storage_options=seaweedfs.options()).ok


PROGRAMS = {
    "opening": "PackedDataset(url)",
    "pushing": "fastload.push(photos, url)",
    "verifying": "fastload.packing.verify(url)",
    "an open dataset": "dataset = PackedDataset(url); silent(); dataset[0]",
    "threads": (
        "loader = FastLoader(PackedDataset(url, CROP), batch_size=8, num_workers=2); silent(); list(loader)"
    ),
    "calling process": (
        "loader = FastLoader(PackedDataset(url, CROP + [STEP]), batch_size=8); silent(); list(loader)"
    ),
    "processes": (
        "loader = FastLoader(PackedDataset(url, CROP + [STEP]), batch_size=8, num_workers=2); silent(); "
        "list(loader)"
    ),
}


@pytest.mark.long
@pytest.mark.parametrize("program", PROGRAMS)
def test_a_program(
    program: str,
    seaweedfs: SeaweedFS,
    proxy: Proxy,
    start: Start,
    files: Path,
    s3_url: str,
    tmp_path: Path,
) -> None:
    """KeyboardInterrupt ends a program that waits for a silent server, on every engine, without a word but
    its traceback."""
    fastload.push(files / "photos.fl", s3_url, storage_options=seaweedfs.options())
    proxy.set(bandwidth=0.0)
    gate = tmp_path / "gate"
    os.mkfifo(gate)
    text = f"""
import fastload, fastload.packing
from fastload import FastLoader, PackedDataset
from fastload.transforms import RandomResizedCrop
CROP, url, photos = [RandomResizedCrop(32)], {s3_url!r}, {str(files / "photos.fl")!r}
def STEP(image): return image.clone()
def silent():
    print("silent", flush=True)
    open({str(gate)!r}).read()
{"silent()" if "silent()" not in PROGRAMS[program] else ""}
{PROGRAMS[program]}
"""
    process = start(proxy.endpoint, text)
    assert process.stdout.readline() == "silent\n", process.communicate()
    proxy.silence(60.0)
    gate.write_text("")
    err = interrupted(process, TORCH_END_S)
    assert process.returncode in (-signal.SIGINT, 130), err
    assert err.count("Traceback") == 1, err
    assert err.strip().endswith("KeyboardInterrupt"), err
