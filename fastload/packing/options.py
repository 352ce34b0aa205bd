"""Options of a pack: each is declared once, as a field of one of six frozen dataclasses, each checked when it is created.

1. The field is the option: its name, its type, its default, its limits, and what help() and ``--help`` say of it (`option`).
2. Its class says where it goes: options for how samples become records (`PackOptions`) are stored in the manifest and sent to the tasks of
   a cluster; those for reading a source are sent to the tasks; those of a run (`RunOptions`) stay with the process that packs.
3. The commands that take it name it in their `TypedDict` at the end of this file, which is what type checkers know of their keywords. The
   order there is the order in which help() and ``--help`` show them.

`fastload.packing.keywords` makes signatures and docstrings from this, and `fastload.cli.options` the flags. tests/packing/test_options.py
checks that names and types are equal, and adds an option to prove it.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import Field, asdict, dataclass, field, fields
from typing import Any, Literal, TypedDict, get_args, get_origin, get_type_hints

from fastload.common.files import expanded
from fastload.common.limits import MAX_PIXELS, MAX_PIXELS_MOST, checked_max_pixels, parse_size
from fastload.common.system import available_cpus
from fastload.errors import ArgumentError
from fastload.store import BOX_SIDES
from fastload.store.progress import SHARD_SIZE_LIMIT

Encode = Literal["lossless", "keep", "dct", "jpeg", "raw"]
Subsampling = Literal["4:4:4", "4:2:2", "4:2:0", "gray"]
Exif = Literal["ignore", "apply"]
Check = Literal["structure", "entropy"]
OnError = Literal["raise", "skip"]
Layout = Literal["folders", "pairs", "coco"]
"""Layouts that `unpack` writes."""
Paths = str | os.PathLike[str] | Sequence[str | os.PathLike[str]]
Format = Literal["folder", "coco", "voc", "voc-segmentation", "yolo", "cityscapes", "ade20k", "pairs", "images"]
BoxFormat = Literal["xyxy", "xywh", "cxcywh", "xywhr", "cxcywhr", "xyxyxyxy"]
"""Keys of `fastload.store.BOX_SIDES`."""

Words = str | Mapping[str, str]
"""A text for all commands, or one for each by its name; a command without one has that of pack."""

JPEG_SIDE_MOST = 65500
"""Limit on a JPEG's longer side, in pixels: it is libjpeg's, below the format's 65535."""
SHARD_BYTES = 1 << 30
"""Bytes after which a shard ends where nothing else is given."""

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
class PackOptions:
    """Options for how samples become records. The manifest stores them in this order.

    Raises:
        ArgumentError: a value out of range, or two that contradict each other.
    """

    encode: Encode = field(
        default="lossless",
        metadata=option(
            '"lossless" (the same pixels: JPEGs keep their coefficients and lose their metadata, progressive and arithmetic ones become '
            'baseline, other formats become raw pixels, CMYK becomes RGB at quality 100), "keep" (JPEGs, PNGs and WebPs byte for byte), '
            '"dct" (as "keep", with the coefficients of JPEGs in a form that decodes about twice as fast, of which `unpack` makes the same '
            'files again), "jpeg" (all encoded anew) or "raw" (all decoded).',
            {
                "pack": "How images are stored: with the same pixels, files byte for byte, in a form that decodes faster, all encoded "
                "anew, or all decoded. With lossless, metadata is dropped, progressive JPEGs become baseline, and other formats are stored "
                "as pixels.",
                "append": "How images are stored",
            },
            as_packed=True,
        ),
    )
    quality: int = field(
        default=90,
        metadata=option(
            "quality of JPEGs that are encoded, 1 to 100.",
            "Quality of JPEGs that are encoded.",
            limits=(1, 100),
            most_shown=True,
            as_packed=True,
        ),
    )
    subsampling: Subsampling = field(
        default="4:2:0",
        metadata=option(
            'chroma subsampling of these JPEGs: "4:4:4", "4:2:2", "4:2:0", "gray".',
            "Chroma subsampling of JPEGs that are encoded.",
            as_packed=True,
        ),
    )
    max_side: int | None = field(
        default=None,
        metadata=option(
            "images whose longer side is longer are shrunk to it.",
            "Shrink images whose longer side is longer.",
            limits=(1, JPEG_SIDE_MOST),
            as_packed=True,
        ),
    )
    min_side: int | None = field(
        default=None,
        metadata=option(
            "images whose shorter side is longer are shrunk to it; with both, the smaller result.",
            "Shrink images whose shorter side is longer.",
            limits=(1, JPEG_SIDE_MOST),
            as_packed=True,
        ),
    )
    exif: Exif = field(
        default="ignore",
        metadata=option(
            '"ignore" the orientation, as ImageFolder does, or "apply" it. Annotations of COCO, VOC and YOLO, and masks in folders, turn '
            'with their images, unless they are of the upright ones already; other sources with boxes or masks are refused with "apply".',
            {
                "pack": "Treatment of EXIF orientations. With apply, images are turned upright, without loss where their "
                "sides allow it; with ignore they are counted, and left as ImageFolder leaves them.",
                "append": "Treatment of EXIF orientations",
            },
            as_packed=True,
        ),
    )
    check: Check = field(
        default="entropy",
        metadata=option(
            '"entropy" walks the coded data of every JPEG, so that each that libjpeg-turbo would only decode with warnings is named; it '
            'costs about 0.4 ms of CPU time for 100 KB. "structure" walks the markers, and looks into the coded data of those files only '
            "whose markers are not as they should be (cut off, without an end, with bytes between segments, restarts out of order).",
            {
                "pack": "How far a JPEG is checked: all of its coded data, or only its markers, which is quicker with --no-index.",
                "append": "How far a JPEG is checked",
            },
            as_packed=True,
        ),
    )
    index: bool = field(
        default=True,
        metadata=option(
            "store with each JPEG where in its coded data MCUs start (at most 1.5 % of its size), so that a crop is decoded without "
            'reading what comes before it; the JPEG itself is not changed. It is made in the walk of check="entropy".',
            {
                "pack": "Note where in each JPEG's data its parts start, so that crops decode faster.",
                "append": "Make the entropy index, or not",
            },
            as_packed=True,
        ),
    )
    optimize_huffman: bool = field(
        default=False,
        metadata=option(
            "give JPEGs Huffman tables of their own: the same pixels in some per cent less, for about 4 ms of CPU time for 100 KB. Not "
            'with "keep", "dct" or "raw".',
            {
                "pack": "The same pixels in smaller JPEGs; packing takes longer.",
                "append": "The same pixels in smaller JPEGs",
            },
            as_packed=True,
        ),
    )
    on_error: OnError = field(
        default="raise",
        metadata=option(
            {
                "pack": '"raise" at the first sample that cannot be packed, or "skip" such samples and name them.',
                "attach": '"raise" at the first sample that cannot be attached, or "skip" such samples and name them.',
            },
            {
                "pack": "At a sample that cannot be packed: stop, or leave it out and name it.",
                "attach": "At a sample that cannot be attached: stop, or leave it out and name it.",
                "append": "At a sample that cannot be packed: stop, or leave it out.",
            },
            varies=True,
        ),
    )
    shuffle: bool = field(
        default=False,
        metadata=option(
            {
                "pack": "pack in a random order that `seed` decides.",
                "attach": "list the samples in a random order that `seed` decides.",
                "append": "add the samples in a random order that `seed` decides.",
            },
            {
                "pack": "Pack in a random order.",
                "attach": "List the samples in a random order.",
                "append": "Add the samples in a random order.",
            },
        ),
    )
    seed: int = field(default=0, metadata=option("seed of the shuffle.", "Seed of the shuffle.", limits=(0, 2**64 - 1)))
    limit: int | None = field(
        default=None,
        metadata=option(
            {
                "pack": "pack the first so many samples (after the shuffle) only.",
                "attach": "attach the first so many samples (after the shuffle) only.",
                "append": "add the first so many samples (after the shuffle) only.",
            },
            {
                "pack": "Pack the first so many samples only.",
                "attach": "Attach the first so many samples only.",
                "append": "Add the first so many samples only.",
            },
            limits=(1, 2**63 - 1),
            varies=True,
        ),
    )
    max_pixels: int = field(
        default=MAX_PIXELS,
        metadata=option(
            {
                "pack": "larger images are refused before they are decoded; FASTLOAD_MAX_PIXELS or 2**28 by default.",
                "append": "larger images are refused before they are decoded.",
            },
            {
                "pack": "Refuse larger images; FASTLOAD_MAX_PIXELS or 268435456 by default.",
                "append": "Refuse larger images",
            },
            limits=(1, MAX_PIXELS_MOST),
            as_packed=True,
            varies=True,
        ),
    )

    @classmethod
    def of(cls, given: Mapping[str, Any]) -> PackOptions:
        """The options of these keywords, among others; max_pixels=None is the environment's limit."""
        return cls(**{**taken(given, cls), "max_pixels": checked_max_pixels(given["max_pixels"])})

    def __post_init__(self) -> None:
        for name in CHOICES:
            _one_of(name, getattr(self, name))
        for name in ("index", "optimize_huffman"):
            if not isinstance(getattr(self, name), bool):
                raise ArgumentError(f"{name}={getattr(self, name)!r} is neither True nor False")
        if self.optimize_huffman and self.encode in ("keep", "dct", "raw"):
            raise ArgumentError(f"optimize_huffman writes JPEGs anew, which encode={self.encode!r} does not; use it with lossless or jpeg")
        _check_limits(self)
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

    Raises:
        ArgumentError: a column that is neither a name nor a number, one column twice, or a header that is neither True, False nor None.
    """

    path_column: str | int | None = field(
        default=None,
        metadata=option(
            "for a .csv or .tsv, the column of paths: its name in the header line, or its number from 0. Usual names (path, filename, "
            "image_path, ...) are recognised.",
            "For a .csv/.tsv: the column of paths, by its name in the header or its number from 0.",
        ),
    )
    label_column: str | int | None = field(
        default=None,
        metadata=option("likewise the column of labels (label, class, target, ...).", "For a .csv/.tsv: the column of labels, likewise."),
    )
    header: bool | None = field(
        default=None,
        metadata=option(
            "True if the first line of a .csv or .tsv names the columns; None recognises it, or asks.",
            "Take the first line of a .csv/.tsv as the names of its columns, or as a sample.",
        ),
    )

    images: str | os.PathLike[str] | None = field(
        default=None,
        metadata=option(
            "the folder that the paths in a .csv or .tsv are relative to; by default the table's own.",
            "For a .csv/.tsv: the folder that its paths are relative to; by default its own.",
            metavar="DIR",
        ),
    )
    suffix: str | None = field(
        default=None,
        metadata=option(
            'what follows each path in the name of its file, where a .csv or .tsv has ids without it: ".jpg".',
            "For a .csv/.tsv of ids: what follows them in the files' names, such as .jpg.",
        ),
    )

    def __post_init__(self) -> None:
        if self.images is not None and not (isinstance(self.images, str | os.PathLike) and os.fspath(self.images)):
            raise ArgumentError(f"images={self.images!r} is no path")
        if self.suffix is not None and not (isinstance(self.suffix, str) and self.suffix and os.sep not in self.suffix):
            raise ArgumentError(f"suffix={self.suffix!r} is not the end of a file's name, such as .jpg")
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

    Raises:
        ArgumentError: a pattern without exactly one number, or a label_pattern without a key_pattern.
    """

    key_pattern: str | None = field(
        default=None,
        metadata=option(
            'for an LMDB file, the keys of images with their number, as in "image-%09d"; without it every key is an image\'s.',
            "For an LMDB file: the keys of images with their number, as in image-%09d; otherwise all keys.",
        ),
    )
    label_pattern: str | None = field(
        default=None, metadata=option("likewise the keys of labels.", "For an LMDB file: the keys of labels, likewise.")
    )

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

    Raises:
        ArgumentError: an unknown format, or an option that the format does not take.
    """

    format: Format | None = field(
        default=None,
        metadata=option(
            'the layout of a folder: "folder" (of class folders), "coco", "voc" (boxes), "voc-segmentation", "yolo", "cityscapes", '
            '"ade20k", "pairs" (of images and masks) or "images" (without labels, at any depth). Usual ones are recognised.',
            "The layout of a folder, where it is not recognised.",
        ),
    )
    annotations: Paths | None = field(
        default=None,
        metadata=option(
            "the JSON file of a dataset in COCO's form (instances, keypoints, captions, panoptic); `source` is the folder of its images, "
            "or one above it. It may be left out where the folder has only one. A list of several: of other images, or of other kinds of "
            "the same images, which are one by their ids.",
            "For a COCO dataset: the JSON file; SRC is the folder of its images. May be repeated: files are merged.",
            metavar="FILE",
            repeated=True,
        ),
    )
    masks: str | os.PathLike[str] | None = field(
        default=None,
        metadata=option(
            {
                "pack": "the folder of the masks for the images in `source`, or of the PNGs of a panoptic dataset.",
                "attach": "the folder of the masks for the images in `source`, or of the PNGs of a panoptic dataset; they are stored.",
            },
            "The folder of the masks of the images in SRC, or of panoptic PNGs.",
            metavar="DIR",
        ),
    )
    split: str | None = field(
        default=None,
        metadata=option(
            'the part of a dataset that is packed, if its layout has several: "train", "val", "train2017", ...',
            "The part of a dataset that has several: train, val, train2017, ...",
        ),
    )

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

    Raises:
        ArgumentError: an unknown format.
    """

    box_format: BoxFormat | None = field(
        default=None,
        metadata=option(
            "for a column of objects as Hugging Face's detection datasets have it (`objects`, with `bbox` and `category`), in Parquet and "
            'Arrow files or a Dataset, the format of the boxes: "xywh" (as COCO has them), "xyxy", "cxcywh", ... The boxes, their labels '
            "and the other members of each object become fields. Without it the column is JSON: it does not say what the numbers are.",
            "Format of the boxes in a column of objects (bbox, category) in Parquet and Arrow files. Without it the column is JSON.",
        ),
    )

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
        owned = {name: {each.name: given.pop(each.name) for each in fields(kind) if each.name in given} for name, kind in READING.items()}
        if given:
            raise TypeError(f"{', '.join(given)}: no option for reading a source")
        return cls(**{name: READING[name](**own) for name, own in owned.items() if any(value is not None for value in own.values())})


