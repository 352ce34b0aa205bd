"""The data section of a script that trains a classifier, in the style of torchvision's references; written
for DataLoader.

One line differs from the script: the import of DataLoader.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, NamedTuple

import torch
import torchvision_ops  # noqa: F401  (before anything imports torchvision)
from torch.utils.data import DistributedSampler, RandomSampler, SequentialSampler, default_collate
from torchvision import transforms
from torchvision.datasets import ImageFolder
from torchvision.transforms import v2

from fastload import FastLoader as DataLoader

MEAN, STD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)


def training_preset(version: int, crop: int = 32, augment: Any = None) -> Any:
    """What is done to an image for training, in version 1 or 2 of torchvision's transforms."""
    kit: Any = v2 if version == 2 else transforms
    steps = [
        kit.RandomResizedCrop(crop, interpolation=v2.InterpolationMode.BILINEAR, antialias=True),
        kit.RandomHorizontalFlip(0.5),
    ]
    steps += [augment] if augment else []
    return kit.Compose([*steps, *_floats(version)])


def evaluation_preset(version: int, resize: int = 40, crop: int = 32) -> Any:
    """What is done to an image for evaluation."""
    kit: Any = v2 if version == 2 else transforms
    resized = kit.Resize(resize, interpolation=v2.InterpolationMode.BILINEAR, antialias=True)
    return kit.Compose([resized, kit.CenterCrop(crop), *_floats(version)])


def _floats(version: int) -> list[Any]:
    if version == 2:
        return [
            v2.PILToTensor(),
            v2.ToDtype(torch.float, scale=True),
            v2.Normalize(MEAN, STD),
            v2.ToPureTensor(),
        ]
    return [
        transforms.PILToTensor(),
        transforms.ConvertImageDtype(torch.float),
        transforms.Normalize(MEAN, STD),
    ]


class Data(NamedTuple):
    """The loaders of a run, and the sampler of the training one."""

    train: Any
    val: Any
    sampler: Any


def load(
    folder: Path,
    *,
    version: int = 2,
    ranks: int = 1,
    rank: int = 0,
    workers: int = 2,
    augment: Any = None,
    mixup: bool = False,
) -> Data:
    """Datasets, samplers and loaders of one rank."""
    train_data = ImageFolder(str(folder), training_preset(version, augment=augment))
    val_data = ImageFolder(str(folder), evaluation_preset(version))
    samplers: tuple[Any, Any] = RandomSampler(train_data), SequentialSampler(val_data)
    if ranks > 1:
        samplers = (
            DistributedSampler(train_data, ranks, rank),
            DistributedSampler(val_data, ranks, rank, shuffle=False),
        )
    collate = default_collate
    if mixup:
        mix = v2.RandomChoice(
            [
                v2.MixUp(alpha=0.2, num_classes=len(train_data.classes)),
                v2.CutMix(num_classes=len(train_data.classes)),
            ]
        )

        def collate(batch: Any) -> Any:
            return mix(*default_collate(batch))

    train = DataLoader(
        train_data,
        batch_size=10,
        sampler=samplers[0],
        num_workers=workers,
        pin_memory=True,
        collate_fn=collate,
        drop_last=True,
    )
    val = DataLoader(val_data, batch_size=10, sampler=samplers[1], num_workers=workers, pin_memory=True)
    return Data(train, val, samplers[0])
