"""Adjusting: torchvision's functions that change the colours of a lazy image by a factor, adjust_brightness
and its like, as one step of its recipe each."""

from __future__ import annotations

from typing import TypeGuard

from fastload.common.originals import OwnCode
from fastload.composing import one_step
from fastload.composing.one_step import OneStep
from fastload.lazy.colours import Blend, Contrast, Hue, Saturate, Sharpen
from fastload.lazy.functions import FACTOR_MOST
from fastload.lazy.steps import Step

MODULE = "torchvision.transforms._functional_pil"


def is_factor(value: object, most: float = FACTOR_MOST) -> TypeGuard[float]:
    """Returns True for a number that is at most so far from 0."""
    return isinstance(value, int | float) and abs(value) <= most


def _brightness(mode: str, factor: float) -> Step | None:
    return Blend(bytes(4 if mode == "RGB" else 1), float(factor)) if is_factor(factor) else None


def _contrast(mode: str, factor: float) -> Step | None:
    return Contrast(float(factor)) if is_factor(factor) else None


def _saturation(mode: str, factor: float) -> Step | None:
    return Saturate(float(factor)) if mode == "RGB" and is_factor(factor) else None


def _sharpness(mode: str, factor: float) -> Step | None:
    return Sharpen(float(factor)) if is_factor(factor) else None


def _hue(mode: str, factor: float) -> Step | None:
    return Hue(int(factor * 255) & 255) if mode == "RGB" and is_factor(factor, 0.5) else None


_FACTORS = ((0.31,), (-0.27,), (0.5,))
"""Factors of the trials, which are hues too."""
STEPS = {
    "adjust_brightness": OneStep(_brightness, _FACTORS, keeps_info=False),
    "adjust_contrast": OneStep(_contrast, _FACTORS, keeps_info=False),
    "adjust_saturation": OneStep(_saturation, _FACTORS),
    "adjust_sharpness": OneStep(_sharpness, _FACTORS),
    "adjust_hue": OneStep(_hue, _FACTORS, keeps_info=False),
}
OWN = OwnCode(
    (MODULE, (*STEPS, "_is_pil_image", "_Image_fromarray")),
    ("PIL.ImageEnhance:_Enhance", ("enhance",)),
    *(
        (f"PIL.ImageEnhance:{name}", ("__init__", "enhance"))
        for name in ("Brightness", "Contrast", "Color", "Sharpness")
    ),
    ("PIL.ImageStat:Stat", ("__init__", "__getattr__", "mean", "sum", "count")),
)


def exchange() -> None:
    """Exchanges torchvision's functions in this process; its module is imported."""
    one_step.exchange(MODULE, STEPS, OWN)


def step_of(name: str, factor: float) -> tuple[Step, bool]:
    """The step of a function for an image of mode RGB, and whether its result has the image's `info`.

    Args:
        name: the function's.
        factor: one of which it makes a step.
    """
    does = STEPS[name]
    step = does.step("RGB", factor)
    assert step is not None
    return step, does.keeps_info
