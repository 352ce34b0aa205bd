"""One of several ranks over gloo, on a dataset in a bucket: epochs, a state in mid-epoch, or a rank that
is killed."""

from __future__ import annotations

import json
import os
import signal
import sys
from datetime import timedelta
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from numbers_data import write_report

from fastload import FastLoader, PackedDataset
from fastload import transforms as T

EPOCHS, BEFORE = 2, 1
"""Whole epochs, and steps of the next one before the state is saved."""
TIMEOUT = 60
"""Seconds; the group's, which ranks that start late on a busy machine need as well."""


def loader_of(url: str, options: dict[str, Any], out: str, **arguments: Any) -> FastLoader[Any]:
    data = PackedDataset(
        url, [T.RandomResizedCrop(8), T.ToFloat()], cache=Path(out).parent / "cache", storage_options=options
    )
    return FastLoader(data, **{"batch_size": 5, "num_workers": 1, "seed": 4, "shard": "auto", **arguments})


def labels(batches: Any) -> list[int]:
    return [label for _, numbers in batches for label in numbers.tolist()]


def epochs(loader: FastLoader[Any], evaluation: FastLoader[Any], state: str) -> dict[str, Any]:
    """Whole epochs, the evaluation, and the beginning of an epoch; or the rest of one, where there is a
    state."""
    resumes = Path(state).exists()
    dist.barrier()
    if resumes:
        loader.load_state_dict(json.loads(Path(state).read_text()))
        return {"rest": labels(loader), "next": labels(loader)}
    report: dict[str, Any] = {
        "epochs": [labels(loader) for _ in range(EPOCHS)],
        "evaluated": labels(evaluation),
    }
    loader.set_epoch(0)
    report["again"] = labels(loader)
    loader.set_epoch(EPOCHS)
    batches = iter(loader)
    report["begun"] = labels(next(batches) for _ in range(BEFORE))
    report["state"] = loader.state_dict()
    if dist.get_rank() == dist.get_world_size() - 1:
        Path(state).write_text(json.dumps(report["state"]))
    return report


def killed(loader: FastLoader[Any]) -> dict[str, Any]:
    """A loop with a collective in each step, in which the last rank is killed."""
    try:
        for step, (images, _) in enumerate(loader):
            if step == 1 and dist.get_rank() == dist.get_world_size() - 1:
                os.kill(os.getpid(), signal.SIGKILL)
            dist.all_reduce(torch.ones(1) * images.mean())
    except RuntimeError as error:
        return {"error": str(error)}
    return {"error": None}


def main(url: str, options: str, out: str, state: str) -> None:
    dist.init_process_group("gloo", timeout=timedelta(seconds=TIMEOUT))
    rank = dist.get_rank()
    loader = loader_of(url, json.loads(options), out, shuffle=True)
    if state == "killed":
        report = killed(loader)
        write_report(out, rank, report)
        os._exit(1 if report["error"] else 0)
    with loader, loader_of(url, json.loads(options), out, even=False) as evaluation:
        write_report(out, rank, epochs(loader, evaluation, state))
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main(*sys.argv[1:])
