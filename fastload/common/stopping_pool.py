"""StoppingPool: threads that end soon after the code that uses them was stopped."""

from __future__ import annotations

from concurrent.futures import CancelledError, ThreadPoolExecutor
from types import TracebackType


class StoppingPool(ThreadPoolExecutor):
    """Threads whose calls end soon once an exception, Ctrl-C included, leaves the `with` block: calls that
    wait are dropped.

    A call that takes longer than a moment calls `check` now and then. ThreadPoolExecutor alone makes all that
    was submitted first, which takes minutes for a large dataset.
    """

    _stopping = False

    def check(self) -> None:
        """Raises CancelledError if the block was left by an exception. Any thread may call it."""
        if self._stopping:
            raise CancelledError

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if kind is not None:
            self.shutdown(wait=False, cancel_futures=True)  # first: a thread whose call ends finds no other
            self._stopping = True
        self.shutdown(wait=True)
