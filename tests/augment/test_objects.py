"""Masks, boxes and keypoints move with the images: as torchvision.transforms.v2.functional moves them at the
parameters that were drawn.

Boxes and keypoints within 1e-4 of torchvision's in float64. Masks equal; but where a rotated pixel's place in
the image is half-way between two, to 1e-3 of a pixel, either of them.
"""

from __future__ import annotations

import pickle
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from unittest.mock import patch

import numpy as np
import pytest
import torch
import torchvision.transforms.v2.functional as F
from augment_helpers import pictures
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor
from torchvision import tv_tensors

from fastload import augment as A
from fastload.augment import kernels, policies, space, specs
from fastload.augment.philox import as_indices
from fastload.batch.collate import Collate
from fastload.batch.containers import Flat, Padded
from fastload.errors import ArgumentError, TransformError

OPS: dict[str, Any] = {
    "hflip": A.RandomHorizontalFlip(),
    "vflip": A.RandomVerticalFlip(),
    "crop": A.RandomCrop((30, 33)),
    "padded crop": A.RandomCrop((44, 40), (1, 2, 3, 4)),
    "larger crop": A.RandomCrop(64, pad_if_needed=True),
    "no crop": A.RandomCrop((41, 52)),
    "rotation": A.RandomRotation(180, p=0.8),
    "affine": A.RandomAffine(40, (0.3, 0.2), (0.5, 1.6), (-20, 20, -15, 15), "bilinear", p=0.9),
    "shift": A.RandomAffine(0, (0.5, 0.5)),
    "RandAugment": A.RandAugment(1, 20),
    "TrivialAugmentWide": A.TrivialAugmentWide(),
}
HEIGHT, WIDTH = 41, 52
KEY: dict[str, Any] = {"seed": 11, "epoch": 2}
FORMATS = ("xyxy", "xywh", "cxcywh")


class Oracle:
    """torchvision's functionals at the parameters that AugmentBatch draws for a batch and one op."""

    def __init__(self, op: Any, images: Tensor, first: int = 0) -> None:
        self.size = images.shape[2], images.shape[3]
        self.parameters: dict[int, tuple[Any, ...]] = {}
        with _recorded() as calls:
            steps = A.AugmentBatch([op], first=first)._drawn(
                images, KEY["seed"], KEY["epoch"], as_indices(range(len(images)))
            )
        moving = [
            step
            for step in steps
            if step.kernel in (kernels.hflip, kernels.vflip, kernels.crop, kernels.affine)
        ]
        self.step = moving[0] if moving else None
        if self.step is not None and self.step.kernel is kernels.affine:
            rows = self.step.rows.tolist()
            names = ("angle", "shift_x", "shift_y", "scale", "shear_x", "shear_y")
            values = {
                name: np.broadcast_to(
                    calls[-1].get(name, 1.0 if name == "scale" else 0.0), (calls[-1]["count"],)
                )
                for name in names
            }
            centre = [np.broadcast_to(each, (calls[-1]["count"],)) for each in calls[-1]["centre"]]
            for place, row in enumerate(rows):
                at = place if calls[-1]["count"] == len(rows) else row
                shifts = [float(values["shift_x"][at]), float(values["shift_y"][at])]
                shears = [float(values["shear_x"][at]), float(values["shear_y"][at])]
                middle = [
                    float(centre[0][at]) + 0.5 * self.size[1],
                    float(centre[1][at]) + 0.5 * self.size[0],
                ]
                self.parameters[row] = (
                    float(values["angle"][at]),
                    shifts,
                    float(values["scale"][at]),
                    shears,
                    middle,
                )

    def __call__(self, row: int, value: Any, fill: int = 0) -> Any:
        """A tv_tensor of this sample, moved."""
        if self.step is None or row not in self.step.rows:
            return value
        if self.step.kernel in (kernels.hflip, kernels.vflip):
            return (F.horizontal_flip if self.step.kernel is kernels.hflip else F.vertical_flip)(value)
        filled = {"fill": fill} if isinstance(value, tv_tensors.Mask) else {}
        if self.step.kernel is kernels.affine:
            angle, shifts, scale, shears, centre = self.parameters[row]
            return F.affine(value, angle, shifts, scale, shears, center=centre, **filled)
        left, top, right, bottom = self.step.constants["pads"]
        value = (
            F.pad(value, [left, top, right, bottom], **filled) if any(self.step.constants["pads"]) else value
        )
        height, width = self.step.constants["size"]
        if (self.size[0] + top + bottom, self.size[1] + left + right) == (height, width):
            return value
        y, x = self.step.arrays["corner"][row].tolist()
        return F.crop(value, y, x, height, width)

    def half_way(self, row: int) -> Any:
        """Which pixels of the result lie half-way between two of the image, so that rounding decides."""
        if row not in self.parameters:
            return np.zeros(self.size, bool)
        assert self.step is not None
        assert self.step.exact is not None
        matrix = self.step.exact[np.flatnonzero(self.step.rows == row)[0]]
        y, x = np.mgrid[: self.size[0], : self.size[1]] + 0.5
        there = np.stack((x - 0.5 * self.size[1], y - 0.5 * self.size[0], np.ones_like(x)))
        place = (
            np.tensordot(matrix, there, 1) + np.array([0.5 * self.size[1], 0.5 * self.size[0]])[:, None, None]
        )
        return (np.abs(place - np.rint(place)) < 1e-3).any(0)


