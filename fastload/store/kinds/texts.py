"""Kinds whose entry in a record is the value's own bytes: bytes, text and JSON."""

from __future__ import annotations

import base64
import binascii
import json
from typing import TYPE_CHECKING, Any

from fastload._native import core
from fastload.store.checked import JSON_DEPTH, nested_too_deeply, parse_json
from fastload.store.kinds.base import Data, FieldKind, SampleFacts, SampleParts, Value, refuse, wrong

if TYPE_CHECKING:
    from types import ModuleType

    import pyarrow as pa

    from fastload.store.field import Field


class BytesKind(FieldKind):
    """Bytes of any length."""

    name = "bytes"
    is_extended = False
    can_be_added = True
    can_be_file = True

    def fits_coco(self, field: Field) -> bool:
        return False

    def from_exported(self, field: Field, value: Value) -> Value:
        return value

    def encode(self, field: Field, number: int, value: object, parts: SampleParts) -> None:
        parts.entries.append((number, self.entry, self.encoded(field, value)))

    def encoded(self, field: Field, value: object) -> Data:
        """The bytes of a value. Raises PackError."""
        if not isinstance(value, bytes | bytearray | memoryview):
            raise refuse(field, value, "it is no bytes object")
        return value

    def parse(self, field: Field, kind: int, data: bytes, facts: SampleFacts) -> Value:
        return data

    def to_json(self, value: Any) -> Value:
        return base64.b64encode(value).decode("ascii")

    def from_json(self, field: Field, value: Value) -> Value:
        if not isinstance(value, str):
            raise ValueError("bytes are a text in base64")
        try:
            return base64.b64decode(value, validate=True)
        except binascii.Error as error:
            raise ValueError(f"it is no base64: {error}") from None


class TextKind(BytesKind):
    """Text, in UTF-8."""

    name = "text"
    entry = core.KIND_TEXT
    can_be_file = False
    is_text = True
    finds_samples = True

    def fits_coco(self, field: Field) -> bool:
        return True

    def encoded(self, field: Field, value: object) -> Data:
        if not isinstance(value, str):
            raise refuse(field, value, "it is no text")
        try:
            return value.encode()
        except UnicodeEncodeError as error:
            raise refuse(field, value, str(error)) from None

    def parse(self, field: Field, kind: int, data: bytes, facts: SampleFacts) -> Value:
        try:
            return self.decoded(data)
        except (ValueError, RecursionError) as error:
            raise wrong(f"field {field.name!r} is no {self.name}: {error}") from None

    def decoded(self, data: bytes) -> Value:
        """The value of stored bytes. Raises ValueError or RecursionError."""
        return data.decode("utf-8")

    def to_json(self, value: str) -> Value:
        return value

    def from_json(self, field: Field, value: Value) -> Value:
        return value

    def parse_cell(self, cell: str) -> Value:
        return cell

    def arrow_type(self, field: Field, arrow: ModuleType) -> pa.DataType:
        return arrow.large_string()

    def exported_type(self, field: Field, arrow: ModuleType) -> pa.DataType:
        return arrow.string()


class JsonKind(TextKind):
    """JSON values, as their text in UTF-8. The plain value is that text."""

    name = "json"
    entry = core.KIND_JSON
    finds_samples = False
    takes_null = True

    def encoded(self, field: Field, value: object) -> Data:
        try:
            text = json.dumps(value, ensure_ascii=False, separators=(",", ":"), allow_nan=False).encode()
        except (TypeError, ValueError, RecursionError) as error:
            raise refuse(field, value, str(error)) from None
        if nested_too_deeply(value):
            raise refuse(field, value, f"it is nested more than {JSON_DEPTH} deep")
        return text

    def decoded(self, data: bytes) -> Value:
        found: Value = json.loads(data.decode("utf-8"))
        return found

    def plain(self, field: Field, kind: int, data: bytes, facts: SampleFacts) -> str:
        self.parse(field, kind, data, facts)
        return data.decode("utf-8")

    def to_json(self, value: str) -> Value:
        found: Value = json.loads(value)
        return found

    def from_exported(self, field: Field, value: Any) -> Value:
        found: Value = parse_json(value)
        return found

    def parse_cell(self, cell: str) -> Value:
        found: Value = parse_json(cell.strip())
        return found

    def cell_bytes(self, cell: str) -> bytes:
        return cell.strip().encode()
