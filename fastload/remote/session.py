"""Session: the connections, locks and fetcher that one process has open for a dataset in a bucket."""

from __future__ import annotations

import asyncio
import atexit
import os
import sys
import threading
import weakref
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from typing_extensions import TypeVarTuple, Unpack

from fastload.common.signals import SIGNALS_S
from fastload.common.urls import shown
from fastload.errors import ClosedError, RemoteError
from fastload.remote import fetch_loop
from fastload.remote.cache_folder import RENEWED_S, CacheFolder
from fastload.remote.client import open_objects
from fastload.remote.dataset_cache import CachedFile, DatasetCache
from fastload.remote.fetch_loop import FetchLoop
from fastload.remote.fetcher import Fetcher
from fastload.remote.foreign import ForeignObjects
from fastload.remote.objects import Objects
from fastload.remote.replaced import ReplacedCheck
from fastload.remote.requests import HeldRoom, Request
from fastload.store.manifest import Manifest

Ts = TypeVarTuple("Ts")


@dataclass(frozen=True)
class RemoteStatus:
    """State of the cache of a dataset in a bucket.

    Attributes:
        url: the dataset's URL, without secrets.
        cached, count: number of samples in the cache, and of all samples.
        cache: folder of the dataset in the cache.
        fetched: bytes of records that this process has fetched.
        ranges: number of requests for these bytes.
        why: the reason why nothing more can be written to the cache, in a few words; "" if it can, or is full
            in mid-dataset.
        full: True if the reason is the cache's size.
    """

    url: str
    cached: int
    count: int
    cache: Path
    fetched: int
    ranges: int
    why: str
    full: bool = False


