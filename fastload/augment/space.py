"""Geometry: matrices drawn up on the host, crops, and flips folded into the resampling that follows them."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from fastload import transforms as T
from fastload.augment import kernels
from fastload.augment.philox import Doubles, Draw, Ints
from fastload.augment.steps import Frame, Step
from fastload.errors import BatchShapeError
from fastload.transforms.ops import padding_sides, size_pair

FLIP_WORDS = CROP_WORDS = 2


def inverse_matrices(
    angle: npt.ArrayLike = 0.0,
    shift_x: npt.ArrayLike = 0.0,
    shift_y: npt.ArrayLike = 0.0,
    scale: npt.ArrayLike = 1.0,
    shear_x: npt.ArrayLike = 0.0,
    shear_y: npt.ArrayLike = 0.0,
    centre: tuple[npt.ArrayLike, npt.ArrayLike] = (0.0, 0.0),
) -> Doubles:
    """From a pixel of the result to its place in the image, for torchvision's affine(); shape (B, 2, 3).

    The way there is: shear along y, shear along x, rotate by angle (clockwise as displayed), scale, all about
    `centre`; then shift. Angles in degrees; shifts and centre in pixels, from the image's centre.
    """
    turn, slant_x, slant_y = (np.deg2rad(np.asarray(v, np.float64)) for v in (angle, shear_x, shear_y))
    a = np.cos(turn - slant_y) / np.cos(slant_y)
    b = -a * np.tan(slant_x) - np.sin(turn)
    c = np.sin(turn - slant_y) / np.cos(slant_y)
    d = -c * np.tan(slant_x) + np.cos(turn)
    # Rotation and shears keep areas (ad - bc = 1), so that the inverse needs no division but by the scale.
    parts = [
        np.asarray(v, np.float64) for v in (d / scale, -b / scale, -c / scale, a / scale, shift_x, shift_y)
    ]
    parts += [np.asarray(v, np.float64) for v in centre]
    xx, xy, yx, yy, dx, dy, cx, cy = np.broadcast_arrays(*parts)
    away_x, away_y = -dx - cx, -dy - cy
    x = np.stack((xx, xy, xx * away_x + xy * away_y + cx), axis=-1)
    y = np.stack((yx, yy, yx * away_x + yy * away_y + cy), axis=-1)
    return np.stack((x, y), axis=-2)


def affine_step(
    rows: Ints, matrices: Doubles, frame: Frame, mode: str, fill: float | Sequence[float]
) -> Step:
    """Resamples rows by their matrices; fill is 0..255, one or three."""
    shared = {"fill": np.full(3, fill, np.float32) * np.float32(frame.unit)} if np.any(fill) else {}
    return Step(
        kernels.affine,
        rows,
        {"matrix": matrices.astype(np.float32)},
        {"mode": mode},
        shared=shared,
        exact=matrices,
    )


def plan_hflip(spec: T.RandomHorizontalFlip, draw: Draw, frame: Frame) -> list[Step]:
    return [Step(kernels.hflip, draw.chance(spec.p), keypoint_pairs=spec.keypoint_pairs)]


def plan_vflip(spec: T.RandomVerticalFlip, draw: Draw, frame: Frame) -> list[Step]:
    return [Step(kernels.vflip, draw.chance(spec.p), keypoint_pairs=spec.keypoint_pairs)]


def plan_crop(spec: T.RandomCrop, draw: Draw, frame: Frame) -> list[Step]:
    """Padding and padding "if needed" as torchvision's v2: the lack is added on both sides.

    Raises:
        BatchShapeError: the padded images are smaller than the crop.
    """
    height, width = size_pair(spec.size, "RandomCrop")
    left, top, right, bottom = padding_sides(spec.padding)
    tall, wide = frame.height + top + bottom, frame.width + left + right
    if spec.pad_if_needed:
        more_y, more_x = max(0, height - tall), max(0, width - wide)
        left, right, top, bottom = left + more_x, right + more_x, top + more_y, bottom + more_y
        tall, wide = tall + 2 * more_y, wide + 2 * more_x
    if tall < height or wide < width:
        raise BatchShapeError(
            f"RandomCrop: {tall}x{wide} with padding is smaller than {height}x{width}; "
            "pad_if_needed=True pads further"
        )
    corner = np.stack((draw.below(tall - height + 1), draw.below(wide - width + 1)), axis=1)
    fill = np.array(spec.fill, np.float32) * np.float32(frame.unit)
    constants = {"pads": (left, top, right, bottom), "size": (height, width)}
    return [
        Step(
            kernels.crop,
            np.arange(frame.rows),
            {"corner": corner},
            constants,
            (height, width),
            {"fill": fill},
        )
    ]


_MIRRORED = {kernels.hflip: 0, kernels.vflip: 1}


def fold_flips(steps: list[Step]) -> list[Step]:
    """Moves flips into the matrices of an affine step right after them: the same pixels by one pass less over
    those rows.

    Consecutive affine steps stay two: pixels that the first one moves out of the image must not come back in
    the second.
    """
    out: list[Step] = []
    for step in steps:
        out.append(step)
        if step.kernel is not kernels.affine:
            continue
        matrix = step.arrays["matrix"].copy()
        for place in range(len(out) - 2, -1, -1):
            axis = _MIRRORED.get(out[place].kernel)
            if axis is None:
                break
            matrix[np.isin(step.rows, out[place].rows), axis] *= -1.0
            out[place] = Step(out[place].kernel, np.setdiff1d(out[place].rows, step.rows))
        out[-1] = Step(
            step.kernel, step.rows, {**step.arrays, "matrix": matrix}, step.constants, shared=step.shared
        )
    return [step for step in out if len(step.rows)]
