"""``fastload pack``."""

from __future__ import annotations

from typing import Annotated

import typer

from fastload.cli.options import (
    Annotations,
    CheckLevel,
    EntropyIndex,
    Header,
    KeyPattern,
    LabelColumn,
    LabelPattern,
    LayoutFormat,
    Masks,
    MaxPixels,
    ObjectBoxes,
    PathColumn,
    Quiet,
    Seed,
    ShardSamples,
    ShardSize,
    Split,
    StorageOptions,
    Workers,
    parsed_options,
)
from fastload.cli.output import say
from fastload.cli.stopped import run_again
from fastload.common.urls import is_url, shown
from fastload.errors import cell
from fastload.packing.options import LIMITS, Encode, Exif, LmdbOptions, OnError, PackOptions, RunOptions, Subsampling
from fastload.packing.summary import PackSummary

_PACK, _LMDB, _RUN = PackOptions(), LmdbOptions(), RunOptions()
"""Defaults of the flags, but for those of another type as a flag: text for a column's number, None for the environment's limit."""


def pack(
    sources: Annotated[
        list[str],
        typer.Argument(
            metavar="SRC...",
            help="A folder of class folders, a .csv/.tsv of path,label[,...], .tar files (WebDataset; 'train-{000..003}.tar' and "
            "'*.tar' work too), .parquet, .arrow or TFRecord files, a folder of MDS shards or LitData chunks, or an LMDB file.",
        ),
    ],
    out: Annotated[str, typer.Argument(metavar="OUT", help="The dataset directory to make, or a URL: s3://BUCKET/PATH, gs://, az://.")],
    encode: Annotated[
        Encode,
        typer.Option(
            help="lossless: the same pixels, metadata dropped, progressive made baseline, other formats as pixels; "
            "keep: every JPEG byte for byte; jpeg: all encoded anew; raw: all decoded."
        ),
    ] = _PACK.encode,
    quality: Annotated[
        int, typer.Option(min=LIMITS["quality"][0], max=LIMITS["quality"][1], help="Of JPEGs that are encoded.")
    ] = _PACK.quality,
    subsampling: Annotated[Subsampling, typer.Option(help="Of their chroma.")] = _PACK.subsampling,
    max_side: Annotated[
        int | None, typer.Option(min=LIMITS["max_side"][0], help="Shrink images whose longer side is longer.")
    ] = _PACK.max_side,
    min_side: Annotated[
        int | None, typer.Option(min=LIMITS["min_side"][0], help="Shrink images whose shorter side is longer.")
    ] = _PACK.min_side,
    shard_size: ShardSize = None,
    shard_samples: ShardSamples = _RUN.shard_samples,
    workers: Workers = _RUN.workers,
    shuffle: Annotated[bool, typer.Option("--shuffle", help="Pack in a random order.")] = _PACK.shuffle,
    seed: Seed = _PACK.seed,
    exif: Annotated[
        Exif,
        typer.Option(
            help="apply: turn images upright by their EXIF orientation, without loss where their sides allow it; ignore: as ImageFolder "
            "does, and count them."
        ),
    ] = _PACK.exif,
    check: CheckLevel = _PACK.check,
    index: EntropyIndex = _PACK.index,
    optimize_huffman: Annotated[
        bool, typer.Option("--optimize-huffman", help="The same pixels in smaller JPEGs; packing takes longer.")
    ] = _PACK.optimize_huffman,
    on_error: Annotated[
        OnError, typer.Option(help="At a sample that cannot be packed: stop, or leave it out and name it.")
    ] = _PACK.on_error,
    limit: Annotated[int | None, typer.Option(min=LIMITS["limit"][0], help="Pack the first so many samples only.")] = _PACK.limit,
    max_pixels: MaxPixels = None,
    path_column: PathColumn = None,
    label_column: LabelColumn = None,
    header: Header = None,
    key_pattern: KeyPattern = _LMDB.key_pattern,
    label_pattern: LabelPattern = _LMDB.label_pattern,
    format: LayoutFormat = None,
    annotations: Annotations = None,
    masks: Masks = None,
    split: Split = None,
    box_format: ObjectBoxes = None,
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Replace what is at OUT.")] = _RUN.overwrite,
    resume: Annotated[bool, typer.Option("--resume", help="Go on with a half-written OUT.")] = _RUN.resume,
    staging: Annotated[
        str | None, typer.Option(metavar="DIR", help="To a URL: where shards lie until they are uploaded, and what --resume needs.")
    ] = None,
    storage_options: StorageOptions = None,
    ray: Annotated[
        str | None,
        typer.Option(
            metavar="[ADDRESS]",
            help="Pack on a Ray cluster: the one at ADDRESS, or else that ray.init() finds or starts. Stands after SRC and OUT.",
        ),
    ] = None,
    quiet: Quiet = False,
) -> None:
    """Packs images and labels into a dataset that fastload reads."""
    from fastload.packing.packer import pack as run

    with run_again("pack"):
        summary = run(
            sources[0] if len(sources) == 1 else sources,
            out,
            encode=encode,
            quality=quality,
            subsampling=subsampling,
            max_side=max_side,
            min_side=min_side,
            shard_size=shard_size,
            shard_samples=shard_samples,
            workers=workers,
            shuffle=shuffle,
            seed=seed,
            exif=exif,
            check=check,
            index=index,
            optimize_huffman=optimize_huffman,
            on_error=on_error,
            limit=limit,
            max_pixels=max_pixels,
            path_column=path_column,
            label_column=label_column,
            header=header,
            key_pattern=key_pattern,
            label_pattern=label_pattern,
            format=format,
            annotations=annotations or None,
            masks=masks,
            split=split,
            box_format=box_format,
            overwrite=overwrite,
            resume=resume,
            staging=staging,
            storage_options=parsed_options(storage_options),
            ray=True if ray == "" else ray,
            progress=not quiet,
        )
    if not quiet:
        show(summary, shown(out) if is_url(out) else out)


