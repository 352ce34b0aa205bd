"""ShardEntry and Segment: a manifest's entries for one shard, and for a part of a file beside the shards.

Everything is parsed as from a hostile file: names match a strict pattern, numbers are bounded, and folders
are texts that nothing here follows.
"""

from __future__ import annotations

import operator
import os
import re
from collections.abc import Callable, Iterable, Mapping, Set
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from fastload._native import core
from fastload.common.urls import is_url
from fastload.common.urls import shown as without_secrets
from fastload.errors import ArgumentError, DatasetError
from fastload.store.checked import Bad, get_int, get_list, get_object, get_str, shown
from fastload.store.schema import (
    COUNT_DTYPE,
    CRC_COLUMN,
    FIELD_LIMIT,
    HIDDEN_COLUMNS,
    Schema,
    column_owner,
)

SHARD_NAME = re.compile(r"shard-[0-9]{5,9}\.lmdb")
SIDE_NAME = re.compile(r"(rows|values|index)-[0-9]{5,9}\.bin")
"""Names of files beside the shards: which samples of a shard count, the values of fields that were added
later, and sidecars."""
SIDECAR_LIMIT = 10_000
"""Limit on sidecars in a manifest: a dataset has few, and one of many joined datasets has those of all."""
COUNT_LIMIT = 2**48
"""Limit on samples, and on bytes of a shard: far above any dataset, and far below where arithmetic on them
could overflow."""
ROW_BYTES = 4
"""Size of a row's number in a file of rows: u32."""
OFFSET_BYTES = 8
"""Size of an offset in a segment of values of any length: u64."""

PAGE_BYTES = 40
"""Size of a row in a table of pages: five u64."""

_URL_BYTES, _ETAG_BYTES = 4096, 1024
_U32 = 2**32 - 1
_PATH_BYTES = 4096
"""Limit on a folder's name in a manifest: Linux's on a path."""


def shard_name(number: int) -> str:
    """The name of the shard of this number."""
    return f"shard-{number:05d}.lmdb"


def file_number(name: str) -> int:
    """The number in the name of a file that matches `SHARD_NAME` or `SIDE_NAME`."""
    return int(name.partition("-")[2].partition(".")[0])


@dataclass(frozen=True)
class Segment:
    """Part of a file beside the shards.

    Attributes:
        file: its name.
        offset: first byte of the part.
        bytes: its length.
        crc32c: its CRC32C.
        folder: the folder of the file, relative to the dataset's folder or absolute; None: the dataset's
            folder.
        directory: (bytes, CRC32C) of the directory at the end of a sidecar; None: it has none, since it is of
            version 1 or no sidecar.
    """

    file: str
    offset: int
    bytes: int
    crc32c: int
    folder: str | None = None
    directory: tuple[int, int] | None = None

    def to_json(self) -> dict[str, Any]:
        """The form that the manifest stores."""
        stored: dict[str, Any] = {
            "file": self.file,
            "offset": self.offset,
            "bytes": self.bytes,
            "crc32c": self.crc32c,
        }
        if self.directory is not None:
            stored["directory"] = {"bytes": self.directory[0], "crc32c": self.directory[1]}
        return stored if self.folder is None else {**stored, "folder": self.folder}


