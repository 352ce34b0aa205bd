"""Objects of a batch's samples: masks, boxes and keypoints, moved by the steps that move the images' pixels.

NOTE [ objects: moved as torchvision does ]
Each step that moves pixels (flip, padded crop, resampling by a matrix) is done to the objects by itself, in
order, with the parameters that the images' rows have, as torchvision.transforms.v2.functional does it: masks
by the nearest pixel; of a box the four corners are moved, and the box around them is clamped to the image
after each pad, crop and resampling; keypoints are moved and not clamped, and a flip mirrors them about the
pixels' centres, and exchanges those of its `keypoint_pairs`, which torchvision has not. The images' steps may
be joined (`space.fold_flips`), the objects' are not: the results differ in rounding alone. Coordinates are
computed in float64 where the device has it, from matrices that were never rounded.

NOTE [ objects: by modules of Kornia, as Kornia moves them ]
Masks go through the module's own code with their rows' parameters, by the nearest pixel. Boxes and keypoints
are moved by the module's matrix, from pixels' centres to pixels' centres, and not clamped. Kornia's boxes
include their last pixel: the corners of xyxy are moved as they are, as by its "bbox_xyxy", so that a flip
maps x to W - 1 - x; those of xywh and cxcywh end one before x + w, as by its "bbox_xywh". A flip of Kornia's
exchanges no keypoints.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from fastload.augment import kernels
from fastload.augment.labels import moved_masks
from fastload.augment.steps import Array, Step, send
from fastload.batch.containers import Flat, Padded, sequence_like
from fastload.errors import ArgumentError
from fastload.transforms.ops import wrong_pairs

FORMATS = ("xyxy", "xywh", "cxcywh")
Pairs = tuple[tuple[int, int], ...]
_POINT, _BOX = 2, 4
"""Numbers of a point, without a visibility, and of a box."""


class Augmented(NamedTuple):
    """An augmented batch with its masks, boxes and keypoints; None: the batch has none."""

    images: Tensor
    masks: Any = None
    boxes: Any = None
    keypoints: Any = None


@dataclass(frozen=True)
class Annotations:
    """Annotations that move along with the images of a batch: of each kind one value, several by name, or
    None.

    Attributes:
        masks: (B, H, W) or (B, N, H, W), Padded, Flat, or a list of B tensors (N, H, W) or (H, W).
        boxes: 4 numbers a row: Padded, Flat, (B, N, 4), or a list of B tensors (N, 4).
        keypoints: x, y and perhaps a visibility: as boxes, with any dimensions between: (B, N, K, 3), say.
        formats: format of the boxes, one or by name: see FORMATS.
        fill: the label that comes into a mask from outside the image.
        pairs: by name of keypoints, the pairs that flips with keypoint_pairs="auto" exchange.
    """

    masks: object = None
    boxes: object = None
    keypoints: object = None
    formats: str | Mapping[str, str] = "xyxy"
    fill: int = 0
    pairs: Mapping[str, Pairs] = field(default_factory=dict)

    def __bool__(self) -> bool:
        return any(value is not None for value in (self.masks, self.boxes, self.keypoints))

    @property
    def given(self) -> dict[str, frozenset[str]]:
        """Kinds of objects that there are, with the formats of boxes."""
        formats = {self.formats} if isinstance(self.formats, str) else set(self.formats.values())
        kinds = {"masks": (self.masks, ()), "boxes": (self.boxes, formats), "keypoints": (self.keypoints, ())}
        return {kind: frozenset(of_value) for kind, (value, of_value) in kinds.items() if value is not None}

    def moved(self, images: Tensor, steps: Sequence[Step]) -> tuple[Any, Any, Any]:
        """Masks, boxes and keypoints after the steps of these images.

        Raises:
            ArgumentError: they are not of this batch, of another device, or of another form.
        """
        motions = motions_of(images, steps) if self.boxes is not None or self.keypoints is not None else []

        def masks(value: object, name: str) -> object:
            return moved_masks(value, name, images, steps, self.fill)

        def boxes(value: object, name: str) -> object:
            form = self.formats if isinstance(self.formats, str) else self.formats.get(name, "xyxy")
            if form not in FORMATS:
                raise ArgumentError(
                    f"{name}: boxes of the format {form!r} are not moved on a device; those of "
                    f"{', '.join(FORMATS)} are"
                )
            return _moved_rows(
                value,
                name,
                images,
                motions,
                _BOX,
                lambda rows, motion, per_row: _box(rows, motion, per_row, form),
            )

        def keypoints(value: object, name: str) -> object:
            own = [motion.exchanging(name, self.pairs) for motion in motions]
            return _moved_rows(value, name, images, own, _POINT, _keypoint)

        return (
            _each(self.masks, "masks", masks),
            _each(self.boxes, "boxes", boxes),
            _each(self.keypoints, "keypoints", keypoints),
        )


def _each(value: object, name: str, move: Callable[[object, str], object]) -> object:
    """One value, or each of several by name; None stays None."""
    if value is None:
        return None
    if isinstance(value, Mapping):
        return {key: move(each, key) for key, each in value.items()}
    return move(value, name)


@dataclass(frozen=True)
class Motion:
    """One step as it acts on coordinates.

    Attributes:
        kind: "flip", "shift", "matrix" or "centres".
        rows: bool (B,), on the device: the samples that it moves; None: all.
        size: (height, width) of the images after it.
        axis: axis of a flip, 0 along x or 1 along y.
        by: amount of a shift, (B, 2), which is subtracted from x and y.
        matrix: matrix of a resampling, (B, 2, 3), from a place in the image to its place in the result; with
            "centres" (B, 3, 3), from pixels' centres to pixels' centres.
        pairs: numbers of the keypoints that a flip exchanges; "auto": the pairs that the keypoints are known
            to have.
    """

    kind: str
    size: tuple[int, int]
    rows: Tensor | None = None
    axis: int = 0
    by: Tensor | None = None
    matrix: Tensor | None = None
    pairs: str | Pairs = ()

    def exchanging(self, name: str, known: Mapping[str, Pairs]) -> Motion:
        """The motion with the pairs of the keypoints of this name. Raises ArgumentError if they are not
        known."""
        if not isinstance(self.pairs, str):
            return self
        if not known.get(name):
            raise ArgumentError(
                f'{name}: keypoint_pairs="auto", and it is not known here which keypoints mirror '
                "each other: give the flip the pairs, as "
                "keypoint_pairs=[(1, 2), (3, 4)]"
            )
        return replace(self, pairs=known[name])


def motions_of(images: Tensor, steps: Sequence[Step]) -> list[Motion]:
    """The steps that move pixels, as they act on coordinates; what they need crosses to the device in one
    copy."""
    count, size = len(images), (images.shape[2], images.shape[3])
    double = np.float32 if images.device.type == "mps" else np.float64
    planned: list[tuple[str, tuple[int, int], int, Any, dict[str, Array]]] = []
    for step in steps:
        moves = np.zeros(count, np.bool_)
        moves[step.rows] = True
        if step.kernel in (kernels.hflip, kernels.vflip):
            planned.append(
                ("flip", size, int(step.kernel is kernels.vflip), step.keypoint_pairs or (), {"rows": moves})
            )
        elif step.kernel is kernels.affine:
            matrix = np.zeros((count, 2, 3), double)
            matrix[step.rows] = _forward(step.exact, size)
            planned.append(("matrix", size, 0, (), {"rows": moves, "matrix": matrix}))
        elif step.centres is not None:
            matrix = np.tile(np.eye(3, dtype=double), (count, 1, 1))
            matrix[step.rows] = step.centres(step, size)
            size = step.size or size
            planned.append(("centres", size, 0, (), {"rows": moves, "matrix": matrix}))
        elif step.kernel is kernels.crop:
            left, top, right, bottom = step.constants["pads"]
            tall, wide = size[0] + top + bottom, size[1] + left + right
            if (tall, wide) != size:
                planned.append(
                    (
                        "shift",
                        (tall, wide),
                        0,
                        (),
                        {"by": np.tile(np.array([[-left, -top]], double), (count, 1))},
                    )
                )
            size = step.size or size
            if (tall, wide) != size:
                planned.append(("shift", size, 0, (), {"by": step.arrays["corner"][:, ::-1].astype(double)}))
    sent = iter(send([array for *_, arrays in planned for array in arrays.values()], images.device))
    return [
        Motion(kind, size, axis=axis, pairs=pairs, **{name: next(sent) for name in arrays})
        for kind, size, axis, pairs, arrays in planned
    ]


def _forward(inverse: Array | None, size: tuple[int, int]) -> Array:
    """(R, 2, 3) from a place to its place in the result, in pixels; `inverse` goes the other way, measured
    from the centre."""
    assert inverse is not None
    there = np.linalg.inv(inverse[:, :, :2])
    centre = np.array([0.5 * size[1], 0.5 * size[0]])
    offset = centre - (there @ (inverse[:, :, 2] + centre)[:, :, None])[:, :, 0]
    return np.concatenate((there, offset[:, :, None]), axis=2)


PerRow = Callable[[Tensor], Tensor]
"""A parameter a sample, (B, ...), as one that broadcasts with the rows' (..., 2 or 4)."""


