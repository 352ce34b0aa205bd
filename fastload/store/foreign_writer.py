"""ForeignWriter: writes a dataset whose images stay in objects of a store: their places, and all other
fields.

NOTE [ foreign: what is durable when ]
1. Objects are added in their order, and written by parts: a file of values, then a sidecar with the places
   of their images; both are synced.
2. Then progress.json, the journal, names them, by rename. A resume goes on behind the objects that it names,
   and removes what it does not name.
3. The sidecars become one where there are many, before manifest.json names it, by rename, which makes the
   folder a dataset. The journal is removed after that.
"""

from __future__ import annotations

import builtins
import json
import os
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
import numpy.typing as npt

from fastload._native import core
from fastload.common.files import expanded
from fastload.errors import PackError, PackStoppedError
from fastload.store.checked import Bad, get_object
from fastload.store.entries import (
    ForeignObject,
    Segment,
    ShardEntry,
    parse_shards,
    parse_sidecars,
    shard_name,
)
from fastload.store.form import Form
from fastload.store.kinds.base import HEIGHT_COLUMN, WIDTH_COLUMN
from fastload.store.manifest import JOURNAL_NAME, MANIFEST_NAME, Manifest, sync_folder
from fastload.store.progress import (
    HoldsLock,
    Journal,
    check_free,
    check_same,
    claim_folder,
    clear,
    is_packed_file,
)
from fastload.store.schema import Schema
from fastload.store.segment_file import checked_value
from fastload.store.shard import write_error
from fastload.store.sidecar import (
    ROW_MOST,
    SIDECARS_MOST,
    foreign_section,
    open_sidecars,
    packed_values,
    write_sidecar,
)

_INDEXES_MOST = 64 << 20
"""Bytes of indexes after which a part is written."""
PART_SAMPLES = 1 << 20
"""Samples after which a part is written: their places take 16 bytes each until then."""
OBJECTS = "objects"
"""Option that tells of which objects a dataset is: another value is that of others."""
_GO_ON = "go on with resume=True (--resume)"


class OtherObjectsError(PackError):
    """A dataset is complete, or was begun, of other objects, or they were replaced since."""


@dataclass
class ForeignSamples:
    """Samples of one object.

    Attributes:
        object: the object.
        bytes: its size.
        places: u32 (samples, 4): low and high half of each image's offset, its size, and its CRC32C; 0: not
            known.
        objects: the value of each loose object, as `LooseObject.packed` makes it; None: it is one object.
        pages: the table of the object's pages, where places are in them; None: they are in the object.
        content: bytes of all images, about; None: those of their places.
        indexes: the entropy index of each image; None: they were not made.
        values: by name of each other field, its values as `ForeignWriter.column` takes them.
        sizes: int32 (samples, 2), height and width of each image; None: not known.
    """

    object: ForeignObject
    bytes: int
    places: npt.NDArray[np.uint32]
    values: Mapping[str, Sequence[Any]]
    sizes: npt.NDArray[np.int32] | None = None
    objects: Sequence[builtins.bytes] | None = None
    pages: builtins.bytes | None = None
    content: int | None = None
    indexes: Sequence[builtins.bytes] | None = None

    def __len__(self) -> int:
        return len(self.places)


def check_beside(schema: Schema, title: str) -> None:
    """Raises PackStoppedError for fields that cannot lie beside images elsewhere; `title`: of their
    source."""
    for each in schema:
        wide = each.is_column and each.row_bytes > ROW_MOST
        if each != schema.image and (wide or each.is_varying or not each.handler.can_be_added):
            raise PackStoppedError(
                f"{title}: field {each.name!r} ({each.kind}) cannot lie beside images that stay in a store: "
                "pack the source with `fastload pack`"
            )


