"""Options of a pack in six frozen dataclasses, with names, types, defaults and limits. Each is checked when it is created.

`fastload.packing.pack` takes the fields of all six as keywords, and `fastload pack` as flags. tests/packing/test_options.py checks that
names and defaults are equal.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields
from typing import Any, Literal, get_args

from fastload.common.files import expanded
from fastload.common.limits import MAX_PIXELS, checked_max_pixels, parse_size
from fastload.common.system import available_cpus
from fastload.errors import ArgumentError
from fastload.store import BOX_SIDES
from fastload.store.progress import SHARD_SIZE_LIMIT

Encode = Literal["lossless", "keep", "jpeg", "raw"]
Subsampling = Literal["4:4:4", "4:2:2", "4:2:0", "gray"]
Exif = Literal["ignore", "apply"]
Check = Literal["structure", "entropy"]
OnError = Literal["raise", "skip"]
Layout = Literal["folders", "pairs", "coco"]
"""Layouts that `unpack` writes."""
Paths = str | os.PathLike[str] | Sequence[str | os.PathLike[str]]
Format = Literal["folder", "coco", "voc", "voc-segmentation", "yolo", "cityscapes", "ade20k", "pairs"]
BoxFormat = Literal["xyxy", "xywh", "cxcywh", "xywhr", "cxcywhr", "xyxyxyxy"]
"""Keys of `fastload.store.BOX_SIDES`."""

CHOICES = {"encode": Encode, "subsampling": Subsampling, "exif": Exif, "check": Check, "on_error": OnError}
"""The type of each option that takes one of a few words."""

JPEG_SIDE_MOST = 65500
"""Limit on a JPEG's longer side, in pixels: it is libjpeg's, below the format's 65535."""
LIMITS = {
    "quality": (1, 100),
    "max_side": (1, JPEG_SIDE_MOST),
    "min_side": (1, JPEG_SIDE_MOST),
    "limit": (1, 2**63 - 1),
    "seed": (0, 2**64 - 1),
    "workers": (1, 1024),
    "shard_samples": (1, 2**32 - 1),
}
"""(least, most) of each option that is an integer, but for max_pixels, which `fastload.common.limits` checks."""

SHARD_BYTES = 1 << 30
"""Bytes after which a shard ends where nothing else is given."""

_PATTERN = re.compile(r"([^%]*)%(?:0(?:[1-9]|1[0-8]))?d([^%]*)", re.DOTALL)


@dataclass(frozen=True, slots=True)
class PackOptions:
    """Options for how samples become records. See `fastload.packing.pack` for the meaning of each.

    Raises:
        ArgumentError: a value out of range, or two that contradict each other.
    """

    encode: Encode = "lossless"
    quality: int = 90
    subsampling: Subsampling = "4:2:0"
    max_side: int | None = None
    min_side: int | None = None
    exif: Exif = "ignore"
    check: Check = "entropy"
    index: bool = True
    optimize_huffman: bool = False
    on_error: OnError = "raise"
    shuffle: bool = False
    seed: int = 0
    limit: int | None = None
    max_pixels: int = MAX_PIXELS

    def __post_init__(self) -> None:
        for name in CHOICES:
            _one_of(name, getattr(self, name))
        for name in ("index", "optimize_huffman"):
            if not isinstance(getattr(self, name), bool):
                raise ArgumentError(f"{name}={getattr(self, name)!r} is neither True nor False")
        if self.optimize_huffman and self.encode in ("keep", "raw"):
            raise ArgumentError(f"optimize_huffman writes JPEGs anew, which encode={self.encode!r} does not; use it with lossless or jpeg")
        for name in ("quality", "max_side", "min_side", "limit", "seed"):
            _between(name, getattr(self, name), optional=name in ("max_side", "min_side", "limit"))
        checked_max_pixels(self.max_pixels)
        if self.encode == "keep" and (self.shrinks or self.exif == "apply"):
            raise ArgumentError(
                "encode='keep' stores every JPEG byte for byte, which max_side, min_side and exif='apply' would change; "
                "use encode='lossless' with them: it touches only the images that they concern"
            )

    @property
    def shrinks(self) -> bool:
        """True if images may be shrunk."""
        return self.max_side is not None or self.min_side is not None

    def as_dict(self) -> dict[str, Any]:
        """The options that the manifest stores."""
        return asdict(self)


