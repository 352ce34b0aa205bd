"""ObstoreObjects: the objects below an S3, GCS, Azure, HTTP or file URL, by obstore; and the parts of that
client.

`BusyServer` takes turns at a server that refuses requests, `GatheredRanges` asks for many small ranges by one
call, and `StoreMaker` makes obstore's stores.
"""

from __future__ import annotations

import asyncio
import base64
import contextlib
import os
import re
import threading
import time
from collections.abc import Awaitable, Callable, Iterator, Mapping
from concurrent.futures import Future
from datetime import timedelta
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any, BinaryIO, TypeAlias, TypeVar
from urllib.parse import unquote, urlsplit, urlunsplit

from typing_extensions import Buffer

from fastload.common.urls import local_path, shown
from fastload.errors import ArgumentError, ClosedError, RemoteError
from fastload.remote.credentials import KEY, bounded_provider
from fastload.remote.failures import (
    FIRST_PAUSE_BUSY,
    LONGEST_PAUSE,
    REPLACED,
    Failure,
    Tries,
    of_exception,
    of_message,
    shortened,
    wrong_length,
    wrong_size,
)
from fastload.remote.fetch_loop import result_of
from fastload.remote.objects import MOST, Listing, ObjectInfo, Objects, Wrong
from fastload.remote.obstore_process import add_holder, own_obstore

if TYPE_CHECKING:
    from obstore.store import ObjectStore


class BusyServer:
    """Turns at a server that answers 429 or 503 to all calls of one client: open, or closed and one call at a
    time asks again.

    1. An answer of 429 or 503 closes it. Then one call at a time gets a turn, after pauses that grow like
       those of one call; the other calls wait. So a server with a Retry-After, which obstore does not show,
       gets only a few requests until it serves again, however many calls are under way.
    2. Any other answer, also to a request that began before, opens it for all.
    3. Any thread may call it.

    Attributes:
        failure: the last answer of 429 or 503; None while it is open.
    """

    def __init__(self) -> None:
        self.failure: Failure | None = None
        self._lock = threading.Lock()  # guards all fields
        self._opened: Future[None] = Future()
        self._rounds = 0
        self._closed_at = 0.0
        self._next = 0.0  # time at which the next call gets a turn

    def refused(self, failure: Failure, began: float, left: float) -> None:
        """Notes an answer of 429 or 503. `began`: time at which the request began; `left`: seconds that
        its call has left."""
        with self._lock:
            if self.failure is None:
                self._opened, self._rounds = Future(), 0
            elif began < self._closed_at:
                return  # the request was on its way when the server began to refuse: no news
            self.failure, self._closed_at = failure, time.monotonic()
            self._rounds += 1
            self._next = self._closed_at + min(self._pause(), max(left, 0.0) / 2)

    def answered(self) -> None:
        """Notes any answer but 429 and 503."""
        with self._lock:
            if self.failure is not None:
                self.failure = None
                self._opened.set_result(None)

    def turn(self) -> tuple[float, Future[None]]:
        """(seconds, opened): seconds until a call may ask for its turn again, 0: it has the turn; `opened`
        ends once all may go on."""
        with self._lock:
            now = time.monotonic()
            if self.failure is not None:
                if now < self._next:
                    return self._next - now, self._opened
                self._next = now + self._pause()  # in case the call that has the turn does not come back
            return 0.0, self._opened

    def _pause(self) -> float:
        longest = min(FIRST_PAUSE_BUSY * 2.0 ** max(self._rounds - 1, 0), LONGEST_PAUSE)
        return shortened(longest)


SMALL_BYTES = 256 << 10
"""Ranges of fewer bytes are gathered. For a larger one the request takes most of the time, and its bytes
are wanted as they come."""

_Wanted: TypeAlias = "tuple[int, int, asyncio.Future[Buffer]]"


