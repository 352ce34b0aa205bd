"""TokenBatches: each sample once, in full bins of like patches, in whole steps; shared by ranks, resumable to
the bin with other ranks."""

from __future__ import annotations

import pickle
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pictures import write_folder
from torch.utils.data import DataLoader

import fastload
from fastload import FastLoader, PackedDataset, TokenBatches
from fastload._native import core
from fastload.errors import ArgumentError
from fastload.portable import core as portable
from fastload.sampling import token_batches
from fastload.transforms import RandomResizedCrop

MOST = 64


def documents(count: int, seed: int = 0) -> tuple[npt.NDArray[np.uint32], npt.NDArray[np.uint32]]:
    """Tokens of documents of log-normal texts and 0 to 8 images, at most 8192, and their patches."""
    rng = np.random.default_rng(seed)
    text = np.exp(rng.normal(5.4, 0.8, count)).clip(20, 6000)
    images = rng.choice([0, 1, 2, 3, 4, 8], count, p=[0.06, 0.74, 0.08, 0.05, 0.05, 0.02])
    images *= rng.integers(60, 257, count)
    return np.minimum(text + images, 8192).astype(np.uint32), (4 * images).astype(np.uint32)


@given(
    st.lists(st.tuples(st.integers(0, MOST), st.integers(0, 9)), max_size=200),
    st.integers(1, 5),
    st.integers(0, 2**64 - 1),
    st.integers(0, 3),
    st.booleans(),
    st.booleans(),
    st.sampled_from([token_batches.POOL, 16]),
)
def test_the_law(
    given_: list[tuple[int, int]], bins: int, seed: int, epoch: int, shuffle: bool, drop: bool, pool: int
) -> None:
    """Whole steps; no bin is over-full or empty; every sample comes once, but for the last of fewer samples
    than make a step, and with drop_last for those that are left out, of less than a step's bins."""
    lengths, patches = [each for each, _ in given_], [each for _, each in given_]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(token_batches, "POOL", pool)
        sampler = TokenBatches(
            lengths, MOST, patches=patches, bins=bins, seed=seed, shuffle=shuffle, drop_last=drop
        )
        sampler.set_epoch(epoch)
        found = list(sampler)
        assert list(sampler) == found, "another pass of the epoch"
        assert list(pickle.loads(pickle.dumps(sampler))) == found
        assert len(sampler) == len(found)
    assert len(found) % bins == 0
    assert all(each and sum(lengths[index] for index in each) <= MOST for each in found)
    counts = Counter(index for each in found for index in each)
    if drop:
        assert set(counts.values()) <= {1}
        left_out = [lengths[index] for index in set(range(len(lengths))) - counts.keys()]
        assert len(token_batches.best_fit(np.array(left_out, np.int64), MOST)) == len(left_out)
        assert sum(left_out) < bins * MOST or not left_out
    else:
        assert set(counts) == set(range(len(lengths)))
        again = sum(counts.values()) - len(lengths)
        assert again < bins
        assert not again or all(len(each) == 1 for each in found[-bins:])