@dataclass(frozen=True, slots=True)
class TableOptions:
    """Options for reading a table.

    Attributes:
        path_column: the column of paths, by its name in the header line or by its number from 0; None: detected.
        label_column: the column of labels, likewise.
        header: True if the first line names the columns; None: detected.

    Raises:
        ArgumentError: a column that is neither a name nor a number, one column twice, or a header that is neither True, False nor None.
    """

    path_column: str | int | None = None
    label_column: str | int | None = None
    header: bool | None = None

    def __post_init__(self) -> None:
        for name in ("path_column", "label_column"):
            column = getattr(self, name)
            number = isinstance(column, int) and not isinstance(column, bool) and column >= 0
            if column is not None and not number and not (isinstance(column, str) and column):
                raise ArgumentError(f"{name}={column!r} is neither a column's name nor its number, counted from 0")
        if self.header not in (None, True, False):
            raise ArgumentError(f"header={self.header!r} is none of True, False and None")
        if self.path_column is not None and self.path_column == self.label_column:
            raise ArgumentError(f"path_column and label_column are both {self.path_column!r}")


@dataclass(frozen=True, slots=True)
class LmdbOptions:
    """Options for reading an LMDB file of one's own.

    Attributes:
        key_pattern: the keys of images, with their number as ``%d`` or ``%09d``: image-%09d; None: every key is an image's.
        label_pattern: the keys of labels, likewise; None: there are no labels.

    Raises:
        ArgumentError: a pattern without exactly one number, or a label_pattern without a key_pattern.
    """

    key_pattern: str | None = None
    label_pattern: str | None = None

    def __post_init__(self) -> None:
        for name in ("key_pattern", "label_pattern"):
            pattern = getattr(self, name)
            if pattern is not None and (not isinstance(pattern, str) or split_pattern(pattern) is None):
                raise ArgumentError(f"{name}={pattern!r} has not one number such as %d or %09d in it: image-%09d")
        if self.label_pattern is not None and self.key_pattern is None:
            raise ArgumentError("label_pattern needs a key_pattern: the keys of the images that the labels are for")
        if self.label_pattern is not None and self.label_pattern == self.key_pattern:
            raise ArgumentError(f"key_pattern and label_pattern are both {self.key_pattern!r}")


@dataclass(frozen=True, slots=True)
class LayoutOptions:
    """Options for reading a folder of images with their masks, boxes or other annotations in files beside them.

    Attributes:
        format: the layout of the folder; None: recognised.
        annotations: the JSON file of a dataset in COCO's form, or several; None: found in the folder.
        masks: the folder of the masks of a folder of images, or of the PNGs of a panoptic dataset; None: found beside the images.
        split: the part of the dataset, as the layout names it: train, val, train2017, ...; None: there is only one.

    Raises:
        ArgumentError: an unknown format, or an option that the format does not take.
    """

    format: Format | None = None
    annotations: Paths | None = None
    masks: str | os.PathLike[str] | None = None
    split: str | None = None

    def __post_init__(self) -> None:
        if self.format is not None and self.format not in get_args(Format):
            raise ArgumentError(f"format={self.format!r} is none of {', '.join(get_args(Format))}")
        for name in ("annotations", "masks", "split"):
            value = getattr(self, name)
            several = list(value) if name == "annotations" and isinstance(value, list | tuple) else [value]
            if value is not None and not (several and all(isinstance(each, str | os.PathLike) and os.fspath(each) for each in several)):
                raise ArgumentError(f"{name}={value!r} is no {'name' if name == 'split' else 'path'}")
            if value is not None and self.format is not None and self.format not in _TAKEN_BY[name]:
                raise ArgumentError(f"{name} is for the formats {', '.join(_TAKEN_BY[name])}, and format={self.format!r}")
        if self.annotations is not None and self.split is not None:
            raise ArgumentError("annotations and split both say which part of the dataset is packed: give one")
        files = self.annotation_files
        if len(set(files)) < len(files):
            raise ArgumentError(f"annotations names a file twice: {', '.join(files)}")

    @property
    def annotation_files(self) -> tuple[str, ...]:
        """The paths of `annotations`; () for None."""
        given = self.annotations
        return () if given is None else tuple(expanded(each) for each in (given if isinstance(given, list | tuple) else (given,)))


