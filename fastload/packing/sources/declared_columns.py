"""DeclaredColumns: the columns of a file that `fastload export` wrote, whose metadata says which fields they are."""

from __future__ import annotations

import os
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

from fastload.common.files import read_regular
from fastload.errors import PackError
from fastload.packing.field_json import from_json
from fastload.packing.notices import Notice
from fastload.packing.options import BoxFormat
from fastload.packing.sources.arrow_columns import ArrowColumns, brief, python_value
from fastload.packing.sources.declaration import declared, image_of
from fastload.packing.sources.protocol import Value
from fastload.store import Field, Schema
from fastload.store.checked import Bad, get_object, parse_json


def columns_of(title: str, schema: Any, box_format: BoxFormat | None = None) -> ArrowColumns | DeclaredColumns:
    """What the columns of an Arrow schema are: by its metadata, or else by their names and types. Raises as `ArrowColumns` does."""
    meta = schema.metadata or {}
    try:
        fields, classes = declared(get_object(parse_json(meta[b"fastload.fields"]), "the metadata"))
    except (KeyError, Bad, ValueError):
        return ArrowColumns(title, schema, box_format)
    if sorted(schema.names) != sorted(field.name for field in fields):  # columns were added, renamed or left out since
        return ArrowColumns(title, schema, box_format)
    return DeclaredColumns(fields, classes)


class DeclaredColumns:
    """Columns that are fields by their names. It has the attributes and methods of `ArrowColumns`.

    Attributes:
        image: the column of the image.
        image_field: its field.
    """

    has_pictures = False
    box_format: BoxFormat | None = None
    notices: tuple[Notice, ...] = ()
    label_limits: Mapping[str, int] = MappingProxyType({})

    def __init__(self, schema: Schema, classes: tuple[str, ...] | None) -> None:
        self.image, self.image_field, self.fields = schema.fields[0].name, image_of(schema), schema.fields[1:]
        self.names = {field.name: field.name for field in self.fields}
        self.classes = classes

    def beside(self, name: str, file: str, path: str | None) -> str:
        """The path of an image that a row names and does not hold. Raises PackError if it names none."""
        if not path:
            raise PackError(f"{name}: its {self.image} is null")
        return os.path.join(os.path.dirname(file), path)

    def settle(self, columns: Any, file: str) -> None:
        """Nothing: the fields are known."""

    def values(self, name: str, columns: Any, row: int, file: str) -> dict[str, Value]:
        """The fields of a row, by name; arguments are those of `ArrowColumns.values`. Raises PackError for what is no such value."""
        return {field.name: self._checked(field, columns.column(field.name)[row], file) for field in self.fields}

    def _checked(self, field: Field, scalar: Any, file: str) -> Value:
        try:
            return self._value(field, python_value(scalar, f"its {field.name!r}"), file)
        except (TypeError, ValueError, OverflowError) as error:
            raise PackError(f"its {field.name!r} is no value of {field}: {brief(error)}") from error

    def _value(self, field: Field, value: Any, file: str) -> Value:
        if field.kind in ("image", "mask"):
            held = value or {}
            if held.get("bytes") is not None:
                return bytes(held["bytes"])
            path = self.beside(field.name, file, held.get("path"))
            try:
                return read_regular(path)
            except OSError as error:
                raise PackError(f"its {field.name!r}: {path} cannot be read: {error.strerror or error}") from error
        if value is None:
            raise PackError(f"its {field.name!r} is null")
        if field.kind == "json":
            value = parse_json(value)
        found: Value = value if field.kind == "bytes" else from_json(field, value)
        return found
