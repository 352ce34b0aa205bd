"""Processes made by fork read remote data with connections of their own, harm nobody's, and no program ends with an abort."""

from __future__ import annotations

import asyncio
import multiprocessing
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from servers.seaweedfs import SeaweedFS

from fastload.errors import ClosedError
from fastload.remote.client import open_objects
from fastload.remote.objects import Objects

Open = Callable[..., Objects]
SIZE = 1 << 20
FORK = multiprocessing.get_context("fork")


async def _many(objects: Objects) -> int:
    parts = await asyncio.gather(*(objects.fetch("a", k, k + 1000) for k in range(50)))
    return sum(len(memoryview(part)) for part in parts)


def _read(url: str, options: dict[str, object]) -> int:
    objects = open_objects(url, options, 20.0)
    total = len(memoryview(objects.get_range("a", 0, SIZE))) + asyncio.run(_many(objects))
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


def test_a_forked_child_reads_with_a_client_of_its_own(open_s3: Open, seaweedfs: SeaweedFS, s3_url: str) -> None:
    """Several children and their children, after the parent has read; the parent goes on reading with its old connections."""
    objects = open_s3()
    objects.put("a", bytes(SIZE))
    expected = SIZE + 50_000

    def grandchild() -> object:
        return _read(s3_url, seaweedfs.options()), _in_child(lambda: _read(s3_url, seaweedfs.options()))

    for _ in range(2):
        assert asyncio.run(_many(objects)) == 50_000
        assert _in_child(lambda: _read(s3_url, seaweedfs.options())) == expected
        assert _in_child(grandchild) == (expected, expected)
        assert len(memoryview(objects.get_range("a", 0, SIZE))) == SIZE


def test_a_client_of_the_parent_is_refused_in_a_child(open_s3: Open) -> None:
    """ClosedError at once for every call; close() and the child's end do not touch the parent's connections."""
    objects = open_s3()
    objects.put("a", bytes(SIZE))
    asyncio.run(_many(objects))

    def use() -> list[str]:
        said = []
        for call in (lambda: objects.get("a", SIZE), lambda: asyncio.run(_many(objects)), objects.list):
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
    assert asyncio.run(_many(objects)) == 50_000


def test_a_child_that_ends_as_programs_end_harms_nobody(open_s3: Open, seaweedfs: SeaweedFS, s3_url: str) -> None:
    """os.fork() and sys.exit(): the interpreter's end in the child frees objects, but not the parent's stores."""
    open_s3().put("a", bytes(SIZE))
    program = """if True:
        import asyncio, os, sys
        sys.path[:0] = sys.argv[3:]
        from test_own_obstore import _many, open_objects
        url, options = sys.argv[1], eval(sys.argv[2])
        objects = open_objects(url, options, 10.0)
        asyncio.run(_many(objects))
        if os.fork() == 0:
            del objects
            sys.exit(7)
        assert os.waitstatus_to_exitcode(os.wait()[1]) == 7
        assert asyncio.run(_many(objects)) == 50_000
        print("read again")
    """
    assert _run(program, s3_url, seaweedfs.options()) == (0, "read again\n")


def test_programs_that_end_while_reading_end_in_peace(open_s3: Open, seaweedfs: SeaweedFS, s3_url: str) -> None:
    """Exit status 0, not abort's, right after awaited requests, and with requests still under way in a daemon thread."""
    open_s3().put("a", bytes(SIZE))
    program = """if True:
        import asyncio, sys, threading, time
        sys.path[:0] = sys.argv[3:]
        from test_own_obstore import _many, open_objects
        objects = open_objects(sys.argv[1], eval(sys.argv[2]), 10.0)
        asyncio.run(_many(objects))
        async def forever():
            while True:
                await asyncio.gather(_many(objects), _many(objects), return_exceptions=True)
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
    paths = [str(here), str(here.parents[1] / "tools"), str(here.parents[1])]
    done = subprocess.run(
        [sys.executable, "-c", program, url, repr(options), *paths], capture_output=True, text=True, timeout=60, check=False
    )
    if done.returncode not in (0, 134, -6):
        pytest.fail(done.stderr)
    return done.returncode, done.stdout
