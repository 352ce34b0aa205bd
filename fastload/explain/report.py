"""stats() and explain(): a loader's counters for the health report, and its plan in words. explain()'s table
shows each stage of a sample: its place, the reason why no faster place does it, and its cost.
"""

from __future__ import annotations

import textwrap
from collections.abc import Iterable, Iterator, Sequence, Set
from dataclasses import dataclass, replace
from typing import Any

from fastload.dataset.native_data import NativeData
from fastload.dataset.native_source import NativeSource
from fastload.dataset.packed import PackedDataset
from fastload.device.stages import BatchStage, StageCall
from fastload.engines.batch_stages import explained_stages
from fastload.engines.of_kornia import why_per_batch
from fastload.engines.plan import ExecutionPlan
from fastload.engines.settings import Settings
from fastload.engines.state import LoaderState
from fastload.errors import FastloadError
from fastload.explain.measure import Costs, measure
from fastload.lazy.counts import LazyCounts
from fastload.portable import LACKING
from fastload.remote.session import RemoteStatus
from fastload.sampling.arrays import comes_in_arrays
from fastload.sampling.known import DRAWN_BYTES, gives_each_at_most_once, listed_order
from fastload.transforms.spec import Plan, Stage

SAME_PASS = "″"


@dataclass(frozen=True)
class Row:
    """One line: a stage, who does it, why nobody faster, and seconds a sample: None unknown, SAME_PASS
    where the line above has it."""

    stage: str
    where: str
    why: str = ""
    seconds: float | str | None = None


def table(plan: ExecutionPlan, *, measured: bool, whole: bool = True) -> list[str]:
    """The stages as aligned lines, within WIDTH unless `whole`; with `measured` after running samples, and
    a batch, through them."""
    dataset, settings = explained(plan), plan.settings
    shown = explained_stages(settings, plan.data)
    costs = measure(plan, dataset, [call for _, call in shown]) if measured else None
    known = costs or Costs(0)
    there = {name for entry, _ in shown for name in entry.names}
    rows = list(_of_plan(plan, dataset, known, there) if dataset is not None else _of_items(settings, known))
    if (device := settings.device) is not None:
        here = device.type == "cpu"
        rows.append(
            Row(
                f"to {device}",
                "nothing to do" if here else "copy",
                "" if here else "moved when it is whole",
                known.move,
            )
        )
    rows += _of_batches(settings, plan.data is not None, shown, known)
    lines = _aligned(
        rows
        if whole
        else [replace(row, stage=_cut(row.stage, _STAGE_COLUMNS[costs is not None])) for row in rows],
        costs,
        whole=whole,
    )
    if measured and costs is None:
        lines.append("not measured: it would use up the iterable dataset")
    elif costs is not None:
        batch = f"; of {costs.rows} where it is whole batches" if costs.rows else ""
        said = (
            f"us: mean of {costs.samples} samples in one thread{batch}, the page cache as it was; "
            f"{SAME_PASS} in the pass of the line above"
        )
        lines += [said] if whole else textwrap.wrap(said, WIDTH)
    return lines


def explained(plan: ExecutionPlan) -> NativeSource | None:
    """The native dataset whose transform's plan stands for the loader's: the first; None if samples are
    not made by one."""
    view = None if plan.data is None else plan.data.native or plan.data.view
    if view is None or any(each.image_field not in each.fields for each in view.datasets):
        return None
    return view.datasets[0]


def _of_plan(execution: ExecutionPlan, dataset: NativeSource, costs: Costs, there: Set[str]) -> Iterator[Row]:
    """Rows of the stages up to the batch on the host; stages in `there` come after it."""
    plan, settings = dataset.plan, execution.settings
    worker = _worker(settings)
    if execution.native is None:
        native = f"native, in the {worker}"
    else:
        native = "native thread" if settings.num_workers else "native, calling thread"
    yield Row("read", native, seconds=costs.read)
    yield Row("decode", native, _of_codes(dataset), costs.decode)
    write: float | str | None = costs.write
    names = [f"{stage.position} {stage.name}" for stage in plan.stages]
    if not any(
        stage.where == "native" and name not in there for stage, name in zip(plan.stages, names, strict=True)
    ):
        yield Row("write", native, seconds=write)
    python = iter(costs.python)
    first = next((stage for stage in plan.stages if stage.where == "python"), None)
    whole = dataset.takes_whole_samples
    for stage, name in zip(plan.stages, names, strict=True):
        if name in there:
            continue
        if stage.where == "native":
            yield Row(name, native, stage.why or _of_points(plan, stage, dataset), write)
            write = None if write is None else SAME_PASS
        elif stage.where == "python":
            if whole and stage is first:
                yield Row(
                    "to tv_tensors",
                    worker,
                    "what lies in the image goes through the next steps with it",
                    costs.pillow,
                )
            elif plan.pillow and len(plan.stages) - stage.position + 1 == len(plan.python):
                yield Row("to a Pillow image", worker, "the next step takes one", costs.pillow)
            yield Row(name, worker, stage.why, next(python, None))
        else:
            yield Row(name, "nothing to do", stage.why)
    if plan.python:
        yield Row("collate", worker, seconds=costs.collate)


