"""Depots: the folder or URL into which the tasks of a pack put what they made, as they and the driver see
it."""

from __future__ import annotations

import os
import secrets
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING

from fastload.common.files import read_regular, scratch_folder
from fastload.common.urls import is_url
from fastload.errors import RemoteMissingError
from fastload.store.manifest import sync_folder
from fastload.store.progress import PART_END

if TYPE_CHECKING:
    from fastload.remote.objects import Objects


class Depot(ABC):
    """The files of OUT. A file gets its name once it is complete, so that nobody sees a part of one.

    Attributes:
        title: OUT, for messages.
    """

    title: str

    @abstractmethod
    def read(self, name: str, limit: int) -> bytes | None:
        """A file's content; None if there is no such file. Raises OSError."""

    @abstractmethod
    def find(self, name: str) -> tuple[int, str | None] | None:
        """Size and ETag of a file; None if there is no such file. Raises OSError."""

    @abstractmethod
    def write(self, name: str, data: bytes) -> None:
        """Makes or replaces a small file. Raises OSError."""

    @abstractmethod
    def making(self, name: str) -> AbstractContextManager[Path]:
        """A context with the path at which the file of this name is to be made; what is left there at the
        end is removed."""

    @abstractmethod
    def publish(self, path: Path, name: str) -> str | None:
        """Gives a file made at a path of `making` its name; returns its ETag. Raises OSError."""

    @abstractmethod
    def discard(self, name: str) -> None:
        """Removes what a killed process left of the file of this name. Raises OSError."""

    @abstractmethod
    def close(self) -> None:
        """Ends connections; idempotent."""


class FolderDepot(Depot):
    """A folder that all nodes share. Files are made in it, under temporary names."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.title = str(folder)

    def read(self, name: str, limit: int) -> bytes | None:
        try:
            return read_regular(self.folder / name, limit)
        except FileNotFoundError:
            return None

    def find(self, name: str) -> tuple[int, str | None] | None:
        try:
            return os.stat(self.folder / name).st_size, None
        except FileNotFoundError:
            return None

    def write(self, name: str, data: bytes) -> None:
        with self.making(name) as path:
            with open(path, "xb") as file:
                file.write(data)
                file.flush()
                os.fsync(file.fileno())
            self.publish(path, name)

    @contextmanager
    def making(self, name: str) -> Iterator[Path]:
        path = self.folder / f"{name}.{secrets.token_hex(8)}{PART_END}"
        try:
            yield path
        finally:
            with suppress(OSError):
                path.unlink()

    def publish(self, path: Path, name: str) -> str | None:
        os.replace(path, self.folder / name)
        sync_folder(self.folder)
        return None

    def discard(self, name: str) -> None:
        for path in self.folder.glob(f"{name}.*{PART_END}"):
            path.unlink(missing_ok=True)

    def close(self) -> None:
        pass


class BucketDepot(Depot):
    """The objects below a URL. Files are made in a folder of the node."""

    def __init__(self, objects: Objects, staging: str | None) -> None:
        self.objects = objects
        self.title = objects.url
        self._staging = staging

    def read(self, name: str, limit: int) -> bytes | None:
        try:
            return self.objects.get(name, limit)
        except RemoteMissingError:
            return None

    def find(self, name: str) -> tuple[int, str | None] | None:
        try:
            info = self.objects.head(name)
        except RemoteMissingError:
            return None
        return info.size, info.etag

    def write(self, name: str, data: bytes) -> None:
        self.objects.put(name, data)

    @contextmanager
    def making(self, name: str) -> Iterator[Path]:
        with scratch_folder("cluster", self._staging) as folder:
            yield folder / name

    def publish(self, path: Path, name: str) -> str | None:
        self.objects.put_file(name, path)
        return self.objects.head(name, known=True).etag

    def discard(self, name: str) -> None:
        pass  # it lies on the node that made it, where the next task removes it (scratch_folder)

    def close(self) -> None:
        self.objects.close()


def open_depot(
    out: str, storage_options: Mapping[str, object] | None, staging: str | None, timeout: float | str | None
) -> Depot:
    """The depot of an OUT, for the calling process. Raises ArgumentError."""
    if not is_url(out):
        return FolderDepot(Path(out))
    from fastload.remote.client import open_objects

    return BucketDepot(open_objects(out, storage_options, 60.0 if timeout is None else timeout), staging)
