"""Options that several commands have, with their words of help."""

from __future__ import annotations

from typing import Annotated

import typer

from fastload.packing.options import LIMITS, Check

Workers = Annotated[int | None, typer.Option(min=LIMITS["workers"][0], help="Threads; the usable CPUs by default.")]
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
Quiet = Annotated[bool, typer.Option("--quiet", "-q", help="No progress bar, no summary.")]
