"""Parquet files, as Hugging Face's hub has them: a column of images, and others of any type. Needs pyarrow.

NOTE [ parquet: row groups ]
Parquet is compressed by row groups: to read one row, its whole group is decoded. So the last few groups that
were read are kept, and samples are read in the order of the files at the cost of one pass. With shuffle=True
nearly every sample decodes a group of its own.
"""

from __future__ import annotations

import os
import threading
from collections import OrderedDict
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from fastload.common.ahead import ahead
from fastload.common.files import read_regular
from fastload.common.optional import optional
from fastload.errors import PackError, RemoteError
from fastload.remote.foreign import ForeignURL, Walk
from fastload.sources.arrow_columns import brief, columns_of, file_columns, python_value
from fastload.sources.options import NO_COLUMNS, ColumnOptions
from fastload.sources.protocol import (
    UNKNOWN,
    FileRanges,
    Files,
    Item,
    NumberedInFiles,
    Place,
    Value,
    file_stamp,
    read_file,
)
from fastload.sources.tar import expand_all
from fastload.store.pages import Page, PageSlots
from fastload.store.parquet_pages import (
    ColumnChunk,
    Extents,
    Read,
    chunk_of,
    pointer_places,
    value_places,
)

if TYPE_CHECKING:
    import pyarrow as pa
    import pyarrow.parquet as pq

_KEPT = 4
"""Row groups that stay decoded."""
_AT_ONCE = 8
"""Row groups of a file in a store of which the pages are walked at the same time."""
_GROUP_MOST = 8 << 30
"""Bytes of a row group, decoded."""


