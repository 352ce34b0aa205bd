"""Data for bench_fields.py: photographs with objects in COCO's layout, and pairs of photographs with a
16-bit mask."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from fastload.bench.listing import list_folder
from fastload.sources.pixels import open_image

OBJECTS = 7
"""Mean of an image, as COCO's."""
_CORNERS = 24


def size_of(path: Path) -> tuple[int, int]:
    """(width, height) of an image file."""
    with path.open("rb") as file, open_image(file) as image:
        return image.size


def write_coco(source: Path, out: Path, *, outlines: bool = True) -> Path:
    """A folder with train2017/ and annotations/instances_train2017.json: each photograph with objects, and
    ellipses as their outlines."""
    (out / "annotations").mkdir(parents=True, exist_ok=True)
    images: list[dict[str, Any]] = []
    annotations: list[dict[str, Any]] = []
    rng = np.random.default_rng(0)
    for number, (path, _) in enumerate(list_folder(source)):
        link = out / "train2017" / f"{number:012d}.jpg"
        link.parent.mkdir(exist_ok=True)
        link.unlink(missing_ok=True)
        link.symlink_to(path.resolve())
        width, height = size_of(path)
        images.append({"id": number + 1, "file_name": link.name, "height": height, "width": width})
        for _ in range(rng.poisson(OBJECTS)):
            outline = _ellipse(rng, width, height)
            low, high = outline.min(0), outline.max(0)
            annotations.append(
                {
                    "id": len(annotations) + 1,
                    "image_id": number + 1,
                    "category_id": int(rng.integers(1, 81)),
                    "bbox": [*low.tolist(), *(high - low).tolist()],
                    "area": float(np.prod(high - low)),
                    "iscrowd": 0,
                    **({"segmentation": [outline.reshape(-1).tolist()]} if outlines else {}),
                }
            )
    categories = [{"id": number, "name": f"class {number}"} for number in range(1, 81)]
    text = json.dumps({"images": images, "annotations": annotations, "categories": categories})
    (out / "annotations" / "instances_train2017.json").write_text(text)
    return out


def _ellipse(rng: np.random.Generator, width: int, height: int) -> npt.NDArray[np.float64]:
    """Corners (n, 2) of an ellipse in the image, from a tenth to half of its sides."""
    sides = rng.uniform(0.05, 0.25, 2) * (width, height)
    middle = rng.uniform(sides, (width, height) - sides)
    turn = np.linspace(0, 2 * np.pi, _CORNERS, endpoint=False)
    return np.round(middle + sides * np.stack([np.cos(turn), np.sin(turn)], 1), 2)


class Pairs:
    """A source of (image, second, mask): two photographs, and 16-bit labels as large as the first, in
    blocks of 16 pixels."""

    title, classes, concurrent = "pairs", None, True

    def __init__(self, folder: Path) -> None:
        from fastload.store import Field

        self.fields = (Field("second", "image"), Field("mask", "mask", "uint16"))
        self._files = [path for path, _ in list_folder(folder)]

    def __len__(self) -> int:
        return len(self._files)

    def name(self, position: int) -> str:
        return str(self._files[position])

    def read(self, position: int) -> Any:
        from fastload.packing import Item

        data, second = self._files[position].read_bytes(), self._files[position - 1].read_bytes()
        width, height = size_of(self._files[position])
        coarse = np.random.default_rng(position).integers(
            0, 2000, (height // 16 + 1, width // 16 + 1), np.uint16
        )
        mask = np.kron(coarse, np.ones((16, 16), np.uint16))[:height, :width]
        return Item(self.name(position), data, {"second": second, "mask": mask})
