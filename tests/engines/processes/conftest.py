"""Fixtures of the tests of worker processes."""

from __future__ import annotations

import gc
import multiprocessing
from collections.abc import Iterator

import pytest
from handles import descriptors, opened_since


@pytest.fixture
def nothing_left() -> Iterator[None]:
    """No process and no descriptor remains of a test."""
    gc.collect()
    fds, tasks = descriptors(), set(multiprocessing.active_children())
    yield
    gc.collect()
    assert set(multiprocessing.active_children()) <= tasks
    assert not opened_since(fds)
