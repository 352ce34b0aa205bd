"""LearntImages: what is learnt of the images in foreign objects when they are first read, kept in a cache
folder for later epochs and runs."""

from __future__ import annotations

import hashlib
import json

from fastload._native import core
from fastload.remote.kept_table import CachePlace, KeptTable
from fastload.store.manifest import Manifest
from fastload.store.reader import FACTS_BYTES

_SLAB = 1 << 20
"""Bytes of one grant: indexes of about 600 images."""


class LearntImages(KeptTable):
    """A table of what is learnt of a dataset's images, and of their entropy indexes.

    Args:
        place: the cache folder.
        url: URL of the dataset.
        manifest: the dataset's.
        store: its open shards, which learn from now on: in memory where the folder takes nothing.

    Raises:
        ArgumentError, DatasetError: as of KeptTable.
    """

    def __init__(self, place: CachePlace, url: str, manifest: Manifest, store: core.Store) -> None:
        self._store: core.Store | None = store
        super().__init__(place, url, "learnt", _digest(manifest), manifest.count, _SLAB)
        if self._kept is None:
            store.learn(FACTS_BYTES)
        self._store = None  # which refers to the table

    def _begin(self, name: str, is_new: bool) -> None:
        assert self._store is not None
        self._store.learn(FACTS_BYTES, self._table)


def _digest(manifest: Manifest) -> str:
    """Tells the images of a dataset, in their order, from any others."""
    known = [
        (shard.crc32c, shard.bytes, shard.count, None if shard.rows is None else shard.rows.crc32c)
        for shard in manifest.shards
    ]
    return hashlib.blake2b(json.dumps(known).encode(), digest_size=16).hexdigest()
