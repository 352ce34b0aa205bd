"""The data section of a script that trains a segmenter, in the style of torchvision's references: presets,
samplers, loaders.

One line differs from the script: the one that makes the loader.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, NamedTuple

import torch
import torchvision_ops  # noqa: F401  (before anything imports torchvision)
from torch.utils.data import DataLoader, RandomSampler, default_collate
from torchvision import tv_tensors
from torchvision.datasets import VOCSegmentation, wrap_dataset_for_transforms_v2
from torchvision.transforms import v2

from fastload import FastLoader, PackedDataset

MEAN, STD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)
IGNORED = 255


def training_preset(base: int = 96, crop: int = 64) -> Any:
    """What is done to a sample for training."""
    padded = v2.RandomCrop(crop, pad_if_needed=True, fill={tv_tensors.Mask: IGNORED, "others": 0})
    return v2.Compose(
        [v2.ToImage(), v2.RandomResize(base // 2, 2 * base), v2.RandomHorizontalFlip(0.5), padded, *_ends()]
    )


def evaluation_preset(size: int = 64) -> Any:
    """What is done to a sample for evaluation."""
    return v2.Compose([v2.ToImage(), v2.CenterCrop(size), *_ends()])


def _ends() -> list[Any]:
    dtypes = {tv_tensors.Image: torch.float32, tv_tensors.Mask: torch.int64, "others": None}
    return [v2.ToDtype(dtypes, scale=True), v2.Normalize(MEAN, STD), v2.ToPureTensor()]


class Data(NamedTuple):
    """The dataset of a run, and its loader."""

    dataset: Any
    loader: Any


def load(
    folder: Path,
    packed: Path | None,
    transform: Any,
    *,
    batch_size: int = 4,
    workers: int = 2,
    seed: int = 0,
    engine: str = "auto",
) -> Data:
    """The dataset in VOC's layout, its sampler and its loader; without `packed` as the script had it
    before the line was changed."""
    dataset = wrap_dataset_for_transforms_v2(VOCSegmentation(folder, image_set="train", transforms=transform))
    sampler = RandomSampler(dataset, generator=torch.Generator().manual_seed(seed))
    options: dict[str, Any] = {
        "batch_size": batch_size,
        "sampler": sampler,
        "num_workers": workers,
        "collate_fn": collate_fn,
    }
    if packed is None:
        return Data(dataset, DataLoader(dataset, drop_last=True, **options))
    source = PackedDataset(packed, transform, fields=("image", "mask"))
    return Data(dataset, FastLoader(source, drop_last=True, engine=engine, seed=seed, **options))


def collate_fn(batch: Any) -> Any:
    """Images, and masks (B, H, W)."""
    images, masks = default_collate(batch)
    return images, masks.reshape(-1, *masks.shape[-2:])
