"""Recipe: how the pixels of an image follow from a source, mostly a region of a compressed file, by steps."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from fastload._native import core
from fastload.lazy import resizing
from fastload.lazy.colours import colours_of
from fastload.lazy.compressed import CompressedImage, Region
from fastload.lazy.pixels import Array, Core, to_array, to_core
from fastload.lazy.resizing import WRITTEN, Sink
from fastload.lazy.sources import FilePart, Held, Source
from fastload.lazy.steps import Step, fourth_byte, resample_of
from fastload.lazy.warps import Pad

STEPS_MOST = 32
"""Longer recipes are carried out, so that a loop over one image does not make one without end."""


class Recipe:
    """A source, and the steps that follow. It is never changed.

    Attributes:
        source: the beginning.
        steps: those that follow.
        mode, size: those of the resulting image.
        length: steps from a file on.
    """

    __slots__ = ("length", "mode", "size", "source", "steps")

    def __init__(self, source: Source, steps: tuple[Step, ...] = ()) -> None:
        self.source, self.steps = source, steps
        self.mode, self.size, self.length = source.mode, source.size, source.length
        for step in steps:
            self._extend(step)

    def _extend(self, step: Step) -> None:
        self.mode, self.size = step.mode(self.mode), step.size(self.size)
        self.length += getattr(step, "length", 1)

    @classmethod
    def of_file(cls, file: CompressedImage) -> Recipe:
        """The recipe of all of a file."""
        return cls(FilePart(file, Region(0, 0, file.width, file.height)))

    @property
    def fourth(self) -> int | None:
        """The fourth byte of the pixels as a core image, which some raw modes show. A decoder leaves 255 in
        it, a resample 0, reductions and crops beyond the edges both. None: not the same in all of them."""
        return fourth_byte(self.steps, self.source.fourth, self.source.size)

    def then(self, step: Step) -> Recipe | None:
        """The recipe with one more step; None: it would be too long."""
        other = None if self.steps else self.source.with_step(step)
        if other is not None:
            return Recipe(*other)
        merged = self.steps[-1].merged(step) if self.steps else None
        if merged is not None:
            return Recipe(self.source, self.steps[:-1]).then(merged)
        longer = Recipe.__new__(Recipe)
        longer.source, longer.steps = self.source, (*self.steps, step)
        longer.mode, longer.size, longer.length = self.mode, self.size, self.length
        longer._extend(step)
        return longer if longer.length <= STEPS_MOST else None

    def held(self) -> Recipe:
        """A recipe of the same pixels, from which several others go on: what steps make is made once for
        all of them. Of a file NOTE [ compressed: one decode for several regions ] says what is."""
        return Recipe(Held(self)) if self.steps else self

    def core(self, pixels: Array | None) -> Core:
        """A new core image with the pixels, which may have been made."""
        last = self.steps[-1] if self.steps else None
        if isinstance(last, Pad) and pixels is None:  # a canvas is no array on its way to a core image
            return last.on_core(Recipe(self.source, self.steps[:-1]).core(None))
        fourth = self.fourth
        if last is None or (fourth is None and self.mode == "RGB"):
            return self.on_core()
        return to_core(self.pixels() if pixels is None else pixels, fourth or 0)

    def on_core(self) -> Core:
        """A new core image, by Pillow's own steps."""
        made = self.source.on_core()
        for step in self.steps:
            made = step.on_core(made)
        return made

    def write(self, sink: Sink) -> None:
        """Writes the pixels as floats: by the step that makes them, where it can."""
        made = self.pixels(sink)
        if made is not WRITTEN:
            resizing.write(to_array(made), sink)

    def pixels(self, sink: Sink | None = None) -> Array | Core:
        """The pixels as the last step leaves them: an array that is not to be written to, or a core image.
        With a sink they may have been written to that: WRITTEN."""
        value, steps = self.source.pixels(self.steps, sink)
        while steps:
            made, count = _by_array(value, steps, sink) if isinstance(value, np.ndarray) else (None, 1)
            if made is None:
                value = steps[0].on_core(to_core(value, self._fourth_before(len(steps))))
            else:
                value = made
            steps = steps[count:]
        return value

    def _fourth_before(self, left: int) -> int:
        """The fourth byte before the last `left` steps; any, if it differs from pixel to pixel."""
        done = self.steps[: len(self.steps) - left]
        return fourth_byte(done, self.source.fourth, self.source.size) or 0


def _by_array(pixels: Array, steps: Sequence[Step], sink: Sink | None) -> tuple[Array | None, int]:
    """The pixels after the first steps, by one native call, and their number; None and 1: only a core image
    does the first."""
    fused = resample_of(steps)
    if fused is not None:
        resample, count = fused
        made = resizing.resample(pixels, resample, sink if count == len(steps) else None)
        if made is not None:
            return made, count
    colours = colours_of(steps)
    if colours:
        return core.colour(pixels, colours), len(colours)
    return steps[0].on_array(pixels), 1
