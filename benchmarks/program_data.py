"""The data parts of well-known training programs, as bench_programs.py measures them: a Dataset, its steps, a
collate function.

Each has the steps, sizes and probabilities of its original, written here anew. Where the original has
torchvision's ImageFolder, a class of the program's own stands in its place, with the same files, as in a
program that keeps its own list of them: otherwise FastLoader would read the files by native threads, which
bench_in_place.py measures.
"""

from __future__ import annotations

import os
import random
import shutil
import sys
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from PIL import Image, ImageFilter, ImageOps
from torch.utils.data import Dataset, default_collate

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests"))
import torchvision_ops  # noqa: F401  (before anything imports torchvision)
from program_boxes import Detection, Detr, RtDetr, boxes, listed, opened, segmentation
from torchvision import transforms
from torchvision.transforms import InterpolationMode

from fastload.bench.listing import list_folder

MEAN, STD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)


class Photos(Dataset[Any]):
    """A list of files and labels, and a transform of their images."""

    def __init__(self, root: Path, transform: Callable[[Image.Image], Any]) -> None:
        self.files = [(str(path), label) for path, label in list_folder(root)]
        self.transform = transform

    def __len__(self) -> int:
        return len(self.files)

    def __getitem__(self, index: int) -> Any:
        path, label = self.files[index]
        return self.transform(opened(path)), label


def floats() -> list[Any]:
    """The last steps of torchvision's reference presets: a normalised float tensor."""
    return [
        transforms.PILToTensor(),
        transforms.ConvertImageDtype(torch.float),
        transforms.Normalize(MEAN, STD),
    ]


def reference_train(root: Path) -> Any:
    """ClassificationPresetTrain of torchvision's references, without AutoAugment and RandomErasing, which
    are options of it."""
    steps = [
        transforms.RandomResizedCrop(224, interpolation=InterpolationMode.BILINEAR, antialias=True),
        transforms.RandomHorizontalFlip(0.5),
        *floats(),
    ]
    return Photos(root, transforms.Compose(steps))


def trivial_train(root: Path) -> Any:
    """ClassificationPresetTrain with TrivialAugmentWide and RandomErasing, as torchvision's newer recipes
    have it."""
    steps = [
        transforms.RandomResizedCrop(176, interpolation=InterpolationMode.BILINEAR, antialias=True),
        transforms.RandomHorizontalFlip(0.5),
        transforms.TrivialAugmentWide(interpolation=InterpolationMode.BILINEAR),
        *floats(),
        transforms.RandomErasing(0.1),
    ]
    return Photos(root, transforms.Compose(steps))


def reference_eval(root: Path) -> Any:
    """ClassificationPresetEval of torchvision's references."""
    steps = [
        transforms.Resize(256, interpolation=InterpolationMode.BILINEAR, antialias=True),
        transforms.CenterCrop(224),
        *floats(),
    ]
    return Photos(root, transforms.Compose(steps))


def timm_train(**options: Any) -> Callable[[Path], Any]:
    """timm's own dataset of a folder with timm's own transform for training."""

    def make(root: Path) -> Any:
        from timm.data import ImageDataset, create_transform

        return ImageDataset(str(root), transform=create_transform(224, is_training=True, **options))

    return make


class Blur:
    """Pillow's Gaussian blur of a random radius, with a probability."""

    def __init__(self, probability: float) -> None:
        self.probability = probability

    def __call__(self, image: Image.Image) -> Image.Image:
        if random.random() > self.probability:
            return image
        return image.filter(ImageFilter.GaussianBlur(random.uniform(0.1, 2.0)))


class Solarize:
    """Pillow's solarize, with a probability."""

    def __init__(self, probability: float) -> None:
        self.probability = probability

    def __call__(self, image: Image.Image) -> Image.Image:
        return ImageOps.solarize(image) if random.random() < self.probability else image


class Crops:
    """DINO's two global and eight local crops of an image; with `colours` its colour steps, else crop,
    flip and tensor alone."""

    def __init__(self, colours: bool) -> None:
        self.views = [
            self._view(224, (0.4, 1.0), 1.0, 0.0, colours),
            self._view(224, (0.4, 1.0), 0.1, 0.2, colours),
        ]
        self.local, self.locals = self._view(96, (0.05, 0.4), 0.5, 0.0, colours), 8

    @staticmethod
    def _view(side: int, scale: tuple[float, float], blur: float, solarize: float, colours: bool) -> Any:
        crop = transforms.RandomResizedCrop(side, scale=scale, interpolation=InterpolationMode.BICUBIC)
        steps: list[Any] = [crop, transforms.RandomHorizontalFlip(0.5)]
        if not colours:
            return transforms.Compose([*steps, transforms.PILToTensor()])
        steps += [
            transforms.RandomApply([transforms.ColorJitter(0.4, 0.4, 0.2, 0.1)], p=0.8),
            transforms.RandomGrayscale(0.2),
        ]
        steps += [Blur(blur), Solarize(solarize)]
        return transforms.Compose([*steps, transforms.ToTensor(), transforms.Normalize(MEAN, STD)])

    def __call__(self, image: Image.Image) -> list[torch.Tensor]:
        return [view(image) for view in self.views] + [self.local(image) for _ in range(self.locals)]


