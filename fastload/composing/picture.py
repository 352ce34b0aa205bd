"""Picture: an image on its way through the steps of a transform, as a recipe; an image object is made only
for code that asks for one."""

from __future__ import annotations

import threading
from collections.abc import Iterable
from typing import Any

import torch
from PIL import Image

from fastload.lazy import counts, images
from fastload.lazy.core_image import LazyCore
from fastload.lazy.functions import aside
from fastload.lazy.pixels import Floats
from fastload.lazy.recipe import STEPS_MOST, Recipe
from fastload.lazy.resizing import Sink
from fastload.lazy.sources import Given, Held
from fastload.lazy.steps import Step

AT_ONCE = 8
"""Steps that a transform adds at most."""


class Picture:
    """A recipe, and the image whose attributes the result has.

    Args:
        recipe: the pixels.
        like: the image whose `info` an image of this has.
        image: the image itself, if there is one.
    """

    __slots__ = ("_image", "_like", "recipe")

    def __init__(self, recipe: Recipe, like: Image.Image, image: Image.Image | None = None) -> None:
        self.recipe, self._like, self._image = recipe, like, image

    @classmethod
    def of(cls, image: Any) -> Picture | None:
        """The picture of a lazy image whose file has been read; None for anything else."""
        if type(image) not in images.KINDS or not images.is_read(image):
            return None
        core = images.core_of(image)
        recipe = None if core is None else core.recipe()
        if recipe is None or (recipe.mode, recipe.size) != (image.mode, image.size):
            return None
        return cls(recipe, image, image)

    def then(self, step: Step, keeps_info: bool = True) -> Picture:
        """The picture after one of the AT_ONCE steps at most for which it had room."""
        recipe = self.recipe.then(step)
        assert recipe is not None
        return Picture(recipe, self._like if keeps_info else Image.Image())

    @property
    def has_room(self) -> bool:
        """True if another transform may add its steps."""
        return self.recipe.length <= STEPS_MOST - AT_ONCE

    def image(self) -> Image.Image:
        """The image, always the same one."""
        if self._image is None:
            self._image = images.image_of(self._like, LazyCore(self.recipe))
        return self._image

    def face(self) -> Image.Image:
        """An image of this mode and size, for a function that asks for nothing else; the next call on this
        thread may change it."""
        face = _faces.of(self.recipe.mode)
        face._size = self.recipe.size
        return face

    def floats(self, lut: Floats, layout: str) -> torch.Tensor:
        """A tensor (channels, height, width), float32, by a table (channels, 256).

        Args:
            lut: the values of bytes.
            layout: order of its memory, "CHW" or "HWC".
        """
        (width, height), channels = self.recipe.size, len(self.recipe.mode)
        shape = (channels, height, width) if layout == "CHW" else (height, width, channels)
        made = torch.empty(shape, dtype=torch.float32, device="cpu")
        counts.straight()
        self.recipe.write(Sink(layout, lut, made.numpy()))
        return made if layout == "CHW" else made.permute(2, 0, 1)


class _Faces(threading.local):
    """Images of one pixel, by mode, whose size is set to that of others."""

    def __init__(self) -> None:
        self._made: dict[str, Image.Image] = {}

    def of(self, mode: str) -> Image.Image:
        """The image of a mode."""
        if mode not in self._made:
            with aside():
                self._made[mode] = Image.new(mode, (1, 1))
        return self._made[mode]


_faces = _Faces()


def count_call(transform: object, values: Iterable[object]) -> None:
    """Counts a call of a transform with a lazy image, by the values that it made: an image that is a recipe
    still, or other things than a tensor, in which every program ends."""
    found = [*values]
    if any(map(_is_recipe, found)):
        counts.composed(type(transform).__name__)
    elif not any(isinstance(each, torch.Tensor) for each in found):
        made = next((each for each in found if not isinstance(each, Image.Image)), None)
        why = "an image of other pixels" if made is None else f"a {type(made).__name__}"
        counts.ended(type(transform).__name__, why)


def _is_recipe(image: object) -> bool:
    """Returns True for a lazy image whose pixels were not given as an array, as those are that a transform
    has made."""
    found = Picture.of(image)
    source = None if found is None else found.recipe.source
    while isinstance(source, Held):
        source = source.recipe.source
    return source is not None and not isinstance(source, Given)
