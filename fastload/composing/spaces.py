"""Spaces of magnitudes from which torchvision's AutoAugment, RandAugment and TrivialAugmentWide draw, made
once. Their own code makes ten tensors for each image."""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable
from typing import Any, TypeAlias

import torch

from fastload.common import originals
from fastload.common.originals import OwnCode
from fastload.composing.modules import is_usual

_MODULE = "torchvision.transforms.autoaugment"
_CLASSES = ("AutoAugment", "RandAugment", "TrivialAugmentWide")
_OWN = OwnCode(*((f"{_MODULE}:{name}", ("_augmentation_space", "forward")) for name in _CLASSES))
_Space: TypeAlias = dict[str, tuple[torch.Tensor, bool]]
_SPACES_MOST = 64
"""Spaces that are kept, by class and arguments: those of some sizes depend on the image's."""


def exchange() -> None:
    """Exchanges `_augmentation_space` of the classes in this process; torchvision's module is imported."""
    if not _OWN.replaced():
        for name in _CLASSES:
            kind = getattr(sys.modules[_MODULE], name)
            originals.exchange(kind, "_augmentation_space", functools.partial(_kept, kind))


def _kept(kind: type, own: Callable[..., _Space]) -> Callable[..., _Space]:
    """The stand-in, whose dict is the caller's own. A space is made anew once a program has written to a
    tensor of it."""
    spaces: dict[tuple[Any, ...], _Space] = {}

    @functools.wraps(own)
    def space(self: Any, *arguments: Any) -> _Space:
        if type(self) is not kind or not _is_usual(arguments):
            return own(self, *arguments)
        found = spaces.get(arguments)
        if found is None or any(magnitudes._version for magnitudes, _ in found.values()):
            if len(spaces) >= _SPACES_MOST:
                spaces.clear()
            found = spaces[arguments] = own(self, *arguments)
        return dict(found)

    return space


def _is_usual(arguments: tuple[Any, ...]) -> bool:
    """Returns True for integers and a tuple, where torch makes plain tensors of floats on the CPU."""
    return (
        all(type(each) in (int, tuple) for each in arguments)
        and not torch.is_inference_mode_enabled()  # whose tensors have no version
        and is_usual(_OWN)
    )
