"""convert: makes a packed dataset of another one, with its images stored in another way.

Only images are made anew. The bytes of all other fields, and the values of columns, are those of the dataset
that is read.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any

import numpy as np
import numpy.typing as npt
from typing_extensions import Unpack

from fastload._native import core
from fastload.errors import PackError
from fastload.packing.encode import Encoded
from fastload.packing.job import PackJob, run_job
from fastload.packing.keywords import settled, takes_options
from fastload.packing.lists import ImagesJob, pack_lists
from fastload.packing.options import ConvertKeywords, PackOptions, RunOptions
from fastload.packing.packer import refuse_source_inside
from fastload.packing.summary import PackSummary
from fastload.remote.files import folder_files
from fastload.sources import Item
from fastload.sources.protocol import IMAGE_FIELD, Value
from fastload.store import DatasetReader, Field, Prepared, StoredImage, parse_value, with_index
from fastload.store.kinds.base import SampleParts
from fastload.store.kinds.codecs import Pixels
from fastload.store.lists import images_path, spans
from fastload.store.schema import HIDDEN_COLUMNS
from fastload.unpacking.sample_files import stored_picture

_SHARDS = 4
"""Shards whose columns are held: threads may be at the end of one and the beginning of the next."""


@takes_options
def convert(
    source: str | os.PathLike[str], out: str | os.PathLike[str], **options: Unpack[ConvertKeywords]
) -> PackSummary:
    """Makes a packed dataset of another one, with its images stored in another way, as ``encode`` says.

    Samples, order, fields and classes are those of the newest version. Attached images are stored. The
    dataset exists once this returns, and not before.

    Args:
        source: the dataset's directory.
        out: the directory to make, or a URL, as for `pack`.

    Returns:
        Counts of what was done.

    Raises:
        ArgumentError: as in `pack`.
        DatasetError: `source` is no finished dataset, or is damaged.
        RemoteError: as in `pack`.
        PackError: as in `pack`.
    """
    given = settled("convert", options)
    chosen, run = PackOptions.of(given), RunOptions.of(given)
    if run.overwrite:
        refuse_source_inside(source, out)
    with DatasetReader(folder_files(source)) as reader:
        if reader.schema.images is not None:
            with DatasetReader(folder_files(images_path(source))) as images:
                lists = PackedLists(reader, images)
                return pack_lists(lists, ImagesJob(lists, chosen), out, run)
        return run_job(ConvertJob(PackedSamples(reader), chosen), out, run)


@dataclass(slots=True)
class PackedItem(Item):
    """A sample of a packed dataset.

    Attributes:
        stored: (kind, bytes) of each field that is no column, by its number.
    """

    stored: dict[int, tuple[int, bytes]] = field(default_factory=dict)


class PackedSamples:
    """The samples of a packed dataset as a `Source`, of whose items only images are read."""

    concurrent = True

    def __init__(self, reader: DatasetReader) -> None:
        """Raises PackError for a dataset whose first field is no image called image, as no pack makes it."""
        if (
            not reader.schema.fields
            or reader.schema.image is not reader.schema.fields[0]
            or reader.schema.image.name != IMAGE_FIELD
        ):
            raise PackError(f"{reader.path} has no image as its first field, so there is nothing to convert")
        self.reader = reader
        self.title = str(reader.path)
        self.image_field: Field = reader.schema.fields[0]
        self.fields = reader.schema.fields[1:]
        self.form = reader.manifest.form
        self.layout = str(reader.manifest.summary.get("layout", ""))
        self.classes = None if reader.manifest.classes is None else tuple(reader.manifest.classes)

    def __len__(self) -> int:
        return self.reader.count

    def name(self, position: int) -> str:
        """The dataset and the sample's number."""
        return f"{self.title}: sample {position}"

    def read(self, position: int) -> PackedItem:
        """A sample with its pictures: the first image, and further ones of 8-bit RGB by their fields.
        Raises SampleError."""
        stored = self.reader.stored_fields(position)
        pictures: dict[str, bytes | Pixels] = {}
        for number, each in enumerate(self.reader.schema):
            if number not in stored and (each.is_rgb or number == 0):
                raise self.reader.sample_error(position, f"its record lacks the field {each.name!r}")
            if each.is_rgb:
                pictures[each.name] = stored_picture(self.reader, position, *stored[number])[1]
        first = pictures.pop(IMAGE_FIELD) if self.image_field.is_rgb else stored[0][1]
        return PackedItem(self.name(position), first, dict(pictures), stored=stored)


