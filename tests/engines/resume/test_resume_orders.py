"""Resumed in mid-epoch: position and order, whatever draws the order and whoever makes the batches."""

from __future__ import annotations

import random
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from resume_helpers import (
    COUNT,
    Numbers,
    Resetting,
    check_rest,
    flat,
    plain,
    resume,
    scattered,
    seeded,
    through_json,
    trained,
)
from torch.utils.data import (
    BatchSampler,
    DistributedSampler,
    RandomSampler,
    Sampler,
    SequentialSampler,
    SubsetRandomSampler,
    WeightedRandomSampler,
)

from fastload import FastLoader, KeyedSampler, WindowSampler
from fastload.errors import ArgumentError

# More workers than this machine's CPUs.
pytestmark = pytest.mark.filterwarnings("ignore:This DataLoader will create")


class Noisy(Numbers):
    """Samples with randomness of all three generators in them."""

    def __getitem__(self, index: int) -> Any:
        return index, torch.rand(2), random.random(), float(np.random.rand())


class Shuffled(Sampler[int]):
    """Draws its order from random at iter(), and lazily from torch."""

    def __len__(self) -> int:
        return COUNT

    def __iter__(self) -> Iterator[int]:
        order = list(range(COUNT))
        random.shuffle(order)
        return ((index + int(torch.randint(2, ()))) % COUNT for index in order)


def generator(seed: int = 5) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


SAMPLERS: dict[str, Any] = {
    "sequential": lambda: {},
    "shuffle": lambda: {"shuffle": True},
    "seed": lambda: {"shuffle": True, "seed": 3},
    "generator": lambda: {"shuffle": True, "generator": generator()},
    "own": lambda: {"sampler": RandomSampler(range(COUNT), generator=generator())},
    "replacement": lambda: {
        "sampler": RandomSampler(range(COUNT), replacement=True, num_samples=90, generator=generator())
    },
    "twice": lambda: {"sampler": RandomSampler(range(COUNT), num_samples=2 * COUNT, generator=generator())},
    "subset": lambda: {"sampler": SubsetRandomSampler(range(3, COUNT))},
    "weighted": lambda: {"sampler": WeightedRandomSampler([1.0] * COUNT, 40)},
    "distributed": lambda: {"sampler": DistributedSampler(range(COUNT), num_replicas=2, rank=1)},
    "window": lambda: {"shuffle": "window"},
    "window, seed": lambda: {"shuffle": "window", "seed": 3},
    "windows": lambda: {"sampler": WindowSampler(COUNT, block=3, buffer=9, seed=4)},
    "windows, drawn": lambda: {"sampler": WindowSampler(COUNT, block=3, buffer=9)},
    "huge": lambda: {"shuffle": "huge"},
    "huge, seed": lambda: {"shuffle": "huge", "seed": 3},
    "keyed": lambda: {"sampler": KeyedSampler(COUNT, seed=4)},
    "custom": lambda: {"sampler": Shuffled()},
    "kept": lambda: {"sampler": Resetting()},
    "batches": lambda: {"batch_sampler": BatchSampler(RandomSampler(range(COUNT)), 5, True), "batch_size": 1},
    "lists": lambda: {"sampler": BatchSampler(SequentialSampler(range(COUNT)), 6, False), "batch_size": None},
    "single": lambda: {"shuffle": True, "batch_size": None},
}


SETTLED = {
    "sequential",
    "seed",
    "window, seed",
    "windows",
    "huge, seed",
    "keyed",
    "own",
    "replacement",
    "twice",
    "distributed",
    "kept",
    "lists",
}
"""Those whose order owes nothing to torch's generator, or a loader's, from which base seeds are drawn."""


@settings(max_examples=50)
@given(
    kind=st.sampled_from(sorted(SAMPLERS)),
    steps=st.integers(0, 12),
    epochs=st.integers(0, 1),
    first=st.sampled_from([0, 0, 1, 2]),
    second=st.sampled_from([0, 0, 1, 3]),
    prefetch=st.integers(1, 4),
    persistent=st.booleans(),
)
def test_any_sampler_any_workers(
    kind: str, steps: int, epochs: int, first: int, second: int, prefetch: int, persistent: bool
) -> None:
    """Position and order, over epochs, whatever draws them and whoever makes the batches. A lazily drawing
    custom sampler shares torch's generator with the loop, so that only the first of these can be expected of
    it."""

    def make(workers: int, prefetch: int) -> Any:
        options = {"batch_size": 4, **SAMPLERS[kind]()}
        if workers:
            options |= {"prefetch_factor": prefetch, "persistent_workers": persistent}
        return FastLoader(Numbers(), num_workers=workers, **options)

    persists = [persistent and workers > 0 for workers in (first, second)]
    # Persistent workers draw one base seed, others one per epoch: from the generator that "generator"
    # shuffles with, or torch's global one.
    following = persists[0] == persists[1] or kind in SETTLED
    if kind == "custom":
        return check_custom(first, second, steps)
    check_rest(lambda: make(first, 2), lambda: make(second, prefetch), epochs, steps, following)


