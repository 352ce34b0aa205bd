"""A packed dataset on disk: its schema, its manifest, its shards, and how they are read and written."""

from fastload.store.change import DatasetChange, numbered
from fastload.store.entries import Segment, ShardEntry, file_path
from fastload.store.field import Field
from fastload.store.kinds.base import COUNT_COLUMN, HEIGHT_COLUMN, WIDTH_COLUMN, RowError
from fastload.store.kinds.pictures import StoredImage
from fastload.store.kinds.rows import BOX_SIDES
from fastload.store.manifest import JOURNAL_NAME, MANIFEST_NAME, Manifest, old_versions
from fastload.store.reader import DatasetReader, parse_value, stored_size
from fastload.store.rewrite import DatasetRewriter, ShardRewrite
from fastload.store.schema import CRC_COLUMN, Schema, indexed_image, with_index
from fastload.store.shard import Prepared, file_crc32c
from fastload.store.writer import DatasetWriter

__all__ = [
    "BOX_SIDES",
    "COUNT_COLUMN",
    "CRC_COLUMN",
    "HEIGHT_COLUMN",
    "JOURNAL_NAME",
    "MANIFEST_NAME",
    "WIDTH_COLUMN",
    "DatasetChange",
    "DatasetReader",
    "DatasetRewriter",
    "DatasetWriter",
    "Field",
    "Manifest",
    "Prepared",
    "RowError",
    "Schema",
    "Segment",
    "ShardEntry",
    "ShardRewrite",
    "StoredImage",
    "file_crc32c",
    "file_path",
    "indexed_image",
    "numbered",
    "old_versions",
    "parse_value",
    "stored_size",
    "with_index",
]
