"""OpenedForms: forms that decode faster of the JPEGs that a Dataset of Python opens, kept in a cache folder
by the workers that open them.

NOTE [ opened forms: time that nobody wants ]
1. A form is found by the file's bytes, as an entropy index is (NOTE [ indexes: by a file's bytes ]): the
   program opens and reads its file, and gets the pixels of just these bytes.
2. A worker holds the last few files that have none, and makes their forms while it waits for its next task:
   all batches that were asked for are made, and the loop is busy with one. A thread with the least priority
   does it, one file at a time, and ends with the one that it is at. A loop that waits for its batches sees
   nothing of it.
3. A file that has no form, such as a damaged one, gets an empty one, so that nobody tries again.
"""

from __future__ import annotations

import hashlib
import os
import sys
import threading
import time
import weakref
from collections import deque
from contextlib import suppress
from typing import NamedTuple

from fastload._native import core
from fastload.errors import FastloadError
from fastload.remote.kept_table import CachePlace, KeptTable

_SLAB = 16 << 20
"""Bytes of one grant: what a worker may write in a second."""
_WAITING_MOST = 8 << 20
"""Bytes of the files that wait for their forms."""
_LOWEST = 19
"""Niceness of the thread that makes them."""
_RESTED_S = 0.005
"""Time for which a worker has had no task when the first is made."""


class FormsPlace(NamedTuple):
    """The forms of the images that a dataset opens.

    Attributes:
        place: the cache folder.
        url, kind: as of FilesFolder.
        images: images that the dataset may open; a guess.
    """

    place: CachePlace
    url: str
    kind: str
    images: int


class OpenedForms(KeptTable):
    """The forms that one worker finds, and makes while it rests. See NOTE [ opened forms: time that nobody
    wants ].

    Raises:
        ArgumentError, DatasetError: as of KeptTable.
    """

    def __init__(self, place: FormsPlace) -> None:
        rows = 2 * max(place.images, 1)
        name = hashlib.blake2b(str(rows).encode(), digest_size=16).hexdigest()
        self._lock = threading.Lock()
        self._waiting: deque[tuple[int, bytes]] = deque()
        self._room = 0  # for bytes of files that wait
        self._rests = threading.Event()
        super().__init__(place.place, place.url, place.kind, name, rows, _SLAB)
        if self.root.writable and self._kept is not None:
            self._room = _WAITING_MOST
            threading.Thread(
                target=_make_all, args=(weakref.ref(self), self._rests), name="fastload-forms", daemon=True
            ).start()

    def find(self, key: int, data: bytes) -> bytes:
        """The form of a file, by the key of its bytes; b"": it has none, or none yet."""
        if self._kept is None:
            return b""
        found = self._kept.form_of(key)
        if found is None and not self._full:
            with self._lock:
                if len(data) <= self._room:
                    self._room -= len(data)
                    self._waiting.append((key, data))
        return found or b""

    def rest(self, rests: bool) -> None:
        """Tells whether the worker waits for a task."""
        if not rests:
            self._rests.clear()
        elif self._waiting:
            self._rests.set()

    def make_one(self, coder: core.DctCoder) -> bool:
        """Makes the form of one file. False: none waits."""
        with self._lock:
            if not self._waiting:
                return False
            key, data = self._waiting.popleft()
            self._room += len(data)
        with suppress(FastloadError):  # no memory
            if self._table.form_of(key) is None:  # another worker may have made it
                self._table.put_form(key, coder.encode(data)[0] or b"")
        return True


def _make_all(found: weakref.ref[OpenedForms], rests: threading.Event) -> None:
    if sys.platform == "linux":
        with suppress(OSError):
            os.setpriority(os.PRIO_PROCESS, threading.get_native_id(), _LOWEST)
    coder = core.DctCoder()
    while rests.wait():
        time.sleep(_RESTED_S)
        while rests.is_set():
            forms = found()
            if forms is None:
                return
            if not forms.make_one(coder):
                rests.clear()
            del forms
