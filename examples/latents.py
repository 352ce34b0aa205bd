"""Trains on latents that are computed once: an encoder's output for each image becomes a column of the packed
dataset, so that later epochs and runs decode nothing.

    fastload pack photos train.fl
    python examples/latents.py train.fl
    python examples/latents.py train.fl --append more-photos   # their latents come with them

The encoder is a stand-in of a few fixed convolutions; put your autoencoder's `encode` in its place. The model
learns to take noise out of latents of their class.
"""

from __future__ import annotations

import argparse
import tempfile
from pathlib import Path

import numpy as np
import numpy.typing as npt
import torch
from torch import nn
from torch.utils.data import Dataset

import fastload
from fastload import FastLoader, PackedDataset
from fastload import transforms as T
from fastload.sources import open_source

CHANNELS = 4


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("train", type=Path, help="packed dataset")
    parser.add_argument("--append", help="a folder of class folders, whose images are added first")
    parser.add_argument("--size", type=int, default=256, help="of the images that are encoded")
    parser.add_argument("--epochs", type=int, default=2)
    parser.add_argument("--batch-size", type=int, default=64)
    parser.add_argument("--workers", type=int, help="native threads; default: as many as there are CPUs")
    return parser.parse_args()


def encoder() -> nn.Module:
    """Images of 8-bit RGB to latents of an eighth of their sides."""
    with torch.random.fork_rng():
        torch.manual_seed(0)
        steps = [nn.Conv2d(3, 32, 4, 4), nn.SiLU(), nn.Conv2d(32, CHANNELS, 2, 2), nn.Tanh()]
        return nn.Sequential(*steps).eval().requires_grad_(False)


def latents_of(images: PackedDataset, options: argparse.Namespace) -> npt.NDArray[np.float16]:
    """The latents of all images of a dataset, in its order: (number, CHANNELS, size / 8, size / 8)."""
    encode = encoder()
    with FastLoader(images, batch_size=options.batch_size, num_workers=options.workers) as loader:
        return np.concatenate([encode(batch["image"] / 127.5 - 1).half().numpy() for batch in loader])


def whole_images(path: Path, size: int) -> PackedDataset:
    """The images alone, each as its middle square."""
    return PackedDataset(path, transform=[T.Resize(size), T.CenterCrop(size)], fields=("image",))


class WithLatents(Dataset[dict[str, object]]):
    """Images of a folder, as files' bytes, with their labels and latents."""

    def __init__(self, folder: str, options: argparse.Namespace) -> None:
        self.source = open_source(folder)
        self.classes = self.source.classes
        with tempfile.TemporaryDirectory() as scratch:
            packed = Path(scratch, "new.fl")
            fastload.pack(folder, packed)
            self.latents = latents_of(whole_images(packed, options.size), options)

    def __len__(self) -> int:
        return len(self.source)

    def __getitem__(self, index: int) -> dict[str, object]:
        item = self.source.read(index)
        return {"image": item.image, "label": item.values["label"], "latent": self.latents[index]}


def prepare(options: argparse.Namespace) -> None:
    """Gives each sample of the dataset its latent, and adds the new samples."""
    train = PackedDataset(options.train)
    if "latent" not in train.fields:
        with tempfile.TemporaryDirectory() as scratch:
            file = Path(scratch, "latent.npy")
            np.save(file, latents_of(whole_images(options.train, options.size), options))
            fastload.add_columns(options.train, file)
    if options.append:
        fastload.append(options.train, WithLatents(options.append, options))


def main() -> None:
    options = arguments()
    prepare(options)
    torch.manual_seed(0)
    data = PackedDataset(options.train, fields=("latent", "label"))
    model = nn.Sequential(
        nn.Conv2d(CHANNELS + 1, 64, 3, padding=1), nn.SiLU(), nn.Conv2d(64, CHANNELS, 3, padding=1)
    )
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    with FastLoader(data, batch_size=options.batch_size, shuffle=True, num_workers=0, seed=0) as loader:
        for epoch in range(options.epochs):
            total = 0.0
            for batch in loader:
                clean, labels = batch["latent"].float(), batch["label"]
                plane = labels.float().view(-1, 1, 1, 1).expand(-1, 1, *clean.shape[2:])
                noise = torch.randn_like(clean)
                loss = (model(torch.cat((clean + noise, plane), 1)) - noise).square().mean()
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()
                total += loss.item() * len(labels)
            print(f"epoch {epoch}: {len(data)} latents, loss {total / len(data):.3f}")


if __name__ == "__main__":
    main()
