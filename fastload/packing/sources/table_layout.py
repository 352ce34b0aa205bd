"""The layout of a .csv or .tsv: its delimiter, whether its first line names the columns, and which column is what.

Tables of samples come from pandas, spreadsheets and competitions under a dozen conventions. A header line that is taken for a sample adds
a class that does not exist, and a sample that is taken for a header is lost, both without a word. So a first line is a header, or is
none, for a reason; where there is no reason either way, the user is asked.
"""

from __future__ import annotations

import csv
import io
import itertools
import os
import re
from dataclasses import dataclass

from fastload.common.files import read_regular
from fastload.errors import PackError
from fastload.packing.options import TableOptions
from fastload.packing.sources.protocol import IMAGE_EXTENSIONS, OTHER_PICTURES
from fastload.packing.sources.typed_cells import TYPED_KINDS

KINDS = ("int", "float", "text", "json", *TYPED_KINDS)
PATH_NAMES = frozenset(
    "path file filename filepath fname image img imagepath imgpath imagefile imgfile imagefilename imagename imgname imagefilepath "
    "relativepath relpath filenames paths images".split()
)
"""Header cells that name the column of paths, in lower case without spaces, dashes and underscores."""
LABEL_NAMES = frozenset(
    "label labels class classes classname classid classidx classindex category categoryid categoryname target targets labelname labelid "
    "labelidx y".split()
)
"""Header cells that name the column of labels, written likewise."""

_PICTURE = (*IMAGE_EXTENSIONS, *OTHER_PICTURES)
_INDEX_NAME = re.compile(r"(unnamed: ?\d+)?", re.IGNORECASE)
_DELIMITERS = {".tsv": "\t,;|", ".csv": ",;\t|"}
_LOOKED_AT = 20
"""Lines by which delimiters are compared."""


@dataclass(frozen=True, slots=True)
class Layout:
    """The columns of a table.

    Attributes:
        header: whether the first line is a header.
        names: the name of each column; "path" and "label" are those of the paths and labels, "" is a column left out.
        kinds: the kind that the header gives each column ("score:float"), None for those to be recognised.
    """

    header: bool
    names: tuple[str, ...]
    kinds: tuple[str | None, ...]


