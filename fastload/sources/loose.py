"""Loose objects: images that are objects of a store, one each: below a URL, of a list, or of a table."""

from __future__ import annotations

import marshal
from collections.abc import Iterable, Iterator, Sequence
from hashlib import blake2b
from itertools import takewhile

from fastload.common.files import FILE_BYTES
from fastload.common.folders import IMAGE_EXTENSIONS
from fastload.common.spill import Texts, TextSorter, decoded, encoded
from fastload.common.urls import is_remote, is_url
from fastload.errors import PackError, RemoteError
from fastload.remote.foreign import ForeignObjects, ForeignURL
from fastload.remote.objects import ObjectInfo
from fastload.sources.folder import FolderSource, leave_out
from fastload.sources.notices import Notice, Notices, to_json
from fastload.sources.options import TableOptions
from fastload.sources.protocol import INDEX, UNLABELLED, Choice, Given, Item, Listed, Place, Source, Value
from fastload.sources.table import TableSource, is_table
from fastload.store import Field

_Row = tuple[str, int, str | None, dict[str, Value]]
_LOST = -1
"""Size of an object that the store does not give; the reason is in the place of its tag."""


class LooseObjects(Listed):
    """Images that are objects of a store. A row has URL, size and ETag of one, and its fields.

    Args:
        title: name of the source.
        layout: words for where the fields come from.
        objects: reads them.
        rows: (object, fields beside the image) of each sample; None: its number is its field.
        fields: the fields.
        classes: names of the labels.
        left_out: notes on other objects.

    Attributes:
        base: the beginning that all URLs have in common, up to a slash.

    Raises:
        PackError: the URLs have no beginning in common, not even a scheme.
    """

    concurrent = True

    def __init__(
        self,
        title: str,
        layout: str,
        objects: ForeignObjects,
        rows: Iterable[tuple[ForeignURL, dict[str, Value] | None]],
        fields: tuple[Field, ...] = (INDEX,),
        classes: Sequence[str] | None = None,
        left_out: Notices | None = None,
    ) -> None:
        self.title, self.layout, self.fields = title, layout, fields
        self.classes = None if classes is None else tuple(classes)
        self._objects, self._left_out = objects, left_out or Notices()
        texts, common = Texts(), None
        for position, (url, values) in enumerate(rows):
            taken = {INDEX.name: position} if values is None else values
            try:
                size, tag = url.size, url.info.etag
            except RemoteError as error:
                if not error.sure:
                    raise
                size, tag = _LOST, str(error)
            texts.append(marshal.dumps((url.url, size, tag, taken)))
            folders = url.url.split("/")[:-1]
            if common is None:
                common = folders
            elif common != folders[: len(common)]:
                pairs = takewhile(lambda pair: pair[0] == pair[1], zip(common, folders, strict=False))
                common = [each for each, _ in pairs]
        texts.seal()
        self._rows = texts
        self.base = "/".join((*(common or ()), ""))
        if not is_url(self.base):
            raise PackError(f"{title}: its URLs are of several kinds of stores: take those of one at a time")

    @property
    def notices(self) -> tuple[Notice, ...]:
        """Objects that are no samples, by kind."""
        return self._left_out.all()

    @property
    def digest(self) -> str:
        """Digest of which objects they are, with their tags and fields."""
        found = blake2b(digest_size=16)
        for position in range(len(self)):
            found.update(self._rows[position])
        return found.hexdigest()

    def _row(self, position: int) -> _Row:
        found: _Row = marshal.loads(self._rows[position])
        return found

    def _url(self, row: _Row) -> ForeignURL:
        url, size, tag, _ = row
        return ForeignURL(url, self._objects, ObjectInfo(url, size, None if size == _LOST else tag))

    def _there(self, row: _Row) -> ForeignURL:
        """The object of a row. Raises PackError: the store did not give it."""
        url = self._url(row)
        if url.size == _LOST:
            raise PackError(f"{url}: {row[2]}")
        if url.size > FILE_BYTES:
            raise PackError(f"{url}: {url.size:,} bytes are more than the limit of {FILE_BYTES:,}")
        return url

    def name(self, position: int) -> str:
        return self._url(self._row(position))

    def key(self, position: int) -> str:
        return self._row(position)[0]

    def stamp(self, position: int) -> tuple[int, int]:
        return self._url(self._row(position)).stamp

    def fields_of(self, position: int) -> dict[str, Value]:
        return self._row(position)[3]

    read_fields = fields_of

    def place(self, position: int) -> Place:
        url = self._there(self._row(position))
        return Place(url, 0, url.size)

    def read(self, position: int) -> Item:
        row = self._row(position)
        url = self._there(row)
        return Item(url, url.whole(), row[3])


