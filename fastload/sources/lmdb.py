"""LMDB files of people's own: a picture's file under each key, or under keys that count.

Walk over the keys of any LMDB file of data version 1 (liblmdb 0.9), with the place of each value.

csrc/store/tree.c does the same for the shards of a packed dataset. Pages are read, not mapped, and each is
checked before use: liblmdb itself trusts a file, and a damaged one ends the process. The newest snapshot is
read, without a lock: nobody may write to the file meanwhile.
"""

from __future__ import annotations

import os
import re
import struct
from collections.abc import Callable, Iterator
from typing import NamedTuple

import numpy as np

from fastload.common.spill import Texts, TextSorter
from fastload.errors import ArgumentError, PackError
from fastload.sources.names import HEAD, is_picture
from fastload.sources.notices import Notice, Notices
from fastload.sources.options import LmdbOptions, split_pattern
from fastload.sources.protocol import (
    Choice,
    FileRanges,
    Given,
    Item,
    Listed,
    Place,
    Source,
    Value,
    file_stamp,
)
from fastload.store import Field
from fastload.store.field import KindName

_META = struct.Struct("<II")  # magic, version
# Pad (the page size, in the first tree of a meta), flags, depth, pages of 3 kinds, entries, root.
_TREE = struct.Struct("<IHHQQQQQ")
_PAGE = struct.Struct("<QHHHH")  # number, pad, flags, end of the node offsets, begin of the nodes
_NODE = struct.Struct("<HHHH")  # size or page number, low and high; flags; key size
_MAGIC, _VERSION = 0xBEEFC0DE, 1
_META_AT, _FREE_AT, _MAIN_AT, _TXN_AT, _META_END = 16, 40, 88, 144, 152
_PAGE_SIZES = tuple(1 << bits for bits in range(9, 17))
_BRANCH, _LEAF = 1, 2
_BIG, _SUBTREE, _DUPLICATES = 1, 2, 4
_DUPSORT = 4
_DEPTH_MOST = 32
_NO_PAGE = 2**64 - 1


class Entry(NamedTuple):
    """One key, and where its value lies in the file."""

    key: bytes
    offset: int
    size: int


class _Snapshot(NamedTuple):
    page_size: int
    depth: int
    entries: int
    root: int


def walk(ranges: FileRanges, number: int = 0) -> Iterator[Entry]:
    """The keys of a file's main database in order.

    Raises:
        PackError: no LMDB file, a damaged one, or one of several named databases or of several values a key.
    """
    path, size = ranges.paths[number], ranges.size(number)
    found = _snapshot(ranges, number)
    if found.root == _NO_PAGE:
        return
    if not 1 <= found.depth <= _DEPTH_MOST:
        raise _damaged(path, f"its tree is {found.depth} pages deep")
    seen: set[int] = set()
    entries = 0
    pending = [(found.root, 1)]
    while pending:
        page, level = pending.pop()
        if page < 2 or (page + 1) * found.page_size > size or page in seen:
            raise _damaged(path, f"page {page} is {'used twice' if page in seen else 'not in the file'}")
        seen.add(page)
        data = ranges.read(number, page * found.page_size, found.page_size)
        kind = _LEAF if level == found.depth else _BRANCH
        nodes = _nodes(path, page, data, kind)
        if kind == _BRANCH:
            children = [low | high << 16 | flags << 32 for _, low, high, flags, _ in nodes]
            pending += [(child, level + 1) for child in reversed(children)]
            continue
        for at, low, high, flags, key_size in nodes:
            entry = _value(
                path, page * found.page_size, data, at, low | high << 16, flags, key_size, found.page_size
            )
            if entry.offset + entry.size > size:
                raise _damaged(path, f"the value of the key {entry.key[:40]!r} does not end in the file")
            yield entry
        entries += len(nodes)
    if entries != found.entries:
        raise _damaged(path, f"it has {entries:,} keys where it says {found.entries:,}")


