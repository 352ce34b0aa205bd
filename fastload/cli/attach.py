"""``fastload attach`` and ``fastload rebase``."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Annotated

import typer
from typing_extensions import Unpack

from fastload.cli.options import (
    StorageOptions,
    Timeout,
    in_a_folder,
    parsed_options,
    parsed_timeout,
    takes_flags,
)
from fastload.cli.output import counted, say
from fastload.cli.stopped import run_again
from fastload.cli.summary import show
from fastload.common.files import expanded
from fastload.common.urls import is_remote, shown
from fastload.packing.options import AttachKeywords


@takes_flags
def attach(
    sources: Annotated[
        list[str],
        typer.Argument(
            metavar="SRC...",
            help="A source of `fastload pack` whose images lie in one piece in files; they stay there.",
        ),
    ],
    out: Annotated[str, typer.Argument(metavar="INDEX", help="The dataset directory to make.")],
    base: Annotated[
        str | None,
        typer.Option(
            help=(
                "The folder of SRC as INDEX is to name it: absolute, or relative to INDEX; SRC's "
                "absolute path by default."
            )
        ),
    ] = None,
    field: Annotated[
        list[str] | None,
        typer.Option(metavar="NAME", help="A field beside the images of URLs; repeatable. All by default."),
    ] = None,
    **options: Unpack[AttachKeywords],
) -> None:
    """Makes a dataset of images that stay where they are."""
    from fastload.packing.attach import attach as run

    with run_again("attach"):
        summary = run(sources[0] if len(sources) == 1 else sources, out, base=base, fields=field, **options)
    if options["progress"]:
        show(summary, out, "attached")


def rebase(
    dataset: Annotated[
        str,
        typer.Argument(metavar="DATASET", help="A dataset made by `fastload attach`.", callback=in_a_folder),
    ],
    base: Annotated[
        str,
        typer.Argument(
            metavar="DIR", help="The folder or URL of its files now: absolute, or relative to DATASET."
        ),
    ],
    storage_options: StorageOptions = None,
    timeout: Timeout = None,
) -> None:
    """Tells an attached dataset that its files were moved."""
    from fastload.packing.attach import rebase as run
    from fastload.store.entries import resolved_base

    options = {"storage_options": parsed_options(storage_options), "timeout": parsed_timeout(timeout)}
    count = run(dataset, base, **options)  # type: ignore[arg-type]
    if is_remote(base):
        return say(f"{dataset}: {counted(count, 'sample')} in {shown(base)}")
    found = resolved_base(Path(expanded(dataset)), expanded(base))
    absent = "" if os.path.isdir(found) else ", which is not there now"
    say(
        f"{dataset}: {counted(count, 'sample')} {'is' if count == 1 else 'are'} looked for in {found}{absent}"
    )
