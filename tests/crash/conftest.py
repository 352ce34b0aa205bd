"""Fixtures of the tests of dying processes."""

from __future__ import annotations

import gc

import pytest

from fastload import FastLoader


@pytest.fixture
def started_once() -> None:
    """What the first use of a loader keeps for the process's life (imports, torch's threads) is no leak of the test's."""
    list(FastLoader(range(4), num_workers=1))
    gc.collect()