class ForeignWriter(HoldsLock):
    """Writes a dataset of foreign objects. See NOTE [ foreign: what is durable when ].

    1. One thread calls it. `add` comes for each object, in order, then `finish`.
    2. Leaving a `with` block without `finish` leaves what was committed for a resume.

    Args:
        out: the dataset's folder; it must be empty or not exist, unless resume or overwrite is given.
        options: options of the run, as JSON values; a resume must have the same, but for `varying`.
        resume: goes on after the objects that the journal names.
        overwrite: removes a dataset, or parts of one, from the folder first.

    Attributes:
        state: the caller's own state after them, as `commit` was given it.
        count: samples so far.
        finished: the manifest of a dataset that was complete before a resume; None: it was not.

    Raises:
        OtherObjectsError: a resume finds other objects.
        PackError: the folder holds other files, cannot be resumed, or is being written by another process.
    """

    def __init__(
        self,
        out: str | os.PathLike[str],
        *,
        options: Mapping[str, object],
        varying: Collection[str] = (),
        resume: bool = False,
        overwrite: bool = False,
    ) -> None:
        self.out = Path(expanded(out))
        self._options: dict[str, Any] = json.loads(json.dumps(dict(options)))
        self._varying = varying
        self.state: dict[str, Any] = {}
        self.finished: Manifest | None = None
        self._schema: Schema | None = None
        self._shards: list[ShardEntry] = []
        self._sidecars: list[Segment] = []
        self._pending: list[ForeignSamples] = []
        self._indexes = 0  # bytes of those that are pending
        self._lock = claim_folder(self.out)
        try:
            check_free(self.out, str(self.out), resume=resume, overwrite=overwrite)
            if overwrite:
                clear(self.out)
            if resume:
                self._load()
            self._remove_leftovers()
        except BaseException:
            self.close()
            raise

    @property
    def count(self) -> int:
        return sum(shard.count for shard in self._shards) + sum(map(len, self._pending))

    def begin(self, schema: Schema) -> None:
        """Notes the fields of every sample, as `check_beside` finds them, before the first object. Raises
        PackError: a resume had others."""
        if self._schema is not None and self._schema != schema:
            raise PackError(
                f"{self.out} was begun with other fields, so it cannot be resumed: --overwrite starts again"
            )
        self._schema = schema

    def add(self, samples: ForeignSamples) -> None:
        """Adds the samples of the next object, of at least one."""
        assert len(samples)
        self._pending.append(samples)
        self._indexes += sum(map(len, samples.indexes or ()))

    @property
    def is_full(self) -> bool:
        """True once so much is pending that `commit` should come."""
        return sum(map(len, self._pending)) >= PART_SAMPLES or self._indexes >= _INDEXES_MOST

    def commit(self, state: Mapping[str, Any]) -> None:
        """Writes what is pending, so that a resume goes on behind it. Raises PackError: the disk is full or
        fails."""
        if not self._pending:
            return
        assert self._schema is not None
        number = len(self._sidecars)
        path = self.out / f"values-{number:05d}.bin"
        try:
            shards = self._write_values(path)
            assert self._schema is not None
            sections = {
                shard.file: foreign_section(shard, each.places, _columns(self._schema, each))
                for shard, each in zip(shards, self._pending, strict=True)
            }
            path = self.out / f"index-{number:05d}.bin"
            self._sidecars.append(
                write_sidecar(self.out, path.name, shards, lambda shard: sections[shard.file])
            )
            self._shards += shards
            self._pending, self._indexes = [], 0
            Journal(
                self._schema.to_json(),
                self._options,
                1,
                [shard.to_json() for shard in self._shards],
                {"run": dict(state), "sidecars": [sidecar.to_json() for sidecar in self._sidecars]},
                None,
            ).write(self.out)
        except Bad as error:
            raise PackError(f"{self._pending[0].object.url}: {error}") from None
        except OSError as error:
            raise write_error(path, 0, error, _GO_ON) from None

    def _write_values(self, path: Path) -> list[ShardEntry]:
        """Writes the fields of all pending samples into a file, and returns the entries of their objects.
        Raises OSError, PackError."""
        assert self._schema is not None
        shards: list[ShardEntry] = []
        first = sum(shard.count for shard in self._shards)
        with open(path, "xb") as file:
            for each in self._pending:
                added = {name: _written(file, path, data) for name, data in _texts(self._schema, each)}
                foreign = each.object
                if each.objects is not None:
                    foreign = replace(foreign, objects=_written(file, path, packed_values(each.objects)))
                if each.pages is not None:
                    foreign = replace(foreign, pages=_written(file, path, each.pages))
                if each.indexes is not None:
                    values = [checked_value(row, index) for row, index in enumerate(each.indexes)]
                    foreign = replace(foreign, indexes=_written(file, path, packed_values(values)))
                shards.append(
                    ShardEntry(
                        shard_name(len(self._shards) + len(shards)),
                        first,
                        len(each),
                        each.bytes,
                        foreign.checksum(each.bytes),
                        {name: core.crc32c(rows) for name, rows in _columns(self._schema, each).items()},
                        added=added,
                        foreign=foreign,
                    )
                )
                first += len(each)
            file.flush()
            os.fsync(file.fileno())
        if not any(shard.segments for shard in shards):
            path.unlink()
        return shards

    def finish(
        self, classes: Sequence[str] | None, summary: Mapping[str, Any], form: Form | None = None
    ) -> Manifest:
        """Makes the folder a dataset. Raises PackError: the disk is full or fails."""
        assert self._schema is not None
        self.commit({})
        number, sidecars = len(self._sidecars), tuple(self._sidecars)
        path = self.out / MANIFEST_NAME
        try:
            if number > SIDECARS_MOST:
                path = self.out / f"index-{number:05d}.bin"
                known = open_sidecars(self.out, sidecars)
                sidecars = (write_sidecar(self.out, path.name, self._shards, known.content),)
                path = self.out / MANIFEST_NAME
            manifest = Manifest(
                self._schema,
                tuple(self._shards),
                None if classes is None else tuple(classes),
                self._options,
                summary,
                sidecars=sidecars,
                form=form,
            )
            sync_folder(self.out)
            manifest.write(self.out)
            self._sidecars = list(sidecars)
            (self.out / JOURNAL_NAME).unlink(missing_ok=True)
            self._remove_leftovers(named={MANIFEST_NAME})
        except OSError as error:
            raise write_error(path, 0, error, _GO_ON) from None
        return manifest

    def _load(self) -> None:
        """Takes what an earlier run has written. Raises PackError, DatasetError."""
        if (self.out / MANIFEST_NAME).exists():
            self.finished = Manifest.load(self.out)
            self._check_same(self.finished.options)
            return
        path = self.out / JOURNAL_NAME
        if not path.exists():
            return
        try:
            journal = Journal.load(self.out)
            self._check_same(journal.options)
            self._schema = Schema.from_json(journal.schema)
            self._shards = list(parse_shards(journal.shards, self._schema, later=True))
            self._sidecars = list(parse_sidecars(journal.state.get("sidecars", [])))
            self.state = get_object(journal.state.get("run", {}), "the state of the run")
        except Bad as error:
            raise PackError(f"{path} does not hold ({error}): --overwrite starts again") from None
        except OSError as error:
            raise PackError(f"{path}: cannot be read: {error.strerror}: --overwrite starts again") from None
        known = open_sidecars(self.out, self._sidecars)
        if any(shard.foreign is None or known.get(shard) is None for shard in self._shards):
            raise PackError(f"{self.out} has lost files that its journal names: --overwrite starts again")

    def _check_same(self, options: Mapping[str, Any]) -> None:
        if options.get(OBJECTS) != self._options.get(OBJECTS):
            raise OtherObjectsError(
                f"{self.out} is of other objects, or they were replaced since: --overwrite attaches them anew"
            )
        check_same(str(self.out), (None, options, 1), (None, self._options, 1), self._varying)

    def _remove_leftovers(self, named: Collection[str] = (JOURNAL_NAME,)) -> None:
        """Removes what nothing names. Raises OSError."""
        if self.finished is not None:
            return
        kept = {*named, *(sidecar.file for sidecar in self._sidecars)}
        kept |= {name for shard in self._shards for _, name in shard.files}
        for name in os.listdir(self.out):
            if is_packed_file(name) and name not in kept:
                with suppress(FileNotFoundError):
                    (self.out / name).unlink()


def _written(file: BinaryIO, path: Path, data: bytes) -> Segment:
    """The segment of bytes that are written to a file. Raises OSError."""
    segment = Segment(path.name, file.tell(), len(data), core.crc32c(data))
    file.write(data)
    return segment


def _columns(schema: Schema, samples: ForeignSamples) -> dict[str, memoryview]:
    """The rows of each column, by name: of the fields that are some, and of the sizes of images."""
    found: dict[str, npt.NDArray[Any]] = {
        field.name: np.ascontiguousarray(np.asarray(samples.values[field.name], field.stored_dtype))
        for field in schema
        if field.is_column
    }
    if samples.sizes is not None:
        sides = np.ascontiguousarray(samples.sizes.T, "<i4")
        found |= zip((HEIGHT_COLUMN, WIDTH_COLUMN), sides, strict=True)
    return {name: rows.reshape(-1).view(np.uint8).data for name, rows in found.items() if rows.size}


def _texts(schema: Schema, samples: ForeignSamples) -> Iterator[tuple[str, bytes]]:
    """(name, segment) of each other field beside the images."""
    for field in schema:
        if field != schema.image and not field.is_column:
            yield field.name, packed_values(samples.values[field.name])
