"""Pictures that behave like photographs, made here: real JPEG files for tests that need many, or of given
sizes."""

from __future__ import annotations

import io
import warnings
from collections.abc import Callable
from pathlib import Path

import numpy as np
import numpy.typing as npt
from PIL import Image

from fastload.bench.quickstart import photo as photo


def write_folder(
    root: Path, count: int, classes: int = 3, size: Callable[[int], tuple[int, int]] | None = None
) -> Path:
    """An ImageFolder of `count` JPEGs, of mixed sizes unless size(i) -> (height, width) says otherwise."""
    for i in range(count):
        height, width = size(i) if size else (150 + 37 * i % 200, 180 + 53 * i % 220)
        folder = root / f"class{i % classes}"
        folder.mkdir(parents=True, exist_ok=True)
        photo(i, height, width).save(
            folder / f"{i:04d}.jpg", quality=90 + i % 5, subsampling=2 if i % 4 else 0
        )
    return root


def by_pillow(data: bytes) -> npt.NDArray[np.uint8] | None:
    """The pixels that ImageFolder's loader makes of a file; None where it raises."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            return np.asarray(Image.open(io.BytesIO(data)).convert("RGB"))
        except Exception:
            return None


def with_scans(data: bytes, count: int) -> bytes:
    """A JPEG that ends after so many scans; all of it if it has no more."""
    at = 2
    while True:
        at = data.index(b"\xff", at)
        marker = data[at + 1]
        if marker == 0xD9:
            return data
        if marker == 0xFF:
            at += 1
        elif marker == 0 or 0xD0 <= marker <= 0xD7:  # of coded data
            at += 2
        elif count == 0:
            return data[:at] + b"\xff\xd9"
        else:
            count -= marker == 0xDA
            at += 2 + int.from_bytes(data[at + 2 : at + 4], "big")
