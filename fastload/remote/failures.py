"""Failures of a store's answers: what an answer means, whether another try may help, how long tries go on,
and reports of stalls.

NOTE [ failures: which are tried again ]
`is_sure` is the one rule for every answer of every store, whoever asks: readers, push, pull, verify, packs.
docs/architecture.md has it as a table, and each row has a test.
1. What may be another one's fault is a failed try, and is tried again for `timeout` seconds: a body that is
   short, long, empty or damaged, a whole object or another range in place of a range, a redirect that fails,
   a lost connection, silence, 5xx, 429.
2. That an object is missing or access is denied is sure while a dataset is opened, and ends the call. Once
   the dataset is open it has been read, so that its objects exist and access was granted: another answer is a
   failed try like any other. Writes count apart: access is granted with the first one that succeeds.
3. Where the dataset itself may have changed (`Failure.replaced`, and after some tries any answer but 429 and
   503), the manifest is read again between tries; one that does not name the object any more ends the call
   (`fastload.remote.replaced`).
4. Wrong bytes that come SAME_TIMES times, the same each time, are what the object holds. Bytes that are wrong
   in another way each time are damaged on their way.

NOTE [ failures: secrets stay out of messages ]
Obstore's texts contain the requested URL, with a SAS token, a presigned query or user:password in it, and the
server's answer. None of that text is repeated. A failure is described in fastload's own words, which the
text, the status and the server's error code select; the code itself is shown if it is one plain word.
RemoteError is raised outside of the `except` block, so that no traceback shows obstore's text as its context.
"""

from __future__ import annotations

import asyncio
import concurrent.futures
import logging
import re
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from random import SystemRandom
from typing import Literal

from typing_extensions import Buffer

from fastload._native import core
from fastload.errors import RemoteError, RemoteMissingError

FIRST_PAUSE = 0.1
"""Seconds before the second try; each further pause is twice as long, less a random part of up to half."""
FIRST_PAUSE_BUSY = 1.0
"""Seconds before the second try after 429 and 503: the server asks for fewer requests."""
LONGEST_PAUSE = 16.0
SAME_TIMES = 3
"""Times that the same wrong bytes come until they count as what the object holds."""

_STATUS = re.compile(r"status code: ([1-5]\d\d)\b")
_PROVIDER = re.compile(r"External \w+ credential provider: (\w{1,60})")
# Exceptions of a provider that is wrong itself, or whose result is no credential: trying again cannot help.
_WRONG_PROVIDER = frozenset(
    {
        "KeyError",
        "TypeError",
        "ValueError",
        "AttributeError",
        "NameError",
        "ImportError",
        "ModuleNotFoundError",
    }
)
_CODE = re.compile(r"<Code>([A-Za-z0-9.]{1,60})</Code>")
_DENIED_CODES = frozenset(
    {"ExpiredToken", "InvalidToken", "TokenRefreshRequired", "InvalidAccessKeyId", "ExpiredTokenException"}
)
# Codes of S3 for a request that was damaged or delayed on its way, which come with the status 400.
_DAMAGED_REQUEST = frozenset(
    {"BadDigest", "IncompleteBody", "InternalError", "RequestTimeout", "XAmzContentSHA256Mismatch"}
)
_AGAIN_STATUS = frozenset({408, 409, 425, 429})
# Servers where instances of a cloud get their credentials; obstore asks them when the options and the
# environment have none.
_METADATA_SERVERS = ("169.254.169.254", "metadata.google.internal", "metadata/computeMetadata")

_CHECK_ACCESS = (
    "check the credentials (they may have expired), the endpoint and region in storage_options or "
    "the environment, and that they may read "
    "and write there"
)
_CHANGED = "the dataset changed or is damaged: open it again, or check it with fastload verify"
_SERVE_RANGES = "serve the data with a server that answers range requests"

FailureKind = Literal["again", "busy", "missing", "denied", "refused", "never"]


@dataclass(frozen=True)
class Failure:
    """Description of one failed try. See NOTE [ failures: which are tried again ].

    Attributes:
        kind: "again": it may be another one's fault; "busy": the same, and the server wants fewer requests;
            "missing": there is no such object or bucket; "denied": the credentials do not give access;
            "refused": the server, or the client, refuses such a request; "never": no try can succeed.
        words: the event, in words.
        advice: advice to the user; "": the kind's own.
        replaced: True if the answer is also that of a dataset which was replaced or deleted.
    """

    kind: FailureKind
    words: str
    advice: str = ""
    replaced: bool = False


