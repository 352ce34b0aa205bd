"""The folder that `fastload unpack` wrote: pictures as files, all other values in fields.jsonl, and the
fields in fastload.json."""

from __future__ import annotations

import json
import os
import struct
from collections.abc import Iterator, Mapping
from functools import cached_property
from typing import Any

import numpy as np

from fastload.common.files import read_regular
from fastload.common.folders import IMAGE_EXTENSIONS, files_below
from fastload.common.spill import ByteStrings, Numbers, TextSorter
from fastload.errors import PackError
from fastload.sources.declaration import declared, image_of, list_of
from fastload.sources.notices import UNLISTED, Notice, Notices
from fastload.sources.protocol import (
    UNKNOWN,
    Choice,
    FileRanges,
    Given,
    Item,
    Listed,
    Place,
    Source,
    Value,
    file_stamp,
)
from fastload.sources.row_files import leads_out
from fastload.store import Field
from fastload.store.checked import JSON_BYTES, Bad, get_object, get_str, parse_json

FIELDS_NAME = "fields.jsonl"
SCHEMA_NAME = "fastload.json"
UNFINISHED = ".fastload-unpack"
"""Name of the folder that an unfinished unpack has in its own."""
_BLOCK = 1 << 24
"""Bytes of fields.jsonl that are looked through for ends of lines at a time."""


_PLACE = struct.Struct("<QQ")


class _Places(ByteStrings):
    """Offset and end of each line of a file, as bytes. It is a spilled list.

    Raises:
        PackError: the file is empty, or ends within a line.
        OSError: it cannot be read.
    """

    def __init__(self, ranges: FileRanges) -> None:
        self._ends = Numbers("<i8")
        size, end = ranges.size(0), 0
        for start in range(0, size, _BLOCK):
            data = ranges.read(0, start, min(_BLOCK, size - start))
            ends = np.flatnonzero(np.frombuffer(data, np.uint8) == ord("\n")) + start + 1
            self._ends.extend(ends)
            end = int(ends[-1]) if len(ends) else end
        self._ends.seal()
        if not size or end != size:
            raise PackError(
                f"{ranges.paths[0]}: it is empty, or ends within a line; unpack the dataset again"
            )

    def __len__(self) -> int:
        return len(self._ends)

    def _read_at(self, position: int) -> bytes:
        edges = self._ends.read(max(position - 1, 0), position + 1).tolist()
        return _PLACE.pack(edges[0] if position else 0, edges[-1])


