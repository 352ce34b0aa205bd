"""FsspecObjects: the objects below a URL of a protocol that only fsspec knows (hdfs, sftp, hf, ...)."""

from __future__ import annotations

import asyncio
import concurrent.futures
import os
import threading
import weakref
from collections.abc import Callable, Mapping
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from typing_extensions import Buffer

from fastload.common.urls import shown
from fastload.errors import ArgumentError, ClosedError, RemoteError
from fastload.remote.failures import (
    REPLACED,
    STALL_S,
    Failure,
    Tries,
    of_exception,
    wrong_length,
    wrong_size,
)
from fastload.remote.objects import LimitedThreads, Listing, ObjectInfo, Objects, Wrong

if TYPE_CHECKING:
    from fsspec import AbstractFileSystem

R = TypeVar("R")

THREADS = 8
_UPLOAD_SUFFIX = ".fastload-upload"


class FsspecObjects(Objects):
    """The objects below one URL, read and written by a file system of fsspec.

    The file system's calls block, and nothing cancels them. So each runs in one of THREADS threads, and the
    caller waits for its result until the timeout. Several threads may call one file system only if asyncio
    runs inside it. Of any other, each thread has its own file system with its own connection, which it opens
    again after a failure: two threads in paramiko's SFTP take each other's answers, and wait for ever.
    """

    def __init__(self, url: str, options: Mapping[str, object], timeout: float) -> None:
        super().__init__(timeout)
        self.url = shown(url).rstrip("/")
        self._pid = os.getpid()
        self._closed = False
        self._ended = threading.Event()  # set by close(): a pause between two tries ends
        self._threads = LimitedThreads(THREADS, "fastload-fsspec")
        self._open = partial(_opened, url, dict(options))
        self._own = threading.local()
        self._shared: AbstractFileSystem | None = None
        self._all_own: weakref.WeakSet[AbstractFileSystem] = weakref.WeakSet()
        self._waited: set[concurrent.futures.Future[Any]] = set()  # results that blocking calls wait for
        self._root = self._run(self._opened_first, self._tries("opening", ""), "")

    def get(self, name: str, limit: int, wrong: Wrong | None = None, within: float | None = None) -> bytes:
        """The whole object, of at most `limit` bytes."""
        path = self._path(name)

        def whole() -> tuple[int, bytes | None]:
            size = int(self._fs.info(path)["size"])
            return size, bytes(self._fs.cat_file(path)) if size <= limit else None

        def failure_of(found: tuple[int, bytes | None]) -> Failure | None:
            size, data = found
            return (
                None if data is None else wrong_length(data, size) or (None if wrong is None else wrong(data))
            )

        size, data = self._run(whole, self._tries("reading", name, within=within), name, failure_of)
        if data is None or len(data) > limit:
            raise RemoteError(
                f"{self._place(name)} has {size} bytes, and at most {limit} were expected there",
                url=self._place(name),
            )
        return data

    def get_range(
        self, name: str, start: int, stop: int, wrong: Wrong | None = None, etag: str | None = None
    ) -> Buffer:
        """Bytes start .. stop-1 of an object. No file system takes a condition: its `etag` is asked for
        afterwards."""
        if start >= stop:
            return b""
        read = self._reading(name, start, stop, etag)

        def failure_of(found: tuple[Buffer, str | None]) -> Failure | None:
            body, tag = found
            if tag != etag:
                return REPLACED
            return wrong_length(body, stop - start) or (None if wrong is None else wrong(body))

        return self._run(read, self._tries(f"reading bytes {start}-{stop - 1} of", name), name, failure_of)[0]

    def _reading(
        self, name: str, start: int, stop: int, etag: str | None
    ) -> Callable[[], tuple[Buffer, str | None]]:
        """Reads bytes of an object, and then, if one is asked for, its ETag."""
        path = self._path(name)

        def read() -> tuple[Buffer, str | None]:
            body = self._fs.cat_file(path, start=start, end=stop)
            return body, None if etag is None else _info(name, self._fs.info(path)).etag

        return read

    async def fetch(
        self, name: str, start: int, stop: int, wrong: Wrong | None = None, etag: str | None = None
    ) -> Buffer:
        """Awaits bytes start .. stop-1 of an object."""
        if start >= stop:
            return b""
        read = self._reading(name, start, stop, etag)
        tries = self._tries(f"reading bytes {start}-{stop - 1} of", name)
        with self._stalls.watch(tries, asyncio.get_running_loop()):
            while True:
                self._check()
                future = self._submit(read)
                try:
                    body, tag = await asyncio.wait_for(asyncio.wrap_future(future), max(tries.left(), 0.001))
                    failure = REPLACED if tag != etag else wrong_length(body, stop - start)
                except asyncio.CancelledError:
                    self._threads.give_up(future)
                    raise
                except Exception as error:
                    self._threads.give_up(future)
                    failure = _failure(error)
                if failure is None and wrong is not None:
                    failure = wrong(body)
                if failure is None:
                    return body
                pause = tries.pause(failure)
                await self._check_replaced(tries, failure, name, pause < 0)
                if pause < 0:
                    raise tries.error(failure)
                await asyncio.sleep(pause)

    def head(self, name: str, known: bool = False, wrong: Wrong | None = None) -> ObjectInfo:
        """Size of an object, and its ETag if the file system has one."""
        path = self._path(name)

        def failure_of(info: ObjectInfo) -> Failure | None:
            return None if wrong is None else wrong(info)

        return self._run(
            lambda: _info(name, self._fs.info(path)),
            self._tries("looking up", name, known=known),
            name,
            failure_of,
        )

    def listing(self) -> Listing:
        """All objects below the URL."""
        root = self._root.rstrip("/")

        def names() -> dict[str, Any]:
            self._fs.invalidate_cache()
            found: dict[str, Any] = self._fs.find(root, detail=True)
            return found

        found = self._run(names, self._tries("listing", "", "list"), "", access="list")
        below = {
            str(path)[len(root) :].lstrip("/"): info
            for path, info in found.items()
            if str(path).startswith(f"{root}/")
        }
        listing = Listing()
        for name, info in below.items():
            if not name.endswith(_UPLOAD_SUFFIX):
                listing.add(_info(name, info))
        return listing.sealed()

    def put(self, name: str, data: bytes) -> None:
        """Writes a small object."""
        self._written(name, lambda path: self._fs.pipe_file(path, data), "writing")

    def put_file(self, name: str, path: Path, sent: Callable[[int], None] | None = None) -> None:
        """Uploads a file. `sent` is called with its size at the end, since fsspec's file systems report no
        parts."""
        size = path.stat().st_size
        self._written(name, lambda there: self._fs.put_file(str(path), there), "uploading")
        self.head(name, True, lambda info: wrong_size(info.size, size))
        if sent is not None:
            sent(size)

    def _written(self, name: str, write: Callable[[str], object], doing: str) -> None:
        """Writes under another name and renames: file systems show a file from its first byte on."""
        path = self._path(name)

        def whole() -> None:
            self._fs.makedirs(path.rpartition("/")[0], exist_ok=True)
            write(path + _UPLOAD_SUFFIX)
            self._fs.mv(path + _UPLOAD_SUFFIX, path)
            self._fs.invalidate_cache()

        self._run(whole, self._tries(doing, name, "write"), name, access="write")

    def delete(self, name: str) -> None:
        """Removes an object; it is no error if there is none."""
        path = self._path(name)

        def remove() -> None:
            if self._fs.exists(path):
                self._fs.rm_file(path)

        self._run(remove, self._tries("deleting", name, "delete"), name, access="delete")

    def close(self) -> None:
        """Ends the threads and their connections; idempotent. In a forked child it does nothing: they are
        the parent's."""
        if not self._closed and os.getpid() == self._pid:
            self._closed = True
            self._ended.set()
            for each in list(self._waited):
                _settle(each, ClosedError(f"{self.url} was closed while it was used"))
            self._threads.close()
            for fs in list(self._all_own):
                _disconnect(fs)

    def _opened_first(self) -> str:
        """Opens the file system, for this thread or for all; returns the URL's path in it."""
        fs, root = self._open()
        if getattr(fs, "async_impl", False):
            self._shared = fs
        else:
            self._keep(fs)
        return root

    def _keep(self, fs: AbstractFileSystem) -> None:
        self._own.fs = fs
        self._all_own.add(fs)
        if self._closed:  # by another thread, while this one connected
            _disconnect(fs)
            raise ClosedError(f"{self.url} is closed")

    @property
    def _fs(self) -> AbstractFileSystem:
        """The file system of the calling thread, which is one of `_threads`."""
        if self._shared is not None:
            return self._shared
        if getattr(self._own, "fs", None) is None:
            self._check()
            self._keep(self._open()[0])
        return self._own.fs

    def _submit(self, request: Callable[[], R]) -> concurrent.futures.Future[R]:
        def attempt() -> R:
            try:
                return request()
            except FileNotFoundError:
                raise
            except Exception:
                lost, self._own.fs = getattr(self._own, "fs", None), None  # its connection may be lost
                _disconnect(lost)
                raise

        return self._threads.submit(attempt)

    def _path(self, name: str) -> str:
        if any(part in ("", ".", "..") for part in name.split("/")):
            raise ArgumentError("a name of an object has an empty part or dots in its path")
        return f"{self._root.rstrip('/')}/{name}"

    def _check(self) -> None:
        if os.getpid() != self._pid:
            raise ClosedError(
                f"{self.url} was opened by another process (pid {self._pid}): connections are not "
                "shared; open it anew here"
            )
        if self._closed:
            raise ClosedError(f"{self.url} is closed")

    def _run(
        self,
        request: Callable[[], R],
        tries: Tries,
        name: str,
        wrong: Callable[[R], Failure | None] = lambda _: None,
        access: str = "",
    ) -> R:
        """Returns the request's result. A request is tried again where that can help, and waited for until
        the timeout."""
        with self._stalls.watch(tries):
            while True:
                self._check()
                future = self._submit(request)
                try:
                    result = self._result(future, tries)
                    failure = wrong(result)
                except Exception as error:
                    self._threads.give_up(future)
                    failure = _failure(error)
                except BaseException:
                    self._threads.give_up(future)
                    raise
                if failure is None:
                    if access:
                        self._granted.add(access)
                    return result
                pause = tries.pause(failure)
                self._check_replaced_now(tries, failure, name, pause < 0)
                if pause < 0:
                    raise tries.error(failure)
                self._ended.wait(pause)
                self._stalls.report()

    def _result(self, future: concurrent.futures.Future[R], tries: Tries) -> R:
        """Waits for the result of a call until the timeout or `close`. Nothing cancels the call."""
        waited: concurrent.futures.Future[R] = concurrent.futures.Future()
        future.add_done_callback(lambda done: _settle(waited, done))
        self._waited.add(waited)
        try:
            self._check()
            while (left := tries.left()) > STALL_S and not concurrent.futures.wait([waited], STALL_S).done:
                self._stalls.report()
            return waited.result(max(left, 0.001))
        finally:
            self._waited.discard(waited)


