"""Adjusting: torchvision's adjust_brightness, adjust_contrast, adjust_saturation and adjust_hue of lazy
images, one step each. Their own code makes several images, and arrays of NumPy's.

A function is exchanged only where it is torchvision's own (NOTE [ originals: how replaced code is found ]),
and acts only once a trial has given the pixels of its own code. Everything else, and every error, is left to
that.
"""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable
from typing import Any, NamedTuple, TypeAlias

import numpy as np
from PIL import Image

from fastload.common import originals
from fastload.common.originals import OwnCode
from fastload.lazy import images
from fastload.lazy.colours import Blend, Contrast, Hue, Saturate
from fastload.lazy.core_image import LazyCore
from fastload.lazy.functions import FACTOR_MOST, aside
from fastload.lazy.pillow_code import Probe
from fastload.lazy.pixels import to_array, to_core
from fastload.lazy.recipe import Recipe
from fastload.lazy.resampling import noise
from fastload.lazy.sources import Given
from fastload.lazy.steps import Step

MODULE = "torchvision.transforms._functional_pil"
_Function: TypeAlias = Callable[..., Any]
_Compose: TypeAlias = Callable[[str, float], Step | None]
_FACTORS = (0.31, -0.27, 0.5)
"""Factors of the trials, which are hues too."""


def _brightness(mode: str, factor: float) -> Step | None:
    return Blend(bytes(4 if mode == "RGB" else 1), factor)


def _contrast(mode: str, factor: float) -> Step | None:
    return Contrast(factor)


def _saturation(mode: str, factor: float) -> Step | None:
    return Saturate(factor) if mode == "RGB" else None


def _hue(mode: str, factor: float) -> Step | None:
    return Hue(int(factor * 255) & 255) if mode == "RGB" else None


class _Adjusted(NamedTuple):
    """The step of a function by mode and factor, whether its result has the image's `info`, and how far from
    0 a factor may be of which it makes one."""

    step: _Compose
    keeps_info: bool = False
    most: float = FACTOR_MOST


_ADJUSTED = {
    "adjust_brightness": _Adjusted(_brightness),
    "adjust_contrast": _Adjusted(_contrast),
    "adjust_saturation": _Adjusted(_saturation, keeps_info=True),
    "adjust_hue": _Adjusted(_hue, most=0.5),
}
_OWN = OwnCode(
    (MODULE, (*_ADJUSTED, "_is_pil_image", "_Image_fromarray")),
    ("PIL.ImageEnhance:_Enhance", ("enhance",)),
    *((f"PIL.ImageEnhance:{name}", ("__init__", "enhance")) for name in ("Brightness", "Contrast", "Color")),
    ("PIL.ImageStat:Stat", ("__init__", "__getattr__", "mean", "sum", "count")),
)


_trials: dict[str, Probe[bool]] = {}
"""By function that is exchanged."""


def agrees(name: str) -> bool:
    """Returns True if a function's step gives the pixels of torchvision's own code, which stands in its
    place."""
    trial = _trials.get(name)
    return trial is not None and not _OWN.replaced() and bool(trial())


def step_of(name: str, factor: float) -> tuple[Step, bool]:
    """The step of a function for an image of mode RGB, and whether its result has the image's `info`.

    Args:
        name: the function's.
        factor: its argument, at most FACTOR_MOST from 0; of adjust_hue at most 0.5.
    """
    adjusted = _ADJUSTED[name]
    step = adjusted.step("RGB", factor)
    assert step is not None
    return step, adjusted.keeps_info


def exchange() -> None:
    """Exchanges torchvision's functions in this process; its module is imported."""
    for name, adjusted in _ADJUSTED.items():
        if not _OWN.replaced():
            met = functools.partial(_met, name=name, adjusted=adjusted)
            originals.exchange(sys.modules[MODULE], name, met)


def _met(own: _Function, name: str, adjusted: _Adjusted) -> _Function:
    trial = _trials[name] = Probe(lambda: all(_same(own, adjusted, factor) for factor in _FACTORS))
    named = own.__code__.co_varnames[1]

    @functools.wraps(own)
    def adjust(image: Any, *given: Any, **options: Any) -> Any:
        factor = given[0] if len(given) == 1 and not options else None if given else options.get(named)
        made = None
        if isinstance(factor, int | float) and abs(factor) <= adjusted.most:
            if type(image) in images.KINDS and not _OWN.replaced() and trial():
                made = _made(image, adjusted.step, float(factor))
        if made is None:
            return own(image, *given, **options)
        return images.image_of(image if adjusted.keeps_info else Image.Image(), made)

    return adjust


def _made(image: object, step: _Compose, factor: float) -> LazyCore | None:
    core = images.core_of(image)
    return None if core is None or core.mode not in ("RGB", "L") else _stepped(core, step, factor)


def _stepped(core: LazyCore, step: _Compose, factor: float) -> LazyCore | None:
    taken = step(core.mode, factor)
    recipe = core.recipe()
    return LazyCore.of(None if taken is None or recipe is None else recipe.then(taken))


def _same(own: _Function, adjusted: _Adjusted, factor: float) -> bool:
    pixels = noise(61, 47, 3)
    with aside():
        wanted = own(Image.Image()._new(to_core(pixels)), factor)
    made = _stepped(LazyCore(Recipe(Given(pixels))), adjusted.step, factor)
    return made is not None and np.array_equal(made.array(), to_array(wanted.im))