@given(st.lists(st.integers(0, MOST), max_size=100), st.sampled_from([MOST, 1 << 20]))
def test_best_fit_is_best_fit(sizes: list[int], room: int) -> None:
    """Against the definition, bin by bin; where rooms are rounded bins are not over-full."""
    sizes = [size * room // MOST for size in sizes]
    found = token_batches.best_fit(np.array(sizes, np.int64), room)
    used = np.bincount(found, weights=sizes) if sizes else np.zeros(0)
    assert (used <= room).all()
    rooms: list[int] = []
    for size in sorted(sizes, reverse=True):
        fitting = [left for left in rooms if left >= size]
        if fitting:
            rooms.remove(min(fitting))
        rooms.append((min(fitting) if fitting else room) - size)
    if room == MOST:
        assert sorted(room - used) == sorted(rooms)
    assert len(used) == len(rooms) or room > MOST


@pytest.mark.parametrize(
    ("room", "size"),
    [(40_000, 10_000), (100_000, 25_000), (10**6, 5 * 10**5), (16_386, 8193), (3 << 20, 1 << 20)],
)
def test_lengths_that_divide_a_bin_fill_it(room: int, size: int) -> None:
    """To the token, however large bins are."""
    sizes = np.full(60, size, np.int64)
    native = token_batches.best_fit(sizes, room)
    assert np.bincount(native).tolist() == [room // size] * (60 // (room // size))


@given(
    st.lists(st.integers(0, 1000), max_size=60), st.sampled_from([1000, 1003]), st.sampled_from([1, 7, 100])
)
def test_portable_best_fit_is_the_native_one(sizes: list[int], room: int, unit: int) -> None:
    arguments = np.array(sizes, np.int64), np.arange(len(sizes))[::-1].copy(), room, unit
    found = core.best_fit(*arguments)
    assert found.tolist() == portable.best_fit(*arguments).tolist()
    assert (np.bincount(found, weights=sizes) <= room).all() if sizes else not len(found)


@pytest.mark.parametrize(
    ("tokens", "order", "room", "unit"),
    [
        ([5], [0], 4, 1),
        ([-1], [0], 4, 1),
        ([1, 1], [0, 2], 4, 1),
        ([1], [0, 0], 4, 1),
        ([], [], 0, 1),
        ([], [], 4, 5),
    ],
)
def test_what_native_code_refuses(tokens: list[int], order: list[int], room: int, unit: int) -> None:
    with pytest.raises(ArgumentError, match=r"for bins of 4|bins of . by"):
        core.best_fit(np.array(tokens, np.int64), np.array(order, np.int64), room, unit)


def test_bins_are_full_and_alike() -> None:
    """Waste, the heaviest of 8 ranks, and neighbouring steps, on 40,000 documents: the bounds of the
    benchmark."""
    lengths, patches = documents(40_000)
    found = list(TokenBatches(lengths, 8192, patches=patches, seed=1))
    tokens = np.array([lengths[each].sum() for each in found], float)
    work = np.array([patches[each].sum() for each in found], float).reshape(-1, 8)
    assert 1 - tokens.mean() / 8192 < 0.01
    heaviest = work.max(axis=1) / work.mean(axis=1)
    assert np.median(heaviest) < 1.03
    assert np.percentile(heaviest, 95) < 1.10
    by_step = tokens.reshape(-1, 8)
    assert np.percentile(by_step.max(axis=1) / by_step.mean(axis=1), 95) < 1.02
    steps = work.mean(axis=1)
    assert abs(np.corrcoef(steps[:-1], steps[1:])[0, 1]) < 0.2


def test_orders() -> None:
    """Each (seed, epoch) has an order of its own; without shuffling samples come about in their order."""
    lengths, _ = documents(20_000)
    sampler = TokenBatches(lengths, 8192, seed=3)
    first = list(sampler)
    assert first != list(TokenBatches(lengths, 8192, seed=4))
    sampler.set_epoch(1)
    assert list(sampler) != first
    ordered = [index for each in TokenBatches(lengths, 8192, shuffle=False) for index in each]
    edge = len(lengths) // 2  # of its pools
    assert np.mean(np.array(ordered[:edge]) < edge) > 0.95


@pytest.mark.parametrize("rule", ["cut", "drop"])
def test_long_samples(rule: Any) -> None:
    """A sample longer than a bin is an error that names it, alone in a bin, or left out; they are counted."""
    lengths = [5, 80, 7, 64, 9, 100]
    with pytest.raises(ArgumentError, match="sample 1 has 80 tokens, as 1 others more than max_tokens=64"):
        TokenBatches(lengths, MOST)
    sampler = TokenBatches(lengths, MOST, bins=1, on_long=rule)
    assert sampler.long == 2
    found = sorted(map(sorted, sampler))
    assert found == ([[0, 2, 4], [1], [3], [5]] if rule == "cut" else [[0, 2, 4], [3]])


def test_ranks_of_its_own() -> None:
    """For torch's DataLoader: a step's bins in strides, all ranks equally many."""
    lengths, patches = documents(3000)
    arguments: dict[str, Any] = {"patches": patches, "bins": 4, "seed": 5}
    whole = list(TokenBatches(lengths, 8192, **arguments))
    for world in (1, 2, 4):
        parts = [
            DataLoader(
                range(3000),
                batch_sampler=TokenBatches(lengths, 8192, shard=(rank, world), **arguments),
                collate_fn=list,
            )
            for rank in range(world)
        ]
        assert [len(part) for part in parts] == [len(whole) // world] * world
        assert [each for step in zip(*parts, strict=True) for each in step] == whole
    with pytest.raises(ArgumentError, match="the 4 bins of a step cannot be shared out among 3 ranks"):
        len(TokenBatches(lengths, 8192, shard=(0, 3), **arguments))


@pytest.fixture(scope="module")
def photos(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("photos")
    fastload.pack(write_folder(root / "src", 40), root / "photos.fl")
    return root / "photos.fl"


@pytest.mark.parametrize("arguments", [{"num_workers": 2}, {"num_workers": 0, "engine": "python"}], ids=str)
def test_resumed_with_other_ranks(photos: Path, arguments: dict[str, Any]) -> None:
    """4 ranks stop in the middle of an epoch, 2 go on: together they had each bin once."""
    dataset = PackedDataset(photos, [RandomResizedCrop(16)], fields=("image", "label"))
    lengths = np.random.default_rng(0).integers(1, 60, 40)

    def loader(rank: int, world: int) -> FastLoader[Any]:
        batches = TokenBatches(lengths, 100, bins=4, seed=3)
        return FastLoader(dataset, batch_sampler=batches, seed=5, shard=(rank, world), **arguments)

    batches = TokenBatches(lengths, 100, bins=4, seed=3)
    batches.set_epoch(1)
    expected = list(batches)
    labels = dataset.column("label")
    states, found = [], []
    for rank in range(4):
        with loader(rank, 4) as begun:
            begun.set_epoch(1)
            passing = iter(begun)
            found += [(rank, next(passing)[1].tolist())]
            states.append(begun.state_dict())
            del passing
    rest: list[list[list[int]]] = []
    for rank in range(2):
        with loader(rank, 2) as resumed:
            resumed.load_state_dict(states[0])
            rest.append([each.tolist() for _, each in resumed])
    joined = [each for _, each in sorted(found)] + [each for step in zip(*rest, strict=True) for each in step]
    assert joined == [[int(labels[index]) for index in each] for each in expected]


@pytest.mark.parametrize("shard", [None, (0, 1)])
def test_a_pass_keeps_its_epoch(shard: Any) -> None:
    """Whatever begins or is asked for meanwhile: other passes, set_epoch(), len()."""
    lengths = np.random.default_rng(0).integers(1, 60, 3000)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(token_batches, "POOL", 256)
        loader = FastLoader(
            range(3000), batch_sampler=TokenBatches(lengths, 512, seed=3), seed=1, shard=shard
        )
        for meanwhile in (lambda: next(iter(loader)), lambda: loader.set_epoch(1), lambda: len(loader)):
            passing = iter(loader)
            found = [next(passing).tolist() for _ in range(5)]
            meanwhile()
            found += [batch.tolist() for batch in passing]
            assert sorted({index for each in found for index in each}) == list(range(3000))
            assert sum(map(len, found)) < 3008


def test_the_length_is_that_of_the_epoch() -> None:
    """Under shard= too, as soon as set_epoch() has named it."""
    lengths = np.random.default_rng(0).choice([170, 180, 250, 260, 340, 60, 90], 5000)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(token_batches, "POOL", 256)
        loaders = [
            FastLoader(
                range(5000), batch_sampler=TokenBatches(lengths, 512, bins=2, seed=3), seed=1, shard=shard
            )
            for shard in (None, (0, 1))
        ]
        counts = set()
        for epoch in range(4):
            for loader in loaders:
                loader.set_epoch(epoch)
                expected = len(loader)
                counts.add(expected)
                assert sum(1 for _ in loader) == len(loader) == expected
    assert len(counts) > 1, "epochs that differ"


def test_what_a_loader_refuses(photos: Path) -> None:
    dataset = PackedDataset(photos, [RandomResizedCrop(16)])
    given_: dict[str, Any] = {"lengths": [1] * 40, "max_tokens": 8, "bins": 4}
    with pytest.raises(ArgumentError, match="cannot be shared out among 3 ranks"):
        FastLoader(dataset, batch_sampler=TokenBatches(**given_), shard=(0, 3))
    with pytest.raises(ArgumentError, match="give it to the loader alone"):
        FastLoader(dataset, batch_sampler=TokenBatches(**given_, shard=(0, 2)), shard=(0, 2))


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"max_tokens": 0}, "max_tokens=0: give a number of 1 or more"),
        ({"max_tokens": 1 << 32}, "max_tokens=4294967296: give a number below"),
        ({"bins": 0}, "bins=0"),
        ({"seed": None}, "seed=None"),
        ({"on_long": "split"}, "on_long='split': choose 'error', 'cut', 'drop'"),
        ({"lengths": [1.5, 2.0]}, "lengths: give one whole number for each sample, not float64"),
        ({"lengths": [[1, 2]]}, "whole number for each sample"),
        ({"lengths": ["a"]}, "whole number for each sample"),
        ({"lengths": [-1, 2]}, "lengths: -1 to 2; give numbers from 0"),
        ({"lengths": [1 << 32]}, "give numbers from 0"),
        ({"patches": [1]}, "patches of 1 samples, lengths of 3"),
        ({"shard": (3, 2)}, "of a world of 2, ranks are counted from 0 to 1"),
    ],
)
def test_arguments_out_of_range(arguments: dict[str, Any], message: str) -> None:
    with pytest.raises(ArgumentError, match=message):
        TokenBatches(**{"lengths": [1, 2, 3], "max_tokens": 8, **arguments})


def test_lengths_are_not_copied(tmp_path: Path) -> None:
    """uint32 is taken as it is: a file that is mapped is in memory once a host."""
    np.save(tmp_path / "lengths.npy", documents(100)[0])
    mapped = np.load(tmp_path / "lengths.npy", mmap_mode="r")
    assert np.shares_memory(TokenBatches(mapped, 8192).lengths, mapped)
    assert list(TokenBatches([], 8)) == []
