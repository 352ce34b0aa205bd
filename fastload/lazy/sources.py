"""Sources: what a recipe begins with: a region of a compressed file, an image of one colour, an array, or the
pixels of another recipe, which are made once."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple, Protocol

import numpy as np
from PIL import _imaging as library

from fastload.lazy.compressed import CompressedImage, Region
from fastload.lazy.pixels import Array, Core, to_array, to_core
from fastload.lazy.resizing import Sink
from fastload.lazy.steps import Crop, Size, Step, ToRgb, flips, resample_of

if TYPE_CHECKING:
    from fastload.lazy.recipe import Recipe


class Source(Protocol):
    """The beginning of a recipe. It is never changed.

    Attributes:
        mode, size: those of its pixels.
        fourth: the fourth byte of its pixels as a core image; None: it is not the same in all of them.
        length: steps by which it was made.
    """

    @property
    def mode(self) -> str: ...

    @property
    def size(self) -> Size: ...

    @property
    def fourth(self) -> int | None: ...

    @property
    def length(self) -> int: ...

    def with_step(self, step: Step) -> tuple[Source, tuple[Step, ...]] | None:
        """Another source that a step makes of this one, and what then follows; None: there is none."""

    def pixels(self, steps: Sequence[Step], sink: Sink | None) -> tuple[Array | Core, Sequence[Step]]:
        """The pixels after as many steps as are done at once, and the steps that are left; where none are,
        the pixels may have been written to the sink: WRITTEN."""

    def on_core(self) -> Core:
        """A new core image, made by Pillow's own steps as far as its fourth bytes depend on them."""


class _FilePart(NamedTuple):
    file: CompressedImage
    region: Region


class FilePart(_FilePart):
    """A region of a compressed file."""

    __slots__ = ()
    length, fourth = 0, 255

    @property
    def mode(self) -> str:
        """As Source.mode."""
        return self.file.mode

    @property
    def size(self) -> Size:
        """As Source.size."""
        return self.region.width, self.region.height

    def with_step(self, step: Step) -> tuple[Source, tuple[Step, ...]] | None:
        """As Source.with_step: a crop is a smaller region, and what is beyond its edges follows."""
        if not isinstance(step, Crop):
            return None
        left, upper, right, lower = step.box
        width, height = self.size
        x, y = min(max(left, 0), width - 1), min(max(upper, 0), height - 1)
        x_end, y_end = max(min(right, width), x + 1), max(min(lower, height), y + 1)
        part = FilePart(self.file, Region(self.region.x + x, self.region.y + y, x_end - x, y_end - y))
        if step.box == (x, y, x_end, y_end):
            return part, ()
        return part, (Crop((left - x, upper - y, right - x, lower - y)),)

    def pixels(self, steps: Sequence[Step], sink: Sink | None) -> tuple[Array | Core, Sequence[Step]]:
        """As Source.pixels: a resample, or flips."""
        fused = resample_of(steps)
        if fused is not None:
            resample, count = fused
            made = self.file.resampled(self.region, resample, sink if count == len(steps) else None)
            if made is not None:
                return made, steps[count:]
        hflip, vflip, count = flips(steps)
        last = sink if count == len(steps) else None
        return self.file.pixels(self.region, hflip, vflip, last), steps[count:]

    def on_core(self) -> Core:
        """As Source.on_core."""
        return to_core(self.file.pixels(self.region))


class _Plain(NamedTuple):
    mode: str
    size: Size
    ink: bytes