def is_sure(failure: Failure, known: bool) -> bool:
    """Returns True if no further try can help. `known`: such requests have succeeded before, so that they
    should now."""
    return failure.kind == "never" or (failure.kind in ("missing", "denied", "refused") and not known)


# Text in obstore's message -> failure; the first match counts. Order: from the specific to the general.
_BY_TEXT: tuple[tuple[str, Failure], ...] = (
    (
        "incorrectly configured region",
        Failure("again", "the server redirects to nowhere", "set the bucket's region in storage_options"),
    ),
    ("Range request not supported", Failure("again", "the server ignores ranges", _SERVE_RANGES)),
    ("non-partial response", Failure("again", "the server ignores ranges", _SERVE_RANGES)),
    ("UnexpectedRange", Failure("again", "the server sent another range than was asked for")),
    ("NoContentRange", Failure("again", "the server did not say which range it sent")),
    ("InvalidCertificate", Failure("refused", "its certificate is not trusted", "")),
    ("invalid peer certificate", Failure("refused", "its certificate is not trusted", "")),
    (
        "dns error",
        Failure(
            "again",
            "its host name cannot be resolved",
            "check the URL, the endpoint in storage_options and the network",
        ),
    ),
    ("ConnectionRefused", Failure("again", "the connection was refused")),
    ("kind: Timeout", Failure("again", "the server was silent for too long")),
    ("TimedOut", Failure("again", "the server was silent for too long")),
    ("kind: Interrupted", Failure("again", "the connection broke in the middle of the answer")),
    ("kind: Connect", Failure("again", "no connection could be made")),
    ("kind: Decode", Failure("again", "the answer could not be decoded")),
    ("kind: Body", Failure("again", "the connection broke in the middle of the answer")),
    (
        "BadScheme",
        Failure(
            "refused",
            "the endpoint is http and only https is allowed",
            "set client_options={'allow_http': True}",
        ),
    ),
    ("kind: Redirect", Failure("again", "the server redirects in a circle")),
    ("kind: Request", Failure("again", "the connection broke before the answer")),
    ("HttpError", Failure("again", "the connection failed")),
)
_CERTIFICATE_ADVICE = (
    "give the authority's certificate as storage_options={'client_options': {'root_certificate': PEM}}"
)


def of_message(text: str) -> Failure:
    """The failure that the text of an obstore exception describes."""
    if found := _PROVIDER.search(text):
        words = f"storage_options['credential_provider'] failed ({found[1]})"
        kind: FailureKind = "refused" if found[1] in _WRONG_PROVIDER else "again"
        return Failure(
            kind, words, "check what it calls, and that it returns credentials as obstore takes them"
        )
    if any(server in text for server in _METADATA_SERVERS):
        return Failure(
            "denied",
            "no credentials were found in storage_options or the environment, and no cloud instance gave any",
        )
    if found := _STATUS.search(text):
        return of_status(int(found[1]), code[1] if (code := _CODE.search(text)) else "")
    for part, failure in _BY_TEXT:
        if part in text:
            return (
                failure
                if "certificate" not in failure.words
                else Failure("refused", failure.words, _CERTIFICATE_ADVICE)
            )
    return Failure("again", "the request failed in a way that has no name here")


REPLACED = Failure(
    "never", "it was replaced, or changed, since it was first read", "begin anew with what is there"
)
"""Failure of reading an object that has another ETag by now."""


def of_status(status: int, code: str = "") -> Failure:
    """The failure that an HTTP status means. `code`: the server's own error code."""
    words = f"the server answered {status}" + (f" ({code})" if code else "")
    if status in (401, 403) or code in _DENIED_CODES:
        return Failure("denied", f"access denied: {words}", replaced=True)
    if status in (404, 410):
        return Failure("missing", words, replaced=True)
    if status == 412:
        return REPLACED
    if status == 416:
        return Failure("again", "the object is shorter than that", _CHANGED, replaced=True)
    if status in (429, 503):
        return Failure("busy", words)
    if 300 <= status < 400:
        return Failure(
            "again",
            f"a redirect failed: {words}",
            "check the URL, and the endpoint and region in storage_options",
        )
    again = status >= 500 or status < 300 or status in _AGAIN_STATUS or code in _DAMAGED_REQUEST
    return Failure("again" if again else "refused", words)


SILENCE = Failure("again", "the server was silent for too long, or too slow")
"""Failure of a try that got no answer within its time."""


