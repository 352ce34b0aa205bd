"""The datasets that fastload is held against: what people use today, each written as its users write it.

torchvision cannot be assumed installed, so its RandomResizedCrop is written out here with its parameters
(area 0.08..1, aspect 3/4..4/3 log-uniform, ten tries, then the centre) and Python's random, which is cheaper
than torchvision's draws from torch: what difference that makes is in the rivals' favour.
"""

from __future__ import annotations

import random
from typing import Any

import torch
from torch.utils.data import Dataset

from fastload.bench.boxes import random_box
from fastload.common.files import open_regular
from fastload.common.images import open_image

Sample = tuple[torch.Tensor, int]


class PillowFolder(Dataset[Sample]):
    """torchvision's ImageFolder with RandomResizedCrop, RandomHorizontalFlip and PILToTensor, in plain
    Pillow.

    Item: (uint8 CHW tensor, label). As in torchvision the tensor is a permuted view of the HWC pixels, and
    the resize is Pillow's antialiased bilinear.
    """

    def __init__(self, files: list[tuple[str, int]], size: int) -> None:
        self.files = files
        self.size = size

    def __len__(self) -> int:
        return len(self.files)

    def __getitem__(self, index: int) -> Sample:
        import numpy
        from PIL import Image

        path, label = self.files[index]
        with open(open_regular(path)[0], "rb") as file:
            image: Image.Image = open_image(file).convert("RGB")
        x, y, w, h = random_box(*image.size)
        image = image.crop((x, y, x + w, y + h)).resize((self.size, self.size), Image.Resampling.BILINEAR)
        if random.random() < 0.5:
            image = image.transpose(Image.Transpose.FLIP_LEFT_RIGHT)
        return torch.from_numpy(numpy.array(image, copy=True)).permute(2, 0, 1), label


class HandWritten(Dataset[Sample]):
    """A careful user's own loader: JPEGs in one LMDB, PyTurboJPEG with DCT scaling, cv2.resize; opened once
    per worker.

    Item: (uint8 HWC tensor, label), contiguous, so that stacking is a plain copy; ``channels_first`` is the
    collate function that turns the batch into NCHW in channels_last memory for nothing. The resize is cv2's
    bilinear, without antialiasing.
    """

    def __init__(self, path: str, length: int, size: int) -> None:
        self.path = path
        self.length = length
        self.size = size
        self._txn: Any = None
        self._turbo: Any = None

    def __len__(self) -> int:
        return self.length

    def _open(self) -> None:
        import cv2
        import lmdb
        from turbojpeg import TurboJPEG

        cv2.setNumThreads(0)  # two workers already fill the cores
        env = lmdb.open(self.path, subdir=False, readonly=True, lock=False, readahead=False, meminit=False)
        self._txn = env.begin(buffers=True)
        self._turbo = TurboJPEG()

    def __getitem__(self, index: int) -> Sample:
        if self._txn is None:
            self._open()
        import cv2

        value = self._txn.get(index.to_bytes(8, "big"))
        data = value[4:]
        width, height, _, _ = self._turbo.decode_header(data)
        x, y, w, h = random_box(width, height)
        part = next((n for n in (8, 4, 2) if min(w, h) >= n * self.size), 1)
        # 0: TJPF_RGB.
        image = self._turbo.decode(data, scaling_factor=(1, part) if part > 1 else None, pixel_format=0)
        image = image[y // part : max((y + h) // part, 1), x // part : max((x + w) // part, 1)]
        image = cv2.resize(image, (self.size, self.size), interpolation=cv2.INTER_LINEAR)
        if random.random() < 0.5:
            image = cv2.flip(image, 1)
        return torch.from_numpy(image), int.from_bytes(value[:4], "little")


def channels_first(samples: list[Sample]) -> tuple[torch.Tensor, torch.Tensor]:
    """default_collate of HWC samples, seen as NCHW: (N, 3, H, W) uint8 in channels_last memory, and int64
    labels."""
    images, labels = torch.utils.data.default_collate(samples)
    return images.permute(0, 3, 1, 2), labels
