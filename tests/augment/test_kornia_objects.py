"""Masks, boxes and keypoints beside Kornia's modules: as its own AugmentationSequential moves them with
the parameters that were drawn."""

from __future__ import annotations

import re
from typing import Any

import kornia.augmentation as K
import numpy as np
import pytest
import torch
from augment_helpers import EPOCH, SEED, draws, pictures
from test_by_params import module
from torch import Tensor

from fastload import augment as A
from fastload.augment.kornia_classes import ROWWISE
from fastload.augment.steps import Frame
from fastload.batch.containers import Flat
from fastload.errors import ArgumentError

ROWS, HEIGHT, WIDTH = 16, 36, 40
KEY: dict[str, Any] = {"seed": SEED, "epoch": EPOCH, "indices": range(ROWS)}
IMAGES = pictures(ROWS, HEIGHT, WIDTH)
_RNG = np.random.default_rng(2)
MASKS = torch.from_numpy(_RNG.integers(0, 200, (ROWS, HEIGHT, WIDTH)).astype(np.uint8))
_LOW = torch.from_numpy(_RNG.uniform(0, 20, (ROWS, 3, 2)))
XYXY = torch.cat((_LOW, _LOW + torch.from_numpy(_RNG.uniform(2, 15, (ROWS, 3, 2)))), -1).float()
XYWH = torch.cat((XYXY[..., :2], XYXY[..., 2:] - XYXY[..., :2]), -1)
POINTS = torch.from_numpy(_RNG.uniform(0, 36, (ROWS, 4, 2))).float()
MOVING = [name for name, traits in ROWWISE.items() if traits.moves]


def kornias(op: A.KorniaOp, values: dict[str, Tensor]) -> dict[str, Tensor]:
    """Values by data key after Kornia's own sequence, with the parameters that the op draws: those of the
    rows that it changes."""
    sequence = K.AugmentationSequential(op.module, data_keys=["input"])
    (name, _), *_ = sequence.named_children()
    (step,) = op.plan(draws(ROWS, op.words), Frame(ROWS, HEIGHT, WIDTH, True))
    shared = step.constants["shared"]
    own = {each: torch.from_numpy(array) for each, array in step.arrays.items()}
    shape = torch.tensor([len(step.rows), *shared["forward_input_shape"][1:].tolist()])
    data = {**own, **shared, "batch_prob": torch.ones(len(step.rows)), "forward_input_shape": shape}
    rows = torch.from_numpy(step.rows)
    params = [K.container.params.ParamItem(name, data)]
    out = sequence(*(value[rows] for value in values.values()), params=params, data_keys=list(values))
    return {"rows": rows, **dict(zip(values, out, strict=True))}


@pytest.mark.parametrize("name", [name for name in MOVING if len(ROWWISE[name].objects) == 3])
def test_all_kinds_as_kornia_moves_them(name: str) -> None:
    """Masks equal, boxes in both formats and keypoints to 1e-3 of a pixel; rows that the module leaves alone
    stay; images are those that come without objects."""
    op = A.KorniaOp(module(name))
    x = IMAGES / 255
    kinds = {"masks": MASKS, "boxes": {"wide": XYXY, "tall": XYWH}, "keypoints": POINTS}
    out = A.AugmentBatch([op])(x, **KEY, **kinds, box_format={"wide": "xyxy", "tall": "xywh"})
    assert torch.equal(out.images, A.AugmentBatch([op])(x, **KEY))
    want = kornias(
        op, {"input": x, "mask": MASKS[:, None], "bbox_xyxy": XYXY, "bbox_xywh": XYWH, "keypoints": POINTS}
    )
    rows = want["rows"]
    got = {
        "mask": out.masks[:, None],
        "bbox_xyxy": out.boxes["wide"],
        "bbox_xywh": out.boxes["tall"],
        "keypoints": out.keypoints,
    }
    assert out.masks.dtype == torch.uint8
    assert torch.equal(got["mask"][rows], want["mask"])
    for key in ("bbox_xyxy", "bbox_xywh", "keypoints"):
        torch.testing.assert_close(got[key][rows], want[key], atol=1e-3, rtol=1e-5)
    others = np.setdiff1d(np.arange(ROWS), rows)
    assert 0 < len(rows) <= ROWS
    assert torch.equal(out.boxes["wide"][others], XYXY[others])
    assert torch.equal(out.keypoints[others], POINTS[others])


