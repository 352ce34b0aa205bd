"""Session: what one process has open of a dataset in a bucket."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from fastload.errors import ClosedError, RemoteError
from fastload.remote.cache_folder import CacheFolder
from fastload.remote.client import open_objects
from fastload.remote.dataset_cache import CachedShard, DatasetCache
from fastload.remote.fetch_loop import FetchLoop, fetch_loop
from fastload.remote.fetcher import Fetcher
from fastload.remote.requests import Request

_SIGNALS_S = 0.25
"""A wait for the fetcher lets Ctrl-C through so often."""


class Session:
    """What one process has open of a dataset in a bucket. See NOTE [ remote: who has what ].

    Attributes:
        objects: connections to the store.
        cache: of the dataset, in `folder`.
        shards: of the cache, once the dataset is open.
    """

    def __init__(
        self, url: str, cache: str | os.PathLike[str] | None, size: int | str | None, options: Mapping[str, Any], timeout: float
    ) -> None:
        self.pid = os.getpid()
        self.timeout = timeout
        self.objects = open_objects(url, options, timeout)
        self.folder = CacheFolder(cache, size)
        self.cache = DatasetCache(self.folder, url, str(options.get("endpoint") or options.get("endpoint_url") or ""))
        self.shards: list[CachedShard] = []
        self._fetcher: Fetcher | None = None
        self._lock = threading.Lock()

    @property
    def loop(self) -> FetchLoop:
        """The thread of this process that fetches."""
        return fetch_loop()

    @property
    def fetcher(self) -> Fetcher:
        """Of the shards; made on first use."""
        with self._lock:
            if self._fetcher is None:
                self._fetcher = Fetcher(self.objects, self.cache, self.shards, self.timeout)
            return self._fetcher

    @property
    def fetched(self) -> tuple[int, int]:
        """Bytes that were fetched, and requests that they came by."""
        return (0, 0) if self._fetcher is None else (self._fetcher.fetched, self._fetcher.ranges)

    def add(self, request: Request) -> None:
        """Begins to fetch what a request lacks."""
        self.folder.renew()
        self.loop.call(self.fetcher.add, request)

    def wait(self, request: Request) -> None:
        """Waits for a request. Raises RemoteError, ClosedError."""
        while not request.wait(_SIGNALS_S):
            if not self.loop.running:
                raise ClosedError(f"{self.objects.url}: this process fetches nothing any more")
        if request.error is not None:
            raise request.error

    def together(self, calls: Sequence[Callable[[], Any]]) -> list[Any]:
        """The results of blocking calls, which run at the same time."""
        results: list[Any] = [None] * len(calls)

        def run(number: int) -> None:
            try:
                results[number] = calls[number]()
            except BaseException as error:
                results[number] = error

        threads = [threading.Thread(target=run, args=(number,), daemon=True) for number in range(1, len(calls))]
        for thread in threads:
            thread.start()
        if calls:
            run(0)
        for thread in threads:
            thread.join()
        for result in results:
            if isinstance(result, BaseException):
                raise result
        return results

    def close(self) -> None:
        """Ends what is under way, and lets go of everything; idempotent."""
        if self.pid != os.getpid():
            return
        if self._fetcher is not None:
            error = RemoteError(f"{self.objects.url} was closed while it was read", url=self.objects.url)
            try:
                self.loop.call(self._fetcher.stop, error)
            except ClosedError:
                pass
        self.cache.close()
        self.folder.close()
        self.objects.close()
