"""Protocols that only fsspec knows give the same objects by the same calls, also where the file system
fails or hangs."""

from __future__ import annotations

import asyncio
import os
import threading
import time
from pathlib import Path
from typing import Any

import fsspec
import pytest
from fsspec.implementations.local import LocalFileSystem

from fastload.errors import ArgumentError, ClosedError, RemoteError, RemoteMissingError
from fastload.remote.client import open_objects

BODY = os.urandom(100_000)


class FaultyFileSystem(LocalFileSystem):
    """The local file system, whose reads fail or hang as told."""

    protocol = ("faulty",)
    failures: list[Exception | float] = []  # noqa: RUF012

    def cat_file(self, path: str, *args: Any, **kwargs: Any) -> Any:
        if self.failures:
            failure = self.failures.pop(0)
            if isinstance(failure, Exception):
                raise failure
            time.sleep(failure)
        return super().cat_file(path.removeprefix("faulty://"), *args, **kwargs)


fsspec.register_implementation("faulty", FaultyFileSystem, clobber=True)


def test_objects_are_read_listed_and_written(tmp_path: Path) -> None:
    """As of a bucket: by name, in ranges, blocking and awaited; fsspec's own name for local files, which
    obstore does not know."""
    objects = open_objects(f"local://{tmp_path}/data", {"auto_mkdir": True}, timeout=2.0)
    objects.put("a/b", BODY)
    assert (tmp_path / "data/a/b").read_bytes() == BODY
    assert objects.get("a/b", len(BODY)) == BODY
    assert bytes(objects.get_range("a/b", 5, 50)) == BODY[5:50]
    assert bytes(objects.get_range("a/b", 5, 50, etag=objects.head("a/b").etag)) == BODY[5:50]
    with pytest.raises(RemoteError, match="it was replaced, or changed"):
        objects.get_range("a/b", 5, 50, etag="another")

    async def parts() -> list[bytes]:
        return [
            bytes(part)
            for part in await asyncio.gather(
                *(objects.fetch("a/b", at, at + 1000) for at in range(0, 100_000, 1000))
            )
        ]

    assert b"".join(asyncio.run(parts())) == BODY
    file = tmp_path / "file"
    file.write_bytes(os.urandom(1 << 20))
    told: list[int] = []
    objects.put_file("c", file, told.append)
    assert told == [1 << 20]
    assert [(info.name, info.size) for info in objects.list()] == [("a/b", len(BODY)), ("c", 1 << 20)]
    assert objects.head("a/b") == objects.list()[0]
    objects.delete("c")
    objects.delete("c")
    with pytest.raises(RemoteMissingError, match="data/c"):
        objects.get("c", 10)
    with pytest.raises(RemoteError, match="ends there"):
        objects.get_range("a/b", 99_999, 100_001)
    with pytest.raises(RemoteError, match="at most 10"):
        objects.get("a/b", 10)
    with pytest.raises(ArgumentError, match="dots"):
        objects.get("../a", 10)
    objects.close()
    with pytest.raises(ClosedError):
        objects.list()


def test_what_fails_is_tried_again_and_what_hangs_is_given_up(tmp_path: Path) -> None:
    """OSErrors are tried again, a denied access is not; a call that does not return is an error after the
    timeout."""
    (tmp_path / "a").write_bytes(BODY)
    objects = open_objects(f"faulty://{tmp_path}", timeout=1.0)
    FaultyFileSystem.failures[:] = [OSError("password TOPSECRET"), ConnectionResetError()]
    assert bytes(objects.get_range("a", 0, 10)) == BODY[:10]
    FaultyFileSystem.failures[:] = [OSError("password TOPSECRET")] * 100
    with pytest.raises(RemoteError, match="tries") as caught:
        objects.get_range("a", 0, 10)
    assert "TOPSECRET" not in str(caught.value) + repr(caught.value.__context__)
    FaultyFileSystem.failures[:] = [PermissionError()]
    with pytest.raises(RemoteError, match=r"1 try .*access denied"):
        objects.get_range("a", 0, 10)
    for _ in range(10):  # more than there are threads
        FaultyFileSystem.failures[:] = [3.0]
        with pytest.raises(RemoteError, match="too slow"):
            objects.get_range("a", 0, 10)
    assert bytes(objects.get_range("a", 0, 10)) == BODY[:10]
    FaultyFileSystem.failures[:] = [3.0]
    with pytest.raises(RemoteError, match="too slow"):
        asyncio.run(asyncio.wait_for(_awaited(objects), 10))
    objects.close()
    FaultyFileSystem.failures.clear()
    assert all(thread.daemon for thread in threading.enumerate() if thread.name.startswith("fastload-fsspec"))


async def _awaited(objects: Any) -> bytes:
    return bytes(await objects.fetch("a", 0, 10))


def test_an_unknown_protocol_is_refused_with_what_is_missing() -> None:
    """At once: neither a package that is not installed nor a protocol that nobody knows comes by waiting."""
    with pytest.raises(
        RemoteError,
        match=(
            r"opening nosuch://host/x failed after 1 try .*fsspec knows no such protocol; check the "
            r"URL\'s beginning"
        ),
    ):
        open_objects("nosuch://user:TOPSECRET@host/x")
