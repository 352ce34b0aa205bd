"""PackedDataset.show(): thumbnails of samples as they are stored."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from fastload import PackedDataset, transforms
from fastload.errors import ArgumentError


def test_thumbnails(packed: Path) -> None:
    """Each image within its square, in order, eight in a row; the dataset's own transform is neither used
    nor changed."""
    dataset = PackedDataset(packed, transform=transforms.CenterCrop(8))
    sheet = dataset.show(10, side=64)
    assert isinstance(sheet, Image.Image)
    assert sheet.size == (8 * 68 + 4, 2 * 82 + 4)
    plain = PackedDataset(packed, transform=transforms.Resize(None, max_size=64))
    for place in (0, 7, 9):
        pixels = plain[place][0].permute(1, 2, 0).numpy()
        height, width = pixels.shape[:2]
        x, y = 4 + place % 8 * 68 + (64 - width) // 2, 4 + place // 8 * 82 + (64 - height) // 2
        assert np.array_equal(np.asarray(sheet)[y : y + height, x : x + width], pixels)
    assert tuple(dataset[0][0].shape) == (3, 8, 8)


def test_chosen_samples(packed: Path) -> None:
    """Those at indices, negative ones too; fewer than asked for where there are no more, and none of none."""
    dataset = PackedDataset(packed)
    last = len(dataset) - 1
    assert np.array_equal(dataset.show(indices=[-1, 0], side=64), dataset.show(indices=[last, 0], side=64))
    assert dataset.show(5000, side=16).size == dataset.show(len(dataset), side=16).size
    assert dataset.show(0).width > 0
    with pytest.raises(IndexError):
        dataset.show(indices=[last + 1])


def test_what_is_no_contact_sheet(packed: Path) -> None:
    """A sheet has a size that memory has room for."""
    with pytest.raises(
        ArgumentError, match=r"at most 1,024 thumbnails of 16 to 1,024 pixels, not 2,000 of 128"
    ):
        PackedDataset(packed).show(indices=[0] * 2000)
    with pytest.raises(ArgumentError, match=r"not 1 of 4096"):
        PackedDataset(packed).show(1, side=4096)
