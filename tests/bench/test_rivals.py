"""The rivals do the work they are said to do: the comparison stands on it."""

from __future__ import annotations

import random
from pathlib import Path

import numpy
import torch
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image

from fastload.bench import listing, rivals


@given(width=st.integers(1, 3000), height=st.integers(1, 3000), seed=st.integers(0, 1000))
def test_random_box_is_inside_and_of_torchvisions_ratios(width: int, height: int, seed: int) -> None:
    """The box lies in the image at 3/4 to 4/3 and has 8% of it, or is the fallback: as long as its short
    side."""
    random.seed(seed)
    x, y, w, h = rivals.random_box(width, height)
    assert 0 <= x <= x + w <= width
    assert 0 <= y <= y + h <= height
    if min(w, h) > 50:  # rounding matters less than the bounds
        assert 0.74 <= w / h <= 1.35
        assert w * h >= 0.07 * width * height or min(width, height) in (w, h)


def test_folder_is_listed_as_torchvision_lists_it(tmp_path: Path) -> None:
    """Classes sorted by name and numbered, an empty one keeps its number, other files are left out."""
    for name in ("b/2.jpg", "b/1.JPEG", "a/x.png", "c/notes.txt", "d/sub/3.jpg"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).touch()
    found = [(str(path.relative_to(tmp_path)), label) for path, label in listing.list_folder(tmp_path)]
    assert found == [("a/x.png", 0), ("b/1.JPEG", 1), ("b/2.jpg", 1), ("d/sub/3.jpg", 3)]


def test_pillow_and_hand_written_give_the_same_picture(tmp_path: Path) -> None:
    """With the same draws both give nearly the same crop: neither cheats on the work."""
    (tmp_path / "a").mkdir()
    coarse = Image.fromarray(numpy.random.default_rng(1).integers(0, 256, (6, 8, 3), dtype=numpy.uint8))
    coarse.resize((800, 600), Image.Resampling.BICUBIC).save(
        tmp_path / "a" / "0.jpg", quality=95, subsampling=0
    )
    files = [(str(path), label) for path, label in listing.list_folder(tmp_path)]
    listing.write_lmdb(files, tmp_path / "x.lmdb")
    pillow = rivals.PillowFolder(files, 64)
    hand = rivals.HandWritten(str(tmp_path / "x.lmdb"), 1, 64)
    for seed in range(12):
        random.seed(seed)
        one, label = pillow[0]
        random.seed(seed)
        other, other_label = hand[0]
        assert label == other_label == 0
        assert one.shape == (3, 64, 64)
        difference = (one.float() - other.permute(2, 0, 1).float()).abs().mean().item()
        assert difference < 6, f"seed {seed}"


def test_channels_first_is_channels_last_in_memory() -> None:
    """The hand-written collate gives NCHW without moving a byte twice."""
    images, labels = rivals.channels_first([(torch.zeros(4, 5, 3, dtype=torch.uint8), k) for k in range(2)])
    assert images.shape == (2, 3, 4, 5)
    assert images.is_contiguous(memory_format=torch.channels_last)
    assert labels.tolist() == [0, 1]