@pytest.mark.filterwarnings("ignore:Default grid_sample")
def test_masks_of_an_elastic_transform() -> None:
    """Kornia's elastic transform moves masks, sample by sample whatever the batch; boxes and keypoints it
    would leave behind."""
    augment = A.AugmentBatch([K.RandomElasticTransform((9, 9), (3.0, 3.0), (9.0, 9.0), p=0.6)])
    out = augment(IMAGES, **KEY, masks=MASKS).masks
    want = kornias(augment.ops[0], {"input": IMAGES / 255, "mask": MASKS[:, None]})
    assert float((out[want["rows"]] != want["mask"][:, 0]).float().mean()) < 0.001
    assert not torch.equal(out, MASKS)
    alone = augment(IMAGES[5:6], **{**KEY, "indices": [5]}, masks=MASKS[5:6]).masks
    assert torch.equal(alone[0], out[5])
    with pytest.raises(ArgumentError, match="Kornia does not move boxes"):
        augment(IMAGES, **KEY, boxes=XYXY)


@pytest.mark.parametrize("name", ["RandomFisheye", "RandomJigsaw", "RandomThinPlateSpline"])
def test_what_kornia_would_leave_behind_is_refused(name: str) -> None:
    """A module that moves pixels in a way of its own is refused beside objects, each kind by name."""
    augment = A.AugmentBatch([module(name)])
    for kind, value in {"masks": MASKS, "boxes": XYXY, "keypoints": POINTS}.items():
        with pytest.raises(ArgumentError, match=f"Kornia does not move {kind}"):
            augment(IMAGES, **KEY, **{kind: value})


def test_gaps_of_masks_have_the_fill() -> None:
    """mask_fill labels what comes from outside of the image, in place of the colour with which the module
    fills images; labels up to 2**24 stay exact, and samples may have any number of masks."""
    shift = K.RandomAffine(0.0, (0.3, 0.3), p=1.0)
    crop = K.RandomCrop((48, 50), (10, 10), fill=0.5)
    for op in (shift, crop):
        augment = A.AugmentBatch([op], mask_fill=255)
        marked = torch.full((ROWS, HEIGHT, WIDTH), (1 << 24) - 1, dtype=torch.int32)
        out = augment(IMAGES, **KEY, masks=marked).masks
        assert out.shape[1:] == augment(IMAGES, **KEY).shape[2:]
        assert set(out.unique().tolist()) == {255, (1 << 24) - 1}
        flat = Flat(marked[[0, 0, 3, 3, 3]], torch.tensor([0, 2, 2, 2, *[5] * (ROWS - 3)]))
        several = augment(IMAGES, **KEY, masks=flat).masks
        assert torch.equal(several.values, out[[0, 0, 3, 3, 3]])


def test_a_visibility_stays_with_its_point() -> None:
    """Keypoints of three numbers keep the third; points of visibility 0 stay where they are."""
    points = torch.cat((POINTS, torch.arange(ROWS * 4).view(ROWS, 4, 1) % 3), -1)
    out = A.AugmentBatch([K.RandomRotation(30.0, p=1.0)])(IMAGES, **KEY, keypoints=points).keypoints
    plain = A.AugmentBatch([K.RandomRotation(30.0, p=1.0)])(IMAGES, **KEY, keypoints=POINTS).keypoints
    seen = points[..., 2] > 0
    assert torch.equal(out[..., 2], points[..., 2])
    assert torch.equal(out[..., :2][seen], plain[seen])
    assert torch.equal(out[~seen], points[~seen])


