"""What damages or removes a cache while it is used, or between two runs: samples are right, and the cache
is right again after that."""

from __future__ import annotations

import os
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import reading
from reading import CROP, batches, data_files, fetched, same, steps_of

from fastload import PackedDataset


def damage(path: Path, start: int = 0, stop: int | None = None) -> None:
    """Flips bytes of a file that are there; holes stay holes."""
    with open(path, "r+b") as file:
        file.seek(start)
        data = np.frombuffer(file.read() if stop is None else file.read(stop - start), np.uint8)
        file.seek(start)
        file.write((data ^ 0x55).tobytes())


FIELDS = ("image", "label", "caption")  # without the column that no sidecar holds


def filled(opened: Any, cache: Path) -> PackedDataset:
    """A dataset all of which is in the cache."""
    dataset = opened()
    batches(dataset)
    dataset.close()
    dataset = opened(fields=FIELDS)
    before = fetched(dataset)
    batches(dataset)
    assert fetched(dataset) == before == 0
    return dataset


@pytest.mark.parametrize("workers", [0, 2])
@pytest.mark.parametrize("how", ["flipped", "truncated", "states", "zeroed", "tables", "tables and records"])
def test_damage_is_healed_by_a_fetch(opened: Any, photos: Path, cache: Path, how: str, workers: int) -> None:
    """Whatever becomes of the files while they are open or between two runs, samples are right, and the
    cache is right again after that."""
    dataset = filled(opened, cache)
    expected = batches(PackedDataset(photos, CROP, fields=FIELDS), num_workers=workers)
    suffixes = {
        "states": (".state",),
        "tables": (".tables",),
        "tables and records": (".tables", ".lmdb"),
    }.get(how, (".lmdb",))
    files = [path for suffix in suffixes for path in data_files(cache, suffix)]
    assert files
    for path in files:
        if how == "truncated":
            os.truncate(path, path.stat().st_size // 2)
        elif how == "zeroed":
            size = path.stat().st_size
            os.truncate(path, 0)
            os.truncate(path, size)
        else:
            damage(path)
    if how == "states":  # in a new process: it finds garbage in them
        dataset.close()
    assert same(batches(dataset, num_workers=workers), expected)
    # A state that is nonsense is no reason to fetch: the bytes are compared.
    assert fetched(dataset) > 0 or how == "states"
    assert same(batches(dataset, num_workers=workers), expected)
    dataset.close()
    again = opened(fields=FIELDS)
    assert same(batches(again, num_workers=workers), expected)
    if "tables" in how:  # those of columns that were in memory are found damaged when they are read again
        again.close()
        again = opened(fields=FIELDS)
        assert same(batches(again, num_workers=workers), expected)
    if how != "truncated":  # tree pages of a shard are no unit: its file is made anew
        assert fetched(again) == 0


@pytest.mark.parametrize(
    "engine",
    [
        {"num_workers": 2, "device": "cpu"},
        {"num_workers": 2, "engine": "python"},
        {"num_workers": 0, "engine": "python"},
    ],
    ids=str,
)
def test_what_a_power_failure_left_empty_is_fetched_again(
    opened: Any, photos: Path, cache: Path, engine: dict[str, Any]
) -> None:
    """Ranges that are marked as there and hold zeros: right batches on the other engines too, in a process
    that finds them so."""
    filled(opened, cache).close()
    for path in data_files(cache):
        size = path.stat().st_size
        os.truncate(path, 0)
        os.truncate(path, size)
    steps = steps_of(engine)
    dataset = opened(transform=steps, fields=FIELDS)
    assert same(
        batches(dataset, **engine), batches(PackedDataset(photos, steps, fields=FIELDS), num_workers=0)
    )


def test_a_damaged_sidecar_is_fetched_once(opened: Any, photos: Path, cache: Path) -> None:
    """As a power failure may leave it: the next one who opens the dataset mends it, and those after that
    find it good."""
    filled(opened, cache).close()
    files = data_files(cache, ".bin")
    good = [path.read_bytes() for path in files]
    for path, data in zip(files, good, strict=True):
        path.write_bytes(bytes(len(data)))
    dataset = opened(fields=FIELDS)
    assert files
    assert [path.read_bytes() for path in files] == good
    assert same(batches(dataset), batches(PackedDataset(photos, CROP, fields=FIELDS)))
    assert fetched(dataset) == 0


def test_damaged_columns_are_healed(opened: Any, photos: Path, cache: Path) -> None:
    """A column that is read from the cache is compared with its checksum, and fetched again where it
    differs."""
    filled(opened, cache).close()
    for path in data_files(cache):
        damage(path)
    dataset = opened()
    assert same(dataset.column("wide"), PackedDataset(photos).column("wide"))


@pytest.mark.parametrize("engine", ["native", "python"])
def test_a_cache_that_is_removed_while_it_is_used(
    opened: Any, photos: Path, cache: Path, engine: str
) -> None:
    """rm -rf of all of it: readers go on, whether another process makes it anew or not, and the next one
    finds a good cache."""
    dataset = opened(seed=1)
    local = PackedDataset(photos, CROP, seed=1)
    read = (lambda d: batches(d)) if engine == "native" else (lambda d: d.__getitems__(range(len(d))))
    loader = reading.FastLoader(dataset, batch_size=16, num_workers=2, seed=1, shuffle=True)
    iterator = iter(loader)
    next(iterator)
    shutil.rmtree(cache)
    assert len(list(iterator)) == 9
    loader.close()
    assert same(read(dataset), read(local))
    other = opened(seed=1)
    assert same(read(other), read(local))
    assert same(read(dataset), read(local))
    shutil.rmtree(cache)
    cache.write_text("a file in its place")
    assert same(read(other), read(local))
