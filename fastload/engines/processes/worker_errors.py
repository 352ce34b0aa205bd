"""Exceptions on their way from a worker process to the loop, which raises them there."""

from __future__ import annotations

import traceback
from traceback import walk_tb
from types import CodeType, TracebackType
from typing import TYPE_CHECKING

from torch._utils import ExceptionWrapper

from fastload.batch.collate import advise
from fastload.errors import FastloadError, RemoteError, SampleError

_Raised = tuple[type[BaseException] | None, BaseException | None, TracebackType | None]


class RaisedInWorker(ExceptionWrapper):
    """torch's wrapper of an exception, with types."""

    if TYPE_CHECKING:

        def __init__(self, exc_info: _Raised | None = None, where: str = "") -> None: ...
        def reraise(self) -> None: ...


class WrappedError(RaisedInWorker):
    """A SampleError or RemoteError on its way out of a worker process, with its attributes; torch's
    wrapper keeps only the text."""

    def __init__(self, error: SampleError | RemoteError, where: str) -> None:
        super().__init__(where=where)
        self.attributes = dict(vars(error))

    def reraise(self) -> None:
        """Raises it in the loop's process."""
        try:
            super().reraise()
        except (SampleError, RemoteError) as error:
            vars(error).update(self.attributes)
            raise


class AdvisedError(RaisedInWorker):
    """An exception on its way out of a worker process, with advice on it.

    Args:
        error: the exception.
        where: the worker.
        advice: advice on an error of default_collate, for the line below torch's own first one.
        note: a line for the traceback's end.
    """

    def __init__(self, error: BaseException, where: str, advice: str = "", note: str = "") -> None:
        shown = None if advice else below_fastload(error.__traceback__)
        if isinstance(error, FastloadError) and shown is error.__traceback__:
            shown = None  # it has fastload's frames alone, and says itself what to do
        super().__init__((type(error), error, shown), where)
        if shown is None:
            lines = [advice] if advice else []
            self.exc_msg = "\n".join([*lines, "error:", "".join(traceback.format_exception_only(error))])
        self.note = note

    def reraise(self) -> None:
        """Raises it in the loop's process."""
        try:
            super().reraise()
        except Exception as error:
            advise(error, self.note)
            raise


def wrapped(
    error: BaseException, worker: int, dataset: object, sample: CodeType, advice: str = ""
) -> RaisedInWorker:
    """An exception on its way out of a worker process.

    Args:
        sample: code of the function that asks the dataset for the sample `index`: an exception that was
            raised below it has a note with the index.
    """
    where = f"in DataLoader worker process {worker}"
    if isinstance(error, SampleError | RemoteError):
        return WrappedError(error, where)
    frames = [frame for frame, _ in walk_tb(error.__traceback__) if frame.f_code is sample]
    note = f"It was raised by {type(dataset).__name__}[{frames[0].f_locals['index']!r}]." if frames else ""
    return AdvisedError(error, where, advice, note)


def below_fastload(whole: TracebackType | None) -> TracebackType | None:
    """A traceback from the first frame that is not fastload's; all of it where it has no other."""
    found = whole
    while found is not None and str(found.tb_frame.f_globals.get("__name__", "")).startswith("fastload."):
        found = found.tb_next
    return found or whole
