"""Images without labels: of a folder, at any depth, or of a list or pattern of paths."""

from __future__ import annotations

import os
from collections.abc import Iterable

from fastload.common.folders import IMAGE_EXTENSIONS
from fastload.common.spill import Texts, encoded
from fastload.errors import PackError
from fastload.sources.folder import image_rows, path_of
from fastload.sources.notices import Notice, Notices
from fastload.sources.options import ColumnOptions
from fastload.sources.protocol import (
    INDEX,
    UNLABELLED,
    Choice,
    Files,
    ImageFiles,
    Item,
    Listed,
    Place,
    Value,
    file_stamp,
)
from fastload.sources.tar import expand


class ImagesSource(ImageFiles, Listed):
    """Images, in the order of their list, or sorted as ImageFolder sorts a class. A row is that of
    `image_rows`.

    Args:
        title: name of the source.
        rows: rows of the images.
        top: the folder that they lie in; "": their paths are whole.
        left_out: notes on the folder's other files.
    """

    concurrent = True
    classes = None
    fields = (INDEX,)

    def __init__(self, title: str, rows: Iterable[bytes], top: str, left_out: Notices) -> None:
        self.title = title
        self.layout = f"{'a folder of' if top else 'a list of'} images {UNLABELLED}"
        self.lists_files = bool(top)
        texts = Texts()
        for row in rows:
            texts.append(row)
        texts.seal()
        self._rows, self._top, self._left_out = texts, top, left_out

    @property
    def notices(self) -> tuple[Notice, ...]:
        """Files in the folder that are no samples, by kind."""
        return self._left_out.all()

    def name(self, position: int) -> str:
        return path_of(self._top, self._rows[position])

    def key(self, position: int) -> str:
        return path_of("", self._rows[position])

    def stamp(self, position: int) -> tuple[int, int]:
        return file_stamp(self.name(position))

    def fields_of(self, position: int) -> dict[str, Value]:
        return {INDEX.name: position}

    def place(self, position: int) -> Place:
        path = self.name(position)
        return Place(path, 0, file_stamp(path)[0])

    def read(self, position: int) -> Item:
        path = self.name(position)
        return Item(path, self.read_file(path), self.fields_of(position))


def folder_source(path: str) -> ImagesSource:
    """The images of a folder, at any depth. Raises PackError if there are none."""
    left_out = Notices()
    found = ImagesSource(path, image_rows(path, left_out), path, left_out)
    if not len(found):
        raise PackError(f"{path}: no image in it, by the names of its files: {', '.join(IMAGE_EXTENSIONS)}")
    return found


def _files_source(patterns: list[str], _: ColumnOptions) -> ImagesSource:
    paths = (path for pattern in patterns for path in expand(pattern, "image file"))
    title = patterns[0] if len(patterns) == 1 else f"{patterns[0]}, ..."
    return ImagesSource(title, (b"\0" + encoded(path) for path in paths), "", Notices())


FILES = Files(lambda path: path.lower().endswith(IMAGE_EXTENSIONS), _files_source)
FILE = Choice(
    lambda given: os.path.isfile(given.path) and FILES.named(given.path),
    lambda given: FILES.open([given.path], given.options.columns),
)