READING: dict[str, Any] = {"table": TableOptions, "lmdb": LmdbOptions, "layout": LayoutOptions, "objects": ObjectOptions}
"""The kinds of options for reading a source, by their place in SourceOptions."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RunOptions:
    """Options for how a pack runs and where its shards end. The samples and their order do not depend on them.

    Raises:
        ArgumentError: a value out of range, or two that contradict each other.
    """

    workers: int | None = field(
        default=None,
        metadata=option(
            {
                "pack": "threads that read and encode; the CPUs this process may use by default.",
                "attach": "threads that read and check; the CPUs this process may use by default.",
            },
            "Threads; the usable CPUs by default.",
            limits=(1, 1024),
        ),
    )
    shard_size: str | int | None = field(
        default=None,
        metadata=option(
            'bytes at which a new shard is begun, a number or "500MB"; 1 GiB by default.',
            "Bytes of a shard: 500MB, 1GiB (the default), ...",
        ),
    )
    shard_samples: int | None = field(
        default=None,
        metadata=option(
            "instead, each shard takes so many consecutive samples of the order: what is in which shard does not depend on sizes. A shard "
            'from which on_error="skip" left samples out has fewer.',
            "Begin a shard at every N-th sample instead of by bytes.",
            limits=(1, 2**32 - 1),
            metavar="N",
        ),
    )
    overwrite: bool = field(
        default=False,
        metadata=option(
            {
                "pack": "replace a dataset, finished or half-written, at `out`.",
                "attach": "replace a dataset, finished or half-written, at `out`; the files of the source are never touched.",
            },
            {"pack": "Replace what is at OUT.", "attach": "Replace what is at INDEX."},
        ),
    )
    resume: bool = field(
        default=False,
        metadata=option(
            {
                "pack": "go on with a half-written one, made with the same options; on_error, limit, max_pixels and workers may be "
                "others. Samples that are written must not have changed in the source; others may be mended, removed or added.",
                "append": "go on with an append that was stopped, with the same source and options.",
            },
            {
                "pack": "Go on with a half-written OUT.",
                "attach": "Go on with a half-written INDEX.",
                "append": "Go on with an append that was stopped.",
            },
        ),
    )
    staging: str | os.PathLike[str] | None = field(
        default=None,
        metadata=option(
            "for a URL, the local folder of shards that are being written, and of the journal, which resume=True needs; by default one of "
            "its own for each URL in `staging` of the cache folder ($FASTLOAD_CACHE, or ~/.cache/fastload).",
            "To a URL: where shards lie until they are uploaded, and what --resume needs.",
            metavar="DIR",
        ),
    )
    storage_options: Mapping[str, object] | None = field(
        default=None,
        repr=False,
        metadata=option(
            "for a URL, options of the store: ``endpoint``, ``region``, ...; the environment by default.",
            "For a URL: an option of its store, as endpoint=http://host:8333, region=us-east-1 or client_options.allow_http=true; may be "
            "repeated. Other options are read from the environment.",
            flag="--storage-option",
            metavar="KEY=VALUE",
            repeated=True,
        ),
    )
    timeout: float | str | None = field(
        default=None,
        metadata=option(
            "for a URL, seconds after which a request that fails again and again is given up, or text such as ``6h``; 60 by default.",
            "For a URL: how long a request that fails is tried again, as 90s, 30min or 6h; 60 seconds by default.",
            metavar="TIME",
        ),
    )
    ray: bool | str | None = field(
        default=None,
        metadata=option(
            'pack on a Ray cluster: True for the one that ``ray.init()`` finds or starts, or an address ("auto", "10.0.0.5:6379"). Every '
            "shard is a task; `out` is a URL or a folder that all nodes share, and they all see the source. With the same shard_samples "
            "the dataset is that of a pack on one machine, byte for byte; without it, a shard takes a 64th of the samples, and at most "
            "8192. `workers` are the threads of each task, 1 by default; `staging` is a folder of each node. Needs torch-fastload[ray].",
            "Pack on a Ray cluster, at ADDRESS or as ray.init() finds it; stands after SRC and OUT.",
            metavar="[ADDRESS]",
        ),
    )
    progress: bool = field(default=False, metadata=option("show a bar on the terminal.", "No progress bar, no summary.", flag="--quiet"))

    @classmethod
    def of(cls, given: Mapping[str, Any]) -> RunOptions:
        """The options of these keywords, among others."""
        return cls(**taken(given, cls))

    def __post_init__(self) -> None:
        if self.shard_size is not None and self.shard_samples is not None:
            raise ArgumentError("shard_size and shard_samples both say where shards end: give one")
        if self.shard_size is not None:
            _shard_bytes(self.shard_size)
        _check_limits(self)
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


def source_options(given: Mapping[str, Any]) -> SourceOptions:
    """The options for reading a source among these keywords."""
    return SourceOptions.of(**taken(given, *READING.values()))


def taken(given: Mapping[str, Any], *kinds: Any) -> dict[str, Any]:
    """The values of those keywords that are options of some kinds."""
    return {each.name: given[each.name] for kind in kinds for each in fields(kind) if each.name in given}


def _one_of(name: str, value: object) -> None:
    allowed = get_args(CHOICES[name])
    if value not in allowed:
        raise ArgumentError(f"{name}={value!r} is none of {', '.join(allowed)}")


def _check_limits(options: Any) -> None:
    """Raises ArgumentError if a whole number among some options is out of its limits. None is one where it is the default."""
    for each in fields(options):
        value, limits = getattr(options, each.name), declared(each).limits
        if limits is None or (value is None and each.default is None):
            continue
        low, high = limits
        if isinstance(value, bool) or not isinstance(value, int) or not low <= value <= high:
            raise ArgumentError(f"{each.name}={value!r} is no whole number between {low} and {high}")


KINDS = (PackOptions, *READING.values(), RunOptions)
"""The classes whose fields are the options."""
OPTIONS: dict[str, Field[Any]] = {each.name: each for kind in KINDS for each in fields(kind)}
"""Every option's field."""
TYPES: dict[str, Any] = {name: found for kind in KINDS for name, found in get_type_hints(kind).items()}
"""Every option's type."""
LIMITS = {name: limits for name, each in OPTIONS.items() if (limits := declared(each).limits) is not None}
"""(least, most) of each option that is a whole number."""
CHOICES = {name: kind for name, kind in TYPES.items() if get_origin(kind) is Literal}
"""The type of each option that takes one of a few words."""
MAY_VARY = tuple(name for name, each in OPTIONS.items() if declared(each).varies)
"""Options that a resume may change."""
AS_PACKED = tuple(name for name, each in OPTIONS.items() if declared(each).as_packed)
"""Options of `append` whose default is what the dataset was packed with."""


