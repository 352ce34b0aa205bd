"""BucketBatchSampler: each sample once, in batches of one bucket, as torchvision's references group them;
resumable, shared by ranks."""

from __future__ import annotations

import bisect
import pickle
from collections import defaultdict
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from pictures import write_folder
from torch.utils.data import ConcatDataset, DataLoader, Subset

import fastload
from fastload import BucketBatchSampler, FastLoader, PackedDataset
from fastload.common.rng import KeyedPermutation, order_seed
from fastload.errors import ArgumentError
from fastload.sampling.buckets import ASPECT_EDGES
from fastload.transforms import RandomResizedCrop

SHAPES = ((40, 60), (60, 40), (50, 50), (30, 90), (64, 56))
COUNT = 41


@pytest.fixture(scope="module")
def shapes(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """41 images of five shapes, packed."""
    root = tmp_path_factory.mktemp("shapes")
    out = root / "shapes.fl"
    fastload.pack(write_folder(root / "src", COUNT, size=lambda i: SHAPES[i % 5]), out)
    return out


def grouped(order: Iterable[int], groups: list[int], size: int) -> list[list[int]]:
    """The full batches of torchvision's GroupedBatchSampler over an order: a group's samples are a batch
    as soon as there are enough."""
    waiting: dict[int, list[int]] = defaultdict(list)
    batches = []
    for index in order:
        waiting[groups[index]].append(index)
        if len(waiting[groups[index]]) == size:
            batches.append(waiting.pop(groups[index]))
    return batches


@given(
    st.lists(st.floats(0.1, 10), max_size=300),
    st.integers(1, 9),
    st.one_of(st.none(), st.lists(st.floats(0.1, 10), max_size=4).map(sorted)),
    st.integers(0, 2**64 - 1),
    st.integers(0, 5),
    st.booleans(),
    st.booleans(),
)
def test_the_rule(
    values: list[float],
    size: int,
    edges: list[float] | None,
    seed: int,
    epoch: int,
    shuffle: bool,
    drop: bool,
) -> None:
    """Full batches are torchvision's in the same sequence; then the rest, a batch a bucket, largest first;
    len() says how many."""
    sampler = BucketBatchSampler(
        values, size, by=values, edges=edges, seed=seed, shuffle=shuffle, drop_last=drop
    )
    sampler.set_epoch(epoch)
    count = len(values)
    order = (
        KeyedPermutation(count, order_seed(seed, epoch)).at(np.arange(count)).tolist()
        if shuffle and count
        else list(range(count))
    )
    groups = sampler.buckets.tolist()
    if edges is not None:
        assert groups == [bisect.bisect_right(edges, value) for value in values]
    got, full = list(sampler), grouped(order, groups, size)
    assert got[: len(full)] == full
    rest = got[len(full) :]
    assert len(sampler) == len(got)
    assert all(len({groups[index] for index in batch}) == 1 for batch in got)
    if drop:
        assert not rest
        assert len(full) == sum(groups.count(group) // size for group in set(groups))
    else:
        assert sorted(index for batch in got for index in batch) == list(range(count))
        assert [len(batch) for batch in rest] == sorted((len(batch) for batch in rest), reverse=True)
        assert len({groups[batch[0]] for batch in rest}) == len(rest)
        assert all(len(batch) < size for batch in rest)
    assert list(sampler) == got, "another pass of the epoch"
    assert list(pickle.loads(pickle.dumps(sampler))) == got


def test_aspect_and_size_of_packed_data(shapes: Path) -> None:
    """From columns, through Subset and ConcatDataset; edges are torchvision's references' for three groups
    an octave."""
    dataset = PackedDataset(shapes)
    heights, widths = dataset.sizes
    assert list(ASPECT_EDGES) == pytest.approx((2 ** np.linspace(-1, 1, 7)).tolist())
    want = [
        bisect.bisect_right(ASPECT_EDGES, width / height)
        for height, width in zip(heights, widths, strict=True)
    ]
    assert BucketBatchSampler(dataset, 4).buckets.tolist() == want
    assert len(set(want)) == 5
    part: Any = Subset(dataset, [5, 0, 39])
    assert BucketBatchSampler(part, 4).buckets.tolist() == [want[5], want[0], want[39]]
    assert BucketBatchSampler(ConcatDataset([dataset, part]), 4).buckets.tolist() == [
        *want,
        want[5],
        want[0],
        want[39],
    ]
    pixels = (heights.astype(int) * widths).tolist()
    by_size = BucketBatchSampler(dataset, 4, by="size").buckets.tolist()
    assert sorted(zip(pixels, by_size, strict=True)) == sorted(
        zip(pixels, by_size, strict=True), key=lambda pair: (pair[1], pair[0])
    )
    assert 4 <= len(set(by_size)) <= 8


def test_orders_differ_by_seed_and_epoch(shapes: Path) -> None:
    """Each (seed, epoch) has an order of its own; set_epoch goes through the loader."""
    dataset = PackedDataset(shapes, [RandomResizedCrop(16)])
    sampler = BucketBatchSampler(dataset, 4, seed=3)
    first = list(sampler)
    assert first != list(BucketBatchSampler(dataset, 4, seed=4))
    with FastLoader(dataset, batch_sampler=sampler, num_workers=1) as loader:
        loader.set_epoch(1)
        assert sampler.epoch == 1
        assert list(sampler) != first


@pytest.mark.parametrize("arguments", [{"num_workers": 2}, {"num_workers": 0, "engine": "python"}], ids=str)
def test_a_loader_goes_on_in_mid_epoch(shapes: Path, arguments: dict[str, Any]) -> None:
    """The rest of the batches, from any place, with the sampler at its epoch, and other sizes of batches
    refused."""
    dataset = PackedDataset(shapes, [RandomResizedCrop(16)], fields=("image", "label"))

    def loader(size: int = 4) -> FastLoader[Any]:
        return FastLoader(
            dataset, batch_sampler=BucketBatchSampler(dataset, size, seed=3), seed=5, **arguments
        )

    with loader() as whole:
        whole.set_epoch(2)
        want = [images.clone() for images, _ in whole]
        assert len(want) == len(whole)
    for had in (1, 5, len(want)):
        with loader() as begun, loader() as resumed:
            begun.set_epoch(2)
            batches = iter(begun)
            for _ in range(had):
                next(batches)
            resumed.load_state_dict(begun.state_dict())
            got = [images.clone() for images, _ in resumed]
            if had < len(want):
                assert len(got) == len(want) - had
                assert all(torch.equal(a, b) for a, b in zip(got, want[had:], strict=True))
            del batches
    with loader() as begun, loader(5) as other:
        next(iter(begun))
        with pytest.raises(ArgumentError, match="batch_size"):
            other.load_state_dict(begun.state_dict())


@pytest.mark.parametrize("even", [True, False])
@pytest.mark.parametrize("num_workers", [0, 2])
def test_ranks_share_the_batches(even: bool, num_workers: int) -> None:
    """Under shard= every rank has its stride of each epoch's batches: together all, once; with even=True
    equally many."""
    values = [index % 5 / 5 for index in range(COUNT)]
    samples, sampler = list(range(COUNT)), BucketBatchSampler(range(COUNT), 4, by=values, seed=3)
    found: list[list[list[list[int]]]] = [[], []]
    for rank in range(3):
        own = BucketBatchSampler(range(COUNT), 4, by=values, seed=3)
        with FastLoader(
            samples, batch_sampler=own, num_workers=num_workers, shard=(rank, 3), even=even
        ) as loader:
            for epoch in (0, 1):
                found[epoch].append([batch.tolist() for batch in loader])
                assert len(loader) == len(found[epoch][-1])
    for epoch, ranks in enumerate(found):
        sampler.set_epoch(epoch)
        batches = list(sampler)
        joined = [
            batch for turn in range(max(map(len, ranks))) for each in ranks for batch in each[turn : turn + 1]
        ]
        assert joined[: len(batches)] == batches
        assert len(joined) == (-(-len(batches) // 3) * 3 if even else len(batches))
    assert found[0] != found[1]


def test_in_torchs_own_loader(shapes: Path) -> None:
    """The same batches, of like shapes."""
    dataset = PackedDataset(shapes)
    sampler = BucketBatchSampler(dataset, 4, seed=3)
    loader: Any = DataLoader(
        dataset,
        batch_sampler=sampler,
        collate_fn=lambda samples: [tuple(sample[0].shape[1:]) for sample in samples],
    )
    found = list(loader)
    assert [len(batch) for batch in found] == [len(batch) for batch in sampler]
    assert all(len(set(batch)) == 1 for batch in found)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"batch_size": 0}, "batch_size"),
        ({"seed": None}, "seed=None"),
        ({"seed": -1}, "seed"),
        ({"by": "shape"}, "by='shape'"),
        ({"by": [1.0, 2.0]}, r"\(2,\) numbers for 41 samples"),
        ({"by": [float("nan")] * COUNT}, "no NaN"),
        ({"by": [[]]}, "numbers for 41 samples"),
        ({"edges": [2.0, 1.0]}, "ascending"),
        ({"edges": [float("nan")]}, "ascending"),
        ({"dataset": [1, 2]}, "list does not tell its images' sizes"),
    ],
)
def test_arguments_out_of_range(shapes: Path, arguments: dict[str, Any], message: str) -> None:
    """Each is named, with what to give."""
    given_ = {"dataset": PackedDataset(shapes), "batch_size": 4, **arguments}
    with pytest.raises(ArgumentError, match=message):
        BucketBatchSampler(given_.pop("dataset"), given_.pop("batch_size"), **given_)
