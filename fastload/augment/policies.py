"""Policies that choose ops per sample: RandAugment, TrivialAugmentWide and AutoAugment, by the tables of
fastload.transforms.policies. Kornia's policies choose once per batch.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum

import numpy as np
import numpy.typing as npt

from fastload.augment import kernels
from fastload.augment.philox import Doubles, Draw, Ints
from fastload.augment.space import affine_step, inverse_matrices
from fastload.augment.specs import Op, colour, fail, interpolation_mode, keep
from fastload.augment.steps import Frame, Step
from fastload.transforms.policies import AUTOAUGMENT_BINS, NARROW, OPS, WIDE, Scales, policy_pairs

_ID = {name: number for number, name in enumerate(OPS)}
SPACE = 14
SIGNED = np.array([1 <= number <= 9 for number in range(len(OPS))])
"""Ops whose magnitude is negative half of the time."""


_MOVES = np.array([name in ("ShearX", "ShearY", "TranslateX", "TranslateY", "Rotate") for name in OPS])


def magnitude_table(scales: Scales, bins: int, height: int, width: int) -> npt.NDArray[np.float32]:
    """The magnitude of every op at every bin; shape (15, bins). Posterize in bits, solarize a threshold of
    0..255, translate pixels."""
    table = np.zeros((len(OPS), bins), np.float64)
    ramp = np.linspace(0.0, 1.0, bins)
    across, down = (width, height) if scales.translate_share else (1, 1)
    for names, top in (
        (("ShearX", "ShearY"), scales.shear),
        (("TranslateX",), scales.translate * across),
        (("TranslateY",), scales.translate * down),
        (("Rotate",), scales.rotate),
        (("Brightness", "Color", "Contrast", "Sharpness"), scales.blend),
    ):
        for name in names:
            table[_ID[name]] = top * ramp
    table[_ID["Posterize"]] = np.round(8.0 - np.arange(bins) / ((bins - 1) / scales.posterize))
    table[_ID["Solarize"]] = 255.0 * (1.0 - ramp)
    return table.astype(np.float32)


def _matrices(kinds: Ints, values: Doubles, frame: Frame) -> Doubles:
    """Matrices of the five geometric ops. Shears hold the corner as the reference implementations do,
    rotation turns counter-clockwise."""
    shear, whole = np.degrees(np.arctan(values)), np.trunc(values)
    shear_x, shear_y = kinds == _ID["ShearX"], kinds == _ID["ShearY"]
    corner = -0.5 * (shear_x | shear_y)
    return inverse_matrices(
        angle=np.where(kinds == _ID["Rotate"], -values, 0.0),
        shift_x=np.where(kinds == _ID["TranslateX"], whole, 0.0),
        shift_y=np.where(kinds == _ID["TranslateY"], whole, 0.0),
        shear_x=np.where(shear_x, shear, 0.0),
        shear_y=np.where(shear_y, shear, 0.0),
        centre=(corner * frame.width, corner * frame.height),
    )


def slot_steps(kinds: Ints, values: Doubles, frame: Frame, mode: str, fill: Sequence[float]) -> list[Step]:
    """One op per sample: rows of one kind go together, and the geometric ones by one resampling. kinds,
    values: (B,)."""

    def rows_of(name: str) -> Ints:
        return np.flatnonzero(kinds == _ID[name])

    moved = np.flatnonzero(_MOVES[kinds])
    steps = [affine_step(moved, _matrices(kinds[moved], values[moved], frame), frame, mode, fill)]
    for name, kernel in (
        ("Brightness", kernels.brightness),
        ("Color", kernels.saturation),
        ("Contrast", kernels.contrast),
        ("Sharpness", kernels.sharpness),
    ):
        rows = rows_of(name)
        steps.append(Step(kernel, rows, {"factor": (1.0 + values[rows]).astype(np.float32)}))
    rows = rows_of("Posterize")
    steps.append(Step(kernels.posterize, rows, {"bits": values[rows].astype(np.int64)}))
    rows = rows_of("Solarize")
    steps.append(Step(kernels.solarize, rows, {"threshold": (values[rows] * frame.unit).astype(np.float32)}))
    for name, plain in (
        ("AutoContrast", kernels.autocontrast),
        ("Equalize", kernels.equalize),
        ("Invert", kernels.invert),
    ):
        steps.append(Step(plain, rows_of(name)))
    return steps


class _Policy(Op):
    interpolation: str | Enum
    fill: float | Sequence[float]

    def __post_init__(self) -> None:
        """Checks what they have in common; torchvision's fill=None is black."""
        keep(
            self,
            interpolation=interpolation_mode(self, self.interpolation),
            fill=colour(self, "fill", self.fill or 0.0),
        )
        bins = getattr(self, "num_magnitude_bins", 2)
        if not isinstance(bins, int) or bins < 2:
            raise fail(self, f"num_magnitude_bins={bins!r}; give at least 2")

    def choices(self, draw: Draw, height: int, width: int) -> list[tuple[Ints, Doubles]]:
        """For each slot, the kind of op (index into OPS) and the signed magnitude of every sample."""
        raise NotImplementedError

    def plan(self, draw: Draw, frame: Frame) -> list[Step]:
        steps = []
        mode, fill = interpolation_mode(self, self.interpolation), colour(self, "fill", self.fill)
        for kinds, values in self.choices(draw, frame.height, frame.width):
            steps += slot_steps(kinds, values, frame, mode, fill)
        return steps


