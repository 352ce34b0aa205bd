"""Comparison of a loader with torch's DataLoader, before a program's first epoch.

NOTE [ run: what a comparison leaves alone ]
Batches are made by two loaders of their own, of the same arguments. Their indices are drawn here, half of
them for each loader: no sampler of the program's is asked, and neither loader finds the other's files in
memory. The global generators of torch, random and NumPy are set back, and a generator of the program's is
copied. In worker processes a dataset is a copy. In the calling process it would be the program's own, which
may count what is asked of it, so that a loader is compared there only if native threads make its samples:
then its code is known.
"""

from __future__ import annotations

import random
import time
import warnings
from collections.abc import Callable
from typing import Any

import torch
from torch.utils.data import DataLoader as TorchLoader

from fastload.batch.bad_samples import kept_state
from fastload.engines.plan import ExecutionPlan
from fastload.loader import FastLoader

SAME = (
    *(
        "collate_fn",
        "pin_memory",
        "timeout",
        "worker_init_fn",
        "multiprocessing_context",
        "prefetch_factor",
        "pin_memory_device",
    ),
    "in_order",
)
"""Arguments that both loaders are given as the program gave them."""


def compared(loader: FastLoader[Any], most: int, workers: int | None) -> str:
    """Text on the seconds that both loaders take for some batches, or on the reason why they are not
    compared.

    See NOTE [ run: what a comparison leaves alone ].

    Args:
        loader: the program's loader; nothing of it changes.
        most: batches that each of the two makes.
        workers: num_workers as the program gave it; None if it did not.
    """
    settings = loader._fastload.settings
    name = f"the loader of {type(settings.dataset).__name__}"
    try:
        with kept_state(), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            plan = loader._fastload.read(loader)
            if why := _why_not(plan):
                return f"{name} is not compared: {why}"
            batches = drawn_batches(len(plan.settings.dataset), plan.settings.rows or 1, most)
            if not batches:
                return f"{name} is not compared: it has too few samples for two batches"
            return f"{name}, {_timed(loader, plan, workers, batches)}"
    except Exception as error:  # the program meets it in its own loop, or not at all
        return f"{name} is not compared: {type(error).__name__}: {error}"


def _why_not(plan: ExecutionPlan) -> str:
    if plan.engine == "caller":
        return no_batches(plan) or "both make samples in the calling process, where the dataset may notice"
    return no_batches(plan)


def no_batches(plan: ExecutionPlan) -> str:
    """The reason why batches of a loader cannot be drawn by their indices; "" if they can."""
    settings = plan.settings
    if settings.iterable:
        return "its IterableDataset would be used up"
    if not settings.auto_collation:
        return "it makes no batches"
    if settings.rows is None:
        return "its batch sampler does not tell how large its batches are"
    return ""


def drawn_batches(count: int, rows: int, most: int) -> list[list[int]]:
    """Indices of an even number of batches, at most 2 * most: random ones, none twice."""
    each = min(most, count // (2 * rows))
    drawn = random.Random(0).sample(range(count), 2 * each * rows)
    return [drawn[start : start + rows] for start in range(0, len(drawn), rows)]


def _timed(
    loader: FastLoader[Any], plan: ExecutionPlan, workers: int | None, batches: list[list[int]]
) -> str:
    given = {name: getattr(loader, name) for name in SAME} | {
        "dataset": plan.settings.dataset,
        "generator": copied(loader.generator),
    }
    if not workers:
        given |= {"prefetch_factor": None, "multiprocessing_context": None}
    half = len(batches) // 2
    theirs = _seconds(lambda: TorchLoader(**given, num_workers=workers or 0, batch_sampler=batches[:half]))
    ours = _seconds(lambda: FastLoader(**given, num_workers=workers, batch_sampler=batches[half:]))
    return (
        f"{half} batches each, start included: {ours:.2f} s by FastLoader, {theirs:.2f} s by torch's "
        "DataLoader, "
        f"{theirs / ours:.1f} times as fast"
    )


def _seconds(make: Callable[[], Any]) -> float:
    began = time.perf_counter()
    loader = make()
    for _ in loader:
        pass
    took = time.perf_counter() - began
    if isinstance(loader, FastLoader):
        loader.close()
    return took


def copied(generator: torch.Generator | None) -> torch.Generator | None:
    """A generator that draws the same numbers, and leaves the other's state alone."""
    return None if generator is None else generator.clone_state()
