"""A fake CUDA device for the tests of this room."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import torch
from fake_cuda import FakeCuda


@pytest.fixture
def cuda() -> Iterator[FakeCuda]:
    """Two fake devices whose streams run late; afterwards nothing was done that a driver would refuse, or
    that would corrupt memory."""
    if torch.cuda.is_available():
        pytest.skip("there is a real device")
    with FakeCuda(devices=2).installed() as fake:
        yield fake
    assert fake.faults == []
