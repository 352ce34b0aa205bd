"""DatasetWriter: writes a packed dataset. A kill at any point leaves either no dataset or one that can be
resumed.

NOTE [ writer: what is durable when ]
1. progress.json (the journal) exists before the first shard, and names only complete shards: closed, synced,
   and with their checksums computed. It is replaced by rename, and only after the shards that it adds are on
   the disk: after each of the first JOURNAL_SHARDS, and later after every so many that they are one part of
   as many of all, since it names all of them anew. A kill loses no larger part of the work; a pack that stops
   by itself loses none. The last shard is named in the manifest alone.
2. A shard that the journal does not name is unfinished, and a resume drops it. So it drops the part of
   progress.samples beyond the length in the journal: that file is extended, and synced, before each journal.
3. The sidecar is made of all shards, and synced, before manifest.json names it. A resume makes it anew.
4. manifest.json is written last, by rename: that makes the folder a dataset. The journal is removed after it,
   and then the log.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Collection, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from types import TracebackType
from typing import Any

from fastload.common.files import expanded
from fastload.errors import ArgumentError, DatasetError, FastloadError, PackError
from fastload.store.checked import Bad
from fastload.store.entries import SHARD_NAME, ShardEntry, file_number, parse_shards, shard_name
from fastload.store.form import Form
from fastload.store.manifest import JOURNAL_NAME, LOST, MANIFEST_NAME, Manifest
from fastload.store.progress import (
    LOG_NAME,
    SHARD_SIZE_LIMIT,
    Begun,
    CompleteShard,
    Journal,
    LoggedEntries,
    SampleLog,
    check_free,
    check_same,
    claim_folder,
    clear,
    is_packed_file,
)
from fastload.store.schema import Schema
from fastload.store.shard import Prepared, ShardFile, durable_entry, map_bytes, prepare_sample, write_error
from fastload.store.sidecar import write_sidecar

State = Mapping[str, Any] | Callable[[], Mapping[str, Any]]

JOURNAL_SHARDS = 256
"""Shards up to which each is added to the journal by itself. Of n more, one in n / JOURNAL_SHARDS: all
journals of a pack together name as many shards as it has, times this number and a few."""

_SIDECAR_NAME = "index-00000.bin"


class DatasetWriter:
    """Appends samples, in order, to the shards of a new dataset.

    1. One thread appends. `prepare` may run in any thread.
    2. `finish` completes the dataset; `abort`, or leaving a `with` block without `finish`, leaves it
       resumable.
    3. A lock, which ends with the process, admits one writer per folder at a time.

    Attributes:
        next_index: the index of the next sample, at which a resumed pack continues.
        title: name of the dataset, for messages.
        state: the `state` given with the last sample of the last complete shard; {} at the start.
        noted: the entries given to `note` up to that sample, read from the disk; none at the start.
        finished: the manifest, once the dataset is complete; at once, if a complete dataset is resumed.
    """

    def __init__(
        self,
        out: str | os.PathLike[str],
        schema: Schema,
        *,
        shard_size: int,
        options: Mapping[str, object],
        varying: Collection[str] = (),
        resume: bool = False,
        overwrite: bool = False,
        base: str | None = None,
        title: str = "",
    ) -> None:
        """Creates the folder `out`, or opens it to resume or overwrite.

        Args:
            out: the dataset's folder; it must be empty or not exist, unless resume or overwrite is given.
            schema: the fields of every sample.
            shard_size: bytes after which a new shard begins.
            options: the options of the pack, as JSON values; a resume must have the same.
            varying: names of options that a resume may change.
            resume: continues after the last complete shard, or starts at the beginning if there is none.
            overwrite: removes a dataset, or parts of one, from the folder first.
            base: the folder of attached files, as the manifest is to name it; None: the dataset holds its
                images.
            title: names the dataset in messages; by default its folder does.

        Raises:
            ArgumentError: shard_size is out of range, both resume and overwrite are given, or JSON cannot
                represent an option.
            PackError: `out` holds other files or a dataset, cannot be resumed, or is being written by another
                process.
        """
        if resume and overwrite:
            raise ArgumentError("resume and overwrite contradict each other; give one")
        if not isinstance(shard_size, int) or not 1 <= shard_size <= SHARD_SIZE_LIMIT:
            raise ArgumentError(f"shard_size is {shard_size}, outside 1 .. {SHARD_SIZE_LIMIT} bytes")
        try:
            self._options: dict[str, Any] = json.loads(json.dumps(dict(options), allow_nan=False))
        except (TypeError, ValueError) as error:
            raise ArgumentError(f"the options cannot be stored: {error}") from None
        self.out = Path(expanded(out))
        self.title = title or str(self.out)
        self.schema = schema
        self.shard_size = shard_size
        self._base = base
        self.next_index = 0
        self.state: dict[str, Any] = {}
        self.finished: Manifest | None = None
        self._shards: list[ShardEntry] = []
        self._begun = 0
        self._first = 0
        self._key: int | None = None
        self._shard: ShardFile | None = None
        self._last_state: State = {}
        self._varying = frozenset(varying)
        self._log = SampleLog(self.out)
        self._completing: Future[None] | None = None
        self._journaled = 0  # shards that the journal names
        self._behind: Mapping[str, Any] | None = (
            None  # the state after the last shard, where the journal does not name that one
        )
        self._pool = ThreadPoolExecutor(1, "fastload-shard")
        self._lock = self._claim(resume, overwrite)
        try:
            if overwrite:
                clear(self.out)
            elif resume:
                self._resume()
            self._begun = max([self._offset, *(file_number(shard.file) + 1 for shard in self._shards)])
            if self.finished is None:
                self._journal(self.state, durable=False)
        except (OSError, DatasetError) as error:
            self._release()
            raise PackError(f"cannot start to pack into {self.title}: {error}") from None
        except BaseException:
            self._release()
            raise

    @property
    def noted(self) -> LoggedEntries:
        return self._log.content

    def __enter__(self) -> DatasetWriter:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.abort(now=kind is KeyboardInterrupt)

    def _claim(self, resume: bool, overwrite: bool) -> int:
        """Creates and locks the folder, and returns the lock's descriptor. Raises PackError if the folder
        holds anything else."""
        lock = claim_folder(self.out)
        try:
            check_free(self.out, self.title, resume=resume, overwrite=overwrite)
        except BaseException:
            os.close(lock)
            self._pool.shutdown()
            raise
        return lock

    def _resume(self) -> None:
        """Continues from the shards that the journal names, or a manifest already written, and removes
        other files of a dataset."""
        if (manifest := self._published()) is not None:
            if manifest.version > 1:
                raise PackError(
                    f"{self.title} is complete, and was changed since (it is at version {manifest.version}): "
                    "`fastload append` adds samples, --overwrite packs it again"
                )
            self._check_same((manifest.schema.to_json(), manifest.options, self.shard_size))
            (self.out / JOURNAL_NAME).unlink(missing_ok=True)
            self.finished = manifest
            self._shards = list(manifest.shards)
        elif (self.out / JOURNAL_NAME).exists():
            self._read_journal()
        elif any(SHARD_NAME.fullmatch(name) for name in os.listdir(self.out)):
            raise PackError(
                f"{self.out} {LOST}; there is no {JOURNAL_NAME} with which to go on, --overwrite "
                "packs it again"
            )
        self.next_index = sum(shard.count for shard in self._shards)
        named = {shard.file for shard in self._shards} | self._kept() | {MANIFEST_NAME, JOURNAL_NAME}
        if self.finished is not None:
            named |= {sidecar.file for sidecar in self.finished.sidecars}
        if self._log.content:
            named.add(LOG_NAME)
        for shard in self._shards:
            if lost := self._lost(shard):
                raise PackError(f"{lost}: --overwrite starts again")
        for name in os.listdir(self.out):
            if is_packed_file(name) and name not in named:
                (self.out / name).unlink()

    def _read_journal(self) -> None:
        path = self.out / JOURNAL_NAME
        try:
            journal = Journal.load(self.out)
            self._check_same((journal.schema, journal.options, journal.shard_size))
            self._shards = [
                replace(shard, base=self._base)
                for shard in parse_shards(journal.shards, self.schema, later=True)
            ]
            self.state = dict(journal.state)
            self._log.load(journal.log)
            self._load_objects(journal.objects)
        except Bad as error:
            raise PackError(f"{path} does not hold ({error}): --overwrite starts again") from None

    def _check_same(self, begun: Begun) -> None:
        check_same(self.title, begun, (self.schema.to_json(), self._options, self.shard_size), self._varying)

    def prepare(
        self,
        values: Mapping[str, object],
        *,
        image_kind: str | None = None,
        height: int = 0,
        width: int = 0,
        index: bytes = b"",
    ) -> Prepared:
        """Builds a sample's record, in any thread; see `append`. `index` is the entropy index of its JPEG."""
        return prepare_sample(
            self.schema, values, image_kind=image_kind, height=height, width=width, index=index
        )

    def note(self, entry: bytes) -> None:
        """Logs an entry about the next sample, or about a skipped one; a resume finds it in `noted`."""
        self._log.note(entry)

    def append(
        self,
        values: Mapping[str, object],
        *,
        image_kind: str | None = None,
        height: int = 0,
        width: int = 0,
        state: State | None = None,
    ) -> None:
        """Appends the next sample.

        Args:
            values: one value per field, by name; the image as the bytes of a JPEG, or for "raw" as uint8
                (height, width, 3) or its bytes.
            image_kind: "jpeg", "dct" or "raw"; None for a schema without an image.
            height: height of the image, in pixels.
            width: width of the image, in pixels.
            state: state that the caller needs to continue after this sample, as JSON values; stored (and
                called, if callable) only when the sample completes a shard.

        Raises:
            PackError: a field cannot hold its value, the disk is full, or the dataset is already complete.
        """
        self.append_prepared(
            self.prepare(values, image_kind=image_kind, height=height, width=width), state=state
        )

    def append_prepared(self, sample: Prepared, *, state: State | None = None) -> None:
        """Appends a sample made by `prepare`; see `append`."""
        self.append_all((sample,), state=state)

    def append_all(self, samples: Sequence[Prepared], *, state: State | None = None) -> None:
        """Appends samples made by `prepare`, maybe none, which no shard's end parts; see `append`."""
        if self.finished is not None:
            raise PackError(f"{self.title} is already complete; --overwrite packs it again")
        if self._lock < 0:
            raise PackError(f"packing into {self.title} was given up; open it again with --resume")
        if not samples:
            self._last_state = self._last_state if state is None else state
            return
        if self._shard is None:
            # not len(self._shards): the thread that completes the last shard may or may not have added it yet
            path = self.out / shard_name(self._begun)
            self._begun += 1
            self._first, key = self.next_index, self.next_index if self._key is None else self._key
            self._shard = ShardFile(path, key, self.schema, map_bytes(self.shard_size))
        for sample in samples:
            self._shard.put(sample)
        self.next_index += len(samples)
        if state is not None:
            self._last_state = state
        if self._shard.size >= self.shard_size or self._shard.column_full:
            if self._key is not None:
                raise PackError(
                    f"{self._shard.path.name} is full with {self._shard.count:,} samples: choose a "
                    "smaller shard_samples"
                )
            self._complete_shard()

    def next_shard(self, number: int, key: int, state: State) -> None:
        """Ends the current shard, if one is begun, at a place that the caller chose; from now on only this
        does.

        Args:
            number: number of the shard that the next sample begins, counted from the first that this writer
                could begin.
            key: key of that sample in its file.
            state: state of the caller, as in `append`; it is stored with the shard that ends.
        """
        self._last_state = state
        self._complete_shard()
        self._begun, self._key = self._offset + number, key

    def _complete_shard(self, journal: bool = True) -> None:
        """Ends the current shard. A thread syncs it, computes its checksum and adds it to the journal
        while the next is written."""
        shard = self._shard
        if shard is None:
            return
        state = self._last_state() if callable(self._last_state) else self._last_state
        columns = shard.close()
        self._shard = None
        self._await_completion()
        complete = CompleteShard(
            shard.path.name, self._first, shard.first, shard.count, columns, dict(state), self._log.cut()
        )
        self._completing = self._pool.submit(self._make_durable, complete, journal)

    def _make_durable(self, shard: CompleteShard, journal: bool) -> None:
        path = self.out / shard.file
        try:
            entry = replace(
                durable_entry(path, shard.first, shard.count, shard.columns), key=shard.key, base=self._base
            )
            self._store(entry)
            self._shards.append(entry)
            if journal:
                self._log.extend(shard.noted)
                self._behind = shard.state
                if len(self._shards) - self._journaled >= len(self._shards) / JOURNAL_SHARDS:
                    self._journal(shard.state)
            self._stored(entry)
        except FastloadError:
            raise
        except OSError as error:
            raise write_error(path, 0, error) from None
        self.state = shard.state

    def _await_completion(self) -> None:
        completing, self._completing = self._completing, None
        if completing is not None:
            completing.result()

    def _journal(self, state: Mapping[str, Any], durable: bool = True) -> None:
        shards = [shard.to_json() for shard in self._shards]
        objects = self._objects_json()
        Journal(
            self.schema.to_json(), self._options, self.shard_size, shards, state, self._log.to_json(), objects
        ).write(self.out, durable)
        self._journaled, self._behind = len(shards), None

    def finish(
        self,
        classes: Sequence[str] | None,
        summary: Mapping[str, Any],
        *,
        form: Form | None = None,
        **options: object,
    ) -> Manifest:
        """Completes the last shard and writes the manifest, which makes the folder a dataset.

        Args:
            classes: names of labels 0, 1, ...; None where labels are no classes.
            summary: figures to store in the manifest, as JSON values.
            form: structure of a sample; None: it follows from the fields.
            options: options in `varying` that changed from call to call, with the values that hold for all
                samples.

        Raises:
            PackError: the disk is full or fails.
        """
        if self.finished is not None:
            self._release()
            return self.finished
        if self._lock < 0:
            raise PackError(f"packing into {self.title} was given up; open it again with --resume")
        self._complete_shard(journal=self._journals_all)
        self._await_completion()
        if self._journals_all and self._behind is not None:
            self._journal(self._behind)
        names = None if classes is None else tuple(classes)
        manifest = Manifest(
            self.schema, tuple(self._shards), names, {**self._options, **options}, dict(summary), form=form
        )
        try:
            self.finished = self._publish(manifest)
            (self.out / JOURNAL_NAME).unlink()
            self._log.remove()
        except FastloadError:
            raise
        except OSError as error:
            raise write_error(self.out / MANIFEST_NAME, len(manifest.to_bytes()), error) from None
        self._release()
        return self.finished

    # A writer to a URL overrides the methods below: see `fastload.remote.writer`.

    _journals_all = False
    """True if the journal names the last shard too, which the manifest will name."""

    def _published(self) -> Manifest | None:
        """The manifest of the dataset, if it is complete."""
        return Manifest.load(self.out) if (self.out / MANIFEST_NAME).exists() else None

    @property
    def _offset(self) -> int:
        """The least number in the name of a shard of this pack."""
        return 0

    def _lost(self, shard: ShardEntry) -> str:
        """Describes why a shard that the journal names cannot be used; "" if it can."""
        file = self.out / shard.file
        if file.is_file() and file.stat().st_size == shard.bytes:
            return ""
        return f"{file} is missing or of another size than when it was complete"

    def _store(self, shard: ShardEntry) -> None:
        """Called with a synced shard, before the journal names it; in a thread."""

    def _stored(self, shard: ShardEntry) -> None:
        """Called after the journal has named a shard; in a thread."""

    def _kept(self) -> set[str]:
        """Names of files that a resume needs besides shards."""
        return set()

    def _objects_json(self) -> dict[str, Any]:
        """The journal's entry about the objects that shards have become."""
        return {}

    def _load_objects(self, stored: Mapping[str, Any]) -> None:
        """Takes what `_objects_json` returned before a kill. Raises Bad."""

    def _publish(self, manifest: Manifest) -> Manifest:
        """Makes the dataset of this manifest, and returns it with its sidecar. Raises OSError."""
        if self._shards:
            manifest = replace(manifest, sidecars=(write_sidecar(self.out, _SIDECAR_NAME, self._shards),))
        manifest.write(self.out)
        return manifest

    def abort(self, *, now: bool = False) -> None:
        """Stops the pack. Complete shards stay for a resume. Does nothing after `finish`; idempotent.

        Args:
            now: gives up the shard that is on its way to a server; otherwise it is waited for.
        """
        if now:
            self._give_up()
        if self._shard is not None:
            self._shard.abort()
            self._shard = None
        self._release()

    def _give_up(self) -> None:
        """Ends what waits for a server; called where the pack is interrupted."""

    def _release(self) -> None:
        try:
            self._pool.shutdown()
        except KeyboardInterrupt:
            self._give_up()
            raise
        if self._behind is not None and self.finished is None:
            with suppress(OSError):  # then a resume makes the last shards again
                self._journal(self._behind)
        lock, self._lock = self._lock, -1  # first: Ctrl-C may come in between
        if lock >= 0:
            os.close(lock)
