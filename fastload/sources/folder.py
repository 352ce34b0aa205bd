"""A folder of class folders, in the order torchvision's ImageFolder gives it."""

from __future__ import annotations

import os
import struct
from collections.abc import Iterator

from fastload.common.folders import IMAGE_EXTENSIONS, files_below, is_folder
from fastload.common.spill import Texts, TextSorter, decoded, encoded
from fastload.errors import PackError
from fastload.sources.notices import BESIDE, FILES, LINKS, Notice, Notices
from fastload.sources.protocol import (
    OTHER_PICTURES,
    READABLE_EXTENSIONS,
    ImageFiles,
    Item,
    Listed,
    Place,
    Value,
    file_stamp,
)
from fastload.store import Field

_LABEL = struct.Struct("<I")


class FolderSource(ImageFiles, Listed):
    """``root/class/.../image``: classes sorted by name, files sorted within each folder, links followed.

    A row has the label, the folder's path below that of its class, a NUL and the file's name. Texts are
    encoded so that their bytes are in the order of code points, as `sorted` has them, and of names that are
    no UTF-8 too.

    Raises:
        PackError: no class folder, a class folder without one image, or a link that leads into itself.
    """

    layout = "class folders"
    concurrent = True
    lists_files = True

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
                f"{root}: no class folder in it; put the images into one folder a class "
                "(root/cat/1.jpg), or give a "
                ".csv with the columns path,label"
            )
        self.classes: tuple[str, ...] | None = tuple(names)
        self.fields = (Field("label", "int"),)
        self._tops = [os.path.join(root, name) for name in names]
        rows = Texts()
        self._left_out = Notices()
        for name, below in listed:
            if not below:
                leave_out(self._left_out, root, name, beside=True)
        empty = []
        for label, name in enumerate(names):
            before = len(rows)
            self._add_class(rows, label)
            if len(rows) == before:
                empty.append(name)
        rows.seal()
        self._rows = rows
        if empty:
            kinds = [notice.kind for notice in self.notices if notice.kind.startswith(".")]
            others = f"; there are {', '.join(kinds)} files" if kinds else ""
            raise PackError(
                f"{root}: no image in the class folder{'s' if len(empty) > 1 else ''} {', '.join(empty[:20])}"
                f"{' ...' if len(empty) > 20 else ''}; remove {'them' if len(empty) > 1 else 'it'}, "
                f"or add files that end in {', '.join(IMAGE_EXTENSIONS)}{others}"
            )

    @property
    def notices(self) -> tuple[Notice, ...]:
        """Files in the folder that are no samples, by kind."""
        return self._left_out.all()

    def _add_class(self, rows: Texts, label: int) -> None:
        """Adds the rows of a class, sorted by folders and then names."""
        number = _LABEL.pack(label)
        for text in image_rows(self._tops[label], self._left_out):
            rows.append(number + text)

    def name(self, position: int) -> str:
        row = self._rows[position]
        return path_of(self._tops[_LABEL.unpack_from(row)[0]], row[_LABEL.size :])

    def key(self, position: int) -> str:
        return self.name(position).removeprefix(self.title).lstrip(os.sep)

    def stamp(self, position: int) -> tuple[int, int]:
        return file_stamp(self.name(position))

    def fields_of(self, position: int) -> dict[str, Value]:
        return {"label": self._label(position)}

    def _label(self, position: int) -> int:
        label: int = _LABEL.unpack_from(self._rows[position])[0]
        return label

    def place(self, position: int) -> Place:
        path = self.name(position)
        return Place(path, 0, file_stamp(path)[0])

    def read(self, position: int) -> Item:
        path = self.name(position)
        return Item(path, self.read_file(path), {"label": self._label(position)})


def image_rows(top: str, left_out: Notices) -> Iterator[bytes]:
    """Yields a row for each image below a folder, sorted by folders and then names: the folder's path below
    `top`, a NUL, the file's name.

    Other files are noted in `left_out`.
    """
    sorter, last, begin = TextSorter(), "", b"\0"
    for folder, name in files_below(top):
        if folder != last:
            last, begin = folder, encoded(folder[len(top) + 1 :]) + b"\0"
        sorter.add(begin + encoded(name))
    for text in sorter.drain():
        if decoded(text).lower().endswith(IMAGE_EXTENSIONS):
            yield text
        else:
            leave_out(left_out, *os.path.split(path_of(top, text)))


def path_of(top: str, row: bytes) -> str:
    """The path of a row's file."""
    below, _, name = decoded(row).partition("\0")
    return os.path.join(top, below, name)


def leave_out(left_out: Notices, folder: str, name: str, beside: bool = False) -> None:
    """Notes a file that is no sample."""
    path = os.path.join(folder, name)
    extension = os.path.splitext(name)[1].lower()
    if os.path.islink(path) and not os.path.exists(path):
        left_out.add(LINKS, path)
    elif beside and extension in (*IMAGE_EXTENSIONS, *OTHER_PICTURES):
        left_out.add(BESIDE, path)
    elif extension in OTHER_PICTURES:
        way = (
            "a .csv of path,label takes them"
            if extension in READABLE_EXTENSIONS
            else "convert them to JPEG or PNG"
        )
        left_out.add(extension, path, f"{extension} files left out, as ImageFolder does; {way}")
    else:
        left_out.add(FILES, path)