class PackedLists:
    """The samples of a packed dataset of any number of images each, as a `Source` with an `image_list`."""

    concurrent = True

    def __init__(self, reader: DatasetReader, images: DatasetReader) -> None:
        self._reader, self._images = reader, PackedSamples(images)
        schema = reader.schema
        assert schema.images is not None
        self.image_list, self.title = schema.images.name, str(reader.path)
        self.fields = tuple(field for field in schema if field != schema.images)
        classes = reader.manifest.classes
        self.form, self.classes = reader.manifest.form, None if classes is None else tuple(classes)
        self.layout = str(reader.manifest.summary.get("layout", ""))

    def __len__(self) -> int:
        return self._reader.count

    def name(self, position: int) -> str:
        return f"{self.title}: sample {position}"

    def described(self, position: int) -> tuple[dict[str, Value], int]:
        """The values of a sample, and the number of its images."""
        columns = {
            each.name: self._reader.take(each.name, np.array([position]))[0]
            for each in self.fields
            if each.is_column
        }
        others = [each.name for each in self.fields if not each.is_column]
        return columns | self._reader.stored_values(position, others), self._place(position)[1]

    def _place(self, position: int) -> tuple[int, int]:
        """The number of a sample's first image, and how many it has."""
        first, count = (int(each[0]) for each in spans(self._reader, np.array([position])))
        return first, count

    def read(self, position: int) -> Item:
        first, count = self._place(position)
        images = [self._images.read(image).image for image in range(first, first + count)]
        return Item(self.name(position), b"", self.described(position)[0], images=images)


class ConvertJob(PackJob):
    """A pack whose samples are those of a packed dataset."""

    source: PackedSamples

    def __init__(self, source: PackedSamples, options: PackOptions) -> None:
        super().__init__(source, options)
        self._schema = source.reader.schema
        self._columns = lru_cache(_SHARDS)(self._columns_of)

    def identity(self) -> dict[str, Any]:
        """As of a pack. What changes images, and was done to these when they were packed, is what an
        `append` goes on with."""
        packed = self.source.reader.manifest.options
        return super().identity() | {
            name: packed[name] for name in ("exif", "max_side", "min_side") if name in packed
        }

    def encode(self, position: int, item: Item) -> Encoded:
        if self.source.image_field.is_rgb:
            return super().encode(position, item)
        assert isinstance(item.image, bytes)
        header = core.planes_header(item.image)
        return Encoded("planes", item.image, header.height, header.width, ("raw",), "pixels", index=b"")

    def record(
        self, prepare: Callable[..., Prepared], position: int, item: Item, encoded: Encoded
    ) -> Prepared:
        assert isinstance(item, PackedItem)
        parts = SampleParts((encoded.height, encoded.width), self._schema.image)
        for number, each in enumerate(self._schema):
            if number == 0:
                image = StoredImage(encoded.kind, encoded.data, encoded.height, encoded.width)
                each.handler.encode(each, number, image, parts)
            elif each.is_rgb:
                each.handler.encode(each, number, self._fields.further(each, item), parts)
            elif number in item.stored:
                parts.entries.append((number, *item.stored[number]))
        entries = with_index(parts.entries, encoded.index) if encoded.index else parts.entries
        record, crc = core.build_record(entries)
        first, columns = self._columns(self.source.reader.shard_number(position))
        return Prepared(
            record, crc, [column[position - first] for column in columns], encoded.height, encoded.width
        )

    def labels_of(self, position: int, item: Item) -> dict[str, list[int]]:
        assert isinstance(item, PackedItem)
        reader, found = self.source.reader, {}
        for each in self._labels:
            if each.is_column:
                value = reader.take(each.name, np.array([position]))
            else:
                value = parse_value(
                    reader, position, each, *item.stored.get(self._schema.number(each.name), (0, None))
                )
            found[each.name] = np.ravel(value).tolist()
        return found

    def _columns_of(self, shard: int) -> tuple[int, list[npt.NDArray[Any]]]:
        """The first sample of a shard, and the values of its columns in the order in which a sample's row
        has them."""
        reader = self.source.reader
        entry = reader.manifest.shards[shard]
        names = [name for name in self._schema.columns if name not in HIDDEN_COLUMNS]
        return entry.first, [
            reader.column_range(name, entry.first, entry.first + entry.count) for name in names
        ]
