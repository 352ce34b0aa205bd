"""``fastload pack``."""

from __future__ import annotations

from typing import Annotated

import typer
from typing_extensions import Unpack

from fastload.cli.options import takes_flags
from fastload.cli.stopped import run_again
from fastload.cli.summary import show
from fastload.common.urls import is_url, shown
from fastload.packing.options import PackKeywords


@takes_flags
def pack(
    sources: Annotated[
        list[str],
        typer.Argument(
            metavar="SRC...",
            help="A folder of class folders, a .csv/.tsv of path,label[,...], .tar files (WebDataset; "
            "'train-{000..003}.tar' and "
            "'*.tar' work too), .parquet, .arrow or TFRecord files, a folder of MDS shards or "
            "LitData chunks, or an LMDB file.",
        ),
    ],
    out: Annotated[
        str,
        typer.Argument(
            metavar="OUT", help="The dataset directory to make, or a URL: s3://BUCKET/PATH, gs://, az://."
        ),
    ],
    **options: Unpack[PackKeywords],
) -> None:
    """Packs images and labels into a dataset that fastload reads."""
    from fastload.packing.packer import pack as run

    with run_again("pack"):
        summary = run(sources[0] if len(sources) == 1 else sources, out, **options)
    if options["progress"]:
        show(summary, shown(out) if is_url(out) else out)