def objects_below(folder: ForeignURL, found: Iterable[ForeignURL], *, labelled: bool) -> LooseObjects:
    """The images among the objects below a URL: of class folders, as ImageFolder orders them, or where there
    are none, or without `labelled`, by themselves.

    Raises:
        PackError: there is no image, or none in a class folder.
    """
    first, left_out, sorter, has_folders = len(folder.url.rstrip("/")) + 1, Notices(), TextSorter(), False
    for each in found:
        top, below, name = _path(each.url[first:]) if labelled else ("", *_parts(each.url[first:]))
        has_folders |= bool(top)
        key = "\0".join((top, below, name, ""))
        sorter.add(encoded(key) + marshal.dumps((each.url[first:], each.size, each.info.etag)))
    labelled = labelled and has_folders
    images, counts = Texts(), dict[str, int]()
    for text in sorter.drain():
        top, _, name = _names_in(text)
        counts.setdefault(top, 0)
        beside = labelled and not top
        if name.lower().endswith(IMAGE_EXTENSIONS) and not beside:
            images.append(text)
            counts[top] += 1
        else:
            leave_out(left_out, "", str(_object_in(folder, text)), beside)
    images.seal()
    objects = (_object_in(folder, text) for text in images)
    if not labelled:
        if not len(images):
            raise PackError(f"{folder}: no image below it, by the names: {', '.join(IMAGE_EXTENSIONS)}")
        rows = ((each, None) for each in objects)
        layout = f"objects {UNLABELLED}"
        return LooseObjects(str(folder), layout, folder.objects, rows, left_out=left_out)
    counts.pop("", None)
    if empty := [name for name, count in counts.items() if not count]:
        raise PackError(f"{folder}: no image in the class folder {', '.join(empty[:20])}")
    labels = (label for label, count in enumerate(counts.values()) for _ in range(count))
    return LooseObjects(
        str(folder),
        FolderSource.layout,
        folder.objects,
        ((each, {"label": label}) for each, label in zip(objects, labels, strict=True)),
        (Field("label", "int"),),
        tuple(counts),
        left_out,
    )


def _path(name: str) -> tuple[str, str, str]:
    """(class folder, folders below it, name) of an object below a URL."""
    folder, last = _parts(name)
    top, _, below = folder.partition("/")
    return top, below, last


def _parts(name: str) -> tuple[str, str]:
    """(folder, name) of an object below a URL."""
    folder, _, last = name.rpartition("/")
    return folder, last


def _names_in(text: bytes) -> tuple[str, str, str]:
    """(class folder, folders below it, name) in a text that is sorted."""
    top, below, name, _ = text.split(b"\0", 3)
    return decoded(top), decoded(below), decoded(name)


def _object_in(folder: ForeignURL, text: bytes) -> ForeignURL:
    """The object in a text that is sorted."""
    info = ObjectInfo(*marshal.loads(text.split(b"\0", 3)[3]))
    return ForeignURL(f"{folder.url.rstrip('/')}/{info.name}", folder.objects, info)


def listed_objects(urls: Sequence[ForeignURL]) -> LooseObjects:
    """Objects by themselves. Raises RemoteError: the store does not answer."""
    rows = ((url, None) for url in urls[0].objects.looked_up(urls))
    title = urls[0] if len(urls) == 1 else f"{urls[0]}, ..."
    return LooseObjects(title, f"a list of objects {UNLABELLED}", urls[0].objects, rows)


def _open_table(given: Given) -> Source:
    """A table, or where its paths are URLs, the objects that these name. Raises PackError: some are URLs and
    others are none, or it has columns of files and rows; RemoteError."""
    table = TableSource(given.path, given.options.table or TableOptions())
    if not is_remote(table.name(0)):
        return table
    if table.fields_of(0) is None:
        raise PackError(f"{table.title}: beside URLs of images it can have numbers, texts and JSON alone")
    objects = ForeignObjects(given.options.storage_options, given.options.timeout)

    def urls() -> Iterator[ForeignURL]:
        for position in range(len(table)):
            name = table.name(position)
            if not is_remote(name):
                raise PackError(f"{table.title}: {name!r} is no URL, and {table.name(0)!r} is one")
            yield ForeignURL(name, objects)

    rows = ((url, table.fields_of(position)) for position, url in enumerate(objects.looked_up(urls())))
    left_out = Notices.of(to_json(table.notices))
    return LooseObjects(table.title, "table of URLs", objects, rows, table.fields, table.classes, left_out)


TABLE = Choice(lambda given: is_table(given.path), _open_table)
