"""Tables: the floats that torchvision's own functions make of bytes, by which pixels become floats."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

import torch

from fastload.composing.modules import is_plain
from fastload.composing.normalizing import rounded
from fastload.lazy.pixels import Floats

_CHANNELS = 3
_Numbers = tuple[float, ...]


def numbers_of(transforms: Sequence[Any], kind: type) -> tuple[_Numbers, _Numbers] | None:
    """Mean and deviation, as float32 has them, of the first transform, if that is a Normalize of this class;
    None where it is not, or torchvision's own code is to look at it."""
    if [type(each) for each in transforms[:1]] != [kind] or not is_plain(transforms[0]):
        return None
    numbers = rounded(transforms[0].mean, transforms[0].std, _CHANNELS)
    return None if numbers is None else (tuple(numbers[0]), tuple(numbers[1]))


@functools.lru_cache(maxsize=32)
def table(
    convert: Callable[[torch.Tensor], torch.Tensor],
    normalize: Callable[..., torch.Tensor],
    numbers: tuple[_Numbers, _Numbers] | None,
) -> Floats:
    """The floats of bytes, (3, 256), that functions for images (3, height, width) make.

    Args:
        convert: from bytes to floats.
        normalize: called with these, mean and deviation, if there are `numbers`.
        numbers: mean and deviation of each channel.
    """
    every = torch.arange(256, dtype=torch.uint8, device="cpu").repeat(_CHANNELS, 1).view(_CHANNELS, 16, 16)
    floats = convert(every)
    if numbers is not None:
        floats = normalize(floats, *map(list, numbers))
    made: Floats = floats.reshape(_CHANNELS, 256).numpy()
    made.flags.writeable = False
    return made
