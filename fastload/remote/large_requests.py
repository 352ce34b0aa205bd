"""LargeRequests: decides whether the next request takes in more than what is asked for. See NOTE [ fetcher: what is fetched when ]."""

from __future__ import annotations

import weakref
from collections import deque

from fastload.remote.pace import Pace
from fastload.remote.passes import Pass
from fastload.remote.requests import Request
from fastload.remote.spans import RANGE_BYTES

FILL = 16
"""Bytes that are fetched before anybody asks for them, for each byte that somebody does ask for."""


class LargeRequests:
    """What a fetcher knows of its requests, to decide by.

    Args:
        saved: bytes for which credit is kept at most.

    Attributes:
        pace: of its requests.
    """

    def __init__(self, saved: int) -> None:
        self.pace = Pace()
        self._saved = saved
        self._credit = 0
        self._requests: deque[weakref.ref[Request]] = deque()  # in their order; one that nobody holds any more was used

    def note(self, request: Request) -> None:
        """Notes a request that begins."""
        self._requests.append(weakref.ref(request))
        self._credit = min(self._credit + FILL * request.size, FILL * self._saved)

    def pay(self, size: int) -> None:
        """Takes bytes that nobody asked for off the credit."""
        self._credit -= size

    def may(self, of: Pass) -> bool:
        """Whether the next one for a pass may be large."""
        if self._credit < RANGE_BYTES:
            return False
        while self._requests and ((first := self._requests[0]()) is None or not first.wanted):
            self._requests.popleft()
        unused = [request for each in self._requests if (request := each()) is not None and request.wanted]
        finished = sum(request.finished for request in unused)
        return len(unused) > 1 and (2 * finished >= len(unused) or (of.begun and self.pace.large_is_better()))