@dataclass(frozen=True)
class ForeignObject:
    """The object in a store that a foreign shard is: somebody else's file, of which images are parts. Or the
    objects, one for each image, as if they lay one behind the other (`fastload.store.loose`).

    Attributes:
        url: its URL; of several objects the beginning of their URLs.
        etag: the store's tag of its content, which each read asks for; None: the store gives none.
        objects: segment with the rest of the URL, and the tag, of each sample's object; None: it is one.
        pages: segment with the table of the object's pages, as which its images lie (`fastload.store.pages`);
            None: they lie in it as they are.
        size: bytes of an object of pages, or of all objects, where those of the shard are others.
        pointed: a place in a page begins with where the image lies in it; of an object of pages.
        indexes: segment with the entropy index of each stored sample's image, where all were checked; None:
            they are made when images are first read.
        compressed: some pages are; if none is, each image can be read by itself once its place is known.
    """

    url: str
    etag: str | None = None
    objects: Segment | None = None
    pages: Segment | None = None
    size: int | None = None
    pointed: bool = False
    compressed: bool = True
    indexes: Segment | None = None

    def to_json(self) -> dict[str, Any]:
        """The form that the manifest stores."""
        stored: dict[str, Any] = {"url": self.url}
        if self.etag is not None:
            stored["etag"] = self.etag
        if self.objects is not None:
            stored |= {"objects": self.objects.to_json(), "bytes": self.size}
        if self.pages is not None:
            stored |= {"pages": self.pages.to_json(), "bytes": self.size}
            stored |= {"pointed": self.pointed, "compressed": self.compressed}
        if self.indexes is not None:
            stored["indexes"] = self.indexes.to_json()
        return stored

    @property
    def shown(self) -> str:
        """The URL for messages, without secrets."""
        return without_secrets(self.url)

    @property
    def beside(self) -> Segment | None:
        """The segment that says where its parts are."""
        return self.objects if self.pages is None else self.pages

    @property
    def segments(self) -> tuple[Segment, ...]:
        """Every segment that it names."""
        return tuple(each for each in (self.beside, self.indexes) if each is not None)

    def with_segments(self, moved: Callable[[Segment], Segment]) -> ForeignObject:
        """The entry with another in the place of each segment."""
        parts = (None if each is None else moved(each) for each in (self.objects, self.pages, self.indexes))
        objects, pages, indexes = parts
        return replace(self, objects=objects, pages=pages, indexes=indexes)

    def checksum(self, size: int) -> int:
        """Stands for the CRC32C of an object of that size, of which nobody has read all: equal where the
        store says that the content is."""
        if self.objects is not None:
            return core.crc32c(f"{size} {self.objects.crc32c}".encode())
        return core.crc32c(f"{size} {self.url if self.etag is None else self.etag}".encode())


