"""Datasets, samplers and batch samplers with states of their own, and when states are loaded; torchdata's
loader is the oracle."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from resume_helpers import (
    COUNT,
    Batches,
    Counting,
    Epochs,
    Numbers,
    Resetting,
    check_resumes,
    epochs_of,
    plain,
    saved_after,
    through_json,
)
from torch.utils.data import DistributedSampler

from fastload import FastLoader
from fastload.errors import ArgumentError

# More workers than this machine's CPUs.
pytestmark = pytest.mark.filterwarnings("ignore:This DataLoader will create")


class Position(DistributedSampler[int]):
    """A sampler that counts what it gave, and begins at 0 as it is iterated, as torchdata's
    StatefulDistributedSampler does."""

    def __init__(self) -> None:
        super().__init__(range(COUNT), num_replicas=1, rank=0, seed=1)  # type: ignore[arg-type]
        self.given = 0
        self.begin: int | None = None

    def __iter__(self) -> Any:
        self.given, self.begin = self.begin or 0, None
        for index in list(super().__iter__())[self.given :]:
            self.given += 1
            yield index

    def state_dict(self) -> dict[str, int]:
        return {"given": self.given}

    def load_state_dict(self, state: dict[str, int]) -> None:
        self.begin = state["given"]


SAMPLERS: dict[str, Any] = {
    "resetting": lambda: {"sampler": Resetting(), "batch_size": 5},
    "position": lambda: {"sampler": Position(), "batch_size": 5},
    "batches": lambda: {"batch_sampler": Batches()},
    "single": lambda: {"sampler": Resetting(), "batch_size": None},
}
STEPS = (0, 3, -1, None)


@pytest.mark.parametrize("kind", SAMPLERS)
def test_samplers(kind: str) -> None:
    """A sampler's own state goes on in mid-epoch, after the last batch and after the loop, wherever it
    starts anew."""
    check_resumes(lambda: FastLoader(Numbers(), **SAMPLERS[kind]()), 1, *STEPS)


def test_samplers_ahead_of_workers() -> None:
    """Workers pull ahead; the state is the sampler's at the batches that the loop has had."""
    check_resumes(
        lambda: FastLoader(Numbers(), num_workers=2, prefetch_factor=3, **SAMPLERS["resetting"]()), 0, 1, -1
    )


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"num_workers": 2},
        {"num_workers": 2, "persistent_workers": True},
        {"num_workers": 1, "batch_size": None},
    ],
)
def test_map_style_datasets(options: dict[str, Any]) -> None:
    """Each worker's copy goes on from its own state after each batch, in a later epoch too, and no
    prefetched sample is counted."""
    check_resumes(lambda: FastLoader(Counting(), **{"batch_size": 4, **options}), 1, 1, 4)


def test_map_style_datasets_under_seed_by_sample() -> None:
    """Workers then make whole batches in turn, so that their states are the same in each run; without
    order none is lost or repeated."""
    check_resumes(lambda: FastLoader(Counting(), batch_size=4, num_workers=2, seed=1, seed_by="sample"), 0, 3)
    options: dict[str, Any] = {"batch_size": 4, "num_workers": 2, "in_order": False}
    with FastLoader(Counting(), **options) as loader:
        batches = iter(loader)
        had = [plain(next(batches))[0] for _ in range(3)]
        state = through_json(loader.state_dict())
    with FastLoader(Counting(), **options) as loader:
        loader.load_state_dict(state)
        rest = [plain(batch)[0] for batch in loader]
    assert sorted(index for batch in had + rest for index in batch) == list(range(COUNT))


class Failing(Counting):
    def __getitem__(self, index: int) -> Any:
        if index == 5 and self.made < 100:
            self.made += 50
            raise KeyError(index)
        return super().__getitem__(index)


def test_a_failed_batch_changes_a_state() -> None:
    """What a dataset counted in a batch that failed, and that the loop went past, is in its state."""

    def after(steps: int, loader: Any) -> list[Any]:
        batches = iter(loader)
        out: list[Any] = []
        for _ in range(steps):
            try:
                out.append(plain(next(batches)))
            except KeyError:
                out.append(None)
        return out

    with FastLoader(Failing(), batch_size=4, num_workers=1) as loader:
        whole = after(6, loader)
    with FastLoader(Failing(), batch_size=4, num_workers=1) as loader:
        assert after(3, loader)[1] is None
        state = through_json(loader.state_dict())
    with FastLoader(Failing(), batch_size=4, num_workers=1) as loader:
        loader.load_state_dict(state)
        assert after(3, loader) == whole[3:]


