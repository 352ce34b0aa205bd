"""Values of fields as a reader gives them, from the bytes of records: each is checked against the schema and the columns.

| kind | value |
|---|---|
| text, bytes, json | str, bytes, the value of the JSON text |
| image of 8-bit RGB | StoredImage, not decoded |
| other images, mask | uint8 or uint16 (height, width), or (height, width, channels) of several channels |
| boxes, keypoints, array of any number of rows | an array, rows first |
| instances | uint8 (number, height, width) of 0 and 1; with `runs` a list of COCO's RLE, {"size": [height, width], "counts": text} |
| polygons | of each object a list of parts, each float32 (points, 2) |
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from fastload._native import core
from fastload.store.field import Field
from fastload.store.objects import parse_planes, parse_varying
from fastload.store.schema import HEIGHT_COLUMN, WIDTH_COLUMN
from fastload.store.values import StoredImage, parse_stored

if TYPE_CHECKING:
    from fastload.store.reader import DatasetReader

_IMAGE_KINDS = {core.KIND_JPEG: "jpeg", core.KIND_RAW: "raw", core.KIND_PLACE: "place"}


def parse_value(reader: DatasetReader, index: int, field: Field, kind: int, data: bytes | None, *, runs: bool = False) -> Any:
    """The value of a field of sample `index`.

    Args:
        reader: of the dataset, whose columns say what the bytes must be.
        index: of the sample.
        field: the field; none that is a column.
        kind: of the entry in the record.
        data: the entry's bytes; None: the record lacks it.
        runs: give instances as run lengths.

    Raises:
        SampleError: the bytes do not hold, or the record lacks them; with the reason alone.
    """
    if data is None or not (field.kind == "image" or field.is_extended):
        return parse_stored(field, data)
    if field.is_varying:
        (count,) = (int(reader.column(name)[index]) for name in reader.schema.hidden_names(field))
        return parse_varying(field, kind, data, stored_size(reader, index), count, runs=runs)
    if field.is_planes:
        return parse_planes(field, kind, data, stored_size(reader, index, field))
    return StoredImage(_IMAGE_KINDS.get(kind, ""), data, *stored_size(reader, index, field))


def stored_size(reader: DatasetReader, index: int, field: Field | None = None) -> tuple[int, int]:
    """(height, width) of an image of sample `index` as the columns say; by default the first one's, which is that of masks too."""
    hidden = () if field is None or field.kind != "image" else reader.schema.hidden_names(field)
    height, width = hidden or (HEIGHT_COLUMN, WIDTH_COLUMN)
    return int(reader.column(height)[index]), int(reader.column(width)[index])
