"""Options that several commands have, with their words of help."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Annotated

import typer

from fastload.common.urls import is_url, local_path, shown
from fastload.errors import ArgumentError
from fastload.packing.options import LIMITS, BoxFormat, Check, Format

Workers = Annotated[int | None, typer.Option(min=LIMITS["workers"][0], help="Threads; the usable CPUs by default.")]
ShardSize = Annotated[str | None, typer.Option(help="Bytes of a shard: 500MB, 1GiB (the default), ...")]
ShardSamples = Annotated[
    int | None, typer.Option(min=LIMITS["shard_samples"][0], help="Begin a shard at every N-th sample instead of by bytes.", metavar="N")
]
Seed = Annotated[int, typer.Option(min=LIMITS["seed"][0], help="Of the shuffle.")]
CheckLevel = Annotated[
    Check, typer.Option(help="How far a JPEG is checked: all of its coded data, or only its markers, which is quicker with --no-index.")
]
EntropyIndex = Annotated[
    bool, typer.Option("--index/--no-index", help="Note where in each JPEG's data its parts start, so that crops decode faster.")
]
MaxPixels = Annotated[int | None, typer.Option(min=1, help="Refuse larger images; FASTLOAD_MAX_PIXELS or 268435456 by default.")]
PathColumn = Annotated[
    str | None, typer.Option(help="Of a .csv/.tsv: the column of paths, by its name in the header or its number from 0.")
]
LabelColumn = Annotated[str | None, typer.Option(help="Likewise the column of labels.")]
Header = Annotated[bool | None, typer.Option("--header/--no-header", help="Whether the first line of a .csv/.tsv names its columns.")]
KeyPattern = Annotated[
    str | None, typer.Option(help="Of an LMDB file: the keys of images with their number, as in image-%09d; otherwise all keys.")
]
LabelPattern = Annotated[str | None, typer.Option(help="Likewise the keys of labels.")]
LayoutFormat = Annotated[
    Format | None,
    typer.Option("--format", help="The layout of a folder, where it is not recognised.", show_default=False),
]
Annotations = Annotated[
    list[str] | None,
    typer.Option(
        metavar="FILE", help="Of a COCO dataset: the JSON file; SRC is the folder of its images. May be repeated: files are merged."
    ),
]
Masks = Annotated[str | None, typer.Option(metavar="DIR", help="The folder of the masks of the images in SRC, or of panoptic PNGs.")]
Split = Annotated[str | None, typer.Option(help="The part of a dataset that has several: train, val, train2017, ...")]
ObjectBoxes = Annotated[
    BoxFormat | None,
    typer.Option(
        "--box-format",
        help="Of a column of objects (bbox, category) in Parquet and Arrow files: what its boxes are. Without it the column is JSON.",
        show_default=False,
    ),
]
StorageOptions = Annotated[
    list[str] | None,
    typer.Option(
        "--storage-option",
        metavar="KEY=VALUE",
        help="Of the store of a URL, as endpoint=http://host:8333, region=us-east-1 or client_options.allow_http=true; may be repeated. "
        "What is not given is found in the environment.",
    ),
]


def in_a_folder(dataset: str) -> str:
    """The dataset's folder, of a path or a file:// URL. Raises ArgumentError if it is another URL."""
    if not is_url(dataset):
        return dataset
    if (path := local_path(dataset)) is not None:
        return path
    url = shown(dataset)
    raise ArgumentError(f"{url} is a URL, and this command needs a dataset in a folder: `fastload pull {url} OUT` makes one")


LocalDataset = Annotated[str, typer.Argument(metavar="OUT", help="A packed dataset.", callback=in_a_folder)]
Quiet = Annotated[bool, typer.Option("--quiet", "-q", help="No progress bar, no summary.")]


def parsed_options(given: Iterable[str] | None) -> dict[str, object] | None:
    """The storage_options that ``--storage-option`` names; None if there are none. `A.B=C` is an entry of the dict `A`.

    Raises:
        ArgumentError: one is not of the form KEY=VALUE. The message does not show it: a value may be secret.
    """
    found: dict[str, object] = {}
    for each in given or ():
        key, equals, value = each.partition("=")
        if not equals or not key.strip("."):
            raise ArgumentError("a --storage-option is not of the form KEY=VALUE (it is not shown: it may be secret)")
        outer, dot, inner = key.partition(".")
        if not dot:
            found[key] = value
            continue
        nested = found.setdefault(outer, {})
        if not isinstance(nested, dict):
            raise ArgumentError(f"--storage-option {outer} is given both as a value and as {outer}.KEY=VALUE")
        nested[inner] = {"true": True, "false": False}.get(value.lower(), value)
    return found or None
