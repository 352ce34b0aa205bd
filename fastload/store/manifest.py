"""Manifest: the description of a packed dataset in manifest.json. It is written last, by rename; a folder
without it is no dataset.

A dataset that is changed gets a new version: the manifest of the old one is kept beside it, under a name with
its number. `fastload.store.change` says what is durable when.
"""

from __future__ import annotations

import builtins
import difflib
import hashlib
import json
import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

from fastload.common.files import expanded, read_regular
from fastload.common.urls import is_url, local_path, meant_url
from fastload.common.urls import shown as without_secrets
from fastload.errors import ArgumentError, DatasetError
from fastload.store import checked
from fastload.store.checked import Bad, get_int, get_list, get_object, get_str, shown
from fastload.store.entries import COUNT_LIMIT, SHARD_NAME, Segment, ShardEntry, parse_shards, parse_sidecars
from fastload.store.form import Form
from fastload.store.form import from_json as form_from_json
from fastload.store.form import to_json as form_to_json
from fastload.store.kinds.base import HEIGHT_COLUMN
from fastload.store.schema import Schema

FORMAT = "fastload"
FORMAT_VERSION = 4
"""The format's latest version. A manifest has the first version that can say what there is to say: 2 for
changed datasets, 3 for schemas of several images, or with masks, boxes and the other kinds of fields that
came with them, 4 for images in objects of a store."""
_EXTENDED = 3
MANIFEST_NAME = "manifest.json"
VERSION_NAME = re.compile(r"manifest-([0-9]{5,9})\.json")
"""Names of the manifests of older versions."""
VERSION_LIMIT = 10**9 - 1
JOURNAL_NAME = "progress.json"
PULL_FORMAT = "fastload-pull"
"""The `format` of the journal of a download."""
CLUSTER_FORMAT = "fastload-cluster"
"""The `format` of the journal of a pack on a cluster: see `fastload.packing.cluster`."""
MANIFEST_BYTES = 1 << 28
"""Limit on manifest.json and progress.json: a million classes with names of 100 bytes, or 200,000 shards,
fit."""
LOST = f"holds shards, but its {MANIFEST_NAME} is lost: copy that file again from where the dataset came from"