def of_exception(error: Exception) -> Failure | None:
    """The failure that one of Python's own exceptions means, whichever client raised it; None: the client
    has to know."""
    if isinstance(error, (concurrent.futures.TimeoutError, asyncio.TimeoutError, TimeoutError)):
        return SILENCE
    if isinstance(error, (FileNotFoundError, IsADirectoryError)):
        return Failure("missing", "there is no such object or bucket", replaced=True)
    if isinstance(error, PermissionError):
        return Failure("denied", "access denied", replaced=True)
    return None


def wrong_length(body: Buffer, expected: int) -> Failure | None:
    """The failure of a body with more or fewer bytes than were asked for; None if the length is right."""
    length = memoryview(body).nbytes
    if length == expected:
        return None
    # A store cuts a range at the object's end and reports no error.
    words = f"{length} of {expected} bytes came: the object ends there, or the answer was cut"
    if length > expected:
        words = f"{length} bytes came where {expected} were asked for"
    return Failure("again", words, _CHANGED, replaced=True)


def wrong_size(there: int, size: int) -> Failure | None:
    """The failure of an uploaded object that has another size than its file; None if the size is right."""
    if there == size:
        return None
    return Failure(
        "again",
        f"the object has {there:,} bytes after its upload, and the file has {size:,}",
        "upload it again",
    )


class BytesCheck:
    """A check of one request's bytes, which a client makes after each try: it tells damage on the way from
    damage of the object.

    Args:
        holds: returns True if bytes are those of the dataset.

    Attributes:
        damaged: True if the last bytes were wrong, and count as what the object holds.
    """

    def __init__(self, holds: Callable[[Buffer], bool]) -> None:
        self.damaged = False
        self._holds = holds
        self._crc = -1
        self._times = 0

    def __call__(self, body: Buffer) -> Failure | None:
        """The failure of wrong bytes; None if they are right, or came SAME_TIMES times, so that another
        try would bring them again."""
        if self._holds(body):
            self.damaged = False
            return None
        crc = core.crc32c(memoryview(body))
        self._times = self._times + 1 if crc == self._crc else 1
        self._crc = crc
        if self._times >= SAME_TIMES:
            self.damaged = True
            return None
        return Failure(
            "again",
            "the bytes that came are not those of the dataset (CRC32C differs)",
            _CHANGED,
            replaced=True,
        )


class Tries:
    """The tries of one call: counts them, returns the pause before the next, and makes the error after the
    last.

    Args:
        doing: action of the call, as in "reading bytes 0-99 of".
        url: URL of the object, without secrets.
        timeout: seconds within which tries begin. They are counted anew after a try that took twice as long,
            which no try can: then the process was stopped (by a scheduler, or its machine slept), and the
            server is not to blame.
        known: True if such requests have succeeded before: see `is_sure`.

    Attributes:
        count: number of tries so far.
        last: failure of the last try; None: none has failed.
        moved: time at which the call began, or bytes of it were last known to come or go.
    """

    def __init__(self, doing: str, url: str, timeout: float, known: bool = False) -> None:
        self.doing = doing
        self.url = url
        self.timeout = timeout
        self.known = known
        self.count = 1
        self.last: Failure | None = None
        self._answer: Failure | None = None  # the last failure but silence
        self._began = self._tried = self.moved = time.monotonic()
        self._renewed = False

    def left(self) -> float:
        """Seconds until `timeout`."""
        return self._began + self.timeout - time.monotonic()

    def progress(self) -> None:
        """Notes that bytes have come or gone: the call does not stall."""
        self.moved = time.monotonic()

    def renew_credentials(self, failure: Failure) -> bool:
        """Returns True if the next try needs no pause but a new store, with new credentials: once a call,
        after access was denied."""
        renew = failure.kind == "denied" and not self._renewed
        if renew:
            self._renewed = True
            self.count += 1
            self._note(failure)
        return renew

    def pause(self, failure: Failure) -> float:
        """Seconds to wait before the next try; negative: there is none.

        obstore does not show the headers of an answer, and its own retries do not heed them, so Retry-After
        is unknown. After 429 and 503 the pauses therefore begin ten times as long, and a client's calls take
        turns (`fastload.remote.obstore`).
        """
        self._note(failure)
        if is_sure(failure, self.known):
            return -1.0
        now = time.monotonic()
        if now - self._tried > 2 * self.timeout:
            self._began = now
        first = FIRST_PAUSE_BUSY if failure.kind == "busy" else FIRST_PAUSE
        longest = min(first * 2.0 ** min(self.count - 1, 64), LONGEST_PAUSE)
        left = self.left()
        if left < FIRST_PAUSE:
            return -1.0
        self.count += 1
        pause = min(shortened(longest), left / 2)
        self._tried = now + pause
        return pause

    def error(self, failure: Failure) -> RemoteError:
        """The exception that this call raises after its last try. `failure`: that try's.

        The last tries have little time. Silence of one that had less than half of `timeout` says nothing of
        the server, so that an earlier answer is named in its place.
        """
        now = time.monotonic()
        passed = now - self._began
        if failure is SILENCE and self._answer is not None and now - self._tried < self.timeout / 2:
            failure = self._answer
        text = f"{self.doing} {self.url} failed after {self._counted()} in {passed:.1f} s: {failure.words}"
        if advice := failure.advice or self._advice(failure):
            text = f"{text}; {advice}"
        kind = RemoteMissingError if failure.kind == "missing" else RemoteError
        return kind(text, url=self.url, tries=self.count, sure=is_sure(failure, known=False))

    def _note(self, failure: Failure) -> None:
        self.last = failure
        if failure is not SILENCE:
            self._answer = failure

    def stalled(self, others: int) -> str:
        """Report of a call for which nothing has come or gone for long. `others`: number of other such
        calls."""
        now = time.monotonic()
        cause = f"the last one: {self.last.words}" if self.last is not None else "no answer has come yet"
        more = f"; so do {others:,} other calls" if others else ""
        left = max(self._began + self.timeout - now, 0.0)
        return (
            f"{self.doing} {self.url} has stalled for {now - self.moved:.0f} s ({self._counted()}, "
            f"{cause}), {left:.0f} s are left{more}"
        )

    def _counted(self) -> str:
        return "1 try" if self.count == 1 else f"{self.count} tries"

    def _advice(self, failure: Failure) -> str:
        if failure.kind == "missing":
            return "check the URL and the bucket's name, and that the object was not deleted"
        if failure.kind == "denied":
            return _CHECK_ACCESS
        if failure.kind in ("refused", "never"):
            return "check the URL and storage_options"
        return f"check that the server can be reached, or give it longer than timeout={self.timeout:g}"


