"""Files of a pack on a cluster that are gone at its end: progress.json of the driver, and the done-record
and section of each shard."""

from __future__ import annotations

import base64
import binascii
import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from fastload.errors import DatasetError, PackError
from fastload.store import Schema, ShardEntry
from fastload.store.checked import Bad, get_int, get_object, get_str, parse, seal, unseal
from fastload.store.entries import parse_shards, shard_name
from fastload.store.manifest import CLUSTER_FORMAT, JOURNAL_NAME, MANIFEST_BYTES, check_version
from fastload.store.progress import is_cluster

SECTION_MOST = 1 << 40
"""Limit on the bytes of a section."""
_DONE_FORMAT = "fastload-done"
_VERSION = 1
_NUMBER_MOST = 10**9 - 1


def done_name(number: int) -> str:
    """The name of the done-record of the shard of this number."""
    return f"shard-{number:05d}.done"


def section_name(number: int) -> str:
    """The name of its section of the sidecar."""
    return f"shard-{number:05d}.section"


def names_of(number: int) -> tuple[str, str, str]:
    """The names of the shard of this number, of its section, and of its done-record."""
    return shard_name(number), section_name(number), done_name(number)


@dataclass(frozen=True)
class ClusterJournal:
    """Content of progress.json for a pack on a cluster.

    Attributes:
        token: token of the driver that wrote it last.
        schema: the fields of every sample, as JSON values.
        options: the options of the pack, `shard_samples` among them.
        offset: number in the name of the first shard.
    """

    token: str
    schema: object
    options: Mapping[str, Any]
    offset: int

    def to_bytes(self) -> bytes:
        """The file's content."""
        content = {
            "token": self.token,
            "schema": self.schema,
            "options": dict(self.options),
            "offset": self.offset,
        }
        return seal({"format": CLUSTER_FORMAT, "version": _VERSION, **content})

    @classmethod
    def from_bytes(cls, data: bytes, title: str) -> ClusterJournal:
        """Parses progress.json of the dataset `title`.

        Raises:
            PackError: it is not that of a pack on a cluster, or damaged.
        """
        what = f"{title}/{JOURNAL_NAME}"
        try:
            content = parse(data, what)
            if not is_cluster(content):
                raise PackError(
                    f"{title} was begun on one machine, or is a download: go on without a cluster, "
                    "or --overwrite starts again"
                )
            check_version(content, CLUSTER_FORMAT, _VERSION, what)
            content = unseal(content, what)
            return cls(
                token=get_str(content.get("token"), "the token"),
                schema=content.get("schema"),
                options=get_object(content.get("options"), "the options"),
                offset=get_int(content.get("offset"), "the first number", 0, _NUMBER_MOST),
            )
        except (Bad, DatasetError) as error:
            raise PackError(f"{what} does not hold ({error}): --overwrite starts again") from None


@dataclass(frozen=True)
class DoneRecord:
    """Record of the shard of one range of the order, once it is published.

    Attributes:
        shard: its entry in the manifest, as if it were alone in a dataset; None: all samples of the range
            were left out: there is no shard.
        etag: ETag of its object at a URL; None in a folder, and for stores that have none.
        section: size and CRC32C of its section of the sidecar.
        state: the tally of the range, as `Tally.state` returns it.
    """

    shard: ShardEntry | None
    etag: str | None
    section: tuple[int, int]
    state: Mapping[str, Any]

    def to_bytes(self, identity: str, log: bytes) -> bytes:
        """The file's content, with the identity of the job and the log of the range's samples.

        Raises:
            PackError: it would be larger than what is read again.
        """
        content = {
            "identity": identity,
            "shard": None if self.shard is None else self.shard.to_json(),
            "etag": self.etag,
            "section": list(self.section),
            "state": dict(self.state),
            "log": base64.b64encode(log).decode(),
        }
        data = seal({"format": _DONE_FORMAT, "version": _VERSION, **content})
        if len(data) > MANIFEST_BYTES:
            raise PackError(
                f"the done-record of a shard would have {len(data):,} bytes: choose a smaller shard_samples"
            )
        return data

    @classmethod
    def from_bytes(
        cls, data: bytes, identity: str, schema: Schema, key: int, name: str
    ) -> tuple[DoneRecord, bytes]:
        """The record in `data`, and the log, of the shard `name` whose first key is `key`.

        Raises:
            Bad, DatasetError: it is another job's, or damaged.
        """
        content = parse(data, name)
        check_version(content, _DONE_FORMAT, _VERSION, name)
        content = unseal(content, name)
        if content.get("identity") != identity:
            raise Bad("it is another job's")
        shard = None
        if content.get("shard") is not None:
            (shard,) = parse_shards([content["shard"]], schema, later=True)
            if (shard.file, shard.key) != (name, key):
                raise Bad("it is another shard's")
        etag = content.get("etag")
        section = content.get("section")
        if not isinstance(section, list) or len(section) != 2:
            raise Bad("its section is not a size and a checksum")
        sizes = (
            get_int(section[0], "its size", 0, SECTION_MOST),
            get_int(section[1], "its checksum", 0, 2**32 - 1),
        )
        try:
            log = base64.b64decode(get_str(content.get("log"), "the log"), validate=True)
        except binascii.Error:
            raise Bad("its log is no base64") from None
        return cls(
            shard,
            None if etag is None else get_str(etag, "the ETag"),
            sizes,
            get_object(content.get("state"), "the tally"),
        ), log


def job_identity(schema: Schema, options: Mapping[str, Any], varying: tuple[str, ...]) -> str:
    """Digest of what a shard's bytes depend on besides its samples: the fields, and the options that a
    resume may not change."""
    kept = {name: value for name, value in options.items() if name not in varying}
    text = json.dumps([schema.to_json(), kept], sort_keys=True)
    return hashlib.blake2b(text.encode(), digest_size=16).hexdigest()
