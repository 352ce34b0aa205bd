"""What on_error left out and replaced, counted as the loop goes on: since the loader was made, and in one pass."""

from __future__ import annotations

from dataclasses import dataclass, field

from fastload.bad_samples import Lost
from fastload.errors import SampleError

REASONS = 5
"""Reasons that are remembered, of the first bad samples."""


@dataclass
class Counts:
    """Samples that on_error replaced or skipped; shared by a loader and its iterators. `reasons`: of the first of them."""

    replaced: int = 0
    skipped: int = 0
    reasons: list[str] = field(default_factory=list)


class PassLosses:
    """The losses of one pass of a loader, added to the loader's own."""

    def __init__(self, counts: Counts) -> None:
        self._counts = counts
        self._skipped = 0
        self._reason = ""

    def add(self, lost: Lost | None) -> None:
        """Counts what happened to a batch, at its turn in the loop."""
        if lost is None or not lost.instead:
            return
        self._counts.replaced += lost.replaced
        self._counts.skipped += lost.skipped
        if len(self._counts.reasons) < REASONS:
            self._counts.reasons.append(lost.reason)
        self._reason = self._reason if self._skipped else lost.reason
        self._skipped += lost.skipped

    def check(self, delivered: int) -> None:
        """At the end of the pass, with the number of batches `delivered` in its epoch.

        Raises:
            SampleError: every sample was skipped.
        """
        skipped, self._skipped = self._skipped, 0
        if skipped and not delivered:
            raise SampleError(
                f'all {skipped} samples of the epoch were skipped (on_error="skip"), so that it has no batches; the first: {self._reason}. '
                'Look at what every sample needs, such as the path of the data; on_error="raise" stops at the first with its own error.',
                reason=self._reason,
            ) from None