STALL_S = 60.0
"""Seconds without a byte after which a call counts as stalled, and between two reports of a client."""
_SOON = 0.99
_log = logging.getLogger("fastload")


def shortened(pause: float) -> float:
    """A pause less up to half of it. The system draws: threads wait here beside a loop that draws from
    Python's generator."""
    return pause * SystemRandom().uniform(0.5, 1.0)


class Stalls:
    """Reports the calls of one client that stall: one line at INFO each STALL_S, with the call that has
    stalled longest.

    Any thread may call it. `watch` goes around a call; `report` is called now and then while calls are under
    way.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()  # guards the two below
        self._running: set[Tries] = set()
        self._reported = -STALL_S

    def watch(self, tries: Tries, loop: asyncio.AbstractEventLoop | None = None) -> Watch:
        """A context manager around a call. `loop`: the loop on which it is awaited, where `report` is
        called for it; None: it blocks."""
        return Watch(self, tries, loop)

    def begin(self, tries: Tries) -> None:
        """Notes a call that begins."""
        with self._lock:
            self._running.add(tries)

    def end(self, tries: Tries) -> None:
        """Notes a call that ends."""
        with self._lock:
            self._running.discard(tries)

    def report(self) -> None:
        """Reports the call that has stalled longest, unless a report was made less than STALL_S ago, or no
        call has stalled so long."""
        now, least = time.monotonic(), _SOON * STALL_S
        with self._lock:
            stalled = [each for each in self._running if now - each.moved >= least]
            if not stalled or now - self._reported < least:
                return
            self._reported = now
        _log.info("%s", min(stalled, key=lambda each: each.moved).stalled(len(stalled) - 1))


class Watch:
    """Context manager of `Stalls.watch`."""

    __slots__ = ("_loop", "_stalls", "_timer", "_tries")

    def __init__(self, stalls: Stalls, tries: Tries, loop: asyncio.AbstractEventLoop | None) -> None:
        self._stalls, self._tries, self._loop = stalls, tries, loop
        self._timer: asyncio.TimerHandle | None = None

    def __enter__(self) -> None:
        self._stalls.begin(self._tries)
        self._arm()

    def __exit__(self, *_: object) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._stalls.end(self._tries)

    def _arm(self) -> None:
        if self._loop is not None:
            self._timer = self._loop.call_later(STALL_S, self._due)

    def _due(self) -> None:
        self._stalls.report()
        self._arm()
