"""OwnPhotos: a Dataset as programs have their own, around Pillow; tests of worker processes import it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from PIL import Image
from torch.utils.data import Dataset


class OwnPhotos(Dataset[Any]):
    """A program's own list of the JPEGs below a folder: (what its transform makes of the image, index)."""

    def __init__(self, root: Path, transform: Any) -> None:
        self.paths = sorted(root.rglob("*.jpg"))
        self.transform = transform

    def __len__(self) -> int:
        return len(self.paths)

    def __getitem__(self, index: int) -> Any:
        with open(self.paths[index], "rb") as file:
            image = Image.open(file).convert("RGB")
        return self.transform(image), index
