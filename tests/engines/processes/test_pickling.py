"""What a Dataset holds reaches spawned workers as under torch's DataLoader: what is shared stays shared."""

from __future__ import annotations

import multiprocessing
from collections.abc import Iterator
from typing import Any

import pytest
import torch
from torch.utils.data import DataLoader, Dataset

from fastload import FastLoader

pytestmark = [pytest.mark.timeout(60), pytest.mark.filterwarnings("ignore:This DataLoader will create")]


class Shared(Dataset[Any]):
    """Notes each index in whatever it holds, by whatever of multiprocessing's kinds there is."""

    def __init__(self, context: Any) -> None:
        self.value, self.array, self.raw = (
            context.Value("i", 5),
            context.Array("d", 8),
            context.RawArray("i", 8),
        )
        self.queue, self.lock, self.event = context.Queue(), context.Lock(), context.Event()
        self.receiver, self.sender = context.Pipe(duplex=False)
        self.tensor = torch.zeros(8, dtype=torch.int64).share_memory_()
        self.parameter = torch.nn.Parameter(torch.zeros(8)).share_memory_()
        self.own = torch.arange(8)
        self.sparse, self.empty = torch.eye(8).to_sparse(), torch.empty(0)
        self.scale = lambda number: 2 * number

    def __len__(self) -> int:
        return 8

    def __getitem__(self, index: int) -> Any:
        with self.lock:
            self.value.value += 1
            self.sender.send(index)
        self.array[index] = self.raw[index] = self.tensor[index] = index + 1
        self.parameter.data[index] = index + 1
        self.queue.put(index)
        self.event.set()
        assert self.sparse.to_dense()[index, index] == 1
        assert not self.empty.numel()
        return int(self.own[index]) * 10 + self.scale(1)

    def close(self) -> None:
        self.queue.close()
        self.queue.join_thread()
        self.receiver.close()
        self.sender.close()

    def seen(self) -> list[Any]:
        """All that the workers noted."""
        noted = [sorted(call() for _ in range(8)) for call in (self.queue.get, self.receiver.recv)]
        return [self.value.value, *self.array, *self.raw, *noted, self.event.is_set(),
                self.tensor.tolist(), self.parameter.tolist()]  # fmt: skip


@pytest.fixture
def made(request: Any) -> Iterator[tuple[Any, list[Any]]]:
    data = Shared(multiprocessing.get_context(request.param))
    yield request.param, [data]
    data.close()


@pytest.mark.parametrize("made", ["fork", "spawn", "forkserver"], indirect=True)
def test_shared_things_are_shared(made: Any) -> None:
    """Values, arrays, queues, locks, events, pipes and shared tensors are the parent's own; a tensor that
    is not shared is copied, and stays where it is; lambdas travel along."""
    method, (data,) = made
    batches = list(FastLoader(data, batch_size=4, num_workers=2, multiprocessing_context=method))
    assert torch.cat(batches).tolist() == [10 * index + 2 for index in range(8)]
    ones = [index + 1 for index in range(8)]
    indices = list(range(8))
    assert data.seen() == [13, *ones, *ones, indices, indices, True, ones, ones]
    assert not data.own.is_shared()


@pytest.mark.parametrize("made", ["spawn"], indirect=True)
def test_as_under_torch(made: Any) -> None:
    """torch's DataLoader, which takes no lambda, has the parent's things noted alike."""
    method, (data,) = made
    data.scale = abs
    batches = list(DataLoader(data, batch_size=4, num_workers=2, multiprocessing_context=method))
    assert torch.cat(batches).tolist() == [10 * index + 1 for index in range(8)]
    ones = [index + 1 for index in range(8)]
    assert data.seen() == [13, *ones, *ones, list(range(8)), list(range(8)), True, ones, ones]
