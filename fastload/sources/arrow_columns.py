"""ArrowColumns: the columns of an Arrow schema, sorted into image, label and other fields, and their values;
for Parquet and Arrow files. DeclaredColumns: the columns of a file that `fastload export` wrote, whose
metadata declares their fields.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Mapping
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from fastload.common.files import read_regular
from fastload.common.optional import optional
from fastload.errors import ArgumentError, FastloadError, PackError
from fastload.sources.annotated import MASK_NAMES, is_deep, label_map_in
from fastload.sources.declaration import declared, image_of, list_of
from fastload.sources.names import IMAGE_KEYS, LABEL_KEYS
from fastload.sources.notices import Notice
from fastload.sources.object_column import (
    OTHER,
    box_member,
    class_names,
    json_value,
    label_names,
    object_classes,
    object_columns,
    object_notices,
)
from fastload.sources.options import NO_COLUMNS, BoxFormat, ColumnOptions
from fastload.sources.protocol import FIRST_TRIES, IMAGE_FIELD, Value
from fastload.store import Field, Schema
from fastload.store.checked import Bad, get_object, parse_json
from fastload.store.form import Form

if TYPE_CHECKING:
    import pyarrow as pa


class ArrowColumns:
    """The columns of a source, settled by its schema.

    The image is the column that is named image, img, jpg, ... (or the only one that can be an image): bytes
    of a file, or Hugging Face's struct of `bytes` and `path`. `label`, `labels`, `target` or `cls` of
    integers is the field ``label``; its class names come from Hugging Face's ClassLabel or from
    `fastload export`. A further struct of an image is a mask if it has the name of one (`MASK_NAMES`), else
    an image. Integers, floats, booleans, text and bytes keep their types, lists of numbers, of a fixed size
    or not, become arrays, other nested values JSON, and dates, times and decimals text. With a `box_format`,
    objects with boxes become the fields of an `ObjectColumn`.

    Attributes:
        image: the column of the image.
        image_field: its field.
        names: name of each other column as a field.
        box_format: format of the boxes in columns of objects; None: there are none, or they are JSON.
        image_name: the column of the image, as the user chose it.
        image_list: the name of the field, where that column has lists of images; else "".
        classes: names of the labels, of the sample or of its objects; None if there are none.
        notices: notices for the summary.

    Raises:
        PackError: no column can be the image, or several; two are of one name; a name is no text.
        ArgumentError: pyarrow is not installed.
    """

    image_field = Field(IMAGE_FIELD, "image")
    form: Form | None = None

    def __init__(self, title: str, schema: pa.Schema, options: ColumnOptions = NO_COLUMNS) -> None:
        box_format, self.image_name = options.box_format, options.image
        self._types = optional("pyarrow", "packing Parquet and Arrow files").types
        self._title = title
        self._schema = schema
        try:
            _decode_names(schema)
        except UnicodeDecodeError as error:
            raise PackError(f"{title}: the name of a column is no text: {brief(error)}") from error
        self.image = self._image_column()
        self.image_list = self.image if self._is_image_list(schema.field(self.image).type) else ""
        self.names = self._field_names()
        members = {
            column: found
            for column in self.names
            if (found := self._object_members(schema.field(column).type))
        }
        self.box_format = box_format if members else None
        self.notices = object_notices(members) if box_format is None else ()
        try:
            self._objects = {} if box_format is None else object_columns(members, self.names, box_format)
            self._plain = {
                column: self._field(column, name)
                for column, name in self.names.items()
                if column not in self._objects
            }
        except ArgumentError as error:  # a name that no field may have
            raise PackError(f"{title}: {error}") from error
        self.classes, self.label_limits = self._class_names()

    @property
    def fields(self) -> tuple[Field, ...]:
        """The fields of every sample, in the order of their columns."""
        found = (
            (self._plain[name],) if name in self._plain else self._objects[name].fields for name in self.names
        )
        return tuple(field for fields in found for field in fields)

    def beside(self, name: str, file: str, path: str | None) -> str:
        """The path of an image that a row names and does not hold: relative to the folder of the row's file.

        Raises:
            PackError: it names none; `name` is what to call the row.
        """
        if not path:
            raise PackError(f"{name}: its {self.image} is null")
        return os.path.join(os.path.dirname(file), path)

    def _image_column(self) -> str:
        can_be = [field.name for field in self._schema if self._is_image(field.type)]
        lists = [field.name for field in self._schema if self._is_image_list(field.type)]
        if not can_be or self.image_name in lists:
            can_be = lists
        if self.image_name is not None:
            if self.image_name not in can_be:
                raise PackError(
                    f"{self._title}: image={self.image_name!r} (--image) is none of the columns that can be "
                    f"images: {', '.join(can_be) or 'none'}"
                )
            return self.image_name
        named = [name for name in IMAGE_KEYS if name in can_be]
        if named:
            return named[0]
        structs = [name for name in can_be if self._is_struct(self._schema.field(name).type)] or lists
        for found in (structs, can_be):
            if len(found) == 1:
                return str(found[0])
        how_many = "several columns" if can_be else "no column"
        raise PackError(
            f"{self._title}: {how_many} of {', '.join(self._schema.names)} can be the image: name one "
            "'image', or give image= (--image)"
        )

    def _is_struct(self, kind: pa.DataType) -> bool:
        """Hugging Face's Image: bytes, or the path of a file."""
        return bool(self._types.is_struct(kind)) and {field.name for field in kind} == {"bytes", "path"}

    def _is_image(self, kind: pa.DataType) -> bool:
        types = self._types
        return bool(types.is_binary(kind) or types.is_large_binary(kind)) or self._is_struct(kind)

    def _is_image_list(self, kind: pa.DataType) -> bool:
        """Lists of any length of images."""
        is_list = self._types.is_list(kind) or self._types.is_large_list(kind)
        return bool(is_list and self._is_image(kind.value_type))

    def _field_names(self) -> dict[str, str]:
        """The fields' names by column: the label's is ``label``; ``image`` is the chosen one alone."""
        others = [name for name in self._schema.names if name != self.image]
        integers = self._types.is_integer
        label = next(
            (name for name in LABEL_KEYS if name in others and integers(self._schema.field(name).type)), None
        )
        own = {label: "label", IMAGE_FIELD: f"{IMAGE_FIELD}_"}
        names = {name: own.get(name, name) for name in others}
        if len(set(self._schema.names)) < len(self._schema.names) or len(set(names.values())) < len(names):
            raise PackError(f"{self._title}: two columns of one name among {', '.join(self._schema.names)}")
        return names

    def _field(self, column: str, name: str) -> Field:
        types, kind = self._types, self._schema.field(column).type
        if self._is_struct(kind):
            return Field(name, "mask" if name in MASK_NAMES else "image")
        if types.is_integer(kind) or types.is_boolean(kind):
            return Field(name, "int")
        if types.is_floating(kind):
            return Field(name, "float")
        if types.is_binary(kind) or types.is_large_binary(kind):
            return Field(name, "bytes")
        if (rows := self._rows(kind)) is not None:
            return Field(name, "array", rows[0], rows[1])
        if types.is_fixed_size_list(kind) and (
            types.is_integer(kind.value_type) or types.is_floating(kind.value_type)
        ):
            return Field(
                name, "array", shape=(kind.list_size,), dtype=str(np.dtype(kind.value_type.to_pandas_dtype()))
            )
        return Field(name, "json" if types.is_nested(kind) else "text")

    def _rows(self, kind: pa.DataType) -> tuple[str, tuple[int | None, ...]] | None:
        """(dtype, shape) of lists of any length of numbers, or of lists of one length of them; None for
        other types."""
        types = self._types
        inner: tuple[int | None, ...] = ()
        if not types.is_list(kind) and not types.is_large_list(kind):
            return None
        kind = kind.value_type
        if types.is_fixed_size_list(kind) and kind.list_size > 0:
            inner, kind = (kind.list_size,), kind.value_type
        if not (types.is_integer(kind) or types.is_floating(kind)):
            return None
        return np.dtype(kind.to_pandas_dtype()).name, (None, *inner)

    def _object_members(self, kind: pa.DataType) -> dict[str, str]:
        """The members of a type of objects with boxes, as `ObjectColumn` takes them; {}: it is another
        type."""
        if self._types.is_struct(kind) and all(self._is_list(each.type) for each in kind):
            members = {each.name: each.type.value_type for each in kind}
        elif self._is_list(kind) and self._types.is_struct(kind.value_type):
            members = {each.name: each.type for each in kind.value_type}
        else:
            return {}
        boxes = box_member(members)
        if boxes is None or not self._is_list(members[boxes]):
            return {}
        return {name: self._number_type(each) for name, each in members.items()}

    def _is_list(self, kind: pa.DataType) -> bool:
        types = self._types
        return bool(types.is_list(kind) or types.is_large_list(kind) or types.is_fixed_size_list(kind))

    def _number_type(self, kind: pa.DataType) -> str:
        """The dtype of a type of numbers; `OTHER` of any other."""
        types = self._types
        is_number = types.is_integer(kind) or types.is_floating(kind) or types.is_boolean(kind)
        return np.dtype(kind.to_pandas_dtype()).name if is_number else OTHER

    def settle(self, columns: pa.Table | pa.RecordBatch, file: str) -> None:
        """Settles from some rows, of a file, whether further images and masks have 16 bits. To be called
        once, before anything is read."""
        for column, field in self._pictures.items():
            values = (columns.column(column)[row] for row in range(min(FIRST_TRIES, columns.num_rows)))
            if any(self._is_deep(value, file) for value in values):
                self._plain[column] = Field(
                    field.name, field.kind, "uint16", (1,) if field.handler.is_image else ()
                )

    @property
    def _pictures(self) -> dict[str, Field]:
        return {column: field for column, field in self._plain.items() if field.handler.is_picture}

    @property
    def has_pictures(self) -> bool:
        """True if there are images or masks besides the image."""
        return bool(self._pictures)

    def _is_deep(self, scalar: pa.Scalar, file: str) -> bool:
        try:
            return is_deep(self._picture("", scalar, "", file))
        except (FastloadError, OSError):
            return False  # it is the sample's own error

    def _picture(self, name: str, scalar: pa.Scalar, column: str, file: str) -> bytes:
        """The bytes of a further image: those in the row, or of the file that it names."""
        value = python_value(scalar, f"{name}: its {column}") or {}
        if value.get("bytes") is not None:
            return bytes(value["bytes"])
        if not value.get("path"):
            raise PackError(f"{name}: its {column} is null")
        return read_regular(os.path.join(os.path.dirname(file), value["path"]))

    def _class_names(self) -> tuple[tuple[str, ...] | None, dict[str, int]]:
        """Names of the label's classes, or else of the objects', from Hugging Face's description of the
        columns or from `fastload export`; and the number of classes by the field of the objects' labels, if
        the names are theirs."""
        meta = self._schema.metadata or {}
        try:
            own = json.loads(meta.get(b"fastload.classes", b"null"))
            features = json.loads(meta.get(b"huggingface", b"{}")).get("info", {}).get("features", {})
            column = next((column for column, name in self.names.items() if name == "label"), None)
            if names := class_names(own) or label_names(features.get(column)):
                return names, {}
            return object_classes(self._objects, features)
        except (ValueError, AttributeError, RecursionError):
            return None, {}

    def values(self, name: str, columns: pa.Table | pa.RecordBatch, row: int, file: str) -> dict[str, Value]:
        """The fields of a row, by name.

        Args:
            name: name of the sample.
            columns: a table or record batch, with all columns.
            row: number of the row in it.
            file: the file of the table, to which paths of images are relative.

        Raises:
            PackError: a value is null that may not be.
        """
        found: dict[str, Value] = {}
        for column, field in self.names.items():
            scalar = columns.column(column)[row]
            if column in self._objects:
                found |= self._objects[column].values(name, python_value(scalar, f"{name}: its {column}"))
            else:
                found[field] = self._value(name, scalar, column, file)
        return found

    def _value(self, name: str, scalar: pa.Scalar, column: str, file: str) -> Value:
        field = self._plain[column]
        kind = field.handler
        if kind.is_picture:
            data = self._picture(name, scalar, column, file)
            return label_map_in(data, f"{name}: its {column}", field.dtype) if kind.holds_labels else data
        value = python_value(scalar, f"{name}: its {column}")
        if field.is_varying:
            return _as_array(name, column, field, value or []).reshape(-1, *field.row_shape)
        if kind.takes_null:
            return json_value(value)
        if value is None:
            raise PackError(f"{name}: its {column} is null")
        found: Value = (
            _as_array(name, column, field, value) if kind.is_array else kind.from_python(field, value)
        )
        return found