def _of_codes(dataset: NativeSource) -> str:
    """The remark on JPEGs with Huffman codes in a packed dataset, which have a form without them."""
    summary = dataset.summary
    coded = sum(
        summary[name]
        for name in ("kept", "stripped", "transcoded", "rotated", "reencoded")
        if isinstance(summary.get(name), int)
    )
    if coded <= len(dataset) / 2:
        return ""
    return "Huffman codes; `fastload convert` with --encode dct stores JPEGs without"


def _of_points(plan: Plan, stage: Stage, dataset: NativeSource) -> str:
    """The remark on a flip that leaves keypoints their numbers, where it is known which mirror each other."""
    if stage.position not in plan.keeping_flips:
        return ""
    known = (field.name for field in dataset.schema if field.pairs and field.name in dataset.fields)
    name = next(known, "")
    if not name:
        return ""
    return (
        f'{name!r} keep their numbers; a flip of fastload.transforms with keypoint_pairs="auto" '
        "exchanges left and right"
    )


def _of_items(settings: Settings, costs: Costs) -> Iterator[Row]:
    kind, worker = type(settings.dataset).__name__, _worker(settings)
    yield Row(f"{kind}[i]", worker, "a Dataset of Python", costs.item)
    if settings.auto_collation:
        yield Row("collate", worker, seconds=costs.collate)


def _of_batches(
    settings: Settings, fields_known: bool, shown: Sequence[tuple[BatchStage, StageCall]], costs: Costs
) -> Iterator[Row]:
    """Rows of explain()'s table for whole batches, in order. A stage that has to wait for the loop holds
    up those after it."""
    where = "host, whole batches" if settings.device is None else "device"
    reason = "" if settings.device is not None else "no device= is given"
    for number, (stage, call) in enumerate(shown):
        if not call.ahead:
            in_one = why_per_batch(stage.call, settings, fields_known)
            of_kornia = f" ({in_one})" if in_one else ""
            why = (
                "has parameters, which the loop may write"
                if call.trained
                else f"uses the global generators{of_kornia}"
            )
            reason = f"{stage.names[0]} {why}: from it on in the loop's thread, when it asks for the batch"
        for line, name in enumerate(stage.names):
            seconds: float | str | None = costs.stages[number] if number < len(costs.stages) else None
            yield Row(name, where, reason, SAME_PASS if line and seconds is not None else seconds)


def _worker(settings: Settings) -> str:
    return "worker process" if settings.num_workers else "calling process"


def _aligned(rows: Sequence[Row], costs: Costs | None, *, whole: bool) -> list[str]:
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
            cell.ljust(width) if column < 2 else cell.rjust(width)
            for column, (cell, width) in enumerate(zip(line, widths, strict=False))
        ]
        first = "  ".join([*text, ""])
        reasons = (
            [line[-1]] if whole else textwrap.wrap(line[-1], max(WIDTH - len(first), _REASON_COLUMNS)) or [""]
        )
        lines += [
            f"{first if not at else ' ' * len(first)}{reason}".rstrip() for at, reason in enumerate(reasons)
        ]
    return lines


_SETTINGS = (
    "seed_by",
    "num_workers",
    "prefetch_factor",
    "persistent_workers",
    "pin_memory",
    "in_order",
    "timeout",
)


def advised_settings(state: LoaderState) -> dict[str, Any]:
    """The settings that the health report's advice names, and the facts from which it follows which of
    them would change something."""
    plan, settings, data = state.plan, state.settings, state.plan.data
    return {name: getattr(settings, name) for name in _SETTINGS} | {
        "mend": plan.mend,
        "packed": data is not None and not data.in_place,
        "splits_batches": settings.by_default_collate and not settings.iterable,
        "own_collate": not settings.by_default_collate,
        "epoch_batches": plan.size.batches if plan.engine == "threads" else None,
        "may_pin": _may_pin(settings),
        "copied_floats": None
        if plan.outputs is None
        else any(output.dtype != "uint8" for output in plan.outputs),
        "longer_sides": _longer_sides(data),
    }


