"""Walk of a folder tree that follows symbolic links, and ends wherever they lead; and the files in it that
are images by their names."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass

from fastload.errors import PackError

IMAGE_EXTENSIONS = (".jpg", ".jpeg", ".png", ".ppm", ".bmp", ".pgm", ".tif", ".tiff", ".webp")
"""Endings of the files that torchvision's ImageFolder takes for images, so that both see the same samples."""
VISITS = 1000
"""Limit on the paths that lead to one folder. If each of n folders has two links to the next, there are
2**n paths without a loop."""

_Identity = tuple[int, int]  # (device, inode)


def walk(top: str) -> list[tuple[str, list[str]]]:
    """Lists every folder from `top` downwards, in the order of ``sorted(os.walk(top, followlinks=True))``,
    which is ImageFolder's.

    Returns:
        For each folder (path, sorted names of the entries in it that are not folders). Raises as
        `files_below` does.
    """
    found: dict[str, list[str]] = {}
    for folder, name in files_below(top, folders=True):
        names = found.setdefault(folder, [])
        if name:
            names.append(name)
    return [(folder, sorted(found[folder])) for folder in sorted(found)]


def files_below(top: str, *, folders: bool = False) -> Iterator[tuple[str, str]]:
    """Yields (path of its folder, name) of each entry below `top` that is no folder, folder by folder, in no
    order. It holds no list of files.

    Args:
        top: the folder.
        folders: yield each folder itself as well, with the name "".

    Raises:
        PackError: a folder cannot be listed, lies within itself by a link, or is reached by more than
            `VISITS` paths.
    """
    visits: Counter[_Identity] = Counter()
    waiting = [
        _Folder(
            top,
            os.path.realpath(top),
            os.path.islink(top),
            os.path.realpath(os.path.dirname(top)),
            frozenset(),
        )
    ]
    while waiting:
        folder = waiting.pop()
        try:
            identity = folder.identity()
            visits[identity] += 1
            if visits[identity] > VISITS:
                raise PackError(
                    f"{folder.path}: more than {VISITS:,} paths lead to this folder, by links to "
                    "folders with links; remove some"
                )
            if folders:
                yield folder.path, ""
            inside = folder.above | {identity}
            with os.scandir(folder.path) as entries:
                for entry in entries:
                    if not is_folder(entry):
                        yield folder.path, entry.name
                        continue
                    real = os.path.join(folder.real, entry.name)
                    link = entry.is_symlink()
                    real = os.path.realpath(real) if link else real
                    waiting.append(
                        _Folder(os.path.join(folder.path, entry.name), real, link, folder.real, inside)
                    )
        except OSError as error:
            raise PackError(f"{error.filename or folder.path}: cannot be listed: {error.strerror}") from error


@dataclass(frozen=True, slots=True)
class _Folder:
    """A folder to be listed.

    Attributes:
        path: the path by which it was reached.
        real: its path without links.
        link: True if the last part of `path` is a link.
        holder: the path, without links, of the folder that contains it.
        above: the folders on the path to it.
    """

    path: str
    real: str
    link: bool
    holder: str
    above: frozenset[_Identity]

    def identity(self) -> _Identity:
        """Device and inode. Raises PackError if the folder contains the link that leads to it, before it
        is listed."""
        status = os.stat(self.path)
        identity = (status.st_dev, status.st_ino)
        if identity in self.above or (
            self.link and os.path.commonpath((self.real, self.holder)) == self.real
        ):
            raise PackError(f"{self.path}: a link to a folder that holds it ({self.real}); remove the link")
        return identity


def is_folder(entry: os.DirEntry[str]) -> bool:
    """Returns True if an entry is a folder or a link to one. A link that leads nowhere, or to itself, is
    not."""
    try:
        return entry.is_dir()
    except OSError:
        return False