def _decode_names(fields: Iterable[pa.Field]) -> None:
    """Decodes the names of fields, and of those inside them, which are bytes in a file. Raises
    UnicodeDecodeError."""
    for field in fields:
        _ = field.name
        _decode_names([field.type.field(number) for number in range(field.type.num_fields)])


def _as_array(name: str, column: str, field: Field, value: object) -> npt.NDArray[Any]:
    """A list of numbers as an array of a field's dtype. Raises PackError for nulls in it, and for lists of
    several lengths."""
    try:
        return np.array(value, np.dtype(field.dtype))
    except (TypeError, ValueError, OverflowError) as error:
        raise PackError(f"{name}: its {column} is no list of numbers: {error}") from error


def python_value(scalar: pa.Scalar, what: str) -> Any:
    """A value of a column as Python has it. Raises PackError, which begins with `what`, where pyarrow makes
    none of it.

    Such values are texts that are not UTF-8, dates after the year 9999, and structs with two members of one
    name.
    """
    try:
        return scalar.as_py()
    except Exception as error:  # pyarrow raises whatever it meets
        raise PackError(f"{what} cannot be read: {brief(error)}") from error


def brief(error: Exception) -> str:
    """pyarrow's message, cut to one line."""
    return " ".join(str(error).split())[:200] or type(error).__name__


