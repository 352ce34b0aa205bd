"""BusyServer: lets one request at a time through to a server that answers 429 or 503 to all of them."""

from __future__ import annotations

import random
import threading
import time
from concurrent.futures import Future

from fastload.remote.failures import FIRST_PAUSE_BUSY, LONGEST_PAUSE, Failure


class BusyServer:
    """Whether a server asked all calls of one client for fewer requests, and which call may ask it again.

    1. An answer of 429 or 503 closes it. Then one call at a time gets a turn, after pauses that grow as those of one call would; the others
       wait. So a server that says Retry-After, which obstore does not tell, gets a few requests until it serves again, however many calls
       are under way.
    2. Any other answer, also one to a request that was under way before, opens it for all.
    3. Any thread may call it.

    Attributes:
        failure: the last of those answers; None while it is open.
    """

    def __init__(self) -> None:
        self.failure: Failure | None = None
        self._lock = threading.Lock()  # guards all of it
        self._opened: Future[None] = Future()
        self._rounds = 0
        self._closed_at = 0.0
        self._next = 0.0  # when the next call gets a turn

    def refused(self, failure: Failure, began: float, left: float) -> None:
        """Notes an answer of 429 or 503 to a request that began at a time, of a call that has `left` seconds left."""
        with self._lock:
            if self.failure is None:
                self._opened, self._rounds = Future(), 0
            elif began < self._closed_at:
                return  # it was on its way when the server began to refuse: no news
            self.failure, self._closed_at = failure, time.monotonic()
            self._rounds += 1
            self._next = self._closed_at + min(self._pause(), max(left, 0.0) / 2)

    def answered(self) -> None:
        """Notes any other answer."""
        with self._lock:
            if self.failure is not None:
                self.failure = None
                self._opened.set_result(None)

    def turn(self) -> tuple[float, Future[None]]:
        """Seconds to wait before a call asks for its turn again, 0 where it has it; and what has a result once all may go on."""
        with self._lock:
            now = time.monotonic()
            if self.failure is not None:
                if now < self._next:
                    return self._next - now, self._opened
                self._next = now + self._pause()  # should the call that has the turn not come back
            return 0.0, self._opened

    def _pause(self) -> float:
        longest = min(FIRST_PAUSE_BUSY * 2.0 ** max(self._rounds - 1, 0), LONGEST_PAUSE)
        return longest * random.uniform(0.5, 1.0)
