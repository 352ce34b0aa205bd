"""The conformance tests compare with torch's DataLoader; they need no fixture of their own but this guard."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import torch.utils.data._utils
from torch.utils.data._utils.collate import default_collate_fn_map


@pytest.fixture(autouse=True)
def impatient_torch(monkeypatch: pytest.MonkeyPatch) -> None:
    """DataLoader, at its end, now and then waits this long for a worker: five seconds, which these tests
    would spend often."""
    monkeypatch.setattr(torch.utils.data._utils, "MP_STATUS_CHECK_INTERVAL", 1.0)


@pytest.fixture(autouse=True)
def collate_map_as_found() -> Iterator[None]:
    """A test may register types for default_collate; the next one finds the map as it was."""
    before = dict(default_collate_fn_map)
    yield
    default_collate_fn_map.clear()
    default_collate_fn_map.update(before)
