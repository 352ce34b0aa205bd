"""What user code sees inside a worker, and what of its failures comes back: worker_init_fn,
get_worker_info, exceptions, epochs."""

from __future__ import annotations

import gc
import multiprocessing
import os
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from conformance_helpers import LOADERS, Failure, Rows, agree, attempt, drain, epochs
from torch.utils.data import Dataset, Sampler, get_worker_info

from fastload import FastLoader

pytestmark = pytest.mark.filterwarnings("ignore:This DataLoader will create")
EPOCHS = 3
changed_by_the_program = 0


class OddError(Exception):
    """Cannot be made from one message."""

    def __init__(self, code: int, what: str) -> None:
        super().__init__(f"{what} ({code})")


class MessageError(Exception):
    """Takes its message by name, as torch's ExceptionWrapper knows."""

    def __init__(self, *, message: str) -> None:
        super().__init__(message)
        self.message = message


class LocalState:
    """An exception holding what cannot be pickled must come back all the same."""

    class Error(Exception):
        def __init__(self, text: str = "") -> None:
            super().__init__(text)
            self.lock = threading.Lock()


RAISES = {
    "ValueError": lambda: ValueError("bad value\nin two lines"),
    "KeyError": lambda: KeyError("missing key"),
    "IndexError": lambda: IndexError(3, 4),
    "OSError": lambda: FileNotFoundError(2, "No such file", "a.jpg"),
    "UnicodeDecodeError": lambda: UnicodeDecodeError("utf-8", b"\xff", 0, 1, "invalid start byte"),
    "odd constructor": lambda: OddError(3, "odd"),
    "message by name": lambda: MessageError(message="named"),
    "unpicklable": lambda: LocalState.Error("holds a lock"),
    "StopIteration": lambda: StopIteration("ended early"),
    "empty message": lambda: RuntimeError(),
    "assertion": lambda: AssertionError("never"),
}


def failing(name: str) -> Rows:
    def make(i: int) -> Any:
        if i == 3:
            raise RAISES[name]()
        return i

    return Rows(make, 12)


@pytest.mark.parametrize("name", RAISES)
@pytest.mark.parametrize("workers", [0, 2])
def test_exception_in_the_dataset(name: str, workers: int) -> None:
    """The same class, the same first line, the original's text at the end; and the batches after the
    failing one come."""

    def run(loader_class: Any) -> Any:
        return list(drain(iter(loader_class(failing(name), batch_size=2, num_workers=workers))))

    got = agree(run)
    if name != "StopIteration":  # which ends the loop that draws
        assert isinstance(got[1], Failure)
        assert len(got) == 6


def test_original_traceback_is_in_the_message() -> None:
    """The message holds the worker's traceback down to the line that raised."""
    for loader_class in LOADERS:
        with pytest.raises(
            ValueError,
            match=r"(?s)in DataLoader worker process 1\..*Original Traceback.*test_workers.py.*in make",
        ):
            list(loader_class(failing("ValueError"), batch_size=2, num_workers=2))


def failing_collate(batch: list[int]) -> Any:
    if 4 in batch:
        raise ZeroDivisionError("in collate")
    return torch.tensor(batch)


@pytest.mark.parametrize("workers", [0, 2])
@pytest.mark.parametrize("persistent", [False, True])
def test_exception_in_collate(workers: int, persistent: bool) -> None:
    """collate_fn's error is a batch's; the epoch goes on, and the next one runs."""
    if persistent and not workers:
        pytest.skip("persistent_workers needs workers")

    def run(loader_class: Any) -> Any:
        data = Rows(lambda i: i, 10)
        loader = loader_class(
            data, batch_size=2, num_workers=workers, collate_fn=failing_collate, persistent_workers=persistent
        )
        return [list(drain(iter(loader))) for _ in range(2)]

    agree(run)


def test_exception_in_worker_init_fn() -> None:
    """worker_init_fn's error is raised at the first batch, with the worker's number."""

    def init(worker: int) -> None:
        raise KeyError(f"no resource for {worker}")

    agree(
        lambda loader_class: next(iter(loader_class(Rows(lambda i: i), num_workers=1, worker_init_fn=init)))
    )


