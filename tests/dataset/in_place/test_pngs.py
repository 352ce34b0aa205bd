"""Folders of PNGs, and of PNGs beside JPEGs, in place: native threads decode them, and the batches are
torch's."""

from __future__ import annotations

import random
import warnings
from pathlib import Path

import numpy as np
import pytest
from in_place_helpers import EXACT, assert_as_torch, assert_resampled_alike, image_folder
from pictures import photo
from PIL import Image, PngImagePlugin
from png_maker import FORMS, png
from torchvision import datasets, transforms
from torchvision.transforms import v2

from fastload import FastLoader
from fastload.dataset.in_place import formats

WHOLE = transforms.Compose([transforms.CenterCrop((45, 45)), transforms.PILToTensor()])
"""All of an image of up to 40 x 40 pixels, in a frame of black."""


def png_folder(root: Path, each: int = 3) -> Path:
    """PNGs of every form."""
    draw = random.Random(1)
    for colour, bits in FORMS:
        (root / f"colour{colour}").mkdir(parents=True, exist_ok=True)
        for number in range(each):
            (root / f"colour{colour}" / f"{bits:02d}_{number}.png").write_bytes(png(draw, colour, bits))
    return root


@pytest.mark.filterwarnings("ignore:Palette images with Transparency")
def test_every_form(tmp_path: Path) -> None:
    """All are decoded by native threads."""
    loader = assert_as_torch(datasets.ImageFolder(str(png_folder(tmp_path)), WHOLE))
    assert loader.stats()["loaded"] == 0
    assert loader.stats()["engine"] == "threads"


def test_mixed_with_jpegs(tmp_path: Path) -> None:
    """Resampled as the JPEGs beside them."""
    root = image_folder(tmp_path)
    for number in range(8):
        photo(number, 80, 100).save(root / "class1" / f"png{number}.png")
    transform = v2.Compose([v2.Resize((40, 40)), v2.PILToTensor()])
    assert_resampled_alike(datasets.ImageFolder(str(root), transform))


def test_another_pillow(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A Pillow that makes other pixels of some form opens all PNGs itself; a folder of nothing else is not
    read in place."""
    root = image_folder(tmp_path / "mixed", 40)
    photo(1, 80, 100).save(root / "class0" / "one.png")
    real = Image.Image.convert

    def other(image: Image.Image, mode: str) -> Image.Image:
        return real(Image.fromarray(np.asarray(image) >> 8) if image.mode == "I;16" else image, mode)

    formats.pngs_are_pillows.cache_clear()
    with monkeypatch.context() as patch:
        patch.setattr(Image.Image, "convert", other)
        assert not formats.pngs_are_pillows()
    try:
        assert assert_as_torch(datasets.ImageFolder(str(root), EXACT)).stats()["loaded"] == 1
        pngs = FastLoader(datasets.ImageFolder(str(png_folder(tmp_path / "pngs")), WHOLE), num_workers=0)
        assert "0 of its 45 files are JPEGs" in str(pngs.explain())
    finally:
        formats.pngs_are_pillows.cache_clear()
    assert formats.pngs_are_pillows()


def test_replaced_code_of_pillow(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A program's own way to open PNGs is kept: such a folder is not read in place."""
    dataset = datasets.ImageFolder(str(png_folder(tmp_path, 1)), WHOLE)

    class Own(PngImagePlugin.PngImageFile):
        """A plugin of the program's."""

    monkeypatch.setitem(Image.OPEN, "PNG", (Own, Image.OPEN["PNG"][1]))
    with FastLoader(dataset, num_workers=0) as loader:
        assert "Pillow opens PNG files by another plugin than its own" in str(loader.explain())


def test_a_palettes_transparency_is_dropped(tmp_path: Path) -> None:
    """As convert("RGB") drops it, here without Pillow's warning."""
    picture = photo(2, 60, 60).quantize(8)
    picture.info["transparency"] = bytes([0, 100, 255])
    (tmp_path / "a").mkdir()
    picture.save(tmp_path / "a" / "one.png")
    dataset = datasets.ImageFolder(str(tmp_path), WHOLE)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        ((images, _),) = FastLoader(dataset, num_workers=1, engine="native")
    with pytest.warns(UserWarning, match="Transparency"):
        assert np.array_equal(images[0], dataset[0][0])
