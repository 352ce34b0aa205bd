"""``fastload tune``: which settings of a loader are faster on this machine."""

from __future__ import annotations

import contextlib
import json
from pathlib import Path
from typing import Annotated

import typer

from fastload.cli.bench import note
from fastload.cli.options import in_a_folder
from fastload.cli.output import say
from fastload.common.files import expanded


def tune(
    dataset: Annotated[str, typer.Argument(metavar="DATASET", help="A packed dataset.", callback=in_a_folder)],
    as_json: Annotated[bool, typer.Option("--json", help="The measurements and the choice, as JSON.")] = False,
    seconds: Annotated[float, typer.Option("--seconds", min=1.0, help="Time of all trials.")] = 60.0,
    step_ms: Annotated[float, typer.Option(min=0.0, help="Milliseconds of a training step; 0: the loop only takes batches.")] = 0.0,
    batch_size: Annotated[int, typer.Option(min=1, help="Samples of a batch.")] = 64,
    size: Annotated[int, typer.Option(min=1, help="Side of the crop, pixels.")] = 224,
    limit: Annotated[int, typer.Option(min=0, help="Samples used, evenly spaced; 0: all.")] = 4096,
) -> None:
    """Tries settings of a loader on this machine, in short turns by turns, and names those that are clearly faster. Where the noise is
    larger than a difference, it says so and keeps the smaller setting. Nothing of the dataset is changed."""
    from fastload.bench.harness import count_packed
    from fastload.bench.measure import OthersTime
    from fastload.bench.spec import TurnSpec
    from fastload.tune.dataset import DatasetLoop, tune_dataset
    from fastload.tune.document import Tuned
    from fastload.tune.report import lines

    folder = Path(expanded(dataset))
    spec = TurnSpec("fastload", str(folder.absolute()), images=count_packed(folder), limit=limit, batch_size=batch_size, size=size)
    say(f"this takes about {seconds:.0f} s: other programs would disturb it", err=True)
    others = OthersTime()
    trials, arguments, skipped = tune_dataset(
        DatasetLoop(spec, step_ms / 1000), seconds, (lambda _: contextlib.nullcontext()) if as_json else note
    )
    tuned = Tuned(trials, arguments, skipped, others.share())
    work = {"dataset": folder.name, "samples": spec.used, "batch_size": batch_size, "size": size, "step_ms": step_ms, "seconds": seconds}
    document = tuned.to_json(work, f"FastLoader({json.dumps(dataset)}, batch_size={batch_size}", dataset)
    if as_json:
        typer.echo(json.dumps(document, indent=2, ensure_ascii=True))
        return
    for line in lines(document):
        say(line)
