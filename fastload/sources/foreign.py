"""Sources in a store or on a web server: which objects URLs stand for, and that they are there."""

from __future__ import annotations

import fnmatch
import os
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any
from urllib.parse import urlsplit

from fastload.common.urls import is_remote, is_url, local_path, shown
from fastload.errors import PackError, RemoteMissingError
from fastload.remote.foreign import ForeignObjects, ForeignURL
from fastload.store import MANIFEST_NAME

_MARKS = "*?["
_AT_ONCE = 16
"""Objects that are looked up at the same time."""


def has_urls(source: object) -> bool:
    """True for the URL of something in a store, and for a list with one."""
    several = source if isinstance(source, list | tuple) else (source,)
    return any(map(is_remote, several))


def title_of_urls(source: object) -> str:
    """The first URL of a source, without its secrets."""
    several = source if isinstance(source, list | tuple) else (source,)
    return next(shown(each) for each in several if is_remote(each))


def with_urls(source: object, storage_options: Mapping[str, Any] | None, timeout: float | str | None) -> Any:
    """A source in which URLs of a store are ForeignURLs, and file:// ones paths."""
    objects = ForeignObjects(storage_options, timeout)

    def opened(each: object) -> object:
        if isinstance(each, ForeignURL) or not (isinstance(each, str) and is_url(each)):
            return each
        path = local_path(each)
        return ForeignURL(each, objects) if path is None else path

    return [opened(each) for each in source] if isinstance(source, list | tuple) else opened(source)


def existing_urls(urls: Sequence[ForeignURL], what: str) -> list[str]:
    """The objects that URLs name or match, in their order; those that match are sorted.

    Raises:
        PackError: one is not there, or none matches.
        RemoteError: the store does not answer, or lists nothing, as a web server.
    """
    if any(_is_pattern(url) for url in urls):
        return [found for url in urls for found in (_matching(url) if _is_pattern(url) else (url,))]

    def look_up(url: ForeignURL) -> str:
        try:
            url.objects.info(url.url)
        except RemoteMissingError:
            raise PackError(f"{url}: no such {what}") from None
        return url

    with ThreadPoolExecutor(_AT_ONCE, "fastload-list") as pool:
        return list(pool.map(look_up, urls))


def _is_pattern(url: ForeignURL) -> bool:
    return any(mark in urlsplit(url.url).path for mark in _MARKS)


def _matching(url: ForeignURL) -> list[str]:
    """The objects that a URL with a pattern in its last parts matches."""
    parts = url.url.split("/")
    first = next(number for number, part in enumerate(parts) if any(mark in part for mark in _MARKS))
    folder, pattern = "/".join(parts[:first]), parts[first:]
    names = [
        name
        for name in below(ForeignURL(folder, url.objects))
        if len(name.split("/")) == len(pattern) and all(map(fnmatch.fnmatchcase, name.split("/"), pattern))
    ]
    if not names:
        raise PackError(f"{url}: no object matches")
    return [ForeignURL(f"{folder}/{name}", url.objects) for name in sorted(names)]


def below(folder: ForeignURL) -> list[str]:
    """Names of the objects below a URL, whose sizes and ETags are noted. Raises RemoteError."""
    base = folder.url.rstrip("/")
    found = folder.objects.below(base)
    for name, info in found.items():
        folder.objects.note(f"{base}/{name}", info)
    return list(found)


def in_folder(folder: ForeignURL, kinds: Sequence[Callable[[str], bool]]) -> list[str]:
    """The objects directly below a URL that are of the first kind of which there are some.

    Raises:
        PackError: there are none, or the URL is that of a packed dataset.
        RemoteError: the store does not answer, or lists nothing, as a web server.
    """
    names = sorted(name for name in below(folder) if "/" not in name)
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
