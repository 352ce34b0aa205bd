"""Views whose entries leave colours to the device: each view has its entry's ops, with draws of its own."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

from fastload import FastLoader
from fastload import transforms as T
from fastload.errors import ArgumentError

v2 = pytest.importorskip("torchvision.transforms.v2")
pytestmark = pytest.mark.usefixtures("no_leaks")

FLOATS = [v2.ToImage(), v2.ToDtype(torch.float32, scale=True), v2.Normalize((0.5,) * 3, (0.2,) * 3)]


def first_batch(packed: Path, transform: Any, **more: Any) -> Any:
    with FastLoader(packed, 8, transform=transform, seed=6, **more) as loader:
        views, _ = next(iter(loader))
        return [view.clone() for view in views] if isinstance(views, list) else views.clone()


@pytest.mark.parametrize("workers", [0, 2])
def test_each_view_has_its_own_ops(packed: Path, workers: int) -> None:
    """The first view is what its entry alone gives; equal entries draw other colours; an entry without
    colours has none."""
    crop = T.Resize((40, 40), dct_scale=False)
    jittered = [crop, v2.ColorJitter(0.5, 0.5, 0.5, 0.2), *FLOATS]
    bare = [crop, *FLOATS]
    views = first_batch(packed, T.Views([jittered, jittered, bare]), device="cpu", num_workers=workers)
    assert [tuple(view.shape) for view in views] == [(8, 3, 40, 40)] * 3
    assert all(view.dtype == torch.float32 for view in views)
    assert torch.equal(views[0], first_batch(packed, jittered, device="cpu"))
    assert not torch.equal(views[0], views[1])
    assert torch.allclose(views[2], first_batch(packed, bare), atol=1e-6)


def test_augment_batch_draws_for_each_view(packed: Path) -> None:
    """batch_transform=AugmentBatch acts on every view, the first as on one image, the others with other
    draws."""
    from fastload import augment as A

    crop = T.Resize((40, 40), dct_scale=False)
    flips = A.AugmentBatch([A.ColorJitter(0.5, 0.5, 0.5, 0.2)])
    first, second = first_batch(packed, T.Views([crop, crop]), batch_transform=flips)
    assert torch.equal(first, first_batch(packed, crop, batch_transform=flips))
    assert not torch.equal(first, second)


def test_mixing_labels_is_refused(packed: Path) -> None:
    """MixUp takes labels, of which a sample has one for all its views."""
    from fastload import augment as A

    with pytest.raises(ArgumentError, match="mix them in the loop"):
        FastLoader(
            packed, 8, transform=T.Views([T.Resize((40, 40))] * 2), batch_transform=A.MixUp(num_classes=3)
        )
