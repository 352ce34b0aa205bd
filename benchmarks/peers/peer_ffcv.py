"""ffcv: a .beton file of JPEGs that it encodes anew at quality 90, threads, code compiled by Numba. uint8;
cv2's area resize."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import turn
from ffcv.fields import IntField, RGBImageField
from ffcv.fields.basics import IntDecoder
from ffcv.fields.rgb_image import RandomResizedCropRGBImageDecoder
from ffcv.loader import Loader, OrderOption
from ffcv.transforms import RandomHorizontalFlip, ToTensor, ToTorchImage
from ffcv.writer import DatasetWriter
from PIL import Image


class Pictures:
    """(PIL image, label) of each file: the form that the writer takes."""

    def __init__(self, files: list[tuple[str, int]]) -> None:
        self.files = files

    def __len__(self) -> int:
        return len(self.files)

    def __getitem__(self, index: int) -> tuple[Any, int]:
        path, label = self.files[index]
        with Image.open(path) as opened:
            return opened.convert("RGB"), label


def make(task: turn.Task) -> None:
    """The .beton file, of JPEGs at the size they have."""
    fields = {"image": RGBImageField(write_mode="jpg", jpeg_quality=90), "label": IntField()}
    DatasetWriter(task.data, fields, num_workers=task.workers).from_indexed_dataset(Pictures(task.files))


def load(task: turn.Task) -> Any:
    """The documented pipeline of ImageNet, without its normalisation; its loader wants a number of
    threads."""
    crop = RandomResizedCropRGBImageDecoder((task.size, task.size))
    pipelines = {
        "image": [crop, RandomHorizontalFlip(), ToTensor(), ToTorchImage()],
        "label": [IntDecoder(), ToTensor()],
    }
    return Loader(
        task.data,
        batch_size=task.batch,
        num_workers=task.workers,
        order=OrderOption.RANDOM,
        os_cache=True,
        drop_last=True,
        seed=task.seed,
        pipelines=pipelines,
    )


def crops(task: turn.Task) -> Iterator[Any]:
    """The same crop, of all of the square image."""
    crop = RandomResizedCropRGBImageDecoder((task.size, task.size), scale=(1, 1), ratio=(1, 1))
    pipelines = {"image": [crop, ToTensor()], "label": None}
    loader = Loader(
        task.data,
        batch_size=1,
        num_workers=1,
        order=OrderOption.SEQUENTIAL,
        drop_last=False,
        pipelines=pipelines,
    )
    return (batch[0][0].numpy().copy() for batch in loader)


if __name__ == "__main__":
    turn.run(load, crops, make)
