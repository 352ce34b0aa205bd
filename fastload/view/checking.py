"""check_samples(): samples read and decoded in short turns, so that a page shows how far it is and may
stop."""

from __future__ import annotations

import time
from typing import Any

from fastload.errors import ArgumentError, SampleError
from fastload.view.subject import Subject

TURN_S = 0.4
"""Time of one turn: an answer comes soon, and Ctrl-C waits no longer."""


def check_samples(subject: Subject, start: int) -> dict[str, Any]:
    """Reads and decodes the samples from `start` on, for about TURN_S: `next`, the first that was not read,
    and `total`. Bad ones are noted in `subject`.

    Raises:
        ArgumentError: start is no position.
    """
    dataset, count = subject.dataset, len(subject.dataset)
    if not 0 <= start <= count:
        raise ArgumentError(f"there is no sample {start} to check from; the dataset has {count:,}")
    end, at = time.monotonic() + TURN_S, start
    while at < count:
        try:
            dataset.sample(at)
        except SampleError as error:
            subject.meet(at, error)
        at += 1
        if time.monotonic() >= end:
            break
    return {"next": at, "total": count}


def bad_document(subject: Subject) -> dict[str, Any]:
    """The bad samples that were met: `bad`, [index, sentence] in order."""
    with subject.lock:
        return {"bad": [[index, subject.bad[index]] for index in sorted(subject.bad)]}
