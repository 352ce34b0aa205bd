"""Sources in a store or on a web server: which objects URLs stand for, and that they are there."""

from __future__ import annotations

import fnmatch
import os
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any
from urllib.parse import urlsplit

from fastload.common.urls import is_remote, is_url, local_path, shown
from fastload.errors import ArgumentError, PackError, RemoteMissingError
from fastload.remote.foreign import ForeignObjects, ForeignURL
from fastload.remote.hub_urls import is_hub, pinned
from fastload.store import MANIFEST_NAME

_MARKS = "*?["
_AT_ONCE = 16
"""Objects that are looked up at the same time."""


def each_of(source: object) -> Sequence[object]:
    """The members of a list of sources; of anything else, itself."""
    return source if isinstance(source, list | tuple) else (source,)


def has_urls(source: object) -> bool:
    """True for the URL of something in a store, and for a list with one."""
    return any(map(is_remote, each_of(source)))


def refuse_urls(source: object, takes: str) -> None:
    """Raises ArgumentError for a source in a store, of which `takes` says what takes none: "`read` takes"."""
    for each in each_of(source):
        if isinstance(each, str) and is_remote(each):
            raise ArgumentError(
                f"{shown(each)} lies in a store, and {takes} files on a disk: make a dataset of it with "
                "`fastload pack`"
            )


def with_urls(source: object, storage_options: Mapping[str, Any] | None, timeout: float | str | None) -> Any:
    """A source in which URLs of a store are ForeignURLs, and file:// ones paths."""
    objects = ForeignObjects(storage_options, timeout)
    commits: dict[str, str] = {}

    def opened(each: object) -> object:
        if isinstance(each, ForeignURL) or not (isinstance(each, str) and is_url(each)):
            return each
        path = local_path(each)
        if path is not None:
            return path
        return ForeignURL(pinned(each, storage_options, commits) if is_hub(each) else each, objects)

    return [opened(each) for each in source] if isinstance(source, list | tuple) else opened(source)


def existing_urls(urls: Sequence[ForeignURL], what: str) -> list[str]:
    """The objects that URLs name or match, in their order; those that match are sorted.

    Raises:
        PackError: one is not there, or none matches.
        RemoteError: the store does not answer, or lists nothing, as a web server.
    """

    def existing(url: ForeignURL) -> list[str]:
        if any(mark in urlsplit(url.url).path for mark in _MARKS):
            return _matching(url)
        try:
            url.objects.info(url.url)
        except RemoteMissingError:
            raise PackError(f"{url}: no such {what}") from None
        return [url]

    with ThreadPoolExecutor(_AT_ONCE, "fastload-list") as pool:
        return [found for some in pool.map(existing, urls) for found in some]


def _matching(url: ForeignURL) -> list[str]:
    """The objects that a URL with a pattern in its last parts matches."""
    parts = url.url.split("/")
    first = next(number for number, part in enumerate(parts) if any(mark in part for mark in _MARKS))
    folder, pattern = "/".join(parts[:first]), parts[first:]
    names = [
        name
        for name in url.objects.below(folder)
        if len(name.split("/")) == len(pattern) and all(map(fnmatch.fnmatchcase, name.split("/"), pattern))
    ]
    if not names:
        raise PackError(f"{url}: no object matches")
    return [ForeignURL(f"{folder}/{name}", url.objects) for name in sorted(names)]


def in_folder(folder: ForeignURL, kinds: Sequence[Callable[[str], bool]]) -> list[str]:
    """The objects directly below a URL that are of the first kind of which there are some.

    Raises:
        PackError: there are none, or the URL is that of a packed dataset.
        RemoteError: the store does not answer, or lists nothing, as a web server.
    """
    names = sorted(name for name in folder.objects.below(folder.url) if "/" not in name)
    if MANIFEST_NAME in names:
        raise PackError(
            f"{folder} is a packed dataset: open it with PackedDataset, or copy it with `fastload pull`"
        )
    for named in kinds:
        if some := [name for name in names if named(name)]:
            return [ForeignURL(f"{folder.url.rstrip('/')}/{name}", folder.objects) for name in some]
    raise PackError(
        f"{folder}: no .tar, .parquet, .arrow or TFRecord files directly below it; name them, as in "
        f"{os.path.join(shown(folder.url), 'train-{000..099}.tar')}"
    )
