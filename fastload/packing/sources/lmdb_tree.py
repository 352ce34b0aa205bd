"""Walk over the keys of any LMDB file of data version 1 (liblmdb 0.9), with the place of each value.

csrc/store/tree.c does the same for the shards of a packed dataset. Pages are read, not mapped, and each is checked before use: liblmdb
itself trusts a file, and a damaged one ends the process. The newest snapshot is read, without a lock: nobody may write to the file
meanwhile.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import NamedTuple

from fastload.errors import PackError
from fastload.packing.sources.ranges import FileRanges

_META = struct.Struct("<II")  # magic, version
_TREE = struct.Struct("<IHHQQQQQ")  # pad (the page size, in the first tree of a meta), flags, depth, pages of 3 kinds, entries, root
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
            entry = _value(path, page * found.page_size, data, at, low | high << 16, flags, key_size, found.page_size)
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
        raise PackError(f"{path}: it has several values a key (MDB_DUPSORT), which cannot be packed; pack a Dataset that reads it")
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


def _value(path: str, base: int, data: bytes, at: int, size: int, flags: int, key_size: int, page_size: int) -> Entry:
    """The entry of a node of a leaf."""
    begin = at + _NODE.size
    key = data[begin : begin + key_size]
    begin += key_size
    if flags & (_SUBTREE | _DUPLICATES):
        raise PackError(
            f"{path}: the key {key[:40]!r} is a named database of its own, which cannot be packed; pack a Dataset that reads it"
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
