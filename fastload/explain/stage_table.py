"""explain()'s table: what is done to a sample, stage by stage, where, why nowhere faster, and what it costs."""

from __future__ import annotations

from collections.abc import Iterator, Sequence, Set
from dataclasses import dataclass

from fastload.dataset.packed import PackedDataset
from fastload.dataset.view import NativeDataset
from fastload.device.stages import BatchStage, StageCall
from fastload.engines.batch_stages import explained_stages
from fastload.engines.plan import ExecutionPlan
from fastload.engines.settings import Settings
from fastload.explain.measure import Costs, measure
from fastload.transforms.spec import Plan, Stage

SAME_PASS = "″"


@dataclass(frozen=True)
class Row:
    """One line: a stage, who does it, why nobody faster, and seconds a sample: None unknown, SAME_PASS where the line above has it."""

    stage: str
    where: str
    why: str = ""
    seconds: float | str | None = None


def table(plan: ExecutionPlan, *, measured: bool) -> list[str]:
    """The stages as aligned lines; with `measured` after running samples, and a batch, through them."""
    dataset, settings = explained(plan), plan.settings
    shown = explained_stages(settings, plan.data)
    costs = measure(plan, dataset, [call for _, call in shown]) if measured else None
    known = costs or Costs(0)
    there = {name for entry, _ in shown for name in entry.names}
    rows = list(_of_plan(plan, dataset, known, there) if dataset is not None else _of_items(settings, known))
    if (device := settings.device) is not None:
        here = device.type == "cpu"
        rows.append(Row(f"to {device}", "nothing to do" if here else "copy", "" if here else "moved when it is whole", known.move))
    rows += _of_batches(settings, shown, known)
    lines = _aligned(rows, costs)
    if measured and costs is None:
        lines.append("not measured: it would use up the iterable dataset")
    elif costs is not None:
        batch = f"; of {costs.rows} where it is whole batches" if costs.rows else ""
        lines.append(
            f"us: mean of {costs.samples} samples in one thread{batch}, the page cache as it was; {SAME_PASS} in the pass of the line above"
        )
    return lines


def explained(plan: ExecutionPlan) -> NativeDataset | None:
    """The native dataset whose transform's plan stands for the loader's: the first; None if samples are not made by one."""
    view = None if plan.data is None else plan.data.native or plan.data.view
    if view is None or any(each.image_field not in each.fields for each in view.datasets):
        return None
    return view.datasets[0]


def _of_plan(execution: ExecutionPlan, dataset: NativeDataset, costs: Costs, there: Set[str]) -> Iterator[Row]:
    """Up to the batch on the host; stages in `there` come after it."""
    plan, settings = dataset.plan, execution.settings
    worker = _worker(settings)
    if execution.native is None:
        native = f"native, in the {worker}"
    else:
        native = "native thread" if settings.num_workers else "native, calling thread"
    yield Row("read", native, seconds=costs.read)
    yield Row("decode", native, seconds=costs.decode)
    write: float | str | None = costs.write
    names = [f"{stage.position} {stage.name}" for stage in plan.stages]
    if not any(stage.where == "native" and name not in there for stage, name in zip(plan.stages, names, strict=True)):
        yield Row("write", native, seconds=write)
    python = iter(costs.python)
    first = next((stage for stage in plan.stages if stage.where == "python"), None)
    whole = isinstance(dataset, PackedDataset) and dataset.takes_whole_samples
    for stage, name in zip(plan.stages, names, strict=True):
        if name in there:
            continue
        if stage.where == "native":
            yield Row(name, native, stage.why or _of_points(plan, stage, dataset), write)
            write = None if write is None else SAME_PASS
        elif stage.where == "python":
            if whole and stage is first:
                yield Row("to tv_tensors", worker, "what lies in the image goes through the next steps with it", costs.pillow)
            elif plan.pillow and len(plan.stages) - stage.position + 1 == len(plan.python):
                yield Row("to a Pillow image", worker, "the next step takes one", costs.pillow)
            yield Row(name, worker, stage.why, next(python, None))
        else:
            yield Row(name, "nothing to do", stage.why)
    if plan.python:
        yield Row("collate", worker, seconds=costs.collate)


def _of_points(plan: Plan, stage: Stage, dataset: NativeDataset) -> str:
    """The remark on a flip that leaves keypoints their numbers, where it is known which mirror each other."""
    if stage.position not in plan.keeping_flips or not isinstance(dataset, PackedDataset):
        return ""
    known = (field.name for field in dataset.opened.reader.schema if field.pairs and field.name in dataset.fields)
    name = next(known, "")
    return f'{name!r} keep their numbers; a flip of fastload.transforms with keypoint_pairs="auto" exchanges left and right' if name else ""


def _of_items(settings: Settings, costs: Costs) -> Iterator[Row]:
    kind, worker = type(settings.dataset).__name__, _worker(settings)
    yield Row(f"{kind}[i]", worker, "a Dataset of Python", costs.item)
    if settings.auto_collation:
        yield Row("collate", worker, seconds=costs.collate)


def _of_batches(settings: Settings, shown: Sequence[tuple[BatchStage, StageCall]], costs: Costs) -> Iterator[Row]:
    """What is done to whole batches, in order. A stage that has to wait for the loop holds up those after it."""
    where = "host, whole batches" if settings.device is None else "device"
    reason = "" if settings.device is not None else "no device= is given"
    for number, (stage, call) in enumerate(shown):
        if not call.ahead:
            reason = f"{stage.names[0]} uses the global generators: from it on in the loop's thread, when it asks for the batch"
        for line, name in enumerate(stage.names):
            seconds: float | str | None = costs.stages[number] if number < len(costs.stages) else None
            yield Row(name, where, reason, SAME_PASS if line and seconds is not None else seconds)


def _worker(settings: Settings) -> str:
    return "Python worker" if settings.num_workers else "calling process"


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
