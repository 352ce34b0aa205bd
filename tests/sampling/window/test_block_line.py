"""BlockLine: one random order of blocks, however much of it is computed at a time."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fastload.sampling.block_line import BlockLine, expanded, words_at


def by_sorting(count: int, block: int, key: int) -> npt.NDArray[np.int64]:
    """All samples of the line: the blocks sorted by one random word each."""
    blocks = -(-count // block)
    below = np.uint64((1 << max(1, (blocks - 1).bit_length())) - 1)
    words = np.asarray(np.random.Philox(key=key).random_raw(blocks), np.uint64)
    order = np.argsort(words & ~below | np.arange(blocks, dtype=np.uint64)).astype(np.int64)
    return np.concatenate(
        [np.arange(number * block, min(count, number * block + block)) for number in order.tolist()]
    )


@settings(max_examples=150)
@given(
    count=st.integers(1, 3000),
    block=st.integers(1, 40),
    key=st.integers(0, 2**64 - 1),
    portion=st.integers(1, 300) | st.none(),
    data=st.data(),
)
def test_any_stretch(count: int, block: int, key: int, portion: int | None, data: st.DataObject) -> None:
    """Positions, runs and their lengths of any stretch, with portions of any size, are those of the whole
    line."""
    block = min(block, count)
    line = BlockLine(count, block, key, portion)
    samples = by_sorting(count, block, key)
    assert np.array_equal(line.positions(0, count), samples)
    begin = data.draw(st.integers(0, 2 * count))
    end = data.draw(st.integers(begin, begin + 2 * count))
    assert np.array_equal(line.positions(begin, end), samples[np.arange(begin, end) % count])
    for stretch in line.stretches(begin, end):
        lengths = np.concatenate([lengths for _, lengths in stretch.runs()])
        assert len(lengths) == len(stretch)
        assert lengths.sum() == stretch.samples
        assert dict(stretch.short_runs()) == {
            number: length for number, length in enumerate(lengths.tolist()) if length < block
        }
        ends = np.cumsum(lengths)
        for place in {0, stretch.samples // 2, stretch.samples - 1}:
            assert stretch.run_at(place) == np.searchsorted(ends, place, "right")
        first = data.draw(st.integers(0, len(stretch)))
        later = np.concatenate([samples[:0], *(expanded(*runs) for runs in stretch.runs(first))])
        assert np.array_equal(
            later, line.positions(begin, begin + stretch.samples)[ends[first - 1] if first else 0 :]
        )
        begin += stretch.samples


@pytest.mark.parametrize("first", [0, 1, 3, 4, 1027])
def test_words_are_reached_at_once(first: int) -> None:
    """Word number n of a stream is the same, whether those before it are made or not."""
    stream = np.random.Philox(key=9, counter=[0, 0, 5, 1]).random_raw(2000)
    assert np.array_equal(words_at(first, key=9, stream=(5, 1)).random_raw(50), stream[first : first + 50])


def test_the_first_blocks_of_many() -> None:
    """Blocks of 2 * 10^8 samples come a portion at a time; a short block lies where its word puts it."""
    line = BlockLine(200_000_001, 19, 4)
    first = next(line.blocks(5_000_000, 5_000_100))
    assert len(first) == 100
    short = int(line.number_at(0))
    assert short == 0
    assert line.start_of(-(-200_000_001 // 19)) == 200_000_001
