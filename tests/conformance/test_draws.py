"""Draws from generators and samplers: on every engine they are torch's, in number and in time."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from pairs import pairwise
from PIL import Image
from torch.utils.data import (
    BatchSampler,
    DataLoader,
    RandomSampler,
    Sampler,
    SubsetRandomSampler,
    WeightedRandomSampler,
)

from fastload import FastLoader, KeyedSampler, PackedDataset, WindowSampler, pack
from fastload import transforms as T

COUNT, BATCH = 23, 4
ENGINES = ["packed", "in place", "python"]


class Numbers(torch.utils.data.Dataset[Any]):
    """Samples (nothing, index)."""

    def __len__(self) -> int:
        return COUNT

    def __getitem__(self, index: int) -> Any:
        return torch.zeros(1), range(COUNT)[index]


@pytest.fixture(scope="module")
def datasets(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """By kind, a dataset whose label is the sample's index: one picture in each class."""
    torchvision = pytest.importorskip("torchvision")
    root = tmp_path_factory.mktemp("draws")
    for number in range(COUNT):
        (root / "photos" / f"{number:02d}").mkdir(parents=True)
        Image.fromarray(np.full((8, 8, 3), number, np.uint8)).save(
            root / "photos" / f"{number:02d}" / "0.jpg"
        )
    pack(root / "photos", root / "packed.fl", workers=1)
    folder = torchvision.datasets.ImageFolder(
        str(root / "photos"), transform=torchvision.transforms.PILToTensor()
    )
    return {
        "packed": PackedDataset(Path(root / "packed.fl"), transform=T.CenterCrop(8)),
        "in place": folder,
        "python": Numbers(),
    }


class Eager(Sampler[int]):
    """Draws its order in __iter__, and counts its passes."""

    def __init__(self) -> None:
        self.passes = 0

    def __len__(self) -> int:
        return COUNT

    def __iter__(self) -> Iterator[int]:
        self.passes += 1
        return iter(((torch.randperm(COUNT) + self.passes) % COUNT).tolist())


class OneByOne(Eager):
    """Draws each index when it is asked for it."""

    def __iter__(self) -> Iterator[int]:
        for _ in range(COUNT):
            yield int(torch.randint(COUNT, ()))


SAMPLERS: dict[str, Callable[[torch.Generator | None], dict[str, Any]]] = {
    "none": lambda g: {},
    "shuffle": lambda g: {"shuffle": True},
    "replacement": lambda g: {
        "sampler": RandomSampler(range(COUNT), replacement=True, num_samples=70, generator=g)
    },
    "several rounds": lambda g: {"sampler": RandomSampler(range(COUNT), num_samples=50, generator=g)},
    "subset": lambda g: {"sampler": SubsetRandomSampler(range(COUNT), generator=g)},
    "weighted": lambda g: {"sampler": WeightedRandomSampler([1.0] * COUNT, 30, generator=g)},
    "eager": lambda g: {"sampler": Eager()},
    "one by one": lambda g: {"sampler": OneByOne()},
    "batch sampler": lambda g: {"batch_sampler": BatchSampler(OneByOne(), 5, False)},
    "window": lambda g: {"sampler": WindowSampler(COUNT, block=2, buffer=4, generator=g)},
    "keyed": lambda g: {"sampler": KeyedSampler(COUNT, generator=g)},
}
ORDERS = [(order, False) for order in SAMPLERS] + [
    (order, True) for order in ("none", "shuffle", "replacement", "several rounds", "subset", "window")
]
WAYS = [(0, False), (1, False), (1, True)]


def trace(
    loader_class: Any, dataset: Any, order: str, workers: int, persistent: bool, with_generator: bool
) -> list[Any]:
    """What three epochs, the second of them broken off, and two iterators at once give and draw, with a
    model that draws as well."""
    torch.manual_seed(7)
    generator = torch.Generator().manual_seed(11) if with_generator else None
    out: list[Any] = []

    def note(batch: Any = None) -> None:
        states = torch.get_rng_state(), torch.get_rng_state() if generator is None else generator.get_state()
        out.append(
            (
                None if batch is None else batch[1].tolist(),
                *(hash(state.numpy().tobytes()) for state in states),
            )
        )

    given = {"batch_size": BATCH, **SAMPLERS[order](generator)}
    if "batch_sampler" in given:
        del given["batch_size"]
    if workers:
        given["prefetch_factor"] = 3
    loader = loader_class(
        dataset, num_workers=workers, persistent_workers=persistent, generator=generator, **given
    )
    note()
    for epoch in range(3):
        for number, batch in enumerate(loader):
            note(batch)
            torch.rand(1)
            if (epoch, number) == (1, 1):
                break
        note()
    first = iter(loader)
    note()
    torch.rand(1)
    second = iter(loader)
    note()
    for each in (first, second, second, first, first):
        note(next(each))
        torch.rand(1)
    del first, second
    for batch in loader:
        note(batch)
    note()
    return out


@cache
def torchs(order: str, workers: int, persistent: bool, with_generator: bool) -> list[Any]:
    """The trace of torch's own loader."""
    return trace(DataLoader, Numbers(), order, workers, persistent, with_generator)


