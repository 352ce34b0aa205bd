"""Folders of WebPs, and of WebPs beside JPEGs and PNGs, in place: native threads decode them, and the
batches are torch's."""

from __future__ import annotations

import random
from pathlib import Path

import hugging_face_helpers
import numpy as np
import pytest
import torch
from in_place_helpers import EXACT, assert_as_torch, assert_resampled_alike, image_folder
from pictures import photo
from PIL import Image, WebPImagePlugin
from torchvision import datasets, transforms
from webp_maker import FORMS, animated, chunks, damaged, riff, webp

from fastload import FastLoader
from fastload.dataset.in_place import formats

WHOLE = transforms.Compose([transforms.CenterCrop((75, 75)), transforms.PILToTensor()])
"""All of an image of up to 70 x 70 pixels, in a frame of black."""


def webp_folder(root: Path, each: int = 3) -> Path:
    """WebPs of every form."""
    draw = random.Random(1)
    for number, form in enumerate(FORMS):
        (root / f"class{number % 3}").mkdir(parents=True, exist_ok=True)
        for copy in range(each):
            (root / f"class{number % 3}" / f"{number:02d}_{copy}.webp").write_bytes(webp(draw, form))
    return root


def test_every_form(tmp_path: Path) -> None:
    """All are decoded by native threads, but those whose metadata may turn them."""
    loader = assert_as_torch(datasets.ImageFolder(str(webp_folder(tmp_path)), WHOLE))
    assert loader.stats()["loaded"] == 0
    assert loader.stats()["engine"] == "threads"


def test_left_to_pillow(tmp_path: Path) -> None:
    """An animated file, and damaged ones that Pillow opens."""
    draw = random.Random(4)
    root = webp_folder(tmp_path, 9)
    (root / "class0" / "animated.webp").write_bytes(animated())
    kept = 0
    while kept < 5:
        data = damaged(draw, webp(draw, "with metadata"))
        path = root / "class1" / f"damaged{kept}.webp"
        path.write_bytes(data)
        try:
            with Image.open(path) as image:
                kept += max(image.convert("RGB").size) <= 75
        except Exception:
            path.unlink()
    loader = assert_as_torch(datasets.ImageFolder(str(root), WHOLE))
    assert 1 <= loader.stats()["loaded"] <= 6


def test_mixed_with_others(tmp_path: Path) -> None:
    """Resampled as the JPEGs and PNGs beside them."""
    root = image_folder(tmp_path)
    for number in range(8):
        photo(number, 80, 100).save(root / "class1" / f"{number}.webp", quality=80)
        photo(number, 80, 100).save(root / "class0" / f"{number}.png")
    transform = transforms.Compose([transforms.Resize((40, 40)), transforms.PILToTensor()])
    assert_resampled_alike(datasets.ImageFolder(str(root), transform))


def test_of_hugging_face(tmp_path: Path) -> None:
    """Bytes in Arrow files: known by their first bytes."""
    images = [hugging_face_helpers.encoded(photo(n, 80, 100), "WEBP", quality=60 + n) for n in range(12)]
    loader = hugging_face_helpers.assert_as_torch(hugging_face_helpers.of_images(images, tmp_path / "cache"))
    assert loader.stats()["loaded"] == 0


def spoiled(data: bytes) -> bytes:
    """A lossy file whose last rows cannot be decoded: its container is whole, and its data end early."""
    (image,) = chunks(data)
    return riff([image[:4] + (len(image) - 8 - 400).to_bytes(4, "little") + image[8:-400]])


def test_what_is_known_of_a_file(tmp_path: Path) -> None:
    """The second pass, which reads no further than its crops, makes the first one's batches; a file that
    changed is read to its end again: damage below the crop is the sample's error, as it is Pillow's."""
    root = webp_folder(tmp_path, 4)
    for number in range(8):
        photo(number, 160, 200).save(root / "class0" / f"photo{number}.webp", quality=80)
    dataset = datasets.ImageFolder(
        str(root), transforms.Compose([transforms.RandomResizedCrop(32), transforms.PILToTensor()])
    )
    with FastLoader(dataset, batch_size=16, num_workers=2, seed=3, engine="native") as loader:
        passes = []
        for _ in range(2):
            loader.set_epoch(0)
            passes.append(torch.cat([images for images, _ in loader]))
        assert torch.equal(*passes)
    dataset.transform = transforms.Compose([transforms.CenterCrop((40, 40)), transforms.PILToTensor()])
    path = root / "class0" / "photo3.webp"
    with FastLoader(dataset, batch_size=len(dataset), num_workers=2, engine="native") as loader:
        ((before, _),) = loader
        path.write_bytes(spoiled(path.read_bytes()))
        with pytest.raises((OSError, EOFError)) as theirs:
            dataset[next(index for index, (name, _) in enumerate(dataset.samples) if name == str(path))]
        with pytest.raises(theirs.type):
            list(loader)
    assert len(before) == len(dataset)


def test_another_pillow(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A Pillow that makes other pixels of some, or that has no WebP, opens all WebPs itself; JPEGs and
    PNGs are read in place as before."""
    root = image_folder(tmp_path, 40)
    photo(1, 80, 100).save(root / "class0" / "one.png")
    photo(1, 80, 100).save(root / "class0" / "one.webp")
    real = Image.Image.convert

    def other(image: Image.Image, mode: str) -> Image.Image:
        found = real(image, mode)
        return (
            Image.fromarray(np.asarray(found) ^ 1)
            if isinstance(image, WebPImagePlugin.WebPImageFile)
            else found
        )

    formats.webps_are_pillows.cache_clear()
    with monkeypatch.context() as patch:
        patch.setattr(Image.Image, "convert", other)
        assert not formats.webps_are_pillows()
    try:
        assert assert_as_torch(datasets.ImageFolder(str(root), EXACT)).stats()["loaded"] == 1
    finally:
        formats.webps_are_pillows.cache_clear()
    assert formats.webps_are_pillows()


def test_replaced_code_of_pillow(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A program's own way to open WebPs is kept: such a folder is not read in place."""
    dataset = datasets.ImageFolder(str(webp_folder(tmp_path, 1)), WHOLE)
    with monkeypatch.context() as patch:
        patch.setattr(WebPImagePlugin.WebPImageFile, "load", lambda self: None)
        with FastLoader(dataset, num_workers=0) as loader:
            assert "native" not in str(loader.explain()).splitlines()[0]
    monkeypatch.setitem(
        Image.OPEN, "WEBP", (type("Own", (WebPImagePlugin.WebPImageFile,), {}), Image.OPEN["WEBP"][1])
    )
    with FastLoader(dataset, num_workers=0) as loader:
        assert "Pillow opens WEBP files by another plugin than its own" in str(loader.explain())
