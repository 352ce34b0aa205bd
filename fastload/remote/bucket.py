"""Bucket: the objects of a dataset at a URL, as whoever writes it sees them: what is there, which names are free, and the commit.

NOTE [ bucket: what is durable when ]
1. An object is never replaced while the manifest at the URL names it: new content gets an unused name. So who has that manifest open goes
   on with it, up to the commit of the next one and the removal of what only the old one names: then reads fail, and name the object.
2. All objects are complete before manifest.json is put, in one request: the commit. They are listed before that, and must have the
   sizes and ETags that they had when they were written, so that two writers at one URL end in an error of one of them.
3. Objects with the name of a dataset's file that the manifest does not name are removed last.
A store of objects knows no lock: two writers at one URL at a time are for the user to avoid.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from fastload.errors import DatasetError, PackError, RemoteError, RemoteMissingError
from fastload.remote.files import DataFile, data_files, find_manifest, missing
from fastload.remote.objects import ObjectInfo, Objects
from fastload.remote.threads import request_threads
from fastload.store import JOURNAL_NAME, MANIFEST_NAME, Manifest
from fastload.store.change import is_data_file
from fastload.store.entries import file_number
from fastload.store.progress import is_packed_file

_REMOVALS = 8
"""Requests in flight that remove objects."""
_NUMBERS = 10**9


class Bucket:
    """The objects of a dataset at a URL, for its writer. See NOTE [ bucket: what is durable when ].

    Attributes:
        objects: the client.
        manifest: the manifest that is there; None: there is none.
        listed: what the store has below the URL, by name.
    """

    def __init__(self, objects: Objects, *, overwrite: bool = False) -> None:
        """Reads the manifest and lists the objects.

        Args:
            objects: the client.
            overwrite: a manifest that is damaged is none; and no object is taken to have the content that the manifest says.

        Raises:
            DatasetError: the manifest is damaged or of a later version, and not to be overwritten.
            PackError: the URL holds other objects only.
            RemoteError: the store does not answer, or denies access.
        """
        self.objects = objects
        if objects.url.lower().startswith(("http://", "https://")):
            raise PackError(
                f"{objects.url} is a web server's, which is read from, and not written to: name the bucket, as in s3://bucket/path"
            )
        self.listed = {info.name: info for info in _list(objects)}
        ours = [name for name in self.listed if is_packed_file(name)]
        if self.listed and not ours:
            first = min(self.listed)
            raise PackError(f"{objects.url} holds other objects ({first}, ...), which are left alone; choose another URL")
        self.manifest: Manifest | None = None
        self._used: dict[str, DataFile | None] = {}
        try:
            self.manifest = find_manifest(objects) if MANIFEST_NAME in self.listed else None
            self._used.update({file.name: file for file in data_files(self.manifest)} if self.manifest is not None else {})
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

    @property
    def begun(self) -> bool:
        """Whether there are parts of a dataset that has no manifest."""
        return self.manifest is None and any(is_packed_file(name) for name in self.listed)

    def note(self, name: str, digest: str) -> None:
        """Says that an object is known to have a file's content, by the file's digest."""
        self._noted[digest] = name

    def is_there(self, file: DataFile) -> bool:
        """Whether an object of the file's name has its content: by a note, or by the manifest."""
        if self._noted.get(file.digest) == file.name:
            return True
        used, info = self._used.get(file.name), self.listed.get(file.name)
        return used is not None and used.parts == file.parts and used.whole == file.whole and info is not None and file.fits(info.size)

    def name_for(self, file: DataFile) -> str:
        """A name for an object with a file's content: the one that it has there already, else the file's own, else an unused one."""
        noted = self._noted.get(file.digest)
        if noted is not None and noted not in self._taken:
            self._taken.add(noted)
            return noted
        same = (name for name, used in self._used.items() if used is not None and (used.parts, used.whole) == (file.parts, file.whole))
        name = next((name for name in same if name not in self._taken), file.name)
        used = self._used.get(name)
        if name in self._taken or (name in self._used and (used is None or used.parts != file.parts)):
            name = self.unused_name(file.name)
        self._taken.add(name)
        return name

    def unused_name(self, like: str) -> str:
        """A name of the kind of another, with a number above all that are in use."""
        start, _, rest = like.partition("-")
        names = [name for name in (*self._used, *self._taken) if is_data_file(name) and name.startswith(f"{start}-")]
        number = max((file_number(name) for name in names), default=-1) + 1
        if number >= _NUMBERS:
            raise PackError(f"{self.objects.url} has no unused name for {like}: choose another URL")
        return f"{start}-{number:05d}.{rest.partition('.')[2]}"

    @property
    def next_shard(self) -> int:
        """The number after those in the names of the shards that the manifest names."""
        return max((file_number(name) for name in self._used if name.startswith("shard-")), default=-1) + 1

    def commit(self, manifest: Manifest, written: Mapping[str, ObjectInfo]) -> int:
        """Makes the dataset of this manifest, and removes the objects of a dataset that it does not name.

        Args:
            manifest: names objects that are there.
            written: those that this writer wrote, as the store described them then.

        Returns:
            The number of removed objects, but for the notes of an unfinished push.

        Raises:
            PackError: an object was replaced or removed by someone else since it was written.
            RemoteError: the store does not answer, or denies access.
        """
        files = data_files(manifest)
        listed = {info.name: info for info in self.objects.list()}
        for file, what in missing(files, listed.values()):
            raise PackError(f"{self.objects.url}/{file.name}: {what}: something else writes to this URL; run the command again")
        for name, info in written.items():
            if info.etag is not None and not same_object(listed.get(name), info):
                raise PackError(f"{self.objects.url}/{name} was replaced since it was sent: something else writes to this URL; run again")
        if manifest != self.manifest:
            self.objects.put(MANIFEST_NAME, manifest.to_bytes())
            self.manifest = manifest
        named = {file.name for file in files} | {MANIFEST_NAME}
        return self._remove(name for name in listed if is_packed_file(name) and name not in named)

    def _remove(self, names: Iterable[str]) -> int:
        with request_threads(self.objects, _REMOVALS, "fastload-remove") as pool:
            removed = list(names)
            list(pool.map(self.objects.delete, removed))
        return len([name for name in removed if name != JOURNAL_NAME])


def same_object(now: ObjectInfo | None, then: ObjectInfo) -> bool:
    """Whether an object is the one that was described earlier, by size and ETag. False where the store has no ETags.

    Azure has quotes around the ETag of an object, and none in a listing.
    """
    if now is None or now.etag is None or then.etag is None:
        return False
    return (now.size, now.etag.strip('"')) == (then.size, then.etag.strip('"'))


def _list(objects: Objects) -> list[ObjectInfo]:
    try:
        return objects.list()
    except RemoteMissingError:
        raise PackError(f"there is no bucket for {objects.url}: make it first, or check the URL") from None
