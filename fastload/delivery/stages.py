"""explain()'s table: what is done to a sample, stage by stage, where, why nowhere faster, and what it costs."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from fastload.dataset import PackedDataset
from fastload.delivery.costs import Costs, measure
from fastload.delivery.packed_epochs import native_view

SAME_PASS = "″"


@dataclass(frozen=True)
class Row:
    """One line: a stage, who does it, why nobody faster, and seconds a sample: None unknown, SAME_PASS where the line above has it."""

    stage: str
    where: str
    why: str = ""
    seconds: float | str | None = None


def table(loader: Any, *, measured: bool) -> list[str]:
    """The stages as aligned lines; with `measured` after running samples through them."""
    dataset = explained(loader)
    costs = measure(loader, dataset) if measured else None
    known = costs or Costs(0)
    rows = list(_of_plan(loader, dataset, known) if dataset is not None else _of_items(loader, known))
    if loader.device is not None:
        rows.append(Row(f"to {loader.device}", "copy", "moved when it is whole"))
    lines = _aligned(rows, costs)
    if measured and costs is None:
        lines.append("not measured: it would use up the iterable dataset")
    elif costs is not None:
        lines.append(
            f"us: mean of {costs.samples} samples in one thread, the page cache as it was; {SAME_PASS} in the pass of the line above"
        )
    return lines


def explained(loader: Any) -> PackedDataset | None:
    """The packed dataset whose plan stands for the loader's: the first; None where samples are not made by a plan."""
    view = native_view(loader) or loader._view
    if view is None or any(d.image_field not in d.fields for d in view.datasets):
        return None
    first: PackedDataset = view.datasets[0]
    return first


def _of_plan(loader: Any, dataset: PackedDataset, costs: Costs) -> Iterator[Row]:
    plan, worker = dataset.plan, _worker(loader)
    if native_view(loader) is None:
        native = f"native, in the {worker}"
    else:
        native = "native thread" if loader.num_workers else "native, calling thread"
    yield Row("read", native, seconds=costs.read)
    yield Row("decode", native, seconds=costs.decode)
    write: float | str | None = costs.write
    if not any(stage.where == "native" for stage in plan.stages):
        yield Row("write", native, seconds=write)
    python = iter(costs.python)
    for stage in plan.stages:
        name = f"{stage.position} {stage.name}"
        if stage.where == "native":
            yield Row(name, native, stage.why, write)
            write = None if write is None else SAME_PASS
        elif stage.where == "python":
            if plan.pillow and len(plan.stages) - stage.position + 1 == len(plan.python):
                yield Row("to a Pillow image", worker, "the next step takes one", costs.pillow)
            yield Row(name, worker, stage.why, next(python, None))
        else:
            yield Row(name, {"device": "device"}.get(stage.where, "nothing to do"), stage.why)
    if plan.python:
        yield Row("collate", worker, seconds=costs.collate)


def _of_items(loader: Any, costs: Costs) -> Iterator[Row]:
    kind, worker = type(loader.dataset).__name__, _worker(loader)
    yield Row(f"{kind}[i]", worker, "a Dataset of Python", costs.item)
    if loader._auto_collation:
        yield Row("collate", worker, seconds=costs.collate)


def _worker(loader: Any) -> str:
    return "Python worker" if loader.num_workers else "calling process"


def _aligned(rows: Sequence[Row], costs: Costs | None) -> list[str]:
    total = sum(row.seconds for row in rows if isinstance(row.seconds, float))
    cells = [["stage", "where", *(["us", "share"] if costs is not None else []), "why not faster"]]
    for row in rows:
        figures: list[str] = []
        if isinstance(row.seconds, float):
            figures = [f"{row.seconds * 1e6:.1f}", f"{row.seconds / total:.0%}" if total else ""]
        elif costs is not None:
            figures = [row.seconds if isinstance(row.seconds, str) else "-", ""]
        cells.append([row.stage, row.where, *figures, row.why])
    widths = [max(len(line[column]) for line in cells) for column in range(len(cells[0]) - 1)]
    lines = []
    for line in cells:
        text = [
            cell.ljust(width) if column < 2 else cell.rjust(width) for column, (cell, width) in enumerate(zip(line, widths, strict=False))
        ]
        lines.append("  ".join([*text, line[-1]]).rstrip())
    return lines
