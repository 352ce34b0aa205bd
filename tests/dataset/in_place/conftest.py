"""Fixtures of the tests of caches."""

from __future__ import annotations

from pathlib import Path

import pytest
from pictures import photo


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    """COUNT pictures that are large enough for an index of 1.5 % of their size."""
    from kept_helpers import COUNT  # which imports torchvision, that not all who collect tests have

    for number in range(COUNT):
        path = tmp_path / "tree" / f"class{number % 3}" / f"{number}.jpg"
        path.parent.mkdir(parents=True, exist_ok=True)
        photo(number, 480, 640).save(path, quality=95)
    return tmp_path / "tree"
