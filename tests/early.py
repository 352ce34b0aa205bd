"""The next epoch of a loader, begun early, for tests of what changes before its iter(). See NOTE [ epochs:
the next one, begun early ]."""

from __future__ import annotations

import time
from typing import Any

from fastload import FastLoader

MOST_S = 30.0


def read_early(loader: FastLoader[Any]) -> int:
    """Runs an epoch, and waits until the batches of the next one that are in flight are made; returns how
    many rows they have."""
    list(loader)
    early = loader._fastload.epochs.early
    assert early is not None
    batches = list(early.iterator._in_flight)
    end = time.monotonic() + MOST_S
    while not all(batch.ready for batch in batches):
        assert time.monotonic() < end
        time.sleep(0.002)
    return sum(batch.rows for batch in batches)
