"""fastload in its forms: an ImageFolder in place, and packed, ``lossless`` and ``dct``. uint8, antialiased.

Crops larger than twice their target are first shrunk by the JPEG decoder (``dct_scale``, the default).
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import turn

import fastload
from fastload import FastLoader, PackedDataset
from fastload import transforms as T


def make(task: turn.Task) -> None:
    """The packed dataset; in place there is none."""
    if task.form != "place":
        fastload.pack(task.coco or task.tree, task.data, encode=task.form)


def loader_of(task: turn.Task, crop: tuple[Any, Any], *, mirrored: bool, **options: Any) -> Any:
    """FastLoader with a crop of (scale, ratio)."""
    scale, ratio = crop
    if task.form == "place":
        import importable_torchvision  # noqa: F401  (before torchvision)
        from torchvision.datasets import ImageFolder
        from torchvision.transforms import v2

        flips = [v2.RandomHorizontalFlip()] if mirrored else []
        transform = v2.Compose(
            [v2.RandomResizedCrop(task.size, scale, ratio, antialias=True), *flips, v2.ToImage()]
        )
        return FastLoader(ImageFolder(task.tree, transform), engine="native", seed=task.seed, **options)
    flips = [T.RandomHorizontalFlip()] if mirrored else []
    dataset = PackedDataset(task.data, transform=[T.RandomResizedCrop(task.size, scale, ratio), *flips])
    return FastLoader(dataset, seed=task.seed, **options)


def load(task: turn.Task) -> Any:
    """Native threads, as many as the task has workers."""
    return loader_of(task, ((0.08, 1.0), (3 / 4, 4 / 3)), mirrored=True, **options(task))


def options(task: turn.Task) -> dict[str, Any]:
    """Arguments of FastLoader for the task: whole batches, shuffled."""
    return {"batch_size": task.batch, "shuffle": True, "drop_last": True, "num_workers": task.workers}


def views(task: turn.Task) -> Any:
    """All views of each image, which is decoded once."""
    crops = [
        [T.RandomResizedCrop(size, scale), T.RandomHorizontalFlip()]
        for size, scale, count in turn.VIEWS
        for _ in range(count)
    ]
    return FastLoader(PackedDataset(task.data, transform=T.Views(crops)), seed=task.seed, **options(task))


def detection(task: turn.Task) -> Any:
    """Whole images and their boxes, in lists."""
    steps = [T.Resize((turn.SIDE, turn.SIDE)), T.RandomHorizontalFlip()]
    dataset = PackedDataset(task.data, transform=steps, fields=("image", {"boxes": "boxes"}))
    return FastLoader(dataset, seed=task.seed, collate="list", **options(task))


def crops(task: turn.Task) -> Iterator[Any]:
    """The same transform, whose crop is all of the square image."""
    for images, _ in loader_of(task, ((1.0, 1.0), (1.0, 1.0)), mirrored=False, batch_size=1, num_workers=1):
        yield images[0].permute(1, 2, 0).numpy().copy()


if __name__ == "__main__":
    turn.run(load, crops, make, views=views, detection=detection)
