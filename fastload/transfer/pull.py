"""pull: downloads a packed dataset from a URL into a folder.

NOTE [ pull: what is durable when ]
1. progress.json exists before the first file, and says what content each file has that gets its name: a
   digest of its checksums.
2. A file gets its name once it is complete, its checksums hold, and it is on the disk. Until then its name
   ends with .part.
3. manifest.json is written last, by rename; progress.json is removed after it.
So a pull that was killed goes on: a file that has its name, and whose content is still wanted, is not
downloaded again.
"""

from __future__ import annotations

import os
import shutil
import time
from collections.abc import Mapping
from contextlib import closing, suppress
from dataclasses import dataclass, replace
from pathlib import Path

from fastload.common.files import read_regular
from fastload.common.progress import Progress
from fastload.errors import DatasetError, FastloadError, PackError, advised
from fastload.remote.client import open_objects
from fastload.remote.manifest import DataFile, data_files, download, load_manifest
from fastload.remote.objects import Objects
from fastload.remote.replaced import ReplacedCheck
from fastload.store import JOURNAL_NAME, MANIFEST_NAME, Manifest, checked
from fastload.store.lists import images_path
from fastload.store.manifest import (
    MANIFEST_BYTES,
    PULL_FORMAT,
    is_pull,
    new_path,
    sync_folder,
    write_atomically,
)
from fastload.store.progress import check_free, claim_folder, clear, is_packed_file
from fastload.store.shard import write_error

_VERSION = 1
_GO_ON = "pull again, and it goes on"


@dataclass(frozen=True, slots=True)
class PullSummary:
    """Result of `pull`.

    Attributes:
        samples: samples of the dataset.
        files: its files, without the manifest.
        bytes: their size.
        fetched_files: files that this call downloaded.
        fetched_bytes: their size.
        seconds: wall-clock time.
    """

    samples: int
    files: int
    bytes: int
    fetched_files: int
    fetched_bytes: int
    seconds: float

    def with_images(self, images: PullSummary) -> PullSummary:
        """The summary of a dataset, with that of its images of any number, which are a dataset of their
        own."""
        counts = ("files", "bytes", "fetched_files", "fetched_bytes")
        return replace(self, **{name: getattr(self, name) + getattr(images, name) for name in counts})


def pull(
    url: str,
    out: str | os.PathLike[str],
    *,
    overwrite: bool = False,
    storage_options: Mapping[str, object] | None = None,
    timeout: float | str = 60.0,
    progress: bool = False,
) -> PullSummary:
    """Downloads a packed dataset into the directory `out`; it is a dataset once this returns, and not before.

    Another call of a pull that was stopped goes on with it, and keeps files whose content the URL still has.

    Args:
        url: the dataset's: ``s3://bucket/train.fl``, ``gs://``, ``az://``, ``https://``, ``file://``.
        out: the directory to make.
        overwrite: replaces a dataset, finished or half-written, at `out`.
        storage_options, timeout, progress: as for `fastload.pack`.

    Raises:
        ArgumentError: the URL or an option is wrong.
        DatasetError: no finished dataset at the URL, or a damaged object.
        PackError: `out` is in the way, or the disk is full. Complete files stay, for the next call.
        RemoteError: the store does not answer, or denies access.
    """
    started = time.monotonic()
    folder = new_path(out)
    with advised(_GO_ON), closing(open_objects(url, storage_options, timeout)) as objects:
        manifest = load_manifest(objects)
        objects.opened = ReplacedCheck(objects, manifest)
        files = data_files(manifest)
        lock = claim_folder(folder)
        try:
            _prepare(folder, overwrite)
            left = _keep(folder, files)
            _fetch(objects, folder, files, left, manifest.count, progress)
            images = None
            if manifest.schema.images is not None:
                images = _pull_images(url, folder, (storage_options, timeout, progress))
            manifest.write(folder)
            (folder / JOURNAL_NAME).unlink()
        except FastloadError:
            raise
        except OSError as error:
            raise write_error(folder / MANIFEST_NAME, 0, error, _GO_ON) from None
        finally:
            os.close(lock)
    total, fetched = (sum(file.bytes for file in each) for each in (files, left))
    done = PullSummary(manifest.count, len(files), total, len(left), fetched, time.monotonic() - started)
    return done if images is None else done.with_images(images)


