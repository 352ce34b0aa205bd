"""Adjusting: torchvision's functions that change the colours of a lazy image, adjust_brightness, equalize and
their like, as one step of its recipe each. Their own code makes several images, arrays of NumPy's, and tables
in Python.
"""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable
from typing import Any, NamedTuple, TypeAlias, TypeGuard

import numpy as np
from PIL import Image

from fastload.common import originals
from fastload.common.originals import OwnCode
from fastload.lazy import images
from fastload.lazy.colours import Autocontrast, Blend, Contrast, Equalize, Hue, Point, Saturate, Sharpen
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
_Compose: TypeAlias = Callable[..., Step | None]


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


_RAMP = np.arange(256, dtype=np.uint8)


def _point(mode: str, table: Any) -> Step:
    return Point(table.tobytes() * len(mode))


def _invert(mode: str) -> Step:
    return _point(mode, 255 - _RAMP)


def _posterize(mode: str, bits: int) -> Step | None:
    if type(bits) is not int or not 1 <= bits <= 8:
        return None
    return _point(mode, _RAMP & np.uint8(256 - (1 << 8 - bits) & 255))


def _solarize(mode: str, threshold: float) -> Step | None:
    if not is_factor(threshold):
        return None
    return _point(mode, np.where(_RAMP < float(threshold), _RAMP, 255 - _RAMP))


class _Adjusted(NamedTuple):
    """The step of a function by mode and arguments, arguments of its trial, and True if its result has the
    image's `info`."""

    step: _Compose
    tried: tuple[tuple[float, ...], ...]
    keeps_info: bool = True


_FACTORS = ((0.31,), (-0.27,), (0.5,))
"""Factors of the trials, which are hues too."""
_ADJUSTED = {
    "adjust_brightness": _Adjusted(_brightness, _FACTORS, keeps_info=False),
    "adjust_contrast": _Adjusted(_contrast, _FACTORS, keeps_info=False),
    "adjust_saturation": _Adjusted(_saturation, _FACTORS),
    "adjust_sharpness": _Adjusted(_sharpness, _FACTORS),
    "adjust_hue": _Adjusted(_hue, _FACTORS, keeps_info=False),
    "invert": _Adjusted(_invert, ((),)),
    "posterize": _Adjusted(_posterize, ((1,), (3,), (8,))),
    "solarize": _Adjusted(_solarize, ((0,), (97,), (128.5,), (256,))),
    "autocontrast": _Adjusted(lambda mode: Autocontrast(), ((),)),
    "equalize": _Adjusted(lambda mode: Equalize(), ((),)),
}
_OWN = OwnCode(
    (MODULE, (*_ADJUSTED, "_is_pil_image", "_Image_fromarray")),
    ("PIL.ImageEnhance:_Enhance", ("enhance",)),
    *(
        (f"PIL.ImageEnhance:{name}", ("__init__", "enhance"))
        for name in ("Brightness", "Contrast", "Color", "Sharpness")
    ),
    ("PIL.ImageStat:Stat", ("__init__", "__getattr__", "mean", "sum", "count")),
    ("PIL.ImageOps", ("invert", "posterize", "solarize", "autocontrast", "equalize", "_lut")),
)
_trials: dict[str, Probe[bool]] = {}
"""By function that is exchanged."""


def agrees(name: str) -> bool:
    """Returns True if a function's step gives the pixels of torchvision's own code, which stands in its
    place."""
    trial = _trials.get(name)
    return trial is not None and not _OWN.replaced() and bool(trial())


def step_of(name: str, *arguments: float) -> tuple[Step, bool]:
    """The step of a function for an image of mode RGB, and whether its result has the image's `info`.

    Args:
        name: the function's.
        arguments: those behind the image, of which it makes a step.
    """
    adjusted = _ADJUSTED[name]
    step = adjusted.step("RGB", *arguments)
    assert step is not None
    return step, adjusted.keeps_info


def exchange() -> None:
    """Exchanges torchvision's functions in this process; its module is imported."""
    for name, adjusted in _ADJUSTED.items():
        if not _OWN.replaced():
            met = functools.partial(_met, name=name, adjusted=adjusted)
            originals.exchange(sys.modules[MODULE], name, met)


def _met(own: _Function, name: str, adjusted: _Adjusted) -> _Function:
    trial = _trials[name] = Probe(lambda: all(_same(own, adjusted, *each) for each in adjusted.tried))
    named = own.__code__.co_varnames[1 : own.__code__.co_argcount]

    @functools.wraps(own)
    def adjust(image: Any, *given: Any, **options: Any) -> Any:
        arguments = given
        if options:
            arguments = tuple(options[each] for each in named if each in options)
        made = None
        if len(arguments) == len(named) and len(given) + len(options) == len(named):
            if type(image) in images.KINDS and not _OWN.replaced() and trial():
                made = _made(image, adjusted.step, *arguments)
        if made is None:
            return own(image, *given, **options)
        return images.image_of(image if adjusted.keeps_info else Image.Image(), made)

    return adjust


def _made(image: object, step: _Compose, *arguments: Any) -> LazyCore | None:
    mode = getattr(image, "mode", "")
    taken = step(mode, *arguments) if mode in ("RGB", "L") else None
    if taken is None:  # the file is not read for it
        return None
    core = images.core_of(image)
    return None if core is None or core.mode != mode else _stepped(core, taken)


def _stepped(core: LazyCore, step: Step) -> LazyCore | None:
    recipe = core.recipe()
    return LazyCore.of(None if recipe is None else recipe.then(step))


def _same(own: _Function, adjusted: _Adjusted, *arguments: float) -> bool:
    pixels = noise(61, 47, 3) // 2 + 20
    with aside():
        wanted = own(Image.Image()._new(to_core(pixels)), *arguments)
    taken = adjusted.step("RGB", *arguments)
    made = None if taken is None else _stepped(LazyCore(Recipe(Given(pixels))), taken)
    return made is not None and np.array_equal(made.array(), to_array(wanted.im))