class Session:
    """Everything that one process has open for a dataset in a bucket. See NOTE [ remote: who has what ].

    It ends with its last reference, if it is not closed before. A forked child touches nothing of it.

    Args:
        url: URL of the dataset; of a folder, a ``file://`` URL.
        cache, size: folder and size of all caches, as `CacheFolder` takes them.
        options: options of the store, as `open_objects` takes them.
        timeout: seconds within which a request is tried again.
        local: True if the dataset lies in a folder, and foreign objects alone in a store.

    Attributes:
        name: URL for messages.
        objects: connections to the store; None where the dataset lies in a folder.
        foreign: connections to stores of foreign objects.
        cache: the dataset's cache, in `folder`.
        shards: the shards in the cache, once the dataset is open, and after them its sidecars.
        manifest: the manifest of those shards.
        loop: the thread of this process that fetches; None after close().
    """

    def __init__(
        self,
        url: str,
        cache: str | os.PathLike[str] | None,
        size: int | str | None,
        options: Mapping[str, Any],
        timeout: float,
        local: bool = False,
    ) -> None:
        self.loop: FetchLoop | None = None
        self.name = shown(url)
        self.pid = os.getpid()
        self.timeout = timeout
        self.shards: list[CachedFile] = []
        self.manifest: Manifest | None = None
        self._fetcher: Fetcher | None = None
        self._lock = threading.Lock()
        self.objects = None if local else open_objects(url, options, timeout)
        self.foreign = ForeignObjects(options, timeout)
        try:
            self.folder = CacheFolder(cache, size)
            self.cache = DatasetCache(self.folder, url, _endpoints(options))
        except BaseException:
            if self.objects is not None:
                self.objects.close()
            raise
        self.loop = fetch_loop.acquire()
        _open.add(self)
        self.loop.call(_renew, weakref.ref(self.folder), self.loop)

    @property
    def fetcher(self) -> Fetcher:
        """The fetcher of the shards, made on first use."""
        with self._lock:
            if self._fetcher is None:
                self._fetcher = Fetcher(
                    self.name, self.objects, self.foreign, self.cache, self.shards, self.timeout
                )
            return self._fetcher

    def opened(self, manifest: Manifest) -> None:
        """Notes that the dataset of a manifest is open: from now on its objects are known to be there."""
        self.manifest = manifest
        if self.objects is not None:
            self.objects.opened = ReplacedCheck(self.objects, manifest)

    @property
    def fetched(self) -> tuple[int, int]:
        """(bytes, requests) fetched so far."""
        return (0, 0) if self._fetcher is None else (self._fetcher.fetched, self._fetcher.ranges)

    def add(self, request: Request) -> None:
        """Begins to fetch the units that a request lacks. Raises ClosedError."""
        self.call(self.fetcher.add, request)

    @property
    def room(self) -> HeldRoom:
        """Room in memory that the passes of this process share. Raises ClosedError."""
        if self.loop is None:
            raise ClosedError(f"{self.name} was closed: open it again")
        return self.loop.room

    def call(self, function: Callable[[Unpack[Ts]], object], *arguments: Unpack[Ts]) -> None:
        """Schedules a call of a function in the thread that fetches. Raises ClosedError."""
        if self.loop is None:
            raise ClosedError(f"{self.name} was closed: open it again")
        self.loop.call(function, *arguments)

    @property
    def running(self) -> bool:
        """True if fetches of this session can still end."""
        return self.loop is not None and self.loop.running

    def wait(self, request: Request) -> None:
        """Waits for the end of a request. Raises RemoteError, ClosedError."""
        while not request.wait(SIGNALS_S):
            if not self.running and not request.finished:
                raise ClosedError(f"{self.name}: this process fetches nothing any more")
        if request.error is not None:
            raise request.error.with_traceback(None)

    def together(self, calls: Sequence[Callable[[], Any]]) -> list[Any]:
        """Results of blocking calls, which run at the same time in threads of their own, so that Ctrl-C
        need not wait for the network."""
        results: list[Any] = [None] * len(calls)

        def run(number: int) -> None:
            try:
                results[number] = calls[number]()
            except BaseException as error:
                results[number] = error

        threads = [threading.Thread(target=run, args=(number,), daemon=True) for number in range(len(calls))]
        for thread in threads:
            thread.start()
        for thread in threads:
            while thread.is_alive():
                thread.join(SIGNALS_S)
        for result in results:
            if isinstance(result, BaseException):
                raise result
        return results

    def close(self, wait: bool = True) -> None:
        """Ends all requests and closes everything; idempotent."""
        loop, self.loop = self.loop, None
        if loop is None or self.pid != os.getpid():
            return
        stores = (self.foreign,) if self.objects is None else (self.objects, self.foreign)
        loop.finish(_end, self.name, self._fetcher, self.cache, self.folder, stores, wait=wait)
        fetch_loop.release(loop, wait)

    def __del__(self, ends: Callable[[], bool] = sys.is_finalizing) -> None:
        if not ends():
            self.close(wait=False)


_open: weakref.WeakSet[Session] = weakref.WeakSet()


def _at_exit() -> None:
    for session in list(_open):
        session.close()


atexit.register(_at_exit)


def _end(
    name: str,
    fetcher: Fetcher | None,
    cache: DatasetCache,
    folder: CacheFolder,
    stores: Sequence[Objects | ForeignObjects],
) -> list[asyncio.Task[None]]:
    """Ends a session in the thread that fetches: there, no write to a file is under way while it is
    closed. Returns the cancelled tasks."""
    tasks: list[asyncio.Task[None]] = []
    if fetcher is not None:
        tasks = fetcher.stop(RemoteError(f"{name} was closed while it was read", url=name))
    cache.close()
    folder.close()
    for store in stores:
        store.close()
    return tasks


def _renew(folder: weakref.ref[CacheFolder], loop: FetchLoop) -> None:
    """Renews the use of a folder, again and again until it is closed. See NOTE [ cache: one host ]."""
    found = folder()
    if found is not None and not found.closed:
        found.renew()
        loop.loop.call_later(RENEWED_S, _renew, folder, loop)


def _endpoints(options: Mapping[str, Any]) -> str:
    """The store's place: the endpoints in the options. It distinguishes two datasets that have one URL."""
    named = {key.lower(): str(value) for key, value in options.items() if "endpoint" in key.lower()}
    return ",".join(named[key] for key in sorted(named))
