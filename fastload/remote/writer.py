"""RemoteWriter: writes a packed dataset to a URL, shard by shard, through a small local folder. Bucket: its
objects, and the commit.

NOTE [ remote writer: what is durable when ]
The local folder (the *staging* folder) has the journal of NOTE [ writer: what is durable when ], and at most
two shards: one that is being uploaded, and one that is being written.
1. A complete shard takes four steps. Its section of the sidecar is written beside the journal, and synced.
   The shard is uploaded. The journal names it, with the ETag of its object: at once, or, of very many shards,
   with the next ones. The local shard is removed. If a kill comes before the journal names it, the resume
   writes that shard again, under the same name, which nobody reads.
2. The last shard is in the journal too, since after it only the commit is left: NOTE [ bucket: what is
   durable when ]. A resume after the commit makes the same commit again.
3. The journal is removed after the commit, and the sections after it.
So the journal and the objects belong together: a resume needs the staging folder, and objects with the sizes
and ETags that it names.

NOTE [ bucket: what is durable when ]
1. An object is never replaced while the manifest at the URL names it: new content gets an unused name. So a
   reader of that manifest goes on with it until the next one is committed and the objects that only the old
   one names are removed; then reads fail, and name the object.
2. All objects are complete before manifest.json is put, in one request: the commit. They are listed before
   that, and must have the sizes and ETags that they had when they were written, so that one of two writers at
   one URL ends in an error.
3. Objects with the name of a dataset's file that the manifest does not name are removed last.
A store of objects has no locks: the user must not run two writers at one URL at a time.
"""

from __future__ import annotations

import contextlib
import errno
import hashlib
import os
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from fastload._native import core
from fastload.common.files import check_own, read_regular
from fastload.common.urls import normalized
from fastload.errors import DatasetError, PackError, RemoteError, RemoteMissingError
from fastload.remote.cache_folder import default_folder
from fastload.remote.manifest import DataFile, Part, checked_ranges, data_files, find_manifest, missing
from fastload.remote.objects import ObjectInfo, Objects, request_threads
from fastload.store import JOURNAL_NAME, MANIFEST_NAME, DatasetWriter, Manifest, Schema, ShardEntry
from fastload.store.change import is_data_file
from fastload.store.checked import Bad, get_int, get_list, get_object, shown
from fastload.store.entries import SHARD_NAME, file_number
from fastload.store.lists import FOLDER
from fastload.store.manifest import sync_folder
from fastload.store.progress import is_packed_file
from fastload.store.sidecar import Parts, open_section, section, write_sidecar

_REMOVALS = 8
"""Requests in flight that delete objects."""
_NUMBERS = 10**9


Content = tuple[tuple[Part, ...], bool]
"""Identity of a file's content: its parts, and whether it ends with them."""


def _content(file: DataFile) -> Content:
    return file.parts, file.whole