def dino(colours: bool) -> Callable[[Path], Any]:
    """DINO's dataset."""
    return lambda root: Photos(root, Crops(colours))


class CropsV2:
    """DINOv2's two global and eight local crops: steps of torchvision alone, its GaussianBlur among them,
    which works on tensors."""

    def __init__(self) -> None:
        colours = [
            transforms.RandomApply([transforms.ColorJitter(0.4, 0.4, 0.2, 0.1)], p=0.8),
            transforms.RandomGrayscale(0.2),
        ]
        tensor = [transforms.ToTensor(), transforms.Normalize(MEAN, STD)]

        def view(*further: Any) -> Any:
            return transforms.Compose([*colours, *further, *tensor])

        self.crops = [self._crop(224, (0.32, 1.0)), self._crop(98, (0.05, 0.32))]
        self.globals = [view(self._blur(1.0)), view(self._blur(0.1), transforms.RandomSolarize(128, 0.2))]
        self.local = view(self._blur(0.5))

    @staticmethod
    def _crop(side: int, scale: tuple[float, float]) -> Any:
        crop = transforms.RandomResizedCrop(side, scale=scale, interpolation=InterpolationMode.BICUBIC)
        return transforms.Compose([crop, transforms.RandomHorizontalFlip(0.5)])

    @staticmethod
    def _blur(probability: float) -> Any:
        return transforms.RandomApply([transforms.GaussianBlur(9, (0.1, 2.0))], p=probability)

    def __call__(self, image: Image.Image) -> list[torch.Tensor]:
        crop, small = self.crops
        return [view(crop(image)) for view in self.globals] + [self.local(small(image)) for _ in range(8)]


class Twins:
    """Barlow Twins' two views."""

    def __init__(self) -> None:
        self.views = [self._view(1.0, 0.0), self._view(0.1, 0.2)]

    @staticmethod
    def _view(blur: float, solarize: float) -> Any:
        steps = [
            transforms.RandomResizedCrop(224, interpolation=InterpolationMode.BICUBIC),
            transforms.RandomHorizontalFlip(0.5),
            transforms.RandomApply([transforms.ColorJitter(0.4, 0.4, 0.2, 0.1)], p=0.8),
            transforms.RandomGrayscale(0.2),
            Blur(blur),
            Solarize(solarize),
            transforms.ToTensor(),
            transforms.Normalize(MEAN, STD),
        ]
        return transforms.Compose(steps)

    def __call__(self, image: Image.Image) -> list[torch.Tensor]:
        return [view(image) for view in self.views]


class TwoViews:
    """SimCLR's two views of an image: crop, flip, strong colours, grey, a blur in place of OpenCV's,
    tensor."""

    def __init__(self) -> None:
        jitter = transforms.ColorJitter(0.8, 0.8, 0.8, 0.2)
        steps = [
            transforms.RandomResizedCrop(224),
            transforms.RandomHorizontalFlip(),
            transforms.RandomApply([jitter], p=0.8),
        ]
        self.view = transforms.Compose(
            [*steps, transforms.RandomGrayscale(0.2), Blur(0.5), transforms.ToTensor()]
        )

    def __call__(self, image: Image.Image) -> list[torch.Tensor]:
        return [self.view(image), self.view(image)]


def photos(make: Callable[[], Any]) -> Callable[[Path], Any]:
    """The dataset of a program whose transform is made so."""
    return lambda root: Photos(root, make())


class Preprocess:
    """The function that a Hugging Face example sets as a dataset's transform."""

    def __init__(self) -> None:
        self.steps = transforms.Compose(
            [
                transforms.RandomResizedCrop(224),
                transforms.RandomHorizontalFlip(),
                transforms.ToTensor(),
                transforms.Normalize(MEAN, STD),
            ]
        )

    def __call__(self, batch: dict[str, Any]) -> dict[str, Any]:
        batch["pixel_values"] = [self.steps(image.convert("RGB")) for image in batch["image"]]
        del batch["image"]
        return batch


