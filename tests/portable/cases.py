"""Loaders whose batches are the same with the native module and without it.

`python cases.py OUT WORKERS METHOD [CASE ...]` writes the results of these cases, or of all, as a file of
torch.save. Each case is a function of the number of workers, which METHOD starts; it returns tensors and
plain values. A case that needs workers returns None without them.
"""

from __future__ import annotations

import gc
import json
import multiprocessing
import random
import re
import sys
import threading
import warnings
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import torch
from torch.utils.data import (
    DataLoader,
    Dataset,
    IterableDataset,
    Subset,
    WeightedRandomSampler,
    get_worker_info,
)

import fastload
from fastload import FastLoader
from fastload.augment import AugmentBatch, RandomHorizontalFlip
from fastload.transforms import Normalize, ToFloat

Case = Callable[[int], Any]


class Numbers(Dataset[tuple[torch.Tensor, int]]):
    """Samples of random numbers by all three generators, and the index."""

    def __init__(self, count: int = 23) -> None:
        self.count = count

    def __len__(self) -> int:
        return self.count

    def __getitem__(self, index: int) -> tuple[torch.Tensor, int]:
        drawn = [float(torch.rand(())), random.random(), float(np.random.rand())]
        return torch.tensor([*drawn, float(index)], dtype=torch.float64), index


class Objects(Dataset[dict[str, torch.Tensor]]):
    """Samples with boxes and images of their own size."""

    def __len__(self) -> int:
        return 11

    def __getitem__(self, index: int) -> dict[str, torch.Tensor]:
        return {
            "image": torch.full((3, 4 + index % 3, 5), index, dtype=torch.uint8),
            "boxes": torch.arange(4.0 * (index % 4)).reshape(-1, 4),
            "label": torch.tensor(index),
        }


class Pictures(Dataset[tuple[torch.Tensor, int]]):
    """Images of one size."""

    def __len__(self) -> int:
        return 10

    def __getitem__(self, index: int) -> tuple[torch.Tensor, int]:
        made = torch.Generator().manual_seed(index)
        return torch.randint(0, 256, (3, 6, 7), dtype=torch.uint8, generator=made), index


class Holes(Numbers):
    """Some samples fail."""

    def __getitem__(self, index: int) -> tuple[torch.Tensor, int]:
        if index % 5 == 2:
            raise OSError(f"no file {index}")
        return super().__getitem__(index)


class Together(Numbers):
    """Samples are made by batch."""

    def __getitems__(self, indices: list[int]) -> list[tuple[torch.Tensor, int]]:
        return [self[index] for index in indices]


class Stream(IterableDataset[int]):
    """Each worker has its part of the numbers."""

    def __iter__(self) -> Iterator[int]:
        info = get_worker_info()
        first, step = (0, 1) if info is None else (info.id, info.num_workers)
        return iter(range(first, 30, step))


class Counting(Dataset[int]):
    """A dataset with a state of its own."""

    def __init__(self) -> None:
        self.made = 0

    def __len__(self) -> int:
        return 8

    def __getitem__(self, index: int) -> int:
        self.made += 1
        return index

    def state_dict(self) -> dict[str, int]:
        return {"made": self.made}

    def load_state_dict(self, state: dict[str, int]) -> None:
        self.made = state["made"]


def loader(dataset: Any, workers: int, **arguments: Any) -> FastLoader[Any]:
    """A loader whose dataset's own code makes the samples, by so many spawned workers."""
    return FastLoader(dataset, num_workers=workers, engine="python", **arguments)


def seeded(dataset: Any, workers: int, **arguments: Any) -> FastLoader[Any]:
    """A loader of batches of 4 in random order, whose samples do not depend on the workers."""
    given = {"batch_size": 4, "shuffle": True, "seed": 3, "seed_by": "sample", **arguments}
    return loader(dataset, workers, **given)


def two_epochs(of: FastLoader[Any]) -> list[Any]:
    """The batches of two epochs, the number of the next one, and the counts of on_error."""
    length = len(of) if hasattr(of.dataset, "__len__") else None
    return [list(of), list(of), of.epoch, length, of.replaced, of.skipped]


def resumed(made: Callable[[], FastLoader[Any]], before: int) -> list[Any]:
    """The rest of an epoch after some batches, by a state as JSON in another loader; and the epoch after.
    Both are those of a loader that was never left."""
    torch.manual_seed(17)
    whole = made()
    expected = list(whole), list(whole)
    torch.manual_seed(17)
    first = made()
    batches = iter(first)
    for _ in range(before):
        next(batches)
    state = json.dumps(first.state_dict())
    batches = None  # its workers end
    second = made()
    second.load_state_dict(json.loads(state))
    found = list(second), list(second)
    assert same(found[0], expected[0][before:])
    assert same(found[1], expected[1])
    return [*found, json.loads(state)]


