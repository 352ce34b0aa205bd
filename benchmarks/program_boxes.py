"""The data parts of programs that detect and segment, as bench_programs.py measures them: images with boxes
or masks.

The corpus has no boxes: each image has four of them at shares of its size, which follow from its place in
the list. A mask is a PNG, made once, of regions of eight
classes by the light of the image.
"""

from __future__ import annotations

import os
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch
from PIL import Image
from torch.utils.data import Dataset
from torchvision import transforms, tv_tensors
from torchvision.transforms import InterpolationMode, v2
from torchvision.transforms import functional as F

from fastload.bench.listing import list_folder

MEAN, STD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)
SCALES = (480, 512, 544, 576, 608, 640, 672, 704, 736, 768, 800)
"""Lengths of the shorter side that DETR draws from."""
LONGEST = 1333
CLASSES, REGION = 8, 8
"""Classes of the masks, and the side of the squares that have one: PNGs of some KB, as those of drawn
outlines are."""
_Pair = tuple[Any, dict[str, Any]]


def opened(path: str, mode: str = "RGB") -> Image.Image:
    """The image of a file, as torchvision's pil_loader makes it."""
    with open(path, "rb") as file:
        return Image.open(file).convert(mode)


class Boxes(Dataset[_Pair]):
    """A list of files with four boxes each, and a transform of both."""

    def __init__(self, root: Path, transform: Callable[[Image.Image, dict[str, Any]], _Pair]) -> None:
        self.files = [str(path) for path, _ in list_folder(root)]
        self.shares = np.random.default_rng(5).uniform(0, 1, (len(self.files), 4, 4))
        self.transform = transform

    def __len__(self) -> int:
        return len(self.files)

    def __getitem__(self, index: int) -> _Pair:
        image = opened(self.files[index])
        x, y, across, down = self.shares[index].T
        width, height = image.size
        left, top = x * 0.6 * width, y * 0.6 * height
        right, bottom = left + (0.1 + 0.3 * across) * width, top + (0.1 + 0.3 * down) * height
        corners = np.stack([left, top, right, bottom], 1).astype(np.float32)
        target = {"boxes": torch.from_numpy(corners), "labels": torch.arange(4)}
        return self.transform(image, target)


def boxes(make: Callable[[], Any]) -> Callable[[Path], Any]:
    """The dataset of a program whose transform is made so."""
    return lambda root: Boxes(root, make())


def listed(samples: list[_Pair]) -> list[list[Any]]:
    """The collate function of torchvision's detection reference: images as they are."""
    return [[image for image, _ in samples], [target["boxes"] for _, target in samples]]


def _scaled(boxes: torch.Tensor, before: tuple[int, int], after: tuple[int, int]) -> torch.Tensor:
    across, down = after[0] / before[0], after[1] / before[1]
    return boxes * torch.tensor([across, down, across, down])


class Detr:
    """DETR's steps for training, with functions of torchvision: a flip, one of several scales, in half of the
    cases after a crop of a smaller scale, a normalised tensor."""

    def __call__(self, image: Image.Image, target: dict[str, Any]) -> _Pair:
        boxes = target["boxes"]
        if random.random() < 0.5:
            image = F.hflip(image)
            boxes = boxes[:, [2, 1, 0, 3]] * torch.tensor([-1, 1, -1, 1]) + torch.tensor(
                [image.width, 0, image.width, 0]
            )
        if random.random() >= 0.5:
            image, boxes = self._resize(image, boxes, random.choice((400, 500, 600)), None)
            image, boxes = self._crop(image, boxes)
        image, boxes = self._resize(image, boxes, random.choice(SCALES), LONGEST)
        tensor = F.normalize(F.to_tensor(image), MEAN, STD)
        return tensor, {**target, "boxes": boxes}

    @staticmethod
    def _resize(
        image: Image.Image, boxes: torch.Tensor, short: int, most: int | None
    ) -> tuple[Image.Image, torch.Tensor]:
        width, height = image.size
        small, large = min(width, height), max(width, height)
        if most is not None and large / small * short > most:
            short = round(most * small / large)
        scale = short / small
        size = (int(height * scale), int(width * scale)) if small != short else (height, width)
        made = F.resize(image, list(size))
        return made, _scaled(boxes, image.size, made.size)

    @staticmethod
    def _crop(image: Image.Image, boxes: torch.Tensor) -> tuple[Image.Image, torch.Tensor]:
        width, height = (random.randint(384, min(side, 600)) if side > 384 else side for side in image.size)
        top, left, _, _ = transforms.RandomCrop.get_params(image, (height, width))
        moved = boxes - torch.tensor([left, top, left, top])
        edge = torch.tensor([width, height, width, height])
        return F.crop(image, top, left, height, width), torch.minimum(moved.clamp(min=0), edge)


