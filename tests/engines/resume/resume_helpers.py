"""Datasets and samplers with states of their own, and runs that are interrupted and resumed."""

from __future__ import annotations

import json
import random
from collections.abc import Iterator
from typing import Any

import numpy as np
import torch
from torch.utils.data import Dataset, IterableDataset, Sampler, get_worker_info

COUNT = 23


class Numbers(Dataset[Any]):
    """COUNT samples: sample i is i; remembers, in the calling process, what it was asked for."""

    def __init__(self, count: int = COUNT) -> None:
        self.count = count
        self.asked: list[int] = []

    def __len__(self) -> int:
        return self.count

    def __getitem__(self, index: int) -> Any:
        self.asked.append(index)
        return index


class Counting(Numbers):
    """A map-style dataset with a state: sample i is (i, how many samples this copy made before it)."""

    def __init__(self) -> None:
        super().__init__()
        self.made = 0

    def __getitem__(self, index: int) -> Any:
        self.made += 1
        return index, self.made

    def state_dict(self) -> dict[str, int]:
        return {"made": self.made}

    def load_state_dict(self, state: dict[str, int]) -> None:
        self.made = state["made"]


class Epochs(IterableDataset[Any]):
    """An iterable dataset with a state, sharded over workers of uneven shares; it counts its epochs, and
    starts anew as one ends.

    `lazy`: it counts nothing and starts anew as the next epoch begins, so that its state at an epoch's end is
    that end.
    """

    def __init__(self, lazy: bool = False) -> None:
        self.lazy = lazy
        self.at = self.begin = self.epoch = 0

    def __iter__(self) -> Iterator[Any]:
        info = get_worker_info()
        number = 0 if info is None else info.id
        begin, self.begin = self.begin, 0
        for self.at in range(begin + 1, 18 - 6 * number):
            yield 1000 * self.epoch + 100 * number + self.at
        if not self.lazy:
            self.at = 0
            self.epoch += 1

    def state_dict(self) -> dict[str, int]:
        return {"at": self.at, "epoch": self.epoch}

    def load_state_dict(self, state: dict[str, int]) -> None:
        self.begin, self.epoch = state["at"], state["epoch"]


class Resetting(Sampler[int]):
    """A sampler with a state, another order in each epoch, that starts anew as an epoch ends."""

    def __init__(self) -> None:
        self.at = self.epoch_at = 0

    def __len__(self) -> int:
        return COUNT

    def __iter__(self) -> Iterator[int]:
        while self.at < COUNT:
            self.at += 1
            yield (self.at * 7 + self.epoch_at) % COUNT
        self.at = 0
        self.epoch_at += 3

    def state_dict(self) -> dict[str, int]:
        return {"at": self.at, "epoch_at": self.epoch_at}

    def load_state_dict(self, state: dict[str, int]) -> None:
        self.at, self.epoch_at = state["at"], state["epoch_at"]


class Batches(Resetting):
    """A batch sampler with a state, of 3 and 2 indices in turn."""

    def __len__(self) -> int:
        return 10

    def __iter__(self) -> Iterator[Any]:
        while self.at < len(self):
            self.at += 1
            yield [(self.at * 2 + self.epoch_at + row) % COUNT for row in range(2 + self.at % 2)]
        self.at = 0
        self.epoch_at += 3


def plain(batch: Any) -> Any:
    """A batch as lists."""
    if isinstance(batch, torch.Tensor):
        return batch.tolist()
    return [plain(part) for part in batch] if isinstance(batch, list | tuple) else batch


def through_json(state: dict[str, Any]) -> Any:
    return json.loads(json.dumps(state, allow_nan=False))


def epochs_of(loader: Any, count: int) -> list[list[Any]]:
    return [[plain(batch) for batch in loader] for _ in range(count)]


def saved_after(make: Any, epochs: int, steps: int | None, json_too: bool = True) -> Any:
    """The state after whole epochs, and `steps` batches of the next; None: after that epoch's loop has
    ended as well."""
    loader = make()
    epochs_of(loader, epochs + (steps is None))
    if steps is not None:
        batches = iter(loader)
        for _ in range(steps):
            next(batches)
    state = loader.state_dict()
    state = through_json(state) if json_too else state
    batches = None
    if hasattr(loader, "close"):
        loader.close()
    return state


def check_resumes(make: Any, epochs: int, *points: int | None) -> None:
    """A run of three epochs that is interrupted and resumed goes on as one that was not, at each of the
    points.

    A point: how many batches of the epoch after `epochs` whole ones were had; None: its loop has ended as
    well. -1: all.
    """
    torch.manual_seed(3)
    loader = make()
    whole = epochs_of(loader, 3)
    loader.close()
    for point in points:
        steps = len(whole[epochs]) if point == -1 else point
        torch.manual_seed(3)
        state = saved_after(make, epochs, steps)
        torch.manual_seed(4)
        loader = make()
        loader.load_state_dict(state)
        rest = whole[epochs + 1 :] if steps is None else [whole[epochs][steps:], *whole[epochs + 1 :]]
        assert epochs_of(loader, len(rest)) == rest, f"resumed after {steps} batches"
        loader.close()


def flat(batches: list[list[int]]) -> list[int]:
    return [number for batch in batches for number in batch]


def seeded() -> None:
    torch.manual_seed(11)
    random.seed(11)
    np.random.seed(11)


def scattered() -> None:
    """Another process would find its generators anywhere."""
    torch.manual_seed(999)
    random.seed(999)
    np.random.seed(999)


def trained(loader: Any, steps: int | None = None) -> list[Any]:
    """A loop that draws from torch's global generator, as dropout does; left after `steps` batches, if
    given."""
    out: list[Any] = []
    if steps == 0:
        iter(loader)
        return out
    for batch in loader:
        torch.rand(3)
        out.append(plain(batch))
        if steps is not None and len(out) == steps:
            break
    return out


def interrupted(make: Any, epochs: int, steps: int) -> dict[str, Any]:
    """The state after whole epochs and then some batches."""
    seeded()
    loader = make()
    for _ in range(epochs):
        trained(loader)
    trained(loader, steps)
    state = through_json(loader.state_dict())
    loader.close()
    return state


def check_rest(make: Any, other: Any, epochs: int, steps: int, following: bool = True) -> None:
    """What `other` makes of the state of `make`'s loader is the rest of an uninterrupted run."""
    seeded()
    loader = make()
    whole = [trained(loader) for _ in range(epochs + 3)]
    loader.close()
    steps = min(steps, len(whole[epochs]))
    state = interrupted(make, epochs, steps)
    scattered()
    resumed = other()
    resumed.load_state_dict(state)
    assert through_json(resumed.state_dict()) == {**state, "num_workers": resumed.num_workers}
    assert trained(resumed) == whole[epochs][steps:]  # after the last batch, no more of them
    if following:
        assert [trained(resumed) for _ in range(2)] == whole[epochs + 1 : epochs + 3]
    resumed.close()


def resume(loader: Any, into: Any) -> Any:
    """`into`, with the state of `loader`."""
    into.load_state_dict(through_json(loader.state_dict()))
    return into
