"""A .csv or .tsv of ``path,label[,more columns]``, paths relative to the file's own folder."""

from __future__ import annotations

import os
from typing import Any, cast

from fastload.common.files import read_regular
from fastload.errors import PackError
from fastload.packing.notices import INDEX, NO_LABEL, SPACES, Notice, Notices
from fastload.packing.options import TableOptions
from fastload.packing.sources.cells import guess_kind, is_number, parse_cell
from fastload.packing.sources.protocol import Item, Place, Value, file_stamp
from fastload.packing.sources.table_layout import find_layout, read_rows
from fastload.packing.sources.typed_cells import BOX_KINDS, TYPED_KINDS, TypedColumn
from fastload.store import Field
from fastload.store.field import Kind


class TableSource:
    """One sample a line.

    The first line names the columns when it has a name for the paths among its cells (path, filename, image_path, ...; see
    `table_layout`), which may then stand anywhere; the column called label, class, target, ... becomes ``label``, and a
    column's kind may be given as ``score:float``, one of int, float, text, json, or of `TYPED_KINDS`: image and mask are paths; boxes
    (xyxy, or a format such as xywh), labels (of the boxes), ints and floats are JSON lists. The first column of kind image has the paths.
    Without such a line the columns are path, label, column2, column3, ... A column without a given kind is int when every cell is one,
    else float, else json when every cell is a JSON object or list, else text. Labels are numbers, or else the names of classes: sorted,
    numbered from 0, and kept.

    Spaces belong to a cell, as RFC 4180 has it: paths, class names and texts keep those that they begin or end with. Around numbers and
    JSON they mean nothing.

    Raises:
        PackError: a first line that may be a header or a sample, a line with too many or too few cells, a cell that is not of
            its column's kind, a label that is no number among labels that are; the message names file and line.
    """

    concurrent = True

    def __init__(self, path: str, options: TableOptions) -> None:
        self.title = path
        self._folder = os.path.dirname(path)
        lines, rows = read_rows(path)
        layout = find_layout(path, rows, options)
        if layout.header:
            lines, rows = lines[1:], rows[1:]
            if not rows:
                raise PackError(f"{path}: only a header line; add lines of path,label")
        for line, row in zip(lines, rows, strict=True):
            if len(row) != len(layout.names):
                raise PackError(f"{path}, line {line}: {len(row)} cells where the first line has {len(layout.names)}")
        columns = [list(column) for column in zip(*rows, strict=True)]
        self._paths: list[str] = columns[layout.names.index("path")]
        for line, cell in zip(lines, self._paths, strict=True):
            if not cell.strip():
                raise PackError(f"{path}, line {line}: no path")
        self.classes: tuple[str, ...] | None = None
        self._notices = Notices()
        fields = []
        self._values: dict[str, list[Any]] = {}
        self._lines = lines
        self._typed: dict[str, TypedColumn] = {}
        boxes = next((name for name, kind in zip(layout.names, layout.kinds, strict=True) if kind in BOX_KINDS), "")
        for name, kind, cells in zip(layout.names, layout.kinds, columns, strict=True):
            if name in ("path", ""):
                continue
            if kind in TYPED_KINDS:
                self._typed[name] = TypedColumn(name, kind, cells, self._folder, boxes)
                fields.append(self._typed[name].field)
                continue
            if name == "label" and kind is None:
                kind = self._label_kind(cells, lines)
                if kind == "class":
                    names = sorted(set(cells))
                    for text in names:
                        if text != text.strip():
                            self._notices.add(SPACES, repr(text))
                    self.classes = tuple(names)
                    number = {text: i for i, text in enumerate(names)}
                    self._values[name] = [number[text] for text in cells]
                    fields.append(Field(name, "int"))
                    continue
            kind = kind or guess_kind(cells)
            self._values[name] = [self._parse(cell, kind, name, line) for cell, line in zip(cells, lines, strict=True)]
            fields.append(Field(name, cast(Kind, kind)))
        self.fields = tuple(fields)
        if "" in layout.names:
            self._notices.add(INDEX, path)
        if "label" not in layout.names:
            for name in layout.names:
                if name not in ("path", "") and name not in self._typed:
                    self._notices.add(NO_LABEL, name)

    @property
    def notices(self) -> tuple[Notice, ...]:
        """Columns that were not taken for what they may be."""
        return self._notices.all()

    def _label_kind(self, cells: list[str], lines: list[int]) -> str:
        """int or float when labels are numbers, "class" when none is; a mixture names the line of the odd one out."""
        numbers = [is_number(cell) for cell in cells]
        count = sum(numbers)
        if count == 0:
            blank = next((line for line, cell in zip(lines, cells, strict=True) if not cell.strip()), None)
            if blank is not None:
                raise PackError(f"{self.title}, line {blank}: no label")
            return "class"
        if count < len(cells):
            most = count * 2 >= len(cells)
            at = numbers.index(not most)
            odd = "is no number, though the others are" if most else "is a number, though the others are names"
            raise PackError(
                f"{self.title}, line {lines[at]}: the label {cells[at]!r} {odd}; correct that line, or name the column "
                "label:text in a header line to keep labels as text"
            )
        # Zero-padded labels (007) are still numbers; elsewhere such a cell is text.
        return "int" if all(cell.strip().lstrip("+-").isdecimal() for cell in cells) else "float"

    def _parse(self, cell: str, kind: str, name: str, line: int) -> Value:
        try:
            return parse_cell(cell, kind)
        except ValueError as error:
            raise PackError(f"{self.title}, line {line}: column {name!r}: {cell!r} is not {kind}: {error}") from error

    def __len__(self) -> int:
        return len(self._paths)

    def name(self, position: int) -> str:
        return os.path.join(self._folder, self._paths[position])

    def key(self, position: int) -> str:
        return self._paths[position]

    def stamp(self, position: int) -> tuple[int, int]:
        files = [column.path(position) for column in self._typed.values() if column.is_file]
        stamps = [file_stamp(path) for path in (self.name(position), *files)]
        return sum(size for size, _ in stamps), max(time for _, time in stamps)

    def fields_of(self, position: int) -> dict[str, Value] | None:
        """The fields of a line; None where files have to be read."""
        return None if self._typed else self._fields(position)

    def _fields(self, position: int) -> dict[str, Value]:
        where = f"{self.title}, line {self._lines[position]}, column"
        typed = {name: column.value(position, f"{where} {name!r}") for name, column in self._typed.items()}
        return {name: values[position] for name, values in self._values.items()} | typed

    def place(self, position: int) -> Place:
        path = self.name(position)
        return Place(path, 0, file_stamp(path)[0])

    def read(self, position: int) -> Item:
        path = self.name(position)
        try:
            return Item(path, read_regular(path), self._fields(position))
        except FileNotFoundError:
            cell = self._paths[position]
            if cell == cell.strip() or not os.path.exists(os.path.join(self._folder, cell.strip())):
                raise
            raise PackError(
                f"line {self._lines[position]} of {self.title} has the path {cell!r}, and the file is called {cell.strip()!r}: take the "
                "spaces out of the table, where they belong to the cell"
            ) from None
