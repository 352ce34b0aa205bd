"""Description of a dataset's fields and classes, and their values as JSON: `unpack` and `export` write them, and the sources of those files
read them.
"""

from __future__ import annotations

import base64
import binascii
import json
import math
from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import numpy.typing as npt

from fastload.errors import PackError
from fastload.packing.sources.protocol import IMAGE_FIELD
from fastload.store import Field, Schema
from fastload.store.checked import JSON_BYTES, Bad, get_list, get_object, get_str

_UTF8_MOST = 4
"""Bytes of a character."""


def as_json(field: Field, value: Any) -> Any:
    """A value of `StoredSample.values` as JSON holds it, NaN and infinities as floats; bytes in base64.

    Floats of 32 and 16 bits are the shortest decimals that give the same float.
    """
    if field.kind == "json":
        return json.loads(value)
    if field.kind == "bytes":
        return base64.b64encode(value).decode("ascii")
    if field.kind == "polygons":
        return [[decimals(part.reshape(-1)) for part in parts] for parts in value]
    return decimals(value) if isinstance(value, np.ndarray | np.generic) else value


def as_line(values: dict[str, Any], index: int, instead: str, *, allow_nan: bool = True) -> str:
    """The JSON of a sample's values on one line, without a line break.

    Args:
        values: values as `as_json` makes them.
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


def decimals(values: npt.NDArray[Any] | np.generic) -> Any:
    """Numbers as lists of Python's, those of fewer than 64 bits as the shortest decimals that give the same float."""
    array = np.asarray(values)
    if array.dtype.kind == "f" and array.dtype.itemsize < 8 and array.size:
        short = array.astype("U32").astype(np.float64)
        with np.errstate(over="ignore"):
            array = np.where(short.astype(array.dtype) == array, short, array.astype(np.float64))
    return array.tolist()


def finite(value: Any) -> Any:
    """Value with None for floats that JSON does not have."""
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, dict):
        return {key: finite(each) for key, each in value.items()}
    return [finite(each) for each in value] if isinstance(value, list) else value


def from_json(field: Field, value: Any) -> Any:
    """The value of a field, of a kind that is no picture, as `Item.values` has it, from `as_json`.

    What a value must be beyond its form is checked when it is stored.

    Raises:
        ValueError: it is no such value.
    """
    if field.kind == "bytes":
        return _bytes(value)
    if field.kind == "array" or (field.is_varying and field.kind not in ("instances", "polygons")):
        return np.empty((0, *field.row_shape), field.dtype) if field.is_varying and value == [] else _array(field, value)
    if field.kind in ("instances", "polygons") and not isinstance(value, list):
        raise ValueError(f"{field.kind} are a list")
    if field.kind == "float" and isinstance(value, int) and not isinstance(value, bool):
        return float(value)
    return value


def _bytes(value: Any) -> bytes:
    if not isinstance(value, str):
        raise ValueError("bytes are a text in base64")
    try:
        return base64.b64decode(value, validate=True)
    except binascii.Error as error:
        raise ValueError(f"it is no base64: {error}") from None


def _array(field: Field, value: Any) -> npt.NDArray[Any]:
    """Nested lists of numbers as an array; ragged ones raise ValueError, and numbers beyond 64 bits OverflowError."""
    if not isinstance(value, list | int | float):
        raise ValueError("an array is a list of numbers, or of lists of them")
    found = np.array(value)
    if found.dtype.kind in "fO" and np.dtype(field.dtype).kind in "iu" and found.size:
        numbers = np.array(value, object)  # NumPy makes floats of whole numbers of which some need all 64 bits
        if all(type(each) is int for each in numbers.reshape(-1)):
            found = np.array(value, field.dtype)
    if found.dtype.kind not in "biuf":
        raise ValueError("there are other values than numbers in it")
    return found


LABEL = "label"
"""Name of the field of a sample's class."""


def declared(value: object) -> tuple[Schema, tuple[str, ...] | None]:
    """The fields and class names that `declaration` wrote. The first field is an image; `image_of` is what a source has it as.

    Raises:
        Bad: it is something else.
    """
    found = get_object(value, "the description of the fields")
    schema = Schema.from_json(found.get("fields"))
    if schema.image is None or schema.image != schema.fields[0]:
        raise Bad("its first field is no image")
    classes = found.get("classes")
    if classes is None:
        return schema, None
    return schema, tuple(get_str(name, "the name of a class") for name in get_list(classes, "the classes"))


def declaration(image: Field, others: Iterable[Field], classes: Sequence[str] | None) -> dict[str, Any]:
    """Description of a dataset's fields and classes, for the source that reads it again."""
    return {"fields": Schema((image, *others)).to_json(), "classes": None if classes is None else list(classes)}


def image_of(schema: Schema) -> Field:
    """The field of the image as a source has it: the packer calls it image, whatever it was called."""
    return replace(schema.fields[0], name=IMAGE_FIELD)


def is_label(field: Field) -> bool:
    """Returns True if a field is the label, which files of samples have apart from other numbers."""
    return field.name == LABEL and field.kind == "int"
