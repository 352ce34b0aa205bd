"""fork, spawn and forkserver give what fork gives; under the latter two what torch cannot pickle travels
all the same."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
import torch
from conformance_helpers import Failure, attempt, same, seeded
from test_seeding import draws
from torch.utils.data import DataLoader, Dataset, IterableDataset, get_worker_info

from fastload import FastLoader

pytestmark = pytest.mark.filterwarnings("ignore:This DataLoader will create")


class Drawn(Dataset[Any]):
    """Module-level: torch can send it."""

    def __len__(self) -> int:
        return 11

    def __getitem__(self, index: int) -> Any:
        if index == 7:
            raise ValueError("seven")
        return {"drawn": draws(index), "image": torch.full((2, 3), index, dtype=torch.uint8)}


def run(loader_class: Any, method: str, persistent: bool) -> Any:
    seeded(21)
    loader = loader_class(
        Drawn(),
        batch_size=2,
        shuffle=True,
        num_workers=2,
        persistent_workers=persistent,
        multiprocessing_context=method,
    )
    seen = []
    for _ in range(2):
        iterator = iter(loader)
        seen.append([attempt(lambda iterator=iterator: next(iterator)) for _ in range(6)])
    return seen


@pytest.mark.parametrize("method", ["fork", "spawn", "forkserver"])
@pytest.mark.parametrize("persistent", [False, True])
def test_same_batches_under_every_start_method(method: str, persistent: bool) -> None:
    """Two epochs of shuffled random draws, one batch of which fails: what torch gives under fork."""
    if method == "forkserver" and not persistent:
        pytest.skip("as spawn, and each start takes seconds")
    expected, got = run(DataLoader, "fork", persistent), run(FastLoader, method, persistent)
    assert sum(isinstance(item, Failure) for epoch in expected for item in epoch) == 2
    same(got, expected)


def test_lambdas_and_local_classes_under_spawn() -> None:
    """A class and functions made inside a function, as in a notebook, reach spawned workers: dataset,
    collate_fn, worker_init_fn."""
    offset = torch.tensor(100)

    class Local(IterableDataset[int]):
        start = 0

        def __iter__(self) -> Iterator[int]:
            info = get_worker_info()
            assert info is not None
            yield from range(info.id + self.start, 8, info.num_workers)

    def init(worker: int) -> None:
        info = get_worker_info()
        assert info is not None
        info.dataset.start = 2

    loader = FastLoader(
        Local(),
        batch_size=2,
        num_workers=2,
        multiprocessing_context="spawn",
        collate_fn=lambda batch: (torch.tensor(batch) + offset, {"n": len(batch)}),
        worker_init_fn=init,
    )
    got = [(x.tolist(), y) for x, y in loader]
    assert got == [([102, 104], {"n": 2}), ([103, 105], {"n": 2}), ([106], {"n": 1}), ([107], {"n": 1})]


def test_default_start_method_is_the_programs() -> None:
    """multiprocessing_context=None follows torch.multiprocessing's default."""
    loader = FastLoader([1, 2], num_workers=1)
    assert loader.multiprocessing_context is None
    assert [x.item() for x in loader] == [1, 2]
