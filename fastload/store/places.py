"""Places of attached images: the entry of a record that says in which file outside of the dataset an image lies.

csrc/store/attached.h describes its bytes, and reads the images.
"""

from __future__ import annotations

import os
import struct
from dataclasses import dataclass

from fastload.errors import PackError

_HEAD = struct.Struct("<QQqII")
_PATH_BYTES = 2048
"""Limit on a stored path: who reads ahead looks for it in the first 4 KiB of a record."""


@dataclass(frozen=True, slots=True)
class StoredPlace:
    """Where an attached image lies, and what is known of it.

    Attributes:
        path: of its file: absolute, or relative to the shard's base folder.
        offset: of its first byte in the file.
        size: number of its bytes.
        crc: their CRC32C.
        file_size: bytes of the whole file when it was attached.
        file_time: time of the file's last change then, ns since 1970.
    """

    path: str
    offset: int
    size: int
    crc: int
    file_size: int
    file_time: int

    def to_bytes(self) -> bytes:
        """The entry's bytes.

        Raises:
            PackError: the path is longer than a record takes.
        """
        path = os.fsencode(self.path)
        if len(path) > _PATH_BYTES:
            raise PackError(f"{self.path[:80]}...: a path of {len(path):,} bytes, more than the limit of {_PATH_BYTES:,}")
        return _HEAD.pack(self.offset, self.file_size, self.file_time, self.size, self.crc) + path
