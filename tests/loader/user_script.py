"""A training script as users write it, for type checkers: README's lines and what else stands in their
scripts."""

from __future__ import annotations

import sys
from pathlib import Path

import torch
from torch.utils.data import DataLoader, Dataset, Subset

from fastload import FastLoader, HealthMonitor, PackedDataset, append, attach, pack
from fastload import transforms as T


class Pairs(Dataset[tuple[torch.Tensor, int]]):
    def __len__(self) -> int:
        return 4

    def __getitem__(self, index: int) -> tuple[torch.Tensor, int]:
        return torch.zeros(3), index


def show(*values: object) -> None:
    sys.stdout.write(f"{values}\n")


def step(images: torch.Tensor, labels: torch.Tensor) -> None:
    show(images.shape, labels.sum().item())


def train(path: Path) -> None:
    with FastLoader(
        "train.fl", batch_size=64, shuffle=True, transform=[T.RandomResizedCrop(224), T.ToFloat()], seed=0
    ) as loader:
        for epoch in range(2):
            loader.set_epoch(epoch)
            for images, labels in loader:
                step(images, labels)
        show(loader.health.report(), loader.skipped + loader.replaced, loader.explain(all=True))
    packed = PackedDataset(path, transform=T.CenterCrop(224))
    with FastLoader(packed, num_workers=4, device="cuda", on_error="skip") as over_packed:
        images, labels = next(iter(over_packed))
        step(images, labels)
    with FastLoader(Subset(packed, [0, 1]), batch_size=2) as over_part:
        show(len(over_part), over_part.epoch)
    with FastLoader(Pairs(), batch_size=2, num_workers=2, seed_by="sample") as pairs:
        for images, labels in pairs:
            step(images, labels)
        state = pairs.state_dict()
        pairs.load_state_dict(state)
    with FastLoader([1, 2, 3]) as numbers:
        show(list(numbers))
    plain: DataLoader[tuple[torch.Tensor, int]] = FastLoader(Pairs())
    for batch in HealthMonitor(plain):
        show(batch)


def make(path: Path) -> None:
    """Options of a pack, right and wrong: a checker that accepts a wrong one says that its `ignore` is
    unused."""
    summary = pack(
        path,
        "train.fl",
        encode="keep",
        box_format="xywh",
        workers=4,
        storage_options={"region": "x"},
        ray=True,
    )
    show(summary.samples, attach(source=path, out="index.fl", base="..", check="structure").samples)
    show(append("train.fl", path, quality=None, max_side=512).version)
    pack(path, "train.fl", qualty=90)  # type: ignore[call-arg]
    pack(path, "train.fl", encode="fast")  # type: ignore[arg-type]
    pack(path, "train.fl", quality=None)  # type: ignore[arg-type]
    attach(path, "index.fl", encode="keep")  # type: ignore[call-arg]
