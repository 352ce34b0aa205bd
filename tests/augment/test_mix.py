"""MixUp and CutMix: torchvision's pixels and labels for the same draw, and draws that belong to the batch."""

from __future__ import annotations

import pickle
from typing import Any

import numpy as np
import pytest
import torch
import torchvision.transforms.v2 as v2
from augment_helpers import EPOCH, SEED, assert_frequencies, assert_levels, assert_uniform, pictures

from fastload import augment as A
from fastload.errors import ArgumentError, TransformError

KEY = {"seed": SEED, "epoch": EPOCH}
CLASSES = 11
LABELS = torch.tensor([3, 0, 10, 10, 5, 1, 2, 7])
MIXES = [
    A.MixUp(0.4, CLASSES),
    A.CutMix(1.0, CLASSES),
    A.RandomChoice((A.MixUp(0.4, CLASSES), A.CutMix(1.0, CLASSES))),
]


@pytest.mark.parametrize("one_hot", [False, True])
def test_mixup_is_torchvisions(one_hot: bool) -> None:
    """With the same share, images and labels are torchvision's; labels may already be probabilities."""
    x, labels = pictures(8) / 255, LABELS
    labels = torch.nn.functional.one_hot(labels, CLASSES).float() if one_hot else labels
    mix = A.MixUp(0.4, CLASSES)
    images, targets = mix(x, labels, **KEY, indices=range(8))
    theirs = v2.MixUp(num_classes=CLASSES)
    share = mix.share(**KEY, indices=range(8))
    parameters = {"labels": labels, "batch_size": 8, "lam": share}
    torch.testing.assert_close(images, theirs.transform(x, parameters), atol=1e-6, rtol=0)
    torch.testing.assert_close(targets, theirs.transform(labels, parameters), atol=1e-6, rtol=0)
    assert targets.shape == (8, CLASSES)
    torch.testing.assert_close(targets.sum(1), torch.ones(8))


def test_mixup_of_bytes_rounds() -> None:
    """uint8 in, uint8 out: the float result rounded."""
    x = pictures(8)
    images, _ = A.MixUp(0.4, CLASSES)(x, LABELS, **KEY, indices=range(8))
    floats, _ = A.MixUp(0.4, CLASSES)(x.float(), LABELS, **KEY, indices=range(8))
    assert images.dtype == torch.uint8
    assert_levels(images, floats.round().to(torch.uint8), 0)


def test_cutmix_is_torchvisions() -> None:
    """With the same box, images and labels are torchvision's."""
    x = pictures(8)
    mix = A.CutMix(1.0, CLASSES)
    theirs = v2.CutMix(num_classes=CLASSES)
    for start in range(20):
        indices = range(start, start + 8)
        images, targets = mix(x, LABELS, **KEY, indices=indices)
        top, left, bottom, right = mix.box(**KEY, indices=indices, height=45, width=52)
        share = 1 - (bottom - top) * (right - left) / (45 * 52)
        parameters: dict[str, Any] = {
            "labels": LABELS,
            "batch_size": 8,
            "box": (left, top, right, bottom),
            "lam_adjusted": share,
        }
        assert torch.equal(images, theirs.transform(x, parameters))
        torch.testing.assert_close(targets, theirs.transform(LABELS, parameters), atol=1e-6, rtol=0)
        changed = (images != x).any(1).any(0)
        assert not changed[:top].any()
        assert not changed[bottom:].any()


@pytest.mark.parametrize("mix", MIXES, ids=repr)
def test_reproducible_per_batch(mix: Any) -> None:
    """The same indices in the same order mix the same; other indices, another order, epoch or seed
    otherwise."""
    x = pictures(8) / 255
    first = mix(x, LABELS, **KEY, indices=range(8))
    again = mix(x, LABELS, **KEY, indices=np.arange(8))
    assert all(torch.equal(a, b) for a, b in zip(first, again, strict=True))
    for key in (
        {**KEY, "indices": range(1, 9)},
        {**KEY, "indices": range(7, -1, -1)},
        {"seed": SEED + 1, "epoch": EPOCH, "indices": range(8)},
        {"seed": SEED, "epoch": EPOCH + 1, "indices": range(8)},
    ):
        assert not torch.equal(first[1], mix(x, LABELS, **key)[1])
    assert pickle.loads(pickle.dumps(mix)) == mix


@pytest.mark.parametrize("mix", MIXES, ids=repr)
def test_form_and_input_are_kept(mix: Any) -> None:
    """Dtype and memory format stay, the input is not written to, and batches of one and of none work."""
    for dtype in (torch.uint8, torch.float32, torch.bfloat16):
        x = pictures(8).to(dtype).contiguous(memory_format=torch.channels_last)
        before = x.clone()
        images, targets = mix(x, LABELS, **KEY, indices=range(8))
        assert images.dtype == dtype
        assert images.is_contiguous(memory_format=torch.channels_last)
        assert targets.dtype == torch.float32
        assert torch.equal(x, before)
    one, target = mix(x[:1], LABELS[:1], **KEY, indices=[5])
    assert torch.equal(one, x[:1])
    torch.testing.assert_close(target, torch.eye(CLASSES)[LABELS[:1]])
    none, targets = mix(x[:0], LABELS[:0], **KEY, indices=[])
    assert (len(none), targets.shape) == (0, (0, CLASSES))


def test_draws_over_batches() -> None:
    """Over 3,000 batches the share of MixUp is Beta(1, 1), CutMix's centres are everywhere, and a choice
    follows its weights."""
    batches = [range(i, i + 4) for i in range(3000)]
    assert_uniform([A.MixUp(1.0).share(**KEY, indices=b) for b in batches])
    boxes = np.array([A.CutMix(1.0).box(**KEY, indices=b, height=64, width=64) for b in batches])
    area = (boxes[:, 2] - boxes[:, 0]) * (boxes[:, 3] - boxes[:, 1]) / 64**2
    inside = (boxes[:, :2] > 0).all(1) & (boxes[:, 2:] < 64).all(1)
    assert abs(inside.mean() - 1 / 6) < 0.025  # of E[(1 - sqrt(u))^2]
    assert ((area >= 0) & (area <= 1)).all()
    middle = (boxes[inside, 0] + boxes[inside, 2]) / 2
    assert abs(middle.mean() - 32) < 1.5
    mixes = A.RandomChoice(MIXES[:2], p=(3, 1))
    first = sum(mixes.chosen(**KEY, indices=b) is mixes.mixes[0] for b in batches)
    assert_frequencies([first, 3000 - first], [3, 1])


def test_bad_input() -> None:
    """Labels, classes and counts are checked, and the message says which."""
    x = pictures(8)
    with pytest.raises(ArgumentError, match="num_classes"):
        A.MixUp()(x, LABELS, **KEY, indices=range(8))
    with pytest.raises(ArgumentError, match="labels"):
        A.CutMix(1.0, CLASSES)(x, torch.zeros(8, CLASSES + 1), **KEY, indices=range(8))
    with pytest.raises(ArgumentError, match="7 indices"):
        A.CutMix(1.0, CLASSES)(x, LABELS, **KEY, indices=range(7))
    for make in (
        lambda: A.MixUp(0.0),
        lambda: A.CutMix(1.0, 0),
        lambda: A.RandomChoice(()),
        lambda: A.RandomChoice(MIXES[:2], p=(1,)),
    ):
        with pytest.raises(TransformError):
            make()
