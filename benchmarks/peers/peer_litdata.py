"""LitData: its chunks of the JPEGs' bytes on the local disk, its own loader, Pillow's pixels. uint8,
antialiased."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import litdata
import turn
from pixels import augmented, resized


def item(found: tuple[str, int]) -> dict[str, Any]:
    """A sample as it is stored."""
    return {"image": Path(found[0]).read_bytes(), "label": found[1]}


def make(task: turn.Task) -> None:
    """Chunks of its default size."""
    litdata.optimize(item, inputs=task.files, output_dir=task.data, chunk_bytes="64MB", num_workers=1)


def load(task: turn.Task) -> Any:
    """StreamingDataset in StreamingDataLoader."""

    def sample(found: dict[str, Any]) -> tuple[Any, int]:
        return augmented(found["image"], task.size), found["label"]

    dataset = litdata.StreamingDataset(
        task.data, shuffle=True, drop_last=True, seed=task.seed, transform=sample
    )
    return litdata.StreamingDataLoader(
        dataset, batch_size=task.batch, drop_last=True, num_workers=task.workers, persistent_workers=True
    )


def crops(task: turn.Task) -> Iterator[Any]:
    """Pillow's resize of what is in the chunks."""
    return (
        resized(found["image"], task.size) for found in litdata.StreamingDataset(task.data, shuffle=False)
    )


if __name__ == "__main__":
    turn.run(load, crops, make)
