"""Two ranks with generators of their own that load the state of one of them, under torchrun: what each
draws and gets afterwards."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from numbers_data import Numbers, write_report
from torch.utils.data import DistributedSampler, RandomSampler, Sampler

from fastload import FastLoader

BEFORE = 2
"""Steps before the state is saved."""


class Strided(Sampler[int]):
    """A sampler of a user's, of each rank's part by a seed of its own."""

    def __len__(self) -> int:
        return 24

    def __iter__(self) -> Iterator[int]:
        order = torch.randperm(48, generator=torch.Generator().manual_seed(7)).tolist()
        yield from order[dist.get_rank() :: 2]


class Drawing(Strided):
    """One that draws from torch's global generator, which ranks have to seed alike."""

    def __iter__(self) -> Iterator[int]:
        yield from torch.randperm(48).tolist()[dist.get_rank() :: 2]


def samplers() -> dict[str, Any]:
    """Arguments of the loaders, by name."""
    numbers = Numbers()
    return {
        "distributed": {"sampler": DistributedSampler(numbers, seed=1)},
        "own class": {"sampler": Strided()},
        "own class that draws": {"sampler": Drawing()},
        "shard": {"shard": "auto", "shuffle": True, "seed": 1},
        "shard of a sampler": {"shard": "auto", "sampler": RandomSampler(numbers)},
    }


ALIKE = ("own class that draws", "shard of a sampler")
"""Their order follows from the global generator, so that ranks are seeded alike."""


def trained(loader: Any, steps: int | None = None) -> tuple[list[int], list[list[bool]]]:
    """Labels of so many steps, and the masks of the model's dropout in them."""
    labels: list[int] = []
    masks: list[list[bool]] = []
    for _, numbers in loader:
        labels += numbers.tolist()
        masks.append((torch.nn.functional.dropout(torch.ones(40)) > 0).tolist())
        if steps is not None and len(masks) == steps:
            break
    return labels, masks


def run(name: str, given: dict[str, Any], out: str, workers: int) -> dict[str, Any]:
    """Runs that resume from rank 0's state, or from their own, in mid-epoch or at an epoch's end.

    Of each: whether its order is that of a run that was never interrupted, its masks, and whether these are
    that run's.
    """
    rank = dist.get_rank()
    first = 100 if name in ALIKE else 100 + rank
    report: dict[str, Any] = {}
    for moment, steps in (("mid-epoch", BEFORE), ("epoch's end", None)):
        torch.manual_seed(first)
        loader = FastLoader(Numbers(), batch_size=4, num_workers=workers, **given)
        trained(loader, steps)
        state = loader.state_dict()
        path = Path(out) / "state.json"
        if rank == 0:
            path.write_text(json.dumps(state))
        rest = trained(loader) if steps is None else ([], [])
        loader.close()
        if steps is not None:
            torch.manual_seed(first)
            loader = FastLoader(Numbers(), batch_size=4, num_workers=workers, **given)
            labels, masks = trained(loader)
            rest = labels[4 * steps :], masks[steps:]
            loader.close()
        dist.barrier()
        for whose, loaded in (
            ("rank 0's", json.loads(path.read_text())),
            ("its own", json.loads(json.dumps(state))),
        ):
            torch.manual_seed(first if name in ALIKE else 900 + rank)
            loader = FastLoader(Numbers(), batch_size=4, num_workers=workers, **given)
            loader.load_state_dict(loaded)
            labels, masks = trained(loader)
            loader.close()
            report[f"{moment}, {whose}"] = {
                "order": labels == rest[0],
                "masks": masks,
                "repeated": masks == rest[1],
            }
        dist.barrier()
    return report


def main(out: str) -> None:
    dist.init_process_group("gloo", timeout=timedelta(seconds=60))
    report = {
        f"{name}, {workers} workers": run(name, given, out, workers)
        for workers in (0, 1)
        for name, given in samplers().items()
    }
    write_report(out, dist.get_rank(), report)
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main(*sys.argv[1:])
