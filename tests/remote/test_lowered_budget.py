"""A cache that has more than a process may use now: what nobody has open goes, whoever has a part of it
open keeps it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from reading import URL, data_files, on_disk, size_of
from servers.seaweedfs import SeaweedFS

import fastload
from fastload import push
from fastload._native import core
from fastload.store import DatasetReader

HERE = Path(__file__).resolve().parent


class Holder:
    """A process that has a dataset open: see cache_holder.

    Attributes:
        warned: warnings that opening gave.
    """

    def __init__(self, server: SeaweedFS, cache: Path, size: int | None, url: str = URL) -> None:
        given = {"url": url, "cache": str(cache), "cache_size": size, "storage_options": server.options()}
        path = os.pathsep.join([str(HERE), str(Path(fastload.__file__).parents[1])])
        self.process = subprocess.Popen(
            [sys.executable, str(HERE / "cache_holder.py"), json.dumps(given)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env={**os.environ, "PYTHONPATH": path},
        )
        self.warned: list[str] = self._line()

    def _line(self) -> Any:
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        assert line, "it ended"
        return json.loads(line)

    def read(self) -> dict[str, Any]:
        """What it reads now, of all samples."""
        assert self.process.stdin is not None
        self.process.stdin.write("\n")
        self.process.stdin.flush()
        found: dict[str, Any] = self._line()
        return found

    def end(self) -> None:
        """Lets it close the dataset and end."""
        self.process.communicate()
        assert self.process.returncode == 0


Hold = Callable[..., Holder]


@pytest.fixture
def hold(seaweedfs: SeaweedFS, photos: Path, cache: Path) -> Iterator[Hold]:
    """Starts holders; those that have not ended are killed."""
    started: list[Holder] = []

    def hold_(size: int | None, url: str = URL) -> Holder:
        started.append(Holder(seaweedfs, cache, size, url))
        return started[-1]

    yield hold_
    for holder in started:
        holder.process.kill()
        holder.process.communicate()


@pytest.fixture(scope="module")
def crcs(photos: Path) -> list[int]:
    """Checksums of the local dataset's records."""
    with DatasetReader(photos) as reader:
        return [core.crc32c(reader.record(index)) for index in range(len(reader))]


def test_what_nobody_has_open_goes(hold: Hold, photos: Path, crcs: list[int], cache: Path) -> None:
    """Whole shards, until the rest is within the smaller budget; all of it is read right, and what stayed is
    not fetched again.

    Whoever opens it afterwards keeps what is there.
    """
    first = hold(None)
    assert first.read()["cached"] == len(crcs)
    first.end()
    full, size = on_disk(cache), size_of(photos) * 2 // 3
    assert full > size
    second = hold(size)
    assert second.warned == []
    assert size // 4 < on_disk(cache) <= size
    found = second.read()
    assert found["crc"] == crcs
    assert 0 < found["fetched"] < size_of(photos) * 0.9
    assert on_disk(cache) <= size
    third = hold(size)
    second.end()
    (said,) = hold(size // 3).warned
    assert "other processes have them open" in said
    assert (third.warned, third.read()["crc"]) == ([], crcs)
    assert 0 < on_disk(cache) <= size


def test_a_reader_keeps_what_it_has_open(hold: Hold, photos: Path, crcs: list[int], cache: Path) -> None:
    """A smaller budget of others takes nothing from it, and it fetches nothing again; they are told, and
    add nothing."""
    reader = hold(None)
    before = reader.read()
    assert (before["crc"], before["cached"]) == (crcs, len(crcs))
    full, size = on_disk(cache), size_of(photos) // 3
    inodes = [path.stat().st_ino for path in data_files(cache)]
    for _ in range(3):
        other = hold(size)
        (said,) = other.warned
        assert f"bytes more than cache_size={size:,}: other processes have them open" in said
        found = other.read()
        assert (found["crc"], found["fetched"]) == (crcs, 0)
        now = reader.read()
        assert (now["crc"], now["fetched"]) == (crcs, before["fetched"])
        other.end()
        assert on_disk(cache) <= full
        assert [path.stat().st_ino for path in data_files(cache)] == inodes
    reader.end()
    last = hold(size)
    assert last.warned == []
    assert on_disk(cache) <= size
    assert last.read()["crc"] == crcs


def test_a_killed_reader_keeps_nothing(hold: Hold, photos: Path, crcs: list[int], cache: Path) -> None:
    """Its locks ended with it."""
    reader = hold(None)
    reader.read()
    reader.process.kill()
    reader.process.communicate()
    size = size_of(photos) // 2
    other = hold(size)
    assert other.warned == []
    assert on_disk(cache) <= size
    assert other.read()["crc"] == crcs


def test_other_datasets_go_first(
    seaweedfs: SeaweedFS, hold: Hold, photos: Path, crcs: list[int], cache: Path
) -> None:
    """Where one dataset that nobody uses is enough, the one that is opened loses nothing; one that is in
    use stays."""
    url = f"{URL}-lowered"
    push(photos, url, storage_options=seaweedfs.options())
    for each in (URL, url):
        holder = hold(None, each)
        holder.read()
        holder.end()
    size = size_of(photos) * 5 // 4
    again = hold(size)
    assert on_disk(cache) <= size
    found = again.read()
    assert (again.warned, found["crc"], found["fetched"]) == ([], crcs, 0)
