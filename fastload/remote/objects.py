"""Objects: the objects below one URL, as the rest of fastload reads and writes them; clients of obstore and fsspec implement it."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from typing_extensions import Buffer


@dataclass(frozen=True)
class ObjectInfo:
    """What a store says of one object.

    Attributes:
        name: relative to the URL, without a leading slash.
        size: bytes.
        etag: the store's tag of these contents; None where it has none.
    """

    name: str
    size: int
    etag: str | None = None


class Objects(ABC):
    """The objects below one URL.

    1. It belongs to the process that made it: a connection is never shared by two. A forked child makes its own, by `open_objects`.
    2. Any thread may call the blocking methods. `fetch` is awaited on a running asyncio loop; cancelling it ends the request.
    3. Each call is tried again, with a growing pause, until `timeout` seconds have passed since it began; then RemoteError says what
       failed, where, and after how many tries. What trying again cannot mend (no such object, access denied) is raised at once.
    4. A body that is shorter or longer than what was asked for is a failed try, never a result.

    Attributes:
        url: for messages: without credentials, and without a slash at its end.
    """

    url: str

    @abstractmethod
    def get(self, name: str, limit: int) -> bytes:
        """The whole object. Raises RemoteError; RemoteMissingError if there is none; more than `limit` bytes are an error."""

    @abstractmethod
    def get_range(self, name: str, start: int, stop: int) -> Buffer:
        """Bytes start .. stop-1 of an object, as it is now: whether it is still the one that was opened, checksums say."""

    @abstractmethod
    async def fetch(self, name: str, start: int, stop: int) -> Buffer:
        """The same, awaited."""

    @abstractmethod
    def head(self, name: str) -> ObjectInfo:
        """Size and ETag of an object."""

    @abstractmethod
    def list(self) -> list[ObjectInfo]:
        """All objects below the URL."""

    @abstractmethod
    def put(self, name: str, data: bytes) -> None:
        """Writes a small object in one request."""

    @abstractmethod
    def put_file(self, name: str, path: Path, sent: Callable[[int], None] | None = None) -> None:
        """Uploads a file, in parts where it is large. An interrupted upload leaves no object. `sent` is told the bytes of each part."""

    @abstractmethod
    def delete(self, name: str) -> None:
        """Removes an object; it is no error if there is none."""

    @abstractmethod
    def close(self) -> None:
        """Ends connections; idempotent."""