class Bucket:
    """The objects of a dataset at a URL, as its writer sees them. See NOTE [ bucket: what is durable when ].

    Attributes:
        objects: the client.
        manifest: the manifest at the URL; None: there is none.
        listed: the objects that the store lists below the URL, by name.
    """

    def __init__(self, objects: Objects, *, overwrite: bool = False) -> None:
        """Reads the manifest and lists the objects.

        Args:
            objects: the client.
            overwrite: a damaged manifest counts as none, and no object is assumed to have the content that
                the manifest says.

        Raises:
            DatasetError: the manifest is damaged or of a later version, and `overwrite` is False.
            PackError: the URL holds other objects only.
            RemoteError: the store does not answer, or denies access.
        """
        self.objects = objects
        if objects.url.lower().startswith(("http://", "https://")):
            raise PackError(
                f"{objects.url} is a web server's, which is read from, and not written to: name the "
                "bucket, as in s3://bucket/path"
            )
        # A dataset of images of any number is another dataset.
        self.listed = {info.name: info for info in _list(objects) if not info.name.startswith(f"{FOLDER}/")}
        ours = [name for name in self.listed if is_packed_file(name)]
        if self.listed and not ours:
            first = min(self.listed)
            raise PackError(
                f"{objects.url} holds other objects ({first}, ...), which are left alone; choose another URL"
            )
        self.manifest: Manifest | None = None
        self._used: dict[str, DataFile | None] = {}
        try:
            self.manifest = find_manifest(objects) if MANIFEST_NAME in self.listed else None
            self._used.update(
                {file.name: file for file in data_files(self.manifest)} if self.manifest is not None else {}
            )
        except RemoteError:
            raise
        except DatasetError:
            if not overwrite:
                raise
            self._used.update(dict.fromkeys(ours))
        if overwrite:
            self._used = dict.fromkeys(self._used)
        self._taken: set[str] = set()
        self._noted: dict[str, str] = {}
        self._named_for: dict[
            Content, list[str]
        ] = {}  # names of used objects by their content, the first one last
        for name, used in reversed(self._used.items()):
            if used is not None:
                self._named_for.setdefault(_content(used), []).append(name)
        self._last: dict[str, int] = {}  # of each kind of name, the largest number that is in use
        for name in self._used:
            self._note_number(name)

    @property
    def begun(self) -> bool:
        """True if the URL has parts of a dataset, and no manifest."""
        return self.manifest is None and any(is_packed_file(name) for name in self.listed)

    def note(self, name: str, digest: str) -> None:
        """Notes that an object is known to have a file's content, by the file's digest."""
        self._noted[digest] = name

    def is_there(self, file: DataFile) -> bool:
        """Returns True if an object with the file's name has its content, by a note or by the manifest."""
        if self._noted.get(file.digest) == file.name:
            return True
        used, info = self._used.get(file.name), self.listed.get(file.name)
        return (
            used is not None
            and used.parts == file.parts
            and used.whole == file.whole
            and info is not None
            and file.fits(info.size)
        )

    def name_for(self, file: DataFile) -> str:
        """A name for an object with a file's content: the name of an object that has it, else the file's
        own, else an unused one."""
        noted = self._noted.get(file.digest)
        if noted is not None and noted not in self._taken:
            self._taken.add(noted)
            self._note_number(noted)
            return noted
        same = self._named_for.get(_content(file), [])
        while same and same[-1] in self._taken:
            same.pop()
        name = same[-1] if same else file.name
        used = self._used.get(name)
        if name in self._taken or (name in self._used and (used is None or used.parts != file.parts)):
            name = self.unused_name(file.name)
        self._taken.add(name)
        self._note_number(name)
        return name

    def _note_number(self, name: str) -> None:
        if is_data_file(name):
            kind = name.partition("-")[0]
            self._last[kind] = max(self._last.get(kind, -1), file_number(name))

    def unused_name(self, like: str) -> str:
        """An unused name like another, with a number above all that are in use."""
        start, _, rest = like.partition("-")
        number = self._last.get(start, -1) + 1
        if number >= _NUMBERS:
            raise PackError(f"{self.objects.url} has no unused name for {like}: choose another URL")
        return f"{start}-{number:05d}.{rest.partition('.')[2]}"

    @property
    def next_shard(self) -> int:
        """The first number above those of the shards that the manifest names."""
        return max((file_number(name) for name in self._used if name.startswith("shard-")), default=-1) + 1

    def commit(self, manifest: Manifest, written: Mapping[str, ObjectInfo]) -> int:
        """Commits a manifest, and removes the dataset's objects that it does not name.

        Args:
            manifest: a manifest whose objects are all there.
            written: the objects that this writer wrote, as the store described them then.

        Returns:
            Number of removed objects, without the notes of an unfinished push.

        Raises:
            PackError: another writer replaced or removed an object since it was written.
            RemoteError: the store does not answer, or denies access.
        """
        files = data_files(manifest)
        listed = {info.name: info for info in self.objects.list()}
        for file, what in self._missing(files, listed):
            raise PackError(
                f"{self.objects.url}/{file.name}: {what}: something else writes to this URL; run the "
                "command again"
            )
        for name, info in written.items():
            if info.etag is not None and not same_object(listed.get(name), info):
                raise PackError(
                    f"{self.objects.url}/{name} was replaced since it was sent: something else "
                    "writes to this URL; run again"
                )
        # of lists that were there, and are no more: the folder is nobody else's
        had_lists = self.manifest is not None and self.manifest.schema.images is not None
        within = f"{FOLDER}/" if had_lists and manifest.schema.images is None else ""
        if manifest != self.manifest:
            self.objects.put(MANIFEST_NAME, manifest.to_bytes())
            self.manifest = manifest
        named = {file.name for file in files} | {MANIFEST_NAME}
        unnamed = (name for name in listed if name not in named)
        return self._remove(name for name in unnamed if is_packed_file(name.removeprefix(within)))

    def _missing(
        self, files: Iterable[DataFile], listed: dict[str, ObjectInfo]
    ) -> Iterator[tuple[DataFile, str]]:
        """Same as `missing`, but what a listing lacks is looked up by itself, within the timeout, and
        added to `listed`."""
        for file, what in missing(files, listed.values()):
            if file.name not in listed:
                try:
                    listed[file.name] = self.objects.head(file.name, known=True)
                except RemoteMissingError:
                    yield file, what
                    continue
            if not file.fits(listed[file.name].size):
                yield file, what

    def _remove(self, names: Iterable[str]) -> int:
        with request_threads(self.objects, _REMOVALS, "fastload-remove") as pool:
            removed = list(names)
            list(pool.map(self.objects.delete, removed))
        return len([name for name in removed if name != JOURNAL_NAME])


