"""LearntImages: what is learnt of the images in foreign objects when they are first read, kept in a cache
folder for later epochs and runs. StoredIndexes: the part of it that a dataset has itself."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress

import numpy as np

from fastload._native import core
from fastload.errors import FastloadError
from fastload.remote.dataset_cache import CachedShard
from fastload.remote.kept_table import CachePlace, KeptTable
from fastload.store.manifest import Manifest
from fastload.store.reader import FACTS_BYTES
from fastload.store.segment_file import SegmentFile, value_at

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


class StoredIndexes:
    """Entropy indexes that a dataset has of images in foreign objects, since these were checked. They are
    given to its readers as the images come, so that the first reading of one need not read all of it.

    A segment that is not on this host is fetched meanwhile; images that come before it do without.

    Args:
        store: the open shards, which learn.
        shards: the shards in the cache that have indexes, each with its indexes and the function that tells
            the sample of a stored row; by number.
        bring: begins to fetch a segment.
    """

    def __init__(
        self,
        store: core.Store,
        shards: Mapping[int, tuple[CachedShard, SegmentFile, Callable[[int], int]]],
        bring: Callable[[SegmentFile], None],
    ) -> None:
        self._store, self._shards, self._bring = store, shards, bring
        self._brought: set[int] = set()

    def give(self, units: Iterable[tuple[int, int]]) -> None:
        """Gives readers the indexes of images in units that have come. Damaged ones are left out: readers
        make them anew."""
        for number, unit in units:
            if number in self._shards and unit < self._shards[number][0].grouped:
                shard, file, sample_of = self._shards[number]
                try:
                    self._give(shard, file, sample_of, unit)
                except OSError:
                    if number not in self._brought:
                        self._brought.add(number)
                        self._bring(file)

    def _give(
        self, shard: CachedShard, file: SegmentFile, sample_of: Callable[[int], int], unit: int
    ) -> None:
        for row in shard.groups.records(unit, unit)[2].tolist():
            sample = sample_of(row)
            with suppress(FastloadError):
                if sample < 0 or self._store.knows(sample):
                    continue
                index = value_at(file, shard.entry.stored, row, shard.groups.place(row)[1])
                if index:
                    crc = int(shard.groups.checksums(np.array([row]))[0])
                    self._store.take_index(sample, crc, index)


def _digest(manifest: Manifest) -> str:
    """Tells the images of a dataset, in their order, from any others."""
    known = [
        (shard.crc32c, shard.bytes, shard.count, None if shard.rows is None else shard.rows.crc32c)
        for shard in manifest.shards
    ]
    return hashlib.blake2b(json.dumps(known).encode(), digest_size=16).hexdigest()
