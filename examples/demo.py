"""The main job on real photographs: write an ImageFolder, pack it, train from it, measure it. `make demo`
runs it.

The photographs are those that scikit-image and scikit-learn ship inside their wheels; nothing is downloaded.
Each is a class, and each sample is a crop of it at an ImageNet-like size.
"""

from __future__ import annotations

import json
import shlex
import shutil
import subprocess
import sys
import time
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path

import torch
from PIL import Image
from rich.console import Console
from torch import nn

from fastload import FastLoader, PackedDataset
from fastload import transforms as T
from fastload.bench.quickstart import write_photographs
from fastload.bench.report import sentence

EPOCHS = 2
OUT = Path("demo")
console = Console(highlight=False)


def photographs() -> dict[str, Callable[[], Image.Image]]:
    """Functions that load a photograph each, by the name of its class."""
    from skimage import data
    from sklearn.datasets import load_sample_image

    loads = {
        "astronaut": data.astronaut,
        "cat": data.chelsea,
        "coffee": data.coffee,
        "flower": lambda: load_sample_image("flower.jpg"),
        "galaxies": data.hubble_deep_field,
        "motorcycle": lambda: data.stereo_motorcycle()[0],
        "retina": data.retina,
        "rocket": data.rocket,
        "temple": lambda: load_sample_image("china.jpg"),
    }
    return {name: lambda load=load: Image.fromarray(load()) for name, load in loads.items()}


def write_source(root: Path) -> None:
    """Writes root/CLASS/NUMBER.jpg, the same files each time."""
    files = write_photographs(root, photographs())
    classes = len({path.parent for path in files})
    console.print(
        f"{len(files)} JPEGs in {classes} classes, "
        f"{sum(path.stat().st_size for path in files) / 1e6:.1f} MB: {root}"
    )


def fastload(*arguments: object) -> None:
    """Shows and runs a `fastload` command as a user would type it; ends the demo when it fails."""
    words = [str(each) for each in arguments]
    console.print(f"[bold]$ fastload {shlex.join(words)}[/bold]", soft_wrap=True)
    sys.stdout.flush()
    done = subprocess.run([str(Path(sys.executable).with_name("fastload")), *words], check=False)
    if done.returncode:
        raise SystemExit(done.returncode)


def small_network(classes: int) -> nn.Module:
    """A CNN of four strided convolutions, small enough for a CPU."""
    layers: list[nn.Module] = []
    widths = [3, 16, 32, 64, 96]
    for before, after in pairwise(widths):
        layers += [
            nn.Conv2d(before, after, 3, stride=2, padding=1, bias=False),
            nn.BatchNorm2d(after),
            nn.ReLU(),
        ]
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(widths[-1], classes))


def train(packed: Path | str, after_epoch: Callable[[FastLoader], None] = lambda _: None) -> None:
    """Trains for two epochs; prints loss and accuracy over each epoch's samples as they came, and calls
    `after_epoch` with the loader."""
    torch.manual_seed(0)
    dataset = PackedDataset(str(packed), transform=[T.RandomResizedCrop(128), T.RandomHorizontalFlip()])
    model = small_network(len(dataset.classes)).to(memory_format=torch.channels_last)
    optimizer = torch.optim.AdamW(model.parameters(), lr=4e-3)
    with FastLoader(
        dataset, batch_size=32, shuffle=True, seed=0, memory_format=torch.channels_last
    ) as loader:
        for epoch in range(EPOCHS):
            start, loss_sum, right, seen = time.perf_counter(), 0.0, 0, 0
            for images, labels in loader:
                output = model(images.float().div(127.5).sub(1.0))
                loss = nn.functional.cross_entropy(output, labels)
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()
                seen += len(labels)
                loss_sum += loss.item() * len(labels)
                right += int((output.argmax(1) == labels).sum())
            console.print(
                f"epoch {epoch + 1}: loss {loss_sum / seen:.3f}, accuracy {right / seen:.0%} of "
                f"{seen} samples "
                f"(chance {1 / len(dataset.classes):.0%}), {time.perf_counter() - start:.1f} s"
            )
            after_epoch(loader)


def main() -> None:
    source, packed = OUT / "photos", OUT / "photos.fl"
    shutil.rmtree(OUT, ignore_errors=True)

    console.rule("1. Photographs")
    write_source(source)

    console.rule("2. Pack them, once")
    fastload("pack", source, packed)

    console.rule("3. Train a small CNN from the pack")
    train(packed)

    console.rule("4. Measure, against torch's DataLoader on the same photographs")
    result, plot = OUT / "bench.json", OUT / "bench.png"
    fastload("bench", packed, "--against", source, "--json", result, "--plot", plot)
    console.rule("Done")
    console.print(f"[bold]{sentence(json.loads(result.read_text()))}[/bold]")
    console.print(f"plot: {plot.resolve()}", soft_wrap=True)


if __name__ == "__main__":
    main()
