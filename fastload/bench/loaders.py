"""From a TurnSpec to an iterable of batches. Runs in the child.

Every loader gets the same work and must give the same batch shape.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch.utils.data import DataLoader, Dataset, Subset

from fastload.bench.spec import TurnSpec

if TYPE_CHECKING:
    from fastload import FastLoader, PackedDataset

Batch = Any  # (uint8 NCHW tensor, int64 labels)


def _torch_loader(
    dataset: Dataset[Any], spec: TurnSpec, collate: Callable[[list[Any]], Any] | None = None
) -> DataLoader[Any]:
    return DataLoader(**_arguments(dataset, spec), persistent_workers=spec.persistent, collate_fn=collate)


def _arguments(dataset: Dataset[Any], spec: TurnSpec) -> dict[str, Any]:
    """Arguments that DataLoader and FastLoader share: the spec's samples, shuffled, in whole batches."""
    indices = spec.indices()
    return {
        "dataset": dataset if indices is None else Subset(dataset, indices),
        "batch_size": spec.batch_size,
        "shuffle": True,
        "drop_last": True,
        "num_workers": spec.workers,
    }


def _packed(spec: TurnSpec, **opening: Any) -> PackedDataset:
    from fastload import PackedDataset
    from fastload import transforms as T

    return PackedDataset(
        spec.source, transform=[T.RandomResizedCrop(spec.size), T.RandomHorizontalFlip()], **opening
    )


def build(spec: TurnSpec) -> Iterable[Batch]:
    """The loader that spec names: shuffled, whole batches only, warm or not as the caller arranged.

    Raises:
        ImportError: a library that this kind needs is not installed.
    """
    if spec.kind == "fastload":
        return build_fastload(spec)
    if spec.kind == "packed":
        return _torch_loader(_packed(spec), spec)

    from fastload.bench import rivals

    if spec.kind == "pillow":
        files = [
            (str(path), int(label))
            for path, label in json.loads(Path(spec.source).read_text(encoding="utf-8"))
        ]
        return _torch_loader(rivals.PillowFolder(files, spec.size), spec)
    return _torch_loader(rivals.HandWritten(spec.source, spec.images, spec.size), spec, rivals.channels_first)


def build_fastload(spec: TurnSpec, opening: Mapping[str, Any] | None = None, **more: Any) -> FastLoader[Any]:
    """The FastLoader that spec names; `more` are arguments of it beside those of the spec, and `opening`
    those of its PackedDataset."""
    from fastload import FastLoader

    return FastLoader(**_arguments(_packed(spec, **(opening or {})), spec), seed=spec.seed, **more)


def check_batch(batch: Batch, spec: TurnSpec) -> None:
    """Raises RuntimeError when a loader does not deliver what all of them must: the comparison would be
    void."""
    images, labels = batch
    shape = (spec.batch_size, 3, spec.size, spec.size)
    if tuple(images.shape) != shape or images.dtype != torch.uint8 or tuple(labels.shape) != shape[:1]:
        raise RuntimeError(
            f"{spec.kind} gave {images.dtype} {tuple(images.shape)} and labels "
            f"{tuple(labels.shape)}, not uint8 {shape}"
        )