def columns_of(
    title: str, schema: pa.Schema, options: ColumnOptions = NO_COLUMNS
) -> ArrowColumns | DeclaredColumns:
    """Fields of the columns of an Arrow schema: by its metadata, or else by their names and types. Raises
    as `ArrowColumns` does."""
    meta = schema.metadata or {}
    try:
        fields, classes, form = declared(get_object(parse_json(meta[b"fastload.fields"]), "the metadata"))
    except (KeyError, Bad, ValueError):
        return ArrowColumns(title, schema, options)
    # Columns were added, renamed or left out since.
    if sorted(schema.names) != sorted(field.name for field in fields):
        return ArrowColumns(title, schema, options)
    return DeclaredColumns(fields, classes, form)


def file_columns(schema: pa.Schema) -> tuple[str, ...]:
    """The columns whose pictures may lie in files of their own: Hugging Face's Image, bytes or the path of
    a file, and lists of such."""
    types = optional("pyarrow", "packing Parquet and Arrow files").types

    def has_files(column: pa.DataType) -> bool:
        if types.is_list(column) or types.is_large_list(column):
            column = column.value_type
        return bool(types.is_struct(column)) and {"bytes", "path"} <= {inner.name for inner in column}

    return tuple(field.name for field in schema if has_files(field.type))


