"""ForeignObjects: objects that others wrote, by their URLs, read by ranges; ForeignURL: the URL of one.

NOTE [ foreign: one object all along ]
An object is looked up once, when its size is first asked for, or where a list names it. Each range is then
asked for with the ETag that it had, so that an object which is replaced is an error that names it, and no
mixture of two. Where a server gives none, only its size can tell.

NOTE [ foreign: two ways to read ]
  in blocks   reads that follow each other, as those of a pack in order, get blocks of BLOCK bytes, the next
              ones of which are fetched meanwhile. Any other read is a request of its own.
  a walk      reads small parts from front to back, as headers lie between what they describe. A request costs
              a wait, and so do the bytes between two parts, if they are read too: whichever is measured to be
              less. Parts that lie near each other come with one request either way.
"""

from __future__ import annotations

import hashlib
import io
import os
import re
import threading
import time
import weakref
from collections import OrderedDict
from collections.abc import Iterable, Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any
from urllib.parse import unquote

from typing_extensions import Buffer

from fastload.common.ahead import ahead
from fastload.common.limits import parse_timeout
from fastload.common.urls import shown
from fastload.errors import RemoteError
from fastload.remote.client import open_objects
from fastload.remote.credentials import sendable
from fastload.remote.objects import LimitedThreads, Listing, ObjectInfo, Objects, Wrong

BLOCK = 4 << 20
"""Bytes of a block; a block takes longer to come than a request takes to begin, at 50 ms and 80 MB/s."""
_AHEAD = 3
"""Blocks that are fetched ahead of a read."""
_BLOCKS = 32
"""Blocks in memory, of all objects."""
_THREADS = 8
_LOOKED_UP = 64
"""Objects that are looked up at the same time."""
_HEADER = 2048
"""Bytes of a request of a walk that skips what lies between: a tar's headers and a label beside an image."""
_WALK_LEAST, _WALK_MOST = 64 << 10, 8 << 20
"""Bytes of a request of a walk that reads everything."""
_RATE = 1e7
"""Bytes a second that a walk expects before it has measured."""
_TIMEOUT_S = 60.0


