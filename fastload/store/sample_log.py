"""SampleLog: the file progress.samples of an unfinished dataset. Its entries let a resume check that the source has not changed.

The journal holds the valid length of the file, and its checksum; entries after that belong to an unfinished shard.
"""

from __future__ import annotations

import os
from pathlib import Path

from fastload._native import core
from fastload.common.files import open_regular
from fastload.store.checked import Bad, get_int, get_object
from fastload.store.entries import COUNT_LIMIT

LOG_NAME = "progress.samples"


class SampleLog:
    """Log of packed samples, a file in the dataset's folder.

    The thread that appends samples calls `note` and `cut`; the thread that completes shards calls `extend`.

    Attributes:
        content: the entries that the journal covered when the dataset was opened for a resume; b"" otherwise.
    """

    def __init__(self, folder: Path) -> None:
        self._path = folder / LOG_NAME
        self._pending = bytearray()
        self._size = 0
        self._crc = 0
        self.content = b""

    def note(self, entry: bytes) -> None:
        """Adds an entry, which is stored with the shard of the next sample."""
        self._pending += entry

    def cut(self) -> bytes:
        """Returns the entries added since the last call."""
        entries = bytes(self._pending)
        self._pending.clear()
        return entries

    def extend(self, entries: bytes) -> None:
        """Appends entries to the file and syncs it, so that a journal may name them. Raises OSError."""
        if entries:
            if not self._size:
                self.remove()
            with open(self._path, "r+b" if self._size else "xb") as file:
                file.truncate(self._size)
                file.seek(self._size)
                file.write(entries)
                file.flush()
                os.fsync(file.fileno())
        self._size += len(entries)
        self._crc = core.crc32c(entries, self._crc)

    def to_json(self) -> dict[str, int]:
        """The length and checksum of the file, for the journal."""
        return {"bytes": self._size, "crc32c": self._crc}

    def load(self, value: object) -> None:
        """Reads the file, and checks it against the journal's length and checksum.

        Raises:
            Bad: the file does not match.
            OSError: it cannot be read.
        """
        stored = get_object({"bytes": 0, "crc32c": 0} if value is None else value, "the log of samples")
        size = get_int(stored.get("bytes"), "the size of the log of samples", 0, COUNT_LIMIT)
        crc = get_int(stored.get("crc32c"), "the checksum of the log of samples", 0, 2**32 - 1)
        content = b""
        if size:
            with open(open_regular(self._path)[0], "rb") as file:
                if os.fstat(file.fileno()).st_size >= size:
                    content = file.read(size)
        if len(content) != size or core.crc32c(content) != crc:
            raise Bad(f"{LOG_NAME} is not of the size and checksum that it names")
        self._size, self._crc, self.content = size, crc, content

    def remove(self) -> None:
        """Removes the file. Raises OSError."""
        self._path.unlink(missing_ok=True)
