"""PNGs whose pixels are kept in the first epoch, or while the loop is busy: later epochs read them."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from kept_helpers import COUNT, come, crops_of, expected, forms, images, kept_of, loader_of, used
from PIL import Image

from fastload._native import core
from fastload.dataset import kept_files

MODES = ["RGB", "L", "RGBA", "P", "LA", "1"]


@pytest.fixture
def pngs(tree: Path) -> Path:
    """The tree's pictures as PNGs of several kinds."""
    for number, path in enumerate(sorted(tree.rglob("*.jpg"))):
        with Image.open(path) as image:
            image.convert(MODES[number % len(MODES)]).save(path.with_suffix(".png"))
        path.unlink()
    return tree


def test_the_first_epoch_keeps_pixels(pngs: Path, tmp_path: Path) -> None:
    """All of each image, whatever crop was asked for; the next run begins with them."""
    cache, wanted = tmp_path / "cache", expected(pngs)
    with loader_of(pngs, cache) as first:
        assert torch.equal(images(first), wanted)
        assert forms(first) == COUNT
        assert torch.equal(images(first), wanted)
    with loader_of(pngs, cache) as second:
        assert torch.equal(images(second), wanted)
        assert used(second) >= COUNT
        assert not kept_of(second)._table.counts()["forms_put"]


def test_crops_are_those_of_the_files(pngs: Path, tmp_path: Path) -> None:
    """The same draws of the same pixels, in the first epoch and after it."""
    plain, kept = crops_of(pngs, None), crops_of(pngs, tmp_path / "cache")
    with plain, kept:
        for _ in range(3):
            assert torch.equal(images(kept), images(plain))


def test_pixels_are_made_while_the_loop_is_busy(
    pngs: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of files that another run read, which kept what it learnt alone."""
    cache = tmp_path / "cache"
    with monkeypatch.context() as patch:
        patch.setattr(kept_files, "_LOCAL", core.KEEP_FACTS)
        with loader_of(pngs, cache) as first:
            images(first)
            assert forms(first) == 0
    with loader_of(pngs, cache) as second:
        images(second)
        assert come(second)
        assert torch.equal(images(second), expected(pngs))


def test_no_room_for_pixels(pngs: Path, tmp_path: Path) -> None:
    """The images that have none are decoded from their files, in every epoch."""
    with loader_of(pngs, tmp_path / "cache", cache_size=480 * 640 * 3 * 3) as loader:
        for _ in range(3):
            assert torch.equal(images(loader), expected(pngs))
        assert 0 < forms(loader) < COUNT


def test_a_png_that_changed(pngs: Path, tmp_path: Path) -> None:
    """It is read again, and its new pixels are kept."""
    with loader_of(pngs, tmp_path / "cache") as loader:
        images(loader)
        path = sorted(pngs.rglob("*.png"))[2]
        Image.fromarray(np.full((70, 90, 3), 9, np.uint8)).save(path)
        for _ in range(3):
            assert torch.equal(images(loader), expected(pngs))
        assert kept_of(loader)._table.counts()["forms_put"] == COUNT + 1