def _moved_rows(
    value: object,
    name: str,
    images: Tensor,
    motions: Sequence[Motion],
    width: int,
    move: Callable[[Tensor, Motion, PerRow], Tensor],
) -> object:
    """Boxes or keypoints after all motions, in the form that they came in."""
    rows = _Rows.of(value, name, images, width)
    if width == _POINT:
        _check_pairs(rows, name, [pair for motion in motions for pair in motion.pairs])
    if not motions or not rows.values.numel():
        return rows.wrap(rows.values)
    out = rows.values
    for motion in motions:
        after = move(out, motion, rows.parameter).to(out.dtype)
        out = (
            after if motion.rows is None else torch.where(rows.parameter(motion.rows)[..., None], after, out)
        )
    if rows.objects is not None:
        out = torch.where(rows.parameter(rows.objects, 2)[..., None], out, rows.values)
    return rows.wrap(out)


def _check_pairs(rows: _Rows, name: str, pairs: Sequence[Any]) -> None:
    """Raises ArgumentError if flips exchange points that objects do not have."""
    leading = 2 if rows.sample is None else 1
    count = rows.values.shape[-2] if rows.values.ndim > leading + 1 else 1
    if wrong := next(filter(None, (wrong_pairs([pair], count) for pair in pairs)), ""):
        raise ArgumentError(
            f"{name}: a flip exchanges keypoints that its objects of {count} do not have: {wrong}"
        )


