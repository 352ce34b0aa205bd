"""ReplacedCheck: finds out, between the tries of a request, whether the dataset at a URL is still the one
that was opened."""

from __future__ import annotations

import threading
import time
import weakref
from concurrent.futures import Future
from contextlib import suppress

from fastload.errors import DatasetError, RemoteMissingError
from fastload.remote.manifest import DataFile, Part, data_files, read_manifest
from fastload.remote.objects import ASKED_S, Objects
from fastload.store.manifest import Manifest, version_name

_LONGEST_S = 60.0
"""Seconds for which an answer counts, at most: it counts ASKED_S at first, and twice as long each time
that nothing has changed."""

_Content = tuple[str, tuple[Part, ...]]


class ReplacedCheck:
    """The dataset that was opened below a URL, as clients ask about it. See
    `fastload.remote.objects.OpenedDataset`.

    Any thread may call it. The manifest is read in a thread of its own, one at a time.

    Args:
        objects: the objects of the dataset, which hold the check.
        opened: the manifest when the dataset was opened.
    """

    def __init__(self, objects: Objects, opened: Manifest) -> None:
        self._objects = weakref.ref(objects)
        self._opened = opened
        self._lock = threading.Lock()  # guards all below
        self._files: dict[str, _Content] | None = None
        self._now: set[_Content] | None = None
        self._asked, self._counts = 0.0, ASKED_S
        self._answer: Future[None] | None = None

    def ask(self) -> Future[None]:
        """Begins to read the manifest, unless it is being read, or was read lately; the future ends once
        it was."""
        with self._lock:
            before = self._answer
            if before is not None and (not before.done() or time.monotonic() - self._asked < self._counts):
                return before
            answer: Future[None] = Future()
            self._counts = ASKED_S if before is None else min(2 * self._counts, _LONGEST_S)
            self._asked, self._answer = time.monotonic(), answer
        threading.Thread(target=self._run, args=(answer,), name="fastload-manifest", daemon=True).start()
        return answer

    def words(self, name: str, last: bool) -> str:
        """Text that says how the dataset of an object was changed; "" if no change is known. `last`: a
        missing manifest counts too."""
        with self._lock:
            if self._files is None:
                self._files = {file.name: _content(file) for file in data_files(self._opened)}
            file, now, late = (
                self._files.get(name),
                self._now,
                self._answer is None or not self._answer.done(),
            )
        if file is None or now is None or late or file in now:
            return ""
        if not now:
            return "the dataset there was deleted after it was opened" if last else ""
        return "the dataset there was replaced by another after it was opened: open it again"

    def _run(self, answer: Future[None]) -> None:
        found = self._read()
        with self._lock:
            self._now = found
        with suppress(Exception):  # who asked has cancelled it
            answer.set_result(None)

    def _read(self) -> set[_Content] | None:
        """The files that the manifests at the URL name; none if there is no dataset; None if the store
        gives no answer."""
        objects = self._objects()
        if objects is None:  # closed meanwhile
            return None
        try:
            found = read_manifest(objects, within=ASKED_S)
            files = set(map(_content, data_files(found)))
            if found.version > self._opened.version:
                with suppress(RemoteMissingError):
                    files.update(
                        map(
                            _content,
                            data_files(
                                read_manifest(objects, version_name(self._opened.version), within=ASKED_S)
                            ),
                        )
                    )
            return files
        except RemoteMissingError:
            return set()
        except (DatasetError, RuntimeError):
            return None


def _content(file: DataFile) -> _Content:
    return file.name, file.parts
