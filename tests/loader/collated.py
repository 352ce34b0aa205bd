"""What tests of collate= share: batches, the samples in them, torch's own functions as the oracle, and a
Dataset of detections."""

from __future__ import annotations

from collections import namedtuple
from typing import Any

import numpy as np
import torch
from torch.nn.utils.rnn import pad_sequence
from torch.utils.data import ConcatDataset, Dataset

from fastload import FastLoader, Flat, PackedDataset, Padded

COUNT = 7

Target = namedtuple("Target", "boxes labels")


class Detections(Dataset[Any]):
    """Samples (image, target) as torchvision's detection scripts have them; image i is 8 x (8 + i)."""

    def __init__(self, kind: str = "dict", wide: bool = False) -> None:
        self.kind, self.wide = kind, wide

    def __len__(self) -> int:
        return COUNT

    def __getitem__(self, index: int) -> Any:
        torch.manual_seed(index)
        count, width = index % 3, 8 + index * self.wide
        boxes, labels = torch.rand(count, 4), np.arange(count)
        if self.kind == "namedtuple":
            return torch.rand(3, 8, width), Target(boxes, labels)
        masks = torch.ones(count, 8, width, dtype=torch.uint8)
        target = {
            "boxes": boxes if count or index == 6 else torch.tensor([]),
            "labels": labels,
            "masks": masks,
            "image_id": index,
            "seen": None,
        }
        return torch.rand(3, 8, width), target | {
            "segmentation": torch.full((8, width), index),
            "lines": [[0.5] * index] * count,
        }


def same(a: Any, b: Any) -> bool:
    """Whether two batches have the same types, shapes, dtypes and values."""
    if type(a) is not type(b):
        return False
    if isinstance(a, torch.Tensor):
        return a.dtype == b.dtype and torch.equal(a, b)
    if isinstance(a, dict):
        return list(a) == list(b) and all(same(a[key], b[key]) for key in a)
    if isinstance(a, list | tuple):
        return len(a) == len(b) and all(map(same, a, b))
    return bool(a == b)


def batches(dataset: Any, engine: str = "auto", workers: int = 0, **options: Any) -> list[Any]:
    """The batches of an epoch, of 3 samples each."""
    with FastLoader(dataset, batch_size=3, num_workers=workers, engine=engine, **options) as loader:  # type: ignore[arg-type]
        native = isinstance(dataset, PackedDataset) and engine == "auto" and dataset.plan.native
        assert (loader.stats()["engine"] == "threads") == (
            native or (isinstance(dataset, ConcatDataset) and engine == "auto")
        )
        return list(loader)


def chunks(dataset: Any) -> list[list[Any]]:
    """The samples of those batches."""
    samples = [dataset[index] for index in range(len(dataset))]
    return [samples[start : start + 3] for start in range(0, len(samples), 3)]


def check_rows(found: Any, rows: list[torch.Tensor], form: str) -> None:
    """A part of any number of rows is what torch's own functions make of it."""
    if form == "flat":
        assert type(found) is Flat
        nested = torch.nested.nested_tensor_from_jagged(found.values, found.offsets)
        assert found.offsets.dtype == torch.int64
        assert all(map(same, nested.unbind(), rows))
    else:
        assert type(found) is Padded
        assert same(found.values, pad_sequence(rows, batch_first=True))
        assert found.lengths.tolist() == list(map(len, rows))
        assert same(
            found.mask,
            pad_sequence([torch.ones(len(each), dtype=torch.bool) for each in rows], batch_first=True),
        )
