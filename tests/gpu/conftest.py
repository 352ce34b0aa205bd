"""What the tests on a real device share."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator

import pytest
import torch


@pytest.fixture
def no_waiting() -> Iterator[Callable[[], None]]:
    """A function from whose call on every synchronisation raises, in every thread, to the end of the test."""

    def mode(name: str) -> None:
        with warnings.catch_warnings():
            # At the first call of a process.
            warnings.filterwarnings("ignore", "Synchronization debug mode is a prototype", UserWarning)
            torch.cuda.set_sync_debug_mode(name)

    def begin() -> None:
        torch.cuda.synchronize()
        mode("error")

    yield begin
    mode("default")
    torch.cuda.synchronize()
