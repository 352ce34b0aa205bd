"""Trials of a packed dataset, in a folder or a bucket: fastload's own loop, with RandomResizedCrop and
flip, of `fastload bench`."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from fastload.bench.spec import TurnSpec
from fastload.common.files import scratch_folder
from fastload.common.system import share_of_cpus
from fastload.common.urls import is_remote
from fastload.remote.cache_folder import on_disk
from fastload.tune.caches import CACHE, SHARES
from fastload.tune.forms import FORM, forms, pack_forms
from fastload.tune.trials import (
    Arguments,
    Budget,
    Json,
    Setting,
    Stream,
    Trial,
    shares_of,
    tried,
    tune_arguments,
)

Note = Callable[[str], AbstractContextManager[object]]
"""Shows what is done now."""
PREFETCH = Setting("prefetch_factor", (2, 4, 8), 2, needs="num_workers")
"""Fewer than the default of 2 are not tried: a loop that is not as even as this one would wait."""
LAYOUT = Setting("memory_format", ("contiguous", "channels_last"), "contiguous")


def worker_counts(cpus: int) -> tuple[int, ...]:
    """Numbers of threads to try: powers of two below the CPUs, and the CPUs."""
    return (*(2**power for power in range(cpus.bit_length()) if 2**power < cpus), cpus)


@dataclass(frozen=True, slots=True)
class DatasetLoop:
    """The loop that is tried.

    Attributes:
        spec: its dataset, batches and crop.
        step_s: seconds of a training step.
        opening: arguments of PackedDataset, for a dataset in a bucket.
    """

    spec: TurnSpec
    step_s: float
    opening: Mapping[str, Any] = field(default_factory=dict)

    def stream(self, arguments: Arguments) -> Stream:
        """The loop's batches, by a loader with these arguments."""
        from fastload.bench.loaders import build_fastload

        spec = replace(self.spec, workers=arguments["num_workers"])
        more = loader_arguments({name: value for name, value in arguments.items() if name != "num_workers"})
        return Stream(
            lambda: build_fastload(spec, self.opening, **more),
            spec.batch_size,
            arguments["prefetch_factor"],
            self.step_s,
        )

    def with_cache(self, folder: Path, size: int | None = None) -> DatasetLoop:
        """The same loop over a dataset in a bucket with a cache of its own, which is filled here by one
        epoch."""
        from fastload.bench.loaders import build_fastload

        loop = replace(self, opening={**self.opening, "cache": folder, "cache_size": size})
        with build_fastload(loop.spec, loop.opening) as loader:
            for _ in loader:
                pass
        return loop


def loader_arguments(arguments: Arguments) -> dict[str, Any]:
    """Arguments as FastLoader takes them, of those that JSON has."""
    import torch

    formats = {"contiguous": torch.contiguous_format, "channels_last": torch.channels_last}
    return {name: formats[value] if name == LAYOUT.name else value for name, value in arguments.items()}


def tune_dataset(loop: DatasetLoop, seconds: float, note: Note) -> tuple[list[Trial], Json, dict[str, str]]:
    """Tries the settings of a packed dataset's loader.

    Args:
        loop: the loop; its source is a path, or the URL of a dataset in a bucket.
        seconds: time of all trials, the packing of samples in other forms included.
        note: shows what is done.

    Returns:
        tuple: the trials, the arguments that are advised, and the reason for each setting that was not tried.

    Raises:
        DatasetError, SampleError, PackError: the dataset cannot be read.
    """
    cpus = share_of_cpus()
    settings = (Setting("num_workers", worker_counts(cpus), cpus), PREFETCH, LAYOUT)
    if is_remote(loop.spec.source):
        return _tune_in_bucket(loop, settings, seconds, note)
    form, reason = forms(Path(loop.spec.source))
    budget = Budget(seconds, shares_of(settings) + (0 if form is None else len(form.values) + 1))
    with note(f"trying {', '.join(setting.name for setting in settings if len(setting.values) > 1)}"):
        trials, arguments = tune_arguments(settings, loop.stream, budget)
    skipped = {CACHE.name: "the dataset is in a folder; only one in a bucket has a cache"}
    if form is None:
        skipped[FORM] = reason
    else:
        with note(f"trying {FORM}, on samples packed anew"), scratch_folder("tune") as folder:
            trials.append(_tried_forms(form, loop, arguments, budget.take(len(form.values) + 1), folder))
    return trials, arguments, skipped


def _tune_in_bucket(
    loop: DatasetLoop, settings: Sequence[Setting], seconds: float, note: Note
) -> tuple[list[Trial], Json, dict[str, str]]:
    """As `tune_dataset`, for a dataset in a bucket. Caches are temporary, and filled before their trials,
    which is not timed."""
    with scratch_folder("tune") as folder:
        with note(f"fetching {loop.spec.used} samples"):
            whole = loop.with_cache(folder / "whole")
        budget = Budget(seconds, shares_of(settings) + len(CACHE.values))
        with note(f"trying {', '.join(setting.name for setting in settings if len(setting.values) > 1)}"):
            trials, arguments = tune_arguments(settings, whole.stream, budget)
        with note(f"trying {CACHE.name}"):
            taken = sum(on_disk(each) for each in (folder / "whole").iterdir() if each.is_dir())
            loops = {
                name: loop.with_cache(folder / name, int(taken * share))
                for name, share in SHARES.items()
                if share < 1
            }
            streams = {name: loops.get(name, whole).stream(arguments) for name in SHARES}
            trials.append(tried(CACHE, streams, budget.take(len(SHARES))))
    return (
        trials,
        arguments,
        {FORM: "the samples are in a bucket; `fastload pull` copies them, and the copy can be tuned"},
    )


def _tried_forms(
    form: Setting, loop: DatasetLoop, arguments: Arguments, seconds: float, folder: Path
) -> Trial:
    budget = Budget(seconds, 1)
    packed = pack_forms(loop.spec, form.values, folder)
    streams = {}
    for value, (path, count) in packed.items():
        spec = replace(
            loop.spec,
            source=os.fspath(path),
            images=count,
            limit=0,
            batch_size=min(count, loop.spec.batch_size),
        )
        streams[value] = replace(loop, spec=spec).stream(arguments)
    return tried(form, streams, budget.take(1))