def _pull_images(
    url: str, folder: Path, store: tuple[Mapping[str, object] | None, float | str, bool]
) -> PullSummary | None:
    """Downloads the dataset of images of any number, unless it is there already: None."""
    storage_options, timeout, progress = store
    there, images = images_path(folder), images_path(url)
    with closing(open_objects(images, storage_options, timeout)) as objects:
        with suppress(DatasetError):
            if Manifest.load(there).to_bytes() == load_manifest(objects).to_bytes():
                return None
    return pull(
        images,
        there,
        overwrite=os.path.exists(there),
        storage_options=storage_options,
        timeout=timeout,
        progress=progress,
    )


def _prepare(folder: Path, overwrite: bool) -> None:
    """Checks that a dataset may be downloaded into a folder, and empties it where that is asked for."""
    unfinished = is_pull(folder)
    check_free(folder, str(folder), resume=unfinished, overwrite=overwrite)
    if overwrite and not unfinished:
        clear(folder)


def _keep(folder: Path, files: tuple[DataFile, ...]) -> list[DataFile]:
    """Removes what an earlier pull has left and is of no use, writes the journal, and returns the files
    that are to be downloaded."""
    had = _had(folder)
    complete = {JOURNAL_NAME} | {
        file.name
        for file in files
        if had.get(file.name) == file.digest
        and (folder / file.name).is_file()
        and (folder / file.name).stat().st_size == file.bytes
    }
    for name in sorted(os.listdir(folder), key=lambda name: (name != MANIFEST_NAME, name)):
        if is_packed_file(name) and name not in complete:
            (folder / name).unlink()
    sync_folder(folder)
    content = {
        "format": PULL_FORMAT,
        "version": _VERSION,
        "files": {file.name: file.digest for file in files},
    }
    write_atomically(folder / JOURNAL_NAME, checked.seal(content))
    return [file for file in files if file.name not in complete]


def _had(folder: Path) -> Mapping[str, object]:
    """The digests that the journal of an earlier pull has, by the names of files; {} if there is none that
    holds."""
    path = folder / JOURNAL_NAME
    try:
        files = checked.unseal(checked.parse(read_regular(path, MANIFEST_BYTES), str(path)), str(path)).get(
            "files"
        )
    except (FileNotFoundError, DatasetError):
        return {}
    return files if isinstance(files, dict) and is_pull(folder) else {}


def _fetch(
    objects: Objects,
    folder: Path,
    files: tuple[DataFile, ...],
    left: list[DataFile],
    samples: int,
    progress: bool,
) -> None:
    """Downloads files. Raises PackError if the disk is too small, DatasetError if an object is damaged."""
    total, todo = (sum(file.bytes for file in each) for each in (files, left))
    free = shutil.disk_usage(folder).free
    if todo > free:
        raise PackError(
            f"the disk of {folder} is too small: {todo:,} bytes are to be downloaded, {free:,} are "
            f"free. Make room and {_GO_ON}"
        )
    done = total - todo
    with (
        Progress(samples, "pull", shown=progress, unit="") as bar,
        closing(download(objects, left, folder)) as ranges,
    ):
        bar.start(samples * done // max(total, 1), done)
        for file, size, wrong in ranges:
            if wrong:
                raise DatasetError(
                    f"{objects.url}/{file.name}: {wrong}: it is damaged, or was replaced meanwhile; {_GO_ON}"
                )
            done = min(done + size, total)  # a file may be fetched again
            bar.update(samples * done // max(total, 1), done)
