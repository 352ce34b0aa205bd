"""JSON Lines, and lists in .json files, whose samples name any number of images: conversations as LLaVA,
ms-swift and Qwen-VL have them, and documents of texts and images in order.

| of a line | is |
|---|---|
| `images`, or `image` without them | its images: a path, or a list of paths, nulls, objects with a `path` |
| parts of `messages` or `conversations` with `"type": "image"` | its images, where both are missing or null |
| lists of numbers, where all of the first lines have one | an array of any number of rows |
| other values | fields: int, float and text where all of the first lines have one, else JSON |
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, BinaryIO

import numpy as np

from fastload.common.files import open_regular, read_regular
from fastload.errors import ArgumentError, PackError
from fastload.sources.dataset import joint_field
from fastload.sources.options import TableOptions
from fastload.sources.protocol import Choice, FileRanges, Given, Item, Place, Value
from fastload.store import Field
from fastload.store.checked import JSON_BYTES, parse_json

LOOKED_AT = 1000
"""Lines that are looked at to tell the fields."""
_KEYS = ("images", "image")
_TALKS = ("messages", "conversations")
_PATHS = ("path", "image", "url")
_CHUNK = 8 << 20


class JsonlSource:
    """The lines of a .jsonl file, or the entries of a list in a .json file. See the table above.

    Args:
        path: the file.
        folder: folder that paths are relative to; None: the file's own.

    Raises:
        PackError: the file cannot be read, holds no objects, or none of its first lines has an image.
    """

    layout = "JSON with lists of images"
    classes: tuple[str, ...] | None = None
    concurrent = True
    image_list = "images"

    def __init__(self, path: str, folder: str | None = None) -> None:
        self.title = path
        self.folder = os.path.dirname(path) if folder is None else folder
        self._ranges = FileRanges([path])
        self._unit = "entry" if path.lower().endswith(".json") else "line"
        try:
            with open(open_regular(path)[0], "rb") as file:
                found = _entries(file, path) if self._unit == "entry" else _lines(file)
                self._places = np.array(list(found), np.int64).reshape(-1, 2)
        except OSError as error:
            raise PackError(f"{path}: cannot be read: {error.strerror}") from error
        if not len(self):
            raise PackError(f"{path}: no sample in it")
        first = [self._row(position) for position in range(min(LOOKED_AT, len(self)))]
        self._named = any(key in row for row in first for key in _KEYS)
        if not self._named and not any(map(_parts, first)):
            raise PackError(
                f"{path}: none of its first {len(first):,} samples has images: as 'images' or 'image', or as "
                'parts of \'messages\' with "type": "image"'
            )
        alone = any(row.get("image") is not None and row.get("images") is None for row in first)
        together = any(row.get("image") is not None and row.get("images") for row in first)
        self._keys = _KEYS[:1] if together and not alone else _KEYS
        names = dict.fromkeys(key for row in first for key in row if key not in self._keys)
        self.fields: tuple[Field, ...] = tuple(
            _field(name, [row.get(name) for row in first]) for name in names
        )
        self._known = {*names, *self._keys}

    def __len__(self) -> int:
        return len(self._places)

    def name(self, position: int) -> str:
        return f"{self.title}: {self._unit} {position + 1}"

    def key(self, position: int) -> str:
        return str(position)

    def stamp(self, position: int) -> tuple[int, int]:
        found = [os.stat(path) for path in self._paths(position, self._row(position))]
        return sum(each.st_size for each in found), max((each.st_mtime_ns for each in found), default=0)

    def fields_of(self, position: int) -> dict[str, Value]:
        return self.described(position)[0]

    def described(self, position: int) -> tuple[dict[str, Value], int]:
        """The values of a sample, and the number of its images."""
        return self._described(position, self._row(position))

    def _described(self, position: int, row: Mapping[str, Any]) -> tuple[dict[str, Value], int]:
        if other := next((key for key in row if key not in self._known), None):
            raise PackError(
                f"{self.name(position)}: it has {other!r}, which none of the first {LOOKED_AT:,} samples has"
            )
        values = {field.name: self._value(position, field, row.get(field.name)) for field in self.fields}
        return values, len(self._paths(position, row))

    def _value(self, position: int, field: Field, value: Any) -> Value:
        if value is None and not field.handler.takes_null:
            raise PackError(f"{self.name(position)}: it has no {field.name!r}")
        if not field.is_varying:
            found: Value = value
            return found
        if value != [] and not (isinstance(value, list) and _dtype_of([value]) in ("int64", field.dtype)):
            raise PackError(f"{self.name(position)}: its {field.name!r} is no list of numbers, as others are")
        return np.array(value, field.dtype)

    def read(self, position: int) -> Item:
        row = self._row(position)
        values, _ = self._described(position, row)
        images = [read_regular(path) for path in self._paths(position, row)]
        return Item(self.name(position), b"", values, images=images)

    def places(self, position: int) -> list[Place]:
        """Places of a sample's images."""
        return [Place(path, 0, os.path.getsize(path)) for path in self._paths(position, self._row(position))]

    def _paths(self, position: int, row: Mapping[str, Any]) -> list[str]:
        """The files of a sample's images."""
        given = [row[key] for key in self._keys if row.get(key) is not None]
        given = [value for value in given if value != []] or given[:1]
        if len(given) > 1:
            raise PackError(f"{self.name(position)}: it has both 'images' and 'image': give one of them")
        # Where lines name images, parts without a path stand for these.
        parts = given[0] if given else [each for each in _parts(row) if not self._named or _path(each)]
        parts = parts if isinstance(parts, list) else [parts]
        paths = [_path(part) for part in parts if part is not None]
        if "" in paths:
            raise PackError(f"{self.name(position)}: an image is neither a path nor an object with one")
        return [os.path.join(self.folder, path) for path in paths]

    def _row(self, position: int) -> Mapping[str, Any]:
        start, end = self._places[position].tolist()
        try:
            row = parse_json(self._ranges.read(0, start, end - start))
        except ValueError as error:
            raise PackError(f"{self.name(position)}: it cannot be read as JSON: {error}") from error
        if not isinstance(row, Mapping):
            raise PackError(f"{self.name(position)}: it is no object of JSON")
        return row


