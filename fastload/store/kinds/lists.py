"""Kind of any number of images, which are samples of a packed dataset of their own: see NOTE [ lists: images
of any number ] in fastload/store/lists.py."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from fastload.store.kinds.base import COUNT_COLUMN, SampleParts, refuse
from fastload.store.kinds.columns import NumberKind

if TYPE_CHECKING:
    from fastload.store.field import Field


class ImagesKind(NumberKind):
    """Any number of images: the column has the number of the sample's first one among all images."""

    name = "images"
    dtypes = ("int64",)
    is_extended = True
    can_be_added = False
    is_list = True
    collated = "image_rows"

    def hidden_names(self, field: Field, is_first: bool) -> tuple[str, ...]:
        return (f"{COUNT_COLUMN}:{field.name}",)

    def encode(self, field: Field, number: int, value: Any, parts: SampleParts) -> None:
        if not (isinstance(value, tuple) and len(value) == 2):
            raise refuse(field, value, "it is no number of a first image and count of images")
        first, count = value
        parts.row.append(first)
        parts.hidden.append(count)
