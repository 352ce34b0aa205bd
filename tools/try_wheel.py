"""Tries an installed fastload where there is no compiler: packs pictures made here, checks, unpacks and loads
them.

The workflow of the wheels runs it in a container for each wheel. Without torch the commands are tried alone.
"""

from __future__ import annotations

import importlib.util
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from PIL import Image


def main() -> None:
    """Raises where there is a compiler, a command fails, or what is unpacked or loaded is not what was
    packed."""
    if (
        compiler := shutil.which("cc") or shutil.which("gcc")
    ) is not None and "--with-compiler" not in sys.argv:
        raise SystemExit(f"{compiler} is here: this tells nothing about a machine without one")
    with tempfile.TemporaryDirectory() as scratch:
        source, packed, unpacked = (Path(scratch) / name for name in ("photos", "photos.fl", "unpacked"))
        for number in range(6):
            folder = source / f"class{number % 2}"
            folder.mkdir(parents=True, exist_ok=True)
            picture = Image.linear_gradient("L").resize((200 + number, 150)).convert("RGB")
            picture.save(folder / f"{number}.jpg", quality=90)
        for arguments in (
            ["--version"],
            ["pack", source, packed, "--encode", "keep"],
            ["verify", packed, "--decode"],
            ["unpack", packed, unpacked],
        ):
            subprocess.run([sys.executable, "-m", "fastload", *map(str, arguments)], check=True)
        given, found = (
            {each.read_bytes() for each in folder.rglob("*.jpg")} for folder in (source, unpacked)
        )
        if given != found or not given:
            raise SystemExit("what was unpacked is not what was packed")
        if importlib.util.find_spec("torch") is not None:
            load(packed)


def load(packed: Path) -> None:
    """Raises where an epoch of a packed dataset is not six images in two classes."""
    from fastload import FastLoader, PackedDataset, transforms

    with FastLoader(
        PackedDataset(str(packed), transform=[transforms.RandomResizedCrop(64)]), batch_size=2, seed=0
    ) as loader:
        labels = [
            label
            for images, batch in loader
            if tuple(images.shape) == (2, 3, 64, 64)
            for label in batch.tolist()
        ]
    if sorted(labels) != [0, 0, 0, 1, 1, 1]:
        raise SystemExit(f"the epoch had the labels {labels}")


if __name__ == "__main__":
    main()
