"""WindowSampler: every sample once over all ranks, pure in (seed, epoch), sizes in bytes, and what
DataLoader and frameworks ask."""

from __future__ import annotations

import io
import pickle
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import warm
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import distributed
from torch.utils.data import ConcatDataset, DataLoader, DistributedSampler, Subset

import fastload
from fastload import PackedDataset, WindowSampler
from fastload.errors import ArgumentError
from fastload.sampling.window import mean_bytes, window_sizes
from fastload.store import DatasetWriter, Field, Schema


def packed(path: Path, samples: int, size: int) -> PackedDataset:
    """A dataset of JPEGs that hold so many bytes more than they need."""
    from pictures import photo

    jpeg = io.BytesIO()
    photo(1, 16, 16).save(jpeg, "JPEG")
    writer = DatasetWriter(
        path, Schema((Field("image", "image"), Field("label", "int"))), shard_size=1 << 30, options={}
    )
    for label in range(samples):
        writer.append(
            {"image": jpeg.getvalue() + bytes(size), "label": label},
            image_kind="jpeg",
            height=16,
            width=16,
            state={},
        )
    writer.finish(None, {})
    return PackedDataset(path)


@settings(max_examples=150)
@given(
    count=st.integers(1, 300),
    block=st.integers(1, 40),
    buffer=st.integers(1, 400),
    replicas=st.integers(1, 9),
    seed=st.integers(0, 2**64 - 1),
    epoch=st.integers(0, 2**63 - 1),
    drop=st.booleans(),
)
def test_all_ranks_together(
    count: int, block: int, buffer: int, replicas: int, seed: int, epoch: int, drop: bool
) -> None:
    """Ranks have DistributedSampler's lengths; together they give each sample once, but for what pads or
    is dropped, and again the same."""
    found = []
    for rank in range(replicas):
        sampler = WindowSampler(
            count, block=block, buffer=buffer, seed=seed, num_replicas=replicas, rank=rank, drop_last=drop
        )
        theirs: Any = DistributedSampler(range(count), replicas, rank, drop_last=drop)
        sampler.set_epoch(epoch)
        indices = list(sampler)
        assert len(sampler) == len(indices) == len(theirs)
        assert (sampler.num_samples, sampler.total_size) == (theirs.num_samples, theirs.total_size)
        assert indices == sampler.indices().tolist() == list(pickle.loads(pickle.dumps(sampler)))
        assert all(type(index) is int for index in indices)
        found += indices
    times = np.bincount(found, minlength=count)
    if drop:
        assert times.max() <= 1
        assert len(found) == count // replicas * replicas
    else:
        assert times.min() >= 1
        assert times.max() - times.min() <= 1
        assert len(found) == -(-count // replicas) * replicas


def test_ranks_share_few_blocks() -> None:
    """A block is fetched by one rank: at most one at each border is fetched by two, and the padding's."""
    seen: list[set[int]] = []
    for rank in range(8):
        sampler = WindowSampler(100_003, block=20, buffer=2000, seed=1, num_replicas=8, rank=rank)
        seen.append(set((sampler.indices() // 20).tolist()))
    assert sum(map(len, seen)) <= 5001 + 8


def test_epochs_and_seeds_differ() -> None:
    """Each (seed, epoch) has an order of its own; set_epoch alone changes it."""
    orders = set()
    for seed in (0, 1, 2**64 - 1):
        sampler = WindowSampler(500, block=10, buffer=100, seed=seed)
        assert list(sampler) == list(sampler)
        for epoch in (0, 1, 2**63 - 1):
            sampler.set_epoch(epoch)
            orders.add(tuple(sampler))
    assert len(orders) == 9


def test_without_a_seed() -> None:
    """The order follows torch's generator, one number a pass at the first index, as RandomSampler's;
    indices() tells it without a draw."""
    sampler = WindowSampler(300, block=10, buffer=100)
    torch.manual_seed(3)
    ahead = sampler.indices().tolist()
    iterator = iter(sampler)
    state = torch.get_rng_state()
    first = [next(iterator), *iterator]
    assert first == ahead
    assert not torch.equal(state, torch.get_rng_state())
    second = list(sampler)
    assert second != first
    torch.manual_seed(3)
    assert [list(sampler), list(sampler)] == [first, second]
    generators = [torch.Generator().manual_seed(8) for _ in range(2)]
    before = torch.get_rng_state()
    one, two = (list(WindowSampler(300, block=10, buffer=100, generator=each)) for each in generators)
    assert one == two
    assert torch.equal(before, torch.get_rng_state())


def test_sizes_in_bytes(tmp_path: Path) -> None:
    """Text is bytes, divided by the mean stored size: of packed data, Subset and ConcatDataset of them;
    any other has 110,000 a sample."""
    small, large = packed(tmp_path / "small", 40, 9_000), packed(tmp_path / "large", 20, 90_000)
    for dataset, size in ((small, 9_000), (large, 90_000)):
        assert size < (mean_bytes(dataset) or 0) < size + 2 * 4096  # records lie in whole pages
    assert mean_bytes(Subset(large, [1, 2])) == mean_bytes(large)
    both: Any = ConcatDataset([small, Subset(large, range(10))])
    assert mean_bytes(both) == pytest.approx((40 * mean_bytes(small) + 10 * mean_bytes(large)) / 50)  # type: ignore[operator]
    assert mean_bytes(ConcatDataset([small, [1]])) is None  # type: ignore[list-item]
    assert window_sizes(small, "200KB", "2MB")[0] in range(12, 22)
    assert window_sizes(range(9), "1.1MB", 7) == (10, 7)
    assert window_sizes(large, "1B", "1KB") == (1, 1)
    assert len(WindowSampler(both, block="20KB", buffer="100KB", seed=1).indices()) == 50


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"block": 0}, 'block=0: give a number of 1 or more samples, or a size such as "2MiB"'),
        ({"block": "many"}, "block 'many' is no size"),
        ({"buffer": True}, "buffer=True: give a number"),
        ({"buffer": 2.5}, 'buffer=2.5: give a number of 1 or more samples, or a size such as "1GiB"'),
        ({"dataset": -1}, "dataset=-1: give a number of 0 or more"),
        ({"dataset": None}, "dataset=None: give a number"),
        ({"seed": -1}, "seed=-1"),
        ({"num_replicas": 2}, "num_replicas=2 without rank="),
        (
            {"num_replicas": 2, "rank": 2, "seed": 1},
            "rank=2 of num_replicas=2: ranks are counted from 0 to 1",
        ),
        ({"num_replicas": 2, "rank": 1}, "several ranks needs seed="),
        ({"num_replicas": 0, "rank": 0}, "num_replicas=0: give a number of 1 or more"),
        ({"num_replicas": "2"}, "num_replicas='2': give a number"),
        ({"rank": -1}, "rank=-1: give a number"),
    ],
)
def test_what_is_refused(arguments: dict[str, Any], message: str) -> None:
    """Each bad argument is one ArgumentError when the sampler is made."""
    with pytest.raises(ArgumentError, match=re.escape(message)):
        WindowSampler(**{"dataset": 10, **arguments})
    with pytest.raises(ArgumentError, match="epoch -1"):
        WindowSampler(10).set_epoch(-1)


