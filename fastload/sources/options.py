"""Options for reading a source; and `option`, by which any option is declared, as a field of a frozen
dataclass."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import Field, dataclass, field, fields, replace
from typing import Any, Literal, TypedDict, get_args

from fastload.common.files import expanded
from fastload.errors import ArgumentError
from fastload.store import BOX_SIDES

Paths = str | os.PathLike[str] | Sequence[str | os.PathLike[str]]
Format = Literal[
    "folder", "coco", "voc", "voc-segmentation", "yolo", "cityscapes", "ade20k", "pairs", "images"
]
BoxFormat = Literal["xyxy", "xywh", "cxcywh", "xywhr", "cxcywhr", "xyxyxyxy"]
"""Keys of `fastload.store.BOX_SIDES`."""
OnError = Literal["raise", "skip"]

Words = str | Mapping[str, str]
"""A text for all commands, or one for each by its name; a command without one has that of pack."""

_PATTERN = re.compile(r"([^%]*)%(?:0(?:[1-9]|1[0-8]))?d([^%]*)", re.DOTALL)


@dataclass(frozen=True, slots=True)
class Option:
    """The part of an option's declaration that a field has no place for.

    Attributes:
        doc: the keyword's text in help().
        help: the flag's text in ``--help``.
        limits: (least, most) of a whole number; None: it is none.
        most_shown: the flag refuses numbers above the most by itself, and shows it.
        as_packed: `append` takes the value that the dataset was packed with, unless one is given.
        varies: a resume may have another value than the pack that it goes on with.
        flag: the flag's name; "": the option's own.
        metavar: name of the flag's value in ``--help``; None: by its type.
        repeated: the flag may be given several times.
    """

    doc: Words
    help: Words
    limits: tuple[int, int] | None = None
    most_shown: bool = False
    as_packed: bool = False
    varies: bool = False
    flag: str = ""
    metavar: str | None = None
    repeated: bool = False


def option(doc: Words, help: Words, **more: Any) -> dict[str, Option]:
    """The metadata of a field that is an option; `more` are further attributes of its `Option`."""
    return {"option": Option(doc, help, **more)}


def declared(each: Field[Any]) -> Option:
    """The declaration in a field's metadata."""
    found: Option = each.metadata["option"]
    return found


@dataclass(frozen=True, slots=True)
class TableOptions:
    """Options for reading a table.

    Raises:
        ArgumentError: a column that is neither a name nor a number, one column twice, or a header that is
            neither True, False nor None.
    """

    path_column: str | int | None = field(
        default=None,
        metadata=option(
            "column of paths in a .csv or .tsv, by its name or its number from 0; usual names are "
            "recognised.",
            "For a .csv/.tsv: the column of paths, by its name in the header or its number from 0.",
        ),
    )
    label_column: str | int | None = field(
        default=None,
        metadata=option(
            "likewise the column of labels.",
            "For a .csv/.tsv: the column of labels, likewise.",
        ),
    )
    header: bool | None = field(
        default=None,
        metadata=option(
            "True if a table's first line names its columns; None: recognised, or asked for.",
            "Take the first line of a .csv/.tsv as the names of its columns, or as a sample.",
        ),
    )

    images: str | os.PathLike[str] | None = field(
        default=None,
        metadata=option(
            "folder that a table's paths are relative to; its own by default.",
            "For a .csv/.tsv: the folder that its paths are relative to; by default its own.",
            metavar="DIR",
        ),
    )
    suffix: str | None = field(
        default=None,
        metadata=option(
            'end of file names that a table of ids leaves out: ".jpg".',
            "For a .csv/.tsv of ids: what follows them in the files' names, such as .jpg.",
        ),
    )

    def __post_init__(self) -> None:
        if self.images is not None and not (
            isinstance(self.images, str | os.PathLike) and os.fspath(self.images)
        ):
            raise ArgumentError(f"images={self.images!r} is no path")
        if self.suffix is not None and not (
            isinstance(self.suffix, str) and self.suffix and os.sep not in self.suffix
        ):
            raise ArgumentError(f"suffix={self.suffix!r} is not the end of a file's name, such as .jpg")
        for name in ("path_column", "label_column"):
            column = getattr(self, name)
            number = isinstance(column, int) and not isinstance(column, bool) and column >= 0
            if column is not None and not number and not (isinstance(column, str) and column):
                raise ArgumentError(
                    f"{name}={column!r} is neither a column's name nor its number, counted from 0"
                )
        if self.header not in (None, True, False):
            raise ArgumentError(f"header={self.header!r} is none of True, False and None")
        if self.path_column is not None and self.path_column == self.label_column:
            raise ArgumentError(f"path_column and label_column are both {self.path_column!r}")


