"""Processes made by fork read remote data with connections of their own, harm nobody's, and no program
ends with an abort."""

from __future__ import annotations

import asyncio
import multiprocessing
import os
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path

import pytest
from many_reads import many_reads
from servers.process import wait_for
from servers.seaweedfs import SeaweedFS
from torch.utils.data import DataLoader, Dataset

import fastload
from fastload.errors import ClosedError
from fastload.remote.client import open_objects
from fastload.remote.objects import Objects

Open = Callable[..., Objects]
SIZE = 1 << 20
FORK = multiprocessing.get_context("fork")


def _read(url: str, options: dict[str, object]) -> int:
    objects = open_objects(url, options, 20.0)
    total = len(memoryview(objects.get_range("a", 0, SIZE))) + asyncio.run(many_reads(objects))
    objects.close()
    return total


def _in_child(work: Callable[[], object], limit: float = 30.0) -> object:
    """What `work` returns in a forked child."""
    receiver, sender = FORK.Pipe(duplex=False)
    child = FORK.Process(target=lambda: sender.send(work()))
    child.start()
    sender.close()
    try:
        assert receiver.poll(limit), "the forked child hangs"
        return receiver.recv()
    finally:
        child.kill()
        child.join()


def test_a_forked_child_reads_with_a_client_of_its_own(
    open_s3: Open, seaweedfs: SeaweedFS, s3_url: str
) -> None:
    """Several children and their children, after the parent has read; the parent goes on reading with its
    old connections."""
    objects = open_s3()
    objects.put("a", bytes(SIZE))
    expected = SIZE + 50_000

    def grandchild() -> object:
        return _read(s3_url, seaweedfs.options()), _in_child(lambda: _read(s3_url, seaweedfs.options()))

    for _ in range(2):
        assert asyncio.run(many_reads(objects)) == 50_000
        assert _in_child(lambda: _read(s3_url, seaweedfs.options())) == expected
        assert _in_child(grandchild) == (expected, expected)
        assert len(memoryview(objects.get_range("a", 0, SIZE))) == SIZE


def test_a_client_of_the_parent_is_refused_in_a_child(open_s3: Open) -> None:
    """ClosedError at once for every call; close() and the child's end do not touch the parent's
    connections."""
    objects = open_s3()
    objects.put("a", bytes(SIZE))
    asyncio.run(many_reads(objects))

    def use() -> list[str]:
        said = []
        for call in (lambda: objects.get("a", SIZE), lambda: asyncio.run(many_reads(objects)), objects.list):
            try:
                call()
            except ClosedError as error:
                said.append(str(error))
        objects.close()
        return said

    said = _in_child(use)
    assert isinstance(said, list)
    assert len(said) == 3
    assert all("another process" in text and str(os.getpid()) in text for text in said)
    assert asyncio.run(many_reads(objects)) == 50_000


def test_a_child_that_ends_as_programs_end_harms_nobody(
    open_s3: Open, seaweedfs: SeaweedFS, s3_url: str
) -> None:
    """os.fork() and sys.exit(): the interpreter's end in the child frees objects, but not the parent's
    stores."""
    open_s3().put("a", bytes(SIZE))
    program = """if True:
        import asyncio, os, sys
        sys.path[:0] = sys.argv[3:]
        from many_reads import many_reads
        from fastload.remote.client import open_objects
        url, options = sys.argv[1], eval(sys.argv[2])
        objects = open_objects(url, options, 10.0)
        asyncio.run(many_reads(objects))
        if os.fork() == 0:
            del objects
            sys.exit(7)
        assert os.waitstatus_to_exitcode(os.wait()[1]) == 7
        assert asyncio.run(many_reads(objects)) == 50_000
        print("read again")
    """
    assert _run(program, s3_url, seaweedfs.options()) == (0, "read again\n")


