"""A .csv or .tsv of ``path,label[,more columns]``, paths relative to the file's own folder: its layout, its
cells and its samples.

The layout is the delimiter, whether the first line names the columns, and the field of each column. A cell
may hold a number, a text, or, as JSON, paths of further images and masks, boxes, and rows of numbers. Spaces
around a number or a JSON value mean nothing.

Tables of samples come from pandas, spreadsheets and competitions under a dozen conventions. A header line
that is taken for a sample adds a class that does not exist, and a sample that is taken for a header is lost,
both without a word. So a first line is a header, or is none, for a reason; where there is no reason either
way, the user is asked.
"""

from __future__ import annotations

import codecs
import copy
import csv
import itertools
import marshal
import math
import os
import re
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from io import TextIOWrapper
from typing import TYPE_CHECKING, TextIO, cast

import numpy as np
from typing_extensions import Self

from fastload.common.files import expanded, read_regular
from fastload.common.folders import IMAGE_EXTENSIONS
from fastload.common.spill import Texts
from fastload.common.urls import is_url
from fastload.errors import ArgumentError, PackError
from fastload.remote.foreign import ForeignURL
from fastload.sources.annotated import box_rows, label_map_of, numbers, some_are_deep, whole_numbers
from fastload.sources.notices import INDEX as PANDAS_INDEX
from fastload.sources.notices import NO_LABEL, SPACES, Notice, Notices
from fastload.sources.options import TableOptions
from fastload.sources.protocol import (
    FIRST_TRIES,
    INDEX,
    OTHER_PICTURES,
    UNLABELLED,
    Choice,
    Given,
    ImageFiles,
    Item,
    Listed,
    PartOfRows,
    Place,
    Source,
    Value,
    file_stamp,
    read_file,
)
from fastload.store import BOX_SIDES, Field
from fastload.store.checked import parse_json
from fastload.store.field import KindName
from fastload.store.kinds import KINDS

if TYPE_CHECKING:
    from _csv import Reader


def is_number(cell: str) -> bool:
    """Returns True if a cell is a finite number."""
    try:
        return math.isfinite(float(cell))
    except ValueError:
        return False


class KindGuess:
    """The narrowest kind that every cell of a column satisfies."""

    def __init__(self) -> None:
        self._left = [("int", _is_int), ("float", _is_float), ("json", _is_json)]

    def see(self, cell: str) -> None:
        """Drops the kinds that a cell is not of."""
        self._left = [(kind, test) for kind, test in self._left if test(cell)]

    @property
    def kind(self) -> str:
        return self._left[0][0] if self._left else "text"


def guess_kind(cells: Iterable[str]) -> str:
    """The narrowest kind that every cell satisfies."""
    guess = KindGuess()
    for cell in cells:
        guess.see(cell)
    return guess.kind


def _is_int(cell: str) -> bool:
    cell = cell.strip()
    # "007" and "1_000" are codes or text to a person: only what prints back the same is a number.
    digits = cell[1:] if cell[:1] in "+-" else cell
    return digits.isascii() and digits.isdigit() and (digits == "0" or digits[0] != "0") and len(digits) < 20


def _is_float(cell: str) -> bool:
    cell = cell.strip()
    if not is_number(cell) and cell.lower().lstrip("+-") not in ("nan", "inf"):
        return False
    digits = cell.lstrip("+-")
    return "_" not in cell and not (len(digits) > 1 and digits[0] == "0" and digits[1].isdigit())


def _is_json(cell: str) -> bool:
    cell = cell.strip()
    if cell[:1] not in ("{", "["):
        return False
    try:
        parse_json(cell)
    except ValueError:
        return False
    return True


BOX_KINDS = {"boxes": "xyxy", **{name: name for name in BOX_SIDES}}
"""Kinds of a column of boxes, and their formats."""
FILE_KINDS = ("image", "mask")
TYPED_KINDS = (*FILE_KINDS, *BOX_KINDS, "labels", "ints", "floats")
"""Kinds that a header may name besides those that are recognised by the cells."""


