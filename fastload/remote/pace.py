"""Pace: how long bytes take in small and in large requests."""

from __future__ import annotations

SMALL_BYTES = 256 << 10
"""Requests of fewer bytes are small."""
LARGE_BYTES = 1 << 20
"""Requests of as many bytes are large."""
PROBED = 32
"""Requests after which a large one is tried, to know the pace of large ones."""
MUCH_SOONER = 0.4
"""A byte of a large request comes much sooner if it takes less than this part of a small one's time."""


class Pace:
    """How long a byte takes in small and in large requests: seconds, moving means. Tells waiting for requests from waiting for bytes."""

    def __init__(self) -> None:
        self._small = self._large = 0.0
        self._spans = 0

    def note(self, size: int, seconds: float) -> None:
        """Notes a request."""
        self._spans += 1
        if size < SMALL_BYTES:
            self._small = self._small * 0.9 + 0.1 * seconds / size if self._small else seconds / size
        elif size >= LARGE_BYTES:
            self._large = self._large * 0.8 + 0.2 * seconds / size if self._large else seconds / size

    @property
    def by_requests(self) -> bool:
        """Whether a byte comes sooner in a large request. Now and then this is yes to learn whether it does."""
        if not self._small or self._spans % PROBED == PROBED - 1:
            return bool(self._small)
        return 0 < self._large < MUCH_SOONER * self._small
