"""in_memory(): an ImageFolder's folder as a packed dataset, for commands that look at one: attached, in
memory, while they run."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import NamedTuple

import numpy as np

from fastload.common.files import expanded, scratch_folder
from fastload.common.folders import IMAGE_EXTENSIONS, files_below
from fastload.common.images import open_image
from fastload.common.positions import evenly
from fastload.common.urls import is_url
from fastload.errors import PackError
from fastload.packing.attach import attach
from fastload.packing.cluster.parts import Slice
from fastload.sources import is_packed
from fastload.sources.folder import FolderSource
from fastload.sources.protocol import Place

IMAGES = 4096
"""Most images of a folder that are attached, evenly spaced."""
PIXEL_BYTES = 256 << 20
"""Most bytes of images that are no JPEGs: their pixels are held."""
_LOOKED_AT = 64
_MEMORY = "/dev/shm"


class InMemory(NamedTuple):
    """A dataset that a command looks at.

    Attributes:
        path: a packed dataset.
        said: sentence on what was attached; "": the path is the one that was given.
    """

    path: str
    said: str = ""


@contextmanager
def in_memory(path: str, most: int = IMAGES) -> Iterator[InMemory]:
    """The dataset at a path; a folder of class folders is attached, in memory, until the block ends. Nothing
    is written beside it.

    Args:
        path: a packed dataset, or its URL; a folder of class folders; anything else is given back as it is.
        most: most images that are attached, evenly spaced; 0: all that there is memory for.

    Raises:
        PackError: the folder's classes are not as ImageFolder wants them, or there is no memory for the
            index.
    """
    whole = None if is_url(path) else _class_folders(expanded(path))
    if whole is None:
        yield InMemory(path)
        return
    with scratch_folder("attached", _memory()) as scratch:
        some = _Some(
            whole, np.array(evenly(len(whole), _count(whole, most or len(whole), scratch)), np.int64)
        )
        attach(some, scratch / "index", on_error="skip", progress=False)
        left = "" if len(some) == len(whole) else f" of {len(whole):,}, evenly spaced"
        yield InMemory(
            str(scratch / "index"),
            f"{path}: class folders, {len(some):,} images{left}; attached in memory, nothing is written",
        )


def _class_folders(path: str) -> FolderSource | None:
    """The images below class folders; None: there are none. Raises PackError."""
    if is_packed(path) or not os.path.isdir(path):
        return None
    try:
        return FolderSource(path)
    except PackError:
        if any(
            folder != path and name.lower().endswith(IMAGE_EXTENSIONS) for folder, name in files_below(path)
        ):
            raise
        return None


def _memory() -> str | None:
    """A folder whose files are memory; None: there is none, and the system's temporary one is taken."""
    return _MEMORY if os.path.isdir(_MEMORY) and os.access(_MEMORY, os.W_OK | os.X_OK) else None


def _count(source: FolderSource, most: int, scratch: Path) -> int:
    """Number of images that may be attached: the pixels of those that are no JPEGs are held."""
    status = os.statvfs(scratch)
    room = min(PIXEL_BYTES, status.f_bavail * status.f_frsize // 2)
    looked_at = evenly(len(source), min(len(source), _LOOKED_AT))
    held = sum(_held_bytes(source.name(position)) for position in looked_at)
    return min(most, len(source), max(1, room * len(looked_at) // held) if held else len(source))


def _held_bytes(path: str) -> int:
    """Bytes of an image's pixels that are held; 0: it is a JPEG, or no image, and is left out with its
    reason when its turn comes."""
    with suppress(Exception), open(path, "rb") as file, open_image(file) as image:
        return 0 if image.format == "JPEG" else 4 * image.width * image.height
    return 0


class _Some(Slice):
    """Some of the images of a folder of class folders."""

    _source: FolderSource

    def place(self, position: int) -> Place:
        return self._source.place(self._at(position))