def _may_pin(settings: Settings) -> bool:
    """Returns True if pin_memory=True would make copies faster: slots of CUDA devices are registered
    without it."""
    device = settings.device
    return device is not None and device.type not in ("cpu", "cuda") and not settings.pin_memory


def _longer_sides(data: NativeData | None) -> tuple[int, ...]:
    try:
        return () if data is None else data.longer_sides
    except (FastloadError, OSError):  # a dataset that was closed: the report is of figures that are known
        return ()


def stats(state: LoaderState) -> dict[str, Any]:
    """Counters since the loader was made; what its engine does not count is missing. See FastLoader.stats."""
    plan, counters = state.plan, state.counters
    if plan.engine == "threads":
        return _of_threads(state)
    workers, settings = counters.workers, plan.settings
    out: dict[str, Any] = {"engine": plan.engine, "workers": settings.num_workers, **_losses(state)}
    if plan.engine == "caller":
        return out
    out |= {
        "batches": workers.batches,
        "samples": workers.samples,
        "bytes": workers.bytes,
        "envelope_batches": workers.envelope_batches,
        "envelope_bytes": workers.envelope_bytes,
        "stage_seconds": {
            "python": workers.python_seconds,
            "collate": workers.collate_seconds,
            **state.timer.stages(),
        },
        "restarts": workers.restarts,
        "slow": list(workers.slow),
        "ready": 0,
        "depth": plan.asked_in_flight,
    }
    alive = [iterator for iterator in state.workers if not iterator.closed]
    for name in ("ready", "depth", "slots", "slot_bytes"):
        if alive:
            out[name] = sum(iterator.progress()[name] for iterator in alive)
    return out


def _of_threads(state: LoaderState) -> dict[str, Any]:
    out: dict[str, Any] = {
        "engine": "threads",
        "workers": state.plan.settings.num_workers,
        "depth": state.plan.asked_in_flight,
        **_losses(state),
        "restarts": 0,
        "envelope_batches": 0,
        "envelope_bytes": 0,
    }
    engine, data = state.epochs.running, state.plan.data
    if engine is None:
        return out
    counted, slots = engine.core.counters(), engine.ring.counts()
    out |= {
        "samples": counted["samples"],
        "bytes": counted["bytes"],
        "fallbacks": counted["fallbacks"],
        "fetched_bytes": sum(each.fetched for each in _buckets(data)),
        **({"loaded": state.counters.losses.loaded} if data is not None and data.in_place else {}),
        "ready": slots["ready"],
        "slots": slots["slots"],
        "slot_bytes": slots["bytes"],
        "stage_seconds": {stage: counted[f"{stage}_ns"] / 1e9 for stage in ("read", "decode", "resize")}
        | state.timer.stages(),
    }
    return out


def _losses(state: LoaderState) -> dict[str, Any]:
    lost = state.counters.losses
    return {"replaced": lost.replaced, "skipped": lost.skipped, "bad_samples": list(lost.reasons)}


def explain(state: LoaderState, *, measured: bool = False, whole: bool = False) -> str:
    """Text about the engine, the reason for it, work outside its slots, and the stages of a sample. See
    FastLoader.explain."""
    entries = list(_entries(state))
    head = [_entry(name, text) for name, text in entries] if whole else _short(entries)
    return "\n".join([*head, "", *table(state.plan, measured=measured, whole=whole)])


WIDTH = 100
"""Columns of explain(), unless all is asked for."""
_STAGE_COLUMNS = {False: 32, True: 22}
"""Columns of a stage's name, without and with its cost: as many as leave 28 for its reason."""
_REASON_COLUMNS = 28
HEAD_LINES = 4
_INDENT = 11


def _entry(name: str, text: str) -> str:
    return f"{name:<{_INDENT - 1}} {text}"


def _cut(line: str, width: int) -> str:
    return line if len(line) <= width else f"{line[: width - 3].rstrip()}..."


def _short(entries: Iterable[tuple[str, str]]) -> list[str]:
    """HEAD_LINES lines at most: the reason in two, any other entry in one; where some are cut or left out,
    the last line names them."""
    kept: list[tuple[str, list[str]]] = []
    left = []
    for name, text in entries:
        most = 2 if name == "why" else 1
        lines = textwrap.wrap(text, WIDTH - _INDENT, break_on_hyphens=False)
        if len(lines) > most:
            left.append(name)
            lines[most - 1 :] = [_cut(" ".join(lines[most - 1 :]), WIDTH - _INDENT)]
        kept.append((name, [_entry("" if at else name, line) for at, line in enumerate(lines)]))
    if left or _count(kept) > HEAD_LINES:
        while _count(kept) >= HEAD_LINES:
            left.insert(0, kept.pop()[0])
        kept.append(
            (
                "more",
                [
                    _entry(
                        "more", _cut(f"{', '.join(dict.fromkeys(left))}: explain(all=True)", WIDTH - _INDENT)
                    )
                ],
            )
        )
    return [line for _, lines in kept for line in lines]


