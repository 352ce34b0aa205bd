"""ReplacedCheck: whether the dataset at a URL is still the one that was opened, asked after bytes of it were missing or wrong.

Ranges are not asked for with If-Match. The checksum of each record says more than an ETag: bytes of another object never pass for those of
a sample, and an object that was uploaded again as it was, which changes its ETag, goes on being read. A range with a check of the ETag
takes obstore two calls and a fifth more CPU, and the ETags of all shards are requests that opening a dataset does not need.
"""

from __future__ import annotations

import asyncio
import threading
import time
from contextlib import suppress

from fastload.errors import DatasetError, RemoteMissingError
from fastload.remote.files import read_manifest
from fastload.remote.objects import Objects
from fastload.store.entries import ShardEntry
from fastload.store.manifest import Manifest, version_name
from fastload.store.sidecar import Identity, identity

LIMIT_S = 5.0
"""Seconds that an answer is waited for, and for which it counts."""


class ReplacedCheck:
    """What the manifest at a dataset's URL says by now. For the thread that fetches.

    Args:
        objects: of the dataset.
        opened: its manifest when it was opened; None: that is not known, and nothing is ever said.
    """

    def __init__(self, objects: Objects, opened: Manifest | None) -> None:
        self._objects = objects
        self._opened = opened
        self._asked = 0.0
        self._answer: asyncio.Future[set[Identity] | None] | None = None

    async def words(self, shard: ShardEntry) -> str:
        """What became of the dataset that a shard belongs to; "": nothing that is known."""
        if self._opened is None:
            return ""
        now = time.monotonic()
        if self._answer is None or now - self._asked > LIMIT_S:
            self._asked, self._answer = now, self._ask()
        try:
            known = await asyncio.wait_for(asyncio.shield(self._answer), LIMIT_S)
        except (TimeoutError, asyncio.TimeoutError):
            return ""
        if known is None or identity(shard) in known:
            return ""
        if not known:
            return "the dataset there was deleted after it was opened"
        return "the dataset there was replaced by another after it was opened: open it again"

    def _ask(self) -> asyncio.Future[set[Identity] | None]:
        """Reads the manifest in a thread of its own."""
        loop = asyncio.get_running_loop()
        answer: asyncio.Future[set[Identity] | None] = loop.create_future()

        def settle(found: set[Identity] | None) -> None:
            if not answer.done():
                answer.set_result(found)

        def run() -> None:
            found = self._now()
            with suppress(RuntimeError):  # the loop has ended
                loop.call_soon_threadsafe(settle, found)

        threading.Thread(target=run, name="fastload-manifest", daemon=True).start()
        return answer

    def _now(self) -> set[Identity] | None:
        """The shards that the manifests at the URL name; none if there is no dataset; None where nobody answers."""
        assert self._opened is not None
        try:
            found = read_manifest(self._objects)
            if found.version > self._opened.version:
                with suppress(RemoteMissingError):
                    old = read_manifest(self._objects, version_name(self._opened.version))
                    return {identity(shard) for shard in (*found.shards, *old.shards)}
            return {identity(shard) for shard in found.shards}
        except RemoteMissingError:
            return set()
        except (DatasetError, RuntimeError):
            return None