@dataclass(frozen=True)
class Manifest:
    """A packed dataset's description.

    Attributes:
        schema: the fields of every sample.
        shards: the files, in the order of their samples.
        classes: names of labels 0, 1, ...; None where labels are no classes.
        options: options of the pack.
        summary: counts of the pack.
        version: the dataset's version: 1 as it was packed, one more after each change.
        sidecars: files that say where everything lies in the shards, or in some of them: see
            `fastload.store.sidecar`.
        form: the structure of a sample, where it is another than its fields give; None: it follows from them.
    """

    schema: Schema
    shards: tuple[ShardEntry, ...]
    classes: Sequence[str] | None = None
    options: Mapping[str, Any] = field(default_factory=dict)
    summary: Mapping[str, Any] = field(default_factory=dict)
    version: int = 1
    sidecars: tuple[Segment, ...] = ()
    form: Form | None = None

    @property
    def count(self) -> int:
        """Samples in all shards."""
        return sum(shard.count for shard in self.shards)

    @property
    def bytes(self) -> int:
        """Size of all shards."""
        return sum(shard.size for shard in self.shards)

    @property
    def image_bytes(self) -> int:
        """Bytes that an epoch reads: of all shards, and of foreign objects those of the images alone."""
        images = self.summary.get("bytes_in")
        return images if self.is_foreign and isinstance(images, int) else self.bytes

    @cached_property
    def is_foreign(self) -> bool:
        """True if images lie in objects of a store, as somebody else wrote them."""
        return any(shard.foreign is not None for shard in self.shards)

    @property
    def knows_sizes(self) -> bool:
        """True if columns have the heights and widths of all images. Of foreign ones they may be unknown; of
        lists they are in the dataset of these."""
        return self.schema.images is None and all(
            shard.foreign is None or HEIGHT_COLUMN in shard.columns for shard in self.shards
        )

    @property
    def image_number(self) -> int:
        """The number of the image in the files' records, which is the same in all. Raises ArgumentError if
        there is no image field."""
        name = next((field.name for field in self.schema if field.handler.is_image), "image")
        number = self.schema.number(name)
        return self.shards[0].packed_fields(self.schema).index(name) if self.shards else number

    @property
    def mean_bytes(self) -> float | None:
        """Mean size of a stored sample, in bytes of its shard; None where images are attached, or there
        are no samples."""
        if not self.shards or any(shard.base is not None for shard in self.shards):
            return None
        return self.bytes / max(1, sum(shard.stored for shard in self.shards))

    def same_samples(self, other: Manifest) -> bool:
        """Returns True if `other` has the same samples and values, judged by the checksums of all columns
        but the records'."""
        if (self.schema, self.shards) == (other.schema, other.shards):
            return True
        names = [field.name for field in self.schema]
        return (
            self.schema == other.schema
            and [shard.samples for shard in self.shards] == [shard.samples for shard in other.shards]
            and all(
                mine.origin(name) == its.origin(name)
                for mine, its in zip(self.shards, other.shards, strict=True)
                for name in names
            )
        )

    @cached_property
    def samples_digest(self) -> str:
        """Digest of which samples there are, in which order, whatever fields were added to them or taken
        away."""
        return hashlib.blake2b(
            json.dumps([shard.samples for shard in self.shards]).encode(), digest_size=16
        ).hexdigest()

    def to_bytes(self) -> builtins.bytes:
        """The file's content, with its own checksum. Raises ValueError or TypeError for values that JSON
        cannot represent."""
        if self.is_foreign:
            needed = FORMAT_VERSION
        elif self.schema.is_extended:
            needed = _EXTENDED
        else:
            plain = self.version == 1 and all(shard.plain for shard in self.shards)
            needed = 1 if plain else 2
        return checked.seal(
            {
                "format": FORMAT,
                "version": needed,
                **({} if self.version == 1 else {"dataset_version": self.version}),
                "count": self.count,
                "schema": self.schema.to_json(),
                "classes": None if self.classes is None else list(self.classes),
                "shards": [shard.to_json() for shard in self.shards],
                "options": dict(self.options),
                "summary": dict(self.summary),
                **({"sidecars": [sidecar.to_json() for sidecar in self.sidecars]} if self.sidecars else {}),
                **({} if self.form is None else {"form": form_to_json(self.form)}),
            }
        )

    @classmethod
    def from_bytes(cls, data: builtins.bytes, path: Path | str, name: str = MANIFEST_NAME) -> Manifest:
        """Parses the manifest in `data`; `path` is the dataset's folder or its URL as shown, and `name` the
        file's, for error messages.

        Raises:
            DatasetError: the manifest is of a later version or damaged, or a value is out of range.
        """
        what = f"{path}/{name}"
        content = checked.parse(data, what)
        found = check_version(content, FORMAT, FORMAT_VERSION, what)
        content = checked.unseal(content, what)
        try:
            manifest = cls._from_json(content, later=found > 1)
            if manifest.schema.is_extended and found < _EXTENDED:
                raise Bad(f"its schema has kinds of fields that format version {found} has not")
            if manifest.is_foreign and found < FORMAT_VERSION:
                raise Bad(f"its images lie in a store, which format version {found} does not know")
            return manifest
        except Bad as error:
            raise DatasetError(f"{what} does not hold ({error}): copy it again or pack again") from None

    @classmethod
    def _from_json(cls, content: dict[str, Any], later: bool) -> Manifest:
        schema = Schema.from_json(content.get("schema"))
        shards = parse_shards(content.get("shards"), schema, later=later)
        classes = content.get("classes")
        if classes is not None:
            classes = tuple(get_str(name, "a class") for name in get_list(classes, "the classes"))
        options = get_object(content.get("options"), "the options")
        summary = get_object(content.get("summary"), "the summary")
        version = (
            get_int(content.get("dataset_version", 1), "the dataset's version", 1, VERSION_LIMIT)
            if later
            else 1
        )
        form = None if content.get("form") is None else form_from_json(content["form"])
        manifest = cls(
            schema,
            shards,
            classes,
            options,
            summary,
            version,
            parse_sidecars(content.get("sidecars", [])),
            form,
        )
        count = get_int(content.get("count"), "the count", 0, COUNT_LIMIT)
        if count != manifest.count:
            raise Bad(f"the count is {count}, the shards hold {manifest.count}")
        return manifest

    @classmethod
    def load(cls, path: str | os.PathLike[str], version: int | None = None) -> Manifest:
        """Loads the manifest of the dataset in the folder `path`, as it is now or as it was in an older
        version.

        Raises:
            DatasetError: there is no such folder, or no finished dataset or no such version in it, or its
                manifest is damaged or of a later format.
        """
        folder = dataset_folder(path)
        try:
            now = cls._read(folder, MANIFEST_NAME)
            if version is None or version == now.version:
                return now
            try:
                old = cls._read(folder, version_name(version)) if 1 <= version < now.version else None
            except FileNotFoundError:
                old = None
        except FileNotFoundError:
            raise _missing(folder) from None
        except NotADirectoryError:
            raise DatasetError(
                f"{folder} is a file; a packed dataset is a folder: make one with `fastload pack`"
            ) from None
        if old is None:
            kept = ", ".join(map(str, [*old_versions(folder, now.version), now.version]))
            raise DatasetError(
                f"{folder} has no version {version} (any more): it has {kept}; `fastload prune` "
                "removes old ones"
            )
        if old.version != version:
            raise DatasetError(
                f"{folder / version_name(version)} does not hold (it is version {old.version}): copy it again"
            )
        return old

    @classmethod
    def _read(cls, folder: Path, name: str) -> Manifest:
        try:
            return cls.from_bytes(read_regular(folder / name, MANIFEST_BYTES), folder, name)
        except (FileNotFoundError, NotADirectoryError, DatasetError):
            raise
        except OSError as error:
            raise DatasetError(f"cannot read {folder / name}: {error.strerror}") from None

    def write(self, path: str | os.PathLike[str]) -> None:
        """Writes the manifest into the folder `path` atomically: a reader finds the old file or the new one,
        never a part.

        Raises:
            OSError: it could not be written.
        """
        write_atomically(Path(path) / MANIFEST_NAME, self.to_bytes())


