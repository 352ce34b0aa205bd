"""Resumed over iterable datasets, with states of their own and without; torchdata's loader is the oracle."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from pairs import pairwise
from resume_helpers import Numbers, check_rest, interrupted, plain, through_json, trained
from torch.utils.data import IterableDataset, get_worker_info

from fastload import FastLoader
from fastload.errors import ArgumentError

# More workers than this machine's CPUs.
pytestmark = pytest.mark.filterwarnings("ignore:This DataLoader will create")


class Stream(IterableDataset[int]):
    """Numbers, sharded over workers of uneven shares. `keeps`: "dataset" or "iterator" has a state."""

    def __init__(self, keeps: str | None = None) -> None:
        self.begin = 0
        self.at = 0
        self.keeps = keeps
        if keeps == "dataset":
            self.state_dict = lambda: {"at": self.at}
            self.load_state_dict = lambda state: setattr(self, "begin", state["at"])

    def __iter__(self) -> Any:
        info = get_worker_info()
        number = 0 if info is None else info.id
        if self.keeps == "iterator":
            return Walk(number)
        begin, self.begin = self.begin, 0
        return self._from(begin, number)

    def _from(self, begin: int, number: int) -> Iterator[int]:
        for at in range(begin, 19 - 6 * number):
            self.at = at + 1
            yield 100 * number + at


class Walk:
    """An iterator with a state of its own."""

    def __init__(self, number: int) -> None:
        self.at, self.number = 0, number

    def __iter__(self) -> Walk:
        return self

    def __next__(self) -> int:
        if self.at == 19 - 6 * self.number:
            raise StopIteration
        self.at += 1
        return 100 * self.number + self.at

    def state_dict(self) -> dict[str, int]:
        return {"at": self.at}

    def load_state_dict(self, state: dict[str, int]) -> None:
        self.at = state["at"]


@pytest.mark.filterwarnings("ignore:the dataset has no state_dict")
@pytest.mark.parametrize(
    ("keeps", "options", "place"),
    pairwise(
        [None, "dataset", "iterator"],
        [(0, False, 4, False), (2, False, 4, False), (3, True, 4, True), (2, False, None, False)],
        ["first", "middle", "last"],
    ),
)
def test_iterable(keeps: str | None, options: tuple[int, bool, int | None, bool], place: str) -> None:
    """An iterable dataset goes on after every batch, by its own state or without, in every worker, with
    workers that end early."""
    workers, persistent, batch_size, drop_last = options

    def make(prefetch: int = 2) -> Any:
        more = {"prefetch_factor": prefetch, "persistent_workers": persistent} if workers else {}
        return FastLoader(
            Stream(keeps), batch_size=batch_size, drop_last=drop_last, num_workers=workers, **more
        )

    whole = trained(make())
    assert len(whole) >= 4
    steps = {"first": 1, "middle": len(whole) // 2, "last": len(whole) - 1}[place]
    check_rest(make, lambda: make(3), int(persistent), steps, following=place == "first")
    assert interrupted(make, 0, len(whole) + 1)["batches"] == 0


def test_iterable_skipping_is_told() -> None:
    """A dataset without a state is replayed, and a warning says so, once."""
    loader = FastLoader(Stream(), batch_size=4)
    trained(loader, 3)
    state = through_json(loader.state_dict())
    resumed = FastLoader(Stream(), batch_size=4)
    with pytest.warns(UserWarning, match="no state_dict.* 3 batches") as caught:
        resumed.load_state_dict(state)
    assert len(caught) == 1
    assert trained(resumed)[0] == [12, 13, 14, 15]  # and any warning here would be an error
    trained(resumed)


def test_iterable_needs_as_many_workers() -> None:
    """Each replica has a position: another number of workers is refused, by both numbers, in mid-epoch
    only; one and none are the same."""
    loader = FastLoader(Stream("dataset"), batch_size=4, num_workers=2)
    fresh = through_json(loader.state_dict())
    trained(loader, 2)
    state = through_json(loader.state_dict())
    other = FastLoader(Stream("dataset"), batch_size=4)
    with pytest.raises(ArgumentError, match=r"in 2 workers.*num_workers=0"):
        other.load_state_dict(state)
    other.load_state_dict(fresh)
    trained(other, 2)
    state = through_json(other.state_dict())
    with FastLoader(Stream("dataset"), batch_size=4, num_workers=1) as one:
        one.load_state_dict(state)
        assert trained(one)[0] == [8, 9, 10, 11]


@pytest.mark.parametrize(
    ("workers", "data", "place"),
    pairwise([0, 2], ["map", None, "dataset", "iterator"], ["first", "middle", "last"]),
)
@pytest.mark.filterwarnings("ignore")
def test_as_torchdata(workers: int, data: str | None, place: str) -> None:
    """After the same number of batches torchdata's StatefulDataLoader goes on with the same ones."""
    stateful = pytest.importorskip("torchdata.stateful_dataloader").StatefulDataLoader

    def make(kind: Any) -> Any:
        return kind(Numbers() if data == "map" else Stream(data), batch_size=4, num_workers=workers)

    length = len(trained(make(FastLoader)))
    steps = {"first": 1, "middle": length // 2, "last": length - 1}[place]
    runs = []
    for kind in (FastLoader, stateful):
        loader = make(kind)
        batches = iter(loader)
        for _ in range(steps):
            next(batches)
        state = loader.state_dict()
        del batches
        resumed = make(kind)
        resumed.load_state_dict(through_json(state) if kind is FastLoader else state)
        runs.append([plain(batch) for batch in resumed])
    assert runs[0] == runs[1]
    assert len(runs[0]) == length - steps