def _count(kept: Iterable[tuple[str, list[str]]]) -> int:
    return sum(len(lines) for _, lines in kept)


def _entries(state: LoaderState) -> Iterator[tuple[str, str]]:
    """(name, text) of each line of the head."""
    told, plan = stats(state), state.plan
    yield "engine", _engine(plan)
    yield "why", plan.why
    if plan.engine == "processes" and not LACKING:
        yield "schedule", _schedule(plan.settings)
        yield "collate", _collate(plan.settings)
    elif plan.settings.collation is not None:
        yield "collate", str(plan.settings.collation)
    elif plan.settings.default_replaced:
        yield "collate", _by_changed_default(plan.settings)
    if not plan.settings.iterable:
        yield "order", _order(plan)
        yield from (("memory", memory) for memory in _order_memory(plan))
    if plan.engine != "threads" and plan.settings.lazy_images is not None:
        yield "images", _images(plan.settings.lazy_images, state.counters.workers.images)
    if plan.engine != "threads" and state.opened is not None:
        yield "indexes", state.opened.report()
    elif plan.data is not None and plan.data.in_place:
        yield from (("kept", kept) for each in plan.data.view.datasets if (kept := each.kept()))
    yield from (("bucket", _bucket(each)) for each in _buckets(plan.data))
    if plan.host_memory != "pageable":
        yield "pinned", _pinned(plan)
    if told.get("batches") and not LACKING:
        share = told["envelope_batches"] / told["batches"]
        carried = (
            f"{told['envelope_batches']} of {told['batches']} batches ({share:.0%}) carried more than a "
            "slot holds"
        )
        yield (
            "envelopes",
            f"{carried}; {told['envelope_bytes']} bytes went by pickle, {told['bytes']} by slots",
        )


def brief(state: LoaderState, name: str) -> str:
    """Two lines on a loader: its data and batches, and its engine as it was planned last."""
    plan = state.plan
    settings = plan.settings
    data = (
        settings.dataset.title if isinstance(settings.dataset, PackedDataset) else _counted(settings.dataset)
    )
    given = settings.batch_sampler
    batches = f"batches of {settings.batch_size}" if settings.batch_size is not None else "samples one by one"
    if settings.batch_size is None and given is not None:
        batches = f"batches by {type(given).__name__}"
    sampler = "" if settings.iterable else f", {type(settings.order.deciding).__name__}"
    return f"{name}({data}, {batches}{sampler})\n  {_engine(plan)}"


def _counted(dataset: Any) -> str:
    """A dataset's class, and its length where it has one: no repr of a user's, which may print all of the
    data."""
    try:
        return f"{type(dataset).__name__} of {len(dataset):,}"
    except Exception:  # the user's code, or an iterable dataset: the loader is to show itself all the same
        return type(dataset).__name__


def _images(exactness: str, seen: LazyCounts) -> str:
    """Text on the images that Pillow opened: what became of them, and who asked for their pixels early."""
    lines = [f"Pillow images are lazy ({exactness})"]
    if seen.opened:
        lines.append(f"{seen.opened:,} JPEGs opened, {seen.straight:,} times decoded straight into an array")
    if seen.composed:
        lines.append(_composed(seen))
    if seen.whole:
        asked = ", ".join(f"{name} {count:,}" for name, count in seen.whole.most_common(REASONS))
        lines.append(
            f"{seen.whole.total():,} made a Pillow image, for "
            f"{asked}{f', first at {seen.line}' if seen.line else ''}"
        )
    if seen.left:
        lines.append(
            "left to Pillow: "
            + ", ".join(f"{count:,} ({why})" for why, count in seen.left.most_common(REASONS))
        )
    return "; ".join(lines)


def _composed(seen: LazyCounts) -> str:
    """Text on the transforms of torchvision's Compose: those that left a recipe a recipe, and the others."""
    run = ", ".join(name for name, _ in seen.composed.most_common())
    ended = ", ".join(f"{name} {count:,}" for name, count in seen.ended.most_common(REASONS))
    return f"one recipe through {run}" + (f"; no longer one after {ended}" if ended else "")


REASONS = 4
"""Reasons that explain() names, the most frequent first."""


