"""What the packing tests share: making files, and looking at what was stored."""

from __future__ import annotations

import io
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

from fastload._native import core
from fastload.store import DatasetReader


def picture(seed: int, height: int, width: int) -> Image.Image:
    """Smooth colours with some grain: compresses as a photograph does."""
    rng = np.random.default_rng(seed)
    coarse = Image.fromarray(rng.integers(0, 256, (5, 7, 3), dtype=np.uint8))
    smooth = np.asarray(coarse.resize((width, height), Image.Resampling.BICUBIC)).astype(np.float64)
    return Image.fromarray(np.clip(smooth + rng.normal(0, 10, (height, width, 1)), 0, 255).astype(np.uint8))


def encoded(image: Image.Image, form: str = "JPEG", **options: Any) -> bytes:
    """The image as a file's bytes."""
    out = io.BytesIO()
    image.save(out, form, **options)
    return out.getvalue()


def tree(root: Path, files: dict[str, bytes]) -> Path:
    """Files below root, folders made as needed."""
    for name, data in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)
    return root


def all_kinds(root: Path) -> Path:
    """JPEGs of every sampling and several kinds, with and without restarts and metadata, and one PNG."""
    files = {}
    for i, sampling in enumerate(("4:4:4", "4:2:2", "4:2:0")):
        for j, restart in enumerate((0, 3, 100)):
            photo = picture(10 * i + j, 210 + 17 * j, 190 + 31 * i)
            options = {"restart_marker_blocks": restart} if restart else {}
            files[f"a/{i}{j}.jpg"] = encoded(
                photo, quality=80 + 5 * j, subsampling=sampling, comment=b"x" * 300, **options
            )
    files["b/grey.jpg"] = encoded(picture(50, 200, 210).convert("L"), quality=90)
    files["b/progressive.jpg"] = encoded(picture(51, 220, 230), quality=90, progressive=True)
    files["b/cmyk.jpg"] = encoded(picture(52, 200, 200).convert("CMYK"), quality=90)
    files["b/png.jpg"] = encoded(picture(53, 150, 160), "PNG")
    # 4:4:0.
    files["b/tall.jpg"] = core.jpeg_transform(
        encoded(picture(54, 192, 208), quality=90, subsampling="4:2:2"), 6
    )
    return tree(root, files)


@dataclass
class Stored:
    """One sample of a packed dataset, as it lies there."""

    kind: int
    data: bytes
    height: int
    width: int
    values: dict[str, Any]

    @property
    def pixels(self) -> np.ndarray[Any, np.dtype[np.uint8]]:
        """The image, decoded."""
        if self.kind == core.KIND_JPEG:
            return core.jpeg_decode(self.data)
        if self.kind == core.KIND_DCT:
            return core.jpeg_decode(core.DctCoder().restore(self.data))
        if self.kind in (core.IMAGE_KINDS["png"], core.IMAGE_KINDS["webp"]):
            return core.stored_decode(self.kind, self.data)
        height, width, channels = np.frombuffer(self.data[:12], "<u4")
        return np.frombuffer(self.data[12:], np.uint8).reshape(height, width, channels)


def stored_samples(path: Path) -> list[Stored]:
    """Every sample of a dataset."""
    out = []
    with DatasetReader(path) as reader:
        numbers = dict(enumerate(reader.schema))
        heights, widths = reader.column("__height__"), reader.column("__width__")
        for index in range(reader.count):
            kind, data = -1, b""
            values: dict[str, Any] = {
                f.name: reader.column(f.name)[index] for f in reader.schema if f.is_column
            }
            for number, each, content in reader.record_fields(index):
                if each == core.KIND_INDEX:
                    continue
                if numbers[number].kind == "image":
                    kind, data = each, content
                else:
                    values[numbers[number].name] = content
            out.append(Stored(kind, data, int(heights[index]), int(widths[index]), values))
    return out
