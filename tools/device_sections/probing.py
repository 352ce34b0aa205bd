"""Probes: what one is, what all of them share, and the control that shows that a device is late."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch.utils.data import Dataset

from device_sections.report import Details, NotLate, Wrong
from fastload import FastLoader, pack
from fastload import transforms as T
from fastload.bench.quickstart import photo

Defect = Callable[[], AbstractContextManager[Any]]


@dataclass(frozen=True)
class Setting:
    """Sizes of the probes.

    Attributes:
        packed: a packed dataset of `images` images.
        batch, side: images of a batch, and their height and width.
        batches: batches that a probe of order compares.
        epochs: epochs after which memory is compared with the second one's.
        cycles: clock cycles for which a stream is stalled before a batch is used.
        segment: bytes that torch reserves at a time.
        run_others: lets every stream but the current one run; a device does so by itself.
        faults: sentences about calls that a driver would refuse, if the device keeps them.
        timed: True if times mean something here.
    """

    packed: Path
    images: int
    batch: int
    side: int
    batches: int
    epochs: int
    cycles: int
    segment: int
    run_others: Callable[[], None]
    faults: list[str]
    timed: bool

    def stall(self) -> None:
        """Queues work of some milliseconds on the current stream."""
        torch.cuda._sleep(self.cycles)


@dataclass(frozen=True)
class Probe:
    """A question to the device.

    Attributes:
        name: its name in the report.
        run: returns details, or raises Wrong.
        planted: the defects, by name, with each of which the answer has to be another.
        limit: seconds after which the process is ended.
    """

    name: str
    run: Callable[[Setting], Details]
    planted: dict[str, Defect]
    limit: float = 20


def write_packed(folder: Path, images: int, side: int) -> Path:
    """Packs images a little larger than `side`."""
    for number in range(images):
        path = folder / "photos" / f"class{number % 3}" / f"{number:03d}.jpg"
        path.parent.mkdir(parents=True, exist_ok=True)
        photo(number, side + 8 + number % 5, side + 20 + number % 7).save(path, quality=90)
    pack(folder / "photos", folder / "photos.fl", workers=1)
    return folder / "photos.fl"


class Rows(Dataset[Any]):
    """Sample i is an image full of i, and its label."""

    def __init__(self, count: int, side: int) -> None:
        self._count, self._side = count, side

    def __len__(self) -> int:
        return self._count

    def __getitem__(self, index: int) -> tuple[torch.Tensor, int]:
        return torch.full((3, self._side, self._side), index % 251, dtype=torch.uint8), index


def loader_of(setting: Setting, native: bool, **kwargs: Any) -> FastLoader[Any]:
    """A loader over packed data, by native threads, or over Rows, by worker processes. Slots are few, so
    that each is soon filled again."""
    common: dict[str, Any] = {"batch_size": setting.batch, "num_workers": 2, "prefetch_factor": 1, "seed": 3}
    if native:
        return FastLoader(
            setting.packed, **common | {"transform": T.Resize((setting.side, setting.side))} | kwargs
        )
    return FastLoader(Rows(setting.images, setting.side), **common | kwargs)


def epochs_of(setting: Setting) -> int:
    """Epochs that have at least the batches of a probe."""
    return -(-setting.batches // (setting.images // setting.batch))


def on_host(setting: Setting, native: bool) -> list[torch.Tensor]:
    """The images of each batch of an epoch, as the host has them."""
    with loader_of(setting, native) as loader:
        return [images.clone() for images, _ in loader]


def compare(got: list[torch.Tensor], want: list[torch.Tensor]) -> Details:
    """Compares tensors of the device, once it is done, with those of the host, which are repeated for further
    epochs.

    Raises:
        Wrong: some differ.
    """
    torch.cuda.synchronize()
    apart = [
        number for number, each in enumerate(got) if not torch.equal(each.cpu(), want[number % len(want)])
    ]
    if apart or not got or len(got) % len(want):
        raise Wrong(
            f"{len(apart)} of {len(got)} batches have other values", batches=len(got), apart=apart[:20]
        )
    return {"batches": len(got)}


def check_late(setting: Setting) -> None:
    """Raises NotLate unless a copy that is queued behind a stall reads what its source is filled with
    afterwards."""
    torch.cuda.synchronize()
    source = torch.empty(1 << 16, dtype=torch.uint8, pin_memory=True)
    source.fill_(1)
    with torch.cuda.stream(torch.cuda.Stream()):
        setting.stall()
        got = source.to("cuda", non_blocking=True)
    source.fill_(2)
    torch.cuda.synchronize()
    late = int((got == 2).sum())
    if late != len(source):
        raise NotLate(
            f"of {len(source)} bytes {len(source) - late} were copied before their source was overwritten",
            late=late,
        )


@contextmanager
def stalled(setting: Setting) -> Iterator[Any]:
    """A stream of the user's as the current one, on a device that has been seen to be late."""
    check_late(setting)
    stream = torch.cuda.Stream()
    with torch.cuda.stream(stream):
        yield stream
