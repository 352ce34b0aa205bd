"""``fastload attach`` and ``fastload rebase``."""

from __future__ import annotations

import os
from pathlib import Path
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
    Split,
    Workers,
    in_a_folder,
)
from fastload.cli.output import say
from fastload.cli.pack import show
from fastload.cli.stopped import run_again
from fastload.common.files import expanded
from fastload.packing.options import LIMITS, OnError, PackOptions, RunOptions

_PACK, _RUN = PackOptions(), RunOptions()


def attach(
    sources: Annotated[
        list[str],
        typer.Argument(metavar="SRC...", help="What `fastload pack` takes, if its images lie in one piece in files; they stay there."),
    ],
    out: Annotated[str, typer.Argument(metavar="INDEX", help="The dataset directory to make.")],
    base: Annotated[
        str | None,
        typer.Option(help="The folder of SRC as INDEX is to name it: absolute, or relative to INDEX. SRC's absolute path by default."),
    ] = None,
    workers: Workers = _RUN.workers,
    shuffle: Annotated[bool, typer.Option("--shuffle", help="List the samples in a random order.")] = _PACK.shuffle,
    seed: Seed = _PACK.seed,
    check: CheckLevel = _PACK.check,
    index: EntropyIndex = _PACK.index,
    on_error: Annotated[
        OnError, typer.Option(help="At a sample that cannot be attached: stop, or leave it out and name it.")
    ] = _PACK.on_error,
    limit: Annotated[int | None, typer.Option(min=LIMITS["limit"][0], help="Attach the first so many samples only.")] = _PACK.limit,
    max_pixels: MaxPixels = None,
    path_column: PathColumn = None,
    label_column: LabelColumn = None,
    header: Header = None,
    key_pattern: KeyPattern = None,
    label_pattern: LabelPattern = None,
    format: LayoutFormat = None,
    annotations: Annotations = None,
    masks: Masks = None,
    split: Split = None,
    box_format: ObjectBoxes = None,
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Replace what is at INDEX.")] = _RUN.overwrite,
    resume: Annotated[bool, typer.Option("--resume", help="Go on with a half-written INDEX.")] = _RUN.resume,
    quiet: Quiet = False,
) -> None:
    """Makes a dataset of images that stay where they are: only their places, and what decodes them faster, are written."""
    from fastload.packing.attach import attach as run

    with run_again("attach"):
        summary = run(
            sources[0] if len(sources) == 1 else sources,
            out,
            base=base,
            workers=workers,
            shuffle=shuffle,
            seed=seed,
            check=check,
            index=index,
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
            progress=not quiet,
        )
    if not quiet:
        show(summary, out, "attached")


def rebase(
    dataset: Annotated[str, typer.Argument(metavar="INDEX", help="A dataset made by `fastload attach`.", callback=in_a_folder)],
    base: Annotated[str, typer.Argument(metavar="DIR", help="Where its files are now: absolute, or relative to INDEX.")],
) -> None:
    """Tells an attached dataset that its files were moved."""
    from fastload.packing.attach import rebase as run
    from fastload.store.entries import resolved_base

    count = run(dataset, base)
    found = resolved_base(Path(expanded(dataset)), expanded(base))
    absent = "" if os.path.isdir(found) else ", which is not there now"
    say(f"{dataset}: {count:,} samples are looked for in {found}{absent}")