class RtDetr:
    """RT-DETR's steps for training, of torchvision's v2."""

    def __init__(self) -> None:
        self.steps = v2.Compose(
            [
                v2.RandomPhotometricDistort(p=0.5),
                v2.RandomZoomOut(fill=0),
                v2.RandomApply([v2.RandomIoUCrop()], p=0.8),
                v2.SanitizeBoundingBoxes(min_size=1),
                v2.RandomHorizontalFlip(),
                v2.Resize([640, 640]),
                v2.SanitizeBoundingBoxes(min_size=1),
                v2.PILToTensor(),
                v2.ToDtype(torch.float32, scale=True),
            ]
        )

    def __call__(self, image: Image.Image, target: dict[str, Any]) -> _Pair:
        size = (image.height, image.width)
        framed = tv_tensors.BoundingBoxes(target["boxes"], format="XYXY", canvas_size=size)  # type: ignore[call-arg]
        made: _Pair = self.steps(image, {**target, "boxes": framed})
        return made


class Detection:
    """The steps of torchvision's detection reference: a flip, a tensor of the image's own size."""

    def __init__(self) -> None:
        self.steps = v2.Compose(
            [v2.RandomHorizontalFlip(0.5), v2.PILToTensor(), v2.ToDtype(torch.float, scale=True)]
        )

    def __call__(self, image: Image.Image, target: dict[str, Any]) -> _Pair:
        size = (image.height, image.width)
        framed = tv_tensors.BoundingBoxes(target["boxes"], format="XYXY", canvas_size=size)  # type: ignore[call-arg]
        made: _Pair = self.steps(image, {**target, "boxes": framed})
        return made


class Masks(Dataset[Any]):
    """A list of files, each with a mask, and the steps of torchvision's segmentation reference: one scale of
    many, a flip, a crop of both, a normalised tensor and one of classes."""

    def __init__(self, files: list[str], masks: list[str]) -> None:
        self.files, self.masks = files, masks

    def __len__(self) -> int:
        return len(self.files)

    def __getitem__(self, index: int) -> tuple[torch.Tensor, torch.Tensor]:
        image, mask = opened(self.files[index]), opened(self.masks[index], "L")
        size = [random.randint(260, 1040)]
        image = F.resize(image, size, antialias=True)
        mask = F.resize(mask, size, interpolation=InterpolationMode.NEAREST)
        if random.random() < 0.5:
            image, mask = F.hflip(image), F.hflip(mask)
        across, down = max(480 - image.width, 0), max(480 - image.height, 0)
        image, mask = F.pad(image, [0, 0, across, down], 0), F.pad(mask, [0, 0, across, down], 255)
        box = transforms.RandomCrop.get_params(image, (480, 480))
        image, mask = F.crop(image, *box), F.crop(mask, *box)
        tensor = F.convert_image_dtype(F.pil_to_tensor(image), torch.float)
        return F.normalize(tensor, MEAN, STD), torch.as_tensor(np.array(mask), dtype=torch.int64)


def segmentation(root: Path) -> Any:
    """The dataset of torchvision's segmentation reference."""
    folder = Path(__file__).resolve().parents[1] / "build" / "bench" / "programs-regions"
    files = [str(path) for path, _ in list_folder(root)]
    masks = [str(folder / f"{number}.png") for number in range(len(files))]
    if not (folder / "done").exists():
        folder.mkdir(parents=True, exist_ok=True)
        for file, mask in zip(files, masks, strict=True):
            image = opened(file, "L")
            regions = image.reduce(REGION).point(lambda light: light // (256 // CLASSES))
            made = f"{mask}.{os.getpid()}"  # four processes begin at once
            regions.resize(image.size, Image.Resampling.NEAREST).save(made, format="png")
            os.replace(made, mask)
        (folder / "done").touch()
    return Masks(files, masks)