def same(a: Any, b: Any) -> bool:
    """Returns True if two results are equal, tensors by dtype and element."""
    if isinstance(a, torch.Tensor):
        return isinstance(b, torch.Tensor) and a.dtype == b.dtype and torch.equal(a, b)
    if isinstance(a, list | tuple):
        return type(a) is type(b) and len(a) == len(b) and all(map(same, a, b))
    if isinstance(a, dict):
        return isinstance(b, dict) and a.keys() == b.keys() and all(same(a[key], b[key]) for key in a)
    return bool(a == b)


def shown(of: FastLoader[Any]) -> list[Any]:
    """Attributes that DataLoader has, counts of the health report, and keys of stats()."""
    list(of)
    figures = of.health.figures()
    attributes = sorted(name for name in dir(DataLoader) + list(vars(of)) if not name.startswith("_"))
    plain = {name: getattr(of, name) for name in ("batch_size", "num_workers", "drop_last", "pin_memory")}
    plain |= {name: getattr(of, name) for name in ("timeout", "prefetch_factor", "persistent_workers")}
    return [isinstance(of, DataLoader), attributes, plain, figures.steps, figures.samples, sorted(of.stats())]


def error_of(call: Callable[[], Any]) -> tuple[str, str]:
    """The error that a call raises: its class and its first line, without the number of a worker, since any
    of them may make a sample of a loader with seed_by="sample"."""
    try:
        call()
    except Exception as error:
        return type(error).__name__, re.sub(r"worker process \d+", "worker", str(error).partition("\n")[0])
    return "", ""


def own_seed(worker: int) -> None:
    """A worker_init_fn that draws."""
    random.seed(worker)
    info = get_worker_info()
    assert info is not None
    assert isinstance(info.dataset, Numbers)


CASES: dict[str, Case] = {
    "by sample": lambda n: two_epochs(seeded(Numbers(), n)),
    "by sample, without a seed": lambda n: two_epochs(seeded(Numbers(), n, seed=None)),
    "in order": lambda n: two_epochs(seeded(Numbers(), n, shuffle=False, drop_last=True)),
    "as torch seeds workers": lambda n: two_epochs(loader(Numbers(), n, batch_size=5, shuffle=True)),
    "order by a seed": lambda n: two_epochs(loader(Numbers(), n, batch_size=5, shuffle=True, seed=9)),
    "a generator": lambda n: two_epochs(
        loader(Numbers(), n, shuffle=True, generator=torch.Generator().manual_seed(4))
    ),
    "huge": lambda n: two_epochs(seeded(Numbers(), n, shuffle="huge")),
    "window": lambda n: two_epochs(seeded(Numbers(), n, shuffle="window")),
    "buckets": lambda n: two_epochs(
        loader(
            Numbers(),
            n,
            batch_sampler=fastload.BucketBatchSampler(Numbers(), 4, by=[i % 7 for i in range(23)], seed=1),
            seed_by="sample",
            seed=1,
        )
    ),
    "bins of tokens": lambda n: two_epochs(
        loader(
            Numbers(),
            n,
            batch_sampler=fastload.TokenBatches([i % 7 for i in range(23)], 11, bins=2, seed=1),
            seed_by="sample",
            seed=1,
        )
    ),
    "keyed": lambda n: two_epochs(
        seeded(Numbers(), n, shuffle=None, sampler=fastload.KeyedSampler(23, seed=2))
    ),
    "with replacement": lambda n: two_epochs(
        seeded(Numbers(), n, shuffle=None, sampler=WeightedRandomSampler(range(1, 24), 40))
    ),
    "no batches": lambda n: two_epochs(seeded(Numbers(), n, batch_size=None)),
    "a subset": lambda n: two_epochs(seeded(Subset(Numbers(), list(range(3, 17))), n)),
    "several at once": lambda n: two_epochs(seeded(Together(), n, seed_by=None, shuffle=False)),
    "ranks": lambda n: [
        two_epochs(seeded(Numbers(), n, shard=(rank, 3), even=even))
        for rank in (0, 2)
        for even in (True, False)
    ],
    "set_epoch": lambda n: _from_epoch(seeded(Numbers(), n), 5),
    "a list": lambda n: two_epochs(seeded(Objects(), n, collate="list")),
    "padded": lambda n: _plain(two_epochs(seeded(Objects(), n, collate="padded", pad_to=8))),
    "flat": lambda n: _plain(two_epochs(seeded(Objects(), n, collate="flat", pad_to=1))),
    "a collate_fn": lambda n: two_epochs(
        seeded(Numbers(), n, collate_fn=lambda samples: [s[1] for s in samples])
    ),
    "batch_transform": lambda n: two_epochs(
        seeded(
            Pictures(),
            n,
            batch_transform=[AugmentBatch([RandomHorizontalFlip()]), Normalize((0.5,) * 3, (0.2,) * 3)],
        )
    ),
    "on the device": lambda n: two_epochs(seeded(Pictures(), n, device="cpu", batch_transform=ToFloat())),
    "replace": lambda n: two_epochs(seeded(Holes(), n, on_error="replace")),
    "skip": lambda n: two_epochs(seeded(Holes(), n, on_error="skip", batch_size=2)),
    "a stream": lambda n: two_epochs(loader(Stream(), n, batch_size=4)),
    "worker_init_fn": lambda n: (
        two_epochs(loader(Numbers(), n, batch_size=4, worker_init_fn=own_seed)) if n else None
    ),
    "persistent": lambda n: two_epochs(seeded(Numbers(), n, persistent_workers=True)) if n else None,
    "left and begun again": lambda n: _left(seeded(Numbers(), n, persistent_workers=bool(n))),
    "resume": lambda n: [resumed(lambda: seeded(Numbers(), n), before) for before in (0, 2, 6)],
    "resume, as torch draws": lambda n: resumed(lambda: loader(Pictures(), n, batch_size=2, shuffle=True), 3),
    "resume of ranks": lambda n: resumed(lambda: seeded(Numbers(), n, shard=(1, 2)), 1),
    "resume of a stream": lambda n: resumed(lambda: loader(Stream(), n, batch_size=4), 3),
    "resume, persistent": lambda n: (
        resumed(lambda: seeded(Numbers(), n, persistent_workers=True), 2) if n else None
    ),
    "resume of a stateful dataset": lambda n: (
        resumed(lambda: loader(Counting(), n, batch_size=2), 2) if not n else None
    ),
    "attributes": lambda n: shown(seeded(Numbers(), n)),
    "errors": lambda n: [
        error_of(lambda: list(seeded(Holes(), n))),
        error_of(lambda: list(loader(Objects(), n, batch_size=4))),
        error_of(lambda: loader(Numbers(), n, seed=-1)),
        error_of(lambda: loader(Numbers(), n, seed_by="batch")),
        error_of(lambda: loader(Numbers(), n, on_error="ignore")),
        error_of(lambda: loader(Numbers(), n, collate="heap")),
        error_of(lambda: loader(Numbers(), n, pad_to=3)),
        error_of(lambda: loader(Numbers(), n, shuffle="all")),
        error_of(lambda: loader(Numbers(), n, shuffle=True, sampler=range(3))),
        error_of(lambda: loader(Numbers(), n, dtype=torch.float32)),
        error_of(lambda: loader(Numbers(), n, lazy="slow")),
        error_of(lambda: loader(Numbers(), n, shard=(3, 2))),
        error_of(lambda: loader(Numbers(), n, transform=[])),
        error_of(lambda: loader(Stream(), n, seed_by="sample")),
        error_of(lambda: loader(7, n)),
        error_of(lambda: loader(Numbers(), n, batches=3)),
        error_of(lambda: loader(Numbers(), -1)),
        error_of(lambda: loader(Numbers(), 0, timeout=3)),
        error_of(lambda: FastLoader(Numbers(), engine="fast")),
        error_of(lambda: loader(Numbers(), n).load_state_dict({"version": 7})),
        error_of(lambda: list(seeded(Holes(), n, on_error="skip", sampler=[2, 7], shuffle=None))),
    ],
}