@dataclass(frozen=True, slots=True)
class LmdbOptions:
    """Options for reading an LMDB file of one's own.

    Raises:
        ArgumentError: a pattern without exactly one number, or a label_pattern without a key_pattern.
    """

    key_pattern: str | None = field(
        default=None,
        metadata=option(
            'keys of images in an LMDB file: "image-%09d"; all keys by default.',
            "For an LMDB file: the keys of images with their number, as in image-%09d; otherwise all keys.",
        ),
    )
    label_pattern: str | None = field(
        default=None,
        metadata=option("likewise the keys of labels.", "For an LMDB file: the keys of labels, likewise."),
    )

    def __post_init__(self) -> None:
        for name in ("key_pattern", "label_pattern"):
            pattern = getattr(self, name)
            if pattern is not None and (not isinstance(pattern, str) or split_pattern(pattern) is None):
                raise ArgumentError(
                    f"{name}={pattern!r} has not one number such as %d or %09d in it: image-%09d"
                )
        if self.label_pattern is not None and self.key_pattern is None:
            raise ArgumentError(
                "label_pattern needs a key_pattern: the keys of the images that the labels are for"
            )
        if self.label_pattern is not None and self.label_pattern == self.key_pattern:
            raise ArgumentError(f"key_pattern and label_pattern are both {self.key_pattern!r}")


@dataclass(frozen=True, slots=True)
class LayoutOptions:
    """Options for reading a folder of images with their masks, boxes or other annotations in files beside
    them.

    Raises:
        ArgumentError: an unknown format, or an option that the format does not take.
    """

    format: Format | None = field(
        default=None,
        metadata=option(
            'layout of a folder: "folder" (of class folders), "coco", "voc" (boxes), "voc-segmentation", '
            '"yolo", "cityscapes", "ade20k", "pairs" (images and masks) or "images" (without labels); '
            "usual ones are recognised.",
            "The layout of a folder, where it is not recognised.",
        ),
    )
    annotations: Paths | None = field(
        default=None,
        metadata=option(
            "JSON files of a COCO dataset, merged by the ids of images; `source` is the folder of the "
            "images, or one above it. A folder's only one is found.",
            "For a COCO dataset: the JSON file, or several, which are merged; SRC is the folder of its "
            "images.",
            metavar="FILE",
            repeated=True,
        ),
    )
    masks: str | os.PathLike[str] | None = field(
        default=None,
        metadata=option(
            {
                "pack": "folder of the masks of the images in `source`, or of panoptic PNGs.",
                "attach": (
                    "folder of the masks of the images in `source`, or of panoptic PNGs; they are stored."
                ),
            },
            "The folder of the masks of the images in SRC, or of panoptic PNGs.",
            metavar="DIR",
        ),
    )
    split: str | None = field(
        default=None,
        metadata=option(
            'part of a dataset that has several: "train", "val", ...',
            "The part of a dataset that has several: train, val, train2017, ...",
        ),
    )

    def __post_init__(self) -> None:
        if self.format is not None and self.format not in get_args(Format):
            raise ArgumentError(f"format={self.format!r} is none of {', '.join(get_args(Format))}")
        for name in ("annotations", "masks", "split"):
            value = getattr(self, name)
            several = list(value) if name == "annotations" and isinstance(value, list | tuple) else [value]
            if value is not None and not (
                several and all(isinstance(each, str | os.PathLike) and os.fspath(each) for each in several)
            ):
                raise ArgumentError(f"{name}={value!r} is no {'name' if name == 'split' else 'path'}")
            if value is not None and self.format is not None and self.format not in _TAKEN_BY[name]:
                raise ArgumentError(
                    f"{name} is for the formats {', '.join(_TAKEN_BY[name])}, and format={self.format!r}"
                )
        if self.annotations is not None and self.split is not None:
            raise ArgumentError(
                "annotations and split both say which part of the dataset is packed: give one"
            )
        files = self.annotation_files
        if len(set(files)) < len(files):
            raise ArgumentError(f"annotations names a file twice: {', '.join(files)}")

    @property
    def annotation_files(self) -> tuple[str, ...]:
        """The paths of `annotations`; () for None."""
        given = self.annotations
        return (
            ()
            if given is None
            else tuple(expanded(each) for each in (given if isinstance(given, list | tuple) else (given,)))
        )


