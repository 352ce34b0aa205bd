"""Stored samples on their way out of a dataset: pictures as files, and other fields as values."""

from __future__ import annotations

import io
import sys
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
from typing_extensions import Self

from fastload.common.distribution import pip_install
from fastload.errors import DatasetError, PackError, SampleError
from fastload.remote.files import folder_files
from fastload.sources.protocol import IMAGE_FIELD
from fastload.store import DatasetReader, parse_value
from fastload.store.kinds.codecs import BY_ENTRY, ImageCodec, Pixels
from fastload.store.lists import images_path, spans


@dataclass(frozen=True, slots=True)
class File:
    """A picture as a file: its extension, without the dot, and its content."""

    extension: str
    content: bytes


@dataclass(frozen=True, slots=True)
class StoredSample:
    """A sample as it is stored.

    Attributes:
        index: index of the sample.
        files: images and masks, by the field's name.
        values: all other fields by name: rows of columns as NumPy has them, text, bytes, JSON as its text;
            boxes, keypoints and arrays of any number of rows as arrays, polygons as lists of parts (points,
            2), instances as COCO's RLE.
        images: the images, where samples have any number of them.
    """

    index: int
    files: dict[str, File]
    values: dict[str, Any]
    images: tuple[File, ...] = ()

    @property
    def pictures(self) -> tuple[File, ...]:
        """All files."""
        return (*self.files.values(), *self.images)

    @property
    def weight(self) -> int:
        """About the bytes that it takes."""
        return sum(len(file.content) for file in self.pictures) + sum(map(_weight, self.values.values()))


class SampleFiles:
    """Reads the samples of an open dataset. Any thread may call `read`.

    Attributes:
        reader: reader of the dataset.
        image: the first image, or the field of any number of images.
        images: reader of the dataset of these; None: samples have one.
        others: all other fields, in order.
        digits: number of digits of a sample's number in names of files.
    """

    def __init__(self, reader: DatasetReader, done: str) -> None:
        """`done`: what is done with the samples, for a message. Raises DatasetError if there is no image."""
        image = reader.schema.image or reader.schema.images
        if image is None:
            raise DatasetError(f"{reader.path} has no image field, so there is nothing to {done}")
        self.reader, self.image = reader, image
        self.images = DatasetReader(folder_files(images_path(reader.path))) if image.handler.is_list else None
        self.others = tuple(field for field in reader.schema if field != self.image)
        self.digits = max(8, len(str(reader.count - 1)))
        self._numbers = [(number, field) for number, field in enumerate(reader.schema) if not field.is_column]
        self._columns = {each.name: reader.column(each.name) for each in self.others if each.is_column}

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        if self.images is not None:
            self.images.close()

    def stem(self, index: int) -> str:
        """The name of a sample's files, without extension."""
        return f"{index:0{self.digits}d}"

    def read(self, index: int) -> StoredSample:
        """Sample `index`. Raises SampleError where it does not hold, or PackError where a PNG is needed
        and Pillow is not installed."""
        record = self.reader.stored_fields(index)
        values: dict[str, Any] = {name: column[index] for name, column in self._columns.items()}
        files: dict[str, File] = {}
        for number, field in self._numbers:
            kind, data = record.get(number, (-1, None))
            if field.is_rgb and data is not None:
                files[field.name] = _picture(kind, data, index, self.reader)
                continue
            try:
                value = parse_value(self.reader, index, field, kind, data, plain=True)
            except SampleError as error:
                raise self.reader.sample_error(index, error.reason or str(error)) from None
            if field.is_planes:
                files[field.name] = _planes(value)
            else:
                values[field.name] = value
        return StoredSample(index, files, values, self._listed(index))

    def _listed(self, index: int) -> tuple[File, ...]:
        """The images of a sample of any number. Raises SampleError."""
        if self.images is None:
            return ()
        first, count = (int(each[0]) for each in spans(self.reader, np.array([index])))
        found = []
        for image in range(first, first + count):
            entries = self.images.stored_fields(image)
            found.append(_picture(*entries[self.images.schema.number(IMAGE_FIELD)], image, self.images))
        return tuple(found)


def _weight(value: object) -> int:
    if isinstance(value, str | bytes):
        return len(value)
    if isinstance(value, list):
        return sum(map(_weight, value))
    if isinstance(value, dict):
        return len(value.get("counts", value))
    return int(value.nbytes) if isinstance(value, np.ndarray | np.generic) else sys.getsizeof(value)


def stored_picture(
    reader: DatasetReader, index: int, kind: int, data: bytes
) -> tuple[ImageCodec, bytes | Pixels]:
    """The codec of a stored image of 8-bit RGB, and the file of the picture, or pixels uint8 (height, width,
    3) where there is none.

    Raises:
        SampleError: it is of another kind, its raw pixels are not those that their header says, or its file
            is not as it was attached.
    """
    kind, data = reader.read_image(index, kind, data)
    codec = BY_ENTRY.get(kind)
    if codec is None:
        raise reader.sample_error(index, "its image is of a kind this version does not know")
    try:
        return codec, codec.file(data)
    except SampleError as error:
        raise reader.sample_error(index, error.reason) from None


def _picture(kind: int, data: bytes, index: int, reader: DatasetReader) -> File:
    """A stored image of 8-bit RGB as a file: its codec's file as it is, raw pixels as PNG, or as PPM without
    Pillow.

    Raises SampleError as `stored_picture` does.
    """
    codec, picture = stored_picture(reader, index, kind, data)
    if isinstance(picture, bytes):
        return File(codec.ending, picture)
    try:
        import PIL  # noqa: F401
    except ImportError:
        height, width, _ = picture.shape
        return File("ppm", b"P6\n%d %d\n255\n" % (width, height) + picture.tobytes())
    return _png(picture, 1)


def _planes(pixels: npt.NDArray[Any]) -> File:
    """Pixels of another form as a file: PNG, or .npy of 16 bits and several channels, which Pillow does
    not write."""
    if pixels.ndim == 2 or pixels.dtype == np.uint8:
        return _png(pixels, 6)
    out = io.BytesIO()
    np.save(out, pixels)
    return File("npy", out.getvalue())


def _png(pixels: npt.NDArray[Any], level: int) -> File:
    try:
        from PIL import Image
    except ImportError as error:
        raise PackError(
            f"masks, and images that are no JPEG, become PNG, which Pillow writes: {pip_install('pack')}"
        ) from error
    out = io.BytesIO()
    Image.fromarray(pixels).save(out, "PNG", compress_level=level)
    return File("png", out.getvalue())