class BrokenSampler(Sampler[int]):
    def __iter__(self) -> Iterator[int]:
        yield from range(9)
        raise LookupError("sampler ended badly")

    def __len__(self) -> int:
        return 20


@pytest.mark.parametrize("workers", [0, 2])
def test_exception_in_the_sampler(workers: int) -> None:
    """A sampler's error is raised as it is, without a worker's story around it; no wrong batch comes
    before it."""
    for loader_class in LOADERS:
        got = []
        with pytest.raises(LookupError, match=r"^sampler ended badly$"):
            for batch in loader_class(
                Rows(lambda i: i, 20),
                batch_size=2,
                sampler=BrokenSampler(),
                num_workers=workers,
                prefetch_factor=None,
            ):
                got.append(batch.tolist())  # noqa: PERF401
        assert got == [[0, 1], [2, 3], [4, 5], [6, 7]][: len(got)]


class Ended:
    """Garbage, since it refers to itself, that says in which process it was ended."""

    def __init__(self, path: Path) -> None:
        self.itself, self.path = self, path

    def __del__(self) -> None:
        with self.path.open("a") as file:
            file.write(f"{os.getpid()}\n")


def test_the_parents_garbage_is_the_parents(tmp_path: Path) -> None:
    """What waits for the garbage collector when workers are forked is ended once, by the parent: a
    worker's collection lets it be."""
    gc.disable()
    try:
        Ended(tmp_path / "ended")
        batches = list(FastLoader(Rows(lambda i: min(gc.collect(), 0), 4), batch_size=2, num_workers=2))
        assert torch.equal(batches[0], torch.zeros(2, dtype=torch.int64))
        gc.collect()
    finally:
        gc.enable()
    assert (tmp_path / "ended").read_text().split() == [str(os.getpid())]


@pytest.mark.parametrize("persistent", [False, True])
def test_worker_init_fn(persistent: bool, tmp_path: Path) -> None:
    """Called once for each worker that starts, with its number, after seeding, and before the dataset is
    touched."""

    def run(loader_class: Any) -> Any:
        notes = tmp_path / loader_class.__name__
        notes.mkdir()

        def init(worker: int) -> None:
            info = get_worker_info()
            assert info is not None
            info.dataset.prepared = worker * 10
            with open(notes / f"{time.monotonic_ns()}-{worker}", "w") as note:
                note.write(
                    f"{worker} {info.id} {info.num_workers} {info.seed} {torch.initial_seed()} "
                    f"{float(torch.rand(()))}"
                )

        data = Rows(lambda i: (i, data.prepared), 8)
        loader = loader_class(
            data, batch_size=2, num_workers=2, worker_init_fn=init, persistent_workers=persistent
        )
        batches = epochs(loader, EPOCHS)
        return batches, sorted(note.read_text() for note in notes.iterdir())

    batches, notes = agree(run)
    assert len(notes) == 2 * (1 if persistent else EPOCHS)
    assert [batch[1].tolist() for batch in batches[0]] == [[0, 0], [10, 10], [0, 0], [10, 10]]


def test_get_worker_info(tmp_path: Path) -> None:
    """Inside: number, count, seed and the very dataset in use. Outside: None. Threads 1, a daemonic
    process, torch's repr of it."""

    class Curious(Dataset[Any]):
        def __len__(self) -> int:
            return 6

        def __getitem__(self, index: int) -> Any:
            info = get_worker_info()
            assert info is not None
            assert info.dataset is self
            fixed = attempt(lambda: setattr(info, "id", 7))
            current = multiprocessing.current_process()
            return (
                [info.id, info.num_workers, index],
                [str(info.seed), repr(fixed), info.worker_method],
                [torch.get_num_threads(), current.daemon, torch.utils.data.get_worker_info() is info],
            )

    agree(lambda loader_class: list(loader_class(Curious(), batch_size=2, num_workers=3)))
    assert get_worker_info() is None


class Stateful(Dataset[Any]):
    """Counts, in the copy that its worker has, how often it was asked."""

    def __init__(self) -> None:
        self.asked = 0
        self.setting = 0

    def __len__(self) -> int:
        return 8

    def __getitem__(self, index: int) -> Any:
        self.asked += 1
        return index, self.asked, self.setting, changed_by_the_program


