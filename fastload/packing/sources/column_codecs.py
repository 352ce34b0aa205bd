"""Columns of MDS shards and LitData chunks: how the bytes of a value become a field's value. Both formats name an encoding a column."""

from __future__ import annotations

import math
import struct
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from fastload.packing.sources.protocol import Value
from fastload.store.checked import parse_json
from fastload.store.field import Kind

Decode = Callable[[bytes], Value]
Array = npt.NDArray[Any]


@dataclass(frozen=True, slots=True)
class Column:
    """One column of a source.

    Attributes:
        name: the field's name.
        encoding: the format's name of how values are stored.
        size: bytes of each value; None if each value has a size of its own.
        kind: kind of the field; "image" where values are pictures' files.
        decode: the value of stored bytes; raises ValueError.
    """

    name: str
    encoding: str
    size: int | None
    kind: Kind
    decode: Decode


def number(code: str) -> Decode:
    """Decoder of one little-endian number, by its code in the module struct."""
    layout = struct.Struct(f"<{code}")

    def decode(data: bytes) -> Value:
        if len(data) != layout.size:
            raise ValueError(f"{len(data)} bytes, where a number has {layout.size}")
        value: int | float = layout.unpack(data)[0]
        return value

    return decode


def text(data: bytes) -> Value:
    return data.decode("utf-8")


def plain(data: bytes) -> Value:
    return data


def json_value(data: bytes) -> Value:
    value: Value = parse_json(data)
    return value


def int_text(data: bytes) -> Value:
    return int(data.decode("ascii"))


def float_text(data: bytes) -> Value:
    return float(data.decode("ascii"))


def pil_pixels(data: bytes) -> Array:
    """Pixels that both libraries store as width, height and the length of the mode's name (uint32 each), the name, and rows.

    Raises:
        ValueError: a mode other than RGB and L, or another number of bytes than the size says.
    """
    if len(data) < 12:
        raise ValueError("its pixels end inside the header")
    width, height, length = struct.unpack_from("<III", data)
    mode = data[12 : 12 + length] if length <= 16 else b""
    channels = {b"RGB": 3, b"L": 1}.get(mode)
    if channels is None:
        raise ValueError(f"pixels of mode {mode.decode('ascii', 'replace') or '?'} are not stored; convert them to RGB")
    if not width or not height or width * height * channels != len(data) - 12 - length:
        raise ValueError(f"{width} x {height} pixels in {len(data) - 12 - length:,} bytes")
    pixels = np.frombuffer(data, np.uint8, offset=12 + length)
    return pixels.reshape((height, width, 3) if channels == 3 else (height, width))


def array_of(data: bytes, dtype: np.dtype[Any], shape: Sequence[int], at: int) -> Array:
    """The array in the bytes from `at` on. Raises ValueError if they are not exactly its values."""
    if math.prod(shape) * dtype.itemsize != len(data) - at:
        raise ValueError(f"{len(data) - at:,} bytes for an array of {dtype} of shape {tuple(shape)}")
    return np.frombuffer(data, dtype, offset=at).reshape(shape)


def flat_array(dtype: np.dtype[Any]) -> Decode:
    """Decoder of an array of one dimension, whose length follows from the number of bytes."""

    def decode(data: bytes) -> Value:
        return array_of(data, dtype, (len(data) // dtype.itemsize,), 0)

    return decode