def _lines(file: BinaryIO) -> Iterator[tuple[int, int]]:
    """The first byte and the end of each line that is not blank."""
    at = 0
    for line in file:
        if line.strip():
            yield at, at + len(line)
        at += len(line)


def _entries(file: BinaryIO, path: str) -> Iterator[tuple[int, int]]:
    """The first byte and the end of each object of a list. Raises PackError."""
    decoder = json.JSONDecoder()
    # A character for each byte: where objects end does not depend on what their texts say.
    text = file.read(_CHUNK).decode("latin-1")
    base, at = 0, len(text) - len(text.lstrip()) + 1
    while True:
        while at < len(text) and text[at] in " \t\r\n,":
            at += 1
        if at < len(text) and text[at] == "]":
            return
        try:
            if text[at : at + 1] not in ("{", ""):
                raise PackError(f"{path}: it is no list of objects at byte {base + at:,}")
            end = decoder.raw_decode(text, at)[1]
        except (ValueError, RecursionError) as error:
            more = file.read(_CHUNK).decode("latin-1")
            if not more or len(text) - at > JSON_BYTES:
                raise PackError(
                    f"{path}: it is no list of objects from byte {base + at:,} on: {error}"
                ) from error
            text, base, at = text[at:] + more, base + at, 0
            continue
        yield base + at, base + end
        at = end


def _parts(row: Mapping[str, Any]) -> list[Any]:
    """The parts of a line's conversations that are images, in order."""
    talks = [row[key] for key in _TALKS if isinstance(row.get(key), list)]
    turns = [turn for talk in talks for turn in talk]
    contents = [turn.get("content") for turn in turns if isinstance(turn, Mapping)]
    parts = [part for content in contents if isinstance(content, list) for part in content]
    return [part for part in parts if isinstance(part, Mapping) and part.get("type") == "image"]


def _path(part: object) -> str:
    """The path that an image is given by; "": there is none."""
    found = next((part[key] for key in _PATHS if key in part), "") if isinstance(part, Mapping) else part
    return found.removeprefix("file://") if isinstance(found, str) else ""


def _field(name: str, values: Sequence[Any]) -> Field:
    if any(value is None for value in values):
        return Field(name, "json")
    if all(isinstance(value, list) for value in values) and (dtype := _dtype_of(values)):
        return Field(name, "array", dtype, (None,))
    return joint_field(name, values)


def _dtype_of(lists: Sequence[list[Any]]) -> str:
    """The dtype of the numbers in lists; "": there are none, or something else, or too large, is in them."""
    kinds = {type(each) for numbers in lists for each in numbers}
    if not kinds or not kinds <= {int, float}:
        return ""
    if any(not -(2**63) <= each < 2**63 for numbers in lists for each in numbers if type(each) is int):
        return ""
    return "float64" if float in kinds else "int64"


def _open(given: Given) -> JsonlSource:
    table = given.options.table or TableOptions()
    if table != TableOptions(images=table.images):
        raise ArgumentError(f"{given.path}: of the options for tables, JSON takes images= (--images) alone")
    return JsonlSource(given.path, None if table.images is None else os.fspath(table.images))


def _is_list(path: str) -> bool:
    """Returns True if a .json file begins as a list of objects."""
    try:
        descriptor, _ = open_regular(path)
    except OSError:
        return False
    with open(descriptor, "rb") as file:
        return b"".join(file.read(256).split()).startswith(b"[{")


FILE = Choice(
    lambda given: (
        given.path.lower().endswith((".jsonl", ".ndjson"))
        or (given.path.lower().endswith(".json") and _is_list(given.path))
    ),
    _open,
)