_TAKEN_BY = {
    "annotations": ("coco",),
    "masks": ("coco", "pairs"),
    "split": ("coco", "voc", "voc-segmentation", "yolo", "cityscapes", "ade20k"),
}
"""The formats for which each of the other options of a layout is."""


@dataclass(frozen=True, slots=True)
class ObjectOptions:
    """Options for reading a column of objects, as detection datasets of Hugging Face have it.

    Attributes:
        box_format: the format of its boxes, which the column itself does not say; None: the column is stored as JSON.

    Raises:
        ArgumentError: an unknown format.
    """

    box_format: BoxFormat | None = None

    def __post_init__(self) -> None:
        if self.box_format is not None and self.box_format not in BOX_SIDES:
            raise ArgumentError(f"box_format={self.box_format!r} is none of {', '.join(BOX_SIDES)}")


@dataclass(frozen=True, slots=True)
class SourceOptions:
    """All options for reading a source. Each member is None where none of its options is given.

    Raises:
        ArgumentError: a value out of range, or two that contradict each other.
    """

    table: TableOptions | None = None
    lmdb: LmdbOptions | None = None
    layout: LayoutOptions | None = None
    objects: ObjectOptions | None = None

    @classmethod
    def of(cls, **given: Any) -> SourceOptions:
        """The options of these keywords of `fastload.packing.pack`."""
        table, lmdb, layout, objects = (_taken(kind, given) for kind in (TableOptions, LmdbOptions, LayoutOptions, ObjectOptions))
        if given:
            raise TypeError(f"{', '.join(given)}: no option for reading a source")
        return cls(table, lmdb, layout, objects)


def _taken(kind: Any, given: dict[str, Any]) -> Any:
    """Options of a kind from the keywords that are its own, which are removed from `given`; None if all of them are None."""
    own = {each.name: given.pop(each.name) for each in fields(kind) if each.name in given}
    return kind(**own) if any(value is not None for value in own.values()) else None


@dataclass(frozen=True, slots=True, kw_only=True)
class RunOptions:
    """Options for how a pack runs and where its shards end. The samples and their order do not depend on them.

    Raises:
        ArgumentError: a value out of range, or two that contradict each other.
    """

    shard_size: str | int | None = None
    shard_samples: int | None = None
    workers: int | None = None
    overwrite: bool = False
    resume: bool = False
    staging: str | os.PathLike[str] | None = None
    storage_options: Mapping[str, object] | None = field(default=None, repr=False)
    ray: bool | str | None = None
    progress: bool = False

    def __post_init__(self) -> None:
        if self.shard_size is not None and self.shard_samples is not None:
            raise ArgumentError("shard_size and shard_samples both say where shards end: give one")
        if self.shard_size is not None:
            _shard_bytes(self.shard_size)
        for name in ("workers", "shard_samples"):
            _between(name, getattr(self, name), optional=True)
        if self.overwrite and self.resume:
            raise ArgumentError("overwrite and resume contradict each other: the one starts anew, the other goes on")

    @property
    def shard_bytes(self) -> int:
        """Bytes after which a shard ends, where `shard_samples` does not say it."""
        if self.shard_samples is not None:
            return SHARD_SIZE_LIMIT
        return SHARD_BYTES if self.shard_size is None else _shard_bytes(self.shard_size)

    @property
    def threads(self) -> int:
        """Number of threads that read and encode."""
        return min(available_cpus(), LIMITS["workers"][1]) if self.workers is None else self.workers


def split_pattern(pattern: str) -> tuple[str, str] | None:
    """Text before and after the number in a pattern such as image-%09d; None if it has not exactly one."""
    match = _PATTERN.fullmatch(pattern)
    return None if match is None else (match[1], match[2])


def _shard_bytes(size: str | int) -> int:
    value = parse_size(size, "shard_size")
    if value < 1 << 20:
        raise ArgumentError(f"shard_size {size!r} is less than 1 MiB; each shard is a file of its own")
    return value


def _one_of(name: str, value: object) -> None:
    allowed = get_args(CHOICES[name])
    if value not in allowed:
        raise ArgumentError(f"{name}={value!r} is none of {', '.join(allowed)}")


def _between(name: str, value: object, *, optional: bool = False) -> None:
    low, high = LIMITS[name]
    if value is None and optional:
        return
    if isinstance(value, bool) or not isinstance(value, int) or not low <= value <= high:
        raise ArgumentError(f"{name}={value!r} is no whole number between {low} and {high}")
