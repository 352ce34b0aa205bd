"""Fixtures of the tests of stores: a dataset, and copies of it to damage."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from store_helpers import write

COUNT = 60


@pytest.fixture(scope="session")
def dataset(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """60 samples in several shards."""
    out = tmp_path_factory.mktemp("store") / "d"
    write(out, COUNT)
    return out


@pytest.fixture
def copy(dataset: Path, tmp_path: Path) -> Path:
    """A copy to damage."""
    return Path(shutil.copytree(dataset, tmp_path / "copy"))
