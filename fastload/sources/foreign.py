"""Sources in a store or on a web server: which objects URLs stand for, and that they are there."""

from __future__ import annotations

import fnmatch
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, NamedTuple
from urllib.parse import urlsplit

from fastload.common.urls import is_remote, is_url, local_path, shown
from fastload.errors import ArgumentError, PackError, RemoteMissingError
from fastload.remote.foreign import ForeignObjects, ForeignURL
from fastload.remote.hub_urls import is_hub, pinned
from fastload.sources.protocol import Files
from fastload.store import MANIFEST_NAME
from fastload.store.checked import JSON_BYTES, get_object, parse_json

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


def existing_urls(urls: Sequence[ForeignURL], what: str) -> list[ForeignURL]:
    """The objects that URLs name or match, in their order; those that match are sorted. Without `what` one
    that is named need not be there.

    Raises:
        PackError: one is not there, or none matches.
        RemoteError: the store does not answer, or lists nothing, as a web server.
    """

    def existing(url: ForeignURL) -> list[ForeignURL]:
        if not url.is_known and any(mark in urlsplit(url.url).path for mark in _MARKS):
            return _matching(url)
        try:
            if what:
                url.size  # noqa: B018
        except RemoteMissingError:
            raise PackError(f"{url}: no such {what}") from None
        return [url]

    with ThreadPoolExecutor(_AT_ONCE, "fastload-list") as pool:
        return [found for some in pool.map(existing, urls) for found in some]


class ForeignFiles(NamedTuple):
    """Files in a store, of one kind: what opens some of them, and each by its URL."""

    kind: Files
    urls: Sequence[ForeignURL]


def index_of(folder: ForeignURL, found: Iterable[ForeignURL]) -> dict[str, Any]:
    """The object in the index.json directly below a URL, among the objects there; {}: there is none. Raises
    PackError: it is no JSON object; RemoteError."""
    path = f"{folder.url.rstrip('/')}/index.json"
    url = next((each for each in found if each.url == path and each.size <= JSON_BYTES), None)
    try:
        return {} if url is None else get_object(parse_json(url.whole()), "its content")
    except ValueError as error:
        raise PackError(f"{url}: it cannot be read as JSON: {error}") from error


def _matching(url: ForeignURL) -> list[ForeignURL]:
    """The objects that a URL with a pattern in its last parts matches."""
    parts = url.url.split("/")
    first = next(number for number, part in enumerate(parts) if any(mark in part for mark in _MARKS))
    folder, pattern = "/".join(parts[:first]), parts[first:]

    def matches(name: list[str]) -> bool:
        return len(name) == len(pattern) and all(map(fnmatch.fnmatchcase, name, pattern))

    found = [each for each in url.objects.below(folder) if matches(each.url[len(folder) + 1 :].split("/"))]
    if not found:
        raise PackError(f"{url}: no object matches")
    return sorted(found, key=lambda each: each.url)


def in_folder(
    folder: ForeignURL, found: Iterable[ForeignURL], kinds: Sequence[Callable[[str], bool]]
) -> list[ForeignURL]:
    """Those of the objects below a URL that lie directly below it and are of the first kind of which there
    are some. Raises PackError: the URL is that of a packed dataset, or of nothing."""
    first, direct, is_empty = len(folder.url.rstrip("/")) + 1, list[ForeignURL](), True
    for each in found:
        is_empty = False
        if "/" in each.url[first:]:
            continue
        if each.url[first:] == MANIFEST_NAME:
            raise PackError(
                f"{folder} is a packed dataset: open it with PackedDataset, or copy it with `fastload pull`"
            )
        if any(named(each) for named in kinds):
            direct.append(each)
    if is_empty:
        raise PackError(f"{folder}: nothing lies below it; name files, as in {folder}/train-{{000..099}}.tar")
    direct.sort(key=lambda each: each.url)
    return next(filter(None, ([each for each in direct if named(each)] for named in kinds)), [])