def test_the_process_group_says_the_rank(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A sampler that was made before the group takes rank and size from it; started by a launcher without
    a group it refuses to guess."""
    sampler = WindowSampler(10, block=2, buffer=4, seed=1)
    monkeypatch.setenv("WORLD_SIZE", "2")
    assert len(sampler) == 10
    with pytest.raises(ArgumentError, match="no process group"):
        next(iter(sampler))
    assert len(list(WindowSampler(10, seed=1, num_replicas=1, rank=0))) == 10
    monkeypatch.delenv("WORLD_SIZE")
    distributed.init_process_group("gloo", init_method=f"file://{tmp_path / 'group'}", rank=0, world_size=1)
    try:
        monkeypatch.setattr(distributed, "get_world_size", lambda: 4)
        monkeypatch.setattr(distributed, "get_rank", lambda: 3)
        assert (len(sampler), sampler.num_replicas, sampler.rank) == (3, 4, 3)
        assert list(sampler) == list(WindowSampler(10, block=2, buffer=4, seed=1, num_replicas=4, rank=3))
    finally:
        distributed.destroy_process_group()


def test_with_torchs_dataloader() -> None:
    """It is a sampler for torch's DataLoader too, and a dataset that grows is sampled as it is at each
    iter()."""
    data = list(range(70))
    sampler = WindowSampler(data, block=5, buffer=30, seed=2)
    loader: Any = DataLoader(data, batch_size=8, sampler=sampler)  # type: ignore[arg-type]
    assert sorted(torch.cat(list(loader)).tolist()) == data
    data += range(70, 90)
    assert (len(sampler), len(loader)) == (90, 12)
    assert sorted(torch.cat(list(loader)).tolist()) == data
    assert isinstance(sampler, DistributedSampler)  # what frameworks leave in its place


def test_equal_in_another_process() -> None:
    """(seed, epoch) alone decide, in any process."""
    program = (
        "import fastload; s = fastload.WindowSampler(2000, block=9, buffer=200, seed=6); s.set_epoch(4); "
        "print(list(s))"
    )
    out = warm.run(program)
    sampler = fastload.WindowSampler(2000, block=9, buffer=200, seed=6)
    sampler.set_epoch(4)
    assert out.stdout.strip() == str(list(sampler))


def test_no_samples() -> None:
    """An empty dataset gives an empty pass, as DistributedSampler."""
    assert list(WindowSampler(0)) == []
    assert WindowSampler(0, num_replicas=3, rank=1, seed=0).indices().tolist() == []
