"""RemoteWriter: writes a packed dataset to a URL, shard by shard, through a small folder on the local disk.

NOTE [ remote writer: what is durable when ]
The local folder (the *staging* folder) has the journal of NOTE [ writer: what is durable when ], and at most two shards: one that is being
uploaded, and one that is being written.
1. Of a complete shard, the section of the sidecar is written beside the journal, and synced; the shard is uploaded; then the journal names
   it, with the ETag of its object; then the local shard is removed. A kill before the journal names it makes the resume write that shard
   again, under the same name, which nobody reads.
2. The last shard is in the journal too, since after it only the commit is left: NOTE [ bucket: what is durable when ]. A resume after the
   commit makes the same commit again.
3. The journal is removed after the commit, and the sections after it.
So the journal and the objects belong together: a resume needs the staging folder, and objects with the sizes and ETags that it names.
"""

from __future__ import annotations

import contextlib
import errno
import hashlib
import os
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from fastload._native import core
from fastload.common.files import check_own, read_regular
from fastload.common.urls import normalized
from fastload.errors import DatasetError, PackError
from fastload.remote.bucket import Bucket, same_object
from fastload.remote.cache_folder import default_folder
from fastload.remote.files import data_files
from fastload.remote.objects import ObjectInfo, Objects
from fastload.remote.stream import checked_ranges
from fastload.store import JOURNAL_NAME, DatasetWriter, Manifest, ShardEntry
from fastload.store.checked import Bad, get_int, get_list, get_object, shown
from fastload.store.entries import SHARD_NAME
from fastload.store.manifest import sync_folder
from fastload.store.sidecar import Identity, Sections, cut_section, section, write_sidecar

_SECTION_MOST = 1 << 40


def default_staging(url: str) -> Path:
    """The staging folder of a pack to a URL: below the cache folder, with a name of its own for each URL.

    Raises:
        PackError: it is another user's, or a link: what is packed could be read and changed there.
    """
    name = hashlib.blake2b(normalized(url).encode("utf-8", "surrogatepass"), digest_size=16).hexdigest()
    cache = default_folder()
    folder = cache / "staging" / name
    try:
        for each in (cache, folder.parent, folder):
            if os.path.lexists(each):
                check_own(each)
            if each != cache and each.is_symlink():
                raise OSError(errno.ELOOP, "it is a symbolic link, which somebody may have planted")
    except OSError as error:
        raise PackError(f"the staging folder {each} is refused: {error.strerror}; name a folder of your own with --staging") from None
    return folder


