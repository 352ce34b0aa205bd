"""What becomes of a batch once the program has it: it stays right however long it is held, it is the
program's own to change."""

from __future__ import annotations

import copy
import gc
import io
import os
import pickle
import resource
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
import torch
from conformance_helpers import LOADERS, Rows, agree, caught, same
from torch.nn.utils.rnn import pack_sequence, pad_sequence
from torch.utils.data import (
    BatchSampler,
    ConcatDataset,
    DataLoader,
    Dataset,
    StackDataset,
    Subset,
    TensorDataset,
    random_split,
)

from fastload import FastLoader

pytestmark = pytest.mark.filterwarnings("ignore:This DataLoader will create")


def sample(i: int) -> Any:
    return torch.full((3, 40, 50), i, dtype=torch.float32), {
        "label": i,
        "box": np.arange(4, dtype=np.int16) + i,
    }


def reference(n: int, batch_size: int) -> list[Any]:
    return list(DataLoader(Rows(sample, n), batch_size=batch_size))


@pytest.mark.parametrize("persistent", [False, True])
def test_held_batches_stay_right(persistent: bool) -> None:
    """Sixty batches held at once over two epochs, more than any ring holds, equal those made without
    workers."""
    loader = FastLoader(Rows(sample, 121), batch_size=4, num_workers=2, persistent_workers=persistent)
    held = list(loader) + list(loader)
    same(held, reference(121, 4) * 2)


VIEWS: dict[str, Callable[[torch.Tensor], Any]] = {
    "row": lambda x: x[0],
    "slice": lambda x: x[:, 1:2, ::3],
    "array": lambda x: x.numpy(),
    "array of a view": lambda x: x[-1].numpy()[1:],
    "view of bytes": lambda x: x.view(torch.uint8),
    "detached": lambda x: x.detach(),
    "data": lambda x: x.data,
    "storage": lambda x: x.untyped_storage(),
    "dlpack": lambda x: torch.from_dlpack(x),
    "array by dlpack": lambda x: np.from_dlpack(x),
    "unbound": lambda x: x.unbind(),
    "memoryview": lambda x: memoryview(x.numpy()),
    "autograd graph": lambda x: (x * torch.ones(8, requires_grad=True)).grad_fn,
    "subclass": lambda x: x.as_subclass(torch.nn.Parameter),
    "set_": lambda x: torch.empty(0).set_(x),
    "from array": lambda x: torch.from_numpy(x.numpy()),
}


def contents(view: Any) -> bytes:
    """The bytes that a view shows now."""
    if isinstance(view, torch.UntypedStorage):
        return bytes(view)
    if isinstance(view, tuple):
        return b"".join(map(contents, view))
    if isinstance(view, torch.Tensor):
        return view.detach().numpy().tobytes()
    if hasattr(view, "_saved_self"):
        return contents(view._saved_self)
    return view.tobytes()  # type: ignore[no-any-return]


@pytest.mark.parametrize("name", VIEWS)
def test_views_outlive_their_batch(name: str) -> None:
    """Anything that shares a batch's memory keeps it: while it lives, no later batch is written there."""
    data = Rows(lambda i: torch.full((3, 8, 8), i, dtype=torch.float32), 64)
    loader = FastLoader(data, batch_size=2, num_workers=2, persistent_workers=True)
    views, before = [], []
    for _ in range(2):
        for batch in loader:
            views.append(VIEWS[name](batch))
            before.append(contents(VIEWS[name](batch)))
            del batch
    gc.collect()
    for view, expected in zip(views, before, strict=True):
        assert contents(view) == expected


