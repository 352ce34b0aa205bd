"""Reading: the bytes of a JPEG, by the calls that Pillow would make of its file object.

NOTE [ reading: no other calls than Pillow's ]
A program's file object may have a seek() of one argument and no tell(), give less than it is asked for, fail,
or count its calls. So:
1. Bytes are read as ImageFile.load reads them: seek(0), then read(decodermaxblock) until the image is
   complete. This leaves the file where Pillow leaves it.
2. Pillow stops with the block in which its decoder has seen the last MCU, so it may leave an end marker
   unread that lies in the first bytes of a block. Where the file stays the program's, such an image is
   Pillow's.
3. Of a file of Python's own nobody counts the calls, so a small one is read at once, and put where Pillow
   leaves it.
4. Where Pillow has to load the image after all, it gets the `FileCalls` for a file object. The calls that
   were made are answered with what the file object gave, exceptions included, so that the file sees each call
   once. What Pillow leaves unread is given back by a seek.
"""

from __future__ import annotations

import io
import os
from collections import deque
from contextlib import suppress
from typing import Any, NamedTuple

from fastload._native import core
from fastload.lazy.compressed import CompressedImage, Known

_END = b"\xff\xd9"
_LARGEST = 64 << 20
"""Bytes of a file that is read at once; of a larger one Pillow reads as much as it needs."""
_AT_ONCE = 1 << 20
"""Bytes that are read at once of a file of Python's own."""
_BEHIND = 16
"""Bytes in which an end marker may lie behind the end of a block that Pillow reads, without that being
clear about where it stops."""


def read_at_once(file: object, block: int, mode: str, shared: bool) -> tuple[bytes, Known] | None:
    """Reads a file of Python's own whose pixels can be asked for later; None for any other.

    Args: as of FileCalls.jpeg.
    """
    if type(file) is not io.BytesIO and not (type(file) is io.BufferedReader and type(file.raw) is io.FileIO):
        return None
    try:
        file.seek(0)
        size = os.fstat(file.fileno()).st_size if type(file) is io.BufferedReader else _AT_ONCE
        data = file.read(min(size, _AT_ONCE))  # which has a buffer of that size
        found = CompressedImage.known(data, mode)
        stands = 0 if found is None else -(-found.end // block) * block
        if found is None or stands > _AT_ONCE or (shared and _is_unclear(found.end, block)):
            return None
        if shared and stands < len(data):
            file.seek(stands)
    except (OSError, ValueError):
        return None
    return data, found


def _is_unclear(end: int, block: int) -> bool:
    """Returns True if Pillow may stop before the block in which an image ends."""
    return end > block and (end - 1) % block < _BEHIND - 1


class _Call(NamedTuple):
    """A call of a file object's method, and its result, or the exception that it raised."""

    name: str
    argument: int
    result: object
    error: Exception | None


class FileCalls:
    """Calls that were made of a file object, and the file object that answers them once more.

    Args:
        file: the program's file object.
    """

    def __init__(self, file: Any) -> None:
        self._file = file
        self._made: deque[_Call] = deque()
        self._given = 0  # bytes that were read here and answered

    def jpeg(self, block: int, mode: str, shared: bool) -> tuple[bytes, Known] | None:
        """Reads a file whose pixels can be asked for later; None for any other. See NOTE [ reading: no other
        calls than Pillow's ].

        Args:
            block: bytes that Pillow reads at a time.
            mode: "RGB" or "L", as Pillow opened it.
            shared: the file stays the program's, who may ask where it stands.
        """
        try:
            self._call("seek", 0)
            return self._read(block, mode, shared)
        except Exception:  # Pillow's turn to meet it, or to pass it over
            return None

    def _read(self, block: int, mode: str, shared: bool) -> tuple[bytes, Known] | None:
        data, chunks, size = b"", [], 0
        while size <= _LARGEST:
            chunk = self._call("read", block)
            if type(chunk) is not bytes or not chunk:
                return None
            ends = core.has_end_marker(chunk) or (chunk[:1] == _END[1:] and size > 0)
            chunks.append(chunk)
            size += len(chunk)
            if ends:
                data = b"".join(chunks)
                chunks = [data]
                found = CompressedImage.known(data, mode)
                if found is not None:
                    begins = size - len(chunk)
                    return None if shared and begins and found.end - begins < _BEHIND else (data, found)
                if not CompressedImage.goes_on(data, mode):
                    return None
        return None

    def _call(self, name: str, argument: int) -> object:
        try:
            result = getattr(self._file, name)(argument)
        except Exception as error:
            self._made.append(_Call(name, argument, None, error))
            raise
        self._made.append(_Call(name, argument, result, None))
        return result

    def _again(self, name: str, argument: int) -> object:
        """The result of a call that was made, or that of a new one."""
        if not self._made or self._made[0][:2] != (name, argument):
            return getattr(self._file, name)(argument)
        call = self._made.popleft()
        if call.error is not None:
            raise call.error
        if type(call.result) is bytes:
            self._given += len(call.result)
        return call.result

    def seek(self, position: int) -> object:
        """As the file's, for Pillow."""
        return self._again("seek", position)

    def read(self, size: int) -> object:
        """As the file's, for Pillow."""
        return self._again("read", size)

    def leave(self) -> None:
        """Puts the file where Pillow has left this one, if it stands behind that.

        Pillow makes no such call, so one that fails is made once more.
        """
        if any(type(call.result) is bytes and call.result for call in self._made):
            for _ in range(2):
                with suppress(Exception):
                    self._file.seek(self._given)
                    break

    def __getattr__(self, name: str) -> object:
        return getattr(self._file, name)
