"""state_dict() and load_state_dict(): whatever was consumed, however it was prefetched, a resumed loop ends as an uninterrupted one."""

from __future__ import annotations

import json
import pickle
import random
import signal
import subprocess
import sys
import textwrap
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from torch.utils.data import (
    BatchSampler,
    Dataset,
    DistributedSampler,
    IterableDataset,
    RandomSampler,
    Sampler,
    SequentialSampler,
    SubsetRandomSampler,
    WeightedRandomSampler,
    get_worker_info,
)

from fastload import FastLoader, PackedDataset
from fastload import transforms as T
from fastload.errors import ArgumentError

pytestmark = pytest.mark.filterwarnings("ignore:This DataLoader will create")  # more workers than this machine's CPUs
COUNT = 23
TRAIN = [T.RandomResizedCrop(16), T.RandomHorizontalFlip()]


class Numbers(Dataset[Any]):
    """COUNT samples: sample i is i; remembers, in the calling process, what it was asked for."""

    def __init__(self, count: int = COUNT) -> None:
        self.count = count
        self.asked: list[int] = []

    def __len__(self) -> int:
        return self.count

    def __getitem__(self, index: int) -> int:
        self.asked.append(index)
        return index


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


class Kept(Sampler[int]):
    """A sampler with a state of its own: counts on over epochs."""

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


def generator(seed: int = 5) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


SAMPLERS: dict[str, Any] = {
    "sequential": lambda: {},
    "shuffle": lambda: {"shuffle": True},
    "seed": lambda: {"shuffle": True, "seed": 3},
    "generator": lambda: {"shuffle": True, "generator": generator()},
    "own": lambda: {"sampler": RandomSampler(range(COUNT), generator=generator())},
    "replacement": lambda: {"sampler": RandomSampler(range(COUNT), replacement=True, num_samples=90, generator=generator())},
    "twice": lambda: {"sampler": RandomSampler(range(COUNT), num_samples=2 * COUNT, generator=generator())},
    "subset": lambda: {"sampler": SubsetRandomSampler(range(3, COUNT))},
    "weighted": lambda: {"sampler": WeightedRandomSampler([1.0] * COUNT, 40)},
    "distributed": lambda: {"sampler": DistributedSampler(range(COUNT), num_replicas=2, rank=1)},
    "custom": lambda: {"sampler": Shuffled()},
    "kept": lambda: {"sampler": Kept()},
    "batches": lambda: {"batch_sampler": BatchSampler(RandomSampler(range(COUNT)), 5, True), "batch_size": 1},
    "lists": lambda: {"sampler": BatchSampler(SequentialSampler(range(COUNT)), 6, False), "batch_size": None},
    "single": lambda: {"shuffle": True, "batch_size": None},
}


def plain(batch: Any) -> Any:
    """A batch as lists."""
    if isinstance(batch, torch.Tensor):
        return batch.tolist()
    return [plain(part) for part in batch] if isinstance(batch, list | tuple) else batch


def flat(batches: list[list[int]]) -> list[int]:
    return [number for batch in batches for number in batch]


def through_json(state: dict[str, Any]) -> dict[str, Any]:
    return json.loads(json.dumps(state, allow_nan=False))


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
    """A loop that draws from torch's global generator, as dropout does; left after `steps` batches, if given."""
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


def check_resumes(make: Any, other: Any, epochs: int, steps: int, following: bool = True) -> None:
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


@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(
    kind=st.sampled_from(sorted(SAMPLERS)),
    steps=st.integers(0, 12),
    epochs=st.integers(0, 1),
    first=st.sampled_from([0, 0, 1, 2]),
    second=st.sampled_from([0, 0, 1, 3]),
    prefetch=st.integers(1, 4),
    persistent=st.booleans(),
)
def test_any_sampler_any_workers(kind: str, steps: int, epochs: int, first: int, second: int, prefetch: int, persistent: bool) -> None:
    """Position and order, over epochs, whatever draws them and whoever makes the batches. A lazily drawing custom sampler shares torch's
    generator with the loop, so that only the first of these can be expected of it."""

    def make(workers: int, prefetch: int) -> Any:
        options = {"batch_size": 4, **SAMPLERS[kind]()}
        if workers:
            options |= {"prefetch_factor": prefetch, "persistent_workers": persistent}
        return FastLoader(Numbers(), num_workers=workers, **options)

    persists = [persistent and workers > 0 for workers in (first, second)]
    # Persistent workers draw one base seed, others one per epoch: from the generator that "generator" shuffles with, or torch's global one.
    following = persists[0] == persists[1] or kind in ("sequential", "seed", "own", "replacement", "twice", "distributed", "kept", "lists")
    if kind == "custom":
        return check_custom(first, second, steps)
    check_resumes(lambda: make(first, 2), lambda: make(second, prefetch), epochs, steps, following)


