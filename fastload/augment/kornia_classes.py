"""Kornia's augmentations of 2D images: which run per sample, and how. Recognised by class, in the Kornia that
is loaded.

A class is in ROWWISE if this holds for it in Kornia 0.9, and is tested: what it does to a row follows from
that row's parameters alone, and nothing is drawn after forward_parameters(). For the Kornia that is
installed, KorniaOp tries it. A subclass may have other code, so none is taken for its base.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from dataclasses import dataclass
from types import ModuleType
from typing import Any

_ALL = frozenset({"masks", "boxes", "keypoints"})


@dataclass(frozen=True)
class Traits:
    """Conditions under which the modules of a class run per sample.

    Attributes:
        moves: True if it moves pixels.
        objects: kinds of objects that it changes along with the pixels.
        resizes: True if the images may have another size afterwards.
        on_host: True if it reads its parameters before it queues anything: on a device, each would wait for
            it.
        fixed: True if it draws nothing at probability 1, and takes every row.
        floats: True if its values leave 0..1.
        alone: True if the bits of a row depend on how many are beside it: rows go in one by one.
        shared: parameters one a row, of which it reads the first row's alone.
        numbers: the parameter that numbers the rows; "": there is none.
    """

    moves: bool = False
    objects: frozenset[str] = frozenset()
    resizes: bool = False
    on_host: bool = False
    fixed: bool = False
    floats: bool = False
    alone: bool = False
    shared: tuple[str, ...] = ()
    numbers: str = ""


_COLOUR = Traits()
_PLACE = Traits(moves=True, objects=_ALL)
_CROP = Traits(moves=True, objects=_ALL, resizes=True, on_host=True)
_SIZE = Traits(moves=True, objects=_ALL, resizes=True, on_host=True, fixed=True)
ROWWISE: Mapping[str, Traits] = {
    **dict.fromkeys(
        """
        RandomAutoContrast RandomBoxBlur RandomBrightness RandomChannelShuffle RandomClahe RandomContrast
        RandomEqualize RandomGamma RandomGaussianIllumination RandomGaussianNoise RandomGrayscale RandomHue
        RandomInvert RandomLinearCornerIllumination RandomLinearIllumination RandomMedianBlur
        RandomPlanckianJitter RandomPlasmaBrightness RandomPlasmaContrast RandomPlasmaShadow RandomPosterize
        RandomRGBShift RandomSaltAndPepperNoise RandomSaturation RandomSharpness RandomSnow RandomSolarize
        """.split(),
        _COLOUR,
    ),
    **dict.fromkeys(("ColorJiggle", "ColorJitter", "RandomGaussianBlur", "RandomRain"), Traits(on_host=True)),
    "RandomJPEG": Traits(on_host=True, alone=True),
    **dict.fromkeys(("Denormalize", "Normalize"), Traits(fixed=True, floats=True)),
    "RandomChannelDropout": Traits(numbers="batch_idx"),
    "RandomErasing": Traits(objects=frozenset({"masks"})),
    "RandomMotionBlur": Traits(on_host=True, shared=("ksize_factor",)),
    **dict.fromkeys(
        """
        RandomAffine RandomHorizontalFlip RandomPerspective RandomRotation RandomRotation90 RandomShear
        RandomTranslate RandomVerticalFlip
        """.split(),
        _PLACE,
    ),
    **dict.fromkeys(("RandomFisheye", "RandomJigsaw", "RandomThinPlateSpline"), Traits(moves=True)),
    "RandomElasticTransform": Traits(moves=True, objects=frozenset({"masks"}), alone=True),
    **dict.fromkeys(("RandomCrop", "RandomResizedCrop"), _CROP),
    **dict.fromkeys(("CenterCrop", "LongestMaxSize", "PadTo", "Resize", "SmallestMaxSize"), _SIZE),
}
"""By name in kornia.augmentation."""

_WHOLE: Mapping[str, str] = {
    **dict.fromkeys(
        ("PatchMix", "RandomCutMixV2", "RandomMixUpV2", "RandomMosaic", "RandomTransplantation"),
        "it mixes samples",
    ),
    "RandomDissolving": "it draws while it runs",
}
"""Why a class does not run per sample."""


def library() -> ModuleType | None:
    """kornia.augmentation, if the program has imported it; else None, and no object is Kornia's."""
    return sys.modules.get("kornia.augmentation")


def is_kornia(value: object) -> bool:
    """Returns True for an augmentation or a sequence of Kornia's, or of a subclass of one."""
    found = library()
    if found is None:
        return False
    bases = (
        found.AugmentationBase2D,
        found.AugmentationBase3D,
        found.MixAugmentationBaseV2,
        found.container.ImageSequentialBase,
    )
    return isinstance(value, bases)


def traits_of(module: object) -> Traits | None:
    """The traits of a module's class; None if the class does not run per sample."""
    return ROWWISE.get(_name(module))


def why_whole(module: Any) -> str:
    """The reason why a module does not run per sample as it is set, as a clause; "" if it does."""
    traits = traits_of(module)
    if traits is None:
        return _WHOLE.get(_name(module), "its class is not known to")
    if module.p_batch != 1 or (module.p != 1 if traits.fixed else module.same_on_batch):
        return "it draws once for the whole batch (same_on_batch or p_batch)"
    return ""


def _name(module: object) -> str:
    """The name of a module's class, if kornia.augmentation has the class by that name; else ""."""
    kind = type(module)
    return kind.__name__ if getattr(library(), kind.__name__, None) is kind else ""