class TypedColumn:
    """A column of one of `TYPED_KINDS`. A cell is parsed when its sample is read, so that a wrong one is that
    sample's error.

    Attributes:
        field: the field as which it is stored.
    """

    def __init__(self, name: str, kind: str, cells: Sequence[str], folder: str, boxes: str) -> None:
        """`cells`: some of its cells, spread over the table; `folder`: that paths are relative to; `boxes`:
        the table's column of boxes, to which labels belong; "": there is none."""
        self._folder = folder
        if kind in FILE_KINDS:
            deep = some_are_deep([self.path(cell) for cell in cells])
            shape: tuple[int, ...] = ()
            if not KINDS[kind].holds_labels:
                shape = (1,) if deep else (3,)
            self.field = Field(name, cast(KindName, kind), "uint16" if deep else "uint8", shape)
        elif kind in BOX_KINDS:
            self.field = Field(name, "boxes", format=BOX_KINDS[kind])
        else:
            self.field = Field(
                name,
                "array",
                "float32" if kind == "floats" else "int64",
                (None,),
                of=boxes if kind == "labels" else "",
            )

    def path(self, cell: str) -> str:
        """The file that a cell names."""
        return os.path.join(self._folder, cell)

    @property
    def is_file(self) -> bool:
        """True if its cells name files."""
        return self.field.handler.is_picture

    def value(self, cell: str, what: str) -> Value:
        """The value of a cell; `what` is what to call it in messages. Raises PackError, or MissingLibrary."""
        if self.is_file:
            if not cell.strip():
                raise PackError(f"{what}: no path")
            if self.field.handler.holds_labels:
                return label_map_of(self.path(cell), what, self.field.dtype)
            try:
                return read_regular(self.path(cell))
            except OSError as error:
                raise PackError(
                    f"{what}: {self.path(cell)} cannot be read: {error.strerror or error}"
                ) from error
        try:
            found = parse_json(cell.strip() or "[]")
        except ValueError as error:
            raise PackError(f"{what}: no JSON list: {error}") from None
        if self.field.dtype == "float32" and self.field.handler.is_array:
            return numbers(found, None, what).astype(np.float32)
        if not self.field.handler.owns_objects:
            return whole_numbers(found, "int64", what)
        if not isinstance(found, list):
            raise PackError(f"{what}: no list of boxes")
        # [...]: one box alone.
        return box_rows(
            [found] if found and not isinstance(found[0], list) else found, self.field.format, what
        )


COLUMN_KINDS = ("int", "float", "text", "json", *TYPED_KINDS)
PATH_NAMES = frozenset(
    "path file filename filepath fname image img imagepath imgpath imagefile imgfile imagefilename "
    "imagename imgname imagefilepath "
    "relativepath relpath filenames paths images".split()
)
"""Header cells that name the column of paths, in lower case without spaces, dashes and underscores."""
_ID_NAMES = frozenset("id ids imageid imageids imgid fileid".split())
"""Header cells that name the column of paths where `images` or `suffix` says which files these are,
written likewise."""
LABEL_NAMES = frozenset(
    "label labels class classes classname classid classidx classindex category categoryid "
    "categoryname target targets labelname labelid "
    "labelidx y".split()
)
"""Header cells that name the column of labels, written likewise."""

_PICTURE = (*IMAGE_EXTENSIONS, *OTHER_PICTURES)
_INDEX_NAME = re.compile(r"(unnamed: ?\d+)?", re.IGNORECASE)
_LINE_MOST = 16 << 20
"""Characters of a line that no table has."""
_DELIMITERS = {".tsv": "\t,;|", ".csv": ",;\t|"}
_BLOCK = 1 << 20
_LOOKED_AT = 20
"""Lines by which delimiters are compared."""


@dataclass(frozen=True, slots=True)
class TableLayout:
    """The columns of a table.

    Attributes:
        header: True if the first line is a header.
        names: the name of each column; "path" and "label" are those of the paths and labels, "" is a column
            left out.
        kinds: the kind that the header gives each column ("score:float"), None for those to be recognised.
    """

    header: bool
    names: tuple[str, ...]
    kinds: tuple[str | None, ...]