class GatheredRanges:
    """Gathers small ranges of one object that several tasks want at the same moment, and asks for them by one
    call of obstore.

    Awaiting a call of obstore takes as much CPU as the request itself, 110 to 140 us: a task of tokio, a
    thread that waits for the GIL, and a wake-up of the asyncio loop. One call for up to MOST ranges, which
    obstore asks for at the same time, takes that once.

    1. `fetch` is called on a running asyncio loop. Ranges wanted in one iteration of the loop are gathered by
       store and object.
    2. If a call fails, all its ranges fail.
    3. A call ends when all tasks that wait for its ranges were cancelled.

    Args:
        obstore: the package obstore.
    """

    def __init__(self, obstore: ModuleType) -> None:
        self._obstore = obstore
        self._closed = False
        self._wanted: dict[tuple[asyncio.AbstractEventLoop, int, str], tuple[ObjectStore, list[_Wanted]]] = {}
        self._calls: dict[asyncio.Future[Any], list[_Wanted]] = {}

    async def fetch(self, store: ObjectStore, name: str, start: int, stop: int) -> Buffer:
        """Awaits bytes start .. stop-1 of an object, or fewer if the object ends before."""
        loop = asyncio.get_running_loop()
        key = loop, id(store), name
        found = self._wanted.get(key)
        if found is None:
            found = self._wanted[key] = store, []
            loop.call_soon(self._ask, key)
        future: asyncio.Future[Buffer] = loop.create_future()
        found[1].append((start, stop, future))
        try:
            return await future
        except asyncio.CancelledError:
            self._drop(future)
            raise

    def close(self) -> list[asyncio.Future[Any]]:
        """Ends the gathering; returns the calls under way, which the caller cancels."""
        self._closed = True
        return list(self._calls)

    def _ask(self, key: tuple[asyncio.AbstractEventLoop, int, str]) -> None:
        """Asks for the ranges of an object that were wanted in this iteration of the loop."""
        store, wanted = self._wanted.pop(key)
        for group in _groups([each for each in wanted if not each[2].done()]):
            if self._closed:
                _cancel(group)
                continue
            try:
                call = self._call(store, key[2], group)
            except Exception as error:
                _fail(group, error)
                continue
            self._calls[call] = group
            call.add_done_callback(self._came)

    def _call(self, store: ObjectStore, name: str, group: list[_Wanted]) -> asyncio.Future[Any]:
        if len(group) == 1:
            one: asyncio.Future[Any] = self._obstore.get_range_async(
                store, name, start=group[0][0], end=group[0][1]
            )
            return one
        starts, ends = [each[0] for each in group], [each[1] for each in group]
        several: asyncio.Future[Any] = self._obstore.get_ranges_async(
            store, name, starts=starts, ends=ends, coalesce=0
        )
        return several

    def _came(self, call: asyncio.Future[Any]) -> None:
        """Hands a call's result, or its error, to the tasks that wait for its ranges."""
        group = self._calls.pop(call)
        if call.cancelled():
            return _cancel(group)
        error = call.exception()
        if error is not None:
            return _fail(group, error)
        bodies = [call.result()] if len(group) == 1 else call.result()
        for (_, _, future), body in zip(group, bodies, strict=True):
            if not future.done():
                future.set_result(body)

    def _drop(self, future: asyncio.Future[Buffer]) -> None:
        """Drops a range that no task waits for; cancels its call if no task waits for another of the
        call's ranges."""
        for call, group in self._calls.items():
            if any(each[2] is future for each in group):
                if all(each[2].done() for each in group):
                    call.cancel()
                return


def _groups(wanted: list[_Wanted]) -> Iterator[list[_Wanted]]:
    """Groups of at most MOST ranges, no two of which touch: obstore merges touching ranges, and panics if
    the object ends in the second."""
    group: list[_Wanted] = []
    for each in sorted(wanted, key=lambda each: each[0]):
        if group and (len(group) == MOST or each[0] <= group[-1][1]):
            yield group
            group = []
        group.append(each)
    if group:
        yield group


def _cancel(group: list[_Wanted]) -> None:
    for _, _, future in group:
        future.cancel()


def _fail(group: list[_Wanted], error: BaseException) -> None:
    for _, _, future in group:
        if not future.done():
            future.set_exception(error)


SILENCE_LIMIT = 10.0
"""Seconds without a byte after which a read is given up and tried again; a quarter of the timeout if that
is less."""
WRITE_LIMIT = 300.0
"""Seconds for one request that writes, which is silent while its body is sent; `timeout` if that is less."""
CONNECT_LIMIT = 5.0
_ENDPOINT = re.compile(r"(AWS|AZURE|GOOGLE|GCS)\w*_ENDPOINT(_URL)?(_\w+)?|STORAGE_EMULATOR_HOST")


