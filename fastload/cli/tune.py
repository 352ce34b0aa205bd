"""``fastload tune``: which settings of a loader are faster on this machine."""

from __future__ import annotations

import contextlib
import json
from pathlib import Path
from typing import Annotated, Any

import typer

from fastload.cli.bench import note
from fastload.cli.options import in_a_folder
from fastload.cli.output import say
from fastload.common.files import expanded
from fastload.errors import ArgumentError


def tune(
    target: Annotated[
        str, typer.Argument(metavar="SCRIPT_OR_DATASET", help="A packed dataset; or a training script (.py), whose first loader is tried.")
    ],
    arguments: Annotated[
        list[str] | None, typer.Argument(metavar="[ARGS]...", help="The script's arguments; after --, if one begins with a dash.")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="The measurements and the choice, as JSON.")] = False,
    seconds: Annotated[float, typer.Option("--seconds", min=1.0, help="Time of all trials.")] = 60.0,
    step_ms: Annotated[float, typer.Option(min=0.0, help="Milliseconds of a training step; 0: the loop only takes batches.")] = 0.0,
    batch_size: Annotated[int, typer.Option(min=1, help="For a dataset: samples of a batch.")] = 64,
    size: Annotated[int, typer.Option(min=1, help="For a dataset: side of the crop, pixels.")] = 224,
    limit: Annotated[int, typer.Option(min=0, help="For a dataset: samples used, evenly spaced; 0: all.")] = 4096,
) -> None:
    """Tries settings of a loader on this machine, in short turns, and names those that are clearly faster. Unclear
    differences change nothing, and ties go to the smaller setting. A dataset is not changed. A script runs as by `fastload run`, up to its
    first loop over a loader; it is ended there."""
    from fastload.tune.report import lines

    is_script = target.endswith(".py")
    if arguments and not is_script:
        raise ArgumentError(f"{arguments[0]}: only a script (.py) has arguments, and {target} is none")
    say(f"this takes about {seconds:.0f} s{' from the first loader on' * is_script}; other programs disturb it", err=True)
    if is_script:
        document = _of_script([expanded(target), *(arguments or ())], seconds, step_ms)
    else:
        folder = in_a_folder(target)
        document = _of_dataset(folder, seconds, step_ms, quiet=as_json, batch_size=batch_size, size=size, limit=limit)
    if as_json:
        typer.echo(json.dumps(document, indent=2, ensure_ascii=True))
        return
    for line in lines(document):
        say(line)


def _of_script(program: list[str], seconds: float, step_ms: float) -> dict[str, Any]:
    from fastload.run.order import TuneOrder

    if not Path(program[0]).is_file():
        raise ArgumentError(f"{program[0]}: there is no such file")
    return TuneOrder(seconds, step_ms).tried(program)


def _of_dataset(dataset: str, seconds: float, step_ms: float, *, quiet: bool, **spec: Any) -> dict[str, Any]:
    from fastload.bench.harness import count_packed
    from fastload.bench.measure import OthersTime
    from fastload.bench.spec import TurnSpec
    from fastload.tune.dataset import DatasetLoop, tune_dataset
    from fastload.tune.document import Tuned

    folder = Path(expanded(dataset))
    loop = DatasetLoop(TurnSpec("fastload", str(folder.absolute()), images=count_packed(folder), **spec), step_ms / 1000)
    others = OthersTime()
    trials, arguments, skipped = tune_dataset(loop, seconds, (lambda _: contextlib.nullcontext()) if quiet else note)
    tuned = Tuned(trials, arguments, skipped, others.share())
    work = {"dataset": folder.name, "step_ms": step_ms, "seconds": seconds, **spec}
    return tuned.to_json(work, f"FastLoader({json.dumps(dataset, ensure_ascii=False)}, batch_size={spec['batch_size']}", dataset)
