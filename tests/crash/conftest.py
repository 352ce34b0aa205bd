"""Fixtures of the tests of dying processes."""

from __future__ import annotations

import gc

import crash_helpers
import pytest

from fastload import FastLoader


@pytest.fixture(autouse=True)
def others() -> None:
    """Servers that tests of other folders started in this process are not this folder's to count."""
    crash_helpers.OTHERS.clear()
    crash_helpers.OTHERS.update(crash_helpers.children())


@pytest.fixture
def started_once() -> None:
    """What the first use of a loader keeps for the process's life (imports, torch's threads) is no leak of
    the test's."""
    list(FastLoader(range(4), num_workers=1))
    gc.collect()
