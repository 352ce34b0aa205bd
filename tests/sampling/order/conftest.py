"""The same samples for every engine: packed photographs, and a Dataset of their numbers."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from order_helpers import COUNT, ENGINES, Numbers
from pictures import write_folder

from fastload import FastLoader, PackedDataset, pack
from fastload import transforms as T


@pytest.fixture(scope="session")
def packed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """COUNT packed images, each of its own class: label i is sample i."""
    root = tmp_path_factory.mktemp("ranks")
    pack(
        write_folder(root / "src", COUNT, classes=COUNT, size=lambda i: (40 + i % 9, 50 + i % 7)),
        root / "out.fl",
    )
    return root / "out.fl"


@pytest.fixture(params=ENGINES)
def make(request: pytest.FixtureRequest, packed: Path) -> Callable[..., FastLoader[Any]]:
    """Makes loaders that run on one engine."""
    engine: str = request.param

    def loader(**options: Any) -> FastLoader[Any]:
        data = PackedDataset(packed, transform=[T.RandomResizedCrop(8)]) if "threads" in engine else Numbers()
        return FastLoader(data, **{"num_workers": ENGINES[engine], "batch_size": 3, **options})

    return loader
