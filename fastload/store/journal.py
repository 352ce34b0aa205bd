"""Journal: the description of an unfinished dataset in progress.json, with which a pack goes on after a kill."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from fastload.common.files import read_regular
from fastload.errors import PackError
from fastload.store import checked
from fastload.store.checked import get_int, get_list, get_object
from fastload.store.manifest import CLUSTER_FORMAT, JOURNAL_NAME, MANIFEST_BYTES, check_version, write_atomically

SHARD_SIZE_LIMIT = 1 << 40

_FORMAT = "fastload-progress"
_VERSION = 1


@dataclass(frozen=True)
class CompleteShard:
    """A closed shard that has to be synced and added to the journal."""

    file: str
    first: int
    key: int
    count: int
    columns: dict[str, int]
    state: dict[str, Any]
    noted: bytes


@dataclass(frozen=True)
class Journal:
    """What progress.json says, as JSON values. NOTE [ writer: what is durable when ] says when it is written.

    Attributes:
        schema: the fields of every sample.
        options: the options of the pack.
        shard_size: bytes after which a new shard begins.
        shards: the complete shards, as the manifest stores them.
        state: what the packer needs to go on.
        log: length and checksum of progress.samples.
        objects: of a pack to a URL: what is known of the objects that the shards have become, by name.
    """

    schema: object
    options: Mapping[str, Any]
    shard_size: int
    shards: Sequence[object]
    state: Mapping[str, Any]
    log: object
    objects: Mapping[str, Any] = field(default_factory=dict)

    def write(self, folder: Path, durable: bool = True) -> None:
        """Writes it into a folder, by rename. Raises OSError."""
        content = {
            "format": _FORMAT,
            "version": _VERSION,
            "schema": self.schema,
            "options": dict(self.options),
            "shard_size": self.shard_size,
            "shards": list(self.shards),
            "state": dict(self.state),
            "log": self.log,
            **({"objects": dict(self.objects)} if self.objects else {}),
        }
        write_atomically(folder / JOURNAL_NAME, checked.seal(content), durable)

    @classmethod
    def load(cls, folder: Path) -> Journal:
        """The journal in a folder.

        Raises:
            DatasetError: it is of a later version, or damaged.
            PackError: it is that of a pack on a cluster.
            Bad: a value is not of its type.
            OSError: it cannot be read.
        """
        path = folder / JOURNAL_NAME
        content = checked.parse(read_regular(path, MANIFEST_BYTES), str(path))
        if is_cluster(content):
            raise PackError(f"{folder} was begun on a cluster: go on with ray= (--ray), or --overwrite starts again")
        check_version(content, _FORMAT, _VERSION, str(path))
        content = checked.unseal(content, str(path))
        return cls(
            schema=content.get("schema"),
            options=get_object(content.get("options"), "the options"),
            shard_size=get_int(content.get("shard_size"), "the shard size", 1, SHARD_SIZE_LIMIT),
            shards=get_list(content.get("shards"), "the shard list"),
            state=get_object(content.get("state"), "the packer's state"),
            log=content.get("log"),
            objects=get_object(content.get("objects", {}), "the objects"),
        )


def is_cluster(content: Mapping[str, Any]) -> bool:
    """Whether a journal's content is that of a pack on a cluster."""
    return content.get("format") == CLUSTER_FORMAT


Begun = tuple[object, Mapping[str, Any], int]
"""Schema, options and shard size of a pack, as the journal has them."""


def check_same(title: str, begun: Begun, now: Begun, varying: Collection[str]) -> None:
    """Checks that a pack is resumed as it was begun.

    Raises:
        PackError: the fields differ, or an option that is not in `varying`.
    """
    if begun[0] != now[0]:
        raise PackError(f"{title} was begun with other fields, so it cannot be resumed: --overwrite starts again")
    before, after = ({**options, "shard_size": size} for _, options, size in (begun, now))
    for name in sorted((before.keys() | after.keys()) - set(varying)):
        if before.get(name) != after.get(name):
            raise PackError(
                f"{title} was begun with {name}={before.get(name)!r}, now it is {after.get(name)!r}: "
                "resume with the same options, or --overwrite starts again"
            )