@dataclass(frozen=True)
class RandAugment(_Policy):
    """Several of 14 ops at one magnitude, chosen per sample.

    Args:
        num_ops: number of ops.
        magnitude: bin of the magnitude, 0 .. num_magnitude_bins - 1.
        num_magnitude_bins: number of bins of each range.
        interpolation, fill: see RandomRotation.
    """

    num_ops: int = 2
    magnitude: int = 9
    num_magnitude_bins: int = 31
    interpolation: str | Enum = "nearest"
    fill: float | Sequence[float] = 0.0

    def __post_init__(self) -> None:
        super().__post_init__()
        if not isinstance(self.num_ops, int) or self.num_ops < 0:
            raise fail(self, f"num_ops={self.num_ops!r}; give at least 0")
        if not isinstance(self.magnitude, int) or not 0 <= self.magnitude < self.num_magnitude_bins:
            raise fail(
                self,
                f"magnitude={self.magnitude!r}; give a bin below "
                f"num_magnitude_bins={self.num_magnitude_bins}",
            )

    @property
    def words(self) -> int:  # type: ignore[override]
        return 2 * self.num_ops

    def choices(self, draw: Draw, height: int, width: int) -> list[tuple[Ints, Doubles]]:
        column = magnitude_table(NARROW, self.num_magnitude_bins, height, width)[:, self.magnitude]
        out = []
        for _ in range(self.num_ops):
            kinds, negative = draw.below(SPACE), draw.below(2)
            out.append((kinds, _signed(kinds, column[kinds], negative)))
        return out


@dataclass(frozen=True)
class TrivialAugmentWide(_Policy):
    """One of 14 ops at a random magnitude, chosen per sample.

    Args:
        num_magnitude_bins, interpolation, fill: see RandAugment.
    """

    num_magnitude_bins: int = 31
    interpolation: str | Enum = "nearest"
    fill: float | Sequence[float] = 0.0

    words = 3

    def choices(self, draw: Draw, height: int, width: int) -> list[tuple[Ints, Doubles]]:
        table = magnitude_table(WIDE, self.num_magnitude_bins, height, width)
        kinds, bins, negative = draw.below(SPACE), draw.below(self.num_magnitude_bins), draw.below(2)
        return [(kinds, _signed(kinds, table[kinds, bins], negative))]


def _signed(kinds: Ints, values: npt.NDArray[np.float32], negative: Ints) -> Doubles:
    return np.where(SIGNED[kinds] & (negative == 1), -values, values).astype(np.float64)


def sub_policies(name: str) -> tuple[Ints, Doubles, Ints]:
    """Kinds, probabilities and bins of a policy's pairs; each of shape (25, 2)."""
    pairs = policy_pairs(name)
    kinds = np.array([[_ID[op.kind] for op in pair] for pair in pairs])
    bins = np.array([[op.bin for op in pair] for pair in pairs])
    return kinds, np.array([[op.p for op in pair] for pair in pairs]), bins


@dataclass(frozen=True)
class AutoAugment(_Policy):
    """One of 25 pairs of ops, chosen per sample.

    Args:
        policy: "imagenet", or torchvision's member.
        interpolation, fill: see RandAugment.
    """

    policy: str | Enum = "imagenet"
    interpolation: str | Enum = "nearest"
    fill: float | Sequence[float] = 0.0

    words = 7

    def __post_init__(self) -> None:
        super().__post_init__()
        keep(self, policy=str(getattr(self.policy, "value", self.policy)).lower())
        if self.policy != "imagenet":
            raise fail(self, f'policy={self.policy!r}; only "imagenet" runs on a batch')

    def choices(self, draw: Draw, height: int, width: int) -> list[tuple[Ints, Doubles]]:
        kinds, chances, bins = sub_policies(str(self.policy))
        table = magnitude_table(NARROW, AUTOAUGMENT_BINS, height, width)
        which = draw.below(len(kinds))
        out = []
        for slot in range(2):
            happens, negative = draw.uniform() < chances[which, slot], draw.below(2)
            kind = np.where(happens, kinds[which, slot], _ID["Identity"])
            out.append((kind, _signed(kind, table[kind, bins[which, slot]], negative)))
        return out
