"""Trials of a program's loader, in its process. See NOTE [ tune: how a program's loader is tried ]."""

from __future__ import annotations

import contextlib
import os
import sys
import traceback
import warnings
from collections.abc import Callable
from typing import Any

from torch.utils.data import DataLoader as TorchLoader

from fastload.bench.measure import OthersTime
from fastload.common.system import share_of_cpus
from fastload.engines.plan import ExecutionPlan
from fastload.loader import FastLoader
from fastload.run.compare import SAME, copied, drawn_batches, no_batches
from fastload.run.launch import RunOptions
from fastload.run.order import TuneOrder
from fastload.tune.dataset import LAYOUT, PREFETCH, loader_arguments, worker_counts
from fastload.tune.document import Tuned
from fastload.tune.forms import FORM
from fastload.tune.trials import Arguments, Budget, Json, Setting, Stream, shares_of, tune_arguments

_BATCHES = 256
"""Half of the most batches that are drawn; the trials go through them again and again."""
_SKIPPED = {
    FORM: "a script's dataset is not packed anew; `fastload tune DATASET` tries it",
    "cache size": "it is a setting of the dataset",
}


def tune_and_end(order: TuneOrder, loader: TorchLoader[Any], fast: bool, workers: int | None) -> None:
    """Tries settings of a program's loader, and ends the process.

    Args:
        order: the order, with the file for the document.
        loader: the loader that the program iterates.
        fast: FastLoader's code runs it.
        workers: num_workers as the program gave it; None if it did not.
    """
    name = f"the loader of {type(loader.dataset).__name__}"
    options = RunOptions.in_force()
    try:
        if options is not None and options.main != os.getpid():
            order.end(
                {
                    "failed": (
                        f"{name} is iterated in a process that the script starts, one of several maybe: "
                        "tune a run of one process"
                    )
                }
            )
        if not fast or not isinstance(loader, FastLoader):
            order.end(
                {
                    "failed": (
                        f"torch's DataLoader runs {name}, which has no settings to try; the reason is above"
                    )
                }
            )
        else:
            order.end(_tried(order, loader, workers))
    except Exception as error:
        with contextlib.suppress(OSError):
            traceback.print_exc(file=sys.stderr)
        order.end({"failed": f"{name} fails in a trial: {type(error).__name__}: {error}"})


def _tried(order: TuneOrder, loader: FastLoader[Any], workers: int | None) -> Json:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of more processes than CPUs, for one
        plan = loader._fastload.read(loader)
        if why := no_batches(plan):
            return {"failed": f"the loader of {type(loader.dataset).__name__} is not tried: {why}"}
        settings = _settings(plan, loader, workers)
        others = OthersTime()
        trials, arguments = tune_arguments(
            settings, _opener(plan, loader, order), Budget(order.seconds, shares_of(settings))
        )
    work = {
        "script": os.path.basename(sys.argv[0]),
        "dataset": type(loader.dataset).__name__,
        "engine": plan.engine,
        "samples": len(plan.settings.dataset),
        "batch_size": plan.settings.rows,
        "step_ms": order.step_ms,
        "seconds": order.seconds,
    }
    return Tuned(trials, arguments, _SKIPPED, others.share()).to_json(work, "DataLoader(...", None)


def _settings(plan: ExecutionPlan, loader: FastLoader[Any], workers: int | None) -> tuple[Setting, ...]:
    """The settings to try: of native threads as of a packed dataset, else few numbers of processes, for
    all of a setting's live at once."""
    cpus, native = share_of_cpus(), plan.engine == "threads"
    if workers is None:
        workers = cpus if native else 0
    counts = worker_counts(cpus) if native else (0, 1, cpus // 2, cpus)
    ahead = loader.prefetch_factor or PREFETCH.default
    settings = (
        Setting("num_workers", tuple(sorted({*counts, workers})), workers),
        Setting(PREFETCH.name, tuple(sorted({*PREFETCH.values, ahead})), ahead, PREFETCH.needs),
    )
    return (*settings, LAYOUT) if native else settings


def _opener(plan: ExecutionPlan, loader: FastLoader[Any], order: TuneOrder) -> Callable[[Arguments], Stream]:
    """Maker of streams: loaders of the program's arguments, but for those that are tried, over batches
    that are drawn here."""
    rows = plan.settings.rows or 1
    batches = drawn_batches(len(plan.settings.dataset), rows, _BATCHES) or [
        list(range(len(plan.settings.dataset)))
    ]
    same = {name: getattr(loader, name) for name in SAME} | {
        "dataset": plan.settings.dataset,
        "batch_sampler": batches,
    }

    def stream(arguments: Arguments) -> Stream:
        workers, ahead = arguments["num_workers"], arguments["prefetch_factor"]
        given = (
            same
            | loader_arguments(arguments)
            | {"generator": copied(loader.generator), "persistent_workers": workers > 0}
        )
        if not workers:
            given |= {"prefetch_factor": None, "multiprocessing_context": None}
        made_ahead = ahead * (workers if plan.engine != "threads" else workers > 0)
        return Stream(lambda: FastLoader(**given), len(batches[0]), made_ahead, order.step_ms / 1000)

    return stream
