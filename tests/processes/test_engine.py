"""The engine of worker processes: slots are reused, grow and shrink; nothing waits for what will not come; nothing is left behind."""

from __future__ import annotations

import gc
import multiprocessing
import os
import random
import resource
import time
from collections import Counter, namedtuple
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
import torch
from descriptors import open_fds
from torch.utils.data import Dataset, IterableDataset, default_collate, get_worker_info
from torch.utils.data._utils import collate as torch_collate
from worker_values import Custom, same

from fastload import FastLoader
from fastload.errors import ClosedError, ResourceError

pytestmark = [
    pytest.mark.usefixtures("no_leaks", "nothing_left"),
    pytest.mark.timeout(60),
    pytest.mark.filterwarnings("ignore:This DataLoader will create"),
]


@pytest.fixture
def nothing_left() -> Iterator[None]:
    """No process and no descriptor remains of a test."""
    gc.collect()
    fds, tasks = open_fds(), set(multiprocessing.active_children())
    yield
    gc.collect()
    assert set(multiprocessing.active_children()) == tasks
    assert open_fds() == fds


class Made(Dataset[Any]):
    """Samples made by a function of their index."""

    def __init__(self, make: Callable[[int], Any], count: int) -> None:
        self.make = make
        self.count = count

    def __len__(self) -> int:
        return self.count

    def __getitem__(self, index: int) -> Any:
        return self.make(index)


def ones(index: int) -> torch.Tensor:
    return torch.full((1000,), float(index))


MODES: dict[str, dict[str, Any]] = {
    "in turn": {},
    "custom": {"collate_fn": torch.stack},
    "any order": {"in_order": False},
    "by sample": {"seed_by": "sample"},
    "by sample, custom": {"seed_by": "sample", "collate_fn": torch.stack},
}
modes = pytest.mark.parametrize("mode", MODES)


def slots_of(iterator: Any) -> Any:
    return iterator._scheduler.slots


# ---- slots


@modes
@pytest.mark.parametrize("persistent", [False, True])
def test_slots_are_reused(mode: str, persistent: bool) -> None:
    """Two hundred batches need a few slots, the number in flight and those that the loop holds, over epochs too."""
    loader = FastLoader(Made(ones, 400), batch_size=4, num_workers=2, persistent_workers=persistent, **MODES[mode])
    for _ in range(2):
        iterator = iter(loader)
        most = 0
        seen = []
        for batch in iterator:
            seen += batch[:, 0].int().tolist()
            most = max(most, len(slots_of(iterator).all))
        assert sorted(seen) == list(range(400))
        assert most <= iterator._depth + 3
    loader.close()


@modes
def test_batches_that_are_kept(mode: str) -> None:
    """list(loader) is right: no slot is filled again while its batch lives; the set grows, and shrinks back when the batches are gone."""
    loader = FastLoader(Made(ones, 240), batch_size=4, num_workers=2, persistent_workers=True, **MODES[mode])
    kept = list(loader)
    assert sorted(torch.cat(kept)[:, 0].int().tolist()) == list(range(240))
    assert all(bool((batch == batch[:, :1]).all()) for batch in kept)
    slots = slots_of(loader._iterator)
    assert len(slots.all) >= 60
    first = [batch.clone() for batch in kept]
    assert len(list(loader)) == 60  # refills none of them
    assert all(map(torch.equal, first, kept))
    del kept
    for _batch in loader:
        pass
    assert len(slots.all) <= slots.keep + loader._iterator._depth
    loader.close()


@pytest.mark.parametrize("mode", ["in turn", "any order", "by sample"])
def test_batches_that_are_kept_take_no_descriptors(mode: str) -> None:
    """A hundred batches held at once do not bring the process nearer to its limit of open files."""
    with FastLoader(Made(ones, 200), batch_size=2, num_workers=2, **MODES[mode]) as loader:
        iterator = iter(loader)
        kept = [next(iterator) for _ in range(10)]
        before = len(open_fds())
        kept += [next(iterator) for _ in range(80)]
        assert len(open_fds()) < before + 10
    assert len(kept) == 90


