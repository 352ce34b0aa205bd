"""Lightning's Trainer fed by FastLoader: a LightningModule that knows nothing of it, and a
LightningDataModule that makes the loaders.

    fastload pack photos/train train.fl && fastload pack photos/val val.fl
    python examples/lightning_module.py train.fl val.fl
    python examples/lightning_module.py train.fl val.fl --devices 4         # DDP: Lightning puts its sampler
    in python examples/lightning_module.py train.fl val.fl --resume checkpoints/last.ckpt

Lightning's checkpoints hold the loader's state, so that a run goes on with the batch after the last one it
had. Needs Lightning and torchvision: pip install lightning torchvision.
"""

from __future__ import annotations

import argparse
import os
from typing import Any

import torch
from lightning.pytorch import LightningDataModule, LightningModule, Trainer, seed_everything
from lightning.pytorch.callbacks import ModelCheckpoint
from lightning.pytorch.loggers import CSVLogger
from torch import Tensor
from torch.nn.functional import cross_entropy
from torchvision.models import get_model

from fastload import FastLoader, PackedDataset
from fastload import augment as A
from fastload import transforms as T

NORMALIZE = T.Normalize((0.485, 0.456, 0.406), (0.229, 0.224, 0.225))


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("train", help="packed dataset")
    parser.add_argument("val", help="packed dataset")
    parser.add_argument("--model", default="resnet50", help="a name that torchvision has")
    parser.add_argument("--devices", type=int, default=1)
    parser.add_argument("--epochs", type=int, default=90)
    parser.add_argument("--batch-size", type=int, default=64, help="of each device")
    parser.add_argument("--size", type=int, default=224)
    parser.add_argument("--lr", type=float, default=0.05)
    parser.add_argument("--log-every", type=int, default=50, help="steps")
    parser.add_argument("--save-every", type=int, default=1000, help="steps")
    parser.add_argument("--out", default="checkpoints", help="folder of checkpoints and metrics.csv")
    parser.add_argument("--resume", help="a checkpoint to go on from")
    parser.add_argument("--seed", type=int, default=0)
    return parser.parse_args()


class PackedImages(LightningDataModule):
    """Packed images, cropped by native threads and augmented on the Trainer's device."""

    def __init__(self, train: str, val: str, batch_size: int, size: int, seed: int, devices: int) -> None:
        super().__init__()
        crop = [T.RandomResizedCrop(size), T.RandomHorizontalFlip()]
        self.train = PackedDataset(train, transform=crop)
        self.val = PackedDataset(val, transform=[T.Resize(size * 8 // 7), T.CenterCrop(size), NORMALIZE])
        workers = None if devices == 1 else max(1, (os.cpu_count() or 1) // devices)
        self.options: dict[str, Any] = {
            "batch_size": batch_size,
            "seed": seed,
            "num_workers": workers,
            "memory_format": torch.channels_last,
        }

    def train_dataloader(self) -> FastLoader[Any]:
        augment = [A.AugmentBatch([A.RandAugment(2, 9), A.RandomErasing(0.1)]), NORMALIZE]
        return FastLoader(
            self.train,
            shuffle=True,
            drop_last=True,
            device=self.device,
            batch_transform=augment,
            **self.options,
        )

    def val_dataloader(self) -> FastLoader[Any]:
        return FastLoader(self.val, device=self.device, **self.options)

    @property
    def device(self) -> torch.device:
        """This process's: Lightning has chosen it by the time it asks for loaders, and then finds nothing
        left to move."""
        assert self.trainer is not None
        return self.trainer.strategy.root_device


class Classifier(LightningModule):
    def __init__(self, model: str, classes: int, lr: float) -> None:
        super().__init__()
        self.save_hyperparameters()
        self.lr = lr
        self.model = get_model(model, num_classes=classes).to(memory_format=torch.channels_last)

    def training_step(self, batch: tuple[Tensor, Tensor], _: int) -> Tensor:
        images, labels = batch
        loss = cross_entropy(self.model(images), labels, label_smoothing=0.1)
        self.log("loss", loss, prog_bar=True)
        return loss

    def validation_step(self, batch: tuple[Tensor, Tensor], _: int) -> None:
        images, labels = batch
        accuracy = (self.model(images).argmax(1) == labels).float().mean()
        self.log("accuracy", accuracy, prog_bar=True, sync_dist=True, batch_size=len(labels))

    def configure_optimizers(self) -> Any:
        optimizer = torch.optim.SGD(self.parameters(), lr=self.lr, momentum=0.9, weight_decay=5e-5)
        # By epochs: asking for trainer.estimated_stepping_batches here makes Lightning (2.6) forget the
        # loader's state on --resume, its issue 20550.
        return [optimizer], [
            torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, self.trainer.max_epochs or 1)
        ]


def main() -> None:
    args = arguments()
    seed_everything(args.seed)
    data = PackedImages(args.train, args.val, args.batch_size, args.size, args.seed, args.devices)
    model = Classifier(args.model, len(data.train.classes), args.lr)
    trainer = Trainer(
        devices=args.devices,
        precision="bf16-mixed" if torch.cuda.is_available() else "32-true",
        max_epochs=args.epochs,
        log_every_n_steps=args.log_every,
        callbacks=[ModelCheckpoint(args.out, save_last=True, every_n_train_steps=args.save_every)],
        logger=CSVLogger(args.out),
    )
    trainer.fit(model, data, ckpt_path=args.resume)


if __name__ == "__main__":
    main()