def _snapshot(ranges: FileRanges, number: int) -> _Snapshot:
    """The main tree of the newer one of the two metas."""
    path, size = ranges.paths[number], ranges.size(number)
    first = ranges.read(number, 0, min(size, _META_END))
    if len(first) < _META_END or _META.unpack_from(first, _META_AT) != (_MAGIC, _VERSION):
        raise PackError(f"{path}: not an LMDB file of data version 1 (liblmdb 0.9)")
    page_size = _TREE.unpack_from(first, _FREE_AT)[0]
    if page_size not in _PAGE_SIZES or size < 2 * page_size:
        raise _damaged(path, f"pages of {page_size:,} bytes in a file of {size:,}")
    second = ranges.read(number, page_size, _META_END)
    if _META.unpack_from(second, _META_AT) != (_MAGIC, _VERSION):
        raise _damaged(path, "its second meta page is none")
    newer = max((first, second), key=lambda meta: int.from_bytes(meta[_TXN_AT : _TXN_AT + 8], "little"))
    _, flags, depth, _, _, _, entries, root = _TREE.unpack_from(newer, _MAIN_AT)
    if flags & _DUPSORT:
        raise PackError(
            f"{path}: it has several values a key (MDB_DUPSORT), which cannot be packed; pack a "
            "Dataset that reads it"
        )
    return _Snapshot(page_size, depth, entries, root)


def _nodes(path: str, page: int, data: bytes, kind: int) -> list[tuple[int, int, int, int, int]]:
    """(offset in the page, and the four numbers of its header) of each node."""
    own, _, flags, lower, upper = _PAGE.unpack_from(data)
    if own != page or flags & 0xF != kind or not _PAGE.size <= lower <= upper <= len(data) or lower % 2:
        raise _damaged(path, f"page {page} is not the one it should be")
    offsets = struct.unpack_from(f"<{(lower - _PAGE.size) // 2}H", data, _PAGE.size)
    nodes = []
    for at in offsets:
        if at < upper or at + _NODE.size > len(data):
            raise _damaged(path, f"page {page} has an entry outside itself")
        node = _NODE.unpack_from(data, at)
        if at + _NODE.size + node[3] > len(data):
            raise _damaged(path, f"page {page} has a key that does not end in it")
        nodes.append((at, *node))
    return nodes


def _value(
    path: str, base: int, data: bytes, at: int, size: int, flags: int, key_size: int, page_size: int
) -> Entry:
    """The entry of a node of a leaf."""
    begin = at + _NODE.size
    key = data[begin : begin + key_size]
    begin += key_size
    if flags & (_SUBTREE | _DUPLICATES):
        raise PackError(
            f"{path}: the key {key[:40]!r} is a named database of its own, which cannot be packed; "
            "pack a Dataset that reads it"
        )
    if not flags & _BIG:
        if begin + size > len(data):
            raise _damaged(path, f"the value of the key {key[:40]!r} does not end in its page")
        return Entry(key, base + begin, size)
    if begin + 8 > len(data):
        raise _damaged(path, f"the value of the key {key[:40]!r} is nowhere")
    return Entry(key, int.from_bytes(data[begin : begin + 8], "little") * page_size + _PAGE.size, size)


def _damaged(path: str, reason: str) -> PackError:
    return PackError(f"{path}: damaged ({reason}); copy it again")


AFTER_GAP = "after a gap"
_SURVEYED = 100
_TEXT_MOST = 1 << 20
"""Bytes of a label."""

# Number, offset and size of the picture, offset and size of the label; -1 without a label.
_ROW = struct.Struct("<qqqqq")
_NO_LABEL = (-1, -1)