@modes
def test_batches_of_many_sizes(mode: str) -> None:
    """Batches whose sizes change all the time arrive whole."""
    sizes = [random.Random(7).choice([0, 1, 3, 100, 5000, 70_000]) for _ in range(80)]

    def make(index: int) -> torch.Tensor:
        return torch.full((sizes[index],), index, dtype=torch.int32)

    loader = FastLoader(Made(make, 80), batch_size=1, num_workers=2, **MODES[mode])
    got = sorted((batch for batch in loader if batch.numel()), key=lambda batch: int(batch[0, 0]))
    full = [index for index in range(80) if sizes[index]]
    assert [batch.tolist() for batch in got] == [[make(index).tolist()] for index in full]
    loader.close()


@pytest.mark.parametrize("mode", ["in turn", "any order", "by sample, custom"])
def test_one_giant_batch(mode: str) -> None:
    """A batch of 8 MB among small ones makes no later slot giant, and its own is let go when such batches come no more."""

    arrived = multiprocessing.Event()

    def make(index: int) -> torch.Tensor:
        if index == 100:  # half of the batches come after the giant one, in whatever order
            assert arrived.wait(50)
        return torch.zeros(2 << 20 if index == 30 else 1000)

    iterator = iter(FastLoader(Made(make, 200), batch_size=1, num_workers=2, **MODES[mode]))
    sizes = []
    for batch in iterator:
        if batch.shape[1] > 1000:
            arrived.set()
        sizes.append(slots_of(iterator).bytes)
    assert arrived.is_set()
    assert max(sizes) < 10 << 20
    assert sizes[-1] < 1 << 20


def test_a_giant_batch_of_rows() -> None:
    """The same where workers fill rows, and the batch is large since it has many of them."""
    batches = [[0]] * 20 + [list(range(2000))] + [[1]] * 120
    loader = FastLoader(Made(ones, 2000), batch_sampler=batches, num_workers=2, seed_by="sample")
    iterator = iter(loader)
    sizes = [slots_of(iterator).bytes for _ in iterator]
    assert max(sizes) < 9 << 20
    assert sizes[-1] < 1 << 20


def test_a_fork_while_a_batch_is_held() -> None:
    """A forked child keeps the batch that was held, whatever the parent's workers write afterwards."""
    loader = FastLoader(Made(ones, 200), batch_size=4, num_workers=2)
    iterator = iter(loader)
    held = next(iterator)
    expected = held.clone()
    ready, go = os.pipe()
    pid = os.fork()
    if pid == 0:
        os.close(go)
        os.read(ready, 1)
        os._exit(0 if held.eq(expected).all() else 1)
    os.close(ready)
    del held
    for _batch in iterator:
        pass
    os.close(go)
    assert os.waitpid(pid, 0)[1] == 0


def test_counters() -> None:
    """Batches, samples, bytes and what went by envelope are counted where the health report finds them."""

    def collate(samples: list[Any]) -> Any:
        return (
            {"x": torch.stack(samples), "odd": samples[0].clone().requires_grad_()} if int(samples[0][0]) % 8 == 0 else torch.stack(samples)
        )

    loader = FastLoader(Made(ones, 40), batch_size=4, num_workers=2, collate_fn=collate)
    list(loader)
    counts = loader._fastload.counters.workers
    assert (counts.batches, counts.samples) == (10, 40)
    assert counts.envelope_batches == 5
    assert counts.envelope_bytes > 5 * 4000
    assert counts.bytes >= 10 * 16_000
    assert counts.python_seconds > 0
    assert counts.collate_seconds > 0
    assert len(counts.slow) == 10
    assert [seconds for _, seconds in counts.slow] == sorted((seconds for _, seconds in counts.slow), reverse=True)
    list(loader)
    assert counts.batches == 20


# ---- by sample


def drawn(index: int) -> Any:
    return {
        "rand": torch.rand(3),
        "numpy": np.random.rand(2),
        "python": random.random(),
        "name": f"sample {index}",
        "pair": (index, f"in a tuple {index}"),
    }


def listed(samples: list[Any]) -> Any:
    return [*samples, torch.rand(2)]