@dataclass(frozen=True)
class _Rows:
    """Boxes or keypoints of a batch as one tensor.

    Attributes:
        values: (B, N, ...), or (T, ...) with the rows of one sample after those of another.
        sample: int64 (T,), whose each row is; None: values are (B, N, ...).
        objects: bool (B, N), which rows are objects; None: all.
        wrap: gives another tensor of this shape the form that the values came in.
    """

    values: Tensor
    sample: Tensor | None
    objects: Tensor | None
    wrap: Callable[[Tensor], Any]

    def parameter(self, given: Tensor, leading: int = 1) -> Tensor:
        """A parameter a sample, or with leading=2 a row, as one for the rows, with dimensions of 1 where
        the values have more."""
        if self.sample is not None:
            given = given[self.sample]
        own = given.shape[leading:]
        return given.reshape(*given.shape[:leading], *(1,) * (self.values.ndim - 1 - leading), *own)

    @classmethod
    def of(cls, value: object, name: str, images: Tensor, width: int) -> _Rows:
        """Raises ArgumentError."""
        rows = cls._read(value, name, len(images), images.device, width)
        given = rows.values
        widths = (4,) if width == 4 else (2, 3)
        if given.ndim < 2 or given.shape[-1] not in widths or given.dtype not in _DTYPES:
            what = " or ".join(map(str, widths))
            raise ArgumentError(
                f"{name}: {given.dtype} of {tuple(given.shape)}; give float32, float64, int32 or "
                f"int64 with {what} numbers a row"
            )
        if given.device != images.device:
            raise ArgumentError(
                f"{name} is on {given.device}, and the images are on {images.device}: move it there"
            )
        return rows

    @classmethod
    def _read(cls, value: object, name: str, count: int, device: torch.device, width: int) -> _Rows:
        if isinstance(value, Padded):
            length = torch.arange(value.values.shape[1], device=device)
            if value.values.ndim < 3 or len(value.values) != count or value.lengths.shape != (count,):
                raise ArgumentError(
                    f"{name}: Padded of {tuple(value.values.shape)} with "
                    f"{tuple(value.lengths.shape)} lengths for {count} images"
                )
            objects = length < value.lengths.to(device)[:, None]
            return cls(value.values, None, objects, lambda out: value._replace(values=out))
        if isinstance(value, Flat):
            if value.offsets.shape != (count + 1,):
                raise ArgumentError(
                    f"{name}: Flat with {tuple(value.offsets.shape)} offsets for {count} images; "
                    f"give {count + 1}"
                )
            places = torch.arange(len(value.values), device=device)
            sample = torch.searchsorted(value.offsets.to(device)[1:].contiguous(), places, right=True).clamp_(
                max=max(count - 1, 0)
            )
            return cls(value.values, sample, None, lambda out: value._replace(values=out))
        if isinstance(value, list | tuple) and all(isinstance(each, Tensor) for each in value):
            if len(value) != count:
                raise ArgumentError(f"{name}: a list of {len(value)} tensors for {count} images")
            lengths = [len(each) for each in value]
            sample = send([np.repeat(np.arange(count), lengths)], device)[0]
            joined = (
                torch.cat([each.as_subclass(Tensor) for each in value])
                if value
                else torch.zeros((0, width), device=device)
            )
            return cls(
                joined,
                sample,
                None,
                lambda out: sequence_like(type(value), torch.split(out, lengths) if lengths else ()),
            )
        if isinstance(value, Tensor) and value.ndim >= 3 and len(value) == count:
            return cls(value.as_subclass(Tensor), None, None, lambda out: out)
        told = tuple(value.shape) if isinstance(value, Tensor) else type(value).__name__
        raise ArgumentError(
            f"{name}: {told} for {count} images; give (B, N, ...), Padded, Flat, or a list of a "
            "tensor for each image"
        )