def _order(plan: ExecutionPlan) -> str:
    """Distance by which the sampler is drawn ahead of the loop. See NOTE [ samplers: drawn when torch
    draws them ]."""
    settings = plan.settings
    name = type(settings.order.deciding).__name__
    asked = plan.native is not None and plan.native.is_asked
    again = (
        ""
        if gives_each_at_most_once(settings.order)
        else "; it may give an index again: counted, 4 bytes a sample of the dataset"
    )
    if plan.engine == "threads" and settings.may_draw_ahead and not asked:
        return f"{name}, drawn as far ahead as is read: its order is fixed at its first index{again}"
    why = "; a Subset's indices are asked for one by one" if asked else ""
    if not settings.drawn_at_iter:
        return f"{name}, a batch drawn at each next(){why}{again}"
    count = settings.drawn_at_iter
    return f"{name}, {count} batch{'es' * (count > 1)} drawn at iter(), one more at each next(){why}{again}"


ORDER_NAMED = 10**8
"""Samples from which explain() names the memory of an order that is a list."""


def _order_memory(plan: ExecutionPlan) -> Iterator[str]:
    """The bytes of an order that is drawn as a whole, where it is a long one, and the orders that are not."""
    order = plan.settings.order
    count, each = listed_order(order.origin.deciding)
    if (
        plan.engine == "threads"
        and plan.native is not None
        and not plan.native.is_asked
        and comes_in_arrays(order)
    ):
        each = min(each, DRAWN_BYTES)
    if count >= ORDER_NAMED:
        listed = (
            f", and its list of Python's integers, {each - DRAWN_BYTES} more" if each > DRAWN_BYTES else ""
        )
        yield (
            f"torch's permutation, {DRAWN_BYTES} bytes a sample{listed}: {count * each / 1e9:,.1f} "
            "GB in each process; "
            'shuffle="window" or "huge" takes no memory for each sample'
        )


def _buckets(data: NativeData | None) -> list[RemoteStatus]:
    """The datasets in buckets."""
    found = () if data is None else (dataset.remote for dataset in data.view.datasets)
    return [files.status() for files in found if files is not None]


def _bucket(status: RemoteStatus) -> str:
    """Share of a dataset in a bucket that is cached, and the bytes fetched."""
    unwritten = ""
    if status.full:
        unwritten = f", which takes no more ({status.why})"
    elif status.why:
        unwritten = f", which cannot be written ({status.why})"
    return (
        f"{status.url}: {status.cached:,} of {status.count:,} samples in {status.cache}{unwritten}; "
        f"{status.fetched / 2**20:,.1f} MiB fetched by {status.ranges:,} requests"
    )


def _pinned(plan: ExecutionPlan) -> str:
    """The pinned memory that batches lie in; see NOTE [ pin: a slot whose copy is still running ]."""
    if plan.host_memory == "pinned":
        return "each batch lies in memory of torch's pinned cache, which waits for its copies"
    if plan.host_memory == "registered" and plan.transfer.device is not None:
        return "slots are registered with the driver, and filled again after the loader's copies from them"
    if plan.host_memory == "registered":
        return (
            "slots are registered with the driver, and filled again after all that the device was given "
            "before the batch was dropped"
        )
    return "each batch is copied into memory of torch's pinned cache"


def _engine(plan: ExecutionPlan) -> str:
    workers = plan.settings.num_workers
    if plan.engine == "threads":
        return f"{workers} native threads" if workers else "0 native threads: the calling thread decodes"
    if plan.engine == "caller":
        return "calling process"
    kept = "kept over epochs" if plan.settings.persistent_workers else "anew for every epoch"
    how = "torch's own" if LACKING else "over shared slots"
    return f"{workers} worker processes, {kept}, {how}"


def _schedule(settings: Settings) -> str:
    if settings.seed_by == "sample" and settings.by_default_collate:
        return "all workers fill the rows of the oldest batch"
    if settings.seed_by == "sample":
        return "a free worker takes the next batch"
    if not settings.in_order:
        return "a free worker takes the next batch, and whichever is ready is handed out"
    order = "batch k goes to worker k mod N, as in torch"
    return order if settings.iterable else f'{order}; seed_by="sample" lets all workers fill one batch'


def _by_changed_default(settings: Settings) -> str:
    return f"by torch's default as it is now: {settings.collate_replaced}"


def _collate(settings: Settings) -> str:
    if settings.by_default_collate:
        return "in place, into the slot"
    how = "by your function" if settings.collation is None else str(settings.collation)
    if settings.default_replaced:
        how = _by_changed_default(settings)
    return f"{how}; its tensors are copied into the slot once"
