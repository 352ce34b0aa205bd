"""Groups: each record is in exactly one group, groups cover their records, and hostile places are refused
or harmless."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fastload.store.checked import Bad
from fastload.store.groups import GROUP_BYTES, Groups

FILE_BYTES = 1 << 40


def places_of(records: list[tuple[int, int]]) -> np.ndarray[tuple[int, int], np.dtype[np.uint32]]:
    """Places as sidecars have them: low and high half of the start, and the size."""
    return np.array([(start & 0xFFFFFFFF, start >> 32, size) for start, size in records], np.uint32).reshape(
        -1, 3
    )


RECORD = st.tuples(st.integers(0, FILE_BYTES // 2), st.integers(0, 4 * GROUP_BYTES))
NEAR = st.tuples(st.integers(0, 30 * GROUP_BYTES), st.integers(0, 2 * GROUP_BYTES))


@st.composite
def laid_out(draw: st.DrawFn) -> list[tuple[int, int]]:
    """Records as pack lays them out: side by side, with some tree pages between, in any order of rows."""
    at, records = 4096, []
    for size in draw(
        st.lists(st.one_of(st.integers(1, 5000), st.integers(1, 3 * GROUP_BYTES)), min_size=1, max_size=120)
    ):
        records.append((at, size))
        at += size + draw(st.sampled_from([0, 0, 0, 16, 4096]))
    return draw(st.permutations(records))


@given(
    st.one_of(laid_out(), st.lists(RECORD, min_size=1, max_size=60), st.lists(NEAR, min_size=1, max_size=60))
)
def test_each_record_in_one_group(records: list[tuple[int, int]]) -> None:
    """Whatever the places, overlapping ones too: `of`, `records` and the ranges agree, and no group's gaps
    make it large."""
    groups = Groups(places_of(records), FILE_BYTES)
    rows = np.arange(len(records))
    of = groups.of(rows)
    assert of.min() >= 0
    assert of.max() < len(groups)
    seen: list[int] = []
    for group in range(len(groups)):
        starts, sizes, mine = groups.records(group, group)
        assert mine.tolist() == [int(row) for row in mine if of[row] == group]
        assert [(int(start), int(size)) for start, size in zip(starts, sizes, strict=True)] == [
            records[row] for row in mine
        ]
        first, last = min(records[row][0] for row in mine), max(sum(records[row]) for row in mine)
        assert (int(groups.starts[group]), int(groups.stops[group])) == (first, last)
        assert last - first <= 10 * GROUP_BYTES + max(records[row][1] for row in mine)
        seen += mine.tolist()
    assert sorted(seen) == rows.tolist()
    assert [groups.place(row) for row in rows] == records
    _, _, every = groups.records(0, len(groups) - 1)
    assert sorted(every.tolist()) == rows.tolist()


@given(laid_out())
def test_groups_of_what_pack_writes_are_in_order_and_apart(records: list[tuple[int, int]]) -> None:
    """Groups follow each other in the file and never overlap, and small records alone share a group."""
    groups = Groups(places_of(records), FILE_BYTES)
    assert np.all(groups.starts[1:] >= groups.stops[:-1])
    for group in range(len(groups)):
        _, sizes, _ = groups.records(group, group)
        assert int(sizes.sum()) - int(sizes[-1]) <= 2 * GROUP_BYTES or len(sizes) == 1


@pytest.mark.parametrize(
    "records",
    [
        [],
        [(FILE_BYTES, 1)],
        [(FILE_BYTES - 5, 6)],
        [((1 << 64) - 1, 1)],
        [((1 << 64) - 1, 0xFFFFFFFF)],
        [(0, 5), ((1 << 63) + 7, 9)],
    ],
    ids=["none", "begins at the end", "ends behind it", "wraps around", "wraps far around", "second one"],
)
def test_places_outside_of_the_file_are_refused(records: list[tuple[int, int]]) -> None:
    with pytest.raises(Bad, match="outside"):
        Groups(places_of(records), FILE_BYTES)


def test_places_at_the_file_s_end_are_right() -> None:
    assert len(Groups(places_of([(FILE_BYTES - 5, 5)]), FILE_BYTES)) == 1
