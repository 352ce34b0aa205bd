"""Columns in memory take as few bytes as their values need, all together at most HELD_BYTES, and give the
values that were packed."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as npst

from fastload import FastLoader, PackedDataset, pack
from fastload.packing import Item
from fastload.store import DatasetReader, Field
from fastload.store.columns import NarrowedValues, TableValues, held, is_constant

COUNT = 400
DTYPES = (
    npst.integer_dtypes()
    | npst.unsigned_integer_dtypes()
    | npst.floating_dtypes(sizes=(32, 64))
    | npst.boolean_dtypes()
)
SHAPES = npst.array_shapes(min_dims=1, max_dims=3, min_side=1, max_side=6)
NAMES = [f"n{number}" for number in range(8)]


@given(data=st.data())
def test_values_and_bytes(data: st.DataObject) -> None:
    """Any column, in pieces of any sizes: the same bytes and dtype by sample, by samples and whole; in no
    more than its room."""
    column = data.draw(DTYPES.flatmap(lambda dtype: npst.arrays(dtype.newbyteorder("="), SHAPES)))
    cuts = sorted([0, *data.draw(st.lists(st.integers(0, len(column)), max_size=4)), len(column)])
    room = data.draw(st.integers(0, column.nbytes))
    found = held((column[a:b] for a, b in pairwise(cuts)), len(column), room)
    if found is None:
        assert smallest(column) > room
        return
    values, size = found
    assert size <= max(room, column[:1].nbytes)
    assert len(values) == len(column)
    indices = np.array(data.draw(st.lists(st.integers(0, len(column) - 1))), np.int64)
    for at in (slice(None), indices, data.draw(st.integers(0, len(column) - 1))):
        theirs = column[at]
        mine = values[at]
        assert (mine.dtype, mine.shape, mine.tobytes()) == (theirs.dtype, theirs.shape, theirs.tobytes())
    if column.dtype.kind in "iub":
        assert is_constant(values) == bool((column == column[:1]).all())


def smallest(column: np.ndarray[Any, Any]) -> int:
    """Bytes of a column in the smallest type of integers that has all its values; other types are not made
    smaller."""
    if column.dtype.kind not in "iu":
        return column.nbytes
    limits, least, most = np.iinfo, int(column.min()), int(column.max())
    fits = (
        size
        for size in (1, 2, 4, 8)
        for kind in "iu"
        if limits(f"{kind}{size}").min <= least and most <= limits(f"{kind}{size}").max
    )
    return min(column.itemsize, next(fits)) * column.size


@pytest.mark.parametrize(
    ("column", "size"),
    [
        (np.full(1000, 7, np.int64), 8),
        (np.full((1000, 4), np.nan), 32),
        (np.where(np.arange(1000) % 2, 0.0, -0.0), 8000),
        (np.arange(1000) % 200, 1000),
        (np.arange(1000) % 200 - 100, 1000),
        (np.arange(1000, dtype=np.uint64) << np.uint64(50), 8000),
    ],
    ids=["constant", "NaN", "signs of zero", "bytes", "negative", "large"],
)
def test_what_it_takes(column: np.ndarray[Any, Any], size: int) -> None:
    """One value is one number, whatever its bits; integers take as many bytes as the largest needs; no bit
    of a float is lost."""
    found = held([column[:300], column[300:]], len(column), 8000)
    assert found is not None
    assert found[1] == size
    assert found[0][np.arange(1000)].tobytes() == column.tobytes()


class Numbers:
    """Samples with columns of several widths, the first one constant."""

    title, classes, concurrent = "numbers", None, True
    fields = (*(Field(name, "int") for name in NAMES), Field("label", "int"), Field("weight", "float"))

    def __len__(self) -> int:
        return COUNT

    def name(self, position: int) -> str:
        return str(position)

    def read(self, position: int) -> Item:
        numbers: dict[str, Any] = {
            name: number * (position << 3 * number) for number, name in enumerate(NAMES)
        }
        return Item(
            str(position),
            np.zeros((4, 4, 3), np.uint8),
            {**numbers, "label": position % 3, "weight": position / 7},
        )


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("columns") / "d.fl"
    pack(Numbers(), path, encode="raw", shard_samples=150)
    return path


@pytest.mark.parametrize("room", [0, 8 * COUNT, 1 << 20])
@pytest.mark.parametrize("workers", [0, 2])
def test_room_of_all(path: Path, monkeypatch: pytest.MonkeyPatch, room: int, workers: int) -> None:
    """Columns share one room: what fits is in memory, the rest is read in the sidecars, and a loader
    delivers the same bytes."""
    monkeypatch.setattr("fastload.store.reader.HELD_BYTES", room)
    monkeypatch.setattr("fastload.store.sidecar.WALKED_SAMPLES", 0)
    with DatasetReader(path) as reader:
        kept = {name: reader.values(name) for name in (*NAMES, "label", "weight")}
        taken = [values for values in kept.values() if not isinstance(values, TableValues)]
        bytes_taken = sum(
            values.strides[0] * COUNT if isinstance(values, np.ndarray) else values._held.nbytes
            for values in taken
        )
        assert bytes_taken <= room
        assert (len(taken) == 0, len(taken) == len(kept)) == (room == 0, room == 1 << 20)
        assert any(isinstance(values, NarrowedValues) for values in taken) == (room == 8 * COUNT)
    with FastLoader(PackedDataset(path), 64, num_workers=workers) as loader:
        found = [
            sample
            for batch in loader
            for sample in zip(*(batch[name].tolist() for name in (*NAMES, "label", "weight")), strict=True)
        ]
    wanted = (Numbers().read(position).values for position in range(COUNT))
    assert found == [tuple(each[name] for name in (*NAMES, "label", "weight")) for each in wanted]
