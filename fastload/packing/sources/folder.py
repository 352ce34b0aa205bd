"""A folder of class folders, in the order torchvision's ImageFolder gives it."""

from __future__ import annotations

import os

from fastload.common.files import read_regular
from fastload.errors import PackError
from fastload.packing.folders import is_folder, walk
from fastload.packing.sources.protocol import IMAGE_EXTENSIONS, OTHER_PICTURES, READABLE_EXTENSIONS, Item, Place, Value, file_stamp
from fastload.packing.summary import BESIDE, FILES, LINKS, Notice, Notices
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
                listed = sorted((entry.name, is_folder(entry)) for entry in entries)
        except OSError as error:
            raise PackError(f"{root}: cannot be listed: {error.strerror}") from error
        names = [name for name, below in listed if below]
        if not names:
            raise PackError(
                f"{root}: no class folder in it; put the images into one folder a class (root/cat/1.jpg), or give a "
                ".csv with the columns path,label"
            )
        self.classes: tuple[str, ...] | None = tuple(names)
        self.fields = (Field("label", "int"),)
        self._folders: list[str] = []
        self._samples: list[tuple[int, str, int]] = []  # (folder's place in _folders, file name, label)
        self._left_out = Notices()
        for name, below in listed:
            if not below:
                self._leave_out(root, name, beside=True)
        empty = []
        for label, name in enumerate(names):
            before = len(self._samples)
            self._add_class(os.path.join(root, name), label)
            if len(self._samples) == before:
                empty.append(name)
        if empty:
            others = [notice.kind for notice in self.notices if notice.kind.startswith(".")]
            raise PackError(
                f"{root}: no image in the class folder{'s' if len(empty) > 1 else ''} {', '.join(empty[:20])}"
                f"{' ...' if len(empty) > 20 else ''}; remove {'them' if len(empty) > 1 else 'it'}, or add files "
                f"that end in {', '.join(IMAGE_EXTENSIONS)}{'; there are ' + ', '.join(others) + ' files' if others else ''}"
            )

    @property
    def notices(self) -> tuple[Notice, ...]:
        """Files in the folder that are no samples, by kind."""
        return self._left_out.all()

    def _leave_out(self, folder: str, name: str, beside: bool = False) -> None:
        path = os.path.join(folder, name)
        extension = os.path.splitext(name)[1].lower()
        if os.path.islink(path) and not os.path.exists(path):
            self._left_out.add(LINKS, path)
        elif beside and extension in (*IMAGE_EXTENSIONS, *OTHER_PICTURES):
            self._left_out.add(BESIDE, path)
        elif extension in OTHER_PICTURES:
            way = "a .csv of path,label takes them" if extension in READABLE_EXTENSIONS else "convert them to JPEG or PNG"
            self._left_out.add(extension, path, f"{extension} files left out, as ImageFolder does; {way}")
        else:
            self._left_out.add(FILES, path)

    def _add_class(self, top: str, label: int) -> None:
        for folder, files in walk(top):
            wanted = []
            for name in files:
                if name.lower().endswith(IMAGE_EXTENSIONS):
                    wanted.append(name)
                else:
                    self._leave_out(folder, name)
            if wanted:
                place = len(self._folders)
                self._folders.append(folder)
                self._samples.extend((place, name, label) for name in wanted)

    def __len__(self) -> int:
        return len(self._samples)

    def name(self, position: int) -> str:
        place, name, _ = self._samples[position]
        return os.path.join(self._folders[place], name)

    def key(self, position: int) -> str:
        return self.name(position).removeprefix(self.title).lstrip(os.sep)

    def stamp(self, position: int) -> tuple[int, int]:
        return file_stamp(self.name(position))

    def fields_of(self, position: int) -> dict[str, Value]:
        return {"label": self._samples[position][2]}

    def place(self, position: int) -> Place:
        path = self.name(position)
        return Place(path, 0, file_stamp(path)[0])

    def read(self, position: int) -> Item:
        place, name, label = self._samples[position]
        path = os.path.join(self._folders[place], name)
        return Item(path, read_regular(path), {"label": label})
