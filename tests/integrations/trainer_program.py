"""A program with transformers' Trainer on a folder of JPEGs: prints the checksum of each batch of its model,
and the loader's module.

    python trainer_program.py FOLDER LOADER...

The loader "own" leaves the Trainer as it is; "torch" and "fastload" override get_train_dataloader(), as
docs/guide/frameworks.md shows. The Trainer seeds all generators, so that each loader begins as the first one
does.
"""

from __future__ import annotations

import random
import sys
import tempfile
import zlib
from pathlib import Path
from typing import Any

import torch
import torchvision_ops  # noqa: F401  (torchvision, which transformers imports, asks for operators that a plain CPU build lacks)
from PIL import Image
from torch.utils.data import Dataset
from transformers import Trainer, TrainingArguments

from fastload import FastLoader

SEEN: list[int] = []


class Photos(Dataset[Any]):
    """Random crops of photographs, drawn from all three generators that the Trainer seeds."""

    def __init__(self, folder: str) -> None:
        self.paths = sorted(Path(folder).rglob("*.jpg"))

    def __len__(self) -> int:
        return len(self.paths)

    def __getitem__(self, index: int) -> dict[str, Any]:
        import numpy as np

        image = Image.open(self.paths[index]).convert("RGB")
        left, upper = random.randrange(8), int(np.random.randint(8))
        image = image.resize(
            (32, 32), Image.Resampling.BICUBIC, box=(left, upper, image.width - 4, image.height - 4)
        )
        if torch.rand(1) < 0.5:
            image = image.transpose(Image.Transpose.FLIP_LEFT_RIGHT)
        return {"pixel_values": torch.from_numpy(np.array(image)).permute(2, 0, 1).float(), "labels": index}


class Model(torch.nn.Module):
    """One weight; it notes the checksums of its batches."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = torch.nn.Parameter(torch.zeros(1))

    def forward(self, pixel_values: torch.Tensor, labels: torch.Tensor) -> dict[str, torch.Tensor]:
        """A loss, whatever it is of."""
        SEEN.append(zlib.crc32(pixel_values.numpy().tobytes() + labels.numpy().tobytes()))
        return {"loss": (self.weight * pixel_values.mean()).square().sum()}


class Overridden(Trainer):
    """A Trainer with a loader of the program's."""

    loader: Any = FastLoader

    def get_train_dataloader(self) -> Any:
        """A loader by the Trainer's arguments."""
        return self.loader(
            self.train_dataset,
            batch_size=self._train_batch_size,
            sampler=self._get_train_sampler(),
            collate_fn=self.data_collator,
            num_workers=self.args.dataloader_num_workers,
            drop_last=self.args.dataloader_drop_last,
        )


def train(folder: str, loader: str) -> None:
    """Trains for two epochs."""
    SEEN.clear()
    with tempfile.TemporaryDirectory() as out:
        options = {
            "output_dir": out,
            "num_train_epochs": 2,
            "per_device_train_batch_size": 4,
            "dataloader_num_workers": 2,
            "seed": 3,
        }
        quiet = {
            "use_cpu": True,
            "report_to": [],
            "save_strategy": "no",
            "remove_unused_columns": False,
            "disable_tqdm": True,
        }
        kind = Trainer if loader == "own" else Overridden
        trainer = kind(
            model=Model(), args=TrainingArguments(**options, **quiet), train_dataset=Photos(folder)
        )
        if loader == "torch":
            trainer.loader = torch.utils.data.DataLoader
        trainer.train()
        sys.stdout.write(f"LOADER {torch.utils.data.DataLoader.__module__}\n")
        states = torch.initial_seed(), float(torch.rand(1)), random.random()
        sys.stdout.write(" ".join(map(str, ["SEEN", *SEEN, *states])) + "\n")


if __name__ == "__main__":
    for _loader in sys.argv[2:]:
        train(sys.argv[1], _loader)