def read_rows(path: str) -> Iterator[tuple[int, list[str]]]:
    """Yields the number and the cells of each line of a table, each cell with its spaces, as RFC 4180 has it;
    blank lines are passed over.

    Raises:
        PackError: the file cannot be read, is not UTF-8, has a broken quotation, or is empty.
    """
    last = 0
    try:
        with read_file(path) as binary, TextIOWrapper(binary, "utf-8-sig", newline="") as file:
            delimiter = _delimiter(file, path)
            file.seek(0)
            reader = _reader(file, delimiter)
            for row in reader:
                if row:
                    last = reader.line_num
                    yield last, row
    except OSError as error:
        raise PackError(f"{path}: cannot be read: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise PackError(
            f"{path}: not UTF-8 text ({error.reason}{_place_of_damage(path)}); convert it first"
        ) from error
    except csv.Error as error:
        raise PackError(f"{path}, line {last + 1}: {error}") from error
    if not last:
        raise PackError(f"{path}: empty; it needs lines of path,label")


def _place_of_damage(path: str) -> str:
    """The place of a file's first byte that is not UTF-8, for a message; the error of a text that is read in
    blocks has only that in its block."""
    decoder, begin = codecs.getincrementaldecoder("utf-8")(), 0
    with suppress(OSError), read_file(path) as file:
        while data := file.read(_BLOCK):
            held = len(decoder.getstate()[0])
            try:
                decoder.decode(data)
            except UnicodeDecodeError as error:
                return f" at byte {begin - held + error.start}"
            begin += len(data)
    return ""


def find_layout(path: str, rows: list[list[str]], options: TableOptions) -> TableLayout:
    """The layout of a table.

    Raises:
        PackError: it cannot be told, or the options name a column that is not there. The message shows the
            first two lines and the options that decide.
    """
    table = _Table(path, rows, options)
    return table.with_header() if table.has_header() else table.without_header()