def version_name(version: int) -> str:
    """The name of the manifest of an older version."""
    return f"manifest-{version:05d}.json"


def old_versions(folder: Path, now: int) -> list[int]:
    """Numbers of the versions before `now` whose manifests are kept, ascending."""
    found = (VERSION_NAME.fullmatch(name) for name in os.listdir(folder))
    numbers = (int(match[1]) for match in found if match is not None)
    return sorted(number for number in numbers if 1 <= number < now)


def dataset_folder(path: str | os.PathLike[str]) -> Path:
    """The folder of a dataset that is on the disk, of a path or a file:// URL. Raises DatasetError if it
    is another URL."""
    if not isinstance(path, str) or not is_url(path):
        return Path(expanded(path))
    if (local := local_path(path)) is not None:
        return Path(local)
    url = without_secrets(path)
    raise DatasetError(
        f"{url} is a URL, and this needs a dataset in a folder: `fastload pull {url} OUT` makes one"
    )


def output_path(out: str | os.PathLike[str]) -> Path:
    """Local path for files that can only go to a disk, from a path or a file:// URL. Raises ArgumentError
    for any other URL."""
    if not isinstance(out, str) or not is_url(out):
        return new_path(out)
    if (local := local_path(out)) is not None:
        return Path(local)
    raise ArgumentError(
        f"{without_secrets(out)} is a URL, and this writes to a disk: give a path, and copy what is "
        "written there"
    )


