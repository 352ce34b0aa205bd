"""Fixtures of the tests of worker processes."""

from __future__ import annotations

import gc
import multiprocessing
from collections.abc import Iterator
from os import readlink
from os.path import lexists

import pytest
from descriptors import open_fds


@pytest.fixture
def nothing_left() -> Iterator[None]:
    """No process and no descriptor remains of a test."""
    gc.collect()
    fds, tasks = open_fds(), set(multiprocessing.active_children())
    yield
    gc.collect()
    assert set(multiprocessing.active_children()) == tasks
    assert open_fds() == fds, {fd: readlink(f"/proc/self/fd/{fd}") for fd in open_fds() - fds if lexists(f"/proc/self/fd/{fd}")}
