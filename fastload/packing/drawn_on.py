"""Annotations and EXIF: the picture on which a sample's boxes, masks and points were drawn, and their
placement where it is turned.

NOTE [ annotations: the picture that they were drawn on ]
A photo with an EXIF orientation is two pictures: its pixels as the file stores them, and the upright one that
most tools show. Annotations fit one of them. Each layout tells in its own way which one:
  COCO    width and height of the image in the JSON file, which cannot tell for half turns, mirrors and
  squares VOC     <size>, with the same limits
  YOLO    nothing; its fractions are of the upright picture, as trainers for this layout read it
  masks   the size of the mask, with the same limits
With exif="apply" the upright picture is stored, and annotations that were drawn on the stored pixels are
turned with it. Where nothing tells, the sample is an error: a guess would be wrong for every photo of some
datasets. With exif="ignore" the stored pixels are packed. Then annotations of the upright picture are an
error that names exif="apply", and where nothing tells they are taken to be of the stored pixels, as
torchvision's datasets take them. A size that is neither picture's is an error with both values of exif.
Images on which nothing was drawn are not concerned.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from fastload.errors import SampleError
from fastload.packing.encode import Encoded
from fastload.sources.pixels import orientation_of, upright
from fastload.sources.protocol import Item
from fastload.store import Field
from fastload.store.kinds.base import Size

Points = npt.NDArray[np.float64]


class Placement:
    """Places the annotations of samples in their images as they are stored.

    Args:
        fields: fields of the dataset.
        turn: True if images are stored upright.
    """

    def __init__(self, fields: Sequence[Field], turn: bool) -> None:
        self._masks = [field for field in fields if field.handler.holds_labels]
        self._moved = [field for field in fields if field.handler.follows_image and field not in self._masks]
        self._turn = turn

    def place(self, item: Item, encoded: Encoded, values: dict[str, Any]) -> None:
        """Turns the annotations among `values` with the image, where they were drawn on another picture than
        is stored.

        Raises:
            SampleError: they were drawn on an image of another size, or nothing says on which picture; with
                the reason alone.
        """
        drawn = item.drawn_on
        fields = [field for field in self._moved if len(values[field.name])]
        if drawn is None or not (fields or self._masks):
            return
        photo = _Photo.of(item, encoded, self._turn)
        known = photo.which(drawn.size, drawn.upright)
        if drawn.size is not None and drawn.size not in photo.pictures and fields:
            raise _refused(
                f"it has {_shown(photo.pictures[0])} pixels (width x height), and its annotations "
                f"are for {_shown(drawn.size)} "
                f"({drawn.file}): pack the images that were annotated, or correct the annotations"
            )
        if photo.orientation == 1:
            return
        for field in fields:
            if photo.moves(known, "its annotations are"):
                values[field.name] = field.handler.turned(field, values[field.name], photo)
        for field in self._masks:
            mask = np.asarray(values[field.name])
            if mask.shape in photo.pictures:
                which = photo.which((mask.shape[0], mask.shape[1]), known)
                if photo.moves(which, f"its {field.name!r} is"):
                    values[field.name] = field.handler.turned(field, mask, photo)


@dataclass(frozen=True, slots=True)
class _Photo:
    """An image with its EXIF orientation.

    Attributes:
        orientation: 1 to 8.
        pictures: (height, width) of its pixels as the file stores them, and of the upright picture.
        turn: the upright picture is stored.
    """

    orientation: int
    pictures: tuple[Size, Size]
    turn: bool

    @classmethod
    def of(cls, item: Item, encoded: Encoded, turn: bool) -> _Photo:
        orientation = orientation_of(item.image) if isinstance(item.image, bytes) else 1
        size = encoded.height, encoded.width
        pictures = (size, size) if orientation < 5 else (size, size[::-1])
        return cls(orientation, pictures[::-1] if turn else pictures, turn)

    def which(self, size: Size | None, otherwise: bool | None) -> bool | None:
        """Returns True for the upright picture, False for the pixels as stored, by a size; `otherwise`
        where it does not tell."""
        if size is None or self.pictures[0] == self.pictures[1] or size not in self.pictures:
            return otherwise
        return size == self.pictures[1]

    def moves(self, is_upright: bool | None, what: str) -> bool:
        """Returns True if annotations that were drawn on one of the pictures are turned. Raises
        SampleError as `Placement.place` does."""
        start = f"its EXIF orientation is {self.orientation}"
        if is_upright is None and self.turn:
            raise _refused(
                f"{start}, and no size says whether {what} for the upright picture: turn the file "
                "itself, or remove its orientation"
            )
        if is_upright and not self.turn:
            raise _refused(
                f"{start}, and {what} for the upright picture of {_shown(self.pictures[1])}, where "
                "the file stores "
                f"{_shown(self.pictures[0])} pixels (width x height): pack with --exif apply "
                "(exif='apply'), which turns the image"
            )
        return self.turn and not is_upright

    @property
    def swaps(self) -> bool:
        """True if width and height change places."""
        return self.orientation >= 5

    @property
    def size(self) -> Size:
        """(height, width) of the pixels as the file stores them."""
        return self.pictures[0]

    def pixels(self, pixels: npt.NDArray[Any]) -> npt.NDArray[Any]:
        """Pixels as the file stores them, upright."""
        return upright(pixels, self.orientation)

    def points(self, points: Points, last: int = 0) -> Points:
        """Points (..., x and y) of the stored pixels in the upright picture; `last`: 1 where the last
        column is width - 1, else 0."""
        found = points[..., ::-1] if self.swaps else points.copy()
        height, width = self.pictures[1]
        flipped = np.array([self.orientation in (2, 3, 6, 7), self.orientation in (3, 4, 7, 8)])
        return np.where(flipped, np.array([width, height]) - last - found, found)


def _shown(size: Size) -> str:
    return f"{size[1]} x {size[0]}"


def _refused(reason: str) -> SampleError:
    return SampleError(reason, reason=reason)