def test_batches_are_writable_and_independent() -> None:
    """Changing one batch in place never shows in another, nor in the dataset, nor in the next epoch."""
    for workers in (0, 2):
        data = torch.arange(64.0).reshape(32, 2)
        loader = FastLoader(TensorDataset(data), batch_size=4, num_workers=workers)
        held: list[torch.Tensor] = []
        for epoch in range(2):
            for k, (batch,) in enumerate(loader):
                assert torch.equal(batch, torch.arange(64.0).reshape(32, 2)[4 * k : 4 * k + 4]), (
                    workers,
                    epoch,
                    k,
                )
                batch.fill_(-1 - k)
                batch.numpy()[0] = -1 - k
                held.append(batch)
        assert [h.unique().item() for h in held] == [-1 - k for k in range(8)] * 2
        assert torch.equal(data, torch.arange(64.0).reshape(32, 2))


def test_batches_of_one_loader_share_nothing_when_unbatched() -> None:
    """batch_size=None under workers: each sample is memory of its own."""
    stored = torch.zeros(4)
    held = []
    for row in FastLoader(Rows(lambda i: stored, 6), batch_size=None, num_workers=1):
        assert row.tolist() == [0] * 4
        row += 1
        held.append(row)
    assert [h.sum().item() for h in held] == [4.0] * 6


def test_what_can_be_done_with_a_batch() -> None:
    """torch.save, pickle, deepcopy, share_memory_, requires_grad_ and a queue to another process work."""
    for loader_class in LOADERS:
        loader = loader_class(Rows(lambda i: torch.arange(6.0) + i, 8), batch_size=4, num_workers=1)
        first, second = loader
        buffer = io.BytesIO()
        torch.save(first, buffer)
        assert torch.equal(torch.load(io.BytesIO(buffer.getvalue())), first)
        assert torch.equal(pickle.loads(pickle.dumps(first)), first)
        assert torch.equal(copy.deepcopy(first), first)
        first.requires_grad_().sum().backward()
        assert torch.equal(first.grad, torch.ones(4, 6))
        assert second.share_memory_().is_shared()
        queue: Any = torch.multiprocessing.get_context("fork").SimpleQueue()
        queue.put(second)
        assert torch.equal(queue.get(), second)


@pytest.mark.skipif(torch.accelerator.is_available(), reason="without an accelerator only")
@pytest.mark.parametrize("workers", [0, 2])
def test_pin_memory_without_an_accelerator(workers: int) -> None:
    """torch's warning, once for each iter(), and batches that are not pinned."""
    for device in ("", "cuda:0"):

        def run(loader_class: Any, device: str = device) -> Any:
            loader = loader_class(
                Rows(sample), batch_size=3, num_workers=workers, pin_memory=True, pin_memory_device=device
            )
            batches, warned = caught(lambda: list(loader))
            return batches, batches[0][0].is_pinned(), [w for w in warned if "pin" in w[1]]

        batches, pinned, warned = agree(run)
        assert not pinned
        assert len(warned) == 1 + bool(device)
        same(batches, reference(7, 3))


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device")
@pytest.mark.parametrize("workers", [0, 2])
def test_pin_memory_with_a_gpu(workers: int) -> None:
    """Every tensor of the batch is pinned, nested ones too, and right."""
    for loader_class in LOADERS:
        batches = list(loader_class(Rows(sample, 40), batch_size=3, num_workers=workers, pin_memory=True))
        assert all(
            b[0].is_pinned() and b[1]["label"].is_pinned() and b[1]["box"].is_pinned() for b in batches
        )
        same(batches, reference(40, 3))


