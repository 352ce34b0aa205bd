"""PyTurboJPEG and cv2 on LMDB under torch's DataLoader. uint8; cv2's bilinear resize, which does not
antialias."""

from __future__ import annotations

import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import cv2
import torch
import turn
from torch_loader import torch_loader, with_boxes
from turbojpeg import TurboJPEG

from fastload.bench.boxes import random_box
from fastload.bench.listing import write_lmdb
from fastload.bench.rivals import HandWritten, channels_first


class Whole(HandWritten):
    """Whole images of the same LMDB; what is made of them is the subclass's."""

    def __init__(self, task: turn.Task) -> None:
        super().__init__(task.data, len(task.files), turn.SIDE)

    def decoded(self, index: int) -> tuple[Any, int]:
        """(HWC pixels, label) of a sample."""
        if self._txn is None:
            self._open()
        value = self._txn.get(index.to_bytes(8, "big"))
        # 0: TJPF_RGB.
        return self._turbo.decode(value[4:], pixel_format=0), int.from_bytes(value[:4], "little")


class Views(Whole):
    """(A list of all views, label) of each image."""

    def __getitem__(self, index: int) -> Any:
        picture, label = self.decoded(index)
        return [
            self._view(picture, size, scale) for size, scale, count in turn.VIEWS for _ in range(count)
        ], label

    def _view(self, picture: Any, size: int, scale: tuple[float, float]) -> Any:
        x, y, w, h = random_box(picture.shape[1], picture.shape[0], scale)
        made = cv2.resize(picture[y : y + h, x : x + w], (size, size), interpolation=cv2.INTER_LINEAR)
        return torch.from_numpy(cv2.flip(made, 1) if random.random() < 0.5 else made)


class Objects(Whole):
    """(The whole image as a square, its boxes) of each file, half of them mirrored."""

    def __init__(self, task: turn.Task) -> None:
        super().__init__(task)
        self.boxes = task.boxes

    def __getitem__(self, index: int) -> Any:
        picture, mirrored = self.decoded(index)[0], random.random() < 0.5
        made = cv2.resize(picture, (turn.SIDE, turn.SIDE), interpolation=cv2.INTER_LINEAR)
        boxes = turn.squeezed(self.boxes[index], picture.shape[1], picture.shape[0], mirrored=mirrored)
        return torch.from_numpy(cv2.flip(made, 1) if mirrored else made), torch.from_numpy(boxes)


def make(task: turn.Task) -> None:
    """One LMDB of the files' bytes."""
    write_lmdb(task.files, Path(task.data))


def load(task: turn.Task) -> Any:
    """The LMDB's samples."""
    return torch_loader(HandWritten(task.data, len(task.files), task.size), task, collate_fn=channels_first)


def crops(task: turn.Task) -> Iterator[Any]:
    """HandWritten's decoder and resize; no image of the corpus is large enough for its decoding at half
    size."""
    turbo = TurboJPEG()
    for path, _ in task.files:
        picture = turbo.decode(Path(path).read_bytes(), pixel_format=0)  # 0: TJPF_RGB
        yield cv2.resize(picture, (task.size, task.size), interpolation=cv2.INTER_LINEAR)


if __name__ == "__main__":
    turn.run(
        load,
        crops,
        make,
        views=lambda task: torch_loader(Views(task), task),
        detection=lambda task: torch_loader(Objects(task), task, collate_fn=with_boxes),
    )