class DeclaredColumns:
    """Columns that are fields by their names. It has the attributes and methods of `ArrowColumns`.

    Attributes:
        image: the column of the image.
        image_field: its field.
    """

    has_pictures = False
    box_format: BoxFormat | None = None
    image_name: str | None = None
    notices: tuple[Notice, ...] = ()
    label_limits: Mapping[str, int] = MappingProxyType({})

    def __init__(self, schema: Schema, classes: tuple[str, ...] | None, form: Form | None) -> None:
        self.image, self.image_field, self.fields = schema.fields[0].name, image_of(schema), schema.fields[1:]
        self.names = {field.name: field.name for field in self.fields}
        self.classes, self.form, self.image_list = classes, form, list_of(schema)

    def beside(self, name: str, file: str, path: str | None) -> str:
        """The path of an image that a row names and does not hold. Raises PackError if it names none."""
        if not path:
            raise PackError(f"{name}: its {self.image} is null")
        return os.path.join(os.path.dirname(file), path)

    def settle(self, columns: pa.Table | pa.RecordBatch, file: str) -> None:
        """Does nothing: the fields are known."""

    def values(self, name: str, columns: pa.Table | pa.RecordBatch, row: int, file: str) -> dict[str, Value]:
        """The fields of a row, by name; arguments are those of `ArrowColumns.values`. Raises PackError for
        what is no such value."""
        return {
            field.name: self._checked(field, columns.column(field.name)[row], file) for field in self.fields
        }

    def _checked(self, field: Field, scalar: pa.Scalar, file: str) -> Value:
        try:
            return self._value(field, python_value(scalar, f"its {field.name!r}"), file)
        except (TypeError, ValueError, OverflowError) as error:
            raise PackError(f"its {field.name!r} is no value of {field}: {brief(error)}") from error

    def _value(self, field: Field, value: Any, file: str) -> Value:
        if field.handler.is_picture:
            held = value or {}
            if held.get("bytes") is not None:
                return bytes(held["bytes"])
            path = self.beside(field.name, file, held.get("path"))
            try:
                return read_regular(path)
            except OSError as error:
                raise PackError(
                    f"its {field.name!r}: {path} cannot be read: {error.strerror or error}"
                ) from error
        if value is None:
            raise PackError(f"its {field.name!r} is null")
        found: Value = field.handler.from_exported(field, value)
        return found
