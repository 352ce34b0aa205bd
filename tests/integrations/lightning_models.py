"""A LightningModule that writes down what it is fed, for tests and programs."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
import torchvision_ops  # noqa: F401  (before anything imports torchvision)
from lightning.pytorch import Callback, LightningDataModule, LightningModule, Trainer
from numbers_data import Net, dataset_of, loader_of

from fastload import FastLoader


def trainer_of(root: Any, **options: Any) -> Trainer:
    """A quiet Trainer on the CPU that writes under root."""
    quiet: dict[str, Any] = {
        "logger": False,
        "enable_checkpointing": False,
        "enable_progress_bar": False,
        "enable_model_summary": False,
    }
    return Trainer(**{"accelerator": "cpu", "devices": 1, "default_root_dir": str(root), **quiet, **options})


class Recorder(LightningModule):
    """Keeps the labels of every training, validation and prediction batch, by epoch."""

    def __init__(self) -> None:
        super().__init__()
        self.net = Net()
        self.trained: list[list[int]] = []
        self.validated: list[list[int]] = []

    def on_train_epoch_start(self) -> None:
        self.trained.append([])

    def on_validation_epoch_start(self) -> None:
        self.validated.append([])

    def training_step(self, batch: Any, _: int) -> torch.Tensor:
        images, labels = batch
        if not self.trained:  # a run resumed in mid-epoch has no start of it
            self.trained.append([])
        self.trained[-1] += labels.tolist()
        loss: torch.Tensor = self.net(images).square().mean()
        return loss

    def validation_step(self, batch: Any, _: int) -> None:
        self.validated[-1] += batch[1].tolist()

    def predict_step(self, batch: Any, *_: Any) -> list[int]:
        labels: list[int] = batch[1].tolist()
        return labels

    def configure_optimizers(self) -> torch.optim.Optimizer:
        return torch.optim.SGD(self.parameters(), lr=0.01)


class SelfFed(Recorder):
    """A Recorder that makes its loaders in Lightning's hooks."""

    def __init__(self, form: str, packed: Any, **options: Any) -> None:
        super().__init__()
        self.form, self.packed, self.options = form, packed, options

    def train_dataloader(self) -> Any:
        return loader_of(self.form, self.packed, shuffle=True, **self.options)

    def val_dataloader(self) -> Any:
        return loader_of(self.form, self.packed, **self.options)


class FolderData(LightningDataModule):
    """An ImageFolder as a user's module holds it."""

    def __init__(self, packed: Any) -> None:
        super().__init__()
        self.packed, self.made = packed, 0

    def setup(self, stage: str) -> None:
        self.folder = dataset_of("files", self.packed)

    def train_dataloader(self) -> Any:
        self.made += 1
        return FastLoader(self.folder, batch_size=5, shuffle=True, num_workers=2)


class StopAt(Callback):
    """Saves a checkpoint after the batch of that number of the first epoch, and stops."""

    def __init__(self, batch: int, path: Path) -> None:
        self.batch, self.path = batch, path

    def on_train_batch_end(
        self, trainer: Any, pl_module: Any, outputs: Any, batch: Any, batch_idx: int
    ) -> None:
        if batch_idx + 1 == self.batch:
            trainer.save_checkpoint(self.path)
            trainer.should_stop = True
