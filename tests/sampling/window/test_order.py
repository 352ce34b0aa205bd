"""WindowOrder: a permutation, pure, mixed as promised, and never more than the buffer fetched ahead of its
use."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import numpy.typing as npt
import pytest
import warm
from hypothesis import example, given, settings
from hypothesis import strategies as st

from fastload.errors import ArgumentError
from fastload.sampling import window
from fastload.sampling.window import COUNT_LIMIT, WindowOrder

CLASSES = 1000
IMAGENET = 1281 * CLASSES
MEAN = 110_000
BLOCK, GIB = (2 << 20) // MEAN, (1 << 30) // MEAN
"""Samples of ImageNet's size in a block of 2 MiB, and in a buffer of 1 GiB."""


def most_held(order: npt.NDArray[np.int64], block: int) -> int:
    """Samples held at most where a block, or what the order has of it, is fetched whole at its first
    sample; counted one by one."""
    left: dict[int, int] = {}
    sizes = np.bincount(order // block)
    held = most = 0
    for position in order.tolist():
        number = position // block
        if number not in left:
            left[number] = 0
            held += int(sizes[number])
            most = max(most, held)
        held -= 1
    return most


def distinct(order: npt.NDArray[np.int64], of: int, classes: int, batch: int) -> float:
    """Mean number of distinct classes in a batch of class-sorted data."""
    labels = (order * classes // of)[: len(order) // batch * batch].reshape(-1, batch)
    return float((np.diff(np.sort(labels, axis=1), axis=1) != 0).sum(axis=1).mean() + 1)


@settings(max_examples=300)
@given(
    count=st.integers(1, 700),
    block=st.integers(1, 60),
    buffer=st.integers(1, 800),
    key=st.integers(0, 2**64 - 1),
    cuts=st.lists(st.integers(0, 700), max_size=4),
)
@example(count=1, block=1, buffer=1, key=0, cuts=[])
@example(count=20, block=20, buffer=19, key=1, cuts=[20])
def test_each_sample_once_within_the_buffer(
    count: int, block: int, buffer: int, key: int, cuts: list[int]
) -> None:
    """However the line is cut into parts, they hold each sample once, and none of them needs more than the
    buffer; twice it is the same."""
    ends = sorted({0, count, *(cut % count for cut in cuts)})
    found = []
    for first, end in pairwise(ends):
        part = WindowOrder(count, block, buffer, key, first, end - first)
        order = part.indices()
        assert order.dtype == np.int64
        assert len(order) == end - first
        assert np.array_equal(order, np.concatenate(list(part.chunks())))
        if buffer < len(order):
            assert most_held(order, part.block) <= buffer
        found.append(order)
    assert sorted(np.concatenate(found).tolist()) == list(range(count))


@settings(max_examples=50)
@given(
    count=st.integers(1, 90),
    block=st.integers(1, 20),
    buffer=st.integers(1, 99),
    first=st.integers(0, 300),
    samples=st.integers(0, 400),
)
def test_a_part_that_is_longer_than_the_line(
    count: int, block: int, buffer: int, first: int, samples: int
) -> None:
    """It goes on at the line's beginning, so that no sample is repeated once more than any other of the
    line's stretch."""
    order = WindowOrder(count, block, buffer, 7, first, samples).indices()
    times = np.bincount(order, minlength=count)
    assert len(order) == samples
    assert times.max(initial=0) - times.min() <= 1


@settings(max_examples=200)
@given(
    count=st.integers(1, 2000),
    block=st.integers(1, 60),
    buffer=st.integers(1, 300),
    first=st.integers(0, 3000),
    samples=st.integers(1, 2500),
    step=st.sampled_from([16, 100, 1 << 14]),
    data=st.data(),
)
def test_from_any_place(
    count: int, block: int, buffer: int, first: int, samples: int, step: int, data: st.DataObject
) -> None:
    """An order is the same from any of its places on, and finds the places of its samples, however much is
    computed at a time."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(window, "_STEP", step)
        order = WindowOrder(count, block, buffer, 11, first, samples)
        whole = order.indices()
        start = data.draw(st.integers(0, samples + 1))
        assert np.array_equal(np.concatenate([whole[:0], *order.chunks(start)]), whole[start:])
        if samples <= count:
            low = data.draw(st.integers(0, samples - 1))
            high = data.draw(st.integers(low + 1, min(samples, low + 30)))
            found, places = order.places_of(low, high)
            assert np.array_equal(whole[places], found)
            assert sorted(found.tolist()) == sorted(order.line.positions(first + low, first + high).tolist())


def test_a_late_place_is_reached_at_once() -> None:
    """The last samples of 4 * 10^9 need the blocks that are open there, and the last portion of blocks."""
    order = WindowOrder(4 * 10**9, 1 << 20, 1 << 22, 3)
    assert sum(map(len, order.chunks(4 * 10**9 - 5))) == 5


@pytest.mark.parametrize("batch", [64, 256])
def test_distinct_classes_at_imagenets_size(batch: int) -> None:
    """1 GiB of buffer over 1,000 sorted classes gives batches at least 0.98 of the classes that
    independent draws give."""
    order = WindowOrder(IMAGENET, BLOCK, GIB, 3).indices()
    independent = CLASSES * (1 - (1 - 1 / CLASSES) ** batch)
    assert distinct(order, IMAGENET, CLASSES, batch) >= 0.98 * independent
    steps = np.random.default_rng(0).permutation(len(order))
    assert distinct(order[steps], IMAGENET, CLASSES, batch) == pytest.approx(independent, rel=0.01)


@pytest.mark.parametrize(("buffer", "share"), [(620, 0.93), (1240, 0.95), (4000, 0.98)])
def test_distinct_classes_of_a_small_dataset(buffer: int, share: float) -> None:
    """4,000 samples of 20 sorted classes, batches of 64: a buffer of a third of the data is as good as
    independent draws, within 5 %."""
    found = [distinct(WindowOrder(4000, BLOCK, buffer, key).indices(), 4000, 20, 64) for key in range(20)]
    assert np.mean(found) >= share * 20 * (1 - 0.95**64)


def test_batches_are_of_different_blocks() -> None:
    """Away from the ends, samples that follow one another within a round are of different blocks, in the
    order of no list."""
    part = WindowOrder(100_000, 20, 4000, 1)
    assert part.open_blocks == 2 * 4001 // 21 - 1 == 380
    blocks = part.indices() // 20
    middle = blocks[20_000:80_000].reshape(-1, 100)
    assert np.mean([len(set(batch.tolist())) for batch in middle]) > 97


def test_where_samples_go_is_uniform() -> None:
    """Over many keys each sample comes at each place equally often, in windows (by tenths of the pass) and
    in a full shuffle."""
    for buffer in (60, 200):
        tenths = np.zeros((10, 200), np.int64)
        for key in range(2000):
            order = WindowOrder(200, 8, buffer, key).indices()
            np.add.at(tenths, (np.arange(200) // 20, order), 1)
        assert abs(tenths - 200).max() < 6 * np.sqrt(200 * 0.9)


def test_a_buffer_that_holds_all_is_a_uniform_shuffle() -> None:
    """All 24 orders of four samples are equally frequent, though they lie in two blocks."""
    found = [tuple(WindowOrder(4, 2, 4, key).indices().tolist()) for key in range(4800)]
    counts = {order: found.count(order) for order in set(found)}
    assert len(counts) == 24
    assert all(abs(times - 200) < 6 * np.sqrt(200) for times in counts.values())


def test_known_orders() -> None:
    """Orders stay what they are, from release to release and on every machine: runs that were begun go on."""
    assert WindowOrder(12, 3, 6, 2**63 - 1).indices().tolist() == [4, 11, 5, 10, 3, 8, 9, 0, 6, 7, 2, 1]
    assert WindowOrder(10, 3, 100, 5).indices().tolist() == [5, 4, 2, 1, 7, 0, 3, 6, 9, 8]
    assert (
        int((WindowOrder(50_000, 19, 900, 11).indices() * np.arange(50_000) % 1_000_003).sum())
        == 24_973_756_461
    )


def test_equal_in_another_process() -> None:
    """Nothing of the process decides."""
    program = (
        "from fastload.sampling.window import WindowOrder; print(WindowOrder(3000, 7, 90, "
        "41).indices().tolist())"
    )
    out = warm.run(program)
    assert out.stdout.strip() == str(WindowOrder(3000, 7, 90, 41).indices().tolist())


def test_the_first_pieces_need_little() -> None:
    """A first piece is a small part of a long pass, so that the first index does not wait for the last."""
    sizes = [len(chunk) for chunk in WindowOrder(1_000_000, BLOCK, GIB, 0).chunks()]
    assert max(sizes) < 50_000
    assert sum(sizes) == 1_000_000


def test_too_many_samples() -> None:
    """More samples than rounds can be numbered are refused."""
    with pytest.raises(ArgumentError, match=r"orders at most 4,294,967,295; use shuffle=\"huge\""):
        WindowOrder(COUNT_LIMIT, 1, 1, 0)
