"""NativeImages: the images that a sample's native row has: the first of the schema, and the delivered further ones.

All go through one transform, drawn from the same (seed, epoch, index) and resolved for each image's own size; so images of one size are cut
and flipped alike.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from fastload._native import core
from fastload.errors import SampleError
from fastload.store import DatasetReader, Field
from fastload.store.schema import HEIGHT_COLUMN, WIDTH_COLUMN
from fastload.transforms.spec import Plan, Planes, outputs_of

Size = tuple[int, int]
"""(height, width), pixels."""
Sides = tuple[npt.NDArray[np.int32], npt.NDArray[np.int32]]
"""Heights and widths, pixels."""


@dataclass(frozen=True)
class NativeImage:
    """An image of a dataset.

    Attributes:
        name: of its field.
        number: in records; an array where it depends on the shard.
        planes: what its pixels are, where they are not 8-bit RGB.
        sides: gives the heights and the widths as stored, of all samples.
    """

    name: str
    number: int | npt.NDArray[np.uint16]
    planes: Planes | None
    sides: Callable[[], Sides]

    def size(self, index: int, max_pixels: int) -> Size:
        """The stored size of one sample's image. Raises SampleError with the reason alone where no image can have it."""
        height, width = (int(side[index]) for side in self.sides())
        if height < 1 or width < 1:
            raise _reason(f"its columns say {width} x {height} pixels, which no image has")
        if height * width > max_pixels:
            raise _reason(f"its columns say {width} x {height} pixels; the limit is {max_pixels}")
        return height, width


class NativeImages:
    """The images of one dataset's native rows; each is one part of the row, or as many as the transform makes views.

    Attributes:
        images: the first image, then the delivered further ones, in the order of the schema.
    """

    def __init__(self, images: Sequence[NativeImage]) -> None:
        self.images = tuple(images)

    @classmethod
    def of(cls, reader: DatasetReader, names: Sequence[str]) -> NativeImages:
        """Those of a packed dataset; `names`: of the delivered fields, whose further images they are."""
        images = [field for field in reader.schema if field.kind == "image"]
        return cls([_image(reader, field) for field in images if field == reader.schema.image or field.name in names])

    @property
    def forms(self) -> tuple[Any, ...]:
        """What the images of all datasets of a batch have in common."""
        return tuple((each.name, None if each.planes is None else replace(each.planes, name="")) for each in self.images)

    @property
    def only_rgb(self) -> bool:
        """Whether there is one image, of 8-bit RGB: a device can turn its bytes into floats."""
        return len(self.images) == 1 and self.images[0].planes is None

    @property
    def stored_sizes(self) -> list[npt.NDArray[np.int32]]:
        """Heights and widths of all images, as columns."""
        return [side for each in self.images for side in each.sides()]

    def fixed_sizes(self, plan: Plan) -> tuple[Size, ...] | None:
        """The size of each part, where the transform fixes them; else None."""
        return None if plan.fixed_sizes is None else plan.fixed_sizes * len(self.images)

    def further(self, plan: Plan) -> list[tuple[str, int | npt.NDArray[np.uint16], Sequence[core.Program]]]:
        """As core.Source takes further images."""
        return [(each.name, each.number, plan.programs) for each in self.images[1:]]

    def outputs(self, plan: Plan, dtype: str | None, layout: str) -> list[core.Output]:
        """What each part becomes; see `fastload.plan.outputs_of`."""
        return [output for each in self.images for output in outputs_of(plan, dtype, layout, each.planes)]

    def sizes(self, plan: Plan, index: int, seed: int, epoch: int, max_pixels: int) -> tuple[Size, ...]:
        """The size of each part of a sample; where it depends on boxes the largest. Raises SampleError with the reason alone."""
        fixed = self.fixed_sizes(plan)
        if fixed is not None:
            return fixed
        return tuple(size for each in self.images for size in _sizes(each, plan, index, seed, epoch, max_pixels))

    def part_names(self, plan: Plan) -> list[str]:
        """What messages call each part, in front of "of" a sample; "" where there is one."""
        views = [f"view {number} " for number in range(1, len(plan.views) + 1)] or [""]
        if len(self.images) == 1:
            return [view.strip() for view in views]
        return [f"{view}of {each.name!r}" if view else repr(each.name) for each in self.images for view in views]

    def by_name(self, plan: Plan, parts: Sequence[Any]) -> dict[str, Any]:
        """Each image's part, or the list of its views, by name, of the parts of a row or a batch."""
        views = len(plan.views)
        if not views:
            return {each.name: part for each, part in zip(self.images, parts, strict=True)}
        return {each.name: list(parts[at * views : (at + 1) * views]) for at, each in enumerate(self.images)}


def _sizes(image: NativeImage, plan: Plan, index: int, seed: int, epoch: int, max_pixels: int) -> list[Size]:
    height, width = image.size(index, max_pixels)
    sizes = [program.size(width, height, seed, epoch, index) for program in plan.programs]
    for wide, high in sizes:
        if wide * high > max_pixels:
            raise _reason(f"the transform makes {wide} x {high} pixels of it; the limit is {max_pixels}")
    return [(high, wide) for wide, high in sizes]


def _image(reader: DatasetReader, field: Field) -> NativeImage:
    schema = reader.schema
    height, width = (HEIGHT_COLUMN, WIDTH_COLUMN) if field == schema.image else schema.hidden_names(field)
    planes = Planes(field.name, field.channels, np.dtype(field.dtype).itemsize) if field.is_planes else None
    return NativeImage(field.name, number_of(reader, field.name), planes, lambda: (reader.column(height), reader.column(width)))


def number_of(reader: DatasetReader, name: str) -> int | npt.NDArray[np.uint16]:
    """The number of a field in records; an array where it depends on the shard."""
    numbers = [shard.packed_fields(reader.schema).index(name) for shard in reader.manifest.shards]
    if len(set(numbers)) > 1:
        return np.array(numbers, np.uint16)
    return numbers[0] if numbers else reader.schema.number(name)


def _reason(reason: str) -> SampleError:
    return SampleError(reason, reason=reason)
