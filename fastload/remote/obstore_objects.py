"""ObstoreObjects: the objects below an S3, GCS, Azure, HTTP or file URL, by obstore."""

from __future__ import annotations

import asyncio
import concurrent.futures
import contextlib
import os
import threading
import time
from collections.abc import Awaitable, Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, TypeVar

from typing_extensions import Buffer

from fastload.common.urls import shown
from fastload.errors import ArgumentError, ClosedError, RemoteError
from fastload.remote.busy import BusyServer
from fastload.remote.failures import Failure, Tries, of_message, wrong_length
from fastload.remote.fetch_loop import result_of
from fastload.remote.gathered import SMALL_BYTES, GatheredRanges
from fastload.remote.objects import ObjectInfo, Objects
from fastload.remote.own_obstore import add_holder, own_obstore
from fastload.remote.stores import StoreMaker

R = TypeVar("R")

PART_BYTES = 8 << 20
"""Bytes of a part of an upload; more where a file would have more than _MOST_PARTS."""
_MOST_PARTS = 9_000  # S3 takes 10,000, Azure 50,000
PARTS_AT_ONCE = 4
_LISTED_MOST = 10_000_000
_EMPTY = b""


class ObstoreObjects(Objects):
    """The objects below one URL, by obstore.

    Every request is awaited on the process's fetch loop, by the blocking methods too: so Ctrl-C and `close` end it, and none goes on
    unseen.

    The client keeps two stores, each with connections of its own: one for reading, which gives up a request that is silent, and one for
    writing, whose requests are silent for as long as their body takes to be sent.
    """

    def __init__(self, url: str, options: Mapping[str, object], timeout: float) -> None:
        self.url = shown(url).rstrip("/")
        self._obstore: Any = own_obstore()
        self._maker = StoreMaker(self._obstore, url, dict(options), timeout)
        self._timeout = timeout
        self._pid = os.getpid()
        self._closed = False
        self._lock = threading.Lock()  # guards the two stores
        self._reader: Any = self._maker.reader()
        self._writer: Any = None
        self._awaited: set[asyncio.Future[Any]] = set()
        self._busy = BusyServer()
        self._gathered = GatheredRanges(self._obstore)
        add_holder(self)

    def get(self, name: str, limit: int) -> bytes:
        """The whole object, of at most `limit` bytes."""
        size, data = self._call("reading", name, lambda store: self._whole(store, name, limit))
        if data is None:
            raise RemoteError(f"{self._place(name)} has {size} bytes, and at most {limit} were expected there", url=self._place(name))
        return data

    def get_range(self, name: str, start: int, stop: int) -> Buffer:
        """Bytes start .. stop-1 of an object."""
        if start >= stop:
            return _no_bytes(start, stop)
        body: Buffer = self._call(
            f"reading bytes {start}-{stop - 1} of",
            name,
            lambda store: self._obstore.get_range_async(store, name, start=start, end=stop),
            lambda body: wrong_length(body, stop - start),
        )
        return body

    async def fetch(self, name: str, start: int, stop: int) -> Buffer:
        """The same, awaited."""
        if start >= stop:
            return _no_bytes(start, stop)
        tries = None
        while True:
            if self._busy.failure is not None:
                tries = tries or Tries(f"reading bytes {start}-{stop - 1} of", self._place(name), self._timeout)
                while (wait := self._wait(tries)) is not None:
                    await asyncio.wait([asyncio.wrap_future(wait[1])], timeout=wait[0])
            store = self._store()
            began = time.monotonic()
            if tries is None and stop - start < SMALL_BYTES:
                request = self._gathered.fetch(store, name, start, stop)
            else:
                request = self._cancellable(self._obstore.get_range_async(store, name, start=start, end=stop))
            try:
                # The first try is bounded by the store's own limit on a request, which is `timeout`; a later one by what is left.
                body: Buffer = await (request if tries is None else asyncio.wait_for(request, max(tries.left(), 0.001)))
                failure = wrong_length(body, stop - start)
            except asyncio.CancelledError:
                if self._closed:
                    raise ClosedError(f"{self.url} was closed while {self._place(name)} was read") from None
                raise
            except Exception as error:
                failure = self._failure(error)
            if failure is None:
                if self._busy.failure is not None:
                    self._busy.answered()
                return body
            tries = tries or Tries(f"reading bytes {start}-{stop - 1} of", self._place(name), self._timeout)
            await asyncio.sleep(self._next_try(tries, failure, store, began))

    def head(self, name: str) -> ObjectInfo:
        """Size and ETag of an object."""
        meta = self._call("looking up", name, lambda store: self._obstore.head_async(store, name))
        return ObjectInfo(name, meta["size"], meta["e_tag"])

    def list(self) -> list[ObjectInfo]:
        """All objects below the URL."""
        return list(self._call("listing", "", self._listed).values())

    def put(self, name: str, data: bytes) -> None:
        """Writes a small object in one request."""
        self._call("writing", name, lambda store: self._obstore.put_async(store, name, data, use_multipart=False), write=True)

    def put_file(self, name: str, path: Path, sent: Callable[[int], None] | None = None) -> None:
        """Uploads a file in parts of PART_BYTES, PARTS_AT_ONCE at a time; then asks for the object's size, which must be the file's."""
        size = path.stat().st_size
        part = max(PART_BYTES, -(-size // _MOST_PARTS))

        async def upload(store: Any) -> None:
            with open(path, "rb") as file:
                await self._obstore.put_async(store, name, _parts(file, part, sent), chunk_size=part, max_concurrency=PARTS_AT_ONCE)

        self._call("uploading", name, upload, write=True)
        there = self.head(name).size
        if there != size:
            raise RemoteError(
                f"{self._place(name)} has {there} bytes after its upload, and {path} has {size}: the file changed: upload it again",
                url=self._place(name),
            )

    def delete(self, name: str) -> None:
        """Removes an object; it is no error if there is none."""

        async def remove(store: Any) -> None:
            with contextlib.suppress(FileNotFoundError):
                await self._obstore.delete_async(store, name)

        self._call("deleting", name, remove, write=True)

    def close(self) -> None:
        """Cancels what is awaited and drops the stores, which end their connections; idempotent. In a forked child it does nothing."""
        if os.getpid() != self._pid:
            return  # dropping the parent's stores here would harm the parent's connections: NOTE [ obstore after a fork ]
        with self._lock:
            self._closed = True
            self._reader = self._writer = None
        if self._maker.provider is not None:
            self._maker.provider.close()
        self._busy.answered()  # who waits for a turn finds that it is closed
        for request in [*self._awaited, *self._gathered.close()]:
            with contextlib.suppress(RuntimeError):  # its loop is closed
                request.get_loop().call_soon_threadsafe(request.cancel)

    async def _cancellable(self, request: asyncio.Future[Any]) -> Any:
        """Awaits a request that close() may cancel."""
        self._awaited.add(request)
        try:
            return await request
        finally:
            self._awaited.discard(request)

    async def _whole(self, store: Any, name: str, limit: int) -> tuple[int, bytes | None]:
        """Size and bytes of an object; no bytes if there are more than `limit`."""
        result = await self._obstore.get_async(store, name)
        size = result.meta["size"]
        return size, bytes(await result.bytes_async()) if size <= limit else None

    async def _listed(self, store: Any) -> dict[str, ObjectInfo]:
        """What a store lists, by name. A list that brings nothing new, or has no end, is refused."""
        found: dict[str, ObjectInfo] = {}
        async for page in self._obstore.list(store, chunk_size=1000):
            known = len(found)
            found |= {meta["path"]: ObjectInfo(meta["path"], meta["size"], meta["e_tag"]) for meta in page}
            again = bool(page) and len(found) == known
            if again or known > _LISTED_MOST:
                what = "names the same objects again and again" if again else f"names more than {_LISTED_MOST:,} objects"
                raise RemoteError(f"{self.url}: the server's list of what is below it {what}: check the URL", url=self.url)
        return found

    def _place(self, name: str) -> str:
        return f"{self.url}/{name}" if name else self.url

    def _store(self, write: bool = False) -> Any:
        """The store for reading or writing; ClosedError in another process than the maker's, and after close()."""
        if os.getpid() != self._pid:
            raise ClosedError(f"{self.url} was opened by another process (pid {self._pid}): connections are not shared; open it anew here")
        store = self._writer if write else self._reader
        if store is None:
            with self._lock:
                if self._closed:
                    raise ClosedError(f"{self.url} is closed")
                store = self._writer = self._writer or self._maker.writer()
        return store

    def _renew(self, old: object) -> None:
        """Makes the stores anew, unless another thread already did so."""
        with self._lock:
            if not self._closed and old in (self._reader, self._writer):
                self._reader = self._maker.reader()
                self._writer = None

    def _failure(self, error: Exception) -> Failure:
        """What an exception of a request means; an exception that is not of a request is raised again."""
        if isinstance(error, FileNotFoundError):
            return Failure("missing", "there is no such object or bucket")
        if isinstance(error, (TimeoutError, asyncio.TimeoutError)):
            return Failure("again", "the server was silent for too long, or too slow")
        if isinstance(error, PermissionError):
            return Failure("denied", "access denied")
        if isinstance(error, self._obstore.exceptions.BaseError):
            return of_message(str(error))
        if type(error) is ValueError:
            return Failure("final", "its name has an empty part or dots as a part", "give names without them")
        raise error

    def _wait(self, tries: Tries) -> tuple[float, concurrent.futures.Future[None]] | None:
        """How long, and for what, a call waits before it asks for its turn at a busy server again; None: it has it. Raises RemoteError."""
        seconds, opened = self._busy.turn()
        failure = self._busy.failure
        if not seconds or failure is None:
            return None
        left = tries.left()
        if left <= 0:
            tries.count -= 1  # the one that was still to be made
            raise tries.error(failure)
        return min(seconds, left), opened

    def _next_try(self, tries: Tries, failure: Failure, store: object, began: float) -> float:
        """Seconds to wait before the next try; raises RemoteError if there is none."""
        if failure.kind == "busy":
            self._busy.refused(failure, began, tries.left())
        elif failure.kind != "again":
            self._busy.answered()
        if tries.renew_credentials(failure):
            self._renew(store)
            return 0.0
        pause = tries.pause(failure)
        if pause < 0:
            raise tries.error(failure)
        return pause

    def _call(
        self,
        doing: str,
        name: str,
        request: Callable[[Any], Awaitable[R]],
        wrong: Callable[[R], Failure | None] = lambda _: None,
        write: bool = False,
    ) -> R:
        """What a request returns, tried again where that can help; `wrong` says what is wrong with a result."""
        self._store(write)  # refuses at once where there is none
        result: R = result_of(self._tried, Tries(doing, self._place(name), self._timeout), request, wrong, write)
        return result

    async def _tried(self, tries: Tries, request: Callable[[Any], Awaitable[R]], wrong: Callable[[R], Failure | None], write: bool) -> R:
        task = asyncio.current_task()
        assert task is not None
        self._awaited.add(task)
        try:
            while True:
                while self._busy.failure is not None and (wait := self._wait(tries)) is not None:
                    await asyncio.wait([asyncio.wrap_future(wait[1])], timeout=wait[0])
                store = self._store(write)
                began = time.monotonic()
                try:
                    result = await request(store)
                    failure = wrong(result)
                except Exception as error:
                    failure = self._failure(error)
                if failure is None:
                    self._busy.answered()
                    return result
                await asyncio.sleep(self._next_try(tries, failure, store, began))
        except asyncio.CancelledError:
            if self._closed:
                raise ClosedError(f"{self.url} was closed while {tries.url} was asked for") from None
            raise
        finally:
            self._awaited.discard(task)


def _no_bytes(start: int, stop: int) -> Buffer:
    if start > stop:
        raise ArgumentError(f"a range of bytes must not end before it begins: {start} .. {stop}")
    return _EMPTY


def _parts(file: Any, part: int, sent: Callable[[int], None] | None) -> Iterator[bytes]:
    while data := file.read(part):
        yield data
        if sent is not None:
            sent(len(data))