@contextmanager
def _recorded() -> Iterator[list[dict[str, Any]]]:
    """What inverse_matrices() is called with."""
    calls: list[dict[str, Any]] = []
    names = ("angle", "shift_x", "shift_y", "scale", "shear_x", "shear_y", "centre")

    def record(*args: Any, **kwargs: Any) -> Any:
        matrices = space.inverse_matrices(*args, **kwargs)
        calls.append(
            {"centre": (0.0, 0.0), **dict(zip(names, args, strict=False)), **kwargs, "count": len(matrices)}
        )
        return matrices

    with patch.object(specs, "inverse_matrices", record), patch.object(policies, "inverse_matrices", record):
        yield calls


def random_boxes(
    rng: np.random.Generator, count: int, form: str, dtype: torch.dtype = torch.float32
) -> Tensor:
    """Boxes in, across, on the edges of and outside the image, some without an area."""
    low = rng.uniform((-30, -30), (WIDTH + 20, HEIGHT + 20), (count, 2))
    extent = rng.uniform(0, 40, (count, 2)) * rng.integers(0, 4, (count, 2)).clip(max=1)
    edge = rng.integers(0, 5, count)
    low[edge == 0] = 0
    extent[edge == 1] = np.array([WIDTH, HEIGHT]) - low[edge == 1].clip(max=(WIDTH, HEIGHT))
    boxes = torch.from_numpy(np.concatenate((low, low + extent), axis=1))
    if dtype in (torch.int32, torch.int64):
        boxes = boxes.round()
    plain = tv_tensors.BoundingBoxes(boxes, format="XYXY", canvas_size=(HEIGHT, WIDTH))  # type: ignore[call-overload]
    return F.convert_bounding_box_format(plain, new_format=form.upper()).as_subclass(Tensor).to(dtype)


def tv_boxes(boxes: Tensor, form: str) -> Any:
    return tv_tensors.BoundingBoxes(boxes, format=form.upper(), canvas_size=(HEIGHT, WIDTH))  # type: ignore[call-overload]


def blank(count: int) -> Tensor:
    return torch.zeros((count, 3, HEIGHT, WIDTH), dtype=torch.uint8)


@pytest.mark.parametrize("form", FORMATS)
@pytest.mark.parametrize("op", OPS.values(), ids=OPS)
def test_boxes(op: Any, form: str) -> None:
    """Every op's, at every drawn parameter."""
    rng = np.random.default_rng(3)
    for first in range(2):
        boxes, images = [random_boxes(rng, int(n), form) for n in rng.integers(0, 9, 32)], blank(32)
        out = A.AugmentBatch([op], first=first)(
            images, **KEY, indices=range(32), boxes=boxes, box_format=form
        ).boxes
        oracle = Oracle(op, images, first)
        for row, (got, given_) in enumerate(zip(out, boxes, strict=True)):
            assert got.dtype == torch.float32
            assert got.shape == given_.shape
            torch.testing.assert_close(
                got.double(),
                oracle(row, tv_boxes(given_.double(), form)).as_subclass(Tensor),
                atol=1e-4,
                rtol=0,
            )


