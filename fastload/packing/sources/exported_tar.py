"""Tars that `fastload export` wrote: which member each field is in, and the samples with the fields that the tar says."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from functools import cached_property
from typing import Any

from fastload.errors import PackError
from fastload.packing.field_json import from_json
from fastload.packing.sources.declaration import declared, image_of, is_label
from fastload.packing.sources.protocol import Item, Place, Value
from fastload.packing.sources.tar_members import HEADER_BYTES, Part, Tars, TarSamples, member_value
from fastload.store import Field, Schema
from fastload.store.checked import Bad, get_object, parse_json

COMMENT_MOST = HEADER_BYTES // 2
"""Characters of a description that a tar has: it is left out where it is longer."""
_PICTURES = ("jpg", "png", "npy")


def member_names(fields: Iterable[Field]) -> dict[str, str]:
    """By the field's name, what stands before the last dot in the extension of its member; only fields with members of their own."""
    found: dict[str, str] = {}
    for field in fields:
        if field.kind in ("image", "mask") or field.is_varying:
            name = re.sub(r"[^a-z0-9_-]", "_", field.name.lower())
            while name in found.values():
                name += "_"
            found[field.name] = name
    return found


def declaration_of(tars: Tars) -> tuple[Schema, tuple[str, ...] | None] | None:
    """The fields and class names that tars say, if all say the same; None: they say none."""
    if len(tars.comments) != 1:
        return None
    try:
        return declared(get_object(parse_json(next(iter(tars.comments))), "the comment").get("fastload"))
    except (Bad, ValueError):
        return None  # somebody else's comment


class ExportedTar(TarSamples):
    """The samples of tars with the fields that they say, each equal to that of the dataset; floats that were not finite are NaN.

    A sample that lacks a member, or has another one, is an error of its own; the packer's message begins with its name.
    """

    def __init__(self, tars: Tars, schema: Schema, classes: tuple[str, ...] | None) -> None:
        super().__init__(tars)
        self.classes = classes
        self.image_field = image_of(schema)
        self.fields = schema.fields[1:]
        self._names = member_names(self.fields)
        self._plain = [field for field in self.fields if field.name not in self._names and not is_label(field)]

    def _found(self, position: int, name: str, endings: tuple[str, ...]) -> Part:
        """The member whose extension is `name` and one of the endings; raises PackError if there is none."""
        wanted = [f"{name}.{ending}" if name else ending for ending in endings]
        for part in self.samples[position][2]:
            if part[0] in wanted:
                return part
        raise PackError(f"it has no member .{' or .'.join(wanted)}; it has {', '.join(self._extensions(position))}")

    def place(self, position: int) -> Place:
        _, offset, size = self._found(position, "", _PICTURES)
        return Place(self.paths[self.samples[position][0]], offset, size)

    def _data(self, position: int, name: str, endings: tuple[str, ...]) -> tuple[str, bytes]:
        """(extension, bytes) of a member."""
        extension, offset, size = self._found(position, name, endings)
        return extension, self._part(position, self.samples[position][0], extension, offset, size)

    def read(self, position: int) -> Item:
        _, image = self._data(position, "", _PICTURES)
        plain = self._value(position, "", ("json",)) if self._plain else {}
        if not isinstance(plain, Mapping):
            raise PackError(f"its .json is no object of {', '.join(self._of_json)}")
        return Item(self.name(position), image, {field.name: self._field(position, field, plain) for field in self.fields})

    @cached_property
    def _of_json(self) -> list[str]:
        return [field.name for field in self._plain]

    def _value(self, position: int, name: str, endings: tuple[str, ...]) -> Value:
        return member_value(self.name(position), *self._data(position, name, endings))

    def _field(self, position: int, field: Field, plain: Mapping[str, Any]) -> Value:
        if field.kind in ("image", "mask"):
            return self._data(position, self._names[field.name], _PICTURES)[1]
        if field.kind in ("instances", "polygons"):
            return self._parsed(position, field, self._value(position, self._names[field.name], ("json",)))
        if field.is_varying:
            return self._value(position, self._names[field.name], ("npy",))
        if is_label(field):
            return self._value(position, "", ("cls",))
        if field.name not in plain:
            raise PackError(f"its .json has no value of {field.name!r}")
        value = plain[field.name]
        return self._parsed(position, field, _with_nan(value) if field.kind == "float" or field.dtype.startswith("float") else value)

    def _parsed(self, position: int, field: Field, value: Any) -> Value:
        try:
            found: Value = from_json(field, value)
        except (ValueError, OverflowError) as error:
            raise PackError(f"its {field.name!r} is no value of {field}: {error}") from None
        return found


def _with_nan(value: Any) -> Any:
    """Nested lists of numbers with NaN for null."""
    if isinstance(value, list):
        return [_with_nan(each) for each in value]
    return float("nan") if value is None else value