@dataclass(frozen=True)
class ShardEntry:
    """The manifest's entry for one shard.

    Attributes:
        file: its name.
        first: index of its first sample in the dataset.
        count: samples of the dataset in it.
        bytes: size of the file.
        crc32c: CRC32C of the whole file.
        columns: CRC32C of its chunk of each column, by the column's name.
        folder: the folder that the file lies in, relative to the dataset's folder or absolute; None: the
            dataset's folder.
        key: key of the file's first sample; default: `first`.
        stored: samples in the file; default: `count`.
        rows: numbers of the stored samples that count, u32, ascending; None: all.
        added: values of fields that were added later, by the field's name: a row for each stored sample.
        fields: names of the fields that the file was packed with, in order: a field's number in its records
            is its place here; None: those of the dataset's schema.
        base: the folder that paths in its records are relative to: relative to the file's folder, or
            absolute; None: there is none.
        foreign: the object in a store that it is, of which each sample is a part, an image's file and no
            record; `file` is only its name then. It has no columns but those that were added; heights,
            widths and checksums may not be known. None: it is a file of the dataset.
    """

    file: str
    first: int
    count: int
    bytes: int
    crc32c: int
    columns: Mapping[str, int]
    folder: str | None = None
    key: int = -1
    stored: int = -1
    rows: Segment | None = None
    added: Mapping[str, Segment] = field(default_factory=dict)
    fields: tuple[str, ...] | None = None
    base: str | None = None
    foreign: ForeignObject | None = None

    def __post_init__(self) -> None:
        if self.key < 0:
            object.__setattr__(self, "key", self.first)
        if self.stored < 0:
            object.__setattr__(self, "stored", self.count)

    def to_json(self) -> dict[str, Any]:
        """The entry in the form that the manifest stores; keys that have their default are left out."""
        stored: dict[str, Any] = {
            "file": self.file,
            "first": self.first,
            "count": self.count,
            "bytes": self.bytes,
            "crc32c": self.crc32c,
            "columns": dict(self.columns),
        }
        if self.folder is not None:
            stored["folder"] = self.folder
        if self.key != self.first:
            stored["key"] = self.key
        if self.stored != self.count:
            stored["stored"] = self.stored
        if self.rows is not None:
            stored["rows"] = self.rows.to_json()
        if self.added:
            stored["added"] = {name: part.to_json() for name, part in self.added.items()}
        if self.fields is not None:
            stored["fields"] = list(self.fields)
        if self.base is not None:
            stored["base"] = self.base
        if self.foreign is not None:
            stored["foreign"] = self.foreign.to_json()
        return stored

    @property
    def plain(self) -> bool:
        """True if format version 1 can describe it: none of the keys with a default is needed."""
        none = all(each is None for each in (self.folder, self.rows, self.fields, self.base, self.foreign))
        return none and not self.added and self.key == self.first and self.stored == self.count

    @property
    def size(self) -> int:
        """Bytes of its file, or of its objects as they lie in the store."""
        return self.bytes if self.foreign is None or self.foreign.size is None else self.foreign.size

    @property
    def files(self) -> tuple[tuple[str | None, str], ...]:
        """(folder, name) of every file that it names."""
        own = () if self.foreign is not None else ((self.folder, self.file),)
        return (*own, *((part.folder, part.file) for part in self.segments))

    @property
    def segments(self) -> tuple[Segment, ...]:
        """Every segment that it names."""
        rows = () if self.rows is None else (self.rows,)
        return (*self.added.values(), *rows, *(() if self.foreign is None else self.foreign.segments))

    def with_segments(self, moved: Callable[[Segment], Segment]) -> ShardEntry:
        """The entry with another in the place of each segment."""
        return replace(
            self,
            rows=None if self.rows is None else moved(self.rows),
            added={name: moved(segment) for name, segment in self.added.items()},
            foreign=None if self.foreign is None else self.foreign.with_segments(moved),
        )

    @property
    def title(self) -> str:
        """Its name in messages: of the object, without secrets, or of the file, with its folder unless that
        is the dataset's."""
        if self.foreign is not None:
            return self.foreign.shown
        return self.file if self.folder is None else os.path.join(self.folder, self.file)

    def origin(self, name: str) -> tuple[int, ...]:
        """Identity of its part of a field or column: equal where the values are."""
        added = self.added.get(name)
        rows = -1 if self.rows is None else self.rows.crc32c
        return (
            self.count,
            rows,
            added is not None,
            added.crc32c if added is not None else self.columns.get(name, self._identity),
        )

    @property
    def _identity(self) -> int:
        """Identity of what it has no checksums of."""
        return -1 if self.foreign is None else self.crc32c

    @property
    def samples(self) -> tuple[object, ...]:
        """Identity of its samples, whatever was added to them: their number and the checksums of all
        packed columns but the records'."""
        rows = None if self.rows is None else (self.stored, self.rows.crc32c)
        return (
            self.count,
            rows,
            self._identity
            if self.foreign is not None
            else sorted((name, crc) for name, crc in self.columns.items() if name != CRC_COLUMN),
        )

    def at(self, first: int) -> ShardEntry:
        """An entry with the same samples, from another index on."""
        return replace(self, first=first)

    def hiding(self, before: Schema, after: Schema) -> ShardEntry:
        """The entry in a dataset whose schema becomes `after`: its file keeps the fields, and their
        numbers, that `before` gave it."""
        packed = list(self.packed_fields(before))
        while self.fields is None and packed and packed[-1] in self.added:
            packed.pop()  # the file has no field of that name
        names = [field.name for field in after]
        known = {name: part for name, part in self.added.items() if column_owner(name) in names}
        default = packed == names[: len(packed)] and set(names[len(packed) :]) == set(
            map(column_owner, known)
        )
        return replace(self, fields=None if default else tuple(packed), added=known)

    def packed_fields(self, schema: Schema) -> tuple[str, ...]:
        """Names of the fields that the file was packed with, in the order of their numbers in its records."""
        return tuple(field.name for field in schema) if self.fields is None else self.fields


def file_path(dataset: Path, folder: str | None, name: str) -> Path:
    """The path of a file that a manifest names. What is relative is the system's to resolve: ``..`` of a
    link is where it leads."""
    return dataset / name if folder is None else dataset / folder / name


def base_path(dataset: Path, shard: ShardEntry) -> str | None:
    """The folder of a shard's attached files; None: it holds its images."""
    if shard.base is None:
        return None
    return resolved_base(file_path(dataset, shard.folder, shard.file).parent, shard.base)


