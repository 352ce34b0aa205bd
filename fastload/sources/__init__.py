"""Sources of samples, and the choice of the one that fits what the user gave: an ordered list, of which the
first that fits is taken.

Each kind is a module of its own, with its entries for the list; `protocol` is the contract.
"""

from __future__ import annotations

import difflib
import os

from fastload.common.files import expanded
from fastload.errors import ArgumentError, DatasetError, PackError
from fastload.remote.foreign import ForeignURL
from fastload.sources import (
    arrow,
    dataset_lists,
    images,
    jsonl,
    layouts,
    litdata,
    lmdb,
    loose,
    mds,
    parquet,
    table,
    tar,
    tfrecord,
    unpacked,
)
from fastload.sources.foreign import ForeignFiles, each_of, has_urls, in_folder, index_of, with_urls
from fastload.sources.loose import LooseObjects
from fastload.sources.options import ColumnOptions, SourceOptions
from fastload.sources.protocol import Choice, Files, Given, Item, Place, Placed, Source, attribute_of
from fastload.sources.ray_data import with_rows
from fastload.sources.tar import expanded_urls
from fastload.store import MANIFEST_NAME, Manifest

__all__ = ["Item", "LooseObjects", "Place", "Placed", "Source", "foreign_objects", "open_source"]

_GIVE = (
    "give a folder of class folders, a dataset in the layout of COCO, VOC, YOLO, Cityscapes or "
    "ADE20K, a .csv/.tsv, .tar, .parquet, .arrow "
    "or TFRecord files, a folder of MDS shards or LitData chunks, an LMDB file, or images (a folder, "
    "'*.jpg', or paths)"
)
_SEVERAL = (
    "of several sources, all are .tar files, all are .parquet, all are .arrow, all are TFRecord files, "
    "or all are images"
)
NOTHING_GIVEN = SourceOptions()
PATTERN_MARKS = "*?{["
"""Characters of patterns of paths."""


def open_source(source: object, options: SourceOptions = NOTHING_GIVEN, *, lists: bool = False) -> Source:
    """Opens the source that `pack` reads of its argument `source`.

    Args:
        source: as for `pack`.
        options: `table` for columns of a .csv or .tsv, `lmdb` for keys, `layout` for a folder's files,
            `columns` for columns and members.
        lists: True if samples may have any number of images.

    Raises:
        PackError: nothing here can be packed; the message names what was looked for.
        ArgumentError: options are given for a source of another kind.
    """
    given = expanded(source) if isinstance(source, str | os.PathLike) else with_rows(source)
    if has_urls(given):
        given = with_urls(given, options.storage_options, options.timeout)
    found = checked(choose(Given(given, options)), options)
    if not lists and (name := attribute_of(found, "image_list")):
        raise PackError(
            f"{found.title}: samples have any number of images ({name}), which `pack` and `attach` take"
        )
    return found


def checked(source: Source, options: SourceOptions) -> Source:
    """A source that was opened. Raises ArgumentError: it takes none of the options for columns."""
    columns = options.columns
    if columns.box_format is not None and attribute_of(source, "box_format") != columns.box_format:
        raise ArgumentError(
            f"box_format={columns.box_format!r} (--box-format) is for a column of objects with their boxes "
            "(bbox), in Parquet or Arrow files or a "
            f"Dataset; {source.title} has none"
        )
    if columns.image is not None and attribute_of(source, "image_name") != columns.image:
        raise ArgumentError(
            f"image={columns.image!r} (--image) is for tars, Parquet and Arrow files in which samples have "
            f"several images, and which do not say themselves which is meant; {source.title} is none"
        )
    return source


def choose(given: Given) -> Source:
    """The source that the first entry of `CHOICES` opens, of those that recognise what is given. Raises as
    `open_source` does."""
    for choice in CHOICES:
        if choice.recognise(given):
            return choice.open(given)
    if given.path:
        raise PackError(f"{given.path}: not a source fastload knows; {_GIVE}")
    raise PackError(
        f"cannot pack a {type(given.source).__name__}: {_GIVE}, or a map-style Dataset with "
        "__getitem__ and __len__ (an iterable Dataset "
        "has no order to shuffle or to resume)"
    )


