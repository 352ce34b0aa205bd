"""What the tests on a real device share."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator

import pytest
import torch


@pytest.fixture
def no_waiting() -> Iterator[Callable[[], None]]:
    """A function from whose call on every synchronisation raises, in every thread, to the end of the test."""

    def begin() -> None:
        torch.cuda.synchronize()
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", "Synchronization debug mode is a prototype", UserWarning)  # once in a process
            torch.cuda.set_sync_debug_mode("error")

    yield begin
    torch.cuda.set_sync_debug_mode("default")
    torch.cuda.synchronize()
