"""Parser of the protocol buffer tf.train.Example, and of no other. It reads no value until asked, so that an image can be passed over.

An Example holds a map of features by name; each is a list of bytes, of floats (32 bit) or of integers (64 bit). The wire format is that of
https://protobuf.dev/programming-guides/encoding. Sizes are checked before use, and nothing here recurses.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

BYTES, FLOATS, INTS = 1, 2, 3

VALUES_MOST = 1 << 20
"""Limit on the values of one feature."""
_FEATURES_MOST = 1000
_NAME_MOST = 1000
_FIRST, _SECOND = 1 << 3 | 2, 2 << 3 | 2
"""Tags of a message's first and second field, where that has a size."""
_LISTS = {BYTES << 3 | 2: BYTES, FLOATS << 3 | 2: FLOATS, INTS << 3 | 2: INTS}
_FIRST_VARINT, _FIRST_FIXED32 = 1 << 3, 1 << 3 | 5


class Malformed(ValueError):
    """Bytes that are no Example; the message says why."""


class Feature(NamedTuple):
    """One feature, not read yet: its kind and the range of its list within the message."""

    kind: int
    begin: int
    end: int


def features(data: bytes, size: int, wanted: str | None = None) -> dict[str, Feature]:
    """The features of an Example of `size` bytes, by name. A feature without a list is left out.

    Args:
        data: the Example, or its beginning.
        size: its size in bytes.
        wanted: stop at the feature of this name.

    Raises:
        Malformed: these bytes are no Example.
        IndexError: `data` ends before all features, or the one wanted, were found.
    """
    found: dict[str, Feature] = {}
    at = 0
    while at < size:
        at, end = _field(data, at, size, _FIRST, "an Example (a SequenceExample cannot be packed)")
        while at < end:
            at, entry_end = _field(data, at, end, _FIRST, "the features")
            name, feature = _entry(data, at, entry_end)
            if name in found or len(found) == _FEATURES_MOST:
                raise Malformed(f"the feature {name!r} twice" if name in found else f"more than {_FEATURES_MOST} features")
            if feature is not None:
                found[name] = feature
                if name == wanted:
                    return found
            at = entry_end
    return found


def _entry(data: bytes, at: int, end: int) -> tuple[str, Feature | None]:
    """The name and the feature of one entry of the map."""
    name, feature = "", None
    while at < end:
        tag, at = _varint(data, at)
        size, at = _varint(data, at)
        inner_end = at + size
        if inner_end > end:
            raise Malformed(f"a feature of {size:,} bytes, where {end - at:,} are left")
        if tag == _FIRST:
            if size > _NAME_MOST:
                raise Malformed(f"a name of {size:,} bytes")
            if inner_end > len(data):
                raise IndexError
            name = data[at:inner_end].decode("utf-8")
        elif tag != _SECOND or feature is not None:
            raise Malformed(f"a feature with the tag {tag}")
        elif size:
            kind, at = _varint(data, at)
            size, at = _varint(data, at)
            if kind not in _LISTS or at + size != inner_end:
                raise Malformed("a feature that is not one list")
            feature = Feature(_LISTS[kind], at, inner_end)
        at = inner_end
    return name, feature


def bytes_of(data: bytes, feature: Feature) -> list[tuple[int, int]]:
    """(offset, size) of each value of a feature of kind BYTES. IndexError where `data` ends before the last of them begins."""
    found: list[tuple[int, int]] = []
    at = feature.begin
    while at < feature.end:
        at, end = _field(data, at, feature.end, _FIRST, "a list of bytes")
        found.append((at, end - at))
        at = end
        _limit(len(found))
    return found


def floats_of(data: bytes, feature: Feature) -> list[float]:
    """The values of a feature of kind FLOATS."""
    found: list[float] = []
    at = feature.begin
    while at < feature.end:
        if data[at] == _FIRST_FIXED32:
            at, end = at + 1, at + 5
        else:
            at, end = _field(data, at, feature.end, _FIRST, "a list of floats")
        if end > feature.end or (end - at) % 4:
            raise Malformed("a list of floats that are not of 4 bytes")
        _limit(len(found) + (end - at) // 4)
        found += np.frombuffer(data[at:end], "<f4").tolist()
        at = end
    return found


def ints_of(data: bytes, feature: Feature) -> list[int]:
    """The values of a feature of kind INTS."""
    found: list[int] = []
    at = feature.begin
    while at < feature.end:
        packed = data[at] != _FIRST_VARINT
        at, end = _field(data, at, feature.end, _FIRST, "a list of integers") if packed else (at + 1, at + 2)
        while at < end:
            value, at = _varint(data, at)
            found.append(value - (1 << 64) if value >> 63 else value)
            _limit(len(found))
        if at > (end if packed else feature.end):
            raise Malformed("a list that is longer than its feature")
    return found


def _field(data: bytes, at: int, end: int, wanted: int, what: str) -> tuple[int, int]:
    """Begin and end of the content of a field with a size, whose tag is at `at`."""
    tag, at = _varint(data, at)
    if tag != wanted:
        raise Malformed(f"the tag {tag} in {what}")
    size, at = _varint(data, at)
    if size > end - at:
        raise Malformed(f"{size:,} bytes in {what}, where {max(end - at, 0):,} are left")
    return at, at + size


def _varint(data: bytes, at: int) -> tuple[int, int]:
    """A number below 2**64 and the offset after it."""
    byte = data[at]
    if byte < 0x80:
        return byte, at + 1
    value = shift = 0
    while True:
        value |= (byte & 0x7F) << shift
        at += 1
        if byte < 0x80:
            break
        shift += 7
        if shift > 63:
            raise Malformed("a number of more than 64 bits")
        byte = data[at]
    if value >> 64:
        raise Malformed("a number of more than 64 bits")
    return value, at


def _limit(count: int) -> None:
    if count > VALUES_MOST:
        raise Malformed(f"a feature of more than {VALUES_MOST:,} values")
