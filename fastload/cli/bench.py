"""``fastload bench``: this dataset, on this machine, against torch's DataLoader."""

from __future__ import annotations

import contextlib
from pathlib import Path
from typing import Annotated

import typer

from fastload.cli.looked_at import DATASET_HELP, looked_at
from fastload.cli.options import in_a_folder
from fastload.cli.output import say
from fastload.common.files import expanded
from fastload.errors import cell


def bench(
    dataset: Annotated[str, typer.Argument(metavar="DATASET", help=DATASET_HELP, callback=in_a_folder)],
    against: Annotated[
        Path | None,
        typer.Option(
            "--against", metavar="SRC_DIR", help="The class folders it was packed from, for the rivals."
        ),
    ] = None,
    json_file: Annotated[
        Path | None, typer.Option("--json", metavar="FILE", help="Write the result as JSON.")
    ] = None,
    plot: Annotated[
        Path | None,
        typer.Option("--plot", metavar="FILE", help="Write a plot, as PNG, SVG, ... (matplotlib)."),
    ] = None,
    trace: Annotated[
        Path | None,
        typer.Option(
            "--trace", metavar="FILE", help="Write a trace of fastload's loop, for ui.perfetto.dev."
        ),
    ] = None,
    batch_size: Annotated[int, typer.Option("--batch-size", min=1, help="Samples of a batch.")] = 64,
    workers: Annotated[
        int, typer.Option("--workers", min=1, help="Threads, or torch's worker processes.")
    ] = 2,
    size: Annotated[int, typer.Option("--size", min=1, help="Side of the crop, in pixels.")] = 224,
    rounds: Annotated[int, typer.Option("--rounds", min=1, help="Interleaved turns of each loader.")] = 3,
    seconds: Annotated[
        float, typer.Option("--seconds", min=0.0, help="Least time of one turn, two epochs at least.")
    ] = 3.0,
    limit: Annotated[int, typer.Option("--limit", min=0, help="Images used, evenly spaced; 0: all.")] = 4096,
) -> None:
    """Measures fastload against torch's DataLoader on a packed dataset: speed, first batch, epoch gap, memory
    and CPU time. Each loader runs in a process of its own; the table shows medians."""
    from rich.console import Console

    from fastload.bench import harness, report
    from fastload.bench import plot as plotting
    from fastload.bench.spec import TurnSpec

    given = Path(expanded(dataset))
    against, json_file, plot, trace = (
        None if path is None else Path(expanded(path)) for path in (against, json_file, plot, trace)
    )
    for option, path in (("--json", json_file), ("--trace", trace)):
        if path is not None:
            harness.check_writable(option, path)
    if plot is not None:
        plotting.check(plot)
    with looked_at(dataset, limit) as packed:
        folder = Path(expanded(packed))
        if folder != given and against is None:
            against = given
        base = TurnSpec(
            kind="fastload",
            source=str(folder.absolute()),
            images=harness.count_packed(folder),
            limit=limit,
            batch_size=batch_size,
            workers=workers,
            size=size,
            seconds=seconds,
        )
        document = harness.compare(given, against, base, rounds, note)
        report.show(document, Console())
        if json_file is not None:
            harness.write_json(document, json_file)
            say(f"JSON: {json_file}")
        if plot is not None:
            plotting.draw(document, plot)
            say(f"plot: {plot}")
        if trace is not None:
            with note("one more epoch, for the trace"):
                harness.write_trace(base, trace)
            say(f"trace: {trace}")


def note(text: str) -> contextlib.AbstractContextManager[object]:
    """Shows what is measured now: on a terminal while it is, in a log on a line of its own."""
    from rich.console import Console

    console = Console(stderr=True)
    if console.is_terminal:
        return console.status(cell(text))
    say(text, err=True)
    return contextlib.nullcontext()
