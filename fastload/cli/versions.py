"""``fastload append``, ``columns``, ``drop``, ``concat``, ``prune``: commands that change packed datasets,
by making new versions."""

from __future__ import annotations

from typing import Annotated, Literal

import typer
from typing_extensions import Unpack

from fastload.cli.options import LocalDataset, in_a_folder, takes_flags
from fastload.cli.output import counted, say
from fastload.cli.stopped import run_again
from fastload.cli.summary import show
from fastload.errors import ArgumentError
from fastload.packing.options import AppendKeywords


@takes_flags
def append(
    dataset: LocalDataset,
    sources: Annotated[list[str], typer.Argument(metavar="SRC...", help="A source of fastload pack.")],
    **options: Unpack[AppendKeywords],
) -> None:
    """Adds the samples of a source to a packed dataset, as a new version."""
    from fastload.versions.append import append as run

    with run_again("append", f"{dataset} is as it was, and "):
        summary = run(dataset, sources[0] if len(sources) == 1 else sources, **options)
    if options["progress"]:
        show(summary.pack, dataset)
    say(
        f"{dataset}: version {summary.version}, {counted(summary.samples, 'sample')}, "
        f"{summary.pack.samples:,} of them new"
    )


def columns(
    dataset: LocalDataset,
    action: Annotated[
        Literal["add", "drop"],
        typer.Argument(metavar="add|drop", help="Add the columns of a file, or drop fields."),
    ],
    what: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="FILE|NAME...",
            help="To add: a .csv or .tsv with a header line, or a .npy; to drop: names of fields.",
        ),
    ] = None,
    key: Annotated[
        str | None,
        typer.Option(
            help="The field that is matched with FILE's column of that name; by default rows are in order."
        ),
    ] = None,
    column: Annotated[
        list[str] | None,
        typer.Option(
            help="A column to add, as NAME or NAME:int, float, text, json; may be repeated; all by default."
        ),
    ] = None,
    tokenize: Annotated[
        str | None,
        typer.Option(
            help="To add: input_ids of texts or conversations, by transformers' tokenizer in DIR.",
            metavar="DIR",
        ),
    ] = None,
    text: Annotated[str | None, typer.Option(help="Their field.")] = None,
    image: Annotated[
        str | None, typer.Option(help="The tokenizer's text for <image>.", metavar="TEXT")
    ] = None,
) -> None:
    """Adds a file's columns to the fields of a packed dataset, or takes fields away, as a new version."""
    from fastload.versions.columns import add_columns, drop_columns

    what = what or []
    if tokenize is None and (text is not None or image is not None):
        raise ArgumentError("--text and --image are for `fastload columns DATASET add --tokenize DIR`")
    if tokenize is not None:
        from fastload.versions.tokens import add_tokens

        if action == "drop" or what or key is not None or column:
            raise ArgumentError("--tokenize DIR adds fields by itself: give neither a file nor its columns")
        made = add_tokens(dataset, tokenize, text=text, image=image)
        samples, names = counted(made.samples, "sample"), ", ".join(made.names)
        say(f"{dataset}: version {made.version}, {samples} with {names}")
        return
    if action == "drop":
        if key is not None or column:
            raise ArgumentError("--key and --column are for `fastload columns DATASET add FILE`")
        summary = drop_columns(dataset, *what)
        say(f"{dataset}: version {summary.version}, without {', '.join(summary.names)}")
        return
    if len(what) != 1:
        raise ArgumentError(
            f"{len(what)} files are named: add one at a time"
            if what
            else "no file is named: name one, or give --tokenize DIR"
        )
    summary = add_columns(dataset, what[0], key=key, columns=column or None)
    unused = (
        f"; {counted(summary.unused, 'row')} of {what[0]} {'is' if summary.unused == 1 else 'are'} "
        "no sample's"
        if summary.unused
        else ""
    )
    say(
        f"{dataset}: version {summary.version}, {counted(summary.samples, 'sample')} with "
        f"{', '.join(summary.names)}{unused}"
    )


def drop(
    dataset: LocalDataset,
    where: Annotated[
        str,
        typer.Option(help="An SQL condition over the fields; samples for which it is true are taken out."),
    ],
) -> None:
    """Takes samples out of a packed dataset, as a new version."""
    from fastload.versions.drop import drop as run

    summary = run(dataset, where=where)
    if not summary.dropped:
        say(
            f"{dataset}: no sample is meant by {where}; it stays at version {summary.version} with "
            f"{counted(summary.samples, 'sample')}"
        )
        return
    say(
        f"{dataset}: version {summary.version}, {counted(summary.samples, 'sample')}, "
        f"{summary.dropped:,} taken out"
    )


def concat(
    datasets: Annotated[
        list[str],
        typer.Argument(metavar="DATASET DATASET... OUT", help="Packed datasets, and the directory to make."),
    ],
) -> None:
    """Makes one dataset of several, by reference. The others have to stay where they are."""
    from fastload.versions.concat import concat as run

    datasets = [in_a_folder(each) for each in datasets]
    summary = run(datasets[:-1], datasets[-1])
    parts = f"{counted(summary.samples, 'sample')} in {counted(summary.shards, 'shard')}"
    say(f"{datasets[-1]}: {parts} of {counted(len(datasets) - 1, 'dataset')}")


def prune(
    dataset: LocalDataset,
    keep: Annotated[int, typer.Option(min=1, help="How many versions remain, the latest among them.")] = 1,
) -> None:
    """Gives up old versions of a packed dataset, and removes the files that only they have."""
    from fastload.common.progress import human_bytes
    from fastload.versions.drop import prune as run

    summary = run(dataset, keep=keep)
    numbers = ", ".join(map(str, summary.versions))
    which = (
        f"version{'s' * (len(summary.versions) > 1)} {numbers} given up" if numbers else "no version given up"
    )
    say(f"{dataset}: {which}, {human_bytes(summary.bytes)} freed")
