"""The messages of an Arrow file, found without reading what they hold.

Source: the Arrow columnar format, "Serialization and interprocess communication": a stream of messages, each a length, metadata in a
flatbuffer and a body; a file (ARROW1) holds such a stream behind its first 8 bytes. Of the flatbuffers (Message.fbs) only these are read:
of Message the kind of its header, the header and the length of the body; of RecordBatch the number of rows and whether it is compressed.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from fastload.errors import PackError

SCHEMA, DICTIONARY, BATCH = 1, 2, 3
"""Kinds of header, as MessageHeader in Message.fbs has them."""
_CONTINUED = 0xFFFFFFFF
_MAGIC = b"ARROW1\0\0"
_HEAD = 8
_METADATA_MOST = 64 << 20
_BODY_MOST = 8 << 30
"""Bytes of a record batch."""


@dataclass(frozen=True)
class Message:
    """One message.

    Attributes:
        offset: in the file.
        size: of its length and metadata, bytes: where its body begins.
        body: bytes of its body.
        kind: SCHEMA, DICTIONARY, BATCH, or another.
        rows: of a record batch.
        compressed: whether its buffers are.
    """

    offset: int
    size: int
    body: int
    kind: int
    rows: int
    compressed: bool


def messages(path: str, size: int, read: Callable[[int, int], bytes]) -> Iterator[Message]:
    """The messages of a file in their order.

    Args:
        path: for errors.
        size: of the file.
        read: reads a number of bytes at an offset.

    Raises:
        PackError: the file is cut or damaged, or of a kind that is not read.
    """
    at = len(_MAGIC) if size >= len(_MAGIC) and read(0, len(_MAGIC)) == _MAGIC else 0
    try:
        while size - at >= _HEAD:
            mark, length = struct.unpack("<II", read(at, _HEAD))
            if mark != _CONTINUED or length > min(_METADATA_MOST, size - at - _HEAD):
                raise PackError(f"{path}: not a whole Arrow file: no message at byte {at}")
            if not length:
                return
            found = _message(at, _HEAD + length, read(at + _HEAD, length))
            if not 0 <= found.body <= min(_BODY_MOST, size - at - found.size) or found.rows < 0:
                raise PackError(f"{path}: not a whole Arrow file: the message at byte {at} has {found.body} bytes and {found.rows} rows")
            yield found
            at += found.size + found.body
    except (struct.error, IndexError) as error:
        raise PackError(f"{path}: not a whole Arrow file: the message at byte {at} is damaged") from error
    if at != size:
        raise PackError(f"{path}: not a whole Arrow file: it is cut at byte {size}")


def _message(offset: int, size: int, metadata: bytes) -> Message:
    root = _number("<I", metadata, 0)
    kind = _field("<B", metadata, root, 1)
    body = _field("<q", metadata, root, 3)
    if kind != BATCH:
        return Message(offset, size, body, kind, 0, False)
    where = _slot(metadata, root, 2)
    batch = where + _number("<I", metadata, where)
    return Message(offset, size, body, kind, _field("<q", metadata, batch, 0), bool(_slot(metadata, batch, 3)))


def _number(form: str, data: bytes, at: int) -> int:
    if at < 0:  # unpack_from would count from the end
        raise IndexError(at)
    found: int = struct.unpack_from(form, data, at)[0]
    return found


def _slot(data: bytes, table: int, field: int) -> int:
    """Where a field of a table is; 0: it has its default."""
    entries = table - _number("<i", data, table)
    at = 4 + 2 * field
    found = _number("<H", data, entries + at) if at + 2 <= _number("<H", data, entries) else 0
    return table + found if found else 0


def _field(form: str, data: bytes, table: int, field: int) -> int:
    at = _slot(data, table, field)
    return _number(form, data, at) if at else 0
