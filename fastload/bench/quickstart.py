"""Quickstart: photographs made on the spot, and two loaders side by side in one process; the
documentation's first page has them."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from PIL.Image import Image
    from torch.utils.data import DataLoader

CROPS = 48
"""Files of each photograph."""


def photo(seed: int, height: int, width: int) -> Image:
    """A picture with the smoothness and detail of a photograph, the same for the same seed."""
    from PIL import Image

    rng = np.random.default_rng(seed)
    coarse = Image.fromarray(rng.integers(0, 256, (6, 8, 3), dtype=np.uint8)).resize(
        (width, height), Image.Resampling.BICUBIC
    )
    fine = rng.normal(0, 12, (height, width, 1))
    return Image.fromarray(np.clip(np.asarray(coarse) + fine, 0, 255).astype(np.uint8))


def drawn(count: int) -> dict[str, Callable[[], Image]]:
    """Photographs that need no file and no network: a function that draws each, by the name of its class."""
    return {f"drawing{seed}": partial(photo, seed, 900, 1200) for seed in range(count)}


def write_photographs(
    root: str | Path, photographs: Mapping[str, Callable[[], Image]] | None = None
) -> list[Path]:
    """Writes root/CLASS/NUMBER.jpg, the same files each time: crops of each photograph at the sizes of
    ImageNet's.

    Args:
        root: a folder; files in it that have these names are written anew.
        photographs: a function that makes each photograph, by the name of its class; None: six that are
            drawn, 288 files in all.

    Returns:
        Paths of the files.
    """
    rng = np.random.default_rng(0)
    return [
        path
        for name, make in (photographs or drawn(6)).items()
        for path in _crops(Path(root) / name, make(), rng)
    ]


def _crops(folder: Path, photograph: Image, rng: np.random.Generator) -> Iterator[Path]:
    from PIL import Image

    folder.mkdir(parents=True, exist_ok=True)
    for number in range(CROPS):
        side = int(rng.integers(440, 561))
        width, height = (side, side * 3 // 4) if rng.random() < 0.75 else (side * 3 // 4, side)
        fit = min(photograph.width / width, photograph.height / height) * rng.uniform(0.7, 1.0)
        x = rng.uniform(0, photograph.width - width * fit)
        y = rng.uniform(0, photograph.height - height * fit)
        crop = photograph.resize(
            (width, height), Image.Resampling.LANCZOS, box=(x, y, x + width * fit, y + height * fit)
        )
        path = folder / f"{number:03d}.jpg"
        crop.save(path, quality=int(rng.integers(90, 97)), subsampling=0 if rng.random() < 0.1 else 2)
        yield path


def side_by_side(ours: DataLoader[Any], theirs: DataLoader[Any], epochs: int = 3) -> str:
    """Two lines on the rates of a FastLoader and of torch's DataLoader over the same dataset.

    Each runs its first epoch, in which workers start and files are looked at; then they take turns, epoch by
    epoch, the first of a turn being now one and now the other. A rate is that of the median of the later
    epochs.

    Args:
        ours, theirs: the loaders; all epochs are iterated to their end, and batches are dropped.
        epochs: epochs of each after the first, 1 or more.
    """
    loaders = (ours, theirs)
    first = [_seconds(loader) for loader in loaders]
    later: tuple[list[float], list[float]] = ([], [])
    for turn in range(epochs):
        for which in (0, 1) if turn % 2 else (1, 0):
            later[which].append(_seconds(loaders[which]))
    middle = [median(each) for each in later]
    samples = [len(loader.dataset) for loader in loaders]  # type: ignore[arg-type]
    fastload, torchs = (count / seconds for count, seconds in zip(samples, middle, strict=True))
    rates = (
        f"FastLoader {fastload:,.0f} images/s, torch's DataLoader {torchs:,.0f} (first epoch: "
        f"{first[1] / first[0]:.1f} times)"
    )
    return f"{rates}\n{verdict(fastload / torchs)}"


def verdict(ratio: float) -> str:
    """A sentence on `ratio`, fastload's rate over torch's."""
    if ratio >= 1.05:
        return f"fastload is {ratio:.1f} times as fast as torch here."
    return f"fastload is no faster than torch here: {ratio:.2f} of its rate."


def _seconds(loader: DataLoader[Any]) -> float:
    began = time.perf_counter()
    for _ in loader:
        pass
    return time.perf_counter() - began