def _is_paths(given: Given) -> bool:
    source = given.source
    return (
        isinstance(source, list | tuple)
        and bool(source)
        and all(isinstance(each, str | os.PathLike) for each in source)
    )


def _open_paths(given: Given) -> Source:
    """Several tars as one source, or Parquet, Arrow or TFRecord files; of anything else only one can be
    packed."""
    assert isinstance(given.source, list | tuple)
    paths = [expanded(each) for each in given.source]
    if len(paths) == 1:
        return choose(Given(paths[0], SourceOptions(columns=given.options.columns)))
    for path in paths:
        is_table = table.is_table(path)
        if os.path.isdir(path) or is_table:
            what = "a table" if is_table else "a folder"
            how = (
                "put all lines into one table"
                if is_table
                else "put the class folders, or links to them, into one folder"
            )
            raise PackError(
                f"{path} is {what}: {_SEVERAL}. To pack them together, {how}; or "
                "pack each by itself and join them with torch.utils.data.ConcatDataset, which "
                "FastLoader reads natively"
            )
    return _open_files(paths, given.options.columns)


def _is_foreign(given: Given) -> bool:
    return any(isinstance(each, ForeignURL) for each in each_of(given.source))


def _open_foreign(given: Given) -> Source:
    """Files in a store, or images: those that URLs name, or that lie below one. Raises PackError,
    RemoteError."""
    found = _foreign(given)
    return found.kind.open([*found.urls], given.options.columns) if isinstance(found, ForeignFiles) else found


def foreign_objects(source: object, options: SourceOptions) -> ForeignFiles | LooseObjects:
    """The files in a store that URLs and patterns stand for, in their order; or images that are objects of
    their own. Raises as `open_source` does."""
    found = _foreign(Given(with_urls(source, options.storage_options, options.timeout), options))
    assert isinstance(found, ForeignFiles | LooseObjects)
    if isinstance(found, LooseObjects):
        checked(found, options)
    return found


def _foreign(given: Given) -> ForeignFiles | Source:
    """The files that URLs and patterns stand for, or a source of images. Raises PackError, RemoteError."""
    urls = each_of(given.source)
    if len(urls) == 1 and loose.TABLE.recognise(one := Given(urls[0], given.options)):
        return loose.TABLE.open(one)
    form = None if given.options.layout is None else given.options.layout.format
    if form not in (None, "folder", "images"):
        raise PackError(f"{urls[0]}: of URLs no {form} can be read: copy it to a disk first")
    patterns: list[ForeignURL] = []
    for url in urls:
        if not isinstance(url, ForeignURL):
            raise PackError(f"{url} is no URL, and others are: pack them one by one")
        for refused in (tar.COMPRESSED, tfrecord.COMPRESSED):
            if refused.recognise(Given(url, given.options)):
                refused.open(Given(url, given.options))
        named = any(kind.named(url) for kind in FILES) or any(mark in url.url for mark in "*{[")
        if named and form is None:
            patterns.append(url)
            continue
        below = url.objects.below(url.url)
        files = in_folder(url, below, [] if form else [kind.named for kind in FOREIGN])
        if not files and len(urls) == 1:
            index = {} if form else index_of(url, below)
            rows = next((folder(url, index, below) for key, folder in ROW_FOLDERS if key in index), None)
            return rows or loose.objects_below(url, below, labelled=form != "images")
        if not files:
            raise PackError(f"{url}: no .tar, .parquet, .arrow or TFRecord files directly below it")
        patterns += files
    kinds = {_kind(pattern) for pattern in patterns}
    if len(kinds) > 1:
        raise PackError(f"{patterns[0]} and others: {_SEVERAL}")
    kind = kinds.pop()
    if kind is images.FILES:
        return loose.listed_objects(expanded_urls(patterns))
    return ForeignFiles(kind, expanded_urls(patterns, "object"))


def _open_source(given: Given) -> Source:
    assert isinstance(given.source, Source)
    return given.source