def hugging_face(root: Path) -> Any:
    """A `datasets.Dataset` whose images are bytes in an Arrow file, as on the Hub, with a function as its
    transform."""
    import datasets

    datasets.disable_progress_bars()
    arrow = Path(__file__).resolve().parents[1] / "build" / "bench" / "programs-arrow"
    if not (arrow / "dataset_info.json").exists():
        files = list_folder(root)
        columns = {
            "image": [{"bytes": path.read_bytes(), "path": None} for path, _ in files],
            "label": [label for _, label in files],
        }
        features = datasets.Features({"image": datasets.Image(), "label": datasets.Value("int64")})
        # Four processes begin at once, and a mapped file may not change.
        made = arrow.with_name(f"{arrow.name}-{os.getpid()}")
        datasets.Dataset.from_dict(columns, features=features).save_to_disk(made)
        with suppress(OSError):  # another one was first
            made.rename(arrow)
        shutil.rmtree(made, ignore_errors=True)
    found = datasets.load_from_disk(arrow)
    found.set_transform(Preprocess())
    return found


def collate_hugging_face(examples: list[dict[str, Any]]) -> dict[str, torch.Tensor]:
    """The collate function of that example."""
    pixels = torch.stack([example["pixel_values"] for example in examples])
    return {"pixel_values": pixels, "labels": torch.tensor([example["label"] for example in examples])}


class Signals(Dataset[torch.Tensor]):
    """No images: rows of 16,384 floats with noise, their spectrum taken by NumPy, about a quarter of a
    millisecond of work each."""

    def __init__(self) -> None:
        self.rows = np.random.default_rng(3).standard_normal((64, 1 << 14))

    def __len__(self) -> int:
        return 1 << 16

    def __getitem__(self, index: int) -> torch.Tensor:
        noise = torch.rand(1 << 14).numpy()
        return torch.from_numpy(np.abs(np.fft.rfft(self.rows[index % 64] + noise)).astype(np.float32))


def collate_timm(samples: Any) -> Any:
    """timm's collate function for uint8 images."""
    from timm.data.loader import fast_collate

    return fast_collate(samples)


class Program(NamedTuple):
    """One program: its title, how its dataset is made of a folder, the part of the corpus, the size of a
    batch, and what collates.

    Attributes:
        exact, fast: least rates over torch's DataLoader with lazy="exact" and "fast"; None: as it comes out.
        aims: the rates that are aimed at.
        batches: batches in a window.
    """

    title: str
    make: Callable[[Path], Any]
    exact: float | None = None
    fast: float | None = None
    aims: tuple[float, float] | None = None
    corpus: str = "in500"
    batch: int = 32
    batches: int = 16
    collate: Callable[[Any], Any] = default_collate


PROGRAMS: dict[str, Program] = {
    "reference": Program("torchvision's reference, training", reference_train, 1.8, 2.4, (2.2, 3.5)),
    "trivial": Program("torchvision's reference, TrivialAugmentWide and erasing", trivial_train),
    "timm": Program("timm, default training, on floats", timm_train(), 1.8, 2.4, (2.2, 3.5)),
    "timm-geometry": Program(
        "timm, the same without ColorJitter, uint8",
        timm_train(color_jitter=None, use_prefetcher=True),
        1.8,
        2.4,
        collate=collate_timm,
    ),
    "timm-randaugment": Program(
        "timm, RandAugment m9-mstd0.5, uint8",
        timm_train(auto_augment="rand-m9-mstd0.5", use_prefetcher=True),
        collate=collate_timm,
    ),
    "dino-crops": Program("DINO, 2 + 8 crops alone", dino(False), 2.0, 4.0, batch=16, batches=10),
    "dino": Program("DINO, whole", dino(True), batch=16, batches=10),
    "validation": Program("validation, Resize and CenterCrop", reference_eval, 1.5, 2.2),
    "validation-big": Program(
        "validation, files of 1.8 megapixels", reference_eval, 2.0, 6.0, corpus="big", batch=16, batches=8
    ),
    "hugging-face": Program(
        "Hugging Face datasets, set_transform", hugging_face, 1.7, 2.2, collate=collate_hugging_face
    ),
    "simclr": Program("SimCLR, two views", photos(TwoViews), batches=10),
    "dinov2": Program("DINOv2, 2 + 8 crops", photos(CropsV2), batch=16, batches=10),
    "barlow": Program("Barlow Twins, two views", photos(Twins), batches=10),
    "detr": Program("DETR, scales and crops", boxes(Detr), batch=8, batches=8, collate=listed),
    "rt-detr": Program("RT-DETR, on 640 x 640", boxes(RtDetr), batch=8, batches=8, collate=listed),
    "detection": Program("torchvision's detection reference", boxes(Detection), batch=8, collate=listed),
    "segmentation": Program("torchvision's segmentation reference", segmentation, batch=8, batches=12),
    "no-images": Program("a Dataset without images", lambda root: Signals(), batches=160),
}