@pytest.mark.parametrize("dtype", [torch.int32, torch.int64])
@pytest.mark.parametrize("form", FORMATS)
@pytest.mark.parametrize(
    "op", [each for name, each in OPS.items() if "Augment" not in name], ids=lambda op: type(op).__name__
)
def test_boxes_of_whole_numbers(op: Any, form: str, dtype: torch.dtype) -> None:
    """Equal to torchvision's; a rotated corner that is a whole number but for rounding may be truncated to
    the one below."""
    rng = np.random.default_rng(5)
    boxes, images = [random_boxes(rng, 8, form, dtype) for _ in range(32)], blank(32)
    out = A.AugmentBatch([op])(images, **KEY, indices=range(32), boxes=boxes, box_format=form).boxes
    oracle, apart = Oracle(op, images), 0
    for row, (got, given_) in enumerate(zip(out, boxes, strict=True)):
        assert got.dtype == dtype
        off = (got - oracle(row, tv_boxes(given_, form)).as_subclass(Tensor)).abs()
        assert int(off.max()) <= (1 if oracle.parameters else 0)
        apart += int((off > 0).sum())
    assert apart <= 4


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("op", OPS.values(), ids=OPS)
def test_keypoints(op: Any, dtype: torch.dtype) -> None:
    """x and y of every op, inside the image and outside; visibility stays, and so do points of visibility
    0."""
    rng = np.random.default_rng(4)
    images = blank(32)
    points = torch.from_numpy(rng.uniform(-20, 70, (32, 3, 5, 3))).to(dtype)
    points[:, 1, :2, 2] = 0
    out = A.AugmentBatch([op])(images, **KEY, indices=range(32), keypoints=points).keypoints
    oracle = Oracle(op, images)
    assert torch.equal(out[..., 2], points[..., 2])
    for row, (got, given_) in enumerate(zip(out, points, strict=True)):
        want = oracle(row, tv_tensors.KeyPoints(given_[..., :2].double(), canvas_size=(HEIGHT, WIDTH)))
        wanted = torch.where(given_[..., 2:] == 0, given_[..., :2].double(), want.as_subclass(Tensor))
        torch.testing.assert_close(got[..., :2].double(), wanted, atol=1e-4, rtol=0)


@pytest.mark.parametrize(
    "dtype", [torch.uint8, torch.uint16, torch.int16, torch.int64, torch.bool, torch.float32]
)
@pytest.mark.parametrize("op", OPS.values(), ids=OPS)
def test_masks(op: Any, dtype: torch.dtype) -> None:
    """Labels of every dtype, none lost, filled with mask_fill."""
    rng = np.random.default_rng(6)
    fill = 1 if dtype in (torch.bool, torch.float32) else 255
    most = {torch.uint8: 256, torch.bool: 2, torch.uint16: 65536}.get(dtype, 30_000)
    images, masks = blank(16), torch.from_numpy(rng.integers(0, most, (16, HEIGHT, WIDTH))).to(dtype)
    out = A.AugmentBatch([op], mask_fill=fill)(images, **KEY, indices=range(16), masks=masks).masks
    oracle = Oracle(op, images)
    assert out.dtype == dtype
    assert out.is_contiguous()
    for row in range(16):
        want = oracle(row, tv_tensors.Mask(masks[row].double()), fill).as_subclass(Tensor)
        differ = (out[row].double() != want).numpy()
        assert differ.shape == tuple(want.shape)
        if differ.any():
            assert not (differ & ~oracle.half_way(row)).any()


def test_masks_follow_the_images() -> None:
    """The image's own pixels as a mask: after ops that resample by the nearest pixel, in any order, still
    the image's pixels."""
    images = pictures(40)
    ops = [
        A.RandomHorizontalFlip(),
        A.RandomRotation(30, p=0.7),
        A.RandomCrop(40, 3),
        A.RandomVerticalFlip(),
        A.RandAugment(2),
    ]
    images = images[:, :1].expand(-1, 3, -1, -1).contiguous()
    moving = A.AugmentBatch([op for op in ops if not isinstance(op, A.RandAugment)])
    out = moving(images, **KEY, indices=range(40), masks=images[:, 0])
    apart = (out.masks != out.images[:, 0]).float().mean()
    assert float(apart) < 0.005  # half-way between two pixels: flips are part of the images' rotation