def same_object(now: ObjectInfo | None, then: ObjectInfo) -> bool:
    """Returns True if an object is the one that was described earlier, by size and ETag. False if the store
    has no ETags.

    Azure writes quotes around the ETag of an object, and none in a listing.
    """
    if now is None or now.etag is None or then.etag is None:
        return False
    return (now.size, now.etag.strip('"')) == (then.size, then.etag.strip('"'))


def _list(objects: Objects) -> list[ObjectInfo]:
    try:
        return objects.list()
    except RemoteMissingError:
        raise PackError(f"there is no bucket for {objects.url}: make it first, or check the URL") from None


_SECTION_MOST = 1 << 40


def default_staging(url: str) -> Path:
    """The staging folder of a pack to a URL: below the cache folder, with a name of its own for each URL.
    Raises PackError as `own_folder` does."""
    return own_folder(
        default_folder(), "staging", normalized(url), "name a folder of your own with --staging"
    )


def own_folder(cache: Path, kind: str, name: str, advice: str) -> Path:
    """The folder for one name of a kind of things, below a cache folder.

    Raises:
        PackError: the folder is another user's, or a link: others could read and change what is written
        there.
    """
    digest = hashlib.blake2b(name.encode("utf-8", "surrogatepass"), digest_size=16).hexdigest()
    folder = cache / kind / digest
    try:
        for each in (cache, folder.parent, folder):
            if os.path.lexists(each):
                check_own(each)
            if each != cache and each.is_symlink():
                raise OSError(errno.ELOOP, "it is a symbolic link, which somebody may have planted")
    except OSError as error:
        raise PackError(f"the {kind} folder {each} is refused: {error.strerror}; {advice}") from None
    return folder


