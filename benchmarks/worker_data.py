"""The data sets and collate functions of bench_workers.py, at module level so that a spawned worker can
import them.

Each item says which index it came from, so that a turn can check what it is handed: ``check`` functions take
a batch and its number and raise ValueError when it is not what DataLoader would have made.
"""

from __future__ import annotations

import random
import time
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy
import torch
from torch.nn.utils.rnn import pad_sequence
from torch.utils.data import Dataset

SIDE = 224
ENDLESS = 1 << 22  # samples: no turn reaches the end of an epoch


class ReadyTensors(Dataset[torch.Tensor]):
    """Item i: a float32 tensor of 3 x 224 x 224 that lies in memory, filled with the number i % 256."""

    KEPT = 256

    def __init__(self) -> None:
        self.items = [torch.full((3, SIDE, SIDE), float(i)) for i in range(self.KEPT)]

    def __len__(self) -> int:
        return ENDLESS

    def __getitem__(self, index: int) -> torch.Tensor:
        return self.items[index % self.KEPT]


def check_ready(batch: torch.Tensor, number: int) -> None:
    """64 rows, each its index modulo 256 throughout."""
    wanted = torch.arange(number * 64, number * 64 + 64) % ReadyTensors.KEPT
    _same(batch[:, 0, 0, 0], wanted.float())
    _same(batch[:, -1, -1, -1], wanted.float())


class Integers(Dataset[int]):
    """Item i: the int i."""

    def __init__(self, length: int = ENDLESS) -> None:
        self.length = length

    def __len__(self) -> int:
        return self.length

    def __getitem__(self, index: int) -> int:
        return index


def check_integers(batch: torch.Tensor, number: int) -> None:
    """Consecutive indices."""
    _same(batch, torch.arange(number * len(batch), (number + 1) * len(batch)))


