"""One dataset in both forms, packed and plain, whose label is the sample's index."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from integration_helpers import children
from numbers_data import COUNT
from pictures import write_folder


@pytest.fixture(scope="session")
def numbered(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A packed dataset of COUNT images, each its own class: label i is sample i."""
    from fastload import pack

    root = tmp_path_factory.mktemp("numbered")
    pack(
        write_folder(root / "src", COUNT, classes=COUNT, size=lambda i: (40 + i % 9, 50 + i % 7)),
        root / "numbered.fl",
    )
    return root / "numbered.fl"


@pytest.fixture
def no_children() -> Iterator[None]:
    """The test leaves as few child processes as it found."""
    before = set(children())
    yield
    deadline = time.monotonic() + 5
    while (left := set(children()) - before) and time.monotonic() < deadline:
        time.sleep(0.05)
    assert not left