def check_custom(first: int, second: int, steps: int) -> None:
    def make(workers: int) -> Any:
        return FastLoader(Numbers(), batch_size=4, sampler=Shuffled(), num_workers=workers)

    def consumed(loader: Any, steps: int | None = None) -> list[Any]:
        batches = iter(loader)
        return [plain(batch) for batch in batches] if steps is None else [plain(next(batches)) for _ in range(steps)]

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


@settings(max_examples=15, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow])
@given(
    steps=st.integers(0, 13),
    epochs=st.integers(0, 1),
    workers=st.tuples(st.integers(0, 3), st.integers(0, 3)),
    prefetch=st.integers(1, 5),
    options=st.sampled_from([{}, {"shuffle": True}, {"shuffle": True, "seed": 7}, {"seed": 7}, {"shuffle": True, "drop_last": True}]),
)
def test_packed(packed: Path, steps: int, epochs: int, workers: tuple[int, int], prefetch: int, options: dict[str, Any]) -> None:
    """On packed data the pixels are the same as well."""
    data = PackedDataset(packed, transform=TRAIN)

    def make(workers: int, prefetch: int) -> Any:
        more = {"prefetch_factor": prefetch} if workers else {}
        return FastLoader(data, batch_size=4, num_workers=workers, **options, **more)

    check_resumes(lambda: make(workers[0], 2), lambda: make(workers[1], prefetch), epochs, steps)