class RemoteWriter(DatasetWriter):
    """A writer whose dataset lies at a URL. See NOTE [ remote writer: what is durable when ]."""

    _journals_all = True

    def __init__(self, objects: Objects, staging: Path, *args: Any, resume: bool = False, overwrite: bool = False, **settings: Any) -> None:
        """Looks at what is at the URL, and creates the staging folder, or opens it to resume or overwrite.

        Args:
            objects: those below the URL; closed by `abort`, which every writer ends with.
            staging: the staging folder.
            args: of DatasetWriter, from the schema on.
            resume: continues after the last shard that the journal in the staging folder names.
            overwrite: replaces a dataset, or parts of one, at the URL, once the new one is complete.
            settings: further keywords of DatasetWriter.

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
        super().__init__(staging, *args, resume=resume, overwrite=overwrite, title=objects.url, **settings)

    def _refuse(self, staging: Path, resume: bool, overwrite: bool) -> None:
        """Raises PackError if the URL is in use and that is not what the caller wants."""
        url = self._bucket.objects.url
        if overwrite or (self._journal_there and resume):
            return
        if self._bucket.manifest is not None and not resume:
            raise PackError(f"{url} already holds a packed dataset; --overwrite replaces it, or choose another URL")
        if self._bucket.begun:
            if self._journal_there:
                raise PackError(f"{url} holds an unfinished pack: --resume finishes it, --overwrite starts again")
            raise PackError(
                f"{url} holds parts of a dataset, and the journal of their pack is not in {staging}: --resume needs the --staging folder "
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
        """Whether an object has a shard's checksum, of a store that has no ETags: it is read."""
        (file,) = data_files(Manifest(self.schema, (shard,)))
        with contextlib.closing(checked_ranges(self._bucket.objects, (file,))) as ranges:
            return not any(wrong for *_, wrong in ranges)

    def _store(self, shard: ShardEntry) -> None:
        path = self.out / shard.file
        parts = section(self.out, shard, 0)
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
        self._sent[shard.file] = self._bucket.objects.head(shard.file)

    def _stored(self, shard: ShardEntry) -> None:
        (self.out / shard.file).unlink()

    def _section_path(self, file: str) -> Path:
        return self.out / f"{file.removesuffix('.lmdb')}.section"

    def _kept(self) -> set[str]:
        return {self._section_path(file).name for file in self._sections}

    def _objects_json(self) -> dict[str, Any]:
        return {name: {"size": info.size, "etag": info.etag, "section": self._sections[name]} for name, info in self._sent.items()}

    def _load_objects(self, stored: Mapping[str, Any]) -> None:
        for name, each in stored.items():
            if not SHARD_NAME.fullmatch(name):
                raise Bad(f"{shown(name)} is no shard's name")
            (self.out / name).unlink(missing_ok=True)  # a kill after the journal named its object
            content = get_object(each, f"the object {name}")
            etag = content.get("etag")
            self._sent[name] = ObjectInfo(name, get_int(content.get("size"), "its size", 1, 1 << 48), None if etag is None else str(etag))
            both = get_list(content.get("section"), "its section")
            if len(both) != 2:
                raise Bad(f"the section of {name} is not a size and a checksum")
            self._sections[name] = get_int(both[0], "its size", 1, _SECTION_MOST), get_int(both[1], "its checksum", 0, 2**32 - 1)

    def _publish(self, manifest: Manifest) -> Manifest:
        return commit_with_sidecar(self._bucket, manifest, self.out, Sections(manifest.shards, self._section), self._sent)

    def _section(self, shard: ShardEntry, samples: int) -> memoryview:
        """The section of a shard, as a sidecar of so many samples has it. Raises DatasetError."""
        path = self._section_path(shard.file)
        try:
            data = read_regular(path, _SECTION_MOST)
            if (len(data), core.crc32c(data)) != self._sections[shard.file]:
                raise Bad("its checksum does not match")
            return memoryview(b"".join(cut_section(memoryview(data), shard, samples)))
        except (OSError, Bad) as error:
            raise DatasetError(f"{path} cannot be used ({error}): --overwrite packs the dataset again") from None

    def _give_up(self) -> None:
        self._bucket.objects.close()

    def _release(self) -> None:
        super()._release()
        if self.finished is not None and self.out.is_dir():
            _remove_sections(self.out)
            with contextlib.suppress(OSError):  # the user's own, with other files in it
                self.out.rmdir()
        self._bucket.objects.close()


def commit_with_sidecar(
    bucket: Bucket, manifest: Manifest, folder: Path, known: Mapping[Identity, memoryview], sent: dict[str, ObjectInfo]
) -> Manifest:
    """Uploads the sidecar of a manifest's shards, which are there, and commits the manifest; the manifest with its sidecar.

    Args:
        bucket: of the dataset.
        manifest: without sidecars.
        folder: a local one, for the sidecar until it is uploaded.
        known: the section of every shard.
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
        sent[name] = bucket.objects.head(name)
    manifest = replace(manifest, sidecars=(replace(segment, file=name),))
    bucket.commit(manifest, sent)
    local.unlink()
    return manifest


def _remove_sections(staging: Path) -> None:
    for path in staging.glob("shard-*.section"):
        path.unlink(missing_ok=True)
