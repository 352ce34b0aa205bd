"""Validation of values from untrusted JSON files: one function per type checks type and range before use."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from fastload._native import core
from fastload.errors import DatasetError

JSON_BYTES = 64 << 20
"""Limit on the JSON of one sample, in bytes: as Python objects it takes ten times its size."""
JSON_DEPTH = 200
"""Limit on the nesting of lists and objects. The recursive parser fails at about 1,000 levels, minus those
of its callers."""
_TOO_DEEP = f"lists and objects lie more than {JSON_DEPTH} deep in each other"
CHECKSUM_KEY = "crc32c"
_ENCODER = json.JSONEncoder(allow_nan=False)
_CANONICAL = json.JSONEncoder(sort_keys=True, separators=(",", ":"), allow_nan=False)


class Bad(ValueError):
    """An invalid stored value. The caller that knows the file turns it into a DatasetError."""


def get_object(value: object, what: str) -> dict[str, Any]:
    """Checks that a value is a JSON object, and returns it."""
    if not isinstance(value, dict):
        raise Bad(f"{what} is {shown(value)}, not an object")
    return value


def get_list(value: object, what: str) -> list[Any]:
    """Checks that a value is a JSON array, and returns it."""
    if not isinstance(value, list):
        raise Bad(f"{what} is {shown(value)}, not a list")
    return value


def get_str(value: object, what: str) -> str:
    """Checks that a value is a string, and returns it."""
    if not isinstance(value, str):
        raise Bad(f"{what} is {shown(value)}, not a text")
    return value


def get_int(value: object, what: str, low: int, high: int) -> int:
    """Checks that a value is an integer of low .. high, and returns it; true and false are no integers."""
    if not isinstance(value, int) or isinstance(value, bool):
        raise Bad(f"{what} is {shown(value)}, not a whole number")
    if not low <= value <= high:
        raise Bad(f"{what} is {shown(value)}, outside {low} .. {high}")
    return value


def shown(value: object) -> str:
    """Text of a value for an error message, cut to 60 characters."""
    text = repr(value) if not isinstance(value, dict | list) else type(value).__name__
    return text if len(text) <= 60 else text[:57] + "..."


def parse_json(text: str | bytes) -> Any:
    """Parses a JSON text from an untrusted file.

    Raises:
        ValueError: the text is not JSON, longer than `JSON_BYTES`, or nested deeper than `JSON_DEPTH`.
    """
    if len(text) > JSON_BYTES:
        raise ValueError(f"{len(text):,} bytes of JSON are more than the limit of {JSON_BYTES:,}")
    try:
        value = json.loads(text)
    except RecursionError:
        raise ValueError(_TOO_DEEP) from None
    if nested_too_deeply(value):
        raise ValueError(_TOO_DEEP)
    return value


def nested_too_deeply(value: object) -> bool:
    """Returns True if lists and objects are nested more than `JSON_DEPTH` deep."""
    level = [value]
    for _ in range(JSON_DEPTH + 1):
        holders = [each for each in level if isinstance(each, dict | list | tuple)]
        if not holders:
            return False
        level = [inner for each in holders for inner in (each.values() if isinstance(each, dict) else each)]
    return True


def seal(content: Mapping[str, Any]) -> bytes:
    """JSON text of `content` with its own CRC32C, so that a flipped byte is noticed.

    Raises:
        ValueError, TypeError: JSON cannot represent a value.
    """
    sealed = {**content, CHECKSUM_KEY: _checksum(content)}
    lines = (f" {_ENCODER.encode(key)}: {_lines(value)}" for key, value in sealed.items())
    return "{{\n{}\n}}\n".format(",\n".join(lines)).encode()


def _lines(value: object) -> str:
    """JSON text of a value; of a list of objects that begin with the same key, each on a line of its own.

    All are encoded by one call, since each makes an encoder, and json's own indentation is five times as
    slow. What is replaced has a quotation mark after a brace, which no text within quotation marks can have.
    """
    text = _ENCODER.encode(value)
    if isinstance(value, list) and value and isinstance(value[0], dict) and value[0]:
        start = "{" + _ENCODER.encode(next(iter(value[0]))) + ": "
        text = f"[\n  {text[1:-1].replace('}, ' + start, '},' + chr(10) + '  ' + start)}\n ]"
    return text


def parse(data: bytes, what: str) -> dict[str, Any]:
    """Parses the JSON object in `data`, without checking its checksum.

    Raises:
        DatasetError: `data` is not JSON, or not an object.
    """
    try:
        return get_object(json.loads(data), what)
    except (ValueError, RecursionError) as error:
        raise DatasetError(f"{what} cannot be read ({error}): copy it again or pack again") from None


def unseal(content: dict[str, Any], what: str) -> dict[str, Any]:
    """Checks the checksum of `content`, and returns the content without it.

    Raises:
        DatasetError: the checksum does not match.
    """
    rest = {key: value for key, value in content.items() if key != CHECKSUM_KEY}
    try:
        good = _checksum(rest) == content.get(CHECKSUM_KEY)
    except (ValueError, RecursionError):
        good = False
    if not good:
        raise DatasetError(f"{what} is damaged (its checksum does not match): copy it again or pack again")
    return rest


def _checksum(content: Mapping[str, Any]) -> int:
    return core.crc32c(_CANONICAL.encode(content).encode())
