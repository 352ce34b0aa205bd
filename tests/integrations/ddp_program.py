"""Under torchrun: trains with DistributedDataParallel over gloo from DistributedSampler, FastLoader
against DataLoader."""

from __future__ import annotations

import sys
from typing import Any

import torch
import torch.distributed as dist
from numbers_data import FORMS, Net, dataset_of, loader_of, write_report
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader
from torch.utils.data.distributed import DistributedSampler

EPOCHS = 3


def main(packed: str, out: str) -> None:
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    report: dict[str, Any] = {}
    for form in FORMS:
        torch.manual_seed(1)
        model = DistributedDataParallel(Net())
        sampler = DistributedSampler(dataset_of(form, packed), seed=11)
        batches = DistributedSampler(dataset_of(form, packed), seed=11)
        loader = loader_of(form, packed, sampler=sampler, persistent_workers=True)
        grouped = loader_of(
            form,
            packed,
            batch_size=1,
            batch_sampler=torch.utils.data.BatchSampler(batches, 5, False),
            persistent_workers=True,
        )
        reference = DataLoader(
            dataset_of(form, packed),
            batch_size=5,
            sampler=DistributedSampler(dataset_of(form, packed), seed=11),
        )
        seen: dict[str, list[list[list[int]]]] = {"loader": [], "batch_sampler": [], "torch": []}
        for epoch in range(EPOCHS):
            sampler.set_epoch(epoch)
            batches.set_epoch(epoch)
            reference.sampler.set_epoch(epoch)  # type: ignore[attr-defined]
            seen["loader"].append([])
            for images, labels in loader:
                model(images).sum().backward()
                seen["loader"][-1].append(labels.tolist())
            seen["batch_sampler"].append([labels.tolist() for _, labels in grouped])
            seen["torch"].append([labels.tolist() for _, labels in reference])
        report[form] = {
            **seen,
            "gradient": [float(p.grad.sum()) for p in model.parameters() if p.grad is not None],
        }
        loader.close()
        grouped.close()
    write_report(out, rank, report)
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main(*sys.argv[1:])
