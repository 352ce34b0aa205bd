"""Manifest: the description of a packed dataset in manifest.json. It is written last, by rename; a folder without it is no dataset."""

from __future__ import annotations

import builtins
import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from fastload.errors import DatasetError
from fastload.files import expanded, read_regular
from fastload.store import checked
from fastload.store.checked import Bad, get_int, get_list, get_object, get_str, shown
from fastload.store.schema import CRC_COLUMN, Schema

FORMAT = "fastload"
VERSION = 1
MANIFEST_NAME = "manifest.json"
JOURNAL_NAME = "progress.json"
SHARD_NAME = re.compile(r"shard-[0-9]{5,9}\.lmdb")
MANIFEST_BYTES = 1 << 28
"""Limit on manifest.json and progress.json: a million classes with names of 100 bytes, or 200,000 shards, fit."""
LOST = f"holds shards, but its {MANIFEST_NAME} is lost: copy that file again from where the dataset came from"
COUNT_LIMIT = 2**48
"""Limit on samples, and on bytes of a shard: far above any dataset, and far below where arithmetic on them could overflow."""

_U32 = 2**32 - 1


@dataclass(frozen=True)
class ShardEntry:
    """The manifest's entry for one shard.

    Attributes:
        file: its name in the dataset's folder.
        first: index of its first sample.
        count: samples in it.
        bytes: size of the file.
        crc32c: CRC32C of the whole file.
        columns: CRC32C of its chunk of each column, by the column's name.
    """

    file: str
    first: int
    count: int
    bytes: int
    crc32c: int
    columns: Mapping[str, int]

    def to_json(self) -> dict[str, Any]:
        """The entry in the form that the manifest stores."""
        return {
            "file": self.file,
            "first": self.first,
            "count": self.count,
            "bytes": self.bytes,
            "crc32c": self.crc32c,
            "columns": dict(self.columns),
        }


def parse_shards(value: object, schema: Schema) -> tuple[ShardEntry, ...]:
    """Parses the shard list of a manifest or journal: plain file names, samples contiguous from 0, a checksum for every column.

    Raises:
        Bad: the list is invalid.
    """
    shards: list[ShardEntry] = []
    names: set[str] = set()
    next_index = 0
    columns = set(schema.columns)
    for number, each in enumerate(get_list(value, "the shard list")):
        what = f"of shard {number}"
        stored = get_object(each, f"the entry {what}")
        file = get_str(stored.get("file"), f"the file {what}")
        if not SHARD_NAME.fullmatch(file) or file in names:
            raise Bad(f"the file {what} is {shown(file)}, not a shard's name or not the only one of that name")
        first = get_int(stored.get("first"), f"the first sample {what}", 0, COUNT_LIMIT)
        if first != next_index:
            raise Bad(f"the first sample {what} is {first}, not {next_index}")
        count = get_int(stored.get("count"), f"the count {what}", 1, COUNT_LIMIT)
        size = get_int(stored.get("bytes"), f"the size {what}", 1, COUNT_LIMIT)
        crc = get_int(stored.get("crc32c"), f"the checksum {what}", 0, _U32)
        sums = get_object(stored.get("columns"), f"the column checksums {what}")
        if set(sums) != columns:
            raise Bad(f"the columns {what} are {shown(', '.join(sums))}, the schema's {shown(', '.join(sorted(columns)))}")
        checksums = {name: get_int(sums[name], f"the checksum of column {name} {what}", 0, _U32) for name in sums}
        shards.append(ShardEntry(file, first, count, size, crc, checksums))
        names.add(file)
        next_index += count
    return tuple(shards)


