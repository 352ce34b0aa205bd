"""Functions of PIL.ImageOps that change the colours of a lazy image by a table, as one step of its recipe
each; torchvision's, timm's and lightly's transforms call them."""

from __future__ import annotations

from typing import Any

import numpy as np

from fastload.common.originals import OwnCode
from fastload.composing import one_step
from fastload.composing.adjusting import is_factor
from fastload.composing.one_step import OneStep
from fastload.lazy.colours import Autocontrast, Equalize, Point
from fastload.lazy.steps import Step

MODULE = "PIL.ImageOps"
_RAMP = np.arange(256, dtype=np.uint8)


def _point(mode: str, table: Any) -> Step:
    return Point(table.tobytes() * len(mode))


def _invert(mode: str) -> Step:
    return _point(mode, 255 - _RAMP)


def _posterize(mode: str, bits: object) -> Step | None:
    if type(bits) is not int or not 1 <= bits <= 8:
        return None
    return _point(mode, _RAMP & np.uint8(256 - (1 << 8 - bits) & 255))


def _solarize(mode: str, threshold: object = 128) -> Step | None:
    if not is_factor(threshold):
        return None
    return _point(mode, np.where(_RAMP < float(threshold), _RAMP, 255 - _RAMP))


def _autocontrast(
    mode: str, cutoff: object = 0, ignore: object = None, mask: object = None, preserve_tone: object = False
) -> Step | None:
    plain = type(cutoff) is int and cutoff == 0 and ignore is None and mask is None and preserve_tone is False
    return Autocontrast() if plain else None


def _equalize(mode: str, mask: object = None) -> Step | None:
    return Equalize() if mask is None else None


STEPS = {
    "invert": OneStep(_invert, ((),)),
    "posterize": OneStep(_posterize, ((1,), (3,), (8,))),
    "solarize": OneStep(_solarize, ((0,), (97,), (128.5,), (256,))),
    "autocontrast": OneStep(_autocontrast, ((),)),
    "equalize": OneStep(_equalize, ((),)),
}
OWN = OwnCode((MODULE, (*STEPS, "_lut")))


def exchange() -> None:
    """Exchanges Pillow's functions in this process; its module is imported."""
    one_step.exchange(MODULE, STEPS, OWN)