@pytest.mark.parametrize("shape", ["list", "padded", "flat", "tensor"])
def test_every_form_is_the_same(shape: str) -> None:
    """A sample's boxes move alike in a list, Padded, Flat and (B, N, 4); what fills them up stays as it
    was."""
    rng = np.random.default_rng(8)
    ops = A.AugmentBatch([OPS["hflip"], OPS["affine"], OPS["padded crop"]])
    lengths = [5] * 16 if shape == "tensor" else [int(n) for n in rng.integers(0, 6, 15)] + [0]
    boxes, images = [random_boxes(rng, n, "xyxy") for n in lengths], blank(16)
    want = ops(images, **KEY, indices=range(16), boxes=boxes).boxes
    if shape == "list":
        alone = [
            ops(images[i : i + 1], **KEY, indices=[i], boxes=boxes[i : i + 1]).boxes[0] for i in range(16)
        ]
        assert all(torch.equal(a, b) for a, b in zip(alone, want, strict=True))
    elif shape == "flat":
        offsets = torch.tensor([0, *np.cumsum(lengths)])
        got = ops(images, **KEY, indices=range(16), boxes=Flat(torch.cat(boxes), offsets)).boxes
        assert torch.equal(got.offsets, offsets)
        assert torch.equal(got.values, torch.cat(want))
    elif shape == "tensor":
        assert torch.equal(
            ops(images, **KEY, indices=range(16), boxes=torch.stack(boxes)).boxes, torch.stack(want)
        )
    else:
        values = torch.full((16, 6, 4), -7.0)
        for row, each in enumerate(boxes):
            values[row, : len(each)] = each
        count = torch.tensor(lengths)
        got = ops(
            images, **KEY, indices=range(16), boxes=Padded(values, torch.arange(6) < count[:, None], count)
        ).boxes
        for row, each in enumerate(want):
            assert torch.equal(got.values[row, : len(each)], each)
            assert bool((got.values[row, len(each) :] == -7).all())


@pytest.mark.parametrize("fill", [0, 9])
def test_every_form_of_masks_is_the_same(fill: int) -> None:
    """A sample's masks move alike in a list, Padded and Flat; what fills them up stays zero."""
    rng = np.random.default_rng(8)
    ops = A.AugmentBatch([OPS["hflip"], OPS["affine"], OPS["padded crop"]], mask_fill=fill)
    images = blank(8)
    masks = [
        torch.from_numpy(rng.integers(0, 2, (n, *images.shape[2:]), np.uint8))
        for n in (3, 0, 1, 2, 0, 4, 1, 0)
    ]
    want = ops(images, **KEY, indices=range(8), masks=masks).masks
    for form in ("padded", "flat"):
        given_ = Collate(form, kinds="masks")(masks)  # type: ignore[arg-type]
        got = ops(images, **KEY, indices=range(8), masks=given_).masks
        assert all(torch.equal(a, b) for a, b in zip(got, Collate(form, kinds="masks")(want), strict=True))  # type: ignore[arg-type]
    with pytest.raises(ArgumentError, match="Flat with 2 offsets for 8 images"):
        ops(images, **KEY, indices=range(8), masks=Flat(masks[0], torch.tensor([0, 3])))
    with pytest.raises(ArgumentError, match="images of one size"):
        ops(Padded(images, images[:, 0] > 0, torch.zeros(8, 2)), **KEY, indices=range(8))


@given(
    st.lists(st.sampled_from([*OPS.values(), A.ColorJitter(0.2), A.RandomErasing(1.0)]), max_size=4),
    st.lists(st.sampled_from([0, 1, 2, 1000]), max_size=5),
    st.integers(0, 1 << 30),
)
@settings(max_examples=40)
def test_any_numbers_of_objects(ops: list[Any], lengths: list[int], seed: int) -> None:
    """No objects, a thousand, no samples: the images are those without objects, cropped boxes lie inside
    them, no object is lost."""
    rng = np.random.default_rng(seed)
    ops = [op for op in ops if not (isinstance(op, A.RandomCrop) and not op.pad_if_needed)]
    images, count = pictures(max(len(lengths), 1), HEIGHT, WIDTH)[: len(lengths)], len(lengths)
    boxes = [random_boxes(rng, n, "xyxy") for n in lengths]
    points = [torch.from_numpy(rng.uniform(0, 50, (n, 2, 3))) for n in lengths]
    masks = [torch.from_numpy(rng.integers(0, 2, (min(n, 3), HEIGHT, WIDTH), np.uint8)) for n in lengths]
    given_ = [each.clone() for each in (*boxes, *points, *masks)]
    augment = A.AugmentBatch(ops)
    out = augment(
        images, seed=seed, epoch=1, indices=range(count), boxes=boxes, keypoints=points, masks=masks
    )
    assert torch.equal(out.images, augment(images, seed=seed, epoch=1, indices=range(count)))
    assert [each.shape for each in out.boxes] == [each.shape for each in boxes]
    assert [each.shape for each in out.keypoints] == [each.shape for each in points]
    assert [each.shape for each in out.masks] == [(len(each), *out.images.shape[2:]) for each in masks]
    assert all(torch.equal(a, b) for a, b in zip(given_, (*boxes, *points, *masks), strict=True)), (
        "an input was written to"
    )
    clamped = any(isinstance(op, A.RandomCrop) for op in ops)
    if clamped and count:
        joined = torch.cat(out.boxes)
        assert joined.numel() == 0 or (float(joined.min()) >= 0 and float(joined.max()) <= 64)


