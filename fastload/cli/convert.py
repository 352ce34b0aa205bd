"""``fastload convert``."""

from __future__ import annotations

from typing import Annotated

import typer
from typing_extensions import Unpack

from fastload.cli.options import LocalDataset, takes_flags
from fastload.cli.stopped import run_again
from fastload.cli.summary import show
from fastload.common.urls import is_url, shown
from fastload.packing.options import ConvertKeywords


@takes_flags
def convert(
    dataset: LocalDataset,
    out: Annotated[
        str,
        typer.Argument(
            metavar="OUT", help="The dataset directory to make, or a URL: s3://BUCKET/PATH, gs://, az://."
        ),
    ],
    **options: Unpack[ConvertKeywords],
) -> None:
    """Makes a packed dataset of another one, with its images stored in another way."""
    from fastload.packing.convert import convert as run

    with run_again("convert"):
        summary = run(dataset, out, **options)
    if options["progress"]:
        show(summary, shown(out) if is_url(out) else out, "converted to")