def test_objects_through_a_mixed_list() -> None:
    """Ops of ours and of Kornia's move the same objects one after the other, also where one changes the
    size."""
    ops = [A.RandomHorizontalFlip(1), K.RandomCrop((30, 32)), K.RandomVerticalFlip(p=1.0), A.RandomCrop(24)]
    out = A.AugmentBatch(ops)(IMAGES, **KEY, masks=IMAGES[:, 0], boxes=XYWH, box_format="xywh")
    assert torch.equal(out.masks, out.images[:, 0])
    image = torch.zeros((1, 3, HEIGHT, WIDTH), dtype=torch.uint8)
    image[:, :, 12:20, 14:24] = 255
    one = A.AugmentBatch(ops)(
        image, **{**KEY, "indices": [3]}, boxes=torch.tensor([[[14.0, 12.0, 10.0, 8.0]]]), box_format="xywh"
    )
    x, y, width, height = one.boxes[0, 0].int().tolist()
    white = (one.images[0, 0] > 0).nonzero()
    assert white.amin(0).tolist() == [max(y, 0), max(x, 0)]
    assert white.amax(0).tolist() == [min(y + height, 24) - 1, min(x + width, 24) - 1]


def test_erased_masks() -> None:
    """Kornia erases masks with their images where data keys name them; RandomErasing by itself leaves them
    alone, as ours does."""
    alone = A.AugmentBatch([A.KorniaOp(module("RandomErasing", 1.0))])
    named = A.AugmentBatch(
        [A.KorniaOp(module("RandomErasing", 1.0), data_keys=["input", "mask"])], mask_fill=255
    )
    ones = torch.ones((ROWS, HEIGHT, WIDTH), dtype=torch.int64)
    assert torch.equal(alone(IMAGES, **KEY, masks=ones).masks, ones)
    out = named(IMAGES + 1, **KEY, masks=ones)
    assert torch.equal(out.masks == 255, (out.images == 0).all(1))
    assert 0 < float((out.masks == 255).float().mean()) < 0.5


@pytest.mark.parametrize(
    ("keys", "given", "said"),
    [
        (["input", "mask"], {}, "data_keys name masks, and the batch has none"),
        (
            ["input", "mask"],
            {"masks": MASKS, "boxes": XYXY},
            "the batch has boxes, which would stay where they are: add 'bbox_xyxy'",
        ),
        (
            ["input"],
            {"keypoints": POINTS},
            "the batch has keypoints, which would stay where they are: add 'keypoints' to data_keys",
        ),
        (
            ["input", "bbox_xywh"],
            {"boxes": XYXY},
            "the batch's boxes are xyxy: write 'bbox_xyxy' in data_keys",
        ),
        (
            ["input", "bbox"],
            {"boxes": XYWH, "box_format": "xywh"},
            "the batch's boxes are xywh: write 'bbox_xywh' in data_keys",
        ),
    ],
)
def test_data_keys_that_contradict_the_batch(keys: list[str], given: dict[str, Any], said: str) -> None:
    """A key without objects, objects without a key that would be left behind, and another format are named
    with what to write."""
    augment = A.AugmentBatch([A.KorniaOp(module("RandomRotation"), data_keys=keys)])
    with pytest.raises(ArgumentError, match=re.escape(said)):
        augment(IMAGES, **KEY, **given)


def test_data_keys_of_what_moves_nothing() -> None:
    """Objects may stay beside a module that moves no pixels, named or not."""
    gamma = A.AugmentBatch([A.KorniaOp(module("RandomGamma"), data_keys=["input"])])
    assert torch.equal(gamma(IMAGES, **KEY, masks=MASKS, boxes=XYXY).boxes, XYXY)