class ForeignObjects:
    """Objects that others wrote, by their URLs. See NOTE [ foreign: one object all along ].

    Any thread may call it. A process that was forked from the one that made it opens connections of its own.

    Args:
        storage_options: options of the store, as `open_objects` takes them.
        timeout: seconds within which a request is tried again; None: 60.

    Attributes:
        pace: pace of the requests of walks.
        read_whole: URLs of objects of which a walk read what lies between two parts, too, since that took
            less time.
    """

    def __init__(
        self, storage_options: Mapping[str, Any] | None = None, timeout: float | str | None = None
    ) -> None:
        self._options = dict(storage_options or {})
        self._timeout = _TIMEOUT_S if timeout is None else parse_timeout(timeout)
        self.read_whole: set[str] = set()
        self.pace = _Pace()
        self._begin()

    def _begin(self) -> None:
        """Makes what belongs to one process."""
        self._pid = os.getpid()
        self._lock = threading.Lock()
        self._clients: dict[str, Objects] = {}
        self._threads = LimitedThreads(_THREADS, "fastload-foreign")
        self._blocks: OrderedDict[tuple[str, int], Future[Buffer]] = OrderedDict()
        self._ends: dict[str, int] = {}  # by URL: where the last read ended
        weakref.finalize(self, _close, self._pid, self._threads, self._clients).atexit = False

    def __reduce__(self) -> tuple[object, ...]:
        return ForeignObjects, (sendable(self._options), self._timeout)

    def below(self, folder: str) -> Below:
        """The objects below a URL, which then need not be looked up. Raises RemoteError, ArgumentError."""
        base = folder.rstrip("/")
        return Below(base, self, self._client(base).listing())

    def info(self, url: str) -> ObjectInfo:
        """Size and ETag of an object, by a request. Raises RemoteError."""
        folder, name = _split(url)
        return self._client(folder).head(name)

    def looked_up(self, urls: Iterable[ForeignURL]) -> Iterator[ForeignURL]:
        """Yields the same objects, which are looked up some at a time; `info` of one that is not there
        raises once more. Raises RemoteError: the store does not answer."""

        def look(url: ForeignURL) -> ForeignURL:
            try:
                url.info  # noqa: B018
            except RemoteError as error:
                if not error.sure:
                    raise
            return url

        with ThreadPoolExecutor(_LOOKED_UP, "fastload-list") as pool:
            yield from ahead(pool, look, urls, 2 * _LOOKED_UP)

    def get(self, url: str, start: int, stop: int, info: ObjectInfo) -> Buffer:
        """Bytes start .. stop-1 of an object, by a request of their own; `info`: as it is known to be. Raises
        RemoteError: they do not come, or the object was replaced."""
        folder, name = _split(url)
        if stop > info.size:
            raise RemoteError(
                f"{shown(url)} has {info.size:,} bytes, and {stop:,} are needed", url=shown(url)
            )
        return self._client(folder).get_range(name, start, stop, etag=info.etag)

    async def fetch(
        self, url: str, start: int, stop: int, wrong: Wrong | None = None, etag: str | None = None
    ) -> Buffer:
        """Awaits bytes start .. stop-1 of an object, as `Objects.fetch`."""
        folder, name = _split(url)
        return await self._client(folder).fetch(name, start, stop, wrong, etag)

    def read(self, url: str, start: int, stop: int, info: ObjectInfo) -> Buffer:
        """The same, in blocks where reads follow each other. See NOTE [ foreign: two ways to read ]."""
        self._renew()
        size = info.size
        if start >= stop or stop > size:
            return self.get(url, start, stop, info)
        numbers = range(start // BLOCK, (stop - 1) // BLOCK + 1)
        with self._lock:
            follows = abs(start - self._ends.get(url, 0)) <= BLOCK  # threads read somewhat out of order
            self._ends[url] = stop
            if not follows and any((url, number) not in self._blocks for number in numbers):
                wanted = None
            else:
                files = len({each for each, _ in self._blocks} | {url})
                more = min(_AHEAD, max(0, _BLOCKS // files - 2))  # what would push others out came in vain
                ahead = range(numbers.start, min(numbers.stop + more, -(-size // BLOCK)))
                wanted = [self._block(url, number, info) for number in ahead][: len(numbers)]
        if wanted is None:
            return self.get(url, start, stop, info)
        first = numbers.start * BLOCK
        if len(wanted) == 1:
            return memoryview(wanted[0].result())[start - first : stop - first]
        return memoryview(b"".join(bytes(each.result()) for each in wanted))[start - first : stop - first]

    def _block(self, url: str, number: int, info: ObjectInfo) -> Future[Buffer]:
        """A block that is there, or begins to come. Call it under the lock."""
        key = url, number
        found = self._blocks.get(key)
        if found is None or (found.done() and found.exception() is not None):
            start, stop = number * BLOCK, min((number + 1) * BLOCK, info.size)
            found = self._blocks[key] = self._threads.submit(lambda: self.get(url, start, stop, info))
            while len(self._blocks) > _BLOCKS:
                self._blocks.popitem(last=False)
        self._blocks.move_to_end(key)
        return found

    def close(self) -> None:
        """Ends connections and threads; idempotent."""
        _close(self._pid, self._threads, self._clients)

    def _renew(self) -> None:
        """Makes anew what belongs to one process, in another."""
        if self._pid != os.getpid():
            self._begin()

    def _client(self, folder: str) -> Objects:
        self._renew()
        with self._lock:
            found = self._clients.get(folder)
            if found is None:
                found = self._clients[folder] = open_objects(folder, self._options, self._timeout)
        return found


def _close(pid: int, threads: LimitedThreads, clients: Mapping[str, Objects]) -> None:
    """Ends the connections and threads of objects that nobody refers to any more."""
    if pid == os.getpid():
        threads.close()
        for client in clients.values():
            client.close()


_ROOT = re.compile(
    r"(?:(?:s3a?|gs|gcs|az|azure|abfss?|adl)://[^/]+|hf://(?:(?:datasets|spaces)/)?[^/@]+/[^/@]+@[0-9a-f]{40}|https?://[^/]+/[^/]+)(?=/.)",
    re.IGNORECASE,
)
"""The beginning of URLs that share one client: bucket, repository, or the first folder of a web server, which
may be a bucket as well."""


def _split(url: str) -> tuple[str, str]:
    """The URL of what has the client of an object, and its name there."""
    root = _ROOT.match(url)
    folder = url.rpartition("/")[0] if root is None else root[0]
    name = url[len(folder) + 1 :]
    return folder, unquote(name) if url[:4].lower() == "http" else name


class _Pace:
    """Time until an answer begins, and bytes a second once it has: moving means over the requests of walks.
    Threads that write at the same time lose one of them."""

    def __init__(self) -> None:
        self._wait_s = 0.0
        self._rate = 0.0  # 0: not known yet

    @property
    def worth(self) -> int:
        """Bytes that come while an answer is waited for."""
        return int((self._rate or _RATE) * self._wait_s)

    def note(self, size: int, took: float) -> None:
        """Notes a request for so many bytes, and its seconds."""
        if size <= _HEADER:
            self._wait_s = (self._wait_s + took) / 2 if self._wait_s else took
        elif took > self._wait_s:
            rate = size / (took - self._wait_s)
            self._rate = (self._rate + rate) / 2 if self._rate else rate


class ForeignURL(str):
    """The URL of an object that others wrote, with the objects of its store. As text it is the URL without
    its secrets.

    Attributes:
        url: the whole URL.
        objects: reads it.
    """

    url: str
    objects: ForeignObjects
    _info: ObjectInfo | RemoteError | None

    def __new__(
        cls, url: str, objects: ForeignObjects, info: ObjectInfo | RemoteError | None = None
    ) -> ForeignURL:
        """`info`: size and tag, where a list of objects has them; None: they are looked up."""
        made = super().__new__(cls, shown(url))
        made.url, made.objects, made._info = url, objects, info
        return made

    def __reduce__(self) -> tuple[object, ...]:
        return ForeignURL, (self.url, self.objects, self._info)

    @property
    def is_known(self) -> bool:
        """True if its size and tag are known, so that it is no pattern."""
        return self._info is not None

    @property
    def info(self) -> ObjectInfo:
        """Its size and tag. Raises RemoteError."""
        if isinstance(self._info, RemoteError):
            raise self._info.with_traceback(None)
        if self._info is None:
            try:
                self._info = self.objects.info(self.url)
            except RemoteError as error:
                self._info = error if error.sure else None
                raise
        return self._info

    @property
    def size(self) -> int:
        """Bytes of the object. Raises RemoteError."""
        return self.info.size

    @property
    def stamp(self) -> tuple[int, int]:
        """Its size, and a number that its ETag gives. Raises RemoteError."""
        tag = hashlib.blake2b((self.info.etag or "").encode(), digest_size=7).digest()
        return self.info.size, int.from_bytes(tag, "little")

    def whole(self) -> bytes:
        """All of its bytes, by one request. Raises RemoteError."""
        return bytes(self.objects.get(self.url, 0, self.info.size, self.info))

    def read(self, start: int, stop: int) -> Buffer:
        """Bytes start .. stop-1. Raises RemoteError."""
        return self.objects.read(self.url, start, stop, self.info)


class Below(Iterable[ForeignURL]):
    """The objects below a URL, by their names, made as they are iterated over."""

    def __init__(self, base: str, objects: ForeignObjects, listing: Listing) -> None:
        self._base, self._objects, self._listing = base, objects, listing

    def __iter__(self) -> Iterator[ForeignURL]:
        for each in self._listing:
            if each.name and not each.name.endswith("/"):  # what consoles make in the place of a folder
                yield ForeignURL(f"{self._base}/{each.name}", self._objects, each)


class _ForeignFile(io.RawIOBase):
    """An object as a file that is open for reading."""

    def __init__(self, url: ForeignURL) -> None:
        self._url, self._size, self._at = url, url.size, 0

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def tell(self) -> int:
        return self._at

    def seek(self, offset: int, whence: int = os.SEEK_SET) -> int:
        base = {os.SEEK_SET: 0, os.SEEK_CUR: self._at, os.SEEK_END: self._size}[whence]
        self._at = max(base + offset, 0)
        return self._at

    def readinto(self, into: Buffer) -> int:
        view = memoryview(into).cast("B")
        count = max(min(len(view), self._size - self._at), 0)
        if count:
            view[:count] = self._bytes(self._at, self._at + count)
            self._at += count
        return count

    def _bytes(self, start: int, stop: int) -> memoryview:
        raise NotImplementedError


class ForeignFile(_ForeignFile):
    """An object that is read in parts of any size and order; `alone`: each by a request of its own."""

    def __init__(self, url: ForeignURL, alone: bool = False) -> None:
        super().__init__(url)
        self._alone = alone

    def _bytes(self, start: int, stop: int) -> memoryview:
        url = self._url
        found = url.objects.get(url.url, start, stop, url.info) if self._alone else url.read(start, stop)
        return memoryview(found)


class Walk(_ForeignFile):
    """An object that is read from front to back, in small parts with gaps between them. See NOTE [ foreign:
    two ways to read ]. `skips`: gaps are skipped in any case."""

    def __init__(self, url: ForeignURL, skips: bool = False) -> None:
        super().__init__(url)
        self._skips = skips
        self._window, self._start = memoryview(b""), 0
        self._gap = 0  # between the last two parts that needed requests of their own

    def part(self, offset: int, size: int) -> bytes:
        """The bytes at an offset, or less where the object ends before. Raises RemoteError."""
        self.seek(offset)
        return self.read(size) or b""

    def _bytes(self, start: int, stop: int) -> memoryview:
        if not self._start <= start <= stop <= self._start + len(self._window):
            self._fetch(start, stop)
        return self._window[start - self._start : stop - self._start]

    def _fetch(self, start: int, stop: int) -> None:
        if len(self._window) <= _HEADER:
            self._gap = abs(start - self._start)
        pace = self._url.objects.pace
        worth = pace.worth  # bytes that come while an answer is waited for
        most = _HEADER
        if 0 < self._gap < worth and not self._skips:
            most = max(min(worth, 2 * len(self._window), _WALK_MOST), _WALK_LEAST)
            self._url.objects.read_whole.add(self._url.url)
        stop = min(max(stop, start + most), self._size)
        began = time.perf_counter()
        found = self._url.objects.get(self._url.url, start, stop, self._url.info)
        self._window, self._start = memoryview(found), start
        pace.note(stop - start, max(time.perf_counter() - began, 1e-6))