@pytest.mark.parametrize("seed", [None, 11])
@pytest.mark.parametrize(("make", "collate"), [(drawn, None), (drawn, listed), (lambda i: f"{i} {random.random()}", None)])
def test_by_sample_does_not_depend_on_workers(seed: int | None, make: Any, collate: Any) -> None:
    """Any number of workers gives the same batches, containers and strings included, in epoch 0 and 1."""
    runs = []
    for workers in range(4):
        torch.manual_seed(5)
        loader = FastLoader(
            Made(make, 22), batch_size=4, shuffle=True, num_workers=workers, seed_by="sample", seed=seed, collate_fn=collate
        )
        runs.append([list(loader) for _ in range(2)])
    for run in runs[1:]:
        assert same(runs[0], run)
    assert not same(runs[0][0], runs[0][1])


@pytest.mark.parametrize(
    "make",
    [
        lambda i: torch.zeros(3 if i == 9 else 2),
        lambda i: {"x": torch.zeros(2)} if i != 9 else {"y": torch.zeros(2)},
        lambda i: (torch.zeros(2),) * (1 + (i == 9)),
        lambda i: torch.zeros(2) if i != 9 else None,
        lambda i: (torch.zeros(2), 2**70 if i == 9 else 1),
    ],
)
def test_mismatching_samples(make: Any) -> None:
    """A batch whose samples do not fit each other raises default_collate's own error, and the others are delivered."""
    with pytest.raises(Exception) as expected:  # noqa: PT011  (whatever it is)
        default_collate([make(index) for index in range(8, 12)])
    iterator = iter(FastLoader(Made(make, 20), batch_size=4, num_workers=2, seed_by="sample"))
    got: list[Any] = []
    for _ in range(5):
        try:
            got.append(next(iterator))
        except Exception as error:
            assert type(error) is expected.type
            assert str(expected.value).splitlines()[0] in str(error)
            got.append("failed")
    assert [batch == "failed" if isinstance(batch, str) else False for batch in got] == [False, False, True, False, False]
    assert same(got[0], default_collate([make(index) for index in range(4)]))


@pytest.mark.parametrize("mode", MODES)
def test_samples_that_change_kind(mode: str) -> None:
    """Batches of another layout than the first are collated as default_collate does."""
    if "collate_fn" in MODES[mode]:
        pytest.skip("of default_collate")

    def make(index: int) -> Any:
        batch = index // 4
        return [{"x": torch.ones(2), "n": index}, [index, index / 2], {"x": torch.ones(2).double(), "n": index}, (str(index),)][batch % 4]

    expected = [default_collate([make(index) for index in range(at, at + 4)]) for at in range(0, 64, 4)]
    got = list(FastLoader(Made(make, 64), batch_size=4, num_workers=2, **MODES[mode]))
    if mode == "any order":
        assert Counter(map(repr, got)) == Counter(map(repr, expected))
    else:
        assert same(expected, got)


def test_samples_of_a_local_class() -> None:
    """A named tuple that is defined in a function works by sample as well."""
    Local = namedtuple("Local", ["x", "n"])
    batches = list(FastLoader(Made(lambda i: Local(ones(i), i), 12), batch_size=4, num_workers=2, seed_by="sample"))
    assert [batch.n.tolist() for batch in batches] == [[0, 1, 2, 3], [4, 5, 6, 7], [8, 9, 10, 11]]
    assert type(batches[0]).__name__ == "Local"


@pytest.mark.parametrize("kind", [tuple, np.array, torch.tensor])
def test_indices_of_any_kind(kind: Any) -> None:
    """A batch sampler may give tuples, arrays and tensors of indices, with the same samples by sample."""
    batches = [[3, 1, 2], [0, 5], [4]]
    expected = list(FastLoader(Made(drawn, 6), batch_sampler=batches, seed_by="sample", seed=1))
    dataset = Made(lambda index: drawn(int(index)), 6)
    got = list(FastLoader(dataset, batch_sampler=[kind(batch) for batch in batches], num_workers=2, seed_by="sample", seed=1))
    assert same([batch["rand"] for batch in expected], [batch["rand"] for batch in got])
    assert [batch["name"] for batch in expected] == [batch["name"] for batch in got]


# ---- what must not happen