def resolved_base(folder: Path, base: str) -> str:
    """The absolute path of a base: as it is, or, where it is relative, as the system resolves it from
    `folder`, links included."""
    return base if os.path.isabs(base) else os.path.realpath(os.path.join(os.path.realpath(folder), base))


def checked_base(base: str) -> str:
    """A base that a manifest may name. Raises ArgumentError if it is empty, too long, or no path."""
    try:
        found = _parse_folder(base, "base")
    except Bad as error:
        raise ArgumentError(f"{error}; name the folder of the attached files") from None
    assert found is not None
    return found


def one_base(dataset: Path, shards: Iterable[ShardEntry]) -> str:
    """The folder of all attached files of a dataset.

    Raises:
        DatasetError: there are none, or they lie in several folders.
    """
    found = {base for shard in shards if (base := base_path(dataset, shard)) is not None}
    if not found:
        raise DatasetError(
            f"{dataset} holds its images itself: only a dataset made by `fastload attach` has a base"
        )
    if len(found) > 1:
        raise DatasetError(
            f"{dataset} has attached files in several folders ({', '.join(sorted(found)[:3])}), "
            "which one base cannot replace"
        )
    return found.pop()


def parse_shards(value: object, schema: Schema, *, later: bool) -> tuple[ShardEntry, ...]:
    """Parses the shard list of a manifest or journal: plain file names, samples contiguous from 0, a checksum
    for every column.

    Args:
        value: the list.
        schema: schema of the dataset.
        later: True if the keys of format version 2 are read.

    Raises:
        Bad: the list is invalid.
    """
    shards: list[ShardEntry] = []
    names: set[str] = set()
    next_index = 0
    columns = None if any(each.name in HIDDEN_COLUMNS for each in schema) else schema.columns.keys()
    for number, each in enumerate(get_list(value, "the shard list")):
        plain = None if columns is None else _parse_plain(each, columns, next_index, names)
        if plain is not None:
            shards.append(plain)
            names.add(plain.file)
            next_index += plain.count
            continue
        what = f"of shard {number}"
        stored = get_object(each, f"the entry {what}")
        file = get_str(stored.get("file"), f"the file {what}")
        own = stored.get("folder") is None or not later
        if not SHARD_NAME.fullmatch(file) or (own and file in names):
            raise Bad(
                f"the file {what} is {shown(file)}, not a shard's name or not the only one of that name"
            )
        first = get_int(stored.get("first"), f"the first sample {what}", 0, COUNT_LIMIT)
        if first != next_index:
            raise Bad(f"the first sample {what} is {first}, not {next_index}")
        count = get_int(stored.get("count"), f"the count {what}", 1, COUNT_LIMIT)
        size = get_int(stored.get("bytes"), f"the size {what}", 1, COUNT_LIMIT)
        crc = get_int(stored.get("crc32c"), f"the checksum {what}", 0, _U32)
        sums = get_object(stored.get("columns"), f"the column checksums {what}")
        checksums = {
            name: get_int(sums[name], f"the checksum of column {name} {what}", 0, _U32) for name in sums
        }
        entry = ShardEntry(file, first, count, size, crc, checksums)
        shards.append(_parse_later(entry, stored, schema, what) if later else entry)
        _check_fields(shards[-1], schema, what)
        if own:
            names.add(file)
        next_index += count
    if len({_image_number(fields, schema) for fields in {shard.fields for shard in shards}}) > 1:
        raise Bad("the image has another number in the records of one shard than in those of another")
    return tuple(shards)


_PLAIN = frozenset(("file", "first", "count", "bytes", "crc32c", "columns"))
_plain_values = operator.itemgetter("file", "first", "count", "bytes", "crc32c", "columns")