def new_path(out: str | os.PathLike[str]) -> Path:
    """A path at which files are made. Raises ArgumentError if a URL is meant: a slash too few, and a
    folder would be called as it is."""
    path = expanded(out)
    if (url := meant_url(path)) is not None and not os.path.lexists(path.partition("/")[0]):
        raise ArgumentError(
            f"{path} is a path, and nothing is there: if a URL is meant, write "
            f"{without_secrets(url)}; if a folder is, write ./{path}"
        )
    return Path(path)


def _near(folder: Path) -> Path | None:
    """The packed dataset beside a folder that is not there whose name is most like its name; None if none
    is."""
    try:
        there = [
            each.name
            for each in os.scandir(folder.parent)
            if os.path.exists(os.path.join(each.path, MANIFEST_NAME))
        ]
    except OSError:
        return None
    return next(
        (folder.with_name(name) for name in difflib.get_close_matches(folder.name, there, 1, 0.75)), None
    )


def _missing(folder: Path) -> DatasetError:
    if not folder.exists():
        parts = folder.parts
        first = next((at for at, part in enumerate(parts) if part.endswith(":")), 0)
        if (url := meant_url(str(Path(*parts[first:])), joined=True)) is not None:
            return DatasetError(
                f"there is no {folder}: check the path, or, if a URL is meant, write {without_secrets(url)}"
            )
        if near := _near(folder):
            return DatasetError(
                f"there is no {folder}: did you mean {near}? `fastload pack SRC {folder}` makes one"
            )
        return DatasetError(
            f"there is no {folder}: check the path, or pack it with `fastload pack SRC {folder}`"
        )
    if looks_unfinished(folder) and not can_go_on(folder):
        return DatasetError(f"{folder} {LOST}, or pack again: `fastload pack SRC {folder} --overwrite`")
    if is_pull(folder):
        return DatasetError(
            f"{folder} is unfinished: a pull stopped before its end. `fastload pull URL {folder}` "
            "goes on with it"
        )
    if looks_unfinished(folder):
        return DatasetError(
            f"{folder} is unfinished: packing stopped before its end. "
            f"`fastload pack SRC {folder} --resume` finishes it, --overwrite starts again"
        )
    if any(folder.iterdir()):  # maybe photos, into which nobody wants to pack
        new = folder.with_name(f"{folder.name}.fl") if folder.name else Path("train.fl")
        way = f"if it is the source of one, make one in a new folder with `fastload pack {folder} {new}`"
        return DatasetError(
            f"{folder} holds no packed dataset (no {MANIFEST_NAME}): give its folder, or, {way}"
        )
    return DatasetError(
        f"{folder} holds no packed dataset (no {MANIFEST_NAME}): make one with `fastload pack SRC {folder}`"
    )


def looks_unfinished(folder: Path) -> bool:
    """Returns True if a folder without a manifest holds parts of a dataset."""
    return any(name == JOURNAL_NAME or SHARD_NAME.fullmatch(name) for name in os.listdir(folder))


def is_pull(folder: Path) -> bool:
    """Returns True if the journal in a folder is that of a download."""
    try:
        return PULL_FORMAT in read_regular(folder / JOURNAL_NAME, MANIFEST_BYTES)[:100].decode(
            "utf-8", "replace"
        )
    except OSError:
        return False


def can_go_on(folder: Path) -> bool:
    """Returns True if a pack that stopped in this folder can be resumed: its journal stays until the
    manifest is written."""
    return (folder / JOURNAL_NAME).exists()


def check_version(content: Mapping[str, Any], form: str, version: int, what: str) -> int:
    """Checks the format and version of a file, before anything else in it, and returns the version.

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
    return found


def write_atomically(path: Path, data: bytes, durable: bool = True) -> None:
    """Writes a file atomically, through a temporary file renamed over `path`: a kill leaves the old file or
    the new one.

    Args:
        path: the file.
        data: its new content.
        durable: also syncs file and folder, so that this holds for a power failure too.
    """
    temporary = path.with_name(path.name + ".tmp")
    temporary.unlink(missing_ok=True)
    # "x": an existing file might be a link to elsewhere, or a FIFO without a reader.
    with open(temporary, "xb") as file:
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