@pytest.mark.parametrize("every", [0, None, 2, 5])
def test_snapshot_every_n_steps(every: int | None) -> None:
    """However seldom workers send their states, a state is exact: the rest is drawn again; in a later
    epoch of persistent workers too."""

    def make() -> Any:
        return FastLoader(
            Epochs(), batch_size=2, num_workers=2, persistent_workers=True, snapshot_every_n_steps=every
        )

    check_resumes(make, 1, 1, 8)


def test_snapshot_every_n_steps_is_checked() -> None:
    """Only numbers of batches go; it is an attribute, for whoever makes the loader anew."""
    assert FastLoader(Numbers(), snapshot_every_n_steps=7).snapshot_every_n_steps == 7
    for wrong in (-1, 1.5, True, "3"):
        with pytest.raises(ArgumentError, match="snapshot_every_n_steps"):
            FastLoader(Numbers(), snapshot_every_n_steps=wrong)  # type: ignore[arg-type]


@pytest.mark.parametrize("data", [Counting, Epochs])
def test_another_number_of_workers(data: Any) -> None:
    """States that are each worker's do not go into another number of workers: an error at load, with both
    numbers; nothing is changed."""
    for before, after in ((0, 2), (2, 0), (2, 3)):
        state = saved_after(lambda n=before: FastLoader(data(), batch_size=4, num_workers=n), 0, 3)
        loader = FastLoader(data(), batch_size=4, num_workers=after)
        with pytest.raises(ArgumentError, match=rf"in {before} workers.*num_workers={after}"):
            loader.load_state_dict(state)
        assert loader.state_dict()["batches"] == 0
    one = FastLoader(data(), batch_size=4, num_workers=1)
    # In none it stands as in one.
    one.load_state_dict(saved_after(lambda: FastLoader(data(), batch_size=4), 0, 3))
    assert len(epochs_of(one, 1)[0]) == len(epochs_of(FastLoader(data(), batch_size=4), 1)[0]) - 3


@pytest.mark.parametrize("persistent", [False, True])
def test_load_while_iterated(persistent: bool) -> None:
    """The last of several loads holds from the next iter(); a loop that runs goes on undisturbed, and what
    state_dict() gives is loaded."""
    torch.manual_seed(1)
    options: dict[str, Any] = {
        "batch_size": 4,
        "num_workers": 2,
        "persistent_workers": persistent,
        "sampler": Resetting(),
    }
    loader = FastLoader(Counting(), **options)
    batches = iter(loader)
    states = []
    whole = []
    for batch in batches:
        whole.append(plain(batch))
        states.append(through_json(loader.state_dict()))
    running = iter(loader)
    next(running)
    loader.load_state_dict(states[3])
    next(running)
    loader.load_state_dict(states[1])
    assert through_json(loader.state_dict()) == states[1]
    assert len(list(running)) == 4
    assert [plain(batch) for batch in loader] == whole[2:]
    batches = iter(loader)
    next(batches)
    for _ in range(2):
        loader.load_state_dict(states[4])
        assert [plain(batch) for batch in loader] == whole[5:]
    loader.close()


def test_a_dataset_that_lost_its_state() -> None:
    """A state that holds a dataset's own needs a dataset that takes it."""
    state = saved_after(lambda: FastLoader(Counting(), batch_size=4), 0, 2)
    with pytest.raises(ArgumentError, match="Numbers has no load_state_dict"):
        FastLoader(Numbers(), batch_size=4).load_state_dict(state)


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("workers", [0, 2])
@pytest.mark.parametrize(
    ("data", "options"),
    [
        (Counting, {"batch_size": 5}),
        (Epochs, {"batch_size": None}),
        (Numbers, {"batch_size": 5}),
        (Numbers, {"batch_size": None, "sampler": Resetting}),
        (Numbers, {"batch_sampler": Batches}),
    ],
)
def test_as_torchdata(data: Any, options: dict[str, Any], workers: int) -> None:
    """The same program as with StatefulDataLoader: the rest of the epoch that a state was taken in, and the
    epoch after it.

    Not where something that starts anew as an epoch ends has done so before the loop's last batch, a sampler
    with a short one or a worker of a smaller share: torchdata then repeats the epoch, or that worker's share
    of it.
    """
    stateful = pytest.importorskip("torchdata.stateful_dataloader").StatefulDataLoader

    def make(kind: Any) -> Any:
        given = {name: value() if isinstance(value, type) else value for name, value in options.items()}
        return kind(data(), num_workers=workers, persistent_workers=workers > 0, **given)

    length = len(list(make(FastLoader)))
    for steps in (2, None) if data is Epochs and workers else (2, length, None):
        runs = []
        for kind in (FastLoader, stateful):
            state = saved_after(lambda kind=kind: make(kind), 0, steps, json_too=kind is FastLoader)
            loader = make(kind)
            loader.load_state_dict(state)
            runs.append(epochs_of(loader, 2))
        assert runs[0] == runs[1], f"after {steps} batches"