@pytest.mark.parametrize(
    ("engine", "order", "with_generator", "workers", "persistent"),
    [(engine, *order, *way) for engine, order, way in pairwise(["packed", "python"], ORDERS, WAYS)]
    # Packed data's engine.
    + [("in place", *order, *way) for order in (("shuffle", True), ("one by one", False)) for way in WAYS],
)
def test_draws_are_torchs(
    datasets: dict[str, Any], engine: str, order: str, with_generator: bool, workers: int, persistent: bool
) -> None:
    """After every batch the batches, the global generator and generator= are those of DataLoader with the
    same arguments."""
    got = trace(FastLoader, datasets[engine], order, workers, persistent, with_generator)
    for step, (ours, theirs) in enumerate(
        zip(got, torchs(order, workers, persistent, with_generator), strict=True)
    ):
        assert ours == theirs, f"step {step}"


class Feedback(Sampler[int]):
    """The index is the number of batches that the loop has had; `calls` are the batches had when each
    index was drawn."""

    def __init__(self) -> None:
        self.had = 0

    def __len__(self) -> int:
        return COUNT

    def __iter__(self) -> Iterator[int]:
        for _ in range(COUNT):
            yield self.had


def feed_back(loader_class: Any, dataset: Any, options: dict[str, Any]) -> list[Any]:
    """What two epochs give whose loop tells the sampler how many batches it has had."""
    sampler, got = Feedback(), []
    loader = loader_class(dataset, sampler=sampler, **options)
    for _ in range(2):
        for batch in loader:
            got.append(torch.as_tensor(batch[1]).flatten().tolist())
            sampler.had += 1
        got.append(sampler.had)
        sampler.had = 0
    return got


FEEDBACK: list[dict[str, Any]] = [
    {},
    {"batch_size": 4},
    {"batch_size": None},
    {"num_workers": 2},
    {"num_workers": 2, "batch_size": 4},
    {"num_workers": 2, "batch_size": None, "prefetch_factor": 3},
    {"num_workers": 1, "in_order": False, "prefetch_factor": 1},
]


@pytest.mark.parametrize("options", FEEDBACK, ids=str)
def test_a_sampler_sees_the_loop_as_under_torch(datasets: dict[str, Any], options: dict[str, Any]) -> None:
    """A sampler that reads what the loop has written sees as much of it as under DataLoader, in the second
    epoch as well."""
    expected = feed_back(DataLoader, Numbers(), options)
    for engine in ENGINES:
        assert feed_back(FastLoader, datasets[engine], {"num_workers": 0, **options}) == expected, engine


def test_persistent_threads_resume(datasets: dict[str, Any]) -> None:
    """A state from a later epoch of persistent threads goes on with its order and pixels, and so do the
    epochs after it."""
    dataset = PackedDataset(datasets["packed"].path, transform=[T.RandomCrop(4), T.RandomHorizontalFlip()])
    options = {"batch_size": BATCH, "shuffle": True, "num_workers": 1, "persistent_workers": True}

    def values(batches: Any) -> list[Any]:
        return [[part.tolist() for part in batch] for batch in batches]

    torch.manual_seed(5)
    loader = FastLoader(dataset, **options)
    first = values(loader)
    running = iter(loader)
    had = values([next(running), next(running)])
    state = loader.state_dict()
    expected = [values(running), values(loader)]
    assert first != had + expected[0]
    torch.manual_seed(99)
    again = FastLoader(dataset, **options)
    again.load_state_dict(state)
    assert [values(again), values(again)] == expected


@pytest.mark.parametrize("engine", ENGINES)
def test_two_seeded_iterators_have_the_orders_of_their_epochs(datasets: dict[str, Any], engine: str) -> None:
    """With seed= and shuffle=True an iterator has its epoch's order, also where another one began before
    its first batch."""
    for workers in (0, 1):
        options = {"batch_size": BATCH, "shuffle": True, "seed": 4, "num_workers": workers}
        alone = [
            [batch[1].tolist() for batch in each]
            for loader in [FastLoader(datasets[engine], **options)]
            for each in (loader, loader)
        ]
        loader = FastLoader(datasets[engine], **options)
        first, second = iter(loader), iter(loader)
        pairs = list(zip(first, second, strict=True))
        assert [[pair[which][1].tolist() for pair in pairs] for which in (0, 1)] == alone


def test_explain_says_how_far_a_sampler_is_drawn(datasets: dict[str, Any]) -> None:
    """The line names the sampler, and the batches that are drawn ahead; known samplers are drawn as far
    ahead as is read."""
    line = {
        workers: FastLoader(datasets["packed"], sampler=Eager(), num_workers=workers)
        .explain(all=True)
        .partition("order ")[2]
        .splitlines()[0]
        for workers in (0, 3)
    }
    again = "; it may give an index again: counted, 4 bytes a sample of the dataset"
    drawn = {0: "a batch drawn at each next()", 3: "6 batches drawn at iter(), one more at each next()"}
    assert line == {workers: f"     Eager, {how}{again}" for workers, how in drawn.items()}
    assert "SequentialSampler, drawn as far ahead as is read" in FastLoader(
        datasets["packed"], num_workers=1
    ).explain(all=True)