_DTYPES = (torch.float32, torch.float64, torch.int32, torch.int64)


def _wide(values: Tensor) -> Tensor:
    """Values in the dtype in which they are multiplied by a matrix: float64, on MPS float32."""
    return values.float() if values.device.type == "mps" else values.double()


def _keypoint(points: Tensor, motion: Motion, per_row: PerRow) -> Tensor:
    """Keypoints after one motion; a visibility goes with its point, and points of visibility 0 stay as
    they are, as natively."""
    out = points.clone()
    if motion.kind == "flip":
        out[..., motion.axis] = motion.size[1 - motion.axis] - 1 - points[..., motion.axis]
    elif motion.kind == "centres":
        out[..., :2] = _projected(points[..., 0], points[..., 1], per_row(_matrix(motion))).to(points.dtype)
    elif motion.by is not None:
        out[..., :2] = points[..., :2] - per_row(motion.by).to(points.dtype)
    elif motion.matrix is not None:
        out[..., :2] = _placed(_wide(points[..., 0]), _wide(points[..., 1]), per_row(motion.matrix)).to(
            points.dtype
        )
    if points.shape[-1] > _POINT:
        out = torch.where(points[..., _POINT:] == 0, points, out)
    return _exchanged(out, motion.pairs)


def _exchanged(points: Tensor, pairs: Sequence[Any]) -> Tensor:
    """Keypoints (..., K, 2 or 3) with those of each pair in each other's places."""
    if not pairs:
        return points
    order = list(range(points.shape[-2]))
    for first, second in pairs:
        order[first], order[second] = second, first
    parts = points.unbind(-2)
    return torch.stack([parts[number] for number in order], dim=-2)


