"""The data section of a script that trains a detector, in the style of torchvision's references: presets,
samplers, groups of like shapes.

One line differs from the script: the one that makes the loader.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import torch
import torchvision_ops  # noqa: F401  (before anything imports torchvision)
from torch.utils.data import BatchSampler, DataLoader, RandomSampler, Sampler
from torchvision import tv_tensors
from torchvision.datasets import CocoDetection, wrap_dataset_for_transforms_v2
from torchvision.transforms import v2

from fastload import FastLoader, PackedDataset

KEYS = {"boxes": "boxes", "labels": "category_id", "masks": "instances"}
"""What the detector wants of a sample, and the packed fields: torchvision's detectors count classes from
1, as COCO's category ids."""


def training_preset(augmentation: str, size: int = 128) -> Any:
    """What is done to a sample for training."""
    fill: dict[Any, Any] = defaultdict(lambda: (123.0, 117.0, 104.0), {tv_tensors.Mask: 0})
    steps: dict[str, list[Any]] = {
        "hflip": [v2.RandomHorizontalFlip(0.5)],
        "lsj": [
            v2.ScaleJitter((size, size)),
            v2.RandomCrop(size, pad_if_needed=True, fill=fill),
            v2.RandomHorizontalFlip(0.5),
        ],
        "multiscale": [v2.RandomShortestSize([96, 112, 128], max_size=200), v2.RandomHorizontalFlip(0.5)],
        "ssd": [
            v2.RandomPhotometricDistort(),
            v2.RandomZoomOut(fill=fill),
            v2.RandomIoUCrop(),
            v2.RandomHorizontalFlip(0.5),
        ],
        "ssdlite": [v2.RandomIoUCrop(), v2.RandomHorizontalFlip(0.5)],
    }
    return v2.Compose(
        [v2.ToImage(), *steps[augmentation], *_ends(), v2.SanitizeBoundingBoxes(), v2.ToPureTensor()]
    )


def evaluation_preset() -> Any:
    """What is done to a sample for evaluation."""
    return v2.Compose([v2.ToImage(), *_ends(), v2.ToPureTensor()])


def _ends() -> list[Any]:
    return [
        v2.ToDtype(torch.float32, scale=True),
        v2.ConvertBoundingBoxFormat(tv_tensors.BoundingBoxFormat.XYXY),
    ]


def collate_fn(batch: Any) -> Any:
    """Lists of images and of targets, as detectors take them."""
    return tuple(zip(*batch, strict=True))


class GroupedBatchSampler(BatchSampler):
    """Batches of samples of one group, in the sampler's order."""

    def __init__(self, sampler: Sampler[int], groups: list[int], batch_size: int) -> None:
        super().__init__(sampler, batch_size, drop_last=True)
        self.groups = groups

    def __iter__(self) -> Iterator[list[int]]:
        filling: dict[int, list[int]] = defaultdict(list)
        for index in self.sampler:
            batch = filling[self.groups[index]]
            batch.append(index)
            if len(batch) == self.batch_size:
                yield filling.pop(self.groups[index])


def aspect_ratio_groups(dataset: Any, k: int = 3) -> list[int]:
    """The group of each sample by its image's width / height."""
    bins = sorted(2.0 ** (step / k) for step in range(-k, k + 1))
    entries = [dataset.coco.imgs[number] for number in dataset.ids]
    return [bisect_right(bins, entry["width"] / entry["height"]) for entry in entries]


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
    """The dataset in COCO's layout, its samplers and its loader; without `packed` as the script had it
    before the line was changed."""
    annotations = folder / "annotations" / "instances_train2017.json"
    dataset = wrap_dataset_for_transforms_v2(
        CocoDetection(folder / "train2017", annotations, transforms=transform), target_keys=tuple(KEYS)
    )
    sampler = RandomSampler(dataset, generator=torch.Generator().manual_seed(seed))
    batches = GroupedBatchSampler(sampler, aspect_ratio_groups(dataset), batch_size)
    if packed is None:
        return Data(
            dataset, DataLoader(dataset, batch_sampler=batches, num_workers=workers, collate_fn=collate_fn)
        )
    source = PackedDataset(packed, transform, fields=("image", KEYS))  # type: ignore[arg-type]
    return Data(
        dataset,
        FastLoader(
            source,
            batch_sampler=batches,
            num_workers=workers,
            collate_fn=collate_fn,
            engine=engine,
            seed=seed,
        ),
    )
