"""A folder of class folders, in the order torchvision's ImageFolder gives it."""

from __future__ import annotations

import os

from fastload.errors import PackError
from fastload.packing.sources import IMAGE_EXTENSIONS, Item, read_file
from fastload.store import Field


class FolderSource:
    """``root/class/.../image``: classes sorted by name, files sorted within each folder, links followed.

    Raises:
        PackError: no class folder, a class folder without one image, or a link that leads into itself.
    """

    concurrent = True

    def __init__(self, root: str) -> None:
        self.title = root
        try:
            with os.scandir(root) as entries:
                names = sorted(entry.name for entry in entries if entry.is_dir())
        except OSError as error:
            raise PackError(f"{root}: cannot be listed: {error.strerror}") from error
        if not names:
            raise PackError(
                f"{root}: no class folder in it; put the images into one folder a class (root/cat/1.jpg), or give a "
                ".csv with the columns path,label"
            )
        self.classes: tuple[str, ...] | None = tuple(names)
        self.fields = (Field("label", "int"),)
        self._folders: list[str] = []
        self._samples: list[tuple[int, str, int]] = []  # (folder's place in _folders, file name, label)
        empty = []
        for label, name in enumerate(names):
            before = len(self._samples)
            self._add_class(os.path.join(root, name), label)
            if len(self._samples) == before:
                empty.append(name)
        if empty:
            raise PackError(
                f"{root}: no image in the class folder{'s' if len(empty) > 1 else ''} {', '.join(empty[:20])}"
                f"{' ...' if len(empty) > 20 else ''}; remove {'them' if len(empty) > 1 else 'it'}, or add files "
                f"that end in {', '.join(IMAGE_EXTENSIONS)}"
            )

    def _add_class(self, top: str, label: int) -> None:
        for folder, _, files in sorted(os.walk(top, followlinks=True, onerror=_refuse)):
            wanted = [name for name in sorted(files) if name.lower().endswith(IMAGE_EXTENSIONS)]
            if wanted:
                _refuse_loop(folder)
                place = len(self._folders)
                self._folders.append(folder)
                self._samples.extend((place, name, label) for name in wanted)

    def __len__(self) -> int:
        return len(self._samples)

    def name(self, position: int) -> str:
        place, name, _ = self._samples[position]
        return os.path.join(self._folders[place], name)

    def read(self, position: int) -> Item:
        place, name, label = self._samples[position]
        path = os.path.join(self._folders[place], name)
        return Item(path, read_file(path), {"label": label})


def _refuse(error: OSError) -> None:
    raise PackError(f"{error.filename}: cannot be listed: {error.strerror}") from error


def _refuse_loop(folder: str) -> None:
    """A link to a folder above itself shows every image dozens of times: seldom what was meant, so it is an error."""
    part = folder
    inside = os.path.realpath(folder)
    while True:
        if os.path.islink(part):
            target = os.path.realpath(part)
            holder = os.path.realpath(os.path.dirname(part))
            if holder == target or holder.startswith(target.rstrip(os.sep) + os.sep):
                raise PackError(f"{part}: a link to a folder that holds it ({inside}); remove the link")
        above = os.path.dirname(part)
        if above == part or not above:
            return
        part = above
