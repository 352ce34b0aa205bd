"""UnpackFolder: the folder that an unpack writes, which the same unpack goes on with after it was stopped.

NOTE [ unpack: whose files ]
While it is unfinished, the folder has a folder `.fastload-unpack` in it: `state.json`, which says which data
are unpacked in which layout, and the text files that are not complete. It is made in an empty folder alone,
so everything beside it is of that unpack, or was put there since. No file is ever replaced unless its bytes
are a beginning of those that belong there, as of a write that was cut off; any other is left as it is, and is
an error. With the last file the folder of the state goes, and nobody goes on from there.
"""

from __future__ import annotations

import fcntl
import filecmp
import hashlib
import json
import os
import shutil
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Literal

from fastload.common.files import read_regular
from fastload.errors import PackError
from fastload.sources.unpacked import UNFINISHED
from fastload.store import Manifest

Layout = Literal["folders", "pairs", "coco"]
"""Layouts that `unpack` writes."""
_STATE = "state.json"
_STATE_BYTES = 1 << 16


class UnpackFolder:
    """The folder of one unpack. See NOTE [ unpack: whose files ].

    Attributes:
        path: the folder.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._parts = path / UNFINISHED
        self._names: list[str] = []

    @contextmanager
    def opened(self, manifest: Manifest, layout: Layout) -> Iterator[None]:
        """Makes the folder, or goes on with it, and completes it if what is done with it raises nothing.

        Raises:
            PackError: it is not empty; other data or another layout are in it; or another process is
                unpacking into it.
            OSError: it cannot be made.
        """
        state = {"data": hashlib.sha256(manifest.to_bytes()).hexdigest(), "layout": layout}
        self.path.mkdir(parents=True, exist_ok=True)
        if not self._parts.is_dir():
            if any(self.path.iterdir()):
                raise PackError(f"{self.path} is not empty; choose a folder that is, or does not exist")
            self._parts.mkdir()
        with open(self._parts / _STATE, "a+b") as file:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                raise PackError(
                    f"another process is unpacking into {self.path}: choose another folder"
                ) from None
            if not os.path.exists(file.name):  # the other process has just finished
                raise PackError(f"{self.path} is not empty; choose a folder that is, or does not exist")
            self._check(file, state)
            yield
            self._complete()
            shutil.rmtree(self._parts)

    def _check(self, file: IO[bytes], state: dict[str, str]) -> None:
        """Writes the state, or compares it with that of the unpack that was stopped."""
        file.seek(0)
        written = file.read(_STATE_BYTES)
        if not written:
            file.write(json.dumps(state).encode())
            file.flush()
            return
        try:
            found = json.loads(written)
        except ValueError:
            found = None
        if found != state:
            other = "layout" if isinstance(found, dict) and found.get("data") == state["data"] else "data"
            raise PackError(
                f"{self.path} has a part of an unpack of other {other} in it: remove it, or choose "
                "another folder"
            )

    def make(self, name: str) -> None:
        """Makes a folder in it. Raises OSError; FileExistsError if something else has that name."""
        try:
            (self.path / name).mkdir()
        except FileExistsError:
            if not stat.S_ISDIR(os.lstat(self.path / name).st_mode):
                raise

    def write(self, name: str, content: bytes) -> None:
        """Writes a file, or leaves the one that is whole. Raises OSError; FileExistsError if it is
        another. Any thread may call it."""
        path = self.path / name
        try:
            with open(path, "xb") as file:
                file.write(content)
        except FileExistsError:
            found = (
                read_regular(path, len(content))
                if os.lstat(path).st_size <= len(content)
                else b"\0" + content
            )
            if not content.startswith(found):
                raise
            if len(found) < len(content):
                with open(path, "r+b") as file:
                    file.seek(len(found))
                    file.write(content[len(found) :])

    def open_text(self, name: str) -> IO[str]:
        """Opens a text file that gets its place in the folder when all is complete. Raises OSError."""
        self._names.append(name)
        return open(self._part(name), "w", encoding="utf-8")

    def _part(self, name: str) -> Path:
        return self._parts / name.replace("/", "-")

    def _complete(self) -> None:
        """Puts the text files into their places. Raises FileExistsError if another file lies there."""
        for name in self._names:
            part, path = self._part(name), self.path / name
            try:
                os.link(part, path, follow_symlinks=False)
            except FileExistsError as error:
                if not _same_file(part, path):
                    raise FileExistsError(error.errno, error.strerror, str(path)) from None
            except OSError:  # a file system without hard links
                if os.path.lexists(path):
                    raise
                os.rename(part, path)


def _same_file(part: Path, path: Path) -> bool:
    return stat.S_ISREG(os.lstat(path).st_mode) and filecmp.cmp(part, path, shallow=False)