_TAKEN_BY = {
    "annotations": ("coco",),
    "masks": ("coco", "pairs"),
    "split": ("coco", "voc", "voc-segmentation", "yolo", "cityscapes", "ade20k"),
}
"""The formats for which each of the other options of a layout is."""


@dataclass(frozen=True, slots=True)
class ColumnOptions:
    """Options for reading samples of columns or members: which is the image, and what a column of objects, as
    detection datasets of Hugging Face have it, is.

    Raises:
        ArgumentError: an unknown format, or no name.
    """

    box_format: BoxFormat | None = field(
        default=None,
        metadata=option(
            'format of the boxes in a column of objects, whose members become fields: "xywh", "xyxy", '
            '"cxcywh", ... Without it the column is JSON.',
            "Format of the boxes in a column of objects (bbox, category); without it the column is JSON.",
        ),
    )

    image: str | None = field(
        default=None,
        metadata=option(
            'image of several: a member (".right.jpg") or column.',
            "The image of several: a member, as .right.jpg, or a column.",
            metavar="NAME",
        ),
    )

    def __post_init__(self) -> None:
        if self.image is not None and not (isinstance(self.image, str) and self.image.strip(".")):
            raise ArgumentError(f"image={self.image!r} is no name of a member or a column")
        if self.box_format is not None and self.box_format not in BOX_SIDES:
            raise ArgumentError(f"box_format={self.box_format!r} is none of {', '.join(BOX_SIDES)}")


NO_COLUMNS = ColumnOptions()


@dataclass(frozen=True, slots=True)
class SourceOptions:
    """All options for reading a source. Each member but `columns` is None where none of its options is given.

    Attributes:
        storage_options, timeout: those of the store in which a source lies.

    Raises:
        ArgumentError: a value out of range, or two that contradict each other.
    """

    table: TableOptions | None = None
    lmdb: LmdbOptions | None = None
    layout: LayoutOptions | None = None
    columns: ColumnOptions = NO_COLUMNS
    storage_options: Mapping[str, object] | None = field(default=None, repr=False)
    timeout: float | str | None = None

    @classmethod
    def of(cls, **given: object) -> SourceOptions:
        """The options of these keywords of `fastload.packing.pack`."""
        owned = {
            name: {each.name: given.pop(each.name) for each in fields(kind) if each.name in given}
            for name, kind in READING.items()
        }
        if given:
            raise TypeError(f"{', '.join(given)}: no option for reading a source")
        return cls(
            **{
                name: READING[name](**own)
                for name, own in owned.items()
                if any(value is not None for value in own.values())
            }
        )


READING: dict[str, Any] = {
    "table": TableOptions,
    "lmdb": LmdbOptions,
    "layout": LayoutOptions,
    "columns": ColumnOptions,
}
"""The kinds of options for reading a source, by their place in SourceOptions."""


class SourceKeywords(TypedDict, total=False):
    """Options for reading a source, as keywords."""

    path_column: str | int | None
    label_column: str | int | None
    header: bool | None
    images: str | os.PathLike[str] | None
    suffix: str | None
    key_pattern: str | None
    label_pattern: str | None
    format: Format | None
    annotations: Paths | None
    masks: str | os.PathLike[str] | None
    split: str | None
    box_format: BoxFormat | None
    image: str | None


def split_pattern(pattern: str) -> tuple[str, str] | None:
    """Text before and after the number in a pattern such as image-%09d; None if it has not exactly one."""
    match = _PATTERN.fullmatch(pattern)
    return None if match is None else (match[1], match[2])


def source_options(given: Mapping[str, Any]) -> SourceOptions:
    """The options for reading a source among these keywords, and those of a store."""
    found = SourceOptions.of(**taken(given, *READING.values()))
    return replace(found, storage_options=given.get("storage_options"), timeout=given.get("timeout"))


def taken(given: Mapping[str, Any], *kinds: Any) -> dict[str, Any]:
    """The values of those keywords that are options of some kinds."""
    return {each.name: given[each.name] for kind in kinds for each in fields(kind) if each.name in given}