def check_custom(first: int, second: int, steps: int) -> None:
    def make(workers: int) -> Any:
        return FastLoader(Numbers(), batch_size=4, sampler=Shuffled(), num_workers=workers)

    def consumed(loader: Any, steps: int | None = None) -> list[Any]:
        batches = iter(loader)
        return (
            [plain(batch) for batch in batches]
            if steps is None
            else [plain(next(batches)) for _ in range(steps)]
        )

    seeded()
    whole = consumed(make(first))
    seeded()
    loader = make(first)
    got = consumed(loader, min(steps, 5))
    state = through_json(loader.state_dict())
    scattered()
    resumed = make(second)
    resumed.load_state_dict(state)
    assert got + consumed(resumed) == whole


def test_map_style_fetches_only_what_is_left() -> None:
    """A dataset is asked for the rest of the epoch, and for nothing else."""
    seeded()
    first = FastLoader(Numbers(), batch_size=4, shuffle=True)
    had = flat(trained(first, 3))
    data = Numbers()
    resumed = FastLoader(data, batch_size=4, shuffle=True)
    resumed.load_state_dict(through_json(first.state_dict()))
    trained(resumed)
    assert sorted(had + data.asked) == list(range(COUNT))


@pytest.mark.parametrize("seed", [None, 4])
@pytest.mark.parametrize("workers", [(0, 2), (2, 0), (2, 3)])
def test_random_transforms_under_seed_by_sample(seed: int | None, workers: tuple[int, int]) -> None:
    """With seed_by="sample" a resume repeats every random number, in the second epoch of persistent
    workers too."""

    def make(workers: int) -> Any:
        more = {"persistent_workers": True} if workers else {}
        return FastLoader(
            Noisy(), batch_size=4, shuffle=True, seed=seed, seed_by="sample", num_workers=workers, **more
        )

    check_rest(
        lambda: make(workers[0]),
        lambda: make(workers[1]),
        1 if workers[0] else 0,
        2,
        following=seed is not None,
    )


def test_distributed_sampler_keeps_its_epoch() -> None:
    """The sampler's set_epoch() is called with what it was."""

    def make() -> Any:
        return FastLoader(
            Numbers(), batch_size=4, sampler=DistributedSampler(range(COUNT), num_replicas=2, rank=0, seed=1)
        )

    first = make()
    first.sampler.set_epoch(3)
    whole = trained(first)
    trained(first, 1)
    resumed = resume(first, make())
    assert resumed.sampler.epoch == 3
    assert trained(resumed) == whole[1:]


class Delayed(Numbers):
    """Sample 0 waits for a file that the test makes."""

    def __init__(self, gate: Path) -> None:
        super().__init__()
        self.gate = gate

    def __getitem__(self, index: int) -> int:
        while index == 0 and not self.gate.exists():
            time.sleep(0.005)
        return index


def test_out_of_order(tmp_path: Path) -> None:
    """With in_order=False the batches that came early are not repeated, and the one that was passed is not
    lost."""
    gate = tmp_path / "gate"
    loader = FastLoader(Delayed(gate), batch_size=4, num_workers=2, in_order=False, prefetch_factor=3)
    batches = iter(loader)
    had = [plain(next(batches)) for _ in range(2)]
    state = through_json(loader.state_dict())
    gate.touch()
    rest = [plain(batch) for batch in batches]
    assert state["position"] == 0
    assert len(state["beyond"]) == 2
    with FastLoader(Delayed(gate), batch_size=4) as resumed:
        resumed.load_state_dict(state)
        again = trained(resumed)
    assert sorted(again) == sorted(rest)
    assert sorted(flat(had + again)) == list(range(COUNT))
    loader.close()


def test_a_generator_that_is_missing() -> None:
    """A state whose order came from a generator needs one to go on with."""
    loader = FastLoader(Numbers(), batch_size=4, shuffle=True, generator=generator())
    trained(loader, 1)
    with pytest.raises(ArgumentError, match="generator="):
        resume(loader, FastLoader(Numbers(), batch_size=4, shuffle=True))
