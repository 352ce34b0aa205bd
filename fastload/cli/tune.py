"""``fastload tune``: which settings of a loader are faster on this machine."""

from __future__ import annotations

import contextlib
import json
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from fastload.cli.bench import note
from fastload.cli.looked_at import looked_at
from fastload.cli.options import StorageOptions, Timeout, in_a_folder, parsed_options, parsed_timeout
from fastload.cli.output import say, say_json
from fastload.common.files import expanded
from fastload.common.urls import is_remote, shown
from fastload.errors import ArgumentError

if TYPE_CHECKING:
    from fastload.tune.dataset import DatasetLoop


def tune(
    target: Annotated[
        str,
        typer.Argument(
            metavar="SCRIPT_OR_DATASET",
            help=("A packed dataset or its URL; class folders; or a training script (.py)."),
        ),
    ],
    arguments: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="[ARGS]...", help="The script's arguments; after --, if one begins with a dash."
        ),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="The measurements, as JSON.")] = False,
    seconds: Annotated[float, typer.Option("--seconds", min=1.0, help="Time of all trials.")] = 60.0,
    step_ms: Annotated[
        float, typer.Option(min=0.0, help="Milliseconds of a training step; 0: the loop only takes batches.")
    ] = 0.0,
    batch_size: Annotated[int, typer.Option(min=1, help="For a dataset: samples of a batch.")] = 64,
    size: Annotated[int, typer.Option(min=1, help="For a dataset: side of the crop, in pixels.")] = 224,
    limit: Annotated[
        int,
        typer.Option(
            min=0, help="For a dataset: samples used, evenly spaced; 0: all (512 at most in a bucket)."
        ),
    ] = 4096,
    storage_options: StorageOptions = None,
    timeout: Timeout = None,
) -> None:
    """Tries settings of a loader on this machine, in short turns, and names those that are clearly faster. A
    script runs as by `fastload run`, and is ended at its first loop over a loader."""
    from fastload.tune.report import lines

    is_script, in_bucket = target.endswith(".py"), is_remote(target)
    if arguments and not is_script:
        raise ArgumentError(f"{arguments[0]}: only a script (.py) has arguments, and {target} is none")
    if not in_bucket and (storage_options or timeout is not None):
        raise ArgumentError(f"{shown(target)}: --storage-option and --timeout are for a dataset at a URL")
    say(
        f"this takes about {seconds:.0f} s{' from the first loader on' * is_script}; other programs "
        "disturb it",
        err=True,
    )
    if is_script:
        document = _of_script([expanded(target), *(arguments or ())], seconds, step_ms)
    else:
        spec = {"batch_size": batch_size, "size": size, "limit": limit}
        if in_bucket:
            opening = {"storage_options": parsed_options(storage_options), "timeout": parsed_timeout(timeout)}
            document = _of_bucket(target, opening, seconds, step_ms, quiet=as_json, **spec)
        else:
            document = _of_dataset(in_a_folder(target), seconds, step_ms, quiet=as_json, **spec)
    if as_json:
        say_json(document)
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
    from fastload.bench.spec import TurnSpec
    from fastload.store import Manifest
    from fastload.store.lists import images_path
    from fastload.tune.dataset import DatasetLoop

    given = Path(expanded(dataset))
    with looked_at(dataset, spec["limit"]) as packed:
        folder = Path(expanded(packed))
        if Manifest.load(folder).schema.images is not None:
            folder = given = Path(images_path(folder))  # any number of images: these are what takes time
        turn = TurnSpec("fastload", str(folder.absolute()), images=count_packed(folder), **spec)
        work = {"dataset": given.name, "step_ms": step_ms, "seconds": seconds, **spec}
        return _document(
            DatasetLoop(turn, step_ms / 1000), work, dataset, quiet=quiet, in_place=folder != given
        )


def _of_bucket(
    url: str, opening: dict[str, Any], seconds: float, step_ms: float, *, quiet: bool, **spec: Any
) -> dict[str, Any]:
    from fastload import PackedDataset
    from fastload.bench.spec import TurnSpec
    from fastload.store.lists import images_path
    from fastload.tune.caches import FETCHED
    from fastload.tune.dataset import DatasetLoop

    with closing(PackedDataset(url, **opening)) as dataset:
        url = url if dataset.lists is None else images_path(url)
        images = len(dataset if dataset.lists is None else dataset.lists.stored)
    used = min(images, spec["limit"] or images, FETCHED)
    # Whole batches: an epoch fetches all of them.
    spec["limit"] = max(used - used % spec["batch_size"], min(used, spec["batch_size"]))
    work = {"dataset": shown(url), "step_ms": step_ms, "seconds": seconds, **spec}
    return _document(
        DatasetLoop(TurnSpec("fastload", url, images=images, **spec), step_ms / 1000, opening),
        work,
        shown(url),
        quiet=quiet,
    )


def _document(
    loop: DatasetLoop, work: dict[str, Any], dataset: str, *, quiet: bool, in_place: bool = False
) -> dict[str, Any]:
    """The result of a dataset's trials; `dataset`: its path or URL, as it is shown; `in_place`: it is a
    folder of class folders."""
    from fastload.bench.measure import OthersTime
    from fastload.tune.dataset import tune_dataset
    from fastload.tune.document import Tuned

    others = OthersTime()
    trials, arguments, skipped = tune_dataset(
        loop, work["seconds"], (lambda _: contextlib.nullcontext()) if quiet else note
    )
    tuned = Tuned(trials, arguments, skipped, others.share())
    shown_as = json.dumps(dataset, ensure_ascii=False)
    first = f"ImageFolder({shown_as}, transform)" if in_place else shown_as
    return tuned.to_json(work, f"FastLoader({first}, batch_size={work['batch_size']}", dataset)
