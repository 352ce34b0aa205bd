"""Two ranks whose loaders differ, under torchrun: what each is told, at which batch, in a loop with a
collective in each step."""

from __future__ import annotations

import sys
from datetime import timedelta
from typing import Any

import numpy as np
import torch
import torch.distributed as dist
from numbers_data import write_report
from torch.utils.data import (
    BatchSampler,
    ConcatDataset,
    Dataset,
    RandomSampler,
    SequentialSampler,
    Subset,
    SubsetRandomSampler,
    TensorDataset,
    WeightedRandomSampler,
)

from fastload import BucketBatchSampler, FastLoader, Mixture, PackedDataset
from fastload import transforms as T
from fastload.errors import ArgumentError


def numbers(count: int) -> Dataset[Any]:
    return TensorDataset(torch.arange(count))


def mixture(**options: Any) -> dict[str, Any]:
    return {"dataset": mixed(**options)}


def mixed(
    weights: tuple[float, float] = (1, 2), later: float = 1, count: int = 20, samples: int = 40, seed: int = 5
) -> Mixture:
    out = Mixture(
        [(numbers(count), weights[0]), (numbers(60 - count), weights[1])],
        samples_per_epoch=samples,
        seed=seed,
    )
    out.set_weights([later, 1], epoch=3)
    return out


def subset(start: int) -> dict[str, Any]:
    return {"dataset": Subset(numbers(60), [*range(start, start + 24)])}


def batches(**options: Any) -> dict[str, Any]:
    bucketed = BucketBatchSampler(
        numbers(40), 4, **{"by": [index % 3 for index in range(40)], "edges": [1, 2], **options}
    )
    return {"batch_sampler": bucketed, "batch_size": 1}


def generator(seed: int) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def sampled(rank: int) -> dict[str, dict[str, Any]]:
    """Cases of mixtures, subsets and samplers that differ on the second rank."""
    weighted = torch.ones(40, dtype=torch.float64)
    weighted[7] += rank
    return {
        "mixture seed": mixture(seed=5 + rank),
        "mixture weights": mixture(weights=(1, 2 + rank)),
        "mixture lengths": mixture(count=20 + rank),
        "mixture or none": mixture() if rank else {},
        "subset": subset(rank),
        "subset of a part": {
            "dataset": ConcatDataset([numbers(16), Subset(numbers(60), range(rank, 24 + rank))])
        },
        "one index of many": {
            "dataset": Subset(numbers(60), [*[0] * 77_777, rank, *[0] * 77_777]),
            "batch_size": 30_000,
        },
        "one weight of many": {
            "sampler": WeightedRandomSampler(many_weights(rank), 40, generator=generator(1))
        },
        "sampler class": {
            "sampler": SequentialSampler(range(40))
            if rank
            else RandomSampler(range(40), generator=generator(1))
        },
        "sampler generator": {"sampler": RandomSampler(range(40), generator=generator(rank))},
        "global generator": {"sampler": SubsetRandomSampler(range(40)), "torch_seed": rank},
        "sampler indices": {
            "sampler": SubsetRandomSampler(range(rank, 40 + rank), generator(1)),
            "dataset": numbers(41),
        },
        "sampler weights": {"sampler": WeightedRandomSampler(weighted, 40, generator=generator(1))},
        "batch sampler generator": {
            "batch_sampler": BatchSampler(RandomSampler(range(40), generator=generator(rank)), 4, False),
            "batch_size": 1,
        },
        "bucket seed": batches(seed=rank),
        "buckets": batches(by=[(index + rank) % 3 for index in range(40)]),
    }


def many_weights(rank: int) -> torch.Tensor:
    """Weights of samples that are never drawn, but for the first 40; one of the others differs."""
    weights = torch.cat([torch.ones(40, dtype=torch.float64), torch.zeros(100_001, dtype=torch.float64)])
    weights[77_777] = rank * 1e-300
    return weights


def agreeing(rank: int) -> dict[str, dict[str, Any]]:
    """Cases that do not differ, or that may."""
    return {
        "alike, mixture": mixture(),
        "weights of an epoch to come": mixture(later=2 + rank),
        "alike, subset": subset(3),
        "alike, indices as an array": {
            "dataset": Subset(numbers(60), np.arange(24) if rank else [*range(24)])
        },
        "alike, sampler": {"sampler": RandomSampler(range(40), generator=generator(1))},
        "alike, global generator": {"sampler": RandomSampler(range(40)), "torch_seed": 8},
        "alike, batch sampler": batches(seed=4),
        "a sampler by a seed of its own, and other torch seeds": {
            "sampler": SequentialSampler(range(40)),
            "torch_seed": rank,
        },
        "each its own subset": {**subset(24 * rank), "shard": (0, 1)},
        "each its own seed": {"shard": (0, 1), "seed": rank},
    }


def cases(rank: int, packed: str) -> dict[str, dict[str, Any]]:
    """Arguments of the loaders that differ on the second rank, and of some that do not."""
    data = PackedDataset(packed, T.CenterCrop(8))
    return {
        "alike": {},
        "version": {"dataset": PackedDataset(packed, T.CenterCrop(8), version=1 + rank)},
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
        **sampled(rank),
        **agreeing(rank),
    }


def told(rank: int, given: dict[str, Any]) -> dict[str, Any]:
    """The batch before which the loop ended, and with which error."""
    given = {"dataset": numbers(40), "batch_size": 4, "seed": 3, "shard": "auto", "num_workers": 0, **given}
    epoch, state = given.pop("epoch", 0), given.pop("state", False)
    torch.manual_seed(given.pop("torch_seed", 0))
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
