"""Objects: the interface to the objects below one URL, which the clients of obstore and fsspec implement; failures, tries and threads.

NOTE [ failures: secrets stay out of messages ]
Obstore's texts contain the requested URL, with a SAS token, a presigned query or user:password in it, and the server's answer. None of
that text is repeated. A failure is described in fastload's own words, which the text, the status and the server's error code select; the
code itself is shown if it is one plain word. RemoteError is raised outside of the `except` block, so that no traceback shows obstore's text
as its context.
"""

from __future__ import annotations

import queue
import random
import re
import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, TypeVar

from typing_extensions import Buffer

from fastload.errors import ClosedError, RemoteError, RemoteMissingError

FIRST_PAUSE = 0.1
"""Seconds before the second try; each further pause is twice as long, less a random part of up to half."""
FIRST_PAUSE_BUSY = 1.0
"""Seconds before the second try after 429 and 503: the server asks for fewer requests."""
LONGEST_PAUSE = 16.0

_STATUS = re.compile(r"status code: ([1-5]\d\d)\b")
_PROVIDER = re.compile(r"External \w+ credential provider: (\w{1,60})")
# Exceptions of a provider that is wrong itself, or whose result is no credential: trying again cannot help.
_WRONG_PROVIDER = frozenset({"KeyError", "TypeError", "ValueError", "AttributeError", "NameError", "ImportError", "ModuleNotFoundError"})
_CODE = re.compile(r"<Code>([A-Za-z0-9.]{1,60})</Code>")
_AGAIN_STATUS = frozenset({408, 409, 425, 429, 500, 502, 503, 504})
_DENIED_CODES = frozenset({"ExpiredToken", "InvalidToken", "TokenRefreshRequired", "InvalidAccessKeyId", "ExpiredTokenException"})
# Servers where instances of a cloud get their credentials; obstore asks them when the options and the environment have none.
_METADATA_SERVERS = ("169.254.169.254", "metadata.google.internal", "metadata/computeMetadata")

_CHECK_ACCESS = (
    "check the credentials (they may have expired), the endpoint and region in storage_options or the environment, and that they may read "
    "and write there"
)

Kind = Literal["again", "busy", "missing", "denied", "final"]


@dataclass(frozen=True)
class Failure:
    """Description of one failed try.

    Attributes:
        kind: "again": a later try may succeed; "busy": the same, and the server wants fewer requests; "missing": there is no such object or
            bucket; "denied": the credentials do not give access; "final": trying again cannot help.
        words: the event, in words.
        advice: advice to the user; "": the kind's own.
    """

    kind: Kind
    words: str
    advice: str = ""


# Text in obstore's message -> failure; the first match counts. Order: from the specific to the general.
_BY_TEXT: tuple[tuple[str, Failure], ...] = (
    ("incorrectly configured region", Failure("final", "the server redirects to nowhere", "set the bucket's region in storage_options")),
    (
        "Range request not supported",
        Failure("final", "the server ignores ranges", "serve the data with a server that answers range requests"),
    ),
    ("non-partial response", Failure("final", "the server ignores ranges", "serve the data with a server that answers range requests")),
    ("UnexpectedRange", Failure("again", "the server sent another range than was asked for")),
    ("NoContentRange", Failure("again", "the server did not say which range it sent")),
    ("InvalidCertificate", Failure("final", "its certificate is not trusted", "")),
    ("invalid peer certificate", Failure("final", "its certificate is not trusted", "")),
    ("dns error", Failure("again", "its host name cannot be resolved", "check the URL, the endpoint in storage_options and the network")),
    ("ConnectionRefused", Failure("again", "the connection was refused")),
    ("kind: Timeout", Failure("again", "the server was silent for too long")),
    ("TimedOut", Failure("again", "the server was silent for too long")),
    ("kind: Interrupted", Failure("again", "the connection broke in the middle of the answer")),
    ("kind: Connect", Failure("again", "no connection could be made")),
    ("kind: Decode", Failure("again", "the answer could not be decoded")),
    ("kind: Body", Failure("again", "the connection broke in the middle of the answer")),
    ("BadScheme", Failure("final", "the endpoint is http and only https is allowed", "set client_options={'allow_http': True}")),
    ("kind: Request", Failure("again", "the connection broke before the answer")),
    ("HttpError", Failure("again", "the connection failed")),
)
_CERTIFICATE_ADVICE = "give the authority's certificate as storage_options={'client_options': {'root_certificate': PEM}}"


