"""kill -9 in the middle of a pack, again and again: --resume ends with the very dataset that an
uninterrupted pack makes."""

from __future__ import annotations

import os
import random
import shlex
import shutil
import signal
import subprocess
import time
from contextlib import suppress
from io import BytesIO
from pathlib import Path

import numpy as np
import pytest
import warm
from PIL import Image

from fastload.errors import DatasetError
from fastload.packing import verify
from fastload.store import DatasetReader

ROUNDS = 4
SAMPLES = 500


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """500 small photos, every tenth progressive, some PNG, some broken: links to forty files."""
    root = tmp_path_factory.mktemp("kill") / "src"
    rng = np.random.default_rng(1)
    files = []
    for i in range(40):
        pixels = np.clip(rng.normal(128, 40, (150, 150, 3)).cumsum(0) % 256, 0, 255).astype(np.uint8)
        out = BytesIO()
        if i == 13:
            Image.fromarray(pixels[:40, :40]).save(out, "PNG")
        else:
            Image.fromarray(pixels).save(out, "JPEG", quality=90, progressive=i % 10 == 0)
        data = out.getvalue()
        files.append(data[: len(data) // 3] if i == 27 else data)
    for i in range(SAMPLES):
        path = root / f"c{i % 7}" / f"{i:05d}.jpg"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(files[i % len(files)])
    return root


def command(source: Path, out: Path, *more: str) -> list[str]:
    options = [
        "--shard-size",
        "1MiB",
        "--workers",
        "2",
        "--shuffle",
        "--seed",
        "5",
        "--on-error",
        "skip",
        "-q",
    ]
    return ["pack", str(source), str(out), *options, *more]


def pack_whole(source: Path, out: Path, *more: str) -> None:
    done = warm.fastload(*command(source, out, *more))
    assert done.returncode == 0, done.stderr


def files_of(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir()}


def bytes_in(folder: Path) -> int:
    """Bytes of the files in a folder that is being written."""
    total = 0
    for path in folder.glob("*"):
        with suppress(FileNotFoundError):
            total += path.stat().st_size
    return total


@pytest.mark.long
def test_killed_and_resumed_equals_uninterrupted(source: Path, tmp_path: Path) -> None:
    """When random parts are written, several kills in a row to one dataset, several datasets: never
    readable half-way, equal at the end."""
    pack_whole(source, tmp_path / "whole")
    expected = files_of(tmp_path / "whole")
    assert len(expected) > 4  # several shards and the manifest
    seed = random.SystemRandom().randrange(2**32)
    rng = random.Random(seed)
    killed = 0
    for round_number in range(ROUNDS):
        out = tmp_path / f"out{round_number}"
        for _ in range(3):
            process = warm.Program(warm.COMMAND, *command(source, out, "--resume"), session=True)
            written = rng.uniform(0.0, 0.95) * sum(map(len, expected.values()))
            while process.poll() is None and bytes_in(out) < written:
                time.sleep(0.01)
            process.send_signal(signal.SIGKILL)
            process.communicate()
            if process.returncode == -signal.SIGKILL:
                killed += 1
                if any(out.glob("*")) and not (out / "manifest.json").exists():
                    with pytest.raises(DatasetError):
                        DatasetReader(out)
                    refused = warm.fastload(*command(source, out))
                    assert refused.returncode == 2, f"seed {seed}"
                    assert "--resume" in refused.stderr
                    assert "--overwrite" in refused.stderr
        pack_whole(source, out, "--resume")
        found = files_of(out)
        assert sorted(found) == sorted(expected), f"seed {seed}"
        assert all(found[name] == expected[name] for name in expected), f"seed {seed}"
    assert killed > 0, f"seed {seed}: every pack was over before its kill"
    assert verify(tmp_path / "out0", decode=True).ok


def test_two_packs_into_one_folder(source: Path, tmp_path: Path) -> None:
    """The second is refused while the first runs, and the first is not disturbed."""
    out = tmp_path / "out"
    first = warm.Program(warm.COMMAND, *command(source, out))
    try:
        while not (out / "progress.json").exists() and first.poll() is None:
            time.sleep(0.005)
        os.kill(first.pid, signal.SIGSTOP)
        if (out / "manifest.json").exists():
            pytest.skip("the first pack was over at once")
        second = warm.fastload(*command(source, out, "--resume"))
    finally:
        os.kill(first.pid, signal.SIGCONT)
    assert second.returncode == 2
    assert str(out) in second.stderr
    first.communicate()
    assert first.returncode == 0
    assert verify(out).ok


@pytest.mark.long
def test_killed_while_its_source_is_mended(source: Path, tmp_path: Path) -> None:
    """Kills at random, and stops at bad files, removed or mended before the next --resume: the end equals
    one pack of what is there."""
    src = tmp_path / "src"
    shutil.copytree(source, src)
    (src / "c0" / "x.jpg").write_bytes(b"broken")
    cut_off = (src / "c6" / "00027.jpg").stat().st_size
    broken = {path for path in src.rglob("*.jpg") if path.stat().st_size in (cut_off, len(b"broken"))}
    seed = random.SystemRandom().randrange(2**32)
    rng = random.Random(seed)
    strict = [
        argument if argument != "skip" else "raise" for argument in command(src, tmp_path / "out", "--resume")
    ]
    mended = 0
    for attempt in range(200):
        process = warm.Program(warm.COMMAND, *strict)
        try:
            _, stderr = process.communicate(
                timeout=rng.uniform(0.2, 2) if attempt % 3 == 0 and attempt < 12 else None
            )
        except subprocess.TimeoutExpired:
            process.kill()
            process.communicate()
            continue
        if process.returncode == 0:
            break
        bad = Path(stderr.removeprefix("fastload: ").split(": ")[0])
        assert bad in broken, f"seed {seed}: {stderr}"
        mended += 1
        # One by itself, then all: each attempt begins a process.
        for path in sorted({bad} if mended == 1 else broken):
            broken.discard(path)
            if rng.random() < 0.5:
                path.unlink()
            else:
                shutil.copy(src / "c0" / "00000.jpg", path)
    assert process.returncode == 0, f"seed {seed}: {stderr}"
    assert mended >= 1
    pack_whole(src, tmp_path / "whole")
    found, expected = files_of(tmp_path / "out"), files_of(tmp_path / "whole")
    assert sorted(found) == sorted(expected), f"seed {seed}"
    assert all(found[name] == expected[name] for name in expected if name != "manifest.json"), f"seed {seed}"


def test_interrupted_by_hand(source: Path, tmp_path: Path) -> None:
    """Ctrl-C prints the command that goes on, options and all; typed, it does."""
    out = tmp_path / "a b"
    process = warm.Program(warm.COMMAND, *command(source, out))
    while not (out / "progress.json").exists() and process.poll() is None:
        time.sleep(0.005)
    process.send_signal(signal.SIGINT)
    _, stderr = process.communicate()
    if process.returncode == 0:
        pytest.skip("the pack was over at once")
    assert process.returncode == 130
    words = shlex.split(stderr.split("`")[1])
    assert words[:3] == ["fastload", "pack", "--resume"]
    assert words[words.index("--on-error") + 1] == "skip"
    assert warm.fastload(*words[1:]).returncode == 0
    assert verify(out).ok