def _from_epoch(of: FastLoader[Any], epoch: int) -> list[Any]:
    of.set_epoch(epoch)
    return two_epochs(of)


def _left(of: FastLoader[Any]) -> list[Any]:
    seen = [next(iter(of)), next(iter(of))]
    return [*seen, *two_epochs(of)]


def _plain(value: Any) -> Any:
    """A value whose containers are lists and dicts."""
    if isinstance(value, dict):
        return {key: _plain(each) for key, each in value.items()}
    return [_plain(each) for each in value] if isinstance(value, list | tuple) else value


BY_WORKERS = frozenset(
    {
        "as torch seeds workers",
        "order by a seed",
        "a generator",
        "several at once",
        "a stream",
        "worker_init_fn",
        "persistent",
        "attributes",
        "errors",
    }
)
"""Cases whose results depend on the number of workers, beside those of states."""


def main(out: str, workers: int, names: list[str]) -> None:
    """Writes the results of cases to a file."""
    results = {}
    for name in names or CASES:
        torch.manual_seed(17)
        random.seed(17)
        np.random.seed(17)
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", "the dataset has no state_dict")
            results[name] = CASES[name](workers)
    torch.save(results, out)
    # A thread that feeds a queue of an iterator that was left is a daemon: were it in torch's C++ code as the
    # interpreter ends, it would abort the process.
    gc.collect()
    for thread in threading.enumerate():
        if thread is not threading.main_thread():
            thread.join(10)


if __name__ == "__main__":
    multiprocessing.set_start_method(sys.argv[3])
    if sys.argv[3] == "forkserver":
        multiprocessing.set_forkserver_preload(["fastload.loader"])
    main(sys.argv[1], int(sys.argv[2]), sys.argv[4:])