def test_a_reset_waits_for_nothing_that_is_there() -> None:
    """A loop that is broken off while later batches lie ready: the next epoch of persistent workers begins, rather than wait for ever."""

    def make(index: int) -> torch.Tensor:
        time.sleep(0.2 if index == 0 else 0)
        return torch.tensor([index])

    loader = FastLoader(Made(make, 4), batch_size=2, num_workers=2, persistent_workers=True, seed_by="sample", prefetch_factor=4)
    list(loader)
    for _ in range(3):
        next(iter(loader))  # of two batches; the second is often made before the first
        iterator = loader._iterator
        deadline = time.monotonic() + 20
        while any(task.made is None for task in iterator._scheduler.tasks.values()) and time.monotonic() < deadline:
            iterator._listen([0, 1], 20)
        assert [task.made is not None for task in iterator._queue] == [True]
    assert [batch.flatten().tolist() for batch in loader] == [[0, 1], [2, 3]]
    loader.close()


@modes
def test_a_loop_broken_off(mode: str) -> None:
    """Persistent workers begin the next epoch anew wherever the last one was broken off."""
    loader = FastLoader(Made(ones, 40), batch_size=2, num_workers=2, persistent_workers=True, prefetch_factor=3, **MODES[mode])
    pids = None
    for stop in [0, 1, 5, 13, 19, 20]:
        for number, _batch in enumerate(loader):
            if number == stop:
                break
        pids = pids or [process.pid for process in loader._iterator._workers]
    seen = [batch[:, 0].int().tolist() for batch in loader]
    assert sorted(seen) == [[index, index + 1] for index in range(0, 40, 2)]
    assert mode == "any order" or seen == sorted(seen)
    assert pids == [process.pid for process in loader._iterator._workers]
    loader.close()


class Caching(Dataset[Any]):
    """Collates for itself, and keeps what it made."""

    def __init__(self) -> None:
        self.cache: dict[int, Any] = {}

    def __len__(self) -> int:
        return 400

    def __getitem__(self, index: int) -> Any:
        key = index % 40
        if key not in self.cache:
            self.cache[key] = default_collate([ones(key), ones(key)])
        return self.cache[key]


@pytest.mark.parametrize("collate", [None, lambda samples: samples])
def test_what_a_dataset_collates_stays_its_own(collate: Any) -> None:
    """A dataset that calls default_collate and keeps the result finds it as it was, however often the slots are filled again."""
    for number, batch in enumerate(FastLoader(Caching(), batch_size=2, num_workers=2, collate_fn=collate)):
        for at, sample in enumerate(batch):
            assert bool((sample == (2 * number + at) % 40).all())


def test_views_of_collated_tensors(monkeypatch: pytest.MonkeyPatch) -> None:
    """A collate function of a class that gives a tensor and views of it: right also where the slot is too small and all are copied."""

    def both(batch: list[Any], *, collate_fn_map: Any = None) -> Any:
        stacked = torch_collate.collate([each.content for each in batch], collate_fn_map=collate_fn_map)
        return [stacked, *stacked.unbind(), torch.ones(1_000_000 if int(stacked[0, 0]) == 60 else 0)]

    monkeypatch.setitem(torch_collate.default_collate_fn_map, Custom, both)
    dataset = Made(lambda i: Custom(ones(i)), 80)
    for number, batch in enumerate(FastLoader(dataset, batch_size=4, num_workers=2)):
        whole, *parts, more = batch
        assert bool(more.eq(1).all())
        assert whole[:, 0].tolist() == [4.0 * number + at for at in range(4)]
        assert all(map(torch.equal, whole, parts))


def test_exceptions_of_a_local_class() -> None:
    """An exception that no pickle knows by name is raised all the same, and the worker lives."""

    class Local(ValueError):
        pass

    def make(index: int) -> Any:
        if index == 2:
            raise Local("just this one")
        return index

    for workers_do in ({}, {"seed_by": "sample"}):
        loader = FastLoader(Made(make, 6), batch_size=1, num_workers=1, **workers_do)
        iterator = iter(loader)
        assert [next(iterator).item(), next(iterator).item()] == [0, 1]
        with pytest.raises(ValueError, match="just this one"):
            next(iterator)
        assert [batch.item() for batch in iterator] == [3, 4, 5]


