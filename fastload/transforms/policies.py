"""Tables of the policies that choose ops per sample: RandAugment, TrivialAugmentWide and AutoAugment, by
torchvision's. Read by fastload.augment and, as numbers of core.Program, by native threads.

Sources: Cubuk et al., "RandAugment" (arXiv:1909.13719); Müller and Hutter, "TrivialAugment"
(arXiv:2103.10158); Cubuk et al., "AutoAugment" (arXiv:1805.09501), whose policies were found by search.
Spaces, ranges, 31 and 10 bins and signs are those of torchvision.transforms.v2 0.28, which
tests/augment/test_augment_policies.py holds them to.
"""

from __future__ import annotations

from dataclasses import dataclass

OPS = (
    "Identity",
    "ShearX",
    "ShearY",
    "TranslateX",
    "TranslateY",
    "Rotate",
    "Brightness",
    "Color",
    "Contrast",
    "Sharpness",
    "Posterize",
    "Solarize",
    "AutoContrast",
    "Equalize",
    "Invert",
)
"""By number, as in csrc/engine/augment.c; the first 14 are the space of RandAugment and
TrivialAugmentWide, in torchvision's order."""


@dataclass(frozen=True)
class Scales:
    """The largest magnitudes of a policy. Shear is a slope, translate pixels or a share, rotate degrees,
    blends add to a factor of 1."""

    shear: float
    translate: float
    rotate: float
    blend: float
    posterize: float
    translate_share: bool


NARROW = Scales(
    shear=0.3, translate=150.0 / 331.0, rotate=30.0, blend=0.9, posterize=4.0, translate_share=True
)
WIDE = Scales(shear=0.99, translate=32.0, rotate=135.0, blend=0.99, posterize=6.0, translate_share=False)

AUTOAUGMENT_BINS = 10
# One line per sub-policy: op, probability, bin (- for ops without a magnitude), twice.
_IMAGENET = """
Posterize 0.4 8     Rotate 0.6 9
Solarize 0.6 5      AutoContrast 0.6 -
Equalize 0.8 -      Equalize 0.6 -
Posterize 0.6 7     Posterize 0.6 6
Equalize 0.4 -      Solarize 0.2 4
Equalize 0.4 -      Rotate 0.8 8
Solarize 0.6 3      Equalize 0.6 -
Posterize 0.8 5     Equalize 1.0 -
Rotate 0.2 3        Solarize 0.6 8
Equalize 0.6 -      Posterize 0.4 6
Rotate 0.8 8        Color 0.4 0
Rotate 0.4 9        Equalize 0.6 -
Equalize 0.0 -      Equalize 0.8 -
Invert 0.6 -        Equalize 1.0 -
Color 0.6 4         Contrast 1.0 8
Rotate 0.8 8        Color 1.0 2
Color 0.8 8         Solarize 0.8 7
Sharpness 0.4 7     Invert 0.6 -
ShearX 0.6 5        Equalize 1.0 -
Color 0.4 0         Equalize 0.6 -
Equalize 0.4 -      Solarize 0.2 4
Solarize 0.6 5      AutoContrast 0.6 -
Invert 0.6 -        Equalize 1.0 -
Color 0.6 4         Contrast 1.0 8
Equalize 0.8 -      Equalize 0.6 -
"""


@dataclass(frozen=True)
class PolicyOp:
    """One op of a sub-policy.

    Attributes:
        kind: its name in OPS.
        p: probability, in tenths.
        bin: bin of its magnitude; 0 for ops without one.
    """

    kind: str
    p: float
    bin: int


def policy_pairs(name: str) -> list[tuple[PolicyOp, PolicyOp]]:
    """The pairs of a policy of AutoAugment, by its name."""
    rows = [line.split() for line in {"imagenet": _IMAGENET}[name].strip().splitlines()]
    return [(_op_of(row[:3]), _op_of(row[3:])) for row in rows]


def _op_of(words: list[str]) -> PolicyOp:
    kind, p, number = words
    return PolicyOp(kind, float(p), 0 if number == "-" else int(number))
