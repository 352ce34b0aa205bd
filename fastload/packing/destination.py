"""Destination of a pack: a folder, or a URL with the local folder through which its shards go."""

from __future__ import annotations

import os
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

from fastload.common.files import expanded
from fastload.common.urls import is_url, local_path
from fastload.errors import ArgumentError
from fastload.packing.options import RunOptions
from fastload.store import DatasetWriter
from fastload.store.manifest import new_path


def destination(out: str | os.PathLike[str], run: RunOptions) -> tuple[Path, Callable[..., DatasetWriter]]:
    """The folder that a pack writes to, and what opens its writer: called with DatasetWriter's arguments from the schema on.

    Raises:
        ArgumentError: an option of URLs is given for a folder, or the URL or an option is wrong.
    """
    place = place_of(out, run)
    return _at_url(place, run) if isinstance(place, str) else (place, partial(DatasetWriter, place))


def place_of(out: str | os.PathLike[str], run: RunOptions) -> str | Path:
    """Where a pack writes to: a URL as a str, or a folder of this machine as a Path.

    Raises:
        ArgumentError: an option of URLs is given for a folder, or the URL is wrong.
    """
    if is_url(out) and (path := local_path(os.fspath(out))) is not None:
        out = path
    if is_url(out):
        return os.fspath(out)
    for name in ("staging", "storage_options"):
        if getattr(run, name) is not None:
            raise ArgumentError(f"{name} is for a pack to a URL, and {os.fspath(out)} is a folder")
    return new_path(out)


def _at_url(url: str, run: RunOptions) -> tuple[Path, Callable[..., DatasetWriter]]:
    from fastload.remote.client import open_objects
    from fastload.remote.writer import RemoteWriter, default_staging

    staging = default_staging(url) if run.staging is None else Path(expanded(run.staging))

    def open_writer(*args: Any, **settings: Any) -> DatasetWriter:
        objects = open_objects(url, run.storage_options)
        try:
            return RemoteWriter(objects, staging, *args, **settings)
        except BaseException:
            objects.close()
            raise

    return staging, open_writer
