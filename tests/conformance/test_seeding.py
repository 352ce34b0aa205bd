"""A seeded run gives, number for number, what torch's DataLoader gives: order, draws in workers, draws
left to the program."""

from __future__ import annotations

import random
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
import torch
from conformance_helpers import Rows, agree, epochs
from torch.utils.data import (
    RandomSampler,
    Sampler,
    SubsetRandomSampler,
    WeightedRandomSampler,
    get_worker_info,
)

pytestmark = pytest.mark.filterwarnings("ignore:This DataLoader will create")


def draws(index: int) -> Any:
    """One number from each generator that transforms use, and who drew it."""
    info = get_worker_info()
    return index, torch.rand(2), random.random(), float(np.random.rand()), -1 if info is None else info.id


def worker_seed(index: int) -> Any:
    info = get_worker_info()
    assert info is not None
    return str(info.seed), torch.initial_seed() - info.seed


class DrawingSampler(Sampler[int]):
    """Draws every index from torch's generator at the moment it is asked for it."""

    def __init__(self, n: int) -> None:
        self.n = n

    def __len__(self) -> int:
        return self.n

    def __iter__(self) -> Iterator[int]:
        for _ in range(self.n):
            yield int(torch.randint(1000, ()))


@pytest.mark.parametrize("shuffle", [False, True])
@pytest.mark.parametrize(("workers", "persistent"), [(0, False), (1, False), (3, False), (3, True)])
def test_draws_over_epochs(workers: int, persistent: bool, shuffle: bool) -> None:
    """Three epochs: the same indices, the same numbers from torch, random and NumPy, and the same
    generator state afterwards."""

    def run(loader_class: Any) -> Any:
        loader = loader_class(
            Rows(draws, 23), batch_size=3, shuffle=shuffle, num_workers=workers, persistent_workers=persistent
        )
        return epochs(loader, 3), torch.rand(3)

    agree(run, seed=41)


@pytest.mark.parametrize("persistent", [False, True])
def test_own_generator(persistent: bool) -> None:
    """With generator=, base seed and order come from it: its state after each epoch is torch's, and the
    global one is untouched."""

    def run(loader_class: Any) -> Any:
        generator = torch.Generator().manual_seed(9)
        loader = loader_class(
            Rows(draws, 17),
            batch_size=2,
            shuffle=True,
            num_workers=2,
            persistent_workers=persistent,
            generator=generator,
        )
        return [(list(loader), generator.get_state(), torch.get_rng_state()) for _ in range(3)]

    agree(run)


@pytest.mark.parametrize("persistent", [False, True])
def test_broken_off_epoch(persistent: bool) -> None:
    """An epoch left after two batches changes the next ones exactly as it does in torch."""

    def run(loader_class: Any) -> Any:
        loader = loader_class(
            Rows(draws, 31), batch_size=2, shuffle=True, num_workers=2, persistent_workers=persistent
        )
        iterator = iter(loader)
        begun = [next(iterator), next(iterator)]
        del iterator
        return begun, epochs(loader, 2), torch.rand(1)

    agree(run, seed=3)


@pytest.mark.parametrize("workers", [0, 2])
def test_draws_interleaved_with_the_program(workers: int) -> None:
    """A sampler that draws as it goes and a training loop that draws too get torch's numbers: the same
    indices are asked for when."""

    def run(loader_class: Any) -> Any:
        loader = loader_class(
            Rows(draws, 1000), batch_size=2, sampler=DrawingSampler(24), num_workers=workers
        )
        return [(batch, torch.rand(1)) for batch in loader]

    agree(run, seed=12)


@pytest.mark.parametrize("prefetch", [1, 2, 5])
def test_samplers_are_asked_as_far_ahead_as_in_torch(prefetch: int) -> None:
    """prefetch_factor bounds how far the sampler is read ahead, at iter() and after every batch, as in
    torch."""

    class Noting(DrawingSampler):
        asked = 0

        def __iter__(self) -> Iterator[int]:
            for i in range(self.n):
                self.asked += 1
                yield i

    def run(loader_class: Any) -> Any:
        sampler = Noting(40)
        iterator = iter(
            loader_class(
                Rows(draws, 40), batch_size=2, sampler=sampler, num_workers=2, prefetch_factor=prefetch
            )
        )
        return [sampler.asked, *(sampler.asked for _ in iterator)]

    seen = agree(run)
    assert seen[0] == 2 * 2 * prefetch


def samplers() -> list[Any]:
    return [
        lambda: RandomSampler(range(19), replacement=True, num_samples=30),
        lambda: RandomSampler(range(19), num_samples=50),
        lambda: SubsetRandomSampler([3, 1, 4, 15, 9]),
        lambda: WeightedRandomSampler([0.1] * 10 + [0.5] * 9, 25),
        lambda: RandomSampler(range(19), generator=torch.Generator().manual_seed(2)),
    ]


@pytest.mark.parametrize("which", range(5))
def test_torch_samplers(which: int) -> None:
    """torch's own random samplers draw alike, over two epochs."""

    def run(loader_class: Any) -> Any:
        loader = loader_class(Rows(draws, 19), batch_size=4, sampler=samplers()[which](), num_workers=2)
        return epochs(loader, 2), torch.rand(1)

    agree(run, seed=77)


@pytest.mark.parametrize("persistent", [False, True])
def test_worker_seeds(persistent: bool) -> None:
    """get_worker_info().seed is torch's, is torch.initial_seed() there, differs between workers, and
    between epochs of new workers."""

    def run(loader_class: Any) -> Any:
        return epochs(
            loader_class(Rows(worker_seed, 6), batch_size=1, num_workers=3, persistent_workers=persistent), 2
        )

    first, second = ([batch[0][0] for batch in epoch] for epoch in agree(run, seed=5))
    assert len(set(first)) == 3
    assert (set(first) == set(second)) == persistent


def test_workers_draw_differently() -> None:
    """No two samples of two epochs share a number from any generator: workers and epochs are seeded apart."""

    def run(loader_class: Any) -> Any:
        loader = loader_class(Rows(draws, 12), batch_size=2, num_workers=2, persistent_workers=True)
        return epochs(loader, 2)

    batches = [batch for epoch in agree(run) for batch in epoch]
    for field in (2, 3):
        values = torch.cat([batch[field] for batch in batches])
        assert len(values.unique()) == 24


def test_num_workers_0_leaves_the_generators_alone() -> None:
    """Without workers the program's own generators are used, in the same order as torch uses them."""

    def run(loader_class: Any) -> Any:
        values = epochs(loader_class(Rows(draws, 9), batch_size=2, shuffle=True), 2)
        return values, random.random(), float(np.random.rand()), torch.rand(1)

    agree(run, seed=8)
