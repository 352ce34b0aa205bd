"""Two ranks whose loaders differ, under torchrun: what each is told, at which batch, in a loop with a collective in each step."""

from __future__ import annotations

import sys
from datetime import timedelta
from typing import Any

import torch
import torch.distributed as dist
from numbers_data import write_report
from torch.utils.data import Dataset, TensorDataset

from fastload import FastLoader, PackedDataset
from fastload import transforms as T
from fastload.errors import ArgumentError


def numbers(count: int) -> Dataset[Any]:
    return TensorDataset(torch.arange(count))


def cases(rank: int, packed: str) -> dict[str, dict[str, Any]]:
    """Arguments of the loaders that differ on the second rank, and of some that do not."""
    data = PackedDataset(packed, T.CenterCrop(8))
    return {
        "alike": {},
        "length": {"dataset": numbers(40 + rank)},
        "packed length": {"dataset": torch.utils.data.Subset(data, range(24 + rank))},
        "alike, packed": {"dataset": data},
        "seed": {"seed": rank},
        "batch_size": {"batch_size": 2 + rank},
        "shuffle": {"shuffle": bool(rank)},
        "drop_last": {"drop_last": bool(rank)},
        "world": {"shard": (rank, 2 + rank)},
        "on purpose": {"shard": (0, 1), "dataset": numbers(40 - rank)},
        "epoch": {"epoch": rank},
        "state": {"state": True},
        "one batch": {"batch_size": 40, "seed": rank},
        "processes": {"num_workers": 1, "seed": rank},
    }


def told(rank: int, given: dict[str, Any]) -> dict[str, Any]:
    """The batch before which the loop ended, and with which error."""
    given = {"dataset": numbers(40), "batch_size": 4, "seed": 3, "shard": "auto", "num_workers": 0, **given}
    epoch, state = given.pop("epoch", 0), given.pop("state", False)
    with FastLoader(**given) as loader:
        loader.set_epoch(epoch)
        if state:
            batches = iter(loader)
            for _ in range(1 + rank):
                next(batches)
            loader.load_state_dict(loader.state_dict())
        steps = 0
        try:
            for _ in loader:
                dist.all_reduce(torch.ones(1))
                steps += 1
        except ArgumentError as error:
            return {"steps": steps, "error": str(error)}
    return {"steps": steps, "error": None}


def main(packed: str, out: str) -> None:
    dist.init_process_group("gloo", timeout=timedelta(seconds=60))
    rank, report = dist.get_rank(), {}
    for name, given in cases(rank, packed).items():
        report[name] = told(rank, given)
        dist.barrier()
    write_report(out, rank, report)
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main(*sys.argv[1:])