def test_named_objects() -> None:
    """Several of a kind by name, boxes of a format of their own."""
    rng = np.random.default_rng(1)
    images, both = blank(6), torch.stack([random_boxes(rng, 4, "xyxy") for _ in range(6)])
    centred = (
        F.convert_bounding_box_format(tv_boxes(both.reshape(-1, 4), "xyxy"), new_format="CXCYWH")
        .as_subclass(Tensor)
        .view(6, 4, 4)
    )
    augment = A.AugmentBatch([OPS["affine"]])
    out = augment(
        images, **KEY, indices=range(6), boxes={"a": both, "b": centred}, box_format={"b": "cxcywh"}
    )
    assert list(out.boxes) == ["a", "b"]
    back = F.convert_bounding_box_format(
        tv_boxes(out.boxes["b"].reshape(-1, 4), "cxcywh"), new_format="XYXY"
    ).as_subclass(Tensor)
    torch.testing.assert_close(back.view(6, 4, 4), out.boxes["a"], atol=1e-4, rtol=0)
    assert out.masks is None
    assert out.keypoints is None


@pytest.mark.parametrize(
    ("given_", "message"),
    [
        ({"masks": torch.zeros(4, HEIGHT, WIDTH)}, r"masks: \(4, 41, 52\) for 3 images of 41x52"),
        ({"masks": torch.zeros(3, HEIGHT, WIDTH - 1)}, "masks have the size of their image"),
        ({"masks": [torch.zeros(2, HEIGHT, WIDTH)] * 2}, "a list of 2 tensors for 3 images"),
        ({"masks": "mask"}, "not str"),
        ({"boxes": torch.zeros(3, 2, 5)}, "give float32, float64, int32 or int64 with 4 numbers a row"),
        ({"boxes": torch.zeros(3, 2, 4, dtype=torch.float16)}, "float16"),
        ({"boxes": torch.zeros(2, 2, 4)}, r"give \(B, N, ...\), Padded, Flat, or a list"),
        ({"boxes": [torch.zeros(2, 4)] * 4}, "a list of 4 tensors for 3 images"),
        ({"boxes": Flat(torch.zeros(5, 4), torch.tensor([0, 2, 5]))}, "give 4"),
        ({"boxes": Padded(torch.zeros(3, 5, 4), torch.zeros(3, 5), torch.zeros(2))}, "for 3 images"),
        (
            {"boxes": torch.zeros(3, 2, 4), "box_format": "xywhr"},
            "boxes of the format 'xywhr' are not moved on a device",
        ),
        ({"keypoints": torch.zeros(3, 2, 4)}, "2 or 3 numbers a row"),
    ],
)
def test_objects_that_are_none_of_the_batch(given_: dict[str, Any], message: str) -> None:
    """Named with their form, and what to give."""
    with pytest.raises(ArgumentError, match=message):
        A.AugmentBatch([OPS["hflip"]])(blank(3), **KEY, indices=range(3), **given_)


def test_offsets_beyond_the_batch_touch_nothing_else() -> None:
    """Offsets that do not end with the values are of no consequence but for these values."""
    boxes = Flat(torch.ones(5, 4), torch.tensor([0, 2, 900, -3]))
    assert A.AugmentBatch([OPS["hflip"]])(
        blank(3), **KEY, indices=range(3), boxes=boxes
    ).boxes.values.shape == (5, 4)


def test_mask_fill_is_part_of_the_value() -> None:
    """repr, equality, pickle and numbering keep it; what is no label is refused."""
    augment = A.AugmentBatch([A.RandomCrop(8, 2)], mask_fill=255)
    assert "mask_fill=255" in repr(augment)
    assert augment != A.AugmentBatch([A.RandomCrop(8, 2)])
    assert pickle.loads(pickle.dumps(augment)) == augment
    assert augment.numbered(3).mask_fill == 255
    for wrong in (1.5, 1 << 25):
        with pytest.raises(TransformError, match="mask_fill"):
            A.AugmentBatch([], mask_fill=wrong)  # type: ignore[arg-type]
