"""A small folder of JPEGs and the same, packed."""

from __future__ import annotations

from pathlib import Path

import numpy
import pytest
from PIL import Image

IMAGES = 40


@pytest.fixture(scope="session")
def photo_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """CLASS/IMAGE, 40 JPEGs of two classes, smooth enough to be small and large enough to be cropped."""
    root = tmp_path_factory.mktemp("photos")
    generator = numpy.random.default_rng(11)
    for number in range(IMAGES):
        folder = root / ("cat", "dog")[number % 2]
        folder.mkdir(exist_ok=True)
        coarse = Image.fromarray(generator.integers(0, 256, (12, 16, 3), dtype=numpy.uint8))
        coarse.resize((160 + number, 120), Image.Resampling.BICUBIC).save(
            folder / f"{number:03}.jpg", quality=90
        )
    return root


@pytest.fixture(scope="session")
def packed(photo_folder: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder, packed."""
    from fastload import pack

    out = tmp_path_factory.mktemp("packed") / "photos.fl"
    pack(photo_folder, out, workers=1)
    return out
