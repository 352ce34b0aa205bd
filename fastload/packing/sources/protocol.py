"""The protocol that every source satisfies, the sample that it gives, and what several sources share.

A source is an ordered sequence of samples that can be read at any position, so that the packer may shuffle, resume and read ahead.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Protocol, TypeVar, runtime_checkable

import numpy.typing as npt

from fastload.errors import PackError
from fastload.packing.pillow_images import Pixels
from fastload.store import Field, Schema

T = TypeVar("T")
Value = int | float | str | bytes | npt.NDArray[Any] | dict[str, Any] | list[Any] | bool | None

IMAGE_EXTENSIONS = (".jpg", ".jpeg", ".png", ".ppm", ".bmp", ".pgm", ".tif", ".tiff", ".webp")
"""What torchvision's ImageFolder takes for an image, so that both see the same samples."""
READABLE_EXTENSIONS = (".gif", ".avif", ".jp2", ".j2k", ".jfif", ".jpe", ".apng")
"""Other pictures that can be packed, by a table that names them."""
OTHER_PICTURES = (*READABLE_EXTENSIONS, *".heic .heif .jxl .svg .psd .tga .exr .hdr .dng .cr2 .cr3 .nef .arw .orf .raf .rw2 .dcm".split())
"""Pictures by their name, of types that a folder leaves out."""

IMAGE_KEYS = ("image", "img", "pixels", "jpg", "jpeg", "png", "pixel_values", "0")
LABEL_KEYS = ("label", "labels", "target", "cls")
"""Names under which datasets commonly have their images, and their labels."""

IMAGE_FIELD = "image"
"""Name of the first image's field."""
FIRST_TRIES = 100
"""Samples that are tried for one that can be read, where a field's kind follows from a sample."""


@dataclass(frozen=True, slots=True)
class DrawnOn:
    """The picture on which a sample's annotations were drawn, as its source knows it.

    See NOTE [ annotations: the picture that they were drawn on ].

    Attributes:
        size: its (height, width) by the source's files; None: they do not say it.
        upright: True: it is the image turned upright by its EXIF orientation; None: by `size`, if anything.
        file: the file that has the size, for messages.
    """

    size: tuple[int, int] | None = None
    upright: bool | None = None
    file: str = ""


@dataclass(slots=True)
class Item:
    """One sample as its source has it.

    Attributes:
        name: what to call it in messages: a path, or "source, sample n".
        image: a file's bytes in any format, or pixels as uint8 (height, width, 3) RGB or (height, width) grey.
        values: its other fields by name; the same names for every sample of a source. Of the kinds of `fastload.store.Field`: an image is
            as `image`, or pixels uint16, or of 1 or 4 channels, as its field says. A mask is labels (height, width) of whole numbers, or
            the bytes of a PNG, TIFF, ... of them. Boxes are an array of rows in the field's format. Keypoints are (number, K, 2 or 3).
            Instances are a list: of COCO's run lengths (a dict of size and counts), of masks, or of lists of polygons. Polygons are a list
            of lists of parts, each a flat list of x and y. An array of any number of rows is an array, or a list of them.
        objects: what to call the rows of boxes, and of what belongs to them, in messages: "annotation 17"; (): by their numbers.
        notices: kinds of what reading the image lost, as `fastload.packing.notices` names them.
        drawn_on: the picture on which values that lie in the image were drawn; None: the image as it is.
    """

    name: str
    image: bytes | Pixels
    values: dict[str, Value] = field(default_factory=dict)
    notices: tuple[str, ...] = ()
    objects: tuple[str, ...] = ()
    drawn_on: DrawnOn | None = None


@dataclass(frozen=True, slots=True)
class Place:
    """The bytes of a regular file that are one sample's image, whole and unchanged.

    Attributes:
        path: the file, absolute or as the source was given.
        offset: where in the file the image's first byte is.
        size: number of its bytes.
    """

    path: str
    offset: int
    size: int


@runtime_checkable
class Source(Protocol):
    """An ordered collection of samples.

    Rules: `len()` and `fields` are settled when the object exists; `read` gives the same sample for the same position
    every time; when `concurrent` is true, `read` may be called by several threads at once; `name` is cheap and needs
    no read. Failures are PackError (the source is wrong) or OSError (one sample cannot be read). An attribute `notices`, if
    there is one, holds what the source leaves out (`fastload.packing.notices.Notice`), for the summary. An attribute `image_field`, if
    there is one, is the Field of the image, called image, where it is not 8-bit RGB. An attribute `label_limits`, if there is one, has the
    number of classes of masks and of arrays or ints of labels, by the field's name: other labels are errors, but for 255 in masks. An
    attribute `says_drawn_on`, if there is one and it is True, says that every item has `drawn_on`.
    """

    @property
    def title(self) -> str:
        """What the source is, for messages: a folder, a file, a Dataset's class."""

    @property
    def fields(self) -> tuple[Field, ...]:
        """The fields of every sample besides the image."""

    @property
    def classes(self) -> tuple[str, ...] | None:
        """Names of the labels 0, 1, ...; None when labels are not classes with names."""

    @property
    def concurrent(self) -> bool:
        """Whether several threads may call `read` at once."""

    def __len__(self) -> int:
        """The number of samples."""

    def name(self, position: int) -> str:
        """What to call the sample at a position in messages."""

    def read(self, position: int) -> Item:
        """The sample at a position, 0 <= position < len()."""


def schema_of(source: Source) -> Schema:
    """The schema of a dataset that a source is packed into. Raises ArgumentError if its fields do not go together."""
    image: Field = getattr(source, "image_field", Field(IMAGE_FIELD, "image"))
    return Schema((image, *source.fields))


@runtime_checkable
class Placed(Source, Protocol):
    """A source that knows where its images lie."""

    def place(self, position: int) -> Place | None:
        """Where the image of a sample lies; the bytes there are `read(position).image`. It does not read the image.

        None: this sample's image does not lie in one piece as bytes of a file. Raises OSError or PackError where `read` would.
        """


def first_readable(read: Callable[[int], T], count: int) -> T:
    """What `read` gives at the first position where it succeeds; those before it fail again, each as its sample's error, when packed.

    Raises:
        PackError: none of the first `FIRST_TRIES` can be read; the first one's error.
    """
    failures: list[PackError] = []
    for position in range(min(count, FIRST_TRIES)):
        try:
            return read(position)
        except PackError as error:  # noqa: PERF203
            failures.append(error)
        except OSError as error:
            failures.append(PackError(f"{error.filename or position}: cannot be read: {error.strerror or error}"))
    raise failures[0]


def file_stamp(path: str) -> tuple[int, int]:
    """Size and time of change of a file. Raises OSError, or ValueError for what is no path."""
    status = os.stat(path)
    return status.st_size, status.st_mtime_ns