class ParquetSource(NumberedInFiles):
    """One or many .parquet files of one schema, read in the order given, row group by row group; ArrowColumns
    says what the columns are.

    An image that has a path and no bytes is read from that file.

    Raises:
        PackError: a file is missing, damaged, or of another schema than the first; no column can be an image.
        ArgumentError: pyarrow is not installed.
    """

    layout = "Parquet files"
    concurrent = True

    def __init__(self, paths: list[str], options: ColumnOptions = NO_COLUMNS) -> None:
        super().__init__(paths, "row")
        self._parquet = optional("pyarrow.parquet", "packing Parquet")
        self._lock = threading.Lock()
        self._groups: OrderedDict[tuple[int, int, bool], pa.Table] = OrderedDict()
        self._schema: pa.Schema | None = None
        self._starts: list[
            tuple[int, int, int]
        ] = []  # (file, row group, first row in the file), of each row group
        self._places: dict[tuple[int, int], Extents | None] = {}  # by file and row group, as far as asked for
        self._footers: dict[str, pq.FileMetaData] = {}  # of a single file
        self._slots: PageSlots | None = None
        self._page: tuple[Page, bytes] | None = None  # the last one that was read
        self._ranges = FileRanges(paths)
        self._walks: dict[int, Walk] = {}  # by file, of those in a store
        # Row groups in which pictures may lie in files of their own.
        self._with_files: set[tuple[int, int]] = set()
        firsts = [0]
        for number in range(len(paths)):
            row = 0
            for group, rows in enumerate(self._row_groups(number)):
                self._starts.append((number, group, row))
                firsts.append(firsts[-1] + rows)
                row += rows
        self._firsts = np.array(firsts, np.int64)
        if not firsts[-1]:
            raise PackError(f"{self.title}: no row in it")
        self._columns = columns_of(self.title, self._schema, options)
        if self._columns.has_pictures:
            self._columns.settle(self._group(*self._starts[0][:2]), self.paths[0])
        self.fields, self.classes = self._columns.fields, self._columns.classes
        self.form = self._columns.form
        self.image_field, self.box_format = self._columns.image_field, self._columns.box_format
        self.image_name, self.image_list = self._columns.image_name, self._columns.image_list
        self.notices, self.label_limits = self._columns.notices, self._columns.label_limits

    def _row_groups(self, number: int) -> list[int]:
        """The rows of each row group; notes the schema, or compares it."""
        path = self.paths[number]
        with self._open(path) as file:
            schema, meta = file.schema_arrow, file.metadata
            sizes = [meta.row_group(group).total_byte_size for group in range(meta.num_row_groups)]
            rows = [meta.row_group(group).num_rows for group in range(meta.num_row_groups)]
            held = {f"{name}{part}.bytes" for name in file_columns(schema) for part in ("", ".list.element")}
            self._with_files |= {
                (number, group)
                for group in range(meta.num_row_groups)
                if not _holds_all(meta.row_group(group), held)
            }
        if max(sizes, default=0) > _GROUP_MOST or min([*sizes, *rows], default=0) < 0:
            raise PackError(
                f"{path}: a row group of {max(sizes):,} bytes, more than the limit of {_GROUP_MOST:,}"
            )
        if self._schema is None:
            self._schema = schema
        elif not schema.equals(self._schema):
            raise PackError(
                f"{path}: its columns are not those of {self.paths[0]}: pack files of one schema together"
            )
        return rows

    @contextmanager
    def _open(self, path: str) -> Iterator[pq.ParquetFile]:
        with ExitStack() as opened:
            try:
                raw = opened.enter_context(read_file(path, alone=len(self.paths) == 1))
            except OSError as error:
                raise PackError(f"{path}: cannot be read: {error.strerror}") from error
            try:
                file = self._parquet.ParquetFile(raw, metadata=self._footers.get(path))
                if len(self.paths) == 1:
                    self._footers[path] = file.metadata
            except RemoteError:
                raise
            except Exception as error:  # pyarrow raises any error on a damaged file
                raise PackError(f"{path}: not a whole Parquet file: {brief(error)}") from error
            try:
                yield file
            except UnicodeDecodeError as error:  # a name in its footer
                raise PackError(f"{path}: not a whole Parquet file: {error}") from error

    def __len__(self) -> int:
        return int(self._firsts[-1])

    def _find(self, position: int) -> tuple[int, int, int, int]:
        """(file, row group, row in the group, row in the file) of a sample."""
        at = int(np.searchsorted(self._firsts, position, side="right")) - 1
        number, group, first = self._starts[at]
        row = position - int(self._firsts[at])
        return number, group, row, first + row

    def numbered(self, position: int) -> tuple[int, int]:
        number, _, _, row = self._find(position)
        return number, row

    def stamp(self, position: int) -> tuple[int, int]:
        number, group, _, _ = self._find(position)
        return UNKNOWN if (number, group) in self._with_files else file_stamp(self.paths[number])

    def place(self, position: int) -> Place | None:
        """See NOTE [ parquet: where values lie ]."""
        number, group, row, _ = self._find(position)
        if (number, group) not in self._places:
            self._places[number, group] = self._value_places(number, group)
        places = self._places[number, group]
        if places is None:
            return None
        if places[1][row] >= 0:
            return Place(self.paths[number], int(places[0][row]), int(places[1][row]))
        scalar = self._group(number, group).column(self._columns.image)[row]
        value = python_value(scalar, f"{self.name(position)}: its {self._columns.image}")
        named = self._columns.beside(
            self.name(position), self.paths[number], value["path"] if isinstance(value, dict) else None
        )
        return Place(named, 0, os.stat(named).st_size)

    def begin_pages(self, pointed: bool) -> PageSlots | None:
        """Begins to give the places in a single file in a store as those in its pages; None: places are in
        the file, whose pages are not compressed.

        Args:
            pointed: as those of pointers, so that nothing is read of most pages; not where a picture may be
                null, or a page that is not compressed is large.

        Raises:
            PackError: a page is not as it should be.
        """
        path = self.paths[0]
        if len(self.paths) > 1 or not isinstance(path, ForeignURL):
            return None
        with self._open(path) as file:
            chunks = [self._chunk(file, group) for group in range(file.metadata.num_row_groups)]
        found = self._pointed(chunks) if pointed and not self._with_files else None
        if found is None and any(chunk is not None and chunk.codec for chunk in chunks):
            found = self._slots = PageSlots()
        return found

    def _pointed(self, chunks: Sequence[ColumnChunk | None]) -> PageSlots | None:
        """Notes places of pointers in all row groups; None: a page gives none. Raises PackError."""
        path = self.paths[0]
        assert isinstance(path, ForeignURL)

        def walked(group: int) -> tuple[Extents, PageSlots] | None:
            chunk, own, read = chunks[group], PageSlots(), Walk(path, skips=True).part
            try:
                found = None if chunk is None else pointer_places(read, chunk, own)
            except ValueError as error:
                raise PackError(f"{path}: row group {group} cannot be read: {error}") from error
            return None if found is None else (found, own)

        slots, places = PageSlots(pointed=True), dict[tuple[int, int], Extents | None]()
        with ThreadPoolExecutor(_AT_ONCE, "fastload-pages") as pool:
            for group, found in enumerate(ahead(pool, walked, range(len(chunks)), 2 * _AT_ONCE)):
                if found is None:
                    return None
                (offsets, sizes), own = found
                places[0, group] = offsets + slots.take(own), sizes
        self._places, self._slots = places, slots
        return slots

    def _chunk(self, file: pq.ParquetFile, group: int) -> ColumnChunk | None:
        """The column of the images in a row group; None: they have no places."""
        image = self._columns.image
        return chunk_of(file.metadata, group, f"{image}.bytes") or chunk_of(file.metadata, group, image)

    def _value_places(self, number: int, group: int) -> Extents | None:
        """The place of each image's bytes in a row group; None: they have none."""
        path, slots = self.paths[number], self._slots
        try:
            with self._open(path) as file:
                chunk = self._chunk(file, group)
            if chunk is None or (chunk.codec and slots is None):
                return None
            read = self._reading(number) if slots is None else partial(self._ranges.read, number)
            return value_places(read, chunk, slots)
        except ValueError as error:
            raise PackError(f"{path}: row group {group} cannot be read: {error}") from error

    def _reading(self, number: int) -> Read:
        """Reads small parts of a file from front to back."""
        path = self.paths[number]
        if not isinstance(path, ForeignURL):
            return partial(self._ranges.read, number)
        walk = self._walks.setdefault(number, Walk(path))

        def read(offset: int, size: int) -> bytes:
            with self._lock:
                return walk.part(offset, size)

        return read

    def read_fields(self, position: int) -> dict[str, Value]:
        """The fields besides the image."""
        number, group, row, _ = self._find(position)
        return self._columns.values(
            self.name(position), self._group(number, group, image=False), row, self.paths[number]
        )

    def read(self, position: int) -> Item:
        number, group, row, _ = self._find(position)
        name, path = self.name(position), self.paths[number]
        place = None if self.image_list else self.place(position)
        if place is not None:
            if place.path != path:
                image = read_regular(place.path)
            elif self._slots is not None:
                image = self._in_page(number, place, self._slots)
            else:
                image = self._ranges.read(number, place.offset, place.size)
            return Item(name, image, self.read_fields(position))
        table = self._group(number, group)
        if row >= table.num_rows:
            raise PackError(f"{path}: row group {group} has {table.num_rows} rows, less than the file says")
        value = python_value(table.column(self._columns.image)[row], f"{name}: its {self._columns.image}")
        values = self._columns.values(name, table, row, path)
        if self.image_list:
            images = [self._bytes(name, number, each) for each in value or () if each is not None]
            return Item(name, b"", values, images=images)
        return Item(name, self._bytes(name, number, value), values)

    def _in_page(self, number: int, place: Place, slots: PageSlots) -> bytes:
        """The bytes at a place in a page, decompressed. Raises PackError."""
        page, kept = slots.at(place.offset), self._page
        if kept is None or kept[0] != page:
            try:
                kept = page, page.decompressed(self._ranges.read(number, page.offset, page.size))
            except ValueError as error:
                raise PackError(f"{self.paths[number]}: {error}") from error
            self._page = kept
        return kept[1][place.offset - page.start : place.offset - page.start + place.size]

    def _group(self, number: int, group: int, image: bool = True) -> pa.Table:
        """A row group as a table, with or without its images, decoded once while it is among the last that
        were read."""
        key, columns = (
            (number, group, image),
            [*([self._columns.image] if image else ()), *self._columns.names],
        )
        with self._lock:
            found = self._groups.get(key)
            if found is None:
                with self._open(self.paths[number]) as file:
                    try:
                        found = file.read_row_group(group, columns=columns)
                    except RemoteError:
                        raise
                    except Exception as error:
                        raise PackError(
                            f"{self.paths[number]}: row group {group} cannot be read: {brief(error)}"
                        ) from error
                self._groups[key] = found
                while len(self._groups) > _KEPT:
                    self._groups.popitem(last=False)
            self._groups.move_to_end(key)
        return found

    def _bytes(self, name: str, number: int, value: Any) -> bytes:
        path = None
        if isinstance(value, dict):
            value, path = value["bytes"], value["path"]
        return (
            read_regular(self._columns.beside(name, self.paths[number], path))
            if value is None
            else bytes(value)
        )


def _holds_all(group: pq.RowGroupMetaData, columns: set[str]) -> bool:
    """Returns True if the statistics of a row group say that no value of some columns is null."""
    found = [group.column(number) for number in range(group.num_columns)]
    facts = [each.statistics for each in found if each.path_in_schema in columns]
    return all(each is not None and each.has_null_count and each.null_count == 0 for each in facts)


FILES = Files(
    lambda path: path.lower().endswith(".parquet"),
    lambda patterns, columns: ParquetSource(expand_all(patterns, "Parquet file"), columns),
)
FOLDER = FILES.in_folder()
