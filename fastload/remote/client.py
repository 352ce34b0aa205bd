"""open_objects: opens the objects below a URL, by obstore (S3, GCS, Azure, HTTP, files) or by fsspec
(every other protocol)."""

from __future__ import annotations

import importlib.util
from collections.abc import Mapping
from urllib.parse import urlsplit

from fastload.common.distribution import pip_install
from fastload.common.limits import parse_timeout
from fastload.common.urls import is_url
from fastload.errors import ArgumentError
from fastload.remote.hub_urls import is_pinned
from fastload.remote.objects import Objects

OBSTORE_SCHEMES = frozenset(
    {"s3", "s3a", "gs", "az", "adl", "azure", "abfs", "abfss", "http", "https", "file"},
)


def open_objects(
    url: str, storage_options: Mapping[str, object] | None = None, timeout: float | str = 60.0
) -> Objects:
    """The objects below a URL, for the calling process.

    Args:
        url: ``s3://bucket/path``, ``gs://``, ``az://``, ``http(s)://``, ``file://``; other protocols
            (``hdfs://``, ``sftp://``, ``hf://`` without a commit) are left to fsspec.
        storage_options: obstore's configuration keys (``endpoint``, ``region``, ``access_key_id``, ...),
            ``client_options`` and ``credential_provider``; for other protocols fsspec's. Options that are not
            given are taken from the environment.
        timeout: seconds within which a request is tried again, or text such as 30min or 6h.

    Raises:
        ArgumentError: the URL, an option or the timeout is wrong, or a package is missing.
    """
    if not is_url(url):
        raise ArgumentError(f"not a URL of a store: {url!r}; write it as in s3://bucket/path")
    seconds = parse_timeout(timeout)
    options = dict(storage_options or {})
    if urlsplit(url).scheme.lower() in OBSTORE_SCHEMES:
        _need("obstore", url)
        from fastload.remote.obstore import ObstoreObjects

        return ObstoreObjects(url, options, seconds)
    if is_pinned(url):
        _need("obstore", url)
        from fastload.remote.hub import HubObjects

        return HubObjects(url, options, seconds)
    _need("fsspec", url)
    from fastload.remote.fsspec import FsspecObjects

    return FsspecObjects(url, options, seconds)


def _need(package: str, url: str) -> None:
    if importlib.util.find_spec(package) is None:
        scheme = urlsplit(url).scheme
        raise ArgumentError(f"{scheme}:// needs {package}, which is not installed: {pip_install('remote')}")