class _Table:
    """A table whose layout is being found."""

    def __init__(self, path: str, rows: list[list[str]], options: TableOptions) -> None:
        self.path = path
        self.options = options
        self.path_names = PATH_NAMES if options.images is options.suffix is None else PATH_NAMES | _ID_NAMES
        self.first = rows[0]
        self.rows = rows

    def has_header(self) -> bool:
        """Returns True if the first line names the columns: the user says so, or else the names in it and
        the files that it names do."""
        if self.options.header is not None:
            return self.options.header
        given = {
            _plain(str(each))
            for each in (self.options.path_column, self.options.label_column)
            if each is not None
        }
        names = {_plain(_split_kind(cell)[0]) for cell in self.first}
        if any(_is_picture(cell) for cell in self.first):
            return False
        if names & (self.path_names | given) or any(
            _split_kind(cell)[1] in TYPED_KINDS for cell in self.first
        ):
            return True
        if any(self._is_file(cell) for cell in self.first):
            return False
        if names & LABEL_NAMES:
            return True
        raise self._unclear("its first line has no column name that is known here, and names no file")

    def with_header(self) -> TableLayout:
        """The layout of a table whose first line is a header."""
        names: list[str] = []
        kinds: list[str | None] = []
        for place, cell in enumerate(self.first):
            if place == 0 and _INDEX_NAME.fullmatch(cell.strip()) and len(self.first) > 1:
                names.append("")  # the index that pandas writes without a name
                kinds.append(None)
                continue
            name, kind = _split_kind(cell)
            if kind and kind not in COLUMN_KINDS:
                raise PackError(
                    f"{self.path}, line 1: column {cell!r}: a kind is one of {', '.join(COLUMN_KINDS)}"
                )
            names.append(name)
            kinds.append(kind or None)
        paths = (
            self._path_column(names)
            if self.options.path_column is not None or "image" not in kinds
            else kinds.index("image")
        )
        labels = self._label_column(names, paths)
        self._refuse_one(paths, labels)
        names[paths] = "path"
        if labels is not None and kinds[labels] not in TYPED_KINDS:
            names[labels] = "label"
        for place, name in enumerate(names):
            if (not name and place) or (name and name in names[:place]) or name == "image":
                cell = self.first[place]
                raise PackError(
                    f"{self.path}, line 1: column {cell!r} is empty, twice there, or named image; "
                    "give it another name"
                )
        return TableLayout(True, tuple(names), tuple(kinds))

    def without_header(self) -> TableLayout:
        """The layout of a table that begins with a sample: path, label, column2, ... unless the options
        say otherwise."""
        count = len(self.first)
        files = [place for place, cell in enumerate(self.first) if self._may_be_path(cell)]
        paths = self._named(self.options.path_column, []) if self.options.path_column is not None else 0
        if self.options.path_column is None and files and 0 not in files:
            raise self._unclear(
                "its first line has no file's name in its first column, but one in column "
                f"{files[0]}, counted from 0"
            )
        labels: int | None = None
        if count == 2:
            labels = 1 - paths
        elif count > 1 and paths == 0:
            labels = 1
        if self.options.label_column is not None:
            labels = self._named(self.options.label_column, [])
        self._refuse_one(paths, labels)
        names = [f"column{place}" for place in range(count)]
        if labels is not None:
            names[labels] = "label"
        names[paths] = "path"
        return TableLayout(False, tuple(names), (None,) * count)

    def _path_column(self, names: list[str]) -> int:
        if self.options.path_column is not None:
            return self._named(self.options.path_column, names)
        exact = [place for place, name in enumerate(names) if name.lower() == "path"]
        found = exact or [place for place, name in enumerate(names) if _plain(name) in self.path_names]
        if len(found) > 1 and len(self.rows) > 1:
            found = [
                place
                for place in found
                if place < len(self.rows[1]) and self._may_be_path(self.rows[1][place])
            ]
        if not found and not names[0] and len(self.rows) > 1 and self._may_be_path(self.rows[1][0]):
            return 0  # paths as pandas' index
        if len(found) != 1:
            raise self._unclear(
                "its header has no column for paths"
                if not found
                else "its header has several columns for paths"
            )
        return found[0]

    def _label_column(self, names: list[str], paths: int) -> int | None:
        if self.options.label_column is not None:
            return self._named(self.options.label_column, names)
        exact = [place for place, name in enumerate(names) if name.lower() == "label"]
        found = exact or [
            place for place, name in enumerate(names) if place != paths and _plain(name) in LABEL_NAMES
        ]
        if len(found) > 1:
            raise self._unclear("its header has several columns for labels")
        return found[0] if found else None

    def _named(self, column: str | int, names: list[str]) -> int:
        """The place of a column that an option names."""
        for wanted, form in ((str(column), str), (str(column).lower(), str.lower)):
            places = [place for place, name in enumerate(names) if form(name) == wanted]
            if len(places) == 1:
                return places[0]
        text = str(column)
        if text.isdecimal() and int(text) < len(self.first):
            return int(text)
        what = (
            f"its columns are {', '.join(repr(name) for name in names)}"
            if names
            else f"its columns are 0 to {len(self.first) - 1}"
        )
        raise PackError(f"{self.path}: there is no column {column!r}: {what}")

    def _refuse_one(self, paths: int, labels: int | None) -> None:
        if paths == labels:
            raise PackError(
                f"{self.path}: column {paths}, counted from 0, cannot hold both the paths and the labels"
            )

    def _may_be_path(self, cell: str) -> bool:
        return _is_picture(cell) or self._is_file(cell)

    def _is_file(self, cell: str) -> bool:
        try:
            return bool(cell.strip()) and os.path.isfile(_file_of(self.path, cell, self.options))
        except ValueError:  # a NUL in it
            return False

    def _unclear(self, reason: str) -> PackError:
        shown = "; ".join(f"line {number}: {_shown(row)}" for number, row in enumerate(self.rows[:2], 1))
        has_ids = any(_plain(_split_kind(cell)[0]) in _ID_NAMES for cell in self.first)
        ids = (
            "; of ids without folder or suffix, name these with --images DIR and --suffix .jpg "
            "(images=, suffix=)"
            if has_ids
            else ""
        )
        return PackError(
            f"{self.path}: {reason}: {shown}. Name the columns with --path-column and --label-column "
            "(path_column=, label_column= in "
            "Python; a header's names, or numbers from 0), and say --no-header (header=False) if "
            f"line 1 is a sample{ids}"
        )


