"""Parser of the protocol buffer tf.train.Example, and of no other. It reads no value until asked, so that an image can be skipped.

An Example holds a map of features by name; each is a list of bytes, of floats (32 bit) or of integers (64 bit). The wire format is that of
https://protobuf.dev/programming-guides/encoding. Sizes are checked before use, and nothing here recurses.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import NamedTuple

import numpy as np

Take = Callable[[int, int], bytes]
"""Bytes of the message: (offset, size); fewer at its end."""

BYTES, FLOATS, INTS = 1, 2, 3

VALUES_MOST = 1 << 20
"""Limit on the values of one feature."""
_FEATURES_MOST = 1000
_NAME_MOST = 1000
_VARINT, _FIXED32, _SIZED = 0, 5, 2


class Malformed(ValueError):
    """Bytes that are no Example; the message says which."""


class Feature(NamedTuple):
    """One feature, not read yet: its kind and the range of its list within the message."""

    kind: int
    begin: int
    end: int


def features(take: Take, size: int) -> dict[str, Feature]:
    """The features of the Example in the first `size` bytes, by name. A feature without a list is left out.

    Raises:
        Malformed: these bytes are no Example.
    """
    found: dict[str, Feature] = {}
    for number, begin, end in _sized(take, 0, size):
        _only(number, (1,), "an Example (a SequenceExample cannot be packed)")
        for entry_number, entry_begin, entry_end in _sized(take, begin, end):
            _only(entry_number, (1,), "Features")
            _add(found, take, entry_begin, entry_end)
    return found


def _add(found: dict[str, Feature], take: Take, begin: int, end: int) -> None:
    """Adds the feature of one entry of the map."""
    name, value = "", None
    for number, inner, inner_end in _sized(take, begin, end):
        _only(number, (1, 2), "an entry of the features")
        if number == 1:
            if inner_end - inner > _NAME_MOST:
                raise Malformed(f"a name of {inner_end - inner:,} bytes")
            name = take(inner, inner_end - inner).decode("utf-8")
        else:
            for kind, list_begin, list_end in _sized(take, inner, inner_end):
                _only(kind, (BYTES, FLOATS, INTS), "a feature")
                if value is not None:
                    raise Malformed("a feature of two lists")
                value = Feature(kind, list_begin, list_end)
    if name in found or len(found) == _FEATURES_MOST:
        raise Malformed(f"the feature {name!r} twice" if name in found else f"more than {_FEATURES_MOST} features")
    if value is not None:
        found[name] = value


def bytes_of(take: Take, feature: Feature) -> list[tuple[int, int]]:
    """(offset, size) of each value of a feature of kind BYTES."""
    found: list[tuple[int, int]] = []
    for number, begin, end in _sized(take, feature.begin, feature.end):
        _only(number, (1,), "a list of bytes")
        found.append((begin, end - begin))
        if len(found) > VALUES_MOST:
            raise Malformed(f"a feature of more than {VALUES_MOST:,} values")
    return found


def floats_of(take: Take, feature: Feature) -> list[float]:
    """The values of a feature of kind FLOATS."""
    found: list[float] = []
    for wire, begin, end in _numbers(take, feature):
        if wire not in (_FIXED32, _SIZED) or (end - begin) % 4:
            raise Malformed("a list of floats that are not of 4 bytes")
        _limit(len(found) + (end - begin) // 4)
        found += np.frombuffer(take(begin, end - begin), "<f4").tolist()
    return found


def ints_of(take: Take, feature: Feature) -> list[int]:
    """The values of a feature of kind INTS."""
    found: list[int] = []
    for wire, begin, end in _numbers(take, feature):
        if wire not in (_VARINT, _SIZED):
            raise Malformed("a list of integers that are no varints")
        while begin < end:
            value, begin = _varint(take, begin, end)
            found.append(value - (1 << 64) if value >> 63 else value)
            _limit(len(found))
    return found


def _numbers(take: Take, feature: Feature) -> Iterator[tuple[int, int, int]]:
    """(wire type, begin, end) of the parts of a list of numbers, which is packed, as in all files seen, or not."""
    begin = feature.begin
    while begin < feature.end:
        key, begin = _varint(take, begin, feature.end)
        _only(key >> 3, (1,), "a list of numbers")
        wire = key & 7
        if wire == _SIZED:
            size, begin = _varint(take, begin, feature.end)
            end = begin + size
        elif wire == _FIXED32:
            end = begin + 4
        else:
            end = _varint(take, begin, feature.end)[1]
        if end > feature.end:
            raise Malformed("a list that is longer than its feature")
        yield wire, begin, end
        begin = end


def _sized(take: Take, begin: int, end: int) -> Iterator[tuple[int, int, int]]:
    """(number, begin, end) of each field of a message whose fields all have a size."""
    while begin < end:
        key, begin = _varint(take, begin, end)
        if key & 7 != _SIZED:
            raise Malformed(f"field {key >> 3} is of wire type {key & 7}")
        size, begin = _varint(take, begin, end)
        if size > end - begin:
            raise Malformed(f"field {key >> 3} of {size:,} bytes, where {end - begin:,} are left")
        yield key >> 3, begin, begin + size
        begin += size


def _varint(take: Take, begin: int, end: int) -> tuple[int, int]:
    """A number below 2**64 and the offset after it."""
    value = 0
    for place, byte in enumerate(take(begin, min(10, end - begin))):
        value |= (byte & 0x7F) << 7 * place
        if byte < 0x80:
            if value >> 64:
                break
            return value, begin + place + 1
    raise Malformed("a number that does not end, or of more than 64 bits")


def _only(number: int, known: tuple[int, ...], what: str) -> None:
    if number not in known:
        raise Malformed(f"field {number} in {what}")


def _limit(count: int) -> None:
    if count > VALUES_MOST:
        raise Malformed(f"a feature of more than {VALUES_MOST:,} values")
