"""Objects: the interface to the objects below one URL, which the clients of obstore and fsspec implement;
and threads for their calls."""

from __future__ import annotations

import asyncio
import concurrent.futures
import marshal
import queue
import threading
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol, TypeVar

from typing_extensions import Buffer

from fastload.common.spill import Texts, TextSorter, decoded, encoded
from fastload.errors import ClosedError, RemoteError
from fastload.remote.failures import Failure, Stalls, Tries


def remote_error(url: str, failure: BaseException) -> RemoteError:
    """The RemoteError for a failure: a RemoteError as it is; of any other, one that names the dataset's
    URL."""
    if isinstance(failure, RemoteError):
        return failure
    return RemoteError(f"{url} cannot be read ({type(failure).__name__}: {failure})", url=url)


@dataclass(frozen=True)
class ObjectInfo:
    """One object in a store.

    Attributes:
        name: name relative to the URL, without a leading slash.
        size: size in bytes.
        etag: the store's tag of the object's content; None if the store has none.
    """

    name: str
    size: int
    etag: str | None = None


class Listing(Iterable[ObjectInfo]):
    """The objects that a store lists, each once, by ascending names: added in any order, then sealed. Many
    lie in a temporary file."""

    def __init__(self) -> None:
        self._sorter, self._rows = TextSorter(), Texts()

    def add(self, info: ObjectInfo) -> None:
        """Adds an object."""
        self._sorter.add(encoded(info.name) + b"\0" + marshal.dumps((info.size, info.etag)))

    def sealed(self) -> Listing:
        """The listing, to which nothing is added any more."""
        before = None
        for text in self._sorter.drain():
            name = text.partition(b"\0")[0]
            if name != before:
                self._rows.append(text)
            before = name
        self._rows.seal()
        return self

    def __len__(self) -> int:
        return len(self._rows)

    def __iter__(self) -> Iterator[ObjectInfo]:
        for text in self._rows:
            name, _, rest = text.partition(b"\0")
            yield ObjectInfo(decoded(name), *marshal.loads(rest))


MOST = 10
"""Most ranges of one call of obstore, which has as many under way at once, and would ask for further ones
after them."""
ASKED_S = 5.0
"""Seconds to wait for the manifest that is read again between two tries."""
Wrong = Callable[[Any], Failure | None]
"""A check of an answer, which returns its failure; None: it is right, or another try would bring the same
again."""


class OpenedDataset(Protocol):
    """The dataset that was opened below a URL, as a client asks about it between tries: NOTE [ failures:
    which are tried again ]."""

    def ask(self) -> Future[None]:
        """Begins to read the manifest again; the future ends once the answer is there. An answer counts
        for some time."""

    def words(self, name: str, last: bool) -> str:
        """Text that says how the dataset of an object was changed, by the last answer; "": no change of it is
        known.

        `last`: no further try follows, so that a missing manifest counts too, which may be as transient as a
        missing object.
        """