def test_an_iterator_that_was_closed() -> None:
    """Closed before its end it says so: a loop must not take that for the end of the epoch. After its end it stays ended."""
    loader = FastLoader(Made(ones, 20), batch_size=2, num_workers=2)
    iterator = iter(loader)
    next(iterator)
    loader.close()
    with pytest.raises(ClosedError):
        next(iterator)
    assert len(list(loader)) == 10
    iterator = iter(loader)
    for _batch in iterator:
        pass
    loader.close()
    for _ in range(2):
        with pytest.raises(StopIteration):
            next(iterator)


def test_a_sampler_that_fails() -> None:
    """An error of the sampler, or an index that cannot be sent, is raised; what follows is an error too, never a wait."""

    def failing() -> Iterator[int]:
        yield from range(12)
        raise KeyError("no more")

    class Sampler:
        def __iter__(self) -> Iterator[int]:
            return failing()

        def __len__(self) -> int:
            return 100

    iterator = iter(FastLoader(Made(ones, 100), batch_size=1, sampler=Sampler(), num_workers=2))
    with pytest.raises(KeyError, match="no more"):
        for _batch in iterator:
            pass
    indices = [*range(8), lambda: None, *range(8)]
    iterator = iter(FastLoader(Made(ones, 100), batch_size=None, sampler=indices, num_workers=2))
    with pytest.raises(Exception, match=r"[Pp]ickle|local object"):
        for _batch in iterator:
            pass
    with pytest.raises(ClosedError):
        next(iterator)


def test_a_forked_child_iterates_a_persistent_loader() -> None:
    """It gets workers of its own; the parent's go on."""
    loader = FastLoader(Made(ones, 20), batch_size=2, num_workers=1, persistent_workers=True)
    list(loader)
    pids = [process.pid for process in loader._iterator._workers]
    pid = os.fork()
    if pid == 0:
        code = 1
        try:
            torch.set_num_threads(1)
            code = 0 if [int(batch[0, 0]) for batch in loader] == list(range(0, 20, 2)) else 2
            loader.close()
        finally:
            os._exit(code)
    assert os.waitpid(pid, 0)[1] == 0
    assert len(list(loader)) == 10
    assert [process.pid for process in loader._iterator._workers] == pids
    loader.close()


def test_no_room_for_a_descriptor() -> None:
    """A process at its limit of open files gets an error that names the limit, not a loader that hangs."""

    def make(index: int) -> torch.Tensor:
        return torch.zeros(1 << (10 + index))  # each needs a larger slot

    iterator = iter(FastLoader(Made(make, 12), batch_size=1, num_workers=1, prefetch_factor=1))
    next(iterator)
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    taken: list[int] = []
    try:
        resource.setrlimit(resource.RLIMIT_NOFILE, (max(map(int, open_fds())), hard))
        try:
            while True:
                taken.append(os.dup(0))
        except OSError:
            pass
        with pytest.raises(ResourceError, match="ulimit -n"):
            for _ in range(12):
                next(iterator)
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
        for fd in taken:
            os.close(fd)


# ---- iterable datasets


class Uneven(IterableDataset[Any]):
    """Replicas of different lengths: worker k of N yields (k, 0), (k, 1), ..."""

    def __init__(self, lengths: list[int]) -> None:
        self.lengths = lengths

    def __iter__(self) -> Iterator[Any]:
        info = get_worker_info()
        assert info is not None
        for number in range(self.lengths[info.id]):
            yield info.id * 1000 + number


@pytest.mark.parametrize("lengths", [[0, 0, 0], [5, 0, 1], [1, 17, 3], [40, 0, 2], [7, 7, 7]])
@pytest.mark.parametrize("in_order", [True, False])
@pytest.mark.parametrize("size", [None, 1, 4])
def test_exhausted_replicas(lengths: list[int], in_order: bool, size: int | None) -> None:
    """Every replica is read to its end, in its own order, in each epoch of persistent workers, and after a loop that was broken off."""
    loader = FastLoader(Uneven(lengths), batch_size=size, num_workers=3, persistent_workers=True, prefetch_factor=2, in_order=in_order)
    for _ in range(2):
        seen = [value for batch in loader for value in (batch.tolist() if size else [batch])]
        for worker, length in enumerate(lengths):
            assert [value for value in seen if value // 1000 == worker] == [worker * 1000 + number for number in range(length)]
        assert len(seen) == sum(lengths)
        for _batch in loader:
            break
    loader.close()