def test_packed_reads_only_what_is_left(packed: Path) -> None:
    """Nothing that was consumed is decoded again."""
    data = PackedDataset(packed, transform=TRAIN)
    first = FastLoader(data, batch_size=4, num_workers=1, shuffle=True, seed=1)
    trained(first, 10)
    resumed = FastLoader(data, batch_size=4, num_workers=1, shuffle=True, seed=1, prefetch_factor=1)
    resumed.load_state_dict(through_json(first.state_dict()))
    batches = iter(resumed)
    next(batches)
    assert resumed.stats()["samples"] <= 8
    assert sum(len(labels) for _, labels in batches) == len(data) - 44
    first.close()
    resumed.close()


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
    """With seed_by="sample" a resume repeats every random number, in the second epoch of persistent workers too."""

    def make(workers: int) -> Any:
        more = {"persistent_workers": True} if workers else {}
        return FastLoader(Noisy(), batch_size=4, shuffle=True, seed=seed, seed_by="sample", num_workers=workers, **more)

    check_resumes(lambda: make(workers[0]), lambda: make(workers[1]), 1 if workers[0] else 0, 2, following=seed is not None)


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
@pytest.mark.parametrize("keeps", [None, "dataset", "iterator"])
@pytest.mark.parametrize(
    ("workers", "persistent", "batch_size", "drop_last"),
    [(0, False, 4, False), (2, False, 4, False), (3, True, 4, True), (2, False, None, False)],
)
def test_iterable(keeps: str | None, workers: int, persistent: bool, batch_size: int | None, drop_last: bool) -> None:
    """An iterable dataset goes on after every batch, by its own state or without, in every worker, with workers that end early."""

    def make(prefetch: int = 2) -> Any:
        more = {"prefetch_factor": prefetch, "persistent_workers": persistent} if workers else {}
        return FastLoader(Stream(keeps), batch_size=batch_size, drop_last=drop_last, num_workers=workers, **more)

    whole = trained(make())
    assert len(whole) >= 4
    for steps in (1, len(whole) // 2, len(whole) - 1):
        check_resumes(make, lambda: make(3), int(persistent), steps, following=steps == 1)
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
    """Each replica has a position: another number of workers is refused, by both numbers, in mid-epoch only; one and none are the same."""
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


def test_where_a_state_stands() -> None:
    """Before an epoch, in it, after a loop was left, at its end with and without StopIteration: a state says what comes next."""
    loader = FastLoader(Numbers(), batch_size=4)

    def stands() -> tuple[int, int, int]:
        state = through_json(loader.state_dict())
        return state["epoch"], state["batches"], state["samples"]

    assert stands() == (0, 0, 0)
    batches = iter(loader)
    assert stands() == (0, 0, 0)
    next(batches)
    assert stands() == (0, 1, 4)
    del batches
    assert stands() == (0, 1, 4)  # the loop was left
    batches = iter(loader)
    assert stands() == (1, 0, 0)
    for _ in range(6):
        next(batches)
    assert stands() == (1, 6, 23)  # StopIteration was not seen: the epoch has still to end
    assert list(batches) == []
    assert stands() == (2, 0, 0)
    loader.set_epoch(9)
    assert stands() == (9, 0, 0)


def test_prefetched_batches_do_not_count() -> None:
    """Batches that workers have finished, and nobody had, are still to come."""
    loader = FastLoader(Numbers(), batch_size=4, num_workers=2, prefetch_factor=4)
    batches = iter(loader)
    next(batches)
    next(batches)
    assert loader.state_dict()["batches"] == 2
    assert loader.state_dict()["samples"] == 8
    del batches
    loader.close()


def test_state_of_a_resumed_loader() -> None:
    """A resumed loop can be interrupted in turn, before its first batch and after."""
    seeded()
    whole = trained(FastLoader(Numbers(), batch_size=2, shuffle=True))
    seeded()
    loader = FastLoader(Numbers(), batch_size=2, shuffle=True)
    got = trained(loader, 2)
    for steps in (1, 0, 3, 4):
        state = through_json(loader.state_dict())
        scattered()
        loader = FastLoader(Numbers(), batch_size=2, shuffle=True)
        loader.load_state_dict(state)
        loader = pickle.loads(pickle.dumps(loader))
        got += trained(loader, steps)
    assert got + trained(resume(loader, FastLoader(Numbers(), batch_size=2, shuffle=True))) == whole


def resume(loader: Any, into: Any) -> Any:
    into.load_state_dict(through_json(loader.state_dict()))
    return into


def test_load_into_a_loader_in_use() -> None:
    """A loader that iterates, or whose persistent workers live, can go back to a state."""
    seeded()
    loader = FastLoader(Numbers(), batch_size=4, shuffle=True, num_workers=1, persistent_workers=True)
    batches = iter(loader)
    next(batches)
    state = through_json(loader.state_dict())
    rest = [plain(batch) for batch in batches]
    second = trained(loader)
    loader.load_state_dict(state)
    assert trained(loader) == rest
    assert sorted(flat(second)) == list(range(COUNT))
    loader.close()


def test_packed_load_while_the_next_epoch_is_under_way(packed: Path) -> None:
    """The epoch begun early is not taken for the one that a state asks for."""
    loader = FastLoader(PackedDataset(packed, transform=TRAIN), batch_size=4, num_workers=2, shuffle=True, seed=2)
    batches = iter(loader)
    next(batches)
    state = through_json(loader.state_dict())
    rest = [plain(batch) for batch in batches]
    for _ in range(2):
        loader.load_state_dict(state)
        batches = iter(loader)
        assert [plain(batch) for batch in batches] == rest
    loader.load_state_dict(state)
    loader.set_epoch(5)
    assert len(trained(loader)) == len(rest) + 1
    loader.close()


def test_distributed_sampler_keeps_its_epoch() -> None:
    """The sampler's set_epoch() is called with what it was."""

    def make() -> Any:
        return FastLoader(Numbers(), batch_size=4, sampler=DistributedSampler(range(COUNT), num_replicas=2, rank=0, seed=1))

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
    """With in_order=False the batches that came early are not repeated, and the one that was passed is not lost."""
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


class Failing(Numbers):
    def __getitem__(self, index: int) -> int:
        if index == 5:
            raise KeyError(index)
        return index


@pytest.mark.parametrize("workers", [0, 2])
def test_a_failed_batch(workers: int) -> None:
    """A batch that failed last is tried again by a resume; one that the loop went past is not."""
    loader = FastLoader(Failing(), batch_size=4, num_workers=workers)
    batches = iter(loader)
    next(batches)
    with pytest.raises(KeyError):
        next(batches)
    tried = through_json(loader.state_dict())
    assert plain(next(batches)) == [8, 9, 10, 11]
    passed = through_json(loader.state_dict())
    loader.close()
    assert trained(resumed_with(tried))[0] == [4, 5, 6, 7]
    assert trained(resumed_with(passed))[0] == [12, 13, 14, 15]


def resumed_with(state: dict[str, Any]) -> Any:
    loader = FastLoader(Numbers(), batch_size=4)
    loader.load_state_dict(state)
    return loader


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"version": 3}, "version 3"),
        ({"version": None}, "version None"),
        ({"batches": "3"}, "batches is '3'"),
        ({"position": -1}, "position is -1"),
        ({"start": {"default": "?"}}, "generators"),
        ({"start": {"numpy": []}}, "generators"),
        ({"start": {"default": "AAAA"}}, "generators"),
        ({"now": {"random": [3, "AAAA", None]}}, "generators"),
        ({"start": {"random": [3]}}, "generators"),
        ({"beyond": [None]}, "beyond"),
        ({"replicas": [3]}, "replicas"),
        ({"turn": 7}, "turn is 7"),
        ({"batch_size": 5}, "batch_size 5, this loader has 4"),
        ({"drop_last": True}, "drop_last True, this loader has False"),
        ({"length": 60000}, f"dataset length 60000, this loader has {COUNT}"),
        ({"seed": 3}, "seed 3, this loader has None"),
        ({"kind": "iterable"}, "kind 'iterable', this loader has 'map'"),
        ({"sampler": {"name": "RandomSampler"}}, "RandomSampler, this loader has a SequentialSampler"),
    ],
)
def test_states_that_do_not_fit(change: dict[str, Any], message: str) -> None:
    """A state of another version, damaged, or of another loader's settings is refused by what is wrong, and changes nothing."""
    loader = FastLoader(Numbers(), batch_size=4)
    trained(loader, 2)
    state = through_json(loader.state_dict())
    other = FastLoader(Numbers(), batch_size=4)
    with pytest.raises(ArgumentError, match=message):
        other.load_state_dict({**state, **change})
    assert len(trained(other)) == 6
    for name in state.keys() - {"version"}:
        with pytest.raises(ArgumentError, match=name):
            other.load_state_dict({key: value for key, value in state.items() if key != name})


