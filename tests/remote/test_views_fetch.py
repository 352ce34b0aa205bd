"""T.Views over a dataset in a bucket: the batches of local files, bit for bit, on every engine, with
little in the cache."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import reading

from fastload import PackedDataset
from fastload import transforms as T


@pytest.mark.parametrize("engine", ["threads", "calling thread", "prefetcher", "processes", "python"])
def test_views_of_a_bucket_are_those_of_local_files(
    photos: Path, opened: Callable[..., PackedDataset], engine: str
) -> None:
    """Two epochs, of which the second reads what the first kept and fetches the rest."""
    views = T.Views(
        [[T.RandomResizedCrop(48, scale=(0.4, 1.0)), T.RandomHorizontalFlip()]] * 2
        + [T.RandomResizedCrop(16)] * 3
    )
    arguments: dict[str, Any] = reading.ENGINES[engine]
    found = reading.batches(opened(transform=views, cache_size=300_000), 2, **arguments)
    expected = reading.batches(PackedDataset(photos, views), 2, **arguments)
    assert len(found[0]["image"]) == 5
    assert reading.same(found, expected)
