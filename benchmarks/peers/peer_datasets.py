"""Hugging Face datasets: Arrow files with the JPEGs' bytes in them, torch's DataLoader, Pillow's pixels.
uint8, antialiased."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import datasets
import torch
import turn
from pixels import augmented, resized
from torch_loader import torch_loader


def make(task: turn.Task) -> None:
    """A dataset saved to disk, whose image column keeps the files' bytes."""
    datasets.disable_progress_bars()
    files = task.files
    images = [{"bytes": Path(path).read_bytes(), "path": None} for path, _ in files]
    features = datasets.Features({"image": datasets.Image(decode=False), "label": datasets.Value("int64")})
    datasets.Dataset.from_dict(
        {"image": images, "label": [label for _, label in files]}, features=features
    ).save_to_disk(task.data)


def load(task: turn.Task) -> Any:
    """The saved dataset with a transform of whole batches, as its documentation has it."""

    def transform(rows: dict[str, list[Any]]) -> dict[str, list[Any]]:
        return {
            **rows,
            "image": [torch.from_numpy(augmented(image["bytes"], task.size)) for image in rows["image"]],
        }

    def collate(rows: list[dict[str, Any]]) -> tuple[Any, Any]:
        return torch.stack([row["image"] for row in rows]), torch.tensor([row["label"] for row in rows])

    return torch_loader(
        datasets.load_from_disk(task.data).with_transform(transform), task, collate_fn=collate
    )


def crops(task: turn.Task) -> Iterator[Any]:
    """Pillow's resize of what is in the Arrow files."""
    return (resized(row["image"]["bytes"], task.size) for row in datasets.load_from_disk(task.data))


if __name__ == "__main__":
    turn.run(load, crops, make)