def test_states_of_others() -> None:
    """What is no state of a FastLoader is refused; an empty one asks for nothing, as in torchdata."""
    loader = FastLoader(Numbers(), batch_size=4)
    for wrong in ({"_snapshot": {}}, [1], "state"):
        with pytest.raises(ArgumentError, match="no state of a FastLoader"):
            loader.load_state_dict(wrong)
    loader.load_state_dict({})
    assert len(trained(loader)) == 6


def test_settings_may_change_between_epochs() -> None:
    """At an epoch's end nothing depends on the batch size, nor on the dataset's length."""
    loader = FastLoader(Numbers(), batch_size=4)
    trained(loader)
    other = resume(loader, FastLoader(Numbers(8), batch_size=3))
    assert other.epoch == 1
    assert len(trained(other)) == 3


def test_a_generator_that_is_missing() -> None:
    """A state whose order came from a generator needs one to go on with."""
    loader = FastLoader(Numbers(), batch_size=4, shuffle=True, generator=generator())
    trained(loader, 1)
    with pytest.raises(ArgumentError, match="generator="):
        resume(loader, FastLoader(Numbers(), batch_size=4, shuffle=True))


KILLED = """
import json, os, signal, sys
import torch
from fastload import FastLoader
from torch.utils.data import Dataset

class Numbers(Dataset):
    def __len__(self): return 40
    def __getitem__(self, index): return index

path, workers, kill_at = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
torch.manual_seed(1 if not os.path.exists(path) else 2)
loader = FastLoader(Numbers(), batch_size=3, shuffle=True, num_workers=workers)
if os.path.exists(path):
    with open(path) as file:
        loader.load_state_dict(json.load(file))
step = 0
while loader.epoch < 3:
    for batch in loader:
        print(*batch.tolist(), flush=True)
        with open(path + ".part", "w") as file:
            json.dump(loader.state_dict(), file)
        os.rename(path + ".part", path)
        step += 1
        if step == kill_at:
            os.kill(os.getpid(), signal.SIGKILL)
"""


def test_killed_and_started_again(tmp_path: Path) -> None:
    """A program that saves the state after each step, is killed, and is started anew with other workers, trains as if never killed."""

    def run(name: str, workers: int, kill_at: int) -> tuple[int, str]:
        command = [sys.executable, "-W", "error", "-c", textwrap.dedent(KILLED), str(tmp_path / name), str(workers), str(kill_at)]
        done = subprocess.run(command, capture_output=True, text=True, timeout=100, check=False)
        assert "Traceback" not in done.stderr, done.stderr
        return done.returncode, done.stdout

    code, whole = run("whole", 0, -1)
    assert code == 0
    got = ""
    for workers, kill_at, ends in ((2, 19, -signal.SIGKILL), (0, -1, 0)):
        code, text = run("killed", workers, kill_at)
        assert code == ends
        got += text
    assert got == whole


@pytest.mark.parametrize("workers", [0, 2])
@pytest.mark.parametrize("data", ["map", None, "dataset", "iterator"])
@pytest.mark.filterwarnings("ignore")
def test_as_torchdata(workers: int, data: str | None) -> None:
    """After the same number of batches torchdata's StatefulDataLoader goes on with the same ones."""
    stateful = pytest.importorskip("torchdata.stateful_dataloader").StatefulDataLoader

    def make(kind: Any) -> Any:
        return kind(Numbers() if data == "map" else Stream(data), batch_size=4, num_workers=workers)

    length = len(trained(make(FastLoader)))
    for steps in (1, length // 2, length - 1):
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
