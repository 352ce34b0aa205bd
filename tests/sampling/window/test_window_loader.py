"""FastLoader(shuffle="window"): on every engine a permutation that follows (seed, epoch), resumed and
rebuilt as any other order."""

from __future__ import annotations

import copy
import io
import pickle
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from pictures import photo
from torch.utils.data import ConcatDataset, DataLoader, Dataset, IterableDataset, RandomSampler, Subset

from fastload import FastLoader, PackedDataset, WindowSampler
from fastload import transforms as T
from fastload.errors import ArgumentError
from fastload.sampling import window as sampler_module
from fastload.sampling.window import RandomWindowSampler, WindowOrder
from fastload.store import DatasetWriter, Field, Schema

COUNT = 60


class Numbers(Dataset[int]):
    def __len__(self) -> int:
        return COUNT

    def __getitem__(self, index: int) -> int:
        return index


def unchanged(image: torch.Tensor) -> torch.Tensor:
    """A step of Python."""
    return image


@pytest.fixture(scope="module")
def numbered(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """COUNT packed images, numbered by their labels."""
    path = tmp_path_factory.mktemp("window") / "images.fl"
    writer = DatasetWriter(
        path, Schema((Field("image", "image"), Field("label", "int"))), shard_size=1 << 20, options={}
    )
    for label in range(COUNT):
        jpeg = io.BytesIO()
        photo(label, 24, 24).save(jpeg, "JPEG")
        writer.append(
            {"image": jpeg.getvalue(), "label": label}, image_kind="jpeg", height=24, width=24, state={}
        )
    writer.finish(None, {})
    return path


@pytest.fixture(autouse=True)
def _small_windows(monkeypatch: pytest.MonkeyPatch) -> None:
    """Blocks and a buffer that are small beside COUNT, so that the order is one of windows."""
    monkeypatch.setattr(sampler_module, "BLOCK", 4)
    monkeypatch.setattr(sampler_module, "BUFFER", 14)


ENGINES = ["threads", "threads, 0", "packed", "packed, 0", "map", "map, 0"]


def loader_on(engine: str, path: Path, **options: Any) -> FastLoader[Any]:
    kind, workers = engine.partition(",")[0], 0 if engine.endswith("0") else 2
    if kind == "map":
        return FastLoader(Numbers(), **{"batch_size": 7, "num_workers": workers, **options})
    dataset = PackedDataset(path, transform=[T.CenterCrop(16), *([unchanged] if kind == "packed" else [])])
    return FastLoader(dataset, **{"batch_size": 7, "num_workers": workers, **options})


def labels(batches: Any) -> list[int]:
    return [int(label) for batch in batches for label in (batch[1] if isinstance(batch, list) else batch)]


@pytest.mark.parametrize("shuffle", ["window", "huge"])
@pytest.mark.parametrize("engine", ENGINES)
def test_every_engine_gives_the_same_order(numbered: Path, engine: str, shuffle: str) -> None:
    """With a seed each epoch is another permutation, the same on every engine and for a loader made anew
    at that epoch."""
    with loader_on(engine, numbered, shuffle=shuffle, seed=5) as loader:
        assert len(loader) == 9
        epochs = [labels(loader) for _ in range(3)]
    with loader_on("map, 0", numbered, shuffle=shuffle, seed=5, batch_size=3) as other:
        assert [labels(other) for _ in range(3)] == epochs
        other.set_epoch(1)
        assert labels(other) == epochs[1]
    assert all(sorted(epoch) == list(range(COUNT)) for epoch in epochs)
    assert len({tuple(epoch) for epoch in epochs}) == 3


def test_the_order_is_one_of_windows(numbered: Path) -> None:
    """Blocks are runs of positions: few are open at a time, where a full shuffle has them all open."""
    with loader_on("threads", numbered, shuffle="window", seed=1) as loader:
        order = labels(loader)
    first, last = (
        {block: f(i for i, label in enumerate(order) if label // 4 == block) for block in range(15)}
        for f in (min, max)
    )
    assert WindowOrder(COUNT, 4, 14, 0).open_blocks == 5
    assert max(sum(first[b] <= at <= last[b] for b in range(15)) for at in range(COUNT)) <= 8
    assert max(last[b] - first[b] for b in range(15)) < 30


@pytest.mark.parametrize("engine", ENGINES)
def test_drop_last_and_without_a_seed(numbered: Path, engine: str) -> None:
    """drop_last drops the short batch; without a seed torch.manual_seed repeats the order, and generator=
    decides it."""
    runs = []
    for _ in range(2):
        torch.manual_seed(4)
        with loader_on(engine, numbered, shuffle="window", drop_last=True) as loader:
            assert len(loader) == 8
            runs.append([labels(loader), labels(loader)])
        with loader_on(
            engine, numbered, shuffle="window", generator=torch.Generator().manual_seed(9)
        ) as loader:
            runs[-1].append(labels(loader))
    assert runs[0] == runs[1]
    assert len(set(runs[0][0])) == 56
    assert runs[0][0] != runs[0][1]


@pytest.mark.parametrize("engine", ["threads", "packed", "map, 0"])
@pytest.mark.parametrize("seed", [None, 2])
def test_resumed_in_mid_epoch(numbered: Path, engine: str, seed: int | None) -> None:
    """A state of mid-epoch goes on with the samples that are left, in the order that was begun, and with
    the epochs after it."""
    torch.manual_seed(1)
    with loader_on(engine, numbered, shuffle="window", seed=seed) as loader:
        list(loader)
        batches = iter(loader)
        had = labels(next(batches) for _ in range(4))
        state = loader.state_dict()
        rest = labels(batches)
    torch.manual_seed(99)
    with loader_on(engine, numbered, shuffle="window", seed=seed) as loader:
        loader.load_state_dict(state)
        assert labels(loader) == rest
    assert sorted(had + rest) == list(range(COUNT))
    with (
        loader_on(engine, numbered, shuffle=True, seed=seed) as loader,
        pytest.raises(ArgumentError, match="mid-epoch of a RandomWindow"),
    ):
        loader.load_state_dict(state)


@pytest.mark.parametrize("engine", ENGINES)
def test_rebuilt_by_frameworks(numbered: Path, engine: str) -> None:
    """A loader made of another's attributes, by its class or by torch's, copied or pickled, has an order
    of windows too."""
    with loader_on(engine, numbered, shuffle="window", seed=3) as loader:
        assert isinstance(loader.sampler, RandomSampler)  # frameworks read from this that the loader shuffles
        names = ("dataset", "batch_size", "num_workers", "collate_fn", "drop_last", "generator")
        given: dict[str, Any] = {name: getattr(loader, name) for name in names}
        with FastLoader(**given, seed=loader.seed, sampler=loader.sampler) as again:
            assert sorted(labels(again)) == list(range(COUNT))
            assert type(again.sampler) is RandomWindowSampler
        plain: Any = DataLoader(**given, sampler=loader.sampler)
        assert sorted(labels(plain)) == list(range(COUNT))
        expected = labels(loader)
    for other in (copy.copy(loader), pickle.loads(pickle.dumps(loader))):
        other.set_epoch(0)
        assert labels(other) == expected
        other.close()


def test_subsets_and_concatenations(numbered: Path) -> None:
    """Positions of the loader's dataset are what is shuffled, whatever it is made of, and as it is at each
    iter()."""
    dataset = PackedDataset(numbered, transform=[T.CenterCrop(16)])
    picked = list(range(10, 50, 2))
    both: Any = ConcatDataset([Subset(dataset, picked), dataset])
    with FastLoader(both, batch_size=8, num_workers=1, shuffle="window", seed=1) as loader:
        assert sorted(labels(loader)) == sorted(picked + list(range(COUNT)))
    subset = Subset(dataset, picked)
    with FastLoader(subset, batch_size=8, num_workers=1, shuffle="window", seed=1) as loader:
        assert sorted(labels(loader)) == picked
        subset.indices = [5, 6, 7]
        assert sorted(labels(loader)) == [5, 6, 7]


def test_a_sampler_of_its_own(numbered: Path) -> None:
    """WindowSampler is told the epoch by set_epoch, and ranks have disjoint batches on native threads."""
    dataset = PackedDataset(numbered, transform=[T.CenterCrop(16)])
    found = []
    for rank in range(2):
        sampler = WindowSampler(dataset, block=4, buffer=12, seed=7, num_replicas=2, rank=rank)
        with FastLoader(dataset, batch_size=5, num_workers=1, sampler=sampler, seed=7) as loader:
            first = labels(loader)
            loader.set_epoch(6)
            assert sampler.epoch == 6
            second = labels(loader)
            assert second == sampler.indices().tolist() != first
            found += second
    assert sorted(found) == list(range(COUNT))


class Stream(IterableDataset[int]):
    def __iter__(self) -> Iterator[int]:
        return iter(range(3))


def test_what_is_refused() -> None:
    """Other texts, and what shuffle=True is refused with."""
    with pytest.raises(ArgumentError, match='shuffle=\'windows\': choose True, False, "window" or "huge"'):
        FastLoader(Numbers(), shuffle="windows")  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="mutually exclusive"):
        FastLoader(Numbers(), shuffle="window", sampler=[1])
    with pytest.raises(ValueError, match="mutually exclusive"):
        FastLoader(Numbers(), shuffle="window", batch_sampler=[[1]])
    with pytest.raises(ValueError, match="IterableDataset"):
        FastLoader(Stream(), shuffle="window")
