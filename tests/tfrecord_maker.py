"""Writer of TFRecord files of tf.train.Examples, by the format's description."""

from __future__ import annotations

import struct
from pathlib import Path
from typing import Any

from fastload._native import core


def varint(value: int) -> bytes:
    value %= 1 << 64
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes(out) + bytes([value])


def sized(number: int, data: bytes) -> bytes:
    """A field with a size, of a protocol buffer."""
    return varint(number << 3 | 2) + varint(len(data)) + data


def feature(value: Any, packed: bool = True) -> bytes:
    """A feature of a list of bytes, floats or integers."""
    if value and isinstance(value[0], bytes):
        return sized(1, b"".join(sized(1, each) for each in value))
    if value and isinstance(value[0], float):
        return sized(
            2,
            sized(1, struct.pack(f"<{len(value)}f", *value))
            if packed
            else b"".join(b"\x0d" + struct.pack("<f", v) for v in value),
        )
    return sized(
        3, sized(1, b"".join(map(varint, value))) if packed else b"".join(b"\x08" + varint(v) for v in value)
    )


def example(packed: bool = True, **features: Any) -> bytes:
    """A tf.train.Example."""
    return sized(
        1,
        b"".join(
            sized(1, sized(1, name.encode()) + sized(2, feature(value, packed)))
            for name, value in features.items()
        ),
    )


def masked(data: bytes) -> bytes:
    crc = core.crc32c(data)
    return struct.pack("<I", ((crc >> 15 | crc << 17) + 0xA282EAD8) & 0xFFFFFFFF)


def framed(*records: bytes) -> bytes:
    """The content of a file of some records."""
    lengths = [struct.pack("<Q", len(record)) for record in records]
    return b"".join(
        n + masked(n) + record + masked(record) for n, record in zip(lengths, records, strict=True)
    )


def tfrecord(path: Path, *records: bytes) -> Path:
    """Writes a file of some records, and returns its path."""
    path.write_bytes(framed(*records))
    return path