def test_a_fork_leaves_the_parents_descriptors_as_they_are(
    open_s3: Open, seaweedfs: SeaweedFS, s3_url: str
) -> None:
    """The file for the children's copies of obstore is there from the first request on, and stays the only
    one."""
    open_s3().put("a", bytes(SIZE))
    program = """if True:
        import os, sys
        from fastload.remote.client import open_objects
        open_objects(sys.argv[1], eval(sys.argv[2]), 10.0).get("a", 1 << 20)
        def files():
            links = [f"/proc/self/fd/{number}" for number in os.listdir("/proc/self/fd")]
            targets = [os.readlink(link) for link in links if os.path.lexists(link)]
            return [target for target in targets if "memfd" in target]
        before = files()
        for _ in range(3):
            if os.fork() == 0:
                os._exit(0)
            os.wait()
        print(len(before), files() == before)
    """
    assert _run(program, s3_url, seaweedfs.options()) == (0, "1 True\n")


def test_programs_that_end_while_reading_end_in_peace(
    open_s3: Open, seaweedfs: SeaweedFS, s3_url: str
) -> None:
    """Exit status 0, not abort's, right after awaited requests, and with requests still under way in a
    daemon thread."""
    open_s3().put("a", bytes(SIZE))
    program = """if True:
        import asyncio, sys, threading, time
        sys.path[:0] = sys.argv[3:]
        from many_reads import many_reads
        from fastload.remote.client import open_objects
        objects = open_objects(sys.argv[1], eval(sys.argv[2]), 10.0)
        asyncio.run(many_reads(objects))
        async def forever():
            while True:
                await asyncio.gather(many_reads(objects), many_reads(objects), return_exceptions=True)
        if %r:
            threading.Thread(target=asyncio.run, args=(forever(),), daemon=True).start()
            time.sleep(0.2)
        print("end")
    """
    for under_way in (False, True):
        for _ in range(4):
            assert _run(program % under_way, s3_url, seaweedfs.options()) == (0, "end\n")


def _run(program: str, url: str, options: dict[str, object]) -> tuple[int, str]:
    here = Path(__file__).parent
    paths = [str(here), str(Path(fastload.__file__).parents[1])]
    done = subprocess.run(
        [sys.executable, "-c", program, url, repr(options), *paths],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    if done.returncode not in (0, 134, -6):
        pytest.fail(done.stderr)
    return done.returncode, done.stdout


def test_forks_while_the_parent_is_reading(open_s3: Open, seaweedfs: SeaweedFS, s3_url: str) -> None:
    """A thread of the parent reads on and on; children forked meanwhile read, end as programs end, and
    disturb nobody."""
    objects = open_s3()
    objects.put("a", bytes(SIZE))
    stop = threading.Event()
    rounds: list[int] = []

    def read_on() -> None:
        while not stop.is_set():
            rounds.append(asyncio.run(many_reads(objects)))

    reader = threading.Thread(target=read_on)
    reader.start()
    try:
        for _ in range(8):
            assert _in_child(lambda: _read(s3_url, seaweedfs.options())) == SIZE + 50_000
            seen = len(rounds)
            wait_for(lambda seen=seen: len(rounds) > seen, 20)  # type: ignore[misc]
    finally:
        stop.set()
        reader.join(30)
    assert not reader.is_alive()
    assert set(rounds) == {50_000}


def test_torchs_forked_workers_read_remote_data(open_s3: Open, seaweedfs: SeaweedFS, s3_url: str) -> None:
    """A Dataset that opens the URL in each worker, after the calling process has read from it."""
    objects = open_s3()
    objects.put("a", bytes(range(256)))
    assert bytes(objects.get_range("a", 3, 4)) == b"\3"
    loader = DataLoader(
        RemoteBytes(s3_url, seaweedfs.options()),
        batch_size=16,
        num_workers=2,
        multiprocessing_context="fork",
        timeout=60,
    )
    assert [value for batch in loader for value in batch.tolist()] == list(range(256))


class RemoteBytes(Dataset[int]):
    """The bytes of the object `a`, one a sample; each process opens the URL at its first sample."""

    def __init__(self, url: str, options: dict[str, object]) -> None:
        self.url = url
        self.options = options
        self.objects: Objects | None = None

    def __len__(self) -> int:
        return 256

    def __getitem__(self, index: int) -> int:
        self.objects = self.objects or open_objects(self.url, self.options)
        return bytes(self.objects.get_range("a", index, index + 1))[0]