def _file_of(table: str, cell: str, options: TableOptions) -> str:
    """The path of the image that a cell names."""
    name = cell + (options.suffix or "")
    if is_url(name):
        return name
    title = table.url if isinstance(table, ForeignURL) else table
    return os.path.join(os.path.dirname(title) if options.images is None else expanded(options.images), name)


def _reader(file: TextIO, delimiter: str) -> Reader:
    return csv.reader(_bounded_lines(file), delimiter=delimiter, strict=True)


def _bounded_lines(file: TextIO) -> Iterator[str]:
    """The lines of a file. A file without line ends is not read into memory whole: raises csv.Error."""
    while line := file.readline(_LINE_MOST):
        if len(line) == _LINE_MOST:
            raise csv.Error(f"a line of {_LINE_MOST:,} characters or more, which no table has")
        yield line


def _delimiter(file: TextIO, path: str) -> str:
    """The delimiter that cuts the first lines into the same number of cells, with paths among them where
    that does not decide."""
    candidates = _DELIMITERS.get(os.path.splitext(path)[1].lower(), ",;\t|")

    def fitness(delimiter: str) -> tuple[bool, int]:
        file.seek(0)
        try:
            rows = [row for row in itertools.islice(_reader(file, delimiter), _LOOKED_AT) if row]
        except csv.Error:
            return False, 0
        pictures = sum(any(map(_is_picture, row)) for row in rows)
        return len({len(row) for row in rows}) == 1 and len(rows[0]) > 1, pictures

    return max(candidates, key=fitness)  # the first of equals: the one that the file's name says


def _is_picture(cell: str) -> bool:
    """Returns True if a cell ends as the name of a picture does."""
    return cell.strip().lower().endswith(_PICTURE)


def _plain(name: str) -> str:
    return re.sub(r"[\s_\-.]", "", name.lower())


def _split_kind(cell: str) -> tuple[str, str]:
    """The name and the kind in "name:kind", without the spaces around them, which a field's name cannot
    have."""
    name, colon, kind = cell.rpartition(":")
    return (name.strip(), kind.strip()) if colon else (cell.strip(), "")


def _shown(row: list[str]) -> str:
    text = repr(",".join(row))
    return text if len(text) <= 100 else text[:97] + "..."


class _Column:
    """Properties of a column's cells, from a walk over them."""

    def __init__(self) -> None:
        self.guess = KindGuess()
        self.numbers = self.count = 0
        self.first: dict[
            bool, tuple[int, str]
        ] = {}  # (line, cell) of the first number, and of the first that is none
        self.blank: int | None = None  # line of the first blank cell
        self.decimal = True  # all are whole numbers
        self.names: set[str] = set()  # all cells, while none is a number

    def see(self, line: int, cell: str, *, label: bool) -> None:
        """Takes the cell of a line; `label`: it may be a class."""
        self.count += 1
        if not label:
            self.guess.see(cell)
            return
        number = is_number(cell)
        self.numbers += number
        self.first.setdefault(number, (line, cell))
        if self.blank is None and not cell.strip():
            self.blank = line
        self.decimal = self.decimal and cell.strip().lstrip("+-").isdecimal()
        if self.numbers:
            self.names.clear()
        else:
            self.names.add(cell)


