"""Pace: how long bytes take in small and in large requests; tells waiting for requests from waiting for bytes."""

from __future__ import annotations

SMALL_BYTES = 256 << 10
"""Requests of fewer bytes are small."""
LARGE_BYTES = 512 << 10
"""Requests of as many bytes are large."""
MUCH_SOONER = 0.4
"""A byte of a large request comes much sooner if it takes less than this part of a small one's time."""
TRIED_FIRST = 4
"""Large requests that are tried to know their pace, before anything else is asked for."""
TRIED_AGAIN = 32
"""Requests after which a large one is tried again where they were found to be no faster."""


class Pace:
    """Seconds that a byte takes in small and in large requests: moving means over one dataset's requests."""

    def __init__(self) -> None:
        self._small = self._large = 0.0
        self._requests = self._tried = self._tries = 0

    def note(self, size: int, seconds: float) -> None:
        """Notes a request that succeeded at once."""
        self._requests += 1
        if size < SMALL_BYTES:
            self._small = self._small * 0.9 + 0.1 * seconds / size if self._small else seconds / size
        elif size >= LARGE_BYTES:
            self._large = self._large * 0.8 + 0.2 * seconds / size if self._large else seconds / size

    @property
    def learning(self) -> bool:
        """Whether large requests are being tried for the first time, and none has come yet; not for long, since there may be none."""
        return not self._large and self._tries >= TRIED_FIRST and self._requests - self._tried < TRIED_FIRST

    def large_is_better(self) -> bool:
        """Whether to make the next request a large one: a byte comes much sooner in it, or that is to be learnt."""
        if not self._small:
            return False
        if not self._large:
            self._tries += 1
            self._tried = self._requests if self._tries <= TRIED_FIRST else self._tried
            return self._tries <= TRIED_FIRST
        if self._large < MUCH_SOONER * self._small:
            return True
        again = self._requests - self._tried >= TRIED_AGAIN
        self._tried = self._requests if again else self._tried
        return again