class Plain(_Plain):
    """An image of one colour: the four bytes of a pixel, or the one of mode L."""

    __slots__ = ()
    length = 0

    @classmethod
    def of(cls, mode: str, size: Size, colour: object) -> Plain:
        """The image that Pillow's core.fill makes, and its exceptions."""
        return cls(mode, size, ink_of(library.fill(mode, (1, 1), colour)))

    @property
    def fourth(self) -> int:
        """As Source.fourth."""
        return self.ink[-1]

    @property
    def level(self) -> int | None:
        """The byte that all channels have; None: they differ."""
        return self.ink[0] if len(set(self.ink[:3])) == 1 else None

    def with_step(self, step: Step) -> tuple[Source, tuple[Step, ...]] | None:
        """As Source.with_step."""
        return (Plain("RGB", self.size, self.ink * 3 + b"\xff"), ()) if isinstance(step, ToRgb) else None

    def pixels(self, steps: Sequence[Step], sink: Sink | None) -> tuple[Array | Core, Sequence[Step]]:
        """As Source.pixels."""
        return canvas(self.size, self.ink), steps

    def on_core(self) -> Core:
        """As Source.on_core."""
        return filled(self.mode, self.size, self.ink)


class _Given(NamedTuple):
    array: Array


class Given(_Given):
    """Pixels of three channels that a program has given, in an array that is nobody's else."""

    __slots__ = ()
    mode, length, fourth = "RGB", 0, 255

    @property
    def size(self) -> Size:
        """As Source.size."""
        return self.array.shape[1], self.array.shape[0]

    def with_step(self, step: Step) -> tuple[Source, tuple[Step, ...]] | None:
        """As Source.with_step."""
        return None

    def pixels(self, steps: Sequence[Step], sink: Sink | None) -> tuple[Array | Core, Sequence[Step]]:
        """As Source.pixels."""
        return self.array, steps

    def on_core(self) -> Core:
        """As Source.on_core."""
        return to_core(self.array)


def ink_of(core: Core) -> bytes:
    """The bytes of the first pixel of a core image of mode RGB or L."""
    raw = "L" if core.mode == "L" else "RGBX"
    encoder = library.raw_encoder(core.mode, raw, 0, 1)
    try:
        encoder.setimage(core, (0, 0, 1, 1))
        data: bytes = encoder.encode(16)[2]
    finally:
        encoder.cleanup()
    return data


def canvas(size: Size, ink: bytes) -> Array:
    """An array of one colour."""
    width, height = size
    shape = (height, width) if len(ink) == 1 else (height, width, 3)
    if len(set(ink[:3])) == 1:
        return np.full(shape, ink[0], np.uint8) if ink[0] else np.zeros(shape, np.uint8)
    out = np.empty((height, width * 3), np.uint8)
    out[:] = np.frombuffer(ink[:3] * width, np.uint8)  # whole rows: three bytes at a time are 80 times slower
    return out.reshape(shape)


def filled(mode: str, size: Size, ink: bytes) -> Core:
    """A core image of one colour."""
    colour = ink[0] if mode == "L" else int.from_bytes(ink, "little")
    return library.fill(mode, size, colour)


class Held:
    """The pixels of a recipe from which several others go on: made once, by whichever asks first."""

    __slots__ = ("_lock", "_made", "length", "mode", "recipe", "size")

    def __init__(self, recipe: Recipe) -> None:
        self.recipe = recipe
        self.mode, self.size, self.length = recipe.mode, recipe.size, recipe.length
        self._made: Array | None = None
        self._lock = threading.Lock()

    @property
    def fourth(self) -> int | None:
        """As Source.fourth."""
        return self.recipe.fourth

    def array(self) -> Array:
        """The pixels, contiguous and not to be written to."""
        with self._lock:
            if self._made is None:
                self._made = to_array(self.recipe.pixels())
            return self._made

    def with_step(self, step: Step) -> tuple[Source, tuple[Step, ...]] | None:
        """As Source.with_step."""
        return None

    def pixels(self, steps: Sequence[Step], sink: Sink | None) -> tuple[Array | Core, Sequence[Step]]:
        """As Source.pixels."""
        return self.array(), steps

    def on_core(self) -> Core:
        """As Source.on_core."""
        fourth = self.fourth
        return self.recipe.on_core() if fourth is None else to_core(self.array(), fourth)