def of_message(text: str) -> Failure:
    """The failure that the text of an obstore exception describes."""
    if found := _PROVIDER.search(text):
        words = f"storage_options['credential_provider'] failed ({found[1]})"
        kind: Kind = "final" if found[1] in _WRONG_PROVIDER else "again"
        return Failure(kind, words, "check what it calls, and that it returns credentials as obstore takes them")
    if any(server in text for server in _METADATA_SERVERS):
        return Failure("denied", "no credentials were found in storage_options or the environment, and no cloud instance gave any")
    if found := _STATUS.search(text):
        return of_status(int(found[1]), code[1] if (code := _CODE.search(text)) else "")
    for part, failure in _BY_TEXT:
        if part in text:
            return failure if "certificate" not in failure.words else Failure("final", failure.words, _CERTIFICATE_ADVICE)
    return Failure("again", "the request failed in a way that has no name here")


def of_status(status: int, code: str = "") -> Failure:
    """The failure that an HTTP status means. `code`: the server's own error code."""
    words = f"the server answered {status}" + (f" ({code})" if code else "")
    if status in (401, 403) or code in _DENIED_CODES:
        return Failure("denied", f"access denied: {words}")
    if status == 404:
        return Failure("missing", words)
    if status == 416:
        return Failure(
            "final", "the object is shorter than that", "the dataset changed or is damaged: open it again, or check it with fastload verify"
        )
    if status in (429, 503):
        return Failure("busy", words)
    return Failure("again" if status in _AGAIN_STATUS or status >= 505 else "final", words)


class Tries:
    """The tries of one call: counts them, returns the pause before the next, and makes the error after the last.

    Args:
        doing: action of the call, as in "reading bytes 0-99 of".
        url: URL of the object, without secrets.
        timeout: seconds within which tries begin. They are counted anew after a try that took twice as long, which no try can: then the
            process was stopped (by a scheduler, or its machine slept), and the server is not to blame.
    """

    def __init__(self, doing: str, url: str, timeout: float) -> None:
        self.doing = doing
        self.url = url
        self.timeout = timeout
        self.count = 1
        self._began = self._tried = time.monotonic()
        self._renewed = False

    def left(self) -> float:
        """Seconds until `timeout`."""
        return self._began + self.timeout - time.monotonic()

    def renew_credentials(self, failure: Failure) -> bool:
        """Returns True if the next try needs no pause but a new store, with new credentials: once a call, after access was denied."""
        renew = failure.kind == "denied" and not self._renewed
        if renew:
            self._renewed = True
            self.count += 1
        return renew

    def pause(self, failure: Failure) -> float:
        """Seconds to wait before the next try; negative: there is none.

        obstore does not show the headers of an answer, and its own retries do not heed them, so Retry-After is unknown. After 429 and 503
        the pauses therefore begin ten times as long, and a client's calls take turns (`fastload.remote.obstore`).
        """
        if failure.kind not in ("again", "busy"):
            return -1.0
        now = time.monotonic()
        if now - self._tried > 2 * self.timeout:
            self._began = now
        first = FIRST_PAUSE_BUSY if failure.kind == "busy" else FIRST_PAUSE
        longest = min(first * 2.0 ** (self.count - 1), LONGEST_PAUSE)
        left = self.left()
        if left < FIRST_PAUSE:
            return -1.0
        self.count += 1
        pause = min(longest * random.uniform(0.5, 1.0), left / 2)
        self._tried = now + pause
        return pause

    def error(self, failure: Failure) -> RemoteError:
        """The exception that this call raises after its last try."""
        passed = time.monotonic() - self._began
        tries = "1 try" if self.count == 1 else f"{self.count} tries"
        text = f"{self.doing} {self.url} failed after {tries} in {passed:.1f} s: {failure.words}; {failure.advice or self._advice(failure)}"
        kind = RemoteMissingError if failure.kind == "missing" else RemoteError
        return kind(text, url=self.url, tries=self.count)

    def _advice(self, failure: Failure) -> str:
        if failure.kind == "missing":
            return "check the URL and the bucket's name, and that the object was not deleted"
        if failure.kind == "denied":
            return _CHECK_ACCESS
        if failure.kind == "final":
            return "check the URL and storage_options"
        return f"check that the server can be reached, or give it longer than timeout={self.timeout:g}"


