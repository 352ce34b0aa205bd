"""Sidecars of version 1, as datasets that were packed before version 2 have them: sections one after another, without a directory.

A section is a head, the shard's columns with their names, twelve bytes of place for each stored sample, and the rows of some columns. All
of it was checked by the manifest's checksum of the file.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from fastload.errors import DatasetError
from fastload.store.checked import Bad
from fastload.store.schema import CRC_COLUMN

MAGIC = b"FLX1"
VERSION = 1
_HEAD = struct.Struct("<4sIQQQQII")
_COLUMN = struct.Struct("<QIHH")
_PLACE_BYTES = 12
_ALIGNED = 8


@dataclass(frozen=True, slots=True, eq=False)
class OldSection:
    """A section about one shard.

    Attributes:
        columns: (name, offset, size) of each of its columns.
        places: twelve bytes for each stored sample.
        chunks: rows of the columns that were copied, by name; the records' checksums are among them.
    """

    columns: tuple[tuple[bytes, int, int], ...]
    places: memoryview
    chunks: Mapping[str, memoryview]


def sections_of(data: memoryview, name: str) -> Iterator[tuple[tuple[int, int, int, int], OldSection]]:
    """(key, stored samples, bytes and checksum of the shard; section) of each section in a sidecar; `name` is its, for messages.

    Raises:
        DatasetError: its lengths do not hold, or it is of a later version.
    """
    try:
        at = 0
        while at < len(data):
            if len(data) - at < _HEAD.size:
                raise Bad("it ends within a section's head")
            magic, version, size, key, stored, file_bytes, crc, count = _HEAD.unpack_from(data, at)
            if magic != MAGIC or version != VERSION:
                raise Bad(f"the section at {at} is of version {version}" if magic == MAGIC else f"there is no section at {at}")
            if size < _HEAD.size or size % _ALIGNED or size > len(data) - at:
                raise Bad(f"the section at {at} has {size} bytes")
            yield (key, stored, file_bytes, crc), _parsed(data[at : at + size], stored, count)
            at += size
    except Bad as error:
        raise DatasetError(f"{name} does not hold ({error})") from None


def _parsed(data: memoryview, stored: int, count: int) -> OldSection:
    names = _HEAD.size + count * _COLUMN.size
    if not stored or names > len(data):
        raise Bad(f"{stored} samples and {count} columns in {len(data)} bytes")
    table = list(_COLUMN.iter_unpack(data[_HEAD.size : names]))
    places = names + sum(length for _, _, length, _ in table)
    places += -places % 4
    chunks = places + stored * _PLACE_BYTES
    if chunks + sum(size for _, size, _, copied in table if copied) > len(data):
        raise Bad(f"{stored} samples and their columns in {len(data)} bytes")
    columns: list[tuple[bytes, int, int]] = []
    copies: dict[str, memoryview] = {}
    at, chunk = names, chunks
    for offset, size, length, copied in table:
        name = data[at : at + length].tobytes()
        columns.append((name, offset, size))
        at += length
        if copied and (size % stored or not size):
            raise Bad(f"a column of {size} bytes of {stored} samples")
        if copied:
            copies[name.decode("utf-8", "replace")] = data[chunk : chunk + size]
            chunk += size
    if len(copies.get(CRC_COLUMN, b"")) != 4 * stored:
        raise Bad("it has no checksums of records")
    return OldSection(tuple(columns), data[places:chunks], copies)