@dataclass(frozen=True)
class Manifest:
    """A packed dataset's description.

    Attributes:
        schema: the fields of every sample.
        shards: the files, in the order of their samples.
        classes: names of labels 0, 1, ...; None where labels are no classes.
        options: what it was packed with.
        summary: what packing counted.
    """

    schema: Schema
    shards: tuple[ShardEntry, ...]
    classes: Sequence[str] | None = None
    options: Mapping[str, Any] = field(default_factory=dict)
    summary: Mapping[str, Any] = field(default_factory=dict)

    @property
    def count(self) -> int:
        """Samples in all shards."""
        return sum(shard.count for shard in self.shards)

    @property
    def bytes(self) -> int:
        """Size of all shards."""
        return sum(shard.bytes for shard in self.shards)

    def same_samples(self, other: Manifest) -> bool:
        """Whether `other` has the same samples, judged by their number in each shard and the checksums of all columns but the records'."""

        def rows(manifest: Manifest) -> list[tuple[int, dict[str, int]]]:
            return [(shard.count, {name: crc for name, crc in shard.columns.items() if name != CRC_COLUMN}) for shard in manifest.shards]

        return self.schema == other.schema and rows(self) == rows(other)

    def to_bytes(self) -> builtins.bytes:
        """The file's content, with its own checksum. Raises ValueError or TypeError for values that JSON cannot represent."""
        return checked.seal(
            {
                "format": FORMAT,
                "version": VERSION,
                "count": self.count,
                "schema": self.schema.to_json(),
                "classes": None if self.classes is None else list(self.classes),
                "shards": [shard.to_json() for shard in self.shards],
                "options": dict(self.options),
                "summary": dict(self.summary),
            }
        )

    @classmethod
    def from_bytes(cls, data: builtins.bytes, path: Path) -> Manifest:
        """Parses the manifest in `data`; `path` is the dataset's folder, for error messages.

        Raises:
            DatasetError: the manifest is of a later version or damaged, or a value is out of range.
        """
        what = f"{path / MANIFEST_NAME}"
        content = checked.parse(data, what)
        check_version(content, FORMAT, VERSION, what)
        content = checked.unseal(content, what)
        try:
            return cls._from_json(content)
        except Bad as error:
            raise DatasetError(f"{what} does not hold ({error}): copy it again or pack again") from None

    @classmethod
    def _from_json(cls, content: dict[str, Any]) -> Manifest:
        schema = Schema.from_json(content.get("schema"))
        shards = parse_shards(content.get("shards"), schema)
        classes = content.get("classes")
        if classes is not None:
            classes = tuple(get_str(name, "a class") for name in get_list(classes, "the classes"))
        options = get_object(content.get("options"), "the options")
        summary = get_object(content.get("summary"), "the summary")
        manifest = cls(schema, shards, classes, options, summary)
        count = get_int(content.get("count"), "the count", 0, COUNT_LIMIT)
        if count != manifest.count:
            raise Bad(f"the count is {count}, the shards hold {manifest.count}")
        return manifest

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> Manifest:
        """Loads the manifest of the dataset in the folder `path`.

        Raises:
            DatasetError: there is no such folder, or no finished dataset in it, or its manifest is damaged or of a later version.
        """
        folder = Path(expanded(path))
        try:
            data = read_regular(folder / MANIFEST_NAME, MANIFEST_BYTES)
        except FileNotFoundError:
            raise _missing(folder) from None
        except NotADirectoryError:
            raise DatasetError(f"{folder} is a file; a packed dataset is a folder: make one with `fastload pack`") from None
        except OSError as error:
            raise DatasetError(f"cannot read {folder / MANIFEST_NAME}: {error.strerror}") from None
        return cls.from_bytes(data, folder)

    def write(self, path: str | os.PathLike[str]) -> None:
        """Writes the manifest into the folder `path` atomically: a reader finds the old file or the new one, never a part.

        Raises:
            OSError: it could not be written.
        """
        write_atomically(Path(path) / MANIFEST_NAME, self.to_bytes())


def _missing(folder: Path) -> DatasetError:
    if not folder.exists():
        return DatasetError(f"there is no {folder}: check the path, or pack it with `fastload pack SRC {folder}`")
    if looks_unfinished(folder) and not can_go_on(folder):
        return DatasetError(f"{folder} {LOST}, or pack again: `fastload pack SRC {folder} --overwrite`")
    if looks_unfinished(folder):
        return DatasetError(
            f"{folder} is unfinished: packing stopped before its end. "
            f"`fastload pack SRC {folder} --resume` finishes it, --overwrite starts again"
        )
    return DatasetError(f"{folder} holds no packed dataset (no {MANIFEST_NAME}): make one with `fastload pack SRC {folder}`")


def looks_unfinished(folder: Path) -> bool:
    """Whether a folder without a manifest holds parts of a dataset."""
    return any(name == JOURNAL_NAME or SHARD_NAME.fullmatch(name) for name in os.listdir(folder))


def can_go_on(folder: Path) -> bool:
    """Whether a pack that stopped in this folder can be resumed: its journal stays until the manifest is written."""
    return (folder / JOURNAL_NAME).exists()


def check_version(content: Mapping[str, Any], form: str, version: int, what: str) -> None:
    """Checks the format and version of a file, before anything else in it.

    Raises:
        DatasetError: the file has another format or a later version.
    """
    if content.get("format") != form:
        raise DatasetError(f"{what} is not fastload's (its format is {shown(content.get('format'))})")
    try:
        found = get_int(content.get("version"), "version", 1, 2**31)
    except Bad as error:
        raise DatasetError(f"{what} does not hold ({error}): copy it again or pack again") from None
    if found > version:
        raise DatasetError(
            f"{what} was written by a later fastload (format version {found}, this one reads {version}): "
            "upgrade fastload, or pack again with this version"
        )


def write_atomically(path: Path, data: bytes, durable: bool = True) -> None:
    """Writes a file atomically, through a temporary file renamed over `path`: a kill leaves the old file or the new one.

    Args:
        path: the file.
        data: its new content.
        durable: also syncs file and folder, so that this holds for a power failure too.
    """
    temporary = path.with_name(path.name + ".tmp")
    temporary.unlink(missing_ok=True)
    with open(temporary, "xb") as file:  # "x": an existing file might be a link to elsewhere, or a FIFO without a reader
        file.write(data)
        file.flush()
        if durable:
            os.fsync(file.fileno())
    os.replace(temporary, path)
    if durable:
        sync_folder(path.parent)


def sync_folder(folder: Path) -> None:
    """Syncs a folder, so that renames and removals in it survive a power failure."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