class PackKeywords(TypedDict, total=False):
    """Options that `pack` takes. Where None is added to the field's type, it is the default."""

    encode: Encode
    quality: int
    subsampling: Subsampling
    max_side: int | None
    min_side: int | None
    shard_size: str | int | None
    shard_samples: int | None
    workers: int | None
    shuffle: bool
    seed: int
    exif: Exif
    check: Check
    index: bool
    optimize_huffman: bool
    on_error: OnError
    limit: int | None
    max_pixels: int | None
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
    overwrite: bool
    resume: bool
    staging: str | os.PathLike[str] | None
    storage_options: Mapping[str, object] | None
    timeout: float | str | None
    ray: bool | str | None
    progress: bool


class AttachKeywords(TypedDict, total=False):
    """Options that `attach` takes, likewise."""

    workers: int | None
    shuffle: bool
    seed: int
    check: Check
    index: bool
    on_error: OnError
    limit: int | None
    max_pixels: int | None
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
    overwrite: bool
    resume: bool
    progress: bool


class AppendKeywords(TypedDict, total=False):
    """Options that `append` takes, likewise."""

    encode: Encode | None
    quality: int | None
    subsampling: Subsampling | None
    max_side: int | None
    min_side: int | None
    exif: Exif | None
    check: Check | None
    index: bool | None
    optimize_huffman: bool | None
    max_pixels: int | None
    shuffle: bool
    seed: int
    on_error: OnError
    limit: int | None
    shard_size: str | int | None
    shard_samples: int | None
    workers: int | None
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
    resume: bool
    progress: bool


class ConvertKeywords(TypedDict, total=False):
    """Options that `convert` takes, likewise."""

    encode: Encode
    quality: int
    subsampling: Subsampling
    shard_size: str | int | None
    shard_samples: int | None
    workers: int | None
    check: Check
    index: bool
    optimize_huffman: bool
    on_error: OnError
    max_pixels: int | None
    overwrite: bool
    resume: bool
    staging: str | os.PathLike[str] | None
    storage_options: Mapping[str, object] | None
    timeout: float | str | None
    progress: bool


COMMANDS: dict[str, Any] = {"pack": PackKeywords, "attach": AttachKeywords, "append": AppendKeywords, "convert": ConvertKeywords}
"""The keywords of each command that packs, by its name, which is also its function's."""