def _parse_plain(stored: object, columns: Set[str], next_index: int, names: Set[str]) -> ShardEntry | None:
    """The entry of a valid shard that has none of the keys of format version 2, as nearly all are of a
    dataset of very many; None: look closer, at what is wrong or there besides."""
    if type(stored) is not dict or stored.keys() != _PLAIN:
        return None
    file, first, count, size, crc, sums = _plain_values(stored)
    if not (
        type(file) is str
        and type(first) is type(count) is type(size) is type(crc) is int
        and type(sums) is dict
    ):
        return None
    if first != next_index or not (
        first <= COUNT_LIMIT and 1 <= count <= COUNT_LIMIT and 1 <= size <= COUNT_LIMIT and 0 <= crc <= _U32
    ):
        return None
    if sums.keys() != columns or not SHARD_NAME.fullmatch(file) or file in names:
        return None
    for each in sums.values():
        if type(each) is not int or not 0 <= each <= _U32:
            return None
    # Key and stored: their defaults cost a tenth more.
    return ShardEntry(file, first, count, size, crc, sums, None, first, count)


def _parse_later(entry: ShardEntry, content: Mapping[str, Any], schema: Schema, what: str) -> ShardEntry:
    """The entry with the keys of format version 2."""
    key = get_int(content.get("key", entry.first), f"the first key {what}", 0, COUNT_LIMIT)
    stored = get_int(
        content.get("stored", entry.count), f"the number of stored samples {what}", entry.count, COUNT_LIMIT
    )
    rows = content.get("rows")
    if (rows is None) != (stored == entry.count):
        raise Bad(
            f"{entry.count} of {stored} samples {what} count, and rows that say which are "
            f"{'missing' if rows is None else 'given'}"
        )
    part = None if rows is None else _parse_segment(rows, f"the rows {what}")
    if part is not None and (part.bytes != entry.count * ROW_BYTES or stored > _U32):
        raise Bad(f"the rows {what} have {part.bytes} bytes for {entry.count} of {stored} samples")
    parts = get_object(content.get("added", {}), f"the added values {what}")
    names = content.get("fields")
    fields = (
        None
        if names is None
        else tuple(get_str(name, f"a field {what}") for name in get_list(names, f"the fields {what}"))
    )
    if fields is not None and (len(fields) > FIELD_LIMIT or len(set(fields)) != len(fields)):
        raise Bad(f"the fields {what} are too many, or not all different")
    return replace(
        entry,
        folder=_parse_folder(content.get("folder"), f"the folder {what}"),
        key=key,
        stored=stored,
        rows=part,
        added={name: _parse_values(name, parts[name], schema, stored, what) for name in parts},
        fields=fields,
        base=_parse_folder(content.get("base"), f"the base {what}"),
        foreign=_parse_object(content.get("foreign"), stored, f"the object {what}"),
    )


def _parse_object(value: object, stored: int, what: str) -> ForeignObject | None:
    if value is None:
        return None
    content = get_object(value, what)
    url, etag = get_str(content.get("url"), f"the URL of {what}"), content.get("etag")
    if not is_url(url) or len(url) > _URL_BYTES:
        raise Bad(f"{what} is {shown(url)}, not a URL of at most {_URL_BYTES} characters")
    if etag is not None and len(get_str(etag, f"the ETag of {what}")) > _ETAG_BYTES:
        raise Bad(f"the ETag of {what} has {len(etag)} characters")
    paged, several, indexed = (content.get(name) for name in ("pages", "objects", "indexes"))
    indexes = None if indexed is None else _parse_stored(indexed, stored, f"the indexes of {what}")
    if paged is several is None:
        return ForeignObject(url, etag, indexes=indexes)
    size = get_int(content.get("bytes"), f"the size of {what}", 1, COUNT_LIMIT)
    if paged is not None:
        part = _parse_segment(paged, f"the pages of {what}")
        if part.bytes % PAGE_BYTES:
            raise Bad(f"the pages of {what} have {part.bytes} bytes")
        pointed, compressed = content.get("pointed") is True, content.get("compressed") is not False
        return ForeignObject(url, etag, None, part, size, pointed, compressed, indexes)
    part = _parse_stored(several, stored, f"the names of {what}")
    return ForeignObject(url, etag, part, None, size, indexes=indexes)


def _parse_stored(value: object, stored: int, what: str) -> Segment:
    """A segment of a value for each stored sample."""
    part = _parse_segment(value, what)
    if part.bytes < (stored + 1) * OFFSET_BYTES:
        raise Bad(f"{what} have {part.bytes} bytes for {stored} samples")
    return part