class WholeBatch:
    """A collate function that ignores its samples but for the first: a view of one of 8 ready (64, 3, 224,
    224) uint8 batches.

    Each call makes a tensor anew over the same memory, as from_numpy over a file mapped into memory does, so
    the batch costs nothing to make and all that is measured is its way to the consumer. (A tensor handed out
    twice would travel by torch's queue for nothing from the second time on: its storage lies in shared memory
    then.)
    """

    KEPT = 8

    def __init__(self) -> None:
        self.batches = [numpy.full((64, 3, SIDE, SIDE), i, dtype=numpy.uint8) for i in range(self.KEPT)]

    def __call__(self, samples: list[int]) -> torch.Tensor:
        return torch.from_numpy(self.batches[samples[0] // len(samples) % self.KEPT])


def check_whole(batch: torch.Tensor, number: int) -> None:
    """The shape, and the number of the ready batch in its first and last byte."""
    if batch.shape != (64, 3, SIDE, SIDE) or batch.dtype != torch.uint8:
        raise ValueError(f"batch {number} is {batch.dtype} {tuple(batch.shape)}")
    _same(batch.view(-1)[[0, -1]], torch.full((2,), number % WholeBatch.KEPT, dtype=torch.uint8))


class Records(Dataset[dict[str, Any]]):
    """Item i: a dict of what NLP and tabular samples hold: small tensors, an array, a sequence of 1..64
    tokens, a string."""

    KEPT = 512

    def __init__(self) -> None:
        draw = random.Random(1)
        self.tokens = [torch.arange(draw.randint(1, 64)) for _ in range(self.KEPT)]
        self.features = [torch.full((8,), float(i)) for i in range(self.KEPT)]
        self.pixels = [torch.full((3, 32, 32), i % 256, dtype=torch.uint8) for i in range(self.KEPT)]
        self.boxes = [numpy.full((4,), i, dtype=numpy.float32) for i in range(self.KEPT)]

    def __len__(self) -> int:
        return ENDLESS

    def __getitem__(self, index: int) -> dict[str, Any]:
        kept = index % self.KEPT
        return {
            "index": index,
            "features": self.features[kept],
            "tokens": self.tokens[kept],
            "pixels": self.pixels[kept],
            "box": self.boxes[kept],
            "text": f"sample {index}",
        }


class Parts(NamedTuple):
    """A nested batch's inner level."""

    features: torch.Tensor
    boxes: numpy.ndarray[Any, Any]


@dataclass
class Nested:
    """A nested batch."""

    index: torch.Tensor
    parts: Parts
    more: dict[str, Any]


def _indices(samples: list[dict[str, Any]]) -> torch.Tensor:
    return torch.tensor([sample["index"] for sample in samples])


def collate_dict(samples: list[dict[str, Any]]) -> dict[str, torch.Tensor]:
    """A dict of three small tensors."""
    features = torch.stack([sample["features"] for sample in samples])
    return {"index": _indices(samples), "features": features, "mask": features > 0}


def collate_padded(samples: list[dict[str, Any]]) -> dict[str, torch.Tensor]:
    """Sequences padded to the longest of the batch, so each batch has another shape, and their lengths."""
    tokens = [sample["tokens"] for sample in samples]
    lengths = torch.tensor([len(sequence) for sequence in tokens])
    return {"index": _indices(samples), "tokens": pad_sequence(tokens, batch_first=True), "lengths": lengths}


def collate_text(samples: list[dict[str, Any]]) -> tuple[list[str], torch.Tensor]:
    """A list of strings beside a tensor."""
    return [sample["text"] for sample in samples], _indices(samples)


def collate_nested(samples: list[dict[str, Any]]) -> Nested:
    """A dataclass of a tensor, a namedtuple of a tensor and an array, and a dict of a list and a number."""
    boxes = numpy.stack([sample["box"] for sample in samples])
    parts = Parts(torch.stack([sample["features"] for sample in samples]), boxes)
    return Nested(
        _indices(samples), parts, {"first": [samples[0]["text"], samples[0]["tokens"]], "count": len(samples)}
    )


def collate_pixels(samples: list[dict[str, Any]]) -> tuple[torch.Tensor, torch.Tensor]:
    """CIFAR-sized uint8 images stacked, 200 KB a batch of 64."""
    return torch.stack([sample["pixels"] for sample in samples]), _indices(samples)


COLLATES = {
    "dict": collate_dict,
    "padded": collate_padded,
    "text": collate_text,
    "nested": collate_nested,
    "pixels": collate_pixels,
}


def check_record(batch: Any, number: int) -> None:
    """The indices, wherever the collate function has put them."""
    if isinstance(batch, dict):
        index = batch["index"]
    elif isinstance(batch, Nested):
        index = batch.index
        _same(batch.parts.features[:, 0].long(), index % Records.KEPT)
        _same(torch.from_numpy(batch.parts.boxes[:, 0]).long(), index % Records.KEPT)
    else:
        index = batch[1]
    check_integers(index, number)


class Heavy(Dataset[torch.Tensor]):
    """Item i: 1,000 floats, after about 2 ms of CPU work; one in a hundred, always the same ones, sleeps
    0.15 s more."""

    SLEEP_S = 0.15

    def __init__(self, length: int) -> None:
        draw = random.Random(7)
        self.slow = [draw.random() < 0.01 for _ in range(length)]
        self.unsorted = numpy.random.default_rng(7).random(130_000)

    def __len__(self) -> int:
        return len(self.slow)

    def __getitem__(self, index: int) -> torch.Tensor:
        middle = float(numpy.sort(self.unsorted)[len(self.unsorted) // 2])
        if self.slow[index]:
            time.sleep(self.SLEEP_S)
        row = torch.full((1000,), middle)
        row[0] = index
        return row


def check_heavy(batch: torch.Tensor, number: int) -> None:
    """Each row's index, in order."""
    check_integers(batch[:, 0].long(), number)


def check_pictures(batch: Any, _number: int) -> None:
    """Shape and type; what a random crop shows is not known here."""
    images, labels = batch
    if images.shape[1:] != (3, SIDE, SIDE) or images.dtype != torch.uint8 or len(labels) != len(images):
        raise ValueError(
            f"not a batch of pictures: {images.dtype} {tuple(images.shape)}, {len(labels)} labels"
        )


def _same(found: torch.Tensor, wanted: torch.Tensor) -> None:
    if not torch.equal(found, wanted):
        raise ValueError(f"the loader handed out {found.tolist()[:8]}..., not {wanted.tolist()[:8]}...")
