"""``fastload doctor``: checks a machine and a dataset before a job."""

from __future__ import annotations

import shutil
from collections import Counter
from typing import Annotated

import typer

from fastload.cli.options import StorageOptions, Timeout, parsed_options, parsed_timeout
from fastload.cli.output import say, say_filled, say_json
from fastload.errors import ArgumentError

_COLUMN = 23
"""Columns of a verdict and a name."""


def doctor(
    dataset: Annotated[
        str | None,
        typer.Argument(
            metavar="[DATASET]",
            help="A packed dataset or its URL; a folder of class folders; none: the machine.",
        ),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="The findings, as JSON.")] = False,
    step_ms: Annotated[
        float | None,
        typer.Option(min=0.001, help="Milliseconds of a training step, to compare with the loader."),
    ] = None,
    batch_size: Annotated[int, typer.Option(min=1, help="Samples of a batch.")] = 64,
    workers: Annotated[
        int | None, typer.Option(min=1, help="Threads of the loader; its own choice by default.")
    ] = None,
    size: Annotated[int, typer.Option(min=1, help="Side of the crop, in pixels.")] = 224,
    storage_options: StorageOptions = None,
    timeout: Timeout = None,
) -> None:
    """Checks a machine and a dataset before a job, in some seconds. Exit code 1 if a line is bad."""
    from fastload.doctor.examine import examine
    from fastload.doctor.job import Job

    if dataset is None and step_ms is not None:
        raise ArgumentError("--step-ms compares a step with a dataset's samples: name a DATASET")
    job = Job(
        dataset, workers, batch_size, size, step_ms, parsed_options(storage_options), parsed_timeout(timeout)
    )
    width = max(40, min(100, shutil.get_terminal_size((80, 24)).columns))
    found = []
    for finding in examine(job):
        found.append(finding)
        if not as_json:
            say_filled(f"{finding.verdict:<9}{finding.name}", finding.text, width, _COLUMN)
            if finding.remedy:
                say_filled("", f"-> {finding.remedy}", width, _COLUMN)
    counts = Counter(finding.verdict for finding in found)
    if as_json:
        content = {
            "fastload_doctor": 1,
            "ok": not counts["bad"],
            "findings": [finding.to_json() for finding in found],
        }
        say_json(content)
    else:
        say(f"{counts['good']} good, {counts['bad']} bad, {counts['unknown']} unknown")
    if counts["bad"]:
        raise typer.Exit(1)