def parse_sidecars(value: object) -> tuple[Segment, ...]:
    """Parses the list of sidecars in a manifest. Raises Bad."""
    found = get_list(value, "the list of sidecars")
    if len(found) > SIDECAR_LIMIT:
        raise Bad(f"there are {len(found)} sidecars, the limit is {SIDECAR_LIMIT}")
    return tuple(_parse_segment(each, f"sidecar {number}", sidecar=True) for number, each in enumerate(found))


def _parse_segment(value: object, what: str, *, sidecar: bool = False) -> Segment:
    content = get_object(value, what)
    file = get_str(content.get("file"), f"the file of {what}")
    match = SIDE_NAME.fullmatch(file)
    if match is None or (match[1] == "index") != sidecar:
        raise Bad(f"the file of {what} is {shown(file)}, not a name of one")
    offset = get_int(content.get("offset"), f"the offset of {what}", 0, COUNT_LIMIT)
    size = get_int(content.get("bytes"), f"the size of {what}", 1, COUNT_LIMIT)
    crc = get_int(content.get("crc32c"), f"the checksum of {what}", 0, _U32)
    directory = None
    if sidecar:
        if "directory" not in content:
            raise Bad(f"{what} has no directory, as before release 0.2: pack again")
        part = get_object(content["directory"], f"the directory of {what}")
        length = get_int(part.get("bytes"), f"the size of the directory of {what}", 1, size)
        directory = length, get_int(part.get("crc32c"), f"the checksum of the directory of {what}", 0, _U32)
    return Segment(
        file, offset, size, crc, _parse_folder(content.get("folder"), f"the folder of {what}"), directory
    )


def _parse_values(name: str, value: object, schema: Schema, stored: int, what: str) -> Segment:
    """The segment of an added field. Its size is checked here where the field's rows have a fixed one."""
    known = next((field for field in schema if field.name == column_owner(name)), None)
    is_count = known is not None and name in schema.hidden_names(known)
    if known is None or not known.handler.can_be_added or (known.name != name and not is_count):
        raise Bad(f"values {what} were added for {shown(name)}, which is no field that could be added")
    part = _parse_segment(value, f"the values of field {name} {what}")
    fixed = stored * (COUNT_DTYPE.itemsize if is_count else known.row_bytes)
    if part.bytes != fixed if name in schema.columns else part.bytes < (stored + 1) * OFFSET_BYTES:
        raise Bad(f"the values of field {name} {what} have {part.bytes} bytes for {stored} samples")
    return part


def _parse_folder(value: object, what: str) -> str | None:
    if value is None:
        return None
    folder = get_str(value, what)
    try:
        encoded = os.fsencode(folder)
    except UnicodeEncodeError:
        raise Bad(f"{what} is {shown(folder)}, not a path") from None
    if not encoded or b"\0" in encoded or len(encoded) > _PATH_BYTES:
        raise Bad(f"{what} is {shown(folder)}, not a path of at most {_PATH_BYTES} bytes")
    return folder


def _check_fields(entry: ShardEntry, schema: Schema, what: str) -> None:
    """Checks that each field's values are in the file or added, and that there are checksums of exactly
    the columns that there may be."""
    packed = set(entry.packed_fields(schema))
    needed = {name for name in schema.columns if name not in entry.added}
    gone = set() if entry.fields is None else {name for name in entry.columns if column_owner(name) in packed}
    least = needed if entry.foreign is None else needed - HIDDEN_COLUMNS.keys()
    if not least <= set(entry.columns) <= needed | gone:
        raise Bad(
            f"the columns {what} are {shown(', '.join(entry.columns))}, the schema's "
            f"{shown(', '.join(sorted(needed)))}"
        )
    for each in schema:
        if each.name not in entry.added and each.name not in packed:
            raise Bad(f"field {each.name} has no values {what}")
    if packed & HIDDEN_COLUMNS.keys():
        raise Bad(f"the fields {what} have a name that is fastload's own")


def _image_number(fields: tuple[str, ...] | None, schema: Schema) -> int:
    """The number of the image in records that were packed with these fields; None: with the schema's."""
    if schema.image is None:
        return -1
    return schema.fields.index(schema.image) if fields is None else fields.index(schema.image.name)
