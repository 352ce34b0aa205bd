"""One family of exceptions; each message says what happened, to which file or sample, and what to do.

Every class is also the built-in exception that a reader of torch's DataLoader code would catch.

Computed: a read-only attribute of a class that users derive from.

Text that came out of a file, made fit for a terminal.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, Generic, TypeVar, overload

__all__ = [
    "ArgumentError",
    "BatchShapeError",
    "ClosedError",
    "DatasetError",
    "FastloadError",
    "LoaderTimeout",
    "PackError",
    "PackStoppedError",
    "RemoteError",
    "RemoteMissingError",
    "ResourceError",
    "SampleError",
    "TransformError",
    "UnavailableError",
    "WorkerError",
]
T = TypeVar("T")


class Computed(Generic[T]):
    """A computed attribute that gives way: where an instance, or a subclass, sets an attribute of that name,
    theirs is found.

    A property would raise AttributeError at the assignment.
    """

    def __init__(self, get: Callable[[Any], T], doc: str | None = None) -> None:
        self._get = get
        self.__doc__ = get.__doc__ if doc is None else doc

    @overload
    def __get__(self, instance: None, owner: type | None = None) -> Computed[T]: ...
    @overload
    def __get__(self, instance: object, owner: type | None = None) -> T: ...
    def __get__(self, instance: object, owner: type | None = None) -> Computed[T] | T:
        return self if instance is None else self._get(instance)


def printable(text: object, keep: str = "") -> str:
    r"""Text with every character that is no plain printable one written as an escape: ``\x1b``, ``\u202e``,
    ``\udcff``.

    Names of classes, files and fields can be anything; written raw, a terminal obeys the control sequences
    among them, direction marks make a name look like another, and lone surrogates (bytes of a path that are
    no UTF-8) cannot be written at all.

    Args:
        text: the text, or an object whose `str` is meant.
        keep: characters that stay, such as the line break of a text of several lines.
    """
    text = str(text)
    if text.isprintable():
        return text
    return "".join(
        c if c.isprintable() or c in keep else c.encode("unicode_escape").decode("ascii") for c in text
    )


def cell(text: object) -> str:
    """Text fit for a table that rich draws: `printable`, and nothing in it taken for markup."""
    from rich.markup import escape

    return escape(printable(text))


class FastloadError(Exception):
    """Base of everything that fastload raises on purpose.

    `str` writes characters that are not printable as escapes, so that a message is safe in a terminal; `args`
    has them as they are.
    """

    def __str__(self) -> str:
        return printable(self.args[0] if len(self.args) == 1 else super().__str__(), keep="\n\t")


class ArgumentError(FastloadError, ValueError):
    """An argument, option or setting is out of range or contradicts another."""


class DatasetError(FastloadError, OSError):
    """A packed dataset is missing, unfinished, damaged, or of a later format."""


class PackError(FastloadError, RuntimeError):
    """Packing stopped: a bad source or sample, a full disk, an OUT in the way."""


class PackStoppedError(PackError):
    """Packing stopped at a bad sample. Samples already written stay, and `resume=True` goes on.

    Attributes:
        reason: the sample and its fault.
    """

    def __init__(self, reason: str) -> None:
        super().__init__(
            f"{reason}. Repair or remove it and go on with resume=True (--resume), or leave such "
            "samples out with on_error='skip' and "
            "resume=True (--on-error skip --resume)"
        )
        self.reason = reason

    def __reduce__(self) -> tuple[object, ...]:
        return PackStoppedError, (self.reason,)


class SampleError(FastloadError, RuntimeError):
    """One sample cannot be delivered.

    Attributes:
        index: its index in the packed dataset, or -1.
        shard: name of the shard's file, or "".
        reason: its fault.
    """

    def __init__(self, message: str, *, index: int = -1, shard: str = "", reason: str = "") -> None:
        super().__init__(message)
        self.index = index
        self.shard = shard
        self.reason = reason

    def __reduce__(self) -> tuple[object, ...]:
        return (_rebuild_sample_error, (self.args[0], self.index, self.shard, self.reason))


def _rebuild_sample_error(message: str, index: int, shard: str, reason: str) -> SampleError:
    return SampleError(message, index=index, shard=shard, reason=reason)


class BatchShapeError(FastloadError, RuntimeError):
    """Samples of one batch have different sizes, and no transform makes them equal."""


class TransformError(FastloadError, ValueError):
    """A transform list that the engine cannot run."""


class LoaderTimeout(FastloadError, TimeoutError, RuntimeError):
    """No batch became ready within ``timeout`` seconds."""

    @classmethod
    def after(cls, seconds: float) -> LoaderTimeout:
        """The error of a wait of `seconds`."""
        return cls(
            f"DataLoader timed out after {seconds:g} seconds: no batch became ready. Raise timeout=, "
            "or see what makes batches slow"
        )


class WorkerError(FastloadError, RuntimeError):
    """A worker process is gone.

    Attributes:
        worker: its number.
        pid: its process.
        exitcode: its exit code; negative for a signal.
        indices: indices of the batch it held.
    """

    def __init__(
        self,
        message: str,
        *,
        worker: int = -1,
        pid: int = -1,
        exitcode: int = 0,
        indices: tuple[object, ...] = (),
    ) -> None:
        super().__init__(message)
        self.worker = worker
        self.pid = pid
        self.exitcode = exitcode
        self.indices = indices


class UnavailableError(FastloadError, NotImplementedError):
    """This needs the native module, which macOS and Windows lack."""


class ClosedError(FastloadError, RuntimeError):
    """The loader or dataset was closed, or belongs to another process."""


class ResourceError(FastloadError, MemoryError):
    """Memory or another resource is short; the message names what was needed."""


class RemoteError(DatasetError):
    """A request to an object store (S3, GCS, Azure, HTTP) failed after all tries.

    Attributes:
        url: URL of the object, without credentials.
        tries: number of tries.
        sure: True if the store said that no other try can succeed.
    """

    def __init__(self, message: str, *, url: str = "", tries: int = 1, sure: bool = False) -> None:
        super().__init__(message)
        self.url = url
        self.tries = tries
        self.sure = sure

    def __reduce__(self) -> tuple[object, ...]:
        return _rebuild_remote_error, (type(self), self.args[0], self.url, self.tries, self.sure)


@contextmanager
def advised(advice: str) -> Iterator[None]:
    """Lets the message of a RemoteError that passes through end with how to go on."""
    try:
        yield
    except RemoteError as error:
        message = f"{error.args[0]}; {advice}"
        raise type(error)(message, url=error.url, tries=error.tries, sure=error.sure) from None


def _rebuild_remote_error(
    kind: type[RemoteError], message: str, url: str, tries: int, sure: bool
) -> RemoteError:
    return kind(message, url=url, tries=tries, sure=sure)


class RemoteMissingError(RemoteError):
    """An object or a bucket does not exist."""
