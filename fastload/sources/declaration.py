"""Description of a dataset's fields and classes, and lines of JSON: `unpack` and `export` write them, and the
sources of those files read them. `fastload.store.kinds` has the form of each value.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterable
from dataclasses import replace
from typing import Any

from fastload.errors import PackError
from fastload.sources.protocol import IMAGE_FIELD
from fastload.store import Field, Manifest, Schema
from fastload.store.checked import JSON_BYTES, Bad, get_list, get_object, get_str
from fastload.store.form import Form, from_json, to_json

_UTF8_MOST = 4
"""Bytes of a character."""


def as_line(values: dict[str, Any], index: int, instead: str, *, allow_nan: bool = True) -> str:
    """The JSON of a sample's values on one line, without a line break.

    Args:
        values: values as `FieldKind.to_json` makes them.
        index: index of the sample, for a message.
        instead: another format that can hold such a sample, for a message.
        allow_nan: True if floats may be no numbers.

    Raises:
        PackError: it is longer than what is read again.
    """
    line = json.dumps(values, ensure_ascii=False, allow_nan=allow_nan)
    if len(line) > JSON_BYTES // _UTF8_MOST and (size := len(line.encode())) >= JSON_BYTES:
        limit = f"{size:,} bytes of JSON, and the limit is {JSON_BYTES:,}"
        raise PackError(f"sample {index}: its values are {limit}: {instead} holds them")
    return line


def finite(value: object) -> Any:
    """Value with None for floats that JSON does not have."""
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, dict):
        return {key: finite(each) for key, each in value.items()}
    return [finite(each) for each in value] if isinstance(value, list) else value


def declared(value: object) -> tuple[Schema, tuple[str, ...] | None, Form | None]:
    """The fields, the class names and the form of a `declaration`. The first field is an image, or any
    number of images; a source has it as `image_of` says.

    Raises:
        Bad: it is something else.
    """
    found = get_object(value, "the description of the fields")
    schema = Schema.from_json(found.get("fields"))
    if (schema.image or schema.images) != schema.fields[0]:
        raise Bad("its first field is no image")
    classes, form = found.get("classes"), found.get("form")
    names = (
        None
        if classes is None
        else tuple(get_str(name, "the name of a class") for name in get_list(classes, "the classes"))
    )
    return schema, names, None if form is None else from_json(form)


def declaration(image: Field, others: Iterable[Field], manifest: Manifest) -> dict[str, Any]:
    """Description of a dataset's fields, classes and form, for the source that reads it again."""
    form = {} if manifest.form is None else {"form": to_json(manifest.form)}
    classes = None if manifest.classes is None else list(manifest.classes)
    return {"fields": Schema((image, *others)).to_json(), "classes": classes, **form}


def list_of(schema: Schema) -> str:
    """The name of the field of any number of images; "": there is none."""
    return "" if schema.images is None else schema.images.name


def image_of(schema: Schema) -> Field:
    """The field of the image as a source has it: the packer calls it image, whatever it was called."""
    return Field(IMAGE_FIELD, "image") if schema.images else replace(schema.fields[0], name=IMAGE_FIELD)