class RemoteWriter(DatasetWriter):
    """A writer whose dataset lies at a URL. See NOTE [ remote writer: what is durable when ]."""

    _journals_all = True

    def __init__(
        self,
        objects: Objects,
        staging: Path,
        schema: Schema,
        *,
        shard_size: int,
        options: Mapping[str, object],
        varying: Collection[str] = (),
        resume: bool = False,
        overwrite: bool = False,
        base: str | None = None,
    ) -> None:
        """Reads the state at the URL, and creates the staging folder, or opens it to resume or overwrite.

        Args:
            objects: the objects below the URL; closed by `abort`, which every writer ends with.
            staging: the staging folder.
            schema, shard_size, options, varying, base: as DatasetWriter has them.
            resume: continues after the last shard that the journal in the staging folder names.
            overwrite: replaces a dataset, or parts of one, at the URL, once the new one is complete.

        Raises:
            ArgumentError, PackError: as DatasetWriter.
            RemoteError: the store does not answer, or denies access.
        """
        self._bucket = Bucket(objects, overwrite=overwrite)
        self._sent: dict[str, ObjectInfo] = {}
        self._sections: dict[str, tuple[int, int]] = {}
        self._journal_there = (staging / JOURNAL_NAME).exists()
        if not self._journal_there:
            _remove_sections(staging)
        self._refuse(staging, resume, overwrite)
        super().__init__(
            staging,
            schema,
            shard_size=shard_size,
            options=options,
            varying=varying,
            resume=resume,
            overwrite=overwrite,
            base=base,
            title=objects.url,
        )

    def _refuse(self, staging: Path, resume: bool, overwrite: bool) -> None:
        """Raises PackError if the URL is in use and the caller asked neither to resume nor to overwrite."""
        url = self._bucket.objects.url
        if overwrite or (self._journal_there and resume):
            return
        if self._bucket.manifest is not None and not resume:
            raise PackError(
                f"{url} already holds a packed dataset; --overwrite replaces it, or choose another URL"
            )
        if self._bucket.begun:
            if self._journal_there:
                raise PackError(
                    f"{url} holds an unfinished pack: --resume finishes it, --overwrite starts again"
                )
            raise PackError(
                f"{url} holds parts of a dataset, and the journal of their pack is not in {staging}: "
                "--resume needs the --staging folder "
                "that the pack was begun with, --overwrite starts again"
            )

    def _published(self) -> Manifest | None:
        return None if self._journal_there else self._bucket.manifest

    @property
    def _offset(self) -> int:
        return self._bucket.next_shard

    def _lost(self, shard: ShardEntry) -> str:
        if self.finished is not None:
            return ""
        place = f"{self.title}/{shard.file}"
        then = self._sent.get(shard.file)
        if then is None or shard.file not in self._sections:
            return f"the journal in {self.out} does not say what became of {shard.file}"
        now = self._bucket.listed.get(shard.file)
        if now is None or now.size != shard.bytes:
            return f"{place} is missing or of another size than when it was sent"
        same = same_object(now, then) if then.etag is not None else self._holds(shard)
        return "" if same else f"{place} was replaced since it was sent"

    def _holds(self, shard: ShardEntry) -> bool:
        """Returns True if an object's bytes have a shard's checksum. It reads them, since the store has no
        ETags."""
        (file,) = data_files(Manifest(self.schema, (shard,)))
        with contextlib.closing(checked_ranges(self._bucket.objects, (file,))) as ranges:
            return not any(wrong for *_, wrong in ranges)

    def _store(self, shard: ShardEntry) -> None:
        path = self.out / shard.file
        parts = section(self.out, shard)
        crc = size = 0
        with open(self._section_path(shard.file), "wb") as file:
            for part in parts:
                file.write(part)
                crc = core.crc32c(part, crc)
                size += len(part)
            file.flush()
            os.fsync(file.fileno())
        sync_folder(self.out)
        self._bucket.objects.put_file(shard.file, path)
        self._sections[shard.file] = size, crc
        self._sent[shard.file] = self._bucket.objects.head(shard.file, known=True)

    def _stored(self, shard: ShardEntry) -> None:
        (self.out / shard.file).unlink()

    def _section_path(self, file: str) -> Path:
        return self.out / f"{file.removesuffix('.lmdb')}.section"

    def _kept(self) -> set[str]:
        return {self._section_path(file).name for file in self._sections}

    def _objects_json(self) -> dict[str, Any]:
        return {
            name: {"size": info.size, "etag": info.etag, "section": self._sections[name]}
            for name, info in self._sent.items()
        }

    def _load_objects(self, stored: Mapping[str, Any]) -> None:
        for name, each in stored.items():
            if not SHARD_NAME.fullmatch(name):
                raise Bad(f"{shown(name)} is no shard's name")
            (self.out / name).unlink(missing_ok=True)  # left by a kill after the journal named its object
            content = get_object(each, f"the object {name}")
            etag = content.get("etag")
            self._sent[name] = ObjectInfo(
                name,
                get_int(content.get("size"), "its size", 1, 1 << 48),
                None if etag is None else str(etag),
            )
            both = get_list(content.get("section"), "its section")
            if len(both) != 2:
                raise Bad(f"the section of {name} is not a size and a checksum")
            self._sections[name] = (
                get_int(both[0], "its size", 1, _SECTION_MOST),
                get_int(both[1], "its checksum", 0, 2**32 - 1),
            )

    def _publish(self, manifest: Manifest) -> Manifest:
        return commit_with_sidecar(self._bucket, manifest, self.out, self._section, self._sent)

    def _section(self, shard: ShardEntry) -> Parts:
        """The content of a shard's section. Raises DatasetError."""
        path = self._section_path(shard.file)
        try:
            data = read_regular(path, _SECTION_MOST)
            if (len(data), core.crc32c(data)) != self._sections[shard.file]:
                raise Bad("its checksum does not match")
            return open_section(memoryview(data), shard)
        except (OSError, Bad) as error:
            raise DatasetError(
                f"{path} cannot be used ({error}): --overwrite packs the dataset again"
            ) from None

    def _give_up(self) -> None:
        self._bucket.objects.close()

    def _release(self) -> None:
        super()._release()
        if self.finished is not None and self.out.is_dir():
            _remove_sections(self.out)
            with contextlib.suppress(OSError):  # the user's own folder, with other files in it
                self.out.rmdir()
        self._bucket.objects.close()


def commit_with_sidecar(
    bucket: Bucket,
    manifest: Manifest,
    folder: Path,
    known: Callable[[ShardEntry], Parts],
    sent: dict[str, ObjectInfo],
) -> Manifest:
    """Uploads the sidecar of shards that are at the URL, commits the manifest with it, and returns that
    manifest.

    Args:
        bucket: the dataset's objects.
        manifest: a manifest without sidecars.
        folder: a local folder, for the sidecar until it is uploaded.
        known: returns the content of a shard's section.
        sent: the objects of the shards, as the store described them; the sidecar's is added.

    Raises:
        PackError: as `Bucket.commit`.
        DatasetError: a section cannot be used.
        OSError: the disk is full, or the store does not answer.
    """
    local = folder / "index-00000.bin"
    local.unlink(missing_ok=True)
    segment = write_sidecar(folder, local.name, manifest.shards, known)
    (file,) = data_files(replace(manifest, shards=(), sidecars=(segment,)))
    name = bucket.name_for(file)
    if not bucket.is_there(replace(file, name=name)):
        bucket.objects.put_file(name, local)
        sent[name] = bucket.objects.head(name, known=True)
    manifest = replace(manifest, sidecars=(replace(segment, file=name),))
    bucket.commit(manifest, sent)
    local.unlink()
    return manifest


def _remove_sections(staging: Path) -> None:
    for path in staging.glob("shard-*.section"):
        path.unlink(missing_ok=True)
