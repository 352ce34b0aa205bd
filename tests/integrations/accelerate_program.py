"""Under torchrun: Accelerate's prepare() with two gloo processes, the loader it rebuilds, and FastLoader
kept in two ways."""

from __future__ import annotations

import sys
from typing import Any

import torch
import torchvision_ops  # noqa: F401  (before anything imports torchvision)
from accelerate import Accelerator
from accelerate.utils import set_seed
from numbers_data import FORMS, Net, accumulated, dataset_of, loader_of, write_report
from torch.utils.data.distributed import DistributedSampler

import fastload

EPOCHS = 2


def own_sharding(accelerator: Accelerator, form: str, packed: str) -> Any:
    """A FastLoader that Accelerate takes as it is: it shards, and knows the device, by itself."""
    sampler = DistributedSampler(
        dataset_of(form, packed),
        num_replicas=accelerator.num_processes,
        rank=accelerator.process_index,
        shuffle=True,
        seed=1,
    )
    loader = loader_of(form, packed, sampler=sampler, seed=3, device=accelerator.device)
    loader._is_accelerate_prepared = True  # type: ignore[attr-defined]
    return accelerator.prepare(loader)


def main(packed: str, out: str) -> None:
    accelerator = Accelerator(cpu=True, gradient_accumulation_steps=2)
    report: dict[str, Any] = {}
    for form in FORMS:
        set_seed(5)
        model, optimizer = accelerator.prepare(*_model())
        loaders = {
            "rebuilt": accelerator.prepare(loader_of(form, packed, shuffle=True)),
            "window": accelerator.prepare(loader_of(form, packed, shuffle="window")),
            "kept": fastload.accelerate(accelerator, loader_of(form, packed, shuffle=True, seed=3)),
            "own": own_sharding(accelerator, form, packed),
            "shard": accelerator.prepare(
                loader_of(form, packed, shuffle=True, seed=3, shard="auto", device=accelerator.device)
            ),
        }
        for name, loader in loaders.items():
            epochs = []
            synced: list[bool] = []
            for epoch in range(EPOCHS):
                loader.set_epoch(epoch)
                seen = []
                for labels, applied in accumulated(accelerator, model, optimizer, loader):
                    synced.append(applied)
                    seen += accelerator.gather_for_metrics(labels).tolist()
                epochs.append(seen)
            made_by = type(getattr(loader, "base_dataloader", loader)).__name__
            report[f"{form} {name}"] = {
                "epochs": epochs,
                "synced": synced,
                "made_by": made_by,
                "batches": len(loader),
            }
    write_report(out, accelerator.process_index, report)
    accelerator.wait_for_everyone()
    accelerator.end_training()


def _model() -> tuple[torch.nn.Module, torch.optim.Optimizer]:
    model = Net()
    return model, torch.optim.SGD(model.parameters(), lr=0.0)


if __name__ == "__main__":
    main(*sys.argv[1:])