class UnpackedSource(Listed):
    """The samples of a folder that `fastload unpack` wrote, in their order. Every field is what it was in the
    dataset.

    A row is the place of a sample's line in fields.jsonl.

    Raises:
        PackError: one of its two files is damaged, or of another version.
    """

    layout = "files that fastload unpacked"
    concurrent = True

    def __init__(self, folder: str) -> None:
        self.title = folder
        about = os.path.join(folder, SCHEMA_NAME)
        try:
            found = get_object(parse_json(read_regular(about, JSON_BYTES)), "the file")
            schema, self.classes, self.form = declared(found)
            self._key = get_str(found.get("path"), "the key of the image's path")
        except OSError as error:
            raise PackError(f"{about}: cannot be read: {error.strerror or error}") from error
        except (Bad, ValueError) as error:
            raise PackError(f"{about}: {error}: unpack the dataset again") from None
        self.image_field, self.image_list = image_of(schema), list_of(schema)
        self.fields = schema.fields[1:]
        self._lines = os.path.join(folder, FIELDS_NAME)
        self._ranges = FileRanges([self._lines])
        try:
            self._rows = _Places(self._ranges)
            for position in range(len(self)):
                _ = self._paths(position) if self.image_list else self._path(position)
        except OSError as error:
            raise PackError(f"{self._lines}: cannot be read: {error.strerror or error}") from error

    def _line(self, position: int) -> bytes:
        start, end = _PLACE.unpack(self._rows[position])
        return self._ranges.read(0, start, end - start)

    def _path(self, position: int) -> str:
        """The path of an image, which stands first in its line, so that the rest of the line need not be
        parsed."""
        head = b"{" + json.dumps(self._key).encode() + b": "
        line = self._line(position)
        end = line.find(b'", ', len(head)) if line.startswith(head + b'"') else -1
        if end > 0:
            try:
                if isinstance(path := json.loads(line[len(head) : end + 1]), str):
                    return path
            except ValueError:
                pass
        return self._text(self._parsed(position), self._key, position)

    def _paths(self, position: int) -> list[str]:
        """The paths of a sample's images."""
        found = self._parsed(position).get(self._key)
        if not isinstance(found, list):
            raise PackError(f"{self._lines}, line {position + 1}: its {self._key!r} is no list of paths")
        return [self._text({self._key: path}, self._key, position) for path in found]

    def _parsed(self, position: int) -> Mapping[str, Any]:
        try:
            return get_object(parse_json(self._line(position)), "a line")
        except (Bad, ValueError) as error:
            raise PackError(f"{self._lines}, line {position + 1}: {error}") from None

    def _text(self, line: Mapping[str, Any], key: str, position: int) -> str:
        found = line.get(key)
        if not isinstance(found, str) or leads_out(found):
            raise PackError(f"{self._lines}, line {position + 1}: its {key!r} is no path below the folder")
        return found

    @cached_property
    def notices(self) -> tuple[Notice, ...]:
        """Pictures in the folder, but for those of further fields, that no line names: they were added
        since."""
        first, left_out = self._parsed(0), Notices()
        further = [str(first.get(field.name)) for field in self.fields if field.handler.is_picture]
        beside = {os.path.normpath(os.path.join(self.title, os.path.dirname(path))) for path in further}
        named, there = TextSorter(), TextSorter()
        for position in range(len(self)):
            for path in self._paths(position) if self.image_list else [self._path(position)]:
                named.add(_sortable(os.path.normpath(os.path.join(self.title, path))))
        for folder, name in files_below(self.title):
            if name.lower().endswith(IMAGE_EXTENSIONS) and os.path.normpath(folder) not in beside:
                there.add(_sortable(os.path.normpath(os.path.join(folder, name))))
        for other in _without(there.drain(), named.drain()):
            left_out.add(UNLISTED, other.decode("utf-8", "surrogatepass").replace("\0", os.sep))
        return left_out.all()

    def name(self, position: int) -> str:
        if self.image_list:
            return f"{self._lines}, line {position + 1}"
        return os.path.join(self.title, self._path(position))

    def key(self, position: int) -> str:
        return str(position) if self.image_list else self._path(position)

    def stamp(self, position: int) -> tuple[int, int]:
        if self.image_list or any(field.handler.is_picture for field in self.fields):
            return UNKNOWN  # the further pictures are files whose names the line has to be parsed for
        (size, time), lines = file_stamp(self.name(position)), file_stamp(self._lines)
        return size + len(self._line(position)), max(time, lines[1])

    def fields_of(self, position: int) -> None:
        """Returns None: the fields are known only when the line is read."""

    def place(self, position: int) -> Place:
        path = self.name(position)
        return Place(path, 0, file_stamp(path)[0])

    def places(self, position: int) -> list[Place]:
        """Places of a sample's images."""
        paths = (os.path.join(self.title, path) for path in self._paths(position))
        return [Place(path, 0, os.path.getsize(path)) for path in paths]

    def read(self, position: int) -> Item:
        line = self._parsed(position)
        values = {field.name: self._value(field, line, position) for field in self.fields}
        if self.image_list:
            images = [self._picture(path) for path in self._paths(position)]
            return Item(self.name(position), b"", values, images=images)
        return Item(self.name(position), self._picture(self._path(position)), values)

    def described(self, position: int) -> tuple[dict[str, Value], int]:
        """The values of a sample, and the number of its images."""
        line = self._parsed(position)
        return {field.name: self._value(field, line, position) for field in self.fields}, len(
            self._paths(position)
        )

    def _value(self, field: Field, line: Mapping[str, Any], position: int) -> Value:
        if field.name not in line:
            raise PackError(f"{self._lines}, line {position + 1}: it has no value of {field.name!r}")
        if field.handler.is_picture:
            return self._picture(self._text(line, field.name, position))
        try:
            value: Value = field.handler.from_json(field, line[field.name])
        except (ValueError, OverflowError) as error:
            raise PackError(
                f"{self._lines}, line {position + 1}: its {field.name!r} is no value of {field}: {error}"
            ) from None
        return value

    def _picture(self, path: str) -> bytes:
        full = os.path.join(self.title, path)
        try:
            return read_regular(full)
        except OSError as error:
            raise PackError(f"{full} cannot be read: {error.strerror or error}") from error


def _sortable(path: str) -> bytes:
    """A path as bytes that are ordered by folders, and then by names."""
    folder, name = os.path.split(path)
    return f"{folder}\0{name}".encode("utf-8", "surrogatepass")


def _without(texts: Iterator[bytes], others: Iterator[bytes]) -> Iterator[bytes]:
    """The texts that are not among others; both ascend."""
    other = next(others, None)
    for text in texts:
        while other is not None and other < text:
            other = next(others, None)
        if text != other:
            yield text


def is_unpacked(folder: str) -> bool:
    """Returns True if a folder has the two files by which it is recognised."""
    return all(os.path.isfile(os.path.join(folder, name)) for name in (SCHEMA_NAME, FIELDS_NAME))


def _refuse_unfinished(given: Given) -> Source:
    raise PackError(
        f"{given.path} is unfinished: `fastload unpack` was stopped before its end; the same command "
        "goes on with it"
    )


UNFINISHED_FOLDER = Choice(
    lambda given: given.is_folder and os.path.isdir(os.path.join(given.path, UNFINISHED)), _refuse_unfinished
)
FOLDER = Choice(
    lambda given: given.is_folder and is_unpacked(given.path), lambda given: UnpackedSource(given.path)
)