class LmdbSource(Listed):
    """One LMDB file: a sample for each number of `key_pattern`, or else for each key.

    With a pattern such as ``image-%09d`` the samples are its keys in the order of their numbers, from the
    lowest one that is there up to the first that is missing. Their labels are the values of `label_pattern`
    of the same numbers: integers written as text, else text, else bytes, as all of `_SURVEYED` labels are.
    Without a pattern every value has to be a picture's file, and there is no label.

    Nobody may write to the file meanwhile.

    Raises:
        PackError: no LMDB file, a damaged one, no key of the pattern, or values that are no pictures' files.
    """

    layout = "LMDB file"

    classes: tuple[str, ...] | None = None
    concurrent = True
    lists_files = True

    def __init__(self, path: str, options: LmdbOptions) -> None:
        self.title = path
        self._ranges = FileRanges([path])
        self._notices = Notices()
        self._pattern = options.key_pattern
        self.fields: tuple[Field, ...] = ()
        self._rows = (
            self._all_keys()
            if options.key_pattern is None
            else self._counted(options.key_pattern, options.label_pattern)
        )
        if options.label_pattern is not None:
            self._label_pattern = options.label_pattern
            self._kind = self._label_kind()
            self.fields = (Field("label", self._kind),)

    @property
    def notices(self) -> tuple[Notice, ...]:
        """Keys after the first number that is missing."""
        return self._notices.all()

    def _all_keys(self) -> Texts:
        """The rows of all keys: a row's key is beyond its numbers."""
        rows = Texts()
        for entry in walk(self._ranges):
            head = self._ranges.read(0, entry.offset, min(entry.size, HEAD))
            if not is_picture(head):
                raise PackError(self._no_picture(entry, head))
            rows.append(_ROW.pack(len(rows), entry.offset, entry.size, *_NO_LABEL) + entry.key)
        rows.seal()
        if not len(rows):
            raise PackError(f"{self.title}: no key in it")
        return rows

    def _no_picture(self, entry: Entry, head: bytes) -> str:
        what = (
            "a pickle, which is never loaded"
            if head[:1] == b"\x80" and head[1:2] in b"\2\3\4\5"
            else "no picture's file (JPEG, PNG, ...)"
        )
        return (
            f"{self.title}: the value of the key {entry.key[:60]!r} is {what}; say which keys are "
            "images with --key-pattern (key_pattern= "
            "in Python), such as image-%09d, or pack a Dataset that reads the file"
        )

    def _counted(self, key_pattern: str, label_pattern: str | None) -> Texts:
        """The rows of the keys of a pattern, in the order of their numbers, with their labels."""
        images, labels = _Numbered(key_pattern), None if label_pattern is None else _Numbered(label_pattern)
        for entry in walk(self._ranges):
            images.add(entry)
            if labels is not None:
                labels.add(entry)
        places = iter(()) if labels is None else labels.drain()
        rows, end, label = Texts(), -1, next(places, None)
        for number, offset, size in images.drain():
            if end >= 0 and number != end:
                self._notices.add(
                    AFTER_GAP, key_pattern % number, f"keys after the missing {key_pattern % end} left out"
                )
                continue
            while label is not None and label[0] < number:
                label = next(places, None)
            rows.append(
                _ROW.pack(
                    number,
                    offset,
                    size,
                    *(label[1:] if label is not None and label[0] == number else _NO_LABEL),
                )
            )
            end = number + 1
        rows.seal()
        if not len(rows):
            first = next(iter(walk(self._ranges)), None)
            there = f"its first key is {first.key[:60]!r}" if first else "it has no key"
            raise PackError(f"{self.title}: no key is of the pattern {key_pattern!r}; {there}")
        return rows

    def _label_kind(self) -> KindName:
        values = []
        for position in np.unique(np.linspace(0, len(self) - 1, _SURVEYED).astype(np.int64)).tolist():
            try:
                values.append(self._label(position))
            except (PackError, OSError):  # noqa: PERF203
                continue  # an error of that sample, when it is packed
        narrow = (
            kind
            for kind, parse in _LABELS.items()
            if values and all(_parses(parse, value) for value in values)
        )
        return next(narrow, "bytes")

    def _label(self, position: int) -> bytes:
        number, _, _, offset, size = _ROW.unpack_from(self._rows[position])
        if (offset, size) == _NO_LABEL:
            raise PackError(
                f"{self.name(position)}: there is no key {self._label_pattern % number!r} for its label"
            )
        if size > _TEXT_MOST:
            raise PackError(
                f"{self.name(position)}: its label has {size:,} bytes, more than the limit of {_TEXT_MOST:,}"
            )
        return self._ranges.read(0, offset, size)

    def key(self, position: int) -> str:
        row = self._rows[position]
        if self._pattern is None:
            return row[_ROW.size :].decode("utf-8", "backslashreplace")
        return self._pattern % int(_ROW.unpack_from(row)[0])

    def _image(self, position: int) -> tuple[int, int]:
        """(offset, size) of a sample's picture."""
        _, offset, size, _, _ = _ROW.unpack_from(self._rows[position])
        return offset, size

    def name(self, position: int) -> str:
        return f"{self.title}: {self.key(position)}"

    def stamp(self, position: int) -> tuple[int, int]:
        return self._image(position)[1], file_stamp(self.title)[1]

    def fields_of(self, position: int) -> dict[str, Value] | None:
        """Returns None with labels: they are known only when they are read."""
        return None if self.fields else {}

    def place(self, position: int) -> Place:
        return Place(self.title, *self._image(position))

    def read(self, position: int) -> Item:
        return Item(
            self.name(position), self._ranges.read(0, *self._image(position)), self.read_fields(position)
        )

    def read_fields(self, position: int) -> dict[str, Value]:
        """The fields besides the image."""
        if not self.fields:
            return {}
        label = self._label(position)
        if not _parses(_LABELS[self._kind], label):
            raise PackError(
                f"{self.name(position)}: its label {label[:40]!r} is not {self._kind}, as the others are"
            )
        return {"label": _LABELS[self._kind](label)}


