"""Loops over worker processes that end early, late, or in a thread: no process, descriptor or memory is
left behind."""

from __future__ import annotations

import gc
import threading
import time
from typing import Any

import pytest
import torch
from crash_helpers import SETTLES_S, Pids, census, nothing_left
from handles import grown

from fastload import FastLoader

pytestmark = [
    pytest.mark.usefixtures("started_once"),
    pytest.mark.filterwarnings("ignore:This DataLoader will create"),
    pytest.mark.timeout(90),
]


def test_exception_of_the_dataset_leaves_nothing() -> None:
    """An exception raised in a worker ends the loop; when loader and exception are gone, so is all the
    rest."""

    def make(i: int) -> torch.Tensor:
        if i == 5:
            raise ValueError("five")
        return torch.ones(1000)

    class Raising(torch.utils.data.Dataset[torch.Tensor]):
        def __len__(self) -> int:
            return 20

        def __getitem__(self, index: int) -> torch.Tensor:
            return make(index)

    with nothing_left():
        with pytest.raises(ValueError, match="five"):
            list(FastLoader(Raising(), num_workers=2))


@pytest.mark.parametrize("persistent", [False, True])
def test_ways_out_of_a_loop(persistent: bool) -> None:
    """break, an exception in the loop, a dropped iterator, one in a reference cycle, a closed loader:
    nothing is left of any."""

    def loader() -> Any:
        return FastLoader(Pids(1000), batch_size=2, num_workers=2, persistent_workers=persistent)

    class Cycle:
        pass

    with nothing_left():
        for batch in loader():
            assert len(batch) == 2
            break
        del batch
    with nothing_left():
        with pytest.raises(ZeroDivisionError):
            for batch in loader():
                assert len(batch) // 0
        del batch
    with nothing_left():
        iterator = iter(loader())
        next(iterator)
        del iterator
    with nothing_left():
        cycle = Cycle()
        cycle.iterator = iter(loader())  # type: ignore[attr-defined]
        cycle.self = cycle  # type: ignore[attr-defined]
        next(cycle.iterator)  # type: ignore[attr-defined]
        del cycle
    with nothing_left(), loader() as used:
        next(iter(used))
    with nothing_left():
        kept = [pair[0] for pair in zip(loader(), range(30), strict=False)]
        assert len(kept) == 30
        del kept


@pytest.mark.long
def test_epochs_leave_nothing() -> None:
    """The thirtieth epoch holds what the third did, with new workers each time and with persistent ones."""
    for persistent in (False, True):
        with nothing_left():
            loader = FastLoader(range(8), batch_size=2, num_workers=2, persistent_workers=persistent)
            for _ in range(3):
                list(loader)
            third = census()
            for _ in range(27):
                list(loader)
            assert not grown(census, third, SETTLES_S)
            del loader


def test_held_batches_give_their_memory_back() -> None:
    """Memory of batches held after their loader is gone goes when they go."""

    class Big(Pids):
        def __getitem__(self, index: int) -> Any:
            return torch.full((1 << 20,), index % 256, dtype=torch.uint8)

    with nothing_left():
        before = census()["mappings"]  # what other tests of this process hold for longer
        held = list(FastLoader(Big(40), batch_size=2, num_workers=2))
        assert [int(batch[1, -1]) for batch in held] == list(range(1, 40, 2))
        assert census()["children"] == 0
        held = held[3:4]
        gc.collect()
        assert census()["mappings"] <= before + 2
        assert held[0].numpy()[:, ::4096].tolist() == [[6] * 256, [7] * 256]
        del held


def test_iterating_in_a_thread() -> None:
    """A loader runs in a thread that is not the main one; one begun in a thread that has ended goes on in
    another."""
    with nothing_left():
        iterator = _begun_in_a_thread()
        time.sleep(0.3)  # a worker bound to the thread that started it would be gone by now
        assert len(list(iterator)) == 19
        del iterator


def _begun_in_a_thread() -> Any:
    box: list[Any] = []
    loader = FastLoader(Pids(40), batch_size=2, num_workers=2)

    def inside() -> None:
        box.append(len(list(loader)))
        box.append(iter(loader))
        next(box[1])

    thread = threading.Thread(target=inside)
    thread.start()
    thread.join(60)
    assert box[0] == 20
    return box[1]
