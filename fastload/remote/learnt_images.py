"""LearntImages: what is learnt of the images in foreign objects when they are first read, kept in a cache
folder for later epochs and runs. StoredIndexes: the part of it that a dataset has itself."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Mapping
from contextlib import suppress

import numpy as np
import numpy.typing as npt

from fastload._native import core
from fastload.errors import FastloadError
from fastload.remote.dataset_cache import CachedShard
from fastload.remote.kept_table import CachePlace, KeptTable
from fastload.store.manifest import Manifest
from fastload.store.reader import FACTS_BYTES
from fastload.store.segment_file import SegmentFile, values_at

_SLAB = 1 << 20
"""Bytes of one grant: indexes of about 600 images."""
_TOGETHER = 4096
"""Most rows of which the indexes are read together."""
_INDEX_MOST = 1 << 24
"""Limit on the bytes of an index."""


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


class StoredIndexes:
    """Entropy indexes that a dataset has of images in foreign objects, since these were checked. They are
    given to its readers as the images come, so that the first reading of one need not read all of it.

    A segment that is not on this host is fetched meanwhile; images that come before it do without.

    Args:
        store: the open shards, which learn.
        shards: the shards in the cache that have indexes, each with its indexes and the function that tells
            the sample of a stored row; by number.
    """

    def __init__(
        self,
        store: core.Store,
        shards: Mapping[int, tuple[CachedShard, SegmentFile, Callable[[int], int]]],
    ) -> None:
        self._store, self._shards = store, shards
        self._brought: set[int] = set()

    def give(self, number: int, first: int, last: int, bring: Callable[[SegmentFile], None]) -> None:
        """Gives readers the indexes of images in units first .. last of a shard, which have come. Damaged
        ones are left out: readers make them anew. `bring` begins to fetch a segment."""
        if number not in self._shards or last >= self._shards[number][0].grouped:
            return
        shard, file, sample_of = self._shards[number]
        try:
            with suppress(FastloadError):
                self._give(shard, file, sample_of, shard.groups.records(first, last)[2])
        except OSError:
            if number not in self._brought:
                self._brought.add(number)
                bring(file)

    def _give(
        self,
        shard: CachedShard,
        file: SegmentFile,
        sample_of: Callable[[int], int],
        rows: npt.NDArray[np.int64],
    ) -> None:
        samples = [(row, sample) for row in rows.tolist() if (sample := sample_of(row)) >= 0]
        lacking = {row: sample for row, sample in samples if not self._store.knows(sample)}
        if not lacking or max(lacking) - min(lacking) >= _TOGETHER:
            return
        found = values_at(file, shard.entry.stored, min(lacking), max(lacking), _INDEX_MOST)
        crcs = shard.groups.checksums(np.array([*lacking], np.int64)).tolist()
        for (row, sample), crc in zip(lacking.items(), crcs, strict=True):
            if index := found[row - min(lacking)]:
                self._store.take_index(sample, crc, index)


def _digest(manifest: Manifest) -> str:
    """Tells the images of a dataset, in their order, from any others."""
    known = [
        (shard.crc32c, shard.bytes, shard.count, None if shard.rows is None else shard.rows.crc32c)
        for shard in manifest.shards
    ]
    return hashlib.blake2b(json.dumps(known).encode(), digest_size=16).hexdigest()