class StoreMaker:
    """Makes obstore's stores for one URL and its storage_options.

    Stores for reading do not try again by themselves: the client does, since it knows when. A store for
    writing tries each part of an upload again, so that a lost part does not cost the whole file.
    """

    def __init__(self, obstore: ModuleType, url: str, options: dict[str, object], timeout: float) -> None:
        self._obstore = obstore
        self._url = url
        self._timeout = timeout
        self._client = _taken_mapping(options, "client_options")
        self.provider = bounded_provider(options.pop(KEY, None), timeout)
        if "retry_config" in options:
            raise ArgumentError(
                "storage_options has no retry_config: fastload tries again by itself for `timeout` seconds"
            )
        self._config = options
        self._take_password()
        if "allow_http" not in self._client and _plain_http(url, options):
            self._client["allow_http"] = True

    def _take_password(self) -> None:
        """Sends the user and password of a web server's URL as its header: obstore sends none, and shows
        them in its messages."""
        parts = urlsplit(self._url)
        user, at, host = parts.netloc.rpartition("@")
        if at and parts.scheme.lower() in ("http", "https"):
            self._url = urlunsplit(parts._replace(netloc=host))
            header = "Basic " + base64.b64encode(unquote(user).encode()).decode()
            self._client["default_headers"] = {
                "authorization": header,
                **_taken_mapping(self._client, "default_headers"),
            }

    def reader(self) -> ObjectStore:
        """Makes a store for reading."""
        silence = min(SILENCE_LIMIT, self._timeout / 4)
        limits = {"timeout": timedelta(seconds=self._timeout), "read_timeout": timedelta(seconds=silence)}
        return self._make(limits, {"max_retries": 0})

    def writer(self) -> ObjectStore:
        """Makes a store for writing."""
        limit = timedelta(seconds=min(WRITE_LIMIT, self._timeout))
        return self._make({"timeout": limit}, {"retry_timeout": timedelta(seconds=self._timeout)})

    def _make(self, limits: Mapping[str, object], retry: Mapping[str, object]) -> ObjectStore:
        path = local_path(self._url)
        failed = ""
        try:
            if path is not None:
                return self._local(Path(path))
            connect = timedelta(seconds=min(CONNECT_LIMIT, self._timeout))
            client = {"connect_timeout": connect, **limits, **self._client}
            given = {"config": self._config or None, KEY: self.provider}
            store: ObjectStore = self._obstore.store.from_url(
                self._url,
                client_options=client,
                retry_config=retry,
                **{key: value for key, value in given.items() if value is not None},
            )
            return store
        except (self._obstore.exceptions.BaseError, ValueError, TypeError) as error:
            failed = _words(error)
        raise ArgumentError(f"{shown(self._url)} cannot be opened: {failed}")

    def _local(self, path: Path) -> ObjectStore:
        if self._config:
            raise ValueError("storage_options have no meaning for file://")
        store: ObjectStore = self._obstore.store.LocalStore(path, mkdir=True)
        return store


def _words(error: Exception) -> str:
    """Describes a wrong option. Of obstore's text, which may show secrets of the URL or an option, only a
    key's name is kept."""
    text = str(error)
    if found := re.search(r"Configuration key: '([A-Za-z0-9_.-]{1,80})' is not valid", text) or re.search(
        r"Invalid key: ([A-Za-z0-9_.-]{1,80})\.", text
    ):
        return f"storage_options has no key {found[1]!r} for it"
    if "does not accept any configuration" in text:
        return "storage_options of an HTTP server may hold only client_options"
    if "have no meaning" in text:
        return text
    return "check the URL and the values in storage_options"


def _taken_mapping(options: dict[str, object], key: str) -> dict[str, object]:
    value = options.pop(key, None) or {}
    if not isinstance(value, Mapping):
        raise ArgumentError(f"storage_options[{key!r}] must be a dict, not {type(value).__name__}")
    return dict(value)


def _plain_http(url: str, options: Mapping[str, object]) -> bool:
    """Returns True if the URL, or the endpoint in the options or the environment, is http and not https."""
    if urlsplit(url).scheme.lower() == "http":
        return True
    given = [value for key, value in options.items() if "endpoint" in key.lower()]
    named = given or [value for key, value in os.environ.items() if _ENDPOINT.fullmatch(key)]
    return any(isinstance(value, str) and value.lower().startswith("http://") for value in named)


R = TypeVar("R")

PART_BYTES = 8 << 20
"""Bytes of a part of an upload; more if a file would have more than _MOST_PARTS parts."""
_MOST_PARTS = 9_000  # S3's limit is 10,000, Azure's 50,000
PARTS_AT_ONCE = 4
_LISTED_MOST = 1_000_000_000
_EMPTY = b""
_WRITES = frozenset({"write", "delete"})