@pytest.mark.parametrize("persistent", [False, True])
@pytest.mark.parametrize("workers", [0, 1, 2])
def test_what_workers_keep_between_epochs(workers: int, persistent: bool) -> None:
    """New workers see the program's dataset and globals as they are now; persistent ones keep what they
    had."""
    global changed_by_the_program
    if persistent and not workers:
        pytest.skip("persistent_workers needs workers")

    def run(loader_class: Any) -> Any:
        global changed_by_the_program
        data, seen = Stateful(), []
        loader = loader_class(data, batch_size=2, num_workers=workers, persistent_workers=persistent)
        for epoch in range(EPOCHS):
            data.setting = changed_by_the_program = epoch
            seen.append(list(loader))
        return seen, data.asked

    agree(run)
    changed_by_the_program = 0


@pytest.mark.parametrize("persistent", [False, True])
def test_pids(persistent: bool) -> None:
    """Persistent workers keep their PIDs over epochs; batch k is made by worker k mod N."""
    for loader_class in LOADERS:
        data = Rows(lambda i: (os.getpid(), get_worker_info().id), 8)
        loader = loader_class(data, batch_size=1, num_workers=2, persistent_workers=persistent)
        seen = []
        for _ in range(EPOCHS):
            batches = list(loader)
            assert [int(b[1]) for b in batches] == [0, 1] * 4
            seen.append([int(b[0]) for b in batches])
            assert len(set(seen[-1])) == 2
            assert os.getpid() not in seen[-1]
        assert persistent == (seen[0] == seen[1] == seen[2])


@pytest.mark.parametrize("prefetch", [1, 3])
def test_prefetch_bounds_how_far_the_dataset_is_read(prefetch: int, tmp_path: Path) -> None:
    """With nothing consumed, workers read `prefetch_factor` batches each and stop; each batch taken lets
    one more be read."""
    for loader_class in LOADERS:
        folder = tmp_path / loader_class.__name__
        folder.mkdir()
        loader = loader_class(Rows(lambda i, folder=folder: (folder / str(i)).touch(), 200), batch_size=2,
        num_workers=2,
                              prefetch_factor=prefetch, collate_fn=len)  # fmt: skip
        iterator = iter(loader)
        for taken in range(4):
            expected = 2 * (2 * prefetch + taken)
            deadline = time.monotonic() + 20
            while len(list(folder.iterdir())) < expected and time.monotonic() < deadline:
                time.sleep(0.02)
            time.sleep(0.1)  # long enough for a worker that does not stop to show it
            assert len(list(folder.iterdir())) == expected
            next(iterator)
        del iterator


def test_out_of_order_passes_a_blocked_batch(tmp_path: Path) -> None:
    """in_order=False: while batch 0 is held up, later ones come; at the end none is missing."""
    for loader_class in LOADERS:
        gate = tmp_path / loader_class.__name__

        def make(i: int, gate: Path = gate) -> int:
            while i == 0 and not gate.exists():
                time.sleep(0.01)
            return i

        iterator = iter(loader_class(Rows(make, 12), batch_size=2, num_workers=2, in_order=False))
        early = [next(iterator).tolist(), next(iterator).tolist()]
        assert [0, 1] not in early
        gate.touch()
        batches = early + [batch.tolist() for batch in iterator]
        assert sorted(batches) == [[i, i + 1] for i in range(0, 12, 2)]


def test_in_order_waits(tmp_path: Path) -> None:
    """in_order=True: a slow first batch comes first."""

    def make(i: int) -> int:
        time.sleep(0.3 if i < 2 else 0)
        return i

    agree(lambda loader_class: list(loader_class(Rows(make, 12), batch_size=2, num_workers=3)))


def test_workers_are_at_work_before_the_first_next(tmp_path: Path) -> None:
    """iter() alone starts the reading."""
    for loader_class in LOADERS:
        mark = tmp_path / loader_class.__name__
        iterator = iter(loader_class(Rows(lambda i, mark=mark: mark.touch()), num_workers=1, collate_fn=len))
        deadline = time.monotonic() + 20
        while not mark.exists() and time.monotonic() < deadline:
            time.sleep(0.02)
        assert mark.exists()
        del iterator
