"""Recipe: how the pixels of an image follow from a compressed file: a region of it, and steps."""

from __future__ import annotations

import numpy as np

from fastload.lazy import resizing
from fastload.lazy.compressed import CompressedImage, Region
from fastload.lazy.pixels import Array, Core, to_core
from fastload.lazy.steps import Crop, Step, ToRgb, flips, fourth_byte, resample_of

STEPS_MOST = 32
"""Longer recipes are carried out, so that a loop over one image does not make one without end."""


class Recipe:
    """A region of a compressed image, and the steps that follow. It is never changed.

    Attributes:
        mode, size: those of the resulting image.
    """

    __slots__ = ("_file", "_region", "_steps", "mode", "size")

    def __init__(
        self, file: CompressedImage, region: Region, steps: tuple[Step, ...], mode: str, size: tuple[int, int]
    ) -> None:
        self._file, self._region, self._steps = file, region, steps
        self.mode, self.size = mode, size

    @classmethod
    def of_file(cls, file: CompressedImage) -> Recipe:
        """The recipe of all of a file."""
        return cls(file, Region(0, 0, file.width, file.height), (), file.mode, (file.width, file.height))

    def then(self, step: Step) -> Recipe | None:
        """The recipe with one more step; None: it would be too long."""
        if isinstance(step, Crop) and not self._steps:
            return self._cropped(step)
        if len(self._steps) == STEPS_MOST:
            return None
        mode = "RGB" if isinstance(step, ToRgb) else self.mode
        return Recipe(self._file, self._region, (*self._steps, step), mode, step.size(self.size))

    def _cropped(self, step: Crop) -> Recipe:
        """The recipe of a smaller region; where the crop goes beyond the edges, its rest follows as a
        step."""
        left, upper, right, lower = step.box
        width, height = self.size
        x, y = min(max(left, 0), width - 1), min(max(upper, 0), height - 1)
        x_end, y_end = max(min(right, width), x + 1), max(min(lower, height), y + 1)
        region = Region(self._region.x + x, self._region.y + y, x_end - x, y_end - y)
        size = step.size(self.size)
        if (left, upper, right, lower) == (x, y, x_end, y_end):
            return Recipe(self._file, region, (), self.mode, size)
        rest = Crop((left - x, upper - y, right - x, lower - y))
        return Recipe(self._file, region, (rest,), self.mode, size)

    def core(self, pixels: Array | None) -> Core:
        """A core image with the pixels, which may have been made.

        A core image of mode RGB has a fourth byte in each pixel, which some raw modes show. A decoder leaves
        255 in it, a resample 0; reductions and crops beyond the edges both. It is what Pillow's own steps
        leave.
        """
        fourth, mixed = fourth_byte(self._steps, self._region[2:])
        if mixed:
            made = to_core(self._file.pixels(self._region))
            for step in self._steps:
                made = step.on_core(made)
            return made
        return to_core(self.pixels(fourth) if pixels is None else pixels, fourth)

    def pixels(self, fourth: int = 255) -> Array | Core:
        """The pixels, as the last step leaves them; `fourth` as in core(), of a core image."""
        value, steps = self._first()
        while steps:
            fused = resample_of(steps)
            made = None
            if isinstance(value, np.ndarray):
                made = steps[0].on_array(value) if fused is None else resizing.resample(value, fused[0])
            if made is None:
                value, steps = steps[0].on_core(to_core(value, fourth)), steps[1:]
            else:
                value, steps = made, steps[1 if fused is None else fused[1] :]
        return value

    def _first(self) -> tuple[Array | Core, tuple[Step, ...]]:
        """The pixels after as many steps as the decoder does itself, and the steps that are left."""
        fused = resample_of(self._steps)
        if fused is not None:
            made = self._file.resampled(self._region, fused[0])
            if made is not None:
                return made, self._steps[fused[1] :]
        hflip, vflip, count = flips(self._steps)
        return self._file.pixels(self._region, hflip, vflip), self._steps[count:]
