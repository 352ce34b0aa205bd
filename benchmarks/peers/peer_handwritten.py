"""PyTurboJPEG and cv2 on LMDB under torch's DataLoader. uint8; cv2's bilinear resize, which does not antialias."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import cv2
import turn
from torch_loader import torch_loader
from turbojpeg import TurboJPEG

from fastload.bench.listing import write_lmdb
from fastload.bench.rivals import HandWritten, channels_first


def make(task: turn.Task) -> None:
    """One LMDB of the files' bytes."""
    write_lmdb(task.files, Path(task.data))


def load(task: turn.Task) -> Any:
    """The LMDB's samples."""
    return torch_loader(HandWritten(task.data, len(task.files), task.size), task, collate_fn=channels_first)


def crops(task: turn.Task) -> Iterator[Any]:
    """HandWritten's decoder and resize; no image of the corpus is large enough for its decoding at half size."""
    turbo = TurboJPEG()
    for path, _ in task.files:
        picture = turbo.decode(Path(path).read_bytes(), pixel_format=0)  # 0: TJPF_RGB
        yield cv2.resize(picture, (task.size, task.size), interpolation=cv2.INTER_LINEAR)


if __name__ == "__main__":
    turn.run(load, crops, make)
