"""Lists of objects in a large JSON file, read one object after another: an annotation file of COCO's form needs no memory for all of it.

The text is decoded as Latin-1, so that a place in it is a place in the file. What a caller keeps of an object's text it parses again from
the object's own bytes, which are UTF-8 (`parse_json`).
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterator
from typing import Any

from fastload.common.files import open_regular
from fastload.errors import PackError
from fastload.store.checked import JSON_BYTES

_BLOCK = 4 << 20
"""Bytes that are read at once: some thousand objects."""
_NUMBER_GOES_ON = 3
"""Characters after a number that tell whether it ends there: 1, but 1.5 and 1e+5."""
_BLANKS = re.compile(r"[ \t\r\n]*")
_DECODE = json.JSONDecoder().raw_decode


def list_entries(path: str) -> Iterator[tuple[str, int, bytes, Any]]:
    """(key, offset, bytes, object) of each object of each list in the file's outermost object; other values are passed over.

    Strings in `object` are decoded as Latin-1; numbers and the structure are what they are.

    Raises:
        PackError: the file cannot be read, is no such JSON, or one of its values is larger than `JSON_BYTES`.
    """
    try:
        descriptor, _ = open_regular(path)
    except OSError as error:
        raise PackError(f"{path}: cannot be read: {error.strerror}") from error
    try:
        yield from _entries(_Window(path, descriptor))
    finally:
        os.close(descriptor)


def _entries(window: _Window) -> Iterator[tuple[str, int, bytes, Any]]:
    if window.next() != "{":
        raise window.error("it does not begin with an object, as an annotation file does")
    window.skip()
    seen: set[str] = set()
    while window.next() != "}":
        if seen:
            window.take(",")
        key = window.value()
        if not isinstance(key, str) or key in seen:
            raise window.error(f"the key {key!r} is {'there twice' if key in seen else 'no text'}")
        seen.add(key)
        window.take(":")
        if window.next() != "[":
            window.value()
            continue
        window.skip()
        first = True
        while window.next() != "]":
            if not first:
                window.take(",")
                window.next()
            first = False
            offset, entry = window.offset, window.value()
            if isinstance(entry, dict):
                yield key, offset, window.taken(offset), entry
        window.skip()


class _Window:
    """The part of the file that is in memory: from the value that is being read to the end of the last block.

    Attributes:
        offset: where in the file the next character is.
    """

    def __init__(self, path: str, descriptor: int) -> None:
        self._path = path
        self._descriptor = descriptor
        self._text = ""
        self._first = 0  # offset in the file of the text's first character
        self._at = 0
        self._ended = False

    @property
    def offset(self) -> int:
        return self._first + self._at

    def error(self, why: str) -> PackError:
        return PackError(f"{self._path}, byte {self.offset:,}: {why}")

    def next(self) -> str:
        """The next character that is no blank; it is not taken."""
        while True:
            match = _BLANKS.match(self._text, self._at)
            assert match is not None
            self._at = match.end()
            if self._at < len(self._text):
                return self._text[self._at]
            if not self._more(_BLOCK):
                raise self.error("the file ends in the midst of its JSON; copy it again")

    def skip(self) -> None:
        """Takes the character that `next` gave."""
        self._at += 1

    def take(self, wanted: str) -> None:
        found = self.next()
        if found != wanted:
            raise self.error(f"{found!r} where {wanted!r} is needed: it is no JSON")
        self._at += 1

    def value(self) -> Any:
        """The next value, whole."""
        self.next()
        block = _BLOCK
        while True:
            try:
                value, end = _DECODE(self._text, self._at)
            except RecursionError:
                raise self.error("lists and objects lie too deep in each other") from None
            except ValueError as error:  # it may end after this block
                held = len(self._text) - self._at
                if held > JSON_BYTES:
                    raise self.error(f"no JSON value in the next {held:,} bytes: {error}") from None
                if not self._more(block):
                    raise self.error(f"it is no JSON: {error}") from None
                block *= 2
                continue
            if end + _NUMBER_GOES_ON <= len(self._text) or not self._more(_BLOCK):
                self._at = end
                return value

    def taken(self, offset: int) -> bytes:
        """The bytes from `offset`, where the last value began, up to here."""
        return self._text[offset - self._first : self._at].encode("latin-1")

    def _more(self, size: int) -> bool:
        """Reads on, and forgets what was taken. False at the end of the file."""
        try:
            data = b"" if self._ended else os.read(self._descriptor, size)
        except OSError as error:
            raise PackError(f"{self._path}: cannot be read: {error.strerror}") from error
        if not data:
            self._ended = True
            return False
        self._text = self._text[self._at :] + data.decode("latin-1")
        self._first += self._at
        self._at = 0
        return True
