"""Indexes: the entropy indexes of the files that lazy images are decoded from, in memory that all workers of
a loader share.

NOTE [ indexes: by a file's bytes ]
A JPEG's entropy index tells where in its coded data the MCUs of a region begin, so that no other is read.
1. A decode of a file that has none reads all that comes before its region, and notes an index of these rows
   by the way (NOTE [ baseline: an index by the way ]). From then on each worker finds it. The first region
   that goes beyond these rows completes it.
2. Its key is made of the file's bytes, as far as the end marker. Path, size and time may stay while the bytes
   change, and a file object may have none of them: bytes in memory, or a member of an archive. An index must
   not be used for other bytes than those of which it was made: it says nothing of the data before a region,
   and if these are damaged the pixels are not Pillow's. To know that the bytes are the same takes a checksum
   of them all, and then nothing else is needed. It takes a hundredth of the time of a sample.
3. What is kept for a file takes at most a byte for INDEX_SHARE of its own. An index is kept twice at most, so
   that each version has half of that. Memory is bounded by what the loader gives. Once an index did not fit,
   decodes note no others.
4. What is found is hostile: any process may have written it. See NOTE [ shared indexes: nothing is found
   half-written ], and fl_jpeg_baseline_decode for what a lie can do.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Protocol

from fastload._native import core

INDEX_SHARE, STORES = 50, 2
"""A file's index takes at most one byte for so many of the file, in so many versions together."""


class Forms(Protocol):
    """Forms of files that decode faster."""

    def find(self, key: int, data: bytes) -> bytes:
        """The form of a file, by the key of its bytes; b"": there is none."""


class _Use:
    """The indexes and forms that images use which are loaded in this process.

    Attributes:
        forms: forms of the files; None: there are none.
        everywhere: those of images that any thread loads; None: only some threads use any.
        threads: those of images by the thread that loads them.
    """

    def __init__(self) -> None:
        self.forms: Forms | None = None
        self.everywhere: core.SharedIndexes | None = None
        self.threads: dict[int, core.SharedIndexes] = {}


_use = _Use()


def install(shared: core.SharedIndexes | None, forms: Forms | None = None) -> None:
    """Makes all images use these from now on; called in worker processes."""
    _use.everywhere, _use.forms = shared, forms
    _use.threads.clear()  # the parent's


@contextmanager
def used(shared: core.SharedIndexes | None) -> Iterator[None]:
    """Makes the images that this thread loads in a `with` block use these; None: leaves them as they are."""
    if shared is None:
        yield
        return
    thread = threading.get_ident()
    before = _use.threads.get(thread)
    _use.threads[thread] = shared
    try:
        yield
    finally:
        if before is None:
            _use.threads.pop(thread, None)
        else:
            _use.threads[thread] = before


def in_use() -> core.SharedIndexes | None:
    """The indexes for an image that is loaded now."""
    return _use.threads.get(threading.get_ident(), _use.everywhere)


class FileIndex:
    """The entropy index of one file, as far as it is known, and its form that decodes faster. See NOTE
    [ indexes: by a file's bytes ].

    1. `form` is what the decoder is given in the file's place; b"": there is none.
    2. Of the file `known` is what the decoder is given; `learns` says whether it is to note more.
    3. learn() is called after a decode that has noted something.

    Args:
        shared: memory in which it is found and kept; None: there is none, and nothing is noted.
        data: the file.
        end: its bytes, the end marker included; others may follow.
    """

    __slots__ = ("_key", "_most", "_shared", "form", "known", "learns")

    def __init__(self, shared: core.SharedIndexes | None, data: bytes, end: int) -> None:
        self._most = end // INDEX_SHARE // STORES - core.SHARED_INDEX_EXTRA
        self._shared, self.known, self.form = shared, b"", b""
        self.learns = shared is not None and self._most > 0
        forms = _use.forms if end else None
        if forms is not None or self.learns:
            self._key = core.index_key(data, end)
        if forms is not None:
            self.form = forms.find(self._key, data if len(data) == end else data[:end])
            self.learns = self.learns and not self.form
        if shared is None or not self.learns:
            return
        found = shared.find(self._key)
        self.known = found or b""
        self.learns = found != b"" and not shared.full

    def learn(self, decoder: core.RegionDecoder) -> None:
        """Takes over, and keeps, what the decoder has noted in its last decode."""
        learnt = decoder.learnt(self._most)
        if self._shared is not None and (learnt or not self.known):  # b"": no decode is to try again
            self.known = learnt
            self._shared.keep(self._key, learnt)