class TableSource(ImageFiles, Listed):
    """One sample a line.

    The first line names the columns when it has a name for the paths among its cells (path, filename,
    image_path, ...; see `table_layout`), which may then stand anywhere; the column called label, class,
    target, ... becomes ``label``, and a column's kind may be given as ``score:float``, one of int, float,
    text, json, or of `TYPED_KINDS`: image and mask are paths; boxes (xyxy, or a format such as xywh), labels
    (of the boxes), ints and floats are JSON lists. The first column of kind image has the paths. Without such
    a line the columns are path, label, column2, column3, ... A column without a given kind is int when every
    cell is one, else float, else json when every cell is a JSON object or list, else text. Labels are
    numbers, or else the names of classes: sorted, numbered from 0, and kept.

    Spaces belong to a cell, as RFC 4180 has it: paths, class names and texts keep those that they begin or
    end with. Around numbers and JSON they mean nothing.

    Raises:
        PackError: a first line that may be a header or a sample, a line with too many or too few cells, a
            cell that is not of its column's kind, a label that is no number among labels that are; the
            message names file and line.
    """

    layout = "table"
    concurrent = True

    def __init__(self, path: str, options: TableOptions) -> None:
        self.title = path
        self._folder, self._options = os.path.dirname(path), options
        images = options.images
        if images is not None and not (is_url(images) or os.path.isdir(expanded(images))):
            raise PackError(f"images={os.fspath(images)!r} (--images): no such folder")
        rows = Texts()
        begin: list[list[str]] = []  # the first two lines
        for line, row in read_rows(path):
            begin += [row] if len(begin) < 2 else []
            rows.append(marshal.dumps((line, row)))
        rows.seal()
        layout = find_layout(path, begin, options)
        self._rows = rows
        self._header = int(layout.header)
        if not len(self):
            raise PackError(f"{path}: only a header line; add lines of path,label")
        self._path = layout.names.index("path")
        self.classes: tuple[str, ...] | None = None
        self._numbers: dict[str, int] = {}
        self._notices = Notices()
        self._values: list[
            tuple[int, str, str]
        ] = []  # (place in a line, name, kind or "class") of columns without a kind of `TYPED_KINDS`
        self._typed: list[tuple[int, str, TypedColumn]] = []
        self.fields = self._settle(layout, self._walk(layout))
        if not self.fields:
            self.fields, self.layout = (INDEX,), f"table of paths {UNLABELLED}"
        if "" in layout.names:
            self._notices.add(PANDAS_INDEX, path)
        if "label" not in layout.names:
            typed = {name for _, name, _ in self._typed}
            for name in layout.names:
                if name not in ("path", "") and name not in typed:
                    self._notices.add(NO_LABEL, name)

    @property
    def notices(self) -> tuple[Notice, ...]:
        """Columns that were not taken for what they may be."""
        return self._notices.all()

    def _walk(self, layout: TableLayout) -> list[_Column]:
        """The properties of all columns. Raises PackError for a line of another number of cells, or one
        without a path."""
        columns = [_Column() for _ in layout.names]
        wanted = [
            (place, columns[place], name == "label")
            for place, (name, kind) in enumerate(zip(layout.names, layout.kinds, strict=True))
            if name not in ("path", "") and kind is None
        ]
        blank = 0
        for line, row in self._lines():
            if len(row) != len(layout.names):
                raise PackError(
                    f"{self.title}, line {line}: {len(row)} cells where the first line has "
                    f"{len(layout.names)}"
                )
            if not blank and not row[self._path].strip():
                blank = line
            for place, column, label in wanted:
                column.see(line, row[place], label=label)
        if blank:
            raise PackError(f"{self.title}, line {blank}: no path")
        return columns

    def _settle(self, layout: TableLayout, columns: list[_Column]) -> tuple[Field, ...]:
        """Settles the kind of each column, and checks all cells; returns the fields."""
        fields = []
        boxes = next(
            (name for name, kind in zip(layout.names, layout.kinds, strict=True) if kind in BOX_KINDS), ""
        )
        for place, (name, kind, column) in enumerate(zip(layout.names, layout.kinds, columns, strict=True)):
            if name in ("path", ""):
                continue
            if kind in TYPED_KINDS:
                some = [
                    self._line(row)[1][place] for row in range(0, len(self), max(1, len(self) // FIRST_TRIES))
                ]
                typed = TypedColumn(name, kind, some, self._folder, boxes)
                self._typed.append((place, name, typed))
                fields.append(typed.field)
                continue
            kind = kind or (self._label_kind(column) if name == "label" else column.guess.kind)
            if kind == "class":
                self.classes = tuple(sorted(column.names))
                for text in self.classes:
                    if text != text.strip():
                        self._notices.add(SPACES, repr(text))
                self._numbers = {text: number for number, text in enumerate(self.classes)}
            else:
                for line, row in self._lines():
                    self._parse(row[place], kind, name, line)
            self._values.append((place, name, kind))
            fields.append(Field(name, "int" if kind == "class" else cast(KindName, kind)))
        return tuple(fields)

    def _label_kind(self, column: _Column) -> str:
        """int or float when labels are numbers, "class" when none is; a mixture names the line of the odd
        one out."""
        if column.numbers == 0:
            if column.blank is not None:
                raise PackError(f"{self.title}, line {column.blank}: no label")
            return "class"
        if column.numbers < column.count:
            most = column.numbers * 2 >= column.count
            line, cell = column.first[not most]
            odd = (
                "is no number, though the others are" if most else "is a number, though the others are names"
            )
            raise PackError(
                f"{self.title}, line {line}: the label {cell!r} {odd}; correct that line, or name the column "
                "label:text in a header line to keep labels as text"
            )
        # Zero-padded labels (007) are still numbers; elsewhere such a cell is text.
        return "int" if column.decimal else "float"

    def __len__(self) -> int:
        return len(self._rows) - self._header

    def rows(self, positions: Iterable[int]) -> list[bytes]:
        return super().rows(position + self._header for position in positions)

    def with_rows(self, positions: Sequence[int], rows: Sequence[bytes]) -> Self:
        part = copy.copy(self)
        part._rows = PartOfRows(len(self._rows), [position + self._header for position in positions], rows)
        return part

    def _line(self, position: int) -> tuple[int, list[str]]:
        """The number and the cells of a sample's line."""
        found: tuple[int, list[str]] = marshal.loads(self._rows[position + self._header])
        return found

    def _lines(self) -> Iterator[tuple[int, list[str]]]:
        return map(self._line, range(len(self)))

    def _parse(self, cell: str, kind: str, name: str, line: int) -> Value:
        try:
            value: Value = KINDS[kind].parse_cell(cell)
            return value
        except ValueError as error:
            raise PackError(
                f"{self.title}, line {line}: column {name!r}: {cell!r} is not {kind}: {error}"
            ) from error

    def name(self, position: int) -> str:
        return _file_of(self.title, self.key(position), self._options)

    def key(self, position: int) -> str:
        return self._line(position)[1][self._path]

    def stamp(self, position: int) -> tuple[int, int]:
        _, row = self._line(position)
        files = [column.path(row[place]) for place, _, column in self._typed if column.is_file]
        stamps = [file_stamp(path) for path in (self.name(position), *files)]
        return sum(size for size, _ in stamps), max(time for _, time in stamps)

    def fields_of(self, position: int) -> dict[str, Value] | None:
        """The fields of a line; None where files have to be read."""
        return None if self._typed else self._fields(position)

    def _fields(self, position: int) -> dict[str, Value]:
        if self.fields == (INDEX,) and not self._values:
            return {INDEX.name: position}
        line, row = self._line(position)
        values: dict[str, Value] = {
            name: self._numbers[row[place]] if kind == "class" else self._parse(row[place], kind, name, line)
            for place, name, kind in self._values
        }
        where = f"{self.title}, line {line}, column"
        return values | {
            name: column.value(row[place], f"{where} {name!r}") for place, name, column in self._typed
        }

    def place(self, position: int) -> Place:
        path = self.name(position)
        return Place(path, 0, file_stamp(path)[0])

    def read(self, position: int) -> Item:
        path = self.name(position)
        try:
            return Item(path, self.read_file(path), self._fields(position))
        except FileNotFoundError:
            line, row = self._line(position)
            cell = row[self._path]
            if cell == cell.strip() or not os.path.exists(_file_of(self.title, cell.strip(), self._options)):
                raise
            raise PackError(
                f"line {line} of {self.title} has the path {cell!r}, and the file is called "
                f"{cell.strip()!r}: take the "
                "spaces out of the table, where they belong to the cell"
            ) from None


def is_table(path: str) -> bool:
    """Returns True for the name of a table's file."""
    return path.lower().endswith((".csv", ".tsv"))


def _refuse_columns(given: Given) -> Source:
    raise ArgumentError(
        "path_column, label_column, header, images and suffix (--path-column, --images, ...) are for "
        "a .csv or .tsv"
    )


COLUMNS_OF_ANOTHER = Choice(lambda given: given.options.table is not None, _refuse_columns)