class Objects(ABC):
    """Interface to the objects below one URL.

    1. An instance belongs to the process that made it: two processes never share a connection. A forked child
       calls `open_objects` itself.
    2. Any thread may call the blocking methods. `fetch` is awaited on a running asyncio loop; cancelling it
       ends the request.
    3. Each call is tried again, with a growing pause, until `timeout` seconds have passed since it began.
       Then RemoteError says what failed, where, and after how many tries. What is sure is raised at once:
       NOTE [ failures: which are tried again ].
    4. A body that is shorter or longer than the range is a failed try, never a result; so is one that `wrong`
       gives a failure for.
    5. A call that stalls is reported at INFO, once a minute for a client.

    Attributes:
        url: the URL for messages: without credentials, and without a slash at its end.
        opened: the dataset below the URL, once it was opened; None: none was yet.
        timeout: seconds within which a call is tried again.
    """

    url: str

    def __init__(self, timeout: float) -> None:
        self.opened: OpenedDataset | None = None
        self.timeout = timeout
        self._stalls = Stalls()
        self._granted: set[str] = set()

    def _tries(
        self, doing: str, name: str, access: str = "", known: bool = False, within: float | None = None
    ) -> Tries:
        """The tries of a call.

        Args:
            doing: action of the call, for messages.
            name: name of the object.
            access: kind of access that counts as granted by itself; "": reading, which opening a dataset
                shows to be granted.
            known: True if the object was written by this client.
            within: timeout of this call alone, for which no object is known.
        """
        known = known or (access in self._granted if access else self.opened is not None and within is None)
        return Tries(doing, self._place(name), self.timeout if within is None else within, known)

    def _place(self, name: str) -> str:
        return f"{self.url}/{name}" if name else self.url

    def _may_be_replaced(self, tries: Tries, failure: Failure, last: bool) -> OpenedDataset | None:
        """The dataset to be asked if it was replaced, after a failed try; None: nothing is asked."""
        asked = last or tries.count > (2 if failure.replaced else 5)
        return self.opened if asked and tries.known and failure.kind != "busy" else None

    async def _check_replaced(self, tries: Tries, failure: Failure, name: str, last: bool) -> None:
        """Raises RemoteError if the manifest at the URL does not name an object any more."""
        if (opened := self._may_be_replaced(tries, failure, last)) is not None:
            await asyncio.wait([asyncio.wrap_future(opened.ask())], timeout=ASKED_S)
            _raise_replaced(opened, tries, failure, name, last)

    def _check_replaced_now(self, tries: Tries, failure: Failure, name: str, last: bool) -> None:
        """Same as `_check_replaced`, in a thread that may wait."""
        if (opened := self._may_be_replaced(tries, failure, last)) is not None:
            concurrent.futures.wait([opened.ask()], timeout=ASKED_S)
            _raise_replaced(opened, tries, failure, name, last)

    @abstractmethod
    def get(self, name: str, limit: int, wrong: Wrong | None = None, within: float | None = None) -> bytes:
        """Reads a whole object. `wrong` checks its bytes; `within` is the timeout of this call, which takes
        no object for known.

        Raises RemoteError, also for more than `limit` bytes; RemoteMissingError if there is no such object.
        """

    @abstractmethod
    def get_range(
        self, name: str, start: int, stop: int, wrong: Wrong | None = None, etag: str | None = None
    ) -> Buffer:
        """Reads bytes start .. stop-1 of an object, checked by `wrong`: as it is now, which may differ from
        the one that was opened; with `etag` of that which has this tag alone."""

    @abstractmethod
    async def fetch(
        self, name: str, start: int, stop: int, wrong: Wrong | None = None, etag: str | None = None
    ) -> Buffer:
        """Awaits bytes start .. stop-1 of an object; as `get_range`."""

    @abstractmethod
    def head(self, name: str, known: bool = False, wrong: Wrong | None = None) -> ObjectInfo:
        """Size and ETag of an object. `known`: it was written before, so that it is there; `wrong` checks
        the answer."""

    def list(self) -> list[ObjectInfo]:
        """All objects below the URL, by their names."""
        return [*self.listing()]

    @abstractmethod
    def listing(self) -> Listing:
        """All objects below the URL, of which no process holds many."""

    @abstractmethod
    def put(self, name: str, data: bytes) -> None:
        """Writes a small object in one request."""

    @abstractmethod
    def put_file(self, name: str, path: Path, sent: Callable[[int], None] | None = None) -> None:
        """Uploads a file, in parts if it is large. An interrupted upload leaves no object. `sent` is
        called with the bytes of each part."""

    @abstractmethod
    def delete(self, name: str) -> None:
        """Removes an object; it is no error if there is none."""

    @abstractmethod
    def close(self) -> None:
        """Ends connections; idempotent."""


def _raise_replaced(opened: OpenedDataset, tries: Tries, failure: Failure, name: str, last: bool) -> None:
    if words := opened.words(name, last):
        raise tries.error(Failure("never", f"{failure.words}: {words}", "check the URL"))


R = TypeVar("R")

MOST_LOST = 32


class LimitedThreads:
    """A few threads for blocking calls that nothing can cancel.

    A call that its caller gave up keeps its thread, and another thread takes that one's place; after
    MOST_LOST such calls, no further one does. Threads are daemons: unlike the threads of concurrent.futures,
    they let the program end while a call never returns. After close() no call is accepted, since no thread
    would run it.
    """

    def __init__(self, count: int, name: str) -> None:
        self._calls: queue.SimpleQueue[tuple[Future[Any], Callable[[], Any]] | None] = queue.SimpleQueue()
        self._count = count
        self._name = name
        self._lock = threading.Lock()  # guards the fields below; nothing is queued behind the end
        self._closed = False
        self._started = 0
        self._lost = 0

    def submit(self, call: Callable[[], R]) -> Future[R]:
        """Starts a call as soon as a thread is free. Raises ClosedError after close()."""
        future: Future[R] = Future()
        with self._lock:
            if self._closed:
                raise ClosedError(f"the threads {self._name} were closed")
            start = self._started < self._count + self._lost
            self._started += start
            self._calls.put((future, call))
        if start:
            threading.Thread(target=self._run, name=self._name, daemon=True).start()
        return future

    def give_up(self, future: Future[Any]) -> None:
        """Notes that no caller waits for a call any more."""
        if not future.cancel() and not future.done():
            with self._lock:
                self._lost = min(self._lost + 1, MOST_LOST)

    def close(self) -> None:
        """Ends the threads after the calls that are queued."""
        with self._lock:
            self._closed = True
            for _ in range(self._started):
                self._calls.put(None)

    def _run(self) -> None:
        while (item := self._calls.get()) is not None:
            future, call = item
            del item
            if future.set_running_or_notify_cancel():
                try:
                    future.set_result(call())
                except BaseException as error:
                    future.set_exception(error)
            del future, call


@contextmanager
def request_threads(objects: Objects, count: int, name: str) -> Iterator[ThreadPoolExecutor]:
    """Context manager: threads that call a client's blocking methods.

    An exception in the block, Ctrl-C among them, closes the client: its calls then end at once, even if the
    server does not answer.
    """
    with ThreadPoolExecutor(count, name) as pool:
        try:
            yield pool
        except BaseException:
            pool.shutdown(wait=False, cancel_futures=True)
            objects.close()
            raise
