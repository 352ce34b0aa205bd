"""Epochs of steps that native threads do, which must give the same bytes however they are made."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import torch
from PIL import Image

from fastload import FastLoader, PackedDataset, pack


def epoch_of(dataset: Any, threads: int, *, seed: int, **kwargs: Any) -> torch.Tensor:
    """All images of an epoch on native threads."""
    with FastLoader(dataset, 8, num_workers=threads, seed=seed, **kwargs) as loader:
        assert loader._fastload.plan.native is not None
        return torch.cat([images.clone() for images, _ in loader])


def check_same_everywhere(
    steps: list[Any], packed: Path, image_folder: Path, scratch: Path, seed: int
) -> None:
    """One seed: the same bytes by 1 or 4 threads, of JPEGs, of the form without Huffman codes and of files in
    place, from dataset[i], and after a resume."""
    from torchvision import datasets, transforms

    want = epoch_of(PackedDataset(packed, transform=steps), 1, seed=seed)
    assert torch.equal(epoch_of(PackedDataset(packed, transform=steps), 4, seed=seed), want)
    again = PackedDataset(packed, transform=steps, seed=seed)
    assert torch.equal(torch.stack([again[i][0] for i in range(len(again))]), want)
    pack(image_folder, scratch / "dct.fl", encode="dct")
    assert torch.equal(epoch_of(scratch / "dct.fl", 2, seed=seed, transform=steps), want)
    folder = datasets.ImageFolder(str(image_folder), transform=transforms.Compose(steps))
    assert torch.equal(epoch_of(folder, 2, seed=seed), want)
    with FastLoader(packed, 8, transform=steps, num_workers=2, seed=seed) as loader:
        first = iter(loader)
        seen = [next(first)[0].clone() for _ in range(2)]
        state = loader.state_dict()
    with FastLoader(packed, 8, transform=steps, num_workers=3, seed=seed) as loader:
        loader.load_state_dict(state)
        assert torch.equal(torch.cat([*seen, *(images.clone() for images, _ in loader)]), want)


def check_same_by_pillow(steps: list[Any], scratch: Path, seed: int) -> torch.Tensor:
    """A TIFF by the name of a PNG, in place: the pixels are those of the PNG, which it returns."""
    from torchvision import datasets, transforms

    made = []
    for kind in ("PNG", "TIFF"):
        folder = scratch / kind / "a"
        folder.mkdir(parents=True)
        for number in range(6):
            pixels = np.random.default_rng(number).integers(0, 256, (40, 50, 3), dtype=np.uint8)
            Image.fromarray(pixels).save(folder / f"{number}.png", kind if number == 2 else "PNG")
        dataset = datasets.ImageFolder(str(scratch / kind), transforms.Compose(steps))
        made.append(epoch_of(dataset, 2, seed=seed))
    assert torch.equal(*made)
    return made[0]
