"""Cells of a table that hold more than a number or a text: paths of further images and masks, boxes, and rows of numbers, as JSON."""

from __future__ import annotations

import os

import numpy as np

from fastload.common.files import read_regular
from fastload.errors import PackError
from fastload.packing.sources.annotated import box_rows, numbers, whole_numbers
from fastload.packing.sources.label_maps import label_map_of, some_are_deep
from fastload.packing.sources.protocol import Value
from fastload.store import BOX_SIDES, Field
from fastload.store.checked import parse_json

BOX_KINDS = {"boxes": "xyxy", **{name: name for name in BOX_SIDES}}
"""Kinds of a column of boxes, and their formats."""
FILE_KINDS = ("image", "mask")
TYPED_KINDS = (*FILE_KINDS, *BOX_KINDS, "labels", "ints", "floats")
"""Kinds that a header may name besides those that are recognised by the cells."""


class TypedColumn:
    """A column of one of `TYPED_KINDS`. A cell is parsed when its sample is read, so that a wrong one is that sample's error.

    Attributes:
        field: what it is stored as.
    """

    def __init__(self, name: str, kind: str, cells: list[str], folder: str, boxes: str) -> None:
        """`folder`: that paths are relative to; `boxes`: the table's column of boxes, to which labels belong; "": there is none."""
        self._kind = kind
        self._cells = cells
        self._folder = folder
        if kind in FILE_KINDS:
            deep = some_are_deep([self.path(row) for row in range(len(cells))])
            dtype = "uint16" if deep else "uint8"
            self.field = Field(name, "mask", dtype) if kind == "mask" else Field(name, "image", dtype, (1,) if deep else (3,))
        elif kind in BOX_KINDS:
            self.field = Field(name, "boxes", format=BOX_KINDS[kind])
        else:
            self.field = Field(name, "array", "float32" if kind == "floats" else "int64", (None,), of=boxes if kind == "labels" else "")

    def path(self, position: int) -> str:
        """The file that a cell names."""
        return os.path.join(self._folder, self._cells[position])

    @property
    def is_file(self) -> bool:
        """Whether its cells name files."""
        return self._kind in FILE_KINDS

    def value(self, position: int, what: str) -> Value:
        """The value of a cell; `what` is what to call it in messages. Raises PackError, or MissingLibrary."""
        if self.is_file:
            if not self._cells[position].strip():
                raise PackError(f"{what}: no path")
            if self._kind == "mask":
                return label_map_of(self.path(position), what, self.field.dtype)
            try:
                return read_regular(self.path(position))
            except OSError as error:
                raise PackError(f"{what}: {self.path(position)} cannot be read: {error.strerror or error}") from error
        try:
            found = parse_json(self._cells[position].strip() or "[]")
        except ValueError as error:
            raise PackError(f"{what}: no JSON list: {error}") from None
        if self._kind == "floats":
            return numbers(found, None, what).astype(np.float32)
        if self._kind not in BOX_KINDS:
            return whole_numbers(found, "int64", what)
        if not isinstance(found, list):
            raise PackError(f"{what}: no list of boxes")
        return box_rows([found] if found and not isinstance(found[0], list) else found, self.field.format, what)  # [...]: one box alone