def _nothing_wrong(_: object) -> None:
    return None


class ObstoreObjects(Objects):
    """The objects below one URL, read and written by obstore.

    Every request is awaited on the process's fetch loop, also by the blocking methods: so Ctrl-C and `close`
    end it, and none goes on unseen.

    The client keeps two stores, each with connections of its own. The one for reading gives up a request that
    is silent. The one for writing does not: its requests are silent while their bodies are sent.
    """

    def __init__(self, url: str, options: Mapping[str, object], timeout: float) -> None:
        super().__init__(timeout)
        self.url = shown(url).rstrip("/")
        self._obstore = own_obstore()
        self._maker = StoreMaker(self._obstore, url, dict(options), timeout)
        self._pid = os.getpid()
        self._closed = False
        self._lock = threading.Lock()  # guards the two stores
        self._reader: ObjectStore | None = self._maker.reader()
        self._writer: ObjectStore | None = None
        self._awaited: set[asyncio.Future[Any]] = set()
        self._busy = BusyServer()
        self._gathered = GatheredRanges(self._obstore)
        add_holder(self)

    def get(self, name: str, limit: int, wrong: Wrong | None = None, within: float | None = None) -> bytes:
        """Reads a whole object of at most `limit` bytes."""

        def failure_of(found: tuple[int, bytes | None]) -> Failure | None:
            return None if found[1] is None or wrong is None else wrong(found[1])

        tries = self._tries("reading", name, within=within)
        size, data = self._call(tries, name, lambda store: self._whole(store, name, limit), failure_of)
        if data is None:
            raise RemoteError(
                f"{self._place(name)} has {size} bytes, and at most {limit} were expected there",
                url=self._place(name),
            )
        return data

    def get_range(
        self, name: str, start: int, stop: int, wrong: Wrong | None = None, etag: str | None = None
    ) -> Buffer:
        """Reads bytes start .. stop-1 of an object."""
        if start >= stop:
            return _no_bytes(start, stop)

        def failure_of(body: Buffer | None) -> Failure | None:
            if body is None:
                return REPLACED
            return wrong_length(body, stop - start) or (None if wrong is None else wrong(body))

        body: Buffer = self._call(
            self._tries(f"reading bytes {start}-{stop - 1} of", name),
            name,
            lambda store: (
                self._obstore.get_range_async(store, name, start=start, end=stop)
                if etag is None
                else self._tagged(store, name, start, stop, etag)
            ),
            failure_of,
        )
        return body

    async def _tagged(self, store: ObjectStore, name: str, start: int, stop: int, etag: str) -> Buffer | None:
        """Bytes of an object that has this tag; None: it has another by now."""
        options: dict[str, Any] = {"range": (start, stop)}
        if not etag.startswith("W/"):  # a weak tag matches nothing, by RFC 9110
            options["if_match"] = etag
        result = await self._obstore.get_async(store, name, options=options)
        if _info(name, result.meta).etag != etag:  # of a store that does not know the condition
            return None
        body: Buffer = await result.bytes_async()
        return body

    async def fetch(
        self, name: str, start: int, stop: int, wrong: Wrong | None = None, etag: str | None = None
    ) -> Buffer:
        """Awaits bytes start .. stop-1 of an object."""
        if start >= stop:
            return _no_bytes(start, stop)
        tries = self._tries(f"reading bytes {start}-{stop - 1} of", name)
        with self._stalls.watch(tries, asyncio.get_running_loop()):
            while True:
                if self._busy.failure is not None:
                    await self._turn(tries)
                store = self._store()
                began = time.monotonic()
                first = tries.last is None
                if etag is not None:
                    request = self._cancellable(
                        asyncio.ensure_future(self._tagged(store, name, start, stop, etag))
                    )
                elif first and stop - start < SMALL_BYTES:
                    request = self._gathered.fetch(store, name, start, stop)
                else:
                    request = self._cancellable(
                        self._obstore.get_range_async(store, name, start=start, end=stop)
                    )
                try:
                    # The first try is bounded by the store's own limit on a request, which is `timeout`; a
                    # later one by what is left.
                    body: Buffer | None = await (
                        request if first else asyncio.wait_for(request, max(tries.left(), 0.001))
                    )
                    failure = REPLACED if body is None else wrong_length(body, stop - start)
                except asyncio.CancelledError:
                    if self._closed:
                        raise ClosedError(
                            f"{self.url} was closed while {self._place(name)} was read"
                        ) from None
                    raise
                except Exception as error:
                    failure = self._failure(error)
                if failure is None and wrong is not None:
                    failure = wrong(body)
                if failure is None:
                    assert body is not None
                    if self._busy.failure is not None:
                        self._busy.answered()
                    return body
                await self._before_next(tries, failure, name, store, began)

    def head(self, name: str, known: bool = False, wrong: Wrong | None = None) -> ObjectInfo:
        """Size and ETag of an object."""

        async def look(store: ObjectStore) -> ObjectInfo:
            meta = await self._obstore.head_async(store, name)
            return _info(name, meta)

        return self._call(self._tries("looking up", name, known=known), name, look, wrong or _nothing_wrong)

    def listing(self) -> Listing:
        """All objects below the URL, of which no process holds many."""
        tries = self._tries("listing", "", "list")
        return self._call(tries, "", lambda store: self._listed(store, tries), access="list")

    def put(self, name: str, data: bytes) -> None:
        """Writes a small object in one request."""
        tries = self._tries("writing", name, "write")
        self._call(
            tries,
            name,
            lambda store: self._obstore.put_async(store, name, data, use_multipart=False),
            access="write",
        )

    def put_file(self, name: str, path: Path, sent: Callable[[int], None] | None = None) -> None:
        """Uploads a file in parts of PART_BYTES, PARTS_AT_ONCE at a time; then checks that the object has
        the file's size."""
        size = path.stat().st_size
        part = max(PART_BYTES, -(-size // _MOST_PARTS))
        tries = self._tries("uploading", name, "write")

        def went(count: int) -> None:
            tries.progress()
            if sent is not None:
                sent(count)

        async def upload(store: ObjectStore) -> None:
            with open(path, "rb") as file:
                await self._obstore.put_async(
                    store, name, _parts(file, part, went), chunk_size=part, max_concurrency=PARTS_AT_ONCE
                )

        self._call(tries, name, upload, access="write")
        if path.stat().st_size != size:
            raise RemoteError(
                f"{path} changed while it was uploaded to {self._place(name)}: upload it again",
                url=self._place(name),
            )
        self.head(name, True, lambda info: wrong_size(info.size, size))

    def delete(self, name: str) -> None:
        """Removes an object; it is no error if there is none."""

        async def remove(store: ObjectStore) -> None:
            with contextlib.suppress(FileNotFoundError):
                await self._obstore.delete_async(store, name)

        self._call(self._tries("deleting", name, "delete"), name, remove, access="delete")

    def close(self) -> None:
        """Cancels all awaited requests and drops the stores with their connections; idempotent. In a
        forked child it does nothing."""
        if os.getpid() != self._pid:
            # Dropping the parent's stores here would harm the parent's connections: NOTE [ obstore after a
            # fork ]
            return
        with self._lock:
            self._closed = True
            self._reader = self._writer = None
        if self._maker.provider is not None:
            self._maker.provider.close()
        self._busy.answered()  # calls that wait for a turn find that the client is closed
        for request in [*self._awaited, *self._gathered.close()]:
            with contextlib.suppress(RuntimeError):  # its loop is closed
                request.get_loop().call_soon_threadsafe(request.cancel)

    async def _cancellable(self, request: asyncio.Future[R]) -> R:
        """Awaits a request that close() may cancel."""
        self._awaited.add(request)
        try:
            return await request
        finally:
            self._awaited.discard(request)

    async def _whole(self, store: ObjectStore, name: str, limit: int) -> tuple[int, bytes | None]:
        """Size and bytes of an object; None instead of more than `limit` bytes."""
        result = await self._obstore.get_async(store, name)
        size = result.meta["size"]
        return size, bytes(await result.bytes_async()) if size <= limit else None

    async def _listed(self, store: ObjectStore, tries: Tries) -> Listing:
        """The objects that a store lists. A list that repeats itself, or has no end, is refused."""
        found, firsts, count = Listing(), set[str](), 0
        async for page in self._obstore.list(store, chunk_size=1000):
            tries.progress()
            for meta in page:
                found.add(_info(meta["path"], meta))
            again = bool(page) and page[0]["path"] in firsts
            firsts |= {page[0]["path"]} if page else set()
            count += len(page)
            if again or count > _LISTED_MOST:
                what = (
                    "names the same objects again and again"
                    if again
                    else f"names more than {_LISTED_MOST:,} objects"
                )
                raise RemoteError(
                    f"{self.url}: the server's list of what is below it {what}: check the URL", url=self.url
                )
        return found.sealed()

    def _store(self, write: bool = False) -> ObjectStore:
        """The store for reading or writing. Raises ClosedError after close(), and in another process than
        the one that opened it."""
        if os.getpid() != self._pid:
            raise ClosedError(
                f"{self.url} was opened by another process (pid {self._pid}): connections are not "
                "shared; open it anew here"
            )
        store = self._writer if write else self._reader
        if store is None:
            with self._lock:
                if self._closed:
                    raise ClosedError(f"{self.url} is closed")
                store = self._writer = self._writer or self._maker.writer()
        return store

    def _renew(self, old: object) -> None:
        """Makes the stores anew, unless another thread has done so."""
        with self._lock:
            if not self._closed and old in (self._reader, self._writer):
                self._reader = self._maker.reader()
                self._writer = None

    def _failure(self, error: Exception) -> Failure:
        """The failure that an exception of a request means; any other exception is raised again.

        The exception loses its traceback: obstore keeps a future that has failed until it is called again,
        which may be never, and with the traceback the frames of those who waited, this client, and the
        dataset's files.
        """
        found = of_exception(error)
        if found is None and isinstance(error, self._obstore.exceptions.BaseError):
            found = of_message(str(error))
        if found is None and type(error) is ValueError:
            found = Failure(
                "never", "its name has an empty part or dots as a part", "give names without them"
            )
        if found is None:
            raise error
        error.__traceback__ = None
        return found

    async def _turn(self, tries: Tries) -> None:
        """Waits until a call may ask a busy server. Raises RemoteError if its turn does not come within
        the timeout."""
        while (failure := self._busy.failure) is not None:
            seconds, opened = self._busy.turn()
            if not seconds:
                return
            left = tries.left()
            if left <= 0:
                tries.count -= 1  # the next try was counted, and is not made
                raise tries.error(failure)
            tries.last = tries.last or failure
            await asyncio.wait([asyncio.wrap_future(opened)], timeout=min(seconds, left))

    async def _before_next(
        self, tries: Tries, failure: Failure, name: str, store: object, began: float
    ) -> None:
        """Waits until the next try begins. Raises RemoteError if there is none."""
        if failure.kind == "busy":
            self._busy.refused(failure, began, tries.left())
        elif failure.kind != "again":
            self._busy.answered()
        if tries.renew_credentials(failure):
            return self._renew(store)
        pause = tries.pause(failure)
        await self._check_replaced(tries, failure, name, pause < 0)
        if pause < 0:
            raise tries.error(failure)
        await asyncio.sleep(pause)
        if failure.kind == "denied":  # they may have been renewed meanwhile
            self._renew(store)

    def _call(
        self,
        tries: Tries,
        name: str,
        request: Callable[[ObjectStore], Awaitable[R]],
        wrong: Callable[[R], Failure | None] = _nothing_wrong,
        access: str = "",
    ) -> R:
        """Returns the request's result; it is tried again where that can help. `wrong` returns the failure
        of a wrong result."""
        self._store(access in _WRITES)  # raises at once if the client is closed
        result: R = result_of(self._tried, tries, name, request, wrong, access)
        return result

    async def _tried(
        self,
        tries: Tries,
        name: str,
        request: Callable[[ObjectStore], Awaitable[R]],
        wrong: Callable[[R], Failure | None],
        access: str,
    ) -> R:
        task = asyncio.current_task()
        assert task is not None
        self._awaited.add(task)
        try:
            with self._stalls.watch(tries, asyncio.get_running_loop()):
                while True:
                    await self._turn(tries)
                    store = self._store(access in _WRITES)
                    began = time.monotonic()
                    try:
                        result = await request(store)
                        failure = wrong(result)
                    except Exception as error:
                        failure = self._failure(error)
                    if failure is None:
                        self._busy.answered()
                        if access:
                            self._granted.add(access)
                        return result
                    await self._before_next(tries, failure, name, store, began)
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


def _info(name: str, meta: Mapping[str, Any]) -> ObjectInfo:
    """The facts that a store tells about an object. A list of Azure's has ETags without their quotes."""
    tag = meta["e_tag"]
    return ObjectInfo(name, meta["size"], f'"{tag}"' if tag and not tag.endswith('"') else tag)


def _parts(file: BinaryIO, part: int, sent: Callable[[int], None]) -> Iterator[bytes]:
    while data := file.read(part):
        yield data
        sent(len(data))