def _settle(waited: concurrent.futures.Future[R], outcome: concurrent.futures.Future[R] | Exception) -> None:
    """Ends a wait with the outcome of a call, or with an exception, unless the wait has ended."""
    with suppress(concurrent.futures.InvalidStateError):
        if isinstance(outcome, Exception):
            waited.set_exception(outcome)
        elif outcome.cancelled():
            waited.cancel()
        elif (error := outcome.exception()) is not None:
            waited.set_exception(error)
        else:
            waited.set_result(outcome.result())


def _opened(url: str, options: Mapping[str, object]) -> tuple[AbstractFileSystem, str]:
    """Opens a file system for this client alone, and returns it with the URL's path; fsspec's own are
    shared, also with forked children."""
    from fsspec.core import url_to_fs

    fs, root = url_to_fs(url, skip_instance_cache=True, **options)
    return fs, str(root)


def _disconnect(fs: AbstractFileSystem | None) -> None:
    """Closes the connection of a file system; fsspec has no call for that."""
    for name in ("client", "ftp"):  # client: of sftp and smb; ftp: of ftp
        with suppress(Exception):
            getattr(fs, name).close()


def _failure(error: Exception) -> Failure:
    """Describes an exception of a file system in fastload's words: its own text may hold secrets of the
    URL or the options."""
    if isinstance(error, ClosedError):
        raise error
    if (found := of_exception(error)) is not None:
        return found
    if "Auth" in type(error).__name__:
        return Failure("denied", "access denied", replaced=True)
    if isinstance(error, (ImportError, ValueError, TypeError, NotImplementedError)):
        if isinstance(error, ValueError) and "Protocol not known" in str(error):
            return Failure(
                "refused",
                "fsspec knows no such protocol",
                "check the URL's beginning: s3, gs, az and https need no fsspec",
            )
        wanted = f" the module {error.name}" if isinstance(error, ImportError) and error.name else ""
        return Failure(
            "refused",
            f"fsspec cannot serve it ({type(error).__name__}{wanted})",
            "install what the protocol needs, or check its options",
        )
    return Failure("again", f"the file system failed ({type(error).__name__})")


def _info(name: str, info: Mapping[str, Any]) -> ObjectInfo:
    etag = info.get("ETag") or info.get("etag") or info.get("sha256") or info.get("blob_id")
    changed = info.get("mtime") or info.get("modified") or info.get("LastModified")
    return ObjectInfo(name, int(info["size"]), str(etag or changed) if etag or changed else None)
