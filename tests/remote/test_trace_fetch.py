"""A trace of a loop over a bucket: what was fetched, what was in the cache, and which batches waited."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import reading
from trace_helpers import Event, events, named

from fastload import FastLoader, PackedDataset


def taken(loader: Any, path: Path) -> list[Event]:
    """The trace of one epoch."""
    with loader.trace(path):
        for _ in loader:
            pass
    return events(path)


def looked_up(found: list[Event]) -> tuple[int, int]:
    """(samples, hits) of all looks into the cache."""
    looks = [each["args"] for each in named(found, "cache")]
    return sum(each["samples"] for each in looks), sum(each["hits"] for each in looks)


@pytest.mark.long
@pytest.mark.parametrize("engine", reading.ENGINES)
def test_fetches_and_hits(opened: Callable[..., PackedDataset], tmp_path: Path, engine: str) -> None:
    """The first pass fetches what is not there, by whoever reads it; once all is there, every look is a
    hit and nothing is fetched."""
    arguments = reading.ENGINES[engine]
    options: dict[str, Any] = {"batch_size": 10, "seed": 0, **arguments}
    dataset = opened(transform=reading.steps_of(arguments))
    shards = {shard.file for shard in dataset.opened.reader.manifest.shards}
    with FastLoader(dataset, **options) as loader:
        cold = taken(loader, tmp_path / "cold.json")
    with FastLoader(opened(transform=reading.steps_of(arguments)), **options) as loader:
        warm = taken(loader, tmp_path / "warm.json")
    fetches = named(cold, "fetch")
    assert {each["args"]["file"] for each in fetches} >= shards
    assert all(each["args"]["bytes"] > 0 and each["args"]["units"] > 0 for each in fetches)
    samples, hits = looked_up(cold)
    assert samples >= reading.COUNT
    assert hits < samples
    samples, hits = looked_up(warm)
    assert samples == hits >= reading.COUNT
    assert not shards & {each["args"]["file"] for each in named(warm, "fetch")}
    for found in (cold, warm):
        assert sorted(each["args"]["index"] for each in named(found, "decode", epoch=0)) == list(
            range(reading.COUNT)
        )
    assert bool(named(cold, "held")) == (arguments.get("engine") != "python")


def test_fetches_that_overlap_are_in_rows_of_their_own(
    opened: Callable[..., PackedDataset], tmp_path: Path
) -> None:
    """Many are under way at once, in one thread: the file's rows tell them apart."""
    with FastLoader(
        opened(), batch_size=30, num_workers=2, prefetch_factor=4, shuffle=True, seed=0
    ) as loader:
        found = taken(loader, tmp_path / "run.json")
    assert len({each["tid"] for each in named(found, "fetch")}) > 1