def _placed(x: Tensor, y: Tensor, matrix: Tensor) -> Tensor:
    """Points (...) and (...) by matrices (..., 2, 3), as (..., 2)."""
    return torch.stack(
        [matrix[..., i, 0] * x + matrix[..., i, 1] * y + matrix[..., i, 2] for i in (0, 1)], dim=-1
    )


def _matrix(motion: Motion) -> Tensor:
    assert motion.matrix is not None
    return motion.matrix


def _projected(x: Tensor, y: Tensor, matrix: Tensor) -> Tensor:
    """Points (...) and (...) by matrices (..., 3, 3), as (..., 2)."""
    place = _placed(_wide(x), _wide(y), matrix)
    return place / (matrix[..., 2, 0] * x + matrix[..., 2, 1] * y + matrix[..., 2, 2])[..., None]


def _box_of_pixels(boxes: Tensor, motion: Motion, per_row: PerRow, form: str) -> Tensor:
    """Boxes after a motion from centres to centres. See NOTE [ objects: by modules of Kornia, as Kornia
    moves them ]."""
    matrix, last = per_row(_matrix(motion)), 0 if form == "xyxy" else 1
    left, top, right, bottom = _corners(_wide(boxes), form).unbind(-1)
    right, bottom = right - last, bottom - last
    places = torch.stack(
        [_projected(x, y, matrix) for x, y in ((left, top), (right, top), (right, bottom), (left, bottom))]
    )
    return _as_form(torch.cat((places.amin(0), places.amax(0) + last), dim=-1), form)


def _box(boxes: Tensor, motion: Motion, per_row: PerRow, form: str) -> Tensor:
    """Boxes after one motion."""
    if motion.kind == "centres":
        return _box_of_pixels(boxes, motion, per_row, form)
    if motion.kind == "flip":
        out, near, far, extent = boxes.clone(), motion.axis, motion.axis + 2, motion.size[1 - motion.axis]
        if form == "xyxy":
            out[..., near], out[..., far] = extent - boxes[..., far], extent - boxes[..., near]
        else:
            out[..., near] = extent - (
                boxes[..., near] + boxes[..., far] if form == "xywh" else boxes[..., near]
            )
        return out
    if motion.by is not None:
        by = per_row(motion.by).to(boxes.dtype)
        corners = _corners(
            _wide(boxes - torch.cat((by, by if form == "xyxy" else torch.zeros_like(by)), dim=-1)), form
        )
    else:
        assert motion.matrix is not None
        matrix, (left, top, right, bottom) = per_row(motion.matrix), _corners(_wide(boxes), form).unbind(-1)
        places = torch.stack(
            [_placed(x, y, matrix) for x, y in ((left, top), (right, top), (right, bottom), (left, bottom))]
        )
        corners = torch.cat((places.amin(0), places.amax(0)), dim=-1)
    height, width = motion.size
    corners[..., 0::2].clamp_(0, width)
    corners[..., 1::2].clamp_(0, height)
    return _as_form(corners, form)


def _corners(boxes: Tensor, form: str) -> Tensor:
    """Floating boxes as left, top, right, bottom, in memory of their own."""
    if form == "xyxy":
        return boxes.clone()
    first, extent = boxes[..., :2], boxes[..., 2:]
    low = first if form == "xywh" else first - extent / 2
    return torch.cat((low, low + extent), dim=-1)


def _as_form(corners: Tensor, form: str) -> Tensor:
    if form == "xyxy":
        return corners
    low, high = corners[..., :2], corners[..., 2:]
    return torch.cat((low if form == "xywh" else (low + high) / 2, high - low), dim=-1)