_LINES = (
    ("attached", "JPEG left where it is"),
    ("kept", "JPEG kept byte for byte"),
    ("stripped", "JPEG, metadata dropped"),
    ("transcoded", "progressive or arithmetic JPEG made baseline"),
    ("rotated", "JPEG turned upright without loss"),
    ("cmyk", "CMYK JPEG made RGB (quality 100, 4:4:4)"),
    ("reencoded", "encoded anew, with loss"),
    ("raw", "stored as pixels"),
    ("shrunk", "shrunk"),
    ("optimized", "JPEG, Huffman tables optimised"),
    ("indexed", "JPEG with an entropy index"),
)


def show(summary: PackSummary, out: str, done: str = "packed") -> None:
    """Prints the table that ends a pack, and the names that someone should look at."""
    from rich.console import Console
    from rich.table import Table

    from fastload.packing.progress import human_bytes

    table = Table(title=f"{done} {cell(out)}", show_header=False)
    table.add_column()
    table.add_column(justify="right")
    table.add_row("samples", f"{summary.samples:,}")
    table.add_row("shards", f"{summary.shards:,}")
    table.add_row("images read", human_bytes(summary.bytes_in))
    table.add_row("images stored", human_bytes(summary.bytes_out))
    for name, count in summary.formats.items():
        table.add_row(f"format {cell(name)}", f"{count:,}")
    for attribute, text in _LINES:
        if count := getattr(summary, attribute):
            table.add_row(text, f"{count:,}")
    if summary.warning_count:
        table.add_row("JPEG that decodes only with warnings", f"{summary.warning_count:,}")
    if summary.skipped_count:
        table.add_row("left out", f"{summary.skipped_count:,}")
    table.add_row("time", f"{summary.seconds:.1f} s, {summary.images_per_second:,.0f} images/s")
    Console().print(table)
    for what, names, count in (
        ("decodes only with warnings", summary.warnings, summary.warning_count),
        ("left out", summary.skipped, summary.skipped_count),
    ):
        for name, reason in names[:20]:
            say(f"{what}: {name}: {reason}")
        if count > 20:
            say(f"{what}: {count - 20:,} more; fastload info --json lists them")
    for notice in summary.notices:
        shown = ", ".join(notice.examples[:3]) + (", ..." if notice.count > 3 else "")
        say(f"note: {notice.count:,} {notice.text}: {shown}")
