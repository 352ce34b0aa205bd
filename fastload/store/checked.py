"""Values out of JSON files that nobody vouches for: type and range before use, one function per kind."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from fastload._native import core
from fastload.errors import DatasetError

JSON_BYTES = 64 << 20
"""Limit on the JSON of one sample: as Python's objects it takes ten times its size."""
JSON_DEPTH = 200
"""Limit on how deep lists and objects lie in each other; the parser, which recurses, ends with an error at about 1,000 less its callers."""
_TOO_DEEP = f"lists and objects lie more than {JSON_DEPTH} deep in each other"
CHECKSUM_KEY = "crc32c"


class Bad(ValueError):
    """A stored value that does not hold; whoever knows the file turns it into a DatasetError."""


def get_object(value: object, what: str) -> dict[str, Any]:
    """Value as a JSON object."""
    if not isinstance(value, dict):
        raise Bad(f"{what} is {shown(value)}, not an object")
    return value


def get_list(value: object, what: str) -> list[Any]:
    """Value as a JSON array."""
    if not isinstance(value, list):
        raise Bad(f"{what} is {shown(value)}, not a list")
    return value


def get_str(value: object, what: str) -> str:
    """Value as a string."""
    if not isinstance(value, str):
        raise Bad(f"{what} is {shown(value)}, not a text")
    return value


def get_int(value: object, what: str, low: int, high: int) -> int:
    """Value as an integer of low .. high; true and false are none."""
    if not isinstance(value, int) or isinstance(value, bool):
        raise Bad(f"{what} is {shown(value)}, not a whole number")
    if not low <= value <= high:
        raise Bad(f"{what} is {shown(value)}, outside {low} .. {high}")
    return value


def shown(value: object) -> str:
    """Value for a message, cut to a length that fits one."""
    text = repr(value) if not isinstance(value, dict | list) else type(value).__name__
    return text if len(text) <= 60 else text[:57] + "..."


def parse_json(text: str | bytes) -> Any:
    """The value of a JSON text from a file that anybody may have written.

    Raises:
        ValueError: no JSON, longer than `JSON_BYTES`, or nested deeper than `JSON_DEPTH`.
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
    """Whether lists and objects lie in each other more than `JSON_DEPTH` deep."""
    level = [value]
    for _ in range(JSON_DEPTH + 1):
        holders = [each for each in level if isinstance(each, dict | list | tuple)]
        if not holders:
            return False
        level = [inner for each in holders for inner in (each.values() if isinstance(each, dict) else each)]
    return True


def seal(content: Mapping[str, Any]) -> bytes:
    """Content as JSON that carries its own CRC32C, so that a flipped byte is noticed.

    Raises:
        ValueError, TypeError: a value that JSON does not have.
    """
    sealed = {**content, CHECKSUM_KEY: _checksum(content)}
    return json.dumps(sealed, indent=1, allow_nan=False).encode() + b"\n"


def parse(data: bytes, what: str) -> dict[str, Any]:
    """The JSON object in data, its checksum not yet looked at.

    Raises:
        DatasetError: no JSON, or no object.
    """
    try:
        return get_object(json.loads(data), what)
    except (ValueError, RecursionError) as error:
        raise DatasetError(f"{what} cannot be read ({error}): copy it again or pack again") from None


def unseal(content: dict[str, Any], what: str) -> dict[str, Any]:
    """Content without its checksum, which it must match.

    Raises:
        DatasetError: it does not.
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
    return core.crc32c(json.dumps(content, sort_keys=True, separators=(",", ":"), allow_nan=False).encode())
