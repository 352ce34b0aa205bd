"""Options of a pack: each is declared once, as a field of a frozen dataclass, which is checked when it is
created.

1. The field is the option: its name, its type, its default, its limits, and what help() and ``--help`` say of
   it (`option`). Fields stand in the order in which help() and ``--help`` show them.
2. Its class says where it goes: options for how samples become records (`PackOptions`) are stored in the
   manifest and sent to the tasks of a cluster; those for reading a source (`fastload.sources.options`) are
   sent to the tasks; those of a run (`RunOptions`) stay with the process that packs.
3. The commands that take it name it in their `TypedDict` at the end of this file, which is what type checkers
   know of their keywords.

`fastload.packing.keywords` makes signatures and docstrings from this, and `fastload.cli.options` the flags.
tests/packing/test_options.py checks that names and types are equal, and adds an option to prove it.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import Field, asdict, dataclass, field, fields
from typing import Any, Literal, TypedDict, get_args, get_origin, get_type_hints

from fastload.common.limits import MAX_PIXELS, MAX_PIXELS_MOST, checked_max_pixels, parse_size
from fastload.common.system import available_cpus
from fastload.errors import ArgumentError
from fastload.packing.jpegs import JPEG_SIDE_MOST
from fastload.sources.options import READING, OnError, SourceKeywords, declared, option, taken
from fastload.store.progress import SHARD_SIZE_LIMIT

Encode = Literal["lossless", "keep", "dct", "jpeg", "raw"]
Subsampling = Literal["4:4:4", "4:2:2", "4:2:0", "gray"]
Exif = Literal["ignore", "apply"]
Check = Literal["structure", "entropy"]
SHARD_BYTES = 1 << 30
"""Bytes after which a shard ends where nothing else is given."""


@dataclass(frozen=True, slots=True)
class PackOptions:
    """Options of `pack` that the manifest stores, in this order.

    Raises:
        ArgumentError: a value out of range, or two that contradict each other.
    """

    encode: Encode = field(
        default="lossless",
        metadata=option(
            '"lossless": the same pixels, as baseline JPEGs without metadata (CMYK: as RGB at quality 100), '
            'or as pixels where the file is no JPEG. "keep": JPEG, PNG and WebP files byte for byte. "dct": '
            'as "keep", with JPEGs in a form that decodes about twice as fast. "jpeg": all encoded anew. '
            '"raw": all decoded.',
            {
                "pack": "How images are stored: with the same pixels, files byte for byte, in a form that "
                "decodes faster, all encoded anew, or all decoded.",
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
            'their chroma subsampling: "4:4:4", "4:2:2", "4:2:0" or "gray".',
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
            "likewise by the shorter side; with both, the smaller result.",
            "Shrink images whose shorter side is longer.",
            limits=(1, JPEG_SIDE_MOST),
            as_packed=True,
        ),
    )
    exif: Exif = field(
        default="ignore",
        metadata=option(
            '"apply" turns images upright, with annotations in files of their own; "ignore" does not. '
            'Other sources with boxes or masks refuse "apply".',
            {
                "pack": (
                    "Treatment of EXIF orientations: images are left as ImageFolder leaves them, or "
                    "turned upright."
                ),
                "append": "Treatment of EXIF orientations",
            },
            as_packed=True,
        ),
    )
    check: Check = field(
        default="entropy",
        metadata=option(
            '"entropy" walks the coded data of each JPEG (0.4 ms of CPU time for 100 KB), and names those '
            'that decode with warnings; "structure" walks the markers.',
            {
                "pack": (
                    "How far a JPEG is checked: all of its coded data, or only its markers, which is "
                    "quicker with --no-index."
                ),
                "attach": "How far a JPEG is checked; in a store not at all by default.",
                "append": "How far a JPEG is checked",
            },
            as_packed=True,
        ),
    )
    index: bool = field(
        default=True,
        metadata=option(
            "stores an entropy index with each JPEG (at most 1.5 % of its size): crops decode faster.",
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
            'smaller JPEGs by Huffman tables of their own (4 ms of CPU time for 100 KB); with "lossless" '
            'and "jpeg" only.',
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
                "pack": '"raise" at the first sample that cannot be packed, or "skip" and name it.',
                "attach": '"raise" at the first sample that cannot be attached, or "skip" and name it.',
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
            "a random order, by `seed`.",
            {
                "pack": "Pack in a random order.",
                "attach": "List the samples in a random order.",
                "append": "Add the samples in a random order.",
            },
        ),
    )
    seed: int = field(
        default=0, metadata=option("seed of the shuffle.", "Seed of the shuffle.", limits=(0, 2**64 - 1))
    )
    limit: int | None = field(
        default=None,
        metadata=option(
            "only the first so many samples, after the shuffle.",
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
                "pack": (
                    "larger images are refused before they are decoded; FASTLOAD_MAX_PIXELS or 2**28 by "
                    "default."
                ),
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
            raise ArgumentError(
                f"optimize_huffman writes JPEGs anew, which encode={self.encode!r} does not; use it "
                "with lossless or jpeg"
            )
        _check_limits(self)
        if self.encode == "keep" and (self.shrinks or self.exif == "apply"):
            raise ArgumentError(
                "encode='keep' stores every JPEG byte for byte, which max_side, min_side and "
                "exif='apply' would change; "
                "use encode='lossless' with them: it touches only the images that they concern"
            )

    @property
    def shrinks(self) -> bool:
        """True if images may be shrunk."""
        return self.max_side is not None or self.min_side is not None

    def as_dict(self) -> dict[str, Any]:
        """The options that the manifest stores."""
        return asdict(self)


@dataclass(frozen=True, slots=True, kw_only=True)
class RunOptions:
    """Options for how a pack runs and where its shards end. The samples and their order do not depend on
    them.

    Raises:
        ArgumentError: a value out of range, or two that contradict each other.
    """

    workers: int | None = field(
        default=None,
        metadata=option(
            "threads; the CPUs this process may use by default.",
            "Threads; the usable CPUs by default.",
            limits=(1, 1024),
        ),
    )
    shard_size: str | int | None = field(
        default=None,
        metadata=option(
            'bytes at which a shard ends, or "500MB"; 1 GiB by default.',
            "Bytes of a shard: 500MB, 1GiB (the default), ...",
        ),
    )
    shard_samples: int | None = field(
        default=None,
        metadata=option(
            "instead, consecutive samples of a shard, skipped ones included.",
            "Begin a shard at every N-th sample instead of by bytes.",
            limits=(1, 2**32 - 1),
            metavar="N",
        ),
    )
    overwrite: bool = field(
        default=False,
        metadata=option(
            {
                "pack": "replaces a dataset, finished or half-written, at `out`.",
                "attach": (
                    "replaces a dataset, finished or half-written, at `out`; the files of the source are "
                    "never touched."
                ),
            },
            {"pack": "Replace what is at OUT.", "attach": "Replace what is at INDEX."},
        ),
    )
    resume: bool = field(
        default=False,
        metadata=option(
            {
                "pack": (
                    "goes on with a half-written dataset. Options must be the same, but for on_error, "
                    "limit, max_pixels and workers; written samples must be unchanged in the source."
                ),
                "append": "goes on with an append that was stopped, with the same source and options.",
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
            "for a URL: local folder of unfinished shards and of the journal that resume=True needs; by "
            "default below $FASTLOAD_CACHE or ~/.cache/fastload.",
            "To a URL: where shards lie until they are uploaded, and what --resume needs.",
            metavar="DIR",
        ),
    )
    storage_options: Mapping[str, object] | None = field(
        default=None,
        repr=False,
        metadata=option(
            "for a URL: options of the store (``endpoint``, ``region``, ...); the environment by default.",
            "For a URL: an option of its store, as endpoint=http://host:8333, region=us-east-1 or "
            "client_options.allow_http=true; may be repeated.",
            flag="--storage-option",
            metavar="KEY=VALUE",
            repeated=True,
        ),
    )
    timeout: float | str | None = field(
        default=None,
        metadata=option(
            "for a URL: seconds, or text such as ``6h``, until a failing request is given up; 60 by default.",
            "For a URL: how long a request that fails is tried again, as 90s, 30min or 6h; 60 "
            "seconds by default.",
            metavar="TIME",
        ),
    )
    ray: bool | str | None = field(
        default=None,
        metadata=option(
            {
                "pack": (
                    'packs on a Ray cluster: True for that of ``ray.init()``, or an address ("auto", '
                    '"10.0.0.5:6379"). All nodes share `out` and the source; `staging` is a folder of each. '
                    "Every shard is a task of `workers` threads, 1 by default, and by default has a 64th of "
                    "the samples, at most 8192. Needs torch-fastload[ray]."
                ),
                "attach": "reads URLs on a Ray cluster, as `pack` does.",
            },
            "Run on a Ray cluster, at ADDRESS or as ray.init() finds it; stands after SRC and OUT.",
            metavar="[ADDRESS]",
        ),
    )
    from_cache: str | os.PathLike[str] | None = field(
        default=None,
        metadata=option(
            "the cache folder of loaders (`cache=` of FastLoader): image files that they kept, because these "
            'lie on a slow disk, are not read again; "auto" for the default one.',
            "Take image files that loaders kept from their cache folder; 'auto': the default one.",
            metavar="DIR",
        ),
    )
    progress: bool = field(
        default=False,
        metadata=option("shows a bar on the terminal.", "No progress bar, no summary.", flag="--quiet"),
    )

    @classmethod
    def of(cls, given: Mapping[str, Any]) -> RunOptions:
        """The options of these keywords, among others; ray=False is none."""
        return cls(**{**taken(given, cls), "ray": given.get("ray") or None})

    def __post_init__(self) -> None:
        if self.shard_size is not None and self.shard_samples is not None:
            raise ArgumentError("shard_size and shard_samples both say where shards end: give one")
        if self.shard_size is not None:
            _shard_bytes(self.shard_size)
        _check_limits(self)
        if self.from_cache is not None and self.ray is not None:
            raise ArgumentError("from_cache is of one host, and ray packs on all: give one")
        if self.overwrite and self.resume:
            raise ArgumentError(
                "overwrite and resume contradict each other: the one starts anew, the other goes on"
            )

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


def _shard_bytes(size: str | int) -> int:
    value = parse_size(size, "shard_size")
    if value < 1 << 20:
        raise ArgumentError(f"shard_size {size!r} is less than 1 MiB; each shard is a file of its own")
    return value


def _one_of(name: str, value: object) -> None:
    allowed = get_args(CHOICES[name])
    if value not in allowed:
        raise ArgumentError(f"{name}={value!r} is none of {', '.join(allowed)}")


def _check_limits(options: PackOptions | RunOptions) -> None:
    """Raises ArgumentError if a whole number among some options is out of its limits. None is one where it
    is the default."""
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


class _RunKeywords(TypedDict, total=False):
    workers: int | None
    on_error: OnError
    resume: bool
    progress: bool


class _SampleKeywords(SourceKeywords, _RunKeywords, total=False):
    shuffle: bool
    seed: int
    limit: int | None


class _ShardKeywords(TypedDict, total=False):
    shard_size: str | int | None
    shard_samples: int | None


class _CheckKeywords(TypedDict, total=False):
    index: bool
    max_pixels: int | None
    overwrite: bool


class _EncodeKeywords(_ShardKeywords, _CheckKeywords, total=False):
    check: Check
    encode: Encode
    quality: int
    subsampling: Subsampling
    optimize_huffman: bool
    staging: str | os.PathLike[str] | None
    storage_options: Mapping[str, object] | None
    timeout: float | str | None


class PackKeywords(_SampleKeywords, _EncodeKeywords, total=False):
    """Options that `pack` takes. Where None is added to the field's type, it is the default."""

    max_side: int | None
    min_side: int | None
    exif: Exif
    ray: bool | str | None
    from_cache: str | os.PathLike[str] | None


class AttachKeywords(_SampleKeywords, _CheckKeywords, total=False):
    """Options that `attach` takes, likewise."""

    check: Check | None
    ray: bool | str | None
    storage_options: Mapping[str, object] | None
    timeout: float | str | None


class AppendKeywords(_SampleKeywords, _ShardKeywords, total=False):
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
    from_cache: str | os.PathLike[str] | None


class ConvertKeywords(_RunKeywords, _EncodeKeywords, total=False):
    """Options that `convert` takes, likewise."""


COMMANDS: dict[str, Any] = {
    "pack": PackKeywords,
    "attach": AttachKeywords,
    "append": AppendKeywords,
    "convert": ConvertKeywords,
}
"""The keywords of each command that packs, by its name, which is also its function's."""