def _open_files(patterns: list[str], columns: ColumnOptions) -> Source:
    """Tars, or Parquet, Arrow or TFRecord files, by their names."""
    kinds = {_kind(pattern) for pattern in patterns}
    if len(kinds) > 1:
        raise PackError(f"{patterns[0]} and others: {_SEVERAL}")
    return kinds.pop().open(patterns, columns)


def _kind(pattern: str) -> Files:
    """The kind of files that a path or pattern names; a tar where nothing says it."""
    named = next((kind for kind in FILES if kind.named(pattern)), None)
    if named is None and any(mark in pattern for mark in PATTERN_MARKS):
        # a pattern such as train-* or train-*-of-00010 does not end as its files do
        found = tar.expand(pattern, "tar file")
        return tar.FILES if any(mark in found[0] for mark in PATTERN_MARKS) else _kind(found[0])
    return named or tar.FILES


def _is_named(given: Given) -> bool:
    """Returns True for a pattern, and for the path of files that are known by their names, even if nothing
    is there."""
    first = (parquet.FILES, arrow.FILES, tar.FILES)
    return any(kind.named(given.path) for kind in first) or any(mark in given.path for mark in PATTERN_MARKS)


def is_packed(path: str) -> bool:
    """Returns True if a folder holds a packed dataset, and not only a file of its manifest's name."""
    try:
        return os.path.isfile(os.path.join(path, MANIFEST_NAME)) and Manifest.load(path).count >= 0
    except DatasetError:
        return False


def _refuse_packed(given: Given) -> Source:
    raise PackError(
        f"{given.path} is a packed dataset: `fastload concat` makes one of several, without copying them"
    )


def _refuse_missing(given: Given) -> Source:
    folder, name = os.path.split(given.path)
    try:
        near = difflib.get_close_matches(name, os.listdir(folder or "."), 1, 0.75)
    except OSError:
        near = []
    if near:
        raise PackError(
            f"{given.path}: no such folder or file; did you mean {os.path.join(folder, near[0])}?"
        )
    raise PackError(f"{given.path}: no such folder or file; {_GIVE}")


FILES = (parquet.FILES, arrow.FILES, tfrecord.FILES, tar.FILES, images.FILES)
"""The kinds of files of which several are one source, in the order in which a name is looked up."""
FOREIGN = (parquet.FILES, arrow.FILES, tfrecord.FILES, tar.FILES)
"""The kinds of files that are found in a folder of a store."""
ROW_FOLDERS = (("shards", mds.in_store), ("chunks", litdata.in_store))
"""Keys of an index.json in such a folder, and what opens the files that it names."""
CHOICES: tuple[Choice, ...] = (
    Choice(_is_foreign, _open_foreign),
    # by the user's options, or refused for them
    unpacked.UNFINISHED_FOLDER,
    lmdb.PATTERNS_OF_ANOTHER,
    layouts.NAMED,
    loose.TABLE,
    jsonl.FILE,
    table.COLUMNS_OF_ANOTHER,
    lmdb.FILE,
    # folders, by what is in them
    unpacked.FOLDER,
    mds.FOLDER,
    litdata.FOLDER,
    arrow.FOLDER,
    tar.FOLDER,
    parquet.FOLDER,
    tfrecord.FOLDER,
    Choice(lambda given: is_packed(given.path), _refuse_packed),
    layouts.FOLDER,
    # files, by their names
    Choice(_is_named, lambda given: _open_files([given.path], given.options.columns)),
    Choice(lambda given: isinstance(given.source, str) and not os.path.exists(given.path), _refuse_missing),
    layouts.FILE,
    Choice(
        lambda given: tfrecord.FILES.named(given.path),
        lambda given: _open_files([given.path], given.options.columns),
    ),
    images.FILE,
    tar.COMPRESSED,
    tfrecord.COMPRESSED,
    # several paths, and objects
    Choice(_is_paths, _open_paths),
    Choice(lambda given: isinstance(given.source, Source), _open_source),
    dataset_lists.OBJECT,
)
"""The ordered list from which a source is chosen."""