def _int_label(value: bytes) -> int:
    if re.fullmatch(rb"\s*[+-]?[0-9]{1,18}\s*", value) is None:
        raise ValueError("it is no whole number")
    return int(value)


_LABELS: dict[KindName, Callable[[bytes], Value]] = {
    "int": _int_label,
    "text": lambda value: value.decode("utf-8"),
    "bytes": lambda value: value,
}
"""Parsers of labels, of the narrowest kind first; each raises ValueError for what it does not take."""


def _parses(parse: Callable[[bytes], Value], value: bytes) -> bool:
    try:
        parse(value)
    except ValueError:
        return False
    return True


# Number, offset, size: texts in the order of the numbers, and then of places.
_NUMBERED = struct.Struct(">QQQ")


class _Numbered:
    """The keys of one pattern, with their numbers. No two have the same number."""

    def __init__(self, pattern: str) -> None:
        parts = split_pattern(pattern)
        assert parts is not None, pattern  # LmdbOptions has checked it
        before, after = parts
        self._pattern = pattern.encode()
        self._match = re.compile(
            re.escape(before.encode()) + rb"([0-9]{1,18})" + re.escape(after.encode()), re.DOTALL
        ).fullmatch
        self._sorter = TextSorter()

    def add(self, entry: Entry) -> None:
        """Adds a key, if it is of the pattern."""
        if (found := self._match(entry.key)) and self._pattern % int(found[1]) == entry.key:
            self._sorter.add(_NUMBERED.pack(int(found[1]), entry.offset, entry.size))

    def drain(self) -> Iterator[tuple[int, int, int]]:
        """(number, offset, size) of each key, in the order of their numbers."""
        return map(_NUMBERED.unpack, self._sorter.drain())


def _file(given: Given) -> str:
    """The LMDB file that a path names: x.lmdb, x.mdb, or the data.mdb of a folder; "" for no such file."""
    inner = os.path.join(given.path, "data.mdb")
    if given.is_folder and os.path.isfile(inner):
        return inner
    return given.path if given.path.lower().endswith((".lmdb", ".mdb")) and os.path.isfile(given.path) else ""


def _refuse_patterns(given: Given) -> Source:
    raise ArgumentError("key_pattern and label_pattern (--key-pattern, --label-pattern) are for an LMDB file")


PATTERNS_OF_ANOTHER = Choice(
    lambda given: given.options.lmdb is not None and not _file(given), _refuse_patterns
)
FILE = Choice(
    lambda given: bool(_file(given)),
    lambda given: LmdbSource(_file(given), given.options.lmdb or LmdbOptions()),
)
