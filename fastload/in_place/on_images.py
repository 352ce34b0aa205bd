"""OnImages: an image transform as `set_transform` of Hugging Face's datasets takes one, and as FastLoader can read it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from fastload.errors import ArgumentError, TransformError
from fastload.transforms.ops import Transform
from fastload.transforms.torchvision import flatten


class OnImages:
    """Applies a transform to each image of a batch; the other columns stay as they are.

    ``dataset.set_transform(OnImages(transform))`` makes samples in plain Python with any loader, as a function of the program's own would:
    each image is converted to RGB, then transformed. FastLoader plans `transform` and has native threads read and decode the images
    where they lie, which it cannot do with a function.

    Args:
        transform: torchvision's or fastload's, a list of them, or any callable that takes an RGB Pillow image; None: the conversion alone.
            fastload's own run in FastLoader only.
        column: the column of images.
        to: the name that it has in the samples; None: its own.
    """

    def __init__(self, transform: Any, column: str = "image", to: str | None = None) -> None:
        self.transform = transform
        self.column = column
        self.to = to

    def __repr__(self) -> str:
        named = "" if self.to is None else f", to={self.to!r}"
        return f"OnImages({self.transform!r}, {self.column!r}{named})"

    @property
    def name(self) -> str:
        """The name of the images in the samples."""
        return self.column if self.to is None else self.to

    def __call__(self, batch: Mapping[str, list[Any]]) -> dict[str, list[Any]]:
        """The batch with its images transformed, columns in their order.

        Raises:
            ArgumentError: it has no such column, or one of the name that the images are to have.
            TransformError: a step is fastload's own.
        """
        if self.column not in batch:
            raise ArgumentError(f"OnImages: there is no column {self.column!r} among {', '.join(map(repr, batch))}")
        if self.name != self.column and self.name in batch:
            raise ArgumentError(f"OnImages: to={self.to!r} is the name of another column")
        return {
            self.name if name == self.column else name: list(map(self._one, values)) if name == self.column else values
            for name, values in batch.items()
        }

    def _one(self, image: Any) -> Any:
        found = image.convert("RGB")
        for step in flatten(self.transform):
            if isinstance(step, Transform):
                raise TransformError(f"OnImages: {step!r} is run by FastLoader's native threads alone: give torchvision's to others")
            found = step(found)
        return found