def wrong_length(body: Buffer | Failure, expected: int) -> Failure | None:
    """The failure of a body with more or fewer bytes than were asked for; None if the length is right."""
    if isinstance(body, Failure):
        return body
    length = len(body)  # type: ignore[arg-type]
    if length == expected:
        return None
    # A store cuts a range at the object's end and reports no error.
    words = f"{length} of {expected} bytes came, since the object ends there"
    return Failure("final", words, "the dataset changed or is damaged: open it again, or check it with fastload verify")


def remote_error(url: str, failure: BaseException) -> RemoteError:
    """The RemoteError for a failure: a RemoteError as it is; of any other, one that names the dataset's URL."""
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


class Objects(ABC):
    """Interface to the objects below one URL.

    1. An instance belongs to the process that made it: two processes never share a connection. A forked child calls `open_objects` itself.
    2. Any thread may call the blocking methods. `fetch` is awaited on a running asyncio loop; cancelling it ends the request.
    3. Each call is tried again, with a growing pause, until `timeout` seconds have passed since it began. Then RemoteError says what
       failed, where, and after how many tries. Errors that no further try can mend (no such object, access denied) are raised at once.
    4. A body that is shorter or longer than the range is a failed try, never a result.

    Attributes:
        url: the URL for messages: without credentials, and without a slash at its end.
    """

    url: str

    @abstractmethod
    def get(self, name: str, limit: int) -> bytes:
        """Reads a whole object. Raises RemoteError, also for more than `limit` bytes; RemoteMissingError if there is no such object."""

    @abstractmethod
    def get_range(self, name: str, start: int, stop: int) -> Buffer:
        """Reads bytes start .. stop-1 of an object as it is now. It may differ from the one that was opened: checksums tell."""

    @abstractmethod
    async def fetch(self, name: str, start: int, stop: int) -> Buffer:
        """Awaits bytes start .. stop-1 of an object; as `get_range`."""

    @abstractmethod
    def head(self, name: str) -> ObjectInfo:
        """Size and ETag of an object."""

    @abstractmethod
    def list(self) -> list[ObjectInfo]:
        """All objects below the URL."""

    @abstractmethod
    def put(self, name: str, data: bytes) -> None:
        """Writes a small object in one request."""

    @abstractmethod
    def put_file(self, name: str, path: Path, sent: Callable[[int], None] | None = None) -> None:
        """Uploads a file, in parts if it is large. An interrupted upload leaves no object. `sent` is called with the bytes of each part."""

    @abstractmethod
    def delete(self, name: str) -> None:
        """Removes an object; it is no error if there is none."""

    @abstractmethod
    def close(self) -> None:
        """Ends connections; idempotent."""


R = TypeVar("R")

MOST_LOST = 32


class LimitedThreads:
    """A few threads for blocking calls that nothing can cancel.

    A call that its caller gave up keeps its thread, and another thread takes that one's place; after MOST_LOST such calls, no further one
    does. Threads are daemons: unlike the threads of concurrent.futures, they let the program end while a call never returns. After close()
    no call is accepted, since no thread would run it.
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

    An exception in the block, Ctrl-C among them, closes the client: its calls then end at once, even if the server does not answer.
    """
    with ThreadPoolExecutor(count, name) as pool:
        try:
            yield pool
        except BaseException:
            pool.shutdown(wait=False, cancel_futures=True)
            objects.close()
            raise