def test_many_held_batches_need_few_file_descriptors() -> None:
    """Four hundred batches of two tensors held with 64 descriptors to spare: none is used for each tensor."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    used = max(int(name) for name in os.listdir("/proc/self/fd")) + 1
    resource.setrlimit(resource.RLIMIT_NOFILE, (used + 64, hard))
    try:
        held = list(
            FastLoader(
                Rows(lambda i: (torch.full((100,), i), torch.tensor(i)), 800), batch_size=2, num_workers=2
            )
        )
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    assert [int(b[1][0]) for b in held] == list(range(0, 800, 2))
    assert all(int(b[0][1, 99]) == int(b[1][1]) for b in held)


@dataclass
class Pack:
    images: torch.Tensor
    names: list[str]
    more: dict[str, Any]


def as_dataclass(batch: list[Any]) -> Pack:
    return Pack(
        torch.stack([x for x, _ in batch]),
        [str(y["label"]) for _, y in batch],
        {"boxes": [y["box"] for _, y in batch]},
    )


def as_list(batch: list[Any]) -> list[Any]:
    return batch


def growing(batch: list[Any]) -> Any:
    """Another shape, dtype and structure for each batch."""
    k = batch[0][1]["label"]
    made = torch.ones(k + 1, 2 * k + 1, dtype=[torch.float32, torch.uint8, torch.int64][k % 3])
    return [made, {"a": made, "b": None}, (made, made.sum(), "text"), None][k % 4]


def padded(batch: list[Any]) -> Any:
    return pad_sequence([torch.ones(y["label"] + 1) for _, y in batch], batch_first=True), [
        y["label"] for _, y in batch
    ]


def packed_sequence(batch: list[Any]) -> Any:
    return pack_sequence([torch.ones(9 - i) for i in range(len(batch))])


def odd_strides(batch: list[Any]) -> Any:
    x = torch.stack([x for x, _ in batch])
    return x.contiguous(memory_format=torch.channels_last), x[:, :, ::2], x.mT, x[0, 0, 0, 0], x[:0]


def twice(batch: list[Any]) -> Any:
    x = torch.stack([x for x, _ in batch])
    return x, x, x[1:], {"again": x}


def sparse(batch: list[Any]) -> Any:
    return torch.eye(len(batch)).to_sparse(), torch.eye(3).to_sparse_csr()


def grad(batch: list[Any]) -> Any:
    return torch.ones(2, requires_grad=True), torch.nn.Parameter(torch.ones(3))


def no_tensor(batch: list[Any]) -> Any:
    return {
        "n": len(batch),
        "set": {1, 2},
        "none": None,
        "range": range(3),
        "array": np.arange(3),
        "type": Pack,
        "nan": [1.5, 2**80],
    }


COLLATES = [
    as_dataclass,
    as_list,
    growing,
    padded,
    packed_sequence,
    odd_strides,
    twice,
    sparse,
    grad,
    no_tensor,
    len,
]


@pytest.mark.filterwarnings("ignore:Sparse")
@pytest.mark.parametrize("collate", COLLATES, ids=lambda f: f.__name__)
@pytest.mark.parametrize("workers", [0, 2])
def test_custom_collate(collate: Any, workers: int) -> None:
    """What collate_fn returns is what the program gets, type for type, whatever it is and however it
    changes between batches."""
    agree(
        lambda loader_class: list(
            loader_class(Rows(sample, 25), batch_size=3, num_workers=workers, collate_fn=collate)
        )
    )


@pytest.mark.parametrize("collate", [as_list, odd_strides, no_tensor], ids=lambda f: f.__name__)
def test_custom_collate_without_batching(collate: Any) -> None:
    """batch_size=None: collate_fn gets the bare sample."""

    def one(item: Any) -> Any:
        return collate([item])

    agree(
        lambda loader_class: list(
            loader_class(Rows(sample, 5), batch_size=None, num_workers=2, collate_fn=one)
        )
    )


class Bulk(Dataset[Any]):
    """__getitems__: a whole batch in one call; __getitem__ also takes lists."""

    def __init__(self, calls: bool = True) -> None:
        self.n = 10
        if calls:
            self.__getitems__ = lambda indices: [(i, len(indices)) for i in indices]

    def __len__(self) -> int:
        return self.n

    def __getitem__(self, index: Any) -> Any:
        if isinstance(index, list):
            return torch.tensor(index) * 10
        return index, -1


class Lists:
    """A sampler of lists, which batch_size=None hands to the dataset as they are."""

    def __init__(self, *lists: Any) -> None:
        self.lists = lists

    def __iter__(self) -> Iterator[Any]:
        return iter(self.lists)

    def __len__(self) -> int:
        return len(self.lists)


@pytest.mark.parametrize("workers", [0, 2])
def test_ways_to_index(workers: int) -> None:
    """__getitems__, a batch_sampler, samplers of lists, of tensors, of strings, of tuples, and empty
    batches."""
    by_name = {"b": 1, "a": 2, ("x", 1): 3}

    def check(**arguments: Any) -> None:
        agree(lambda loader_class: list(loader_class(num_workers=workers, **arguments)))

    for calls in (True, False):
        check(dataset=Bulk(calls), batch_size=3)
        check(dataset=Bulk(calls), batch_size=3, drop_last=True)
        check(dataset=Bulk(calls), batch_sampler=[[3, 1], [2], [9, 8, 7]])
        check(dataset=Bulk(calls), batch_sampler=BatchSampler(range(9), 4, True))
        check(dataset=Bulk(calls), batch_size=None, sampler=Lists([1, 2], [3], []))
        check(dataset=Bulk(calls), sampler=[4, 2, 2])
        check(dataset=Bulk(calls), batch_sampler=[[1, 2], []], collate_fn=as_list)
    check(dataset=Bulk(False), batch_sampler=[[1, 2], []])
    check(dataset=by_name, sampler=["a", "b", ("x", 1)], batch_size=2)
    check(dataset=torch.arange(5), sampler=list(torch.tensor([4, 0, 2])), batch_size=2)
    check(dataset=Rows(sample), sampler=Lists(0, 1, 4), batch_size=2)
    check(dataset=Rows(sample), batch_size=2, sampler=[1, 99_999], collate_fn=as_dataclass)
    check(dataset=[1, 2, 3], batch_size=2, sampler=[0, 7])


@pytest.mark.parametrize("workers", [0, 2])
def test_torch_datasets(workers: int) -> None:
    """Subset, ConcatDataset, StackDataset, random_split and TensorDataset, with shuffling."""
    base = TensorDataset(torch.arange(20.0).reshape(10, 2), torch.arange(10))
    wholes = [
        Subset(base, [7, 1, 5]),
        ConcatDataset([base, Subset(base, [0])]),
        StackDataset(x=base, y=Rows(lambda i: i, 10)),
        random_split(base, [6, 4], torch.Generator().manual_seed(1))[0],
        Subset(Bulk(), [3, 4, 5]),
    ]
    for whole in wholes:
        agree(
            lambda loader_class, whole=whole: list(
                loader_class(whole, batch_size=2, shuffle=True, num_workers=workers)
            )
        )


@pytest.mark.parametrize("workers", [0, 2])
@pytest.mark.parametrize(
    "arguments",
    [{}, {"shuffle": True}, {"batch_size": None}, {"drop_last": True}, {"batch_size": 10, "drop_last": True}],
)
def test_empty_and_short(workers: int, arguments: dict[str, Any]) -> None:
    """A dataset of none, and one shorter than a batch: the same batches, lengths and errors."""

    def run(loader_class: Any, n: int) -> Any:
        loader = loader_class(Rows(sample, n), num_workers=workers, **arguments)
        return len(loader), list(loader), list(loader)

    for n in (0, 1, 3):
        agree(lambda loader_class, n=n: run(loader_class, n))


def test_large_and_uneven_batches() -> None:
    """Batches of many megabytes whose sizes jump up and down between batches."""

    def jumping(batch: list[Any]) -> Any:
        k = batch[0]
        return torch.full((1 + (k * 7919) % 3_000_000,), k % 256, dtype=torch.uint8), k

    agree(lambda loader_class: list(loader_class(range(24), batch_size=1, num_workers=2, collate_fn=jumping)))