def read_rows(path: str) -> tuple[list[int], list[list[str]]]:
    """The numbers and the cells of a table's lines, each cell with its spaces, as RFC 4180 has it; blank lines are passed over.

    Raises:
        PackError: the file cannot be read, is not UTF-8, has a broken quotation, or is empty.
    """
    lines: list[int] = []
    rows: list[list[str]] = []
    try:
        text = read_regular(path).decode("utf-8-sig")
        reader = _reader(text, _delimiter(text, path))
        for row in reader:
            if row:
                lines.append(reader.line_num)
                rows.append(row)
    except OSError as error:
        raise PackError(f"{path}: cannot be read: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise PackError(f"{path}: not UTF-8 text ({error.reason} at byte {error.start}); convert it first") from error
    except csv.Error as error:
        raise PackError(f"{path}, line {lines[-1] + 1 if lines else 1}: {error}") from error
    if not rows:
        raise PackError(f"{path}: empty; it needs lines of path,label")
    return lines, rows


def find_layout(path: str, rows: list[list[str]], options: TableOptions) -> Layout:
    """The layout of a table.

    Raises:
        PackError: it cannot be told, or the options name a column that is not there. The message shows the first two lines and the
            options that decide.
    """
    table = _Table(path, rows, options)
    return table.with_header() if table.has_header() else table.without_header()


class _Table:
    """A table whose layout is being found."""

    def __init__(self, path: str, rows: list[list[str]], options: TableOptions) -> None:
        self.path = path
        self.folder = os.path.dirname(path)
        self.options = options
        self.first = rows[0]
        self.rows = rows

    def has_header(self) -> bool:
        """Whether the first line names the columns: what the user says, else by the names in it and the files that it names."""
        if self.options.header is not None:
            return self.options.header
        given = {_plain(str(each)) for each in (self.options.path_column, self.options.label_column) if each is not None}
        names = {_plain(_split_kind(cell)[0]) for cell in self.first}
        if any(_is_picture(cell) for cell in self.first):
            return False
        if names & (PATH_NAMES | given) or any(_split_kind(cell)[1] in TYPED_KINDS for cell in self.first):
            return True
        if any(self._is_file(cell) for cell in self.first):
            return False
        if names & LABEL_NAMES:
            return True
        raise self._unclear("its first line has no column name that is known here, and names no file")

    def with_header(self) -> Layout:
        """The layout of a table whose first line is a header."""
        names: list[str] = []
        kinds: list[str | None] = []
        for place, cell in enumerate(self.first):
            if place == 0 and _INDEX_NAME.fullmatch(cell.strip()) and len(self.first) > 1:
                names.append("")  # the index that pandas writes without a name
                kinds.append(None)
                continue
            name, kind = _split_kind(cell)
            if kind and kind not in KINDS:
                raise PackError(f"{self.path}, line 1: column {cell!r}: a kind is one of {', '.join(KINDS)}")
            names.append(name)
            kinds.append(kind or None)
        paths = self._path_column(names) if self.options.path_column is not None or "image" not in kinds else kinds.index("image")
        labels = self._label_column(names, paths)
        self._refuse_one(paths, labels)
        names[paths] = "path"
        if labels is not None and kinds[labels] not in TYPED_KINDS:
            names[labels] = "label"
        for place, name in enumerate(names):
            if (not name and place) or (name and name in names[:place]) or name == "image":
                cell = self.first[place]
                raise PackError(f"{self.path}, line 1: column {cell!r} is empty, twice there, or named image; give it another name")
        return Layout(True, tuple(names), tuple(kinds))

    def without_header(self) -> Layout:
        """The layout of a table that begins with a sample: path, label, column2, ... unless the options say otherwise."""
        count = len(self.first)
        files = [place for place, cell in enumerate(self.first) if self._may_be_path(cell)]
        paths = self._named(self.options.path_column, []) if self.options.path_column is not None else 0
        if self.options.path_column is None and files and 0 not in files:
            raise self._unclear(f"its first line has no file's name in its first column, but one in column {files[0]}, counted from 0")
        labels: int | None = 1 - paths if count == 2 else (1 if count > 1 and paths == 0 else None)
        if self.options.label_column is not None:
            labels = self._named(self.options.label_column, [])
        self._refuse_one(paths, labels)
        names = [f"column{place}" for place in range(count)]
        if labels is not None:
            names[labels] = "label"
        names[paths] = "path"
        return Layout(False, tuple(names), (None,) * count)

    def _path_column(self, names: list[str]) -> int:
        if self.options.path_column is not None:
            return self._named(self.options.path_column, names)
        exact = [place for place, name in enumerate(names) if name.lower() == "path"]
        found = exact or [place for place, name in enumerate(names) if _plain(name) in PATH_NAMES]
        if len(found) > 1 and len(self.rows) > 1:
            found = [place for place in found if place < len(self.rows[1]) and self._may_be_path(self.rows[1][place])]
        if not found and not names[0] and len(self.rows) > 1 and self._may_be_path(self.rows[1][0]):
            return 0  # paths as pandas' index
        if len(found) != 1:
            raise self._unclear("its header has no column for paths" if not found else "its header has several columns for paths")
        return found[0]

    def _label_column(self, names: list[str], paths: int) -> int | None:
        if self.options.label_column is not None:
            return self._named(self.options.label_column, names)
        exact = [place for place, name in enumerate(names) if name.lower() == "label"]
        found = exact or [place for place, name in enumerate(names) if place != paths and _plain(name) in LABEL_NAMES]
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
        what = f"its columns are {', '.join(repr(name) for name in names)}" if names else f"its columns are 0 to {len(self.first) - 1}"
        raise PackError(f"{self.path}: there is no column {column!r}: {what}")

    def _refuse_one(self, paths: int, labels: int | None) -> None:
        if paths == labels:
            raise PackError(f"{self.path}: column {paths}, counted from 0, cannot hold both the paths and the labels")

    def _may_be_path(self, cell: str) -> bool:
        return _is_picture(cell) or self._is_file(cell)

    def _is_file(self, cell: str) -> bool:
        try:
            return bool(cell.strip()) and os.path.isfile(os.path.join(self.folder, cell))
        except ValueError:  # a NUL in it
            return False

    def _unclear(self, reason: str) -> PackError:
        shown = "; ".join(f"line {number}: {_shown(row)}" for number, row in enumerate(self.rows[:2], 1))
        return PackError(
            f"{self.path}: {reason}: {shown}. Name the columns with --path-column and --label-column (path_column=, label_column= in "
            "Python; a header's names, or numbers from 0), and say --no-header (header=False) if line 1 is a sample"
        )


def _reader(text: str, delimiter: str) -> csv._reader:  # type: ignore[name-defined]
    return csv.reader(io.StringIO(text, newline=""), delimiter=delimiter, strict=True)


def _delimiter(text: str, path: str) -> str:
    """The delimiter that cuts the first lines into the same number of cells, with paths among them where that does not decide."""
    candidates = _DELIMITERS.get(os.path.splitext(path)[1].lower(), ",;\t|")

    def fitness(delimiter: str) -> tuple[bool, int]:
        try:
            rows = [row for row in itertools.islice(_reader(text, delimiter), _LOOKED_AT) if row]
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
    """The name and the kind in "name:kind", without the spaces around them, which a field's name cannot have."""
    name, colon, kind = cell.rpartition(":")
    return (name.strip(), kind.strip()) if colon else (cell.strip(), "")


def _shown(row: list[str]) -> str:
    text = repr(",".join(row))
    return text if len(text) <= 100 else text[:97] + "..."
