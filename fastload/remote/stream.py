"""Streams of whole objects: ranges of several objects, requested ahead, checked and returned in order, in bounded memory."""

from __future__ import annotations

import contextlib
import os
from collections import deque
from collections.abc import Generator, Iterable
from concurrent.futures import Future
from pathlib import Path
from typing import BinaryIO

from typing_extensions import Buffer

from fastload.remote import fetch_loop
from fastload.remote.files import DataFile, PartCheck
from fastload.remote.objects import Objects
from fastload.store.manifest import sync_folder
from fastload.store.progress import PART_END

RANGE_BYTES = 4 << 20
"""Bytes of a request: large enough that a request's latency counts little, small enough that several in flight fit into memory."""
REQUESTS = 8
"""Requests in flight, so that at most this many ranges, and the one in use, are in memory."""


def checked_ranges(objects: Objects, files: Iterable[DataFile]) -> Generator[tuple[DataFile, int, Buffer, str | None]]:
    """(file, offset, bytes, verdict) of consecutive ranges of each file, file after file.

    The verdict is None before a file's last range; then what is wrong with its checksums, "" if nothing is. Requests that are under way
    when the iteration is given up are cancelled.

    Raises:
        RemoteError: a range cannot be read.
    """
    check: PartCheck | None = None
    with contextlib.closing(_requests(objects, files)) as requests:
        for file, start, request in requests:
            if check is None or start == 0:
                check = PartCheck(file)
            data = request.result()
            check.add(start, data)
            yield file, start, data, check.wrong() if start + RANGE_BYTES >= file.bytes else None


def _requests(objects: Objects, files: Iterable[DataFile]) -> Generator[tuple[DataFile, int, Future[Buffer]]]:
    pending: deque[tuple[DataFile, int, Future[Buffer]]] = deque()
    with fetch_loop.in_use() as loop:
        try:
            for file in files:
                for start in range(0, file.bytes, RANGE_BYTES):
                    stop = min(start + RANGE_BYTES, file.bytes)
                    pending.append((file, start, loop.submit(objects.fetch, file.name, start, stop)))
                    if len(pending) == REQUESTS:
                        yield pending[0]
                        pending.popleft()
            while pending:
                yield pending[0]
                pending.popleft()
        finally:
            for _, _, request in pending:
                request.cancel()


def download(
    objects: Objects, files: Iterable[DataFile], folder: Path, *, durable: bool = True
) -> Generator[tuple[DataFile, int, str | None]]:
    """Downloads files into a folder; (file, bytes, verdict) of each range, as `checked_ranges` has them.

    A file gets its name once all its checksums hold, and, where durable, it is on the disk; before, its name ends with PART_END.

    Raises:
        OSError: a file cannot be written.
        RemoteError: a range cannot be read.
    """
    out: BinaryIO | None = None
    try:
        with contextlib.closing(checked_ranges(objects, files)) as ranges:
            for file, start, data, verdict in ranges:
                part = folder / (file.name + PART_END)
                if out is None or start == 0:
                    part.unlink(missing_ok=True)
                    out = open(part, "xb")
                out.write(data)
                if verdict is not None:
                    _end(out, part, folder / file.name, keep=not verdict, durable=durable)
                    out = None
                yield file, len(memoryview(data)), verdict
    finally:
        if out is not None:
            out.close()


def _end(out: BinaryIO, part: Path, path: Path, *, keep: bool, durable: bool) -> None:
    with out:
        out.flush()
        if durable and keep:
            os.fsync(out.fileno())
    if not keep:
        part.unlink()
        return
    os.replace(part, path)
    if durable:
        sync_folder(path.parent)
