"""CIFAR-style training from raw pixels: small images stored as they are, padded crops, flips and erasing on
the device.

    fastload pack photos/train train.fl --encode raw && fastload pack photos/val val.fl --encode raw
    python examples/cifar.py train.fl val.fl

CIFAR itself, as torchvision has it, is packed from Python:

    from fastload import pack
    from torchvision.datasets import CIFAR10
    pack(CIFAR10(".", train=True, download=True), "train.fl", encode="raw")
    pack(CIFAR10(".", train=False), "val.fl", encode="raw")
"""

from __future__ import annotations

import argparse
from itertools import pairwise
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from fastload import FastLoader, PackedDataset
from fastload import augment as A
from fastload import transforms as T

NORMALIZE = T.Normalize((0.4914, 0.4822, 0.4465), (0.2470, 0.2435, 0.2616))


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("train", help="packed dataset")
    parser.add_argument("val", help="packed dataset")
    parser.add_argument("--epochs", type=int, default=30)
    parser.add_argument("--batch-size", type=int, default=128)
    parser.add_argument("--size", type=int, default=32, help="images of another size are resized to it")
    parser.add_argument("--width", type=int, default=64, help="channels of the first layer")
    parser.add_argument("--lr", type=float, default=0.01)
    parser.add_argument("--weight-decay", type=float, default=0.05)
    parser.add_argument("--seed", type=int, default=0)
    return parser.parse_args()


class Residual(nn.Module):
    """Two convolutions with a way around them."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.body = nn.Sequential(*convolution(width, width), *convolution(width, width))

    def forward(self, x: Tensor) -> Tensor:
        return x + self.body(x)


def convolution(before: int, after: int) -> list[nn.Module]:
    return [nn.Conv2d(before, after, 3, padding=1, bias=False), nn.BatchNorm2d(after), nn.ReLU(inplace=True)]


def make_model(width: int, classes: int) -> nn.Module:
    """A small residual network: three halvings, twice the channels at each."""
    layers: list[nn.Module] = [*convolution(3, width)]
    for before, after in pairwise((width, 2 * width, 4 * width, 8 * width)):
        layers += [*convolution(before, after), nn.MaxPool2d(2), Residual(after)]
    return nn.Sequential(*layers, nn.AdaptiveMaxPool2d(1), nn.Flatten(), nn.Linear(8 * width, classes))


@torch.inference_mode()
def accuracy(model: nn.Module, loader: FastLoader[Any]) -> float:
    model.eval()
    right = sum((model(images).argmax(1) == labels).sum() for images, labels in loader)
    return float(right) / len(loader.dataset)


def main() -> None:
    args = arguments()
    torch.manual_seed(args.seed)
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    same_size = T.Resize((args.size, args.size))  # nothing to do for images that have it
    data = PackedDataset(args.train, transform=same_size)
    train: FastLoader[Any] = FastLoader(
        data,
        args.batch_size,
        shuffle=True,
        drop_last=True,
        seed=args.seed,
        device=device,
        memory_format=torch.channels_last,
        batch_transform=[
            A.AugmentBatch(
                [
                    A.RandomCrop(args.size, padding=args.size // 8),
                    A.RandomHorizontalFlip(),
                    A.RandomErasing(0.25),
                ]
            ),
            NORMALIZE,
        ],
    )
    val: FastLoader[Any] = FastLoader(
        args.val,
        args.batch_size,
        transform=[same_size, NORMALIZE],
        device=device,
        memory_format=torch.channels_last,
    )

    model = make_model(args.width, len(data.classes)).to(device, memory_format=torch.channels_last)
    optimizer = torch.optim.AdamW(model.parameters(), weight_decay=args.weight_decay)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, args.lr, total_steps=args.epochs * len(train))
    for epoch in range(args.epochs):
        model.train()
        losses = torch.zeros((), device=device)  # read once an epoch: reading it waits for the device
        for images, labels in train:
            with torch.autocast(device.type, torch.bfloat16, enabled=device.type == "cuda"):
                loss = cross_entropy(model(images), labels, label_smoothing=0.1)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            schedule.step()
            losses += loss.detach()
        print(
            f"epoch {epoch}: loss {losses.item() / len(train):.4f}, accuracy {accuracy(model, val):.2%}",
            flush=True,
        )
    print(train.health.report())
    train.close()
    val.close()


if __name__ == "__main__":
    main()
