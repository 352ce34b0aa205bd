"""A loader's counters for the health report, and its plan in words."""

from __future__ import annotations

from typing import Any

from fastload.dataset.in_place.base import InPlaceDataset
from fastload.dataset.view import PackedData
from fastload.engines.plan import ExecutionPlan
from fastload.engines.settings import Settings
from fastload.engines.state import LoaderState
from fastload.errors import FastloadError
from fastload.explain import stage_table
from fastload.remote.files import RemoteFiles
from fastload.remote.session import RemoteStatus

_SETTINGS = ("seed_by", "num_workers", "prefetch_factor", "persistent_workers", "pin_memory", "in_order", "timeout")


def advised_settings(state: LoaderState) -> dict[str, Any]:
    """The settings that the health report's advice names, and the facts from which it follows which of them would change something."""
    plan, settings, data = state.plan, state.settings, state.plan.data
    return {name: getattr(settings, name) for name in _SETTINGS} | {
        "mend": plan.mend,
        "packed": data is not None and not data.in_place,
        "splits_batches": settings.by_default_collate and not settings.iterable,
        "own_collate": not settings.by_default_collate,
        "epoch_batches": plan.size.batches if plan.engine == "threads" else None,
        "may_pin": _may_pin(settings),
        "copied_floats": None if plan.outputs is None else any(output.dtype != "uint8" for output in plan.outputs),
        "longer_sides": _longer_sides(data),
    }


def _may_pin(settings: Settings) -> bool:
    """Returns True if pin_memory=True would make copies faster: slots of CUDA devices are registered without it."""
    device = settings.device
    return device is not None and device.type not in ("cpu", "cuda") and not settings.pin_memory


def _longer_sides(data: PackedData | None) -> tuple[int, ...]:
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
        "stage_seconds": {"python": workers.python_seconds, "collate": workers.collate_seconds, **state.timer.stages()},
        "restarts": workers.restarts,
        "slow": list(workers.slow),
        "ready": 0,
        "depth": (settings.prefetch_factor or 0) * settings.num_workers,
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
        "depth": state.plan.settings.depth,
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
        "stage_seconds": {stage: counted[f"{stage}_ns"] / 1e9 for stage in ("read", "decode", "resize")} | state.timer.stages(),
    }
    return out


def _losses(state: LoaderState) -> dict[str, Any]:
    lost = state.counters.losses
    return {"replaced": lost.replaced, "skipped": lost.skipped, "bad_samples": list(lost.reasons)}


def explain(state: LoaderState, *, measured: bool = False) -> str:
    """Which engine runs, why, what went round its slots, and the stages of a sample. See FastLoader.explain."""
    told, plan = stats(state), state.plan
    lines = [f"engine     {_engine(plan)}", f"why        {plan.why}"]
    if plan.engine == "processes":
        lines.append(f"schedule   {_schedule(plan.settings)}")
        lines.append(f"collate    {_collate(plan.settings)}")
    elif plan.settings.collation is not None:
        lines.append(f"collate    {plan.settings.collation}")
    elif plan.settings.default_replaced:
        lines.append(f"collate    {_by_changed_default(plan.settings)}")
    if not plan.settings.iterable:
        lines.append(f"order      {_order(plan)}")
    if plan.data is not None and plan.data.in_place:
        lines.append(f"indexes    {_learnt(plan.data)}")
    lines += [f"bucket     {_bucket(each)}" for each in _buckets(plan.data)]
    if told.get("batches"):
        share = told["envelope_batches"] / told["batches"]
        lines.append(
            f"envelopes  {told['envelope_batches']} of {told['batches']} batches ({share:.0%}) carried more than a slot holds; "
            f"{told['envelope_bytes']} bytes went by pickle, {told['bytes']} by slots"
        )
    return "\n".join([*lines, "", *stage_table.table(plan, measured=measured)])


def _order(plan: ExecutionPlan) -> str:
    """How far ahead of the loop the sampler is drawn. See NOTE [ samplers: drawn when torch draws them ]."""
    settings = plan.settings
    name = type(settings.order.deciding).__name__
    asked = plan.native is not None and plan.native.is_asked
    if plan.engine == "threads" and settings.may_draw_ahead and not asked:
        return f"{name}, drawn as far ahead as is read: its order is fixed at its first index"
    why = "; a Subset's indices are asked for one by one" if asked else ""
    if not settings.drawn_at_iter:
        return f"{name}, a batch drawn at each next(){why}"
    count = settings.drawn_at_iter
    return f"{name}, {count} batch{'es' * (count > 1)} drawn at iter(), one more at each next(){why}"


def _learnt(data: PackedData) -> str:
    """The entropy indexes of images in place: how many are held, and where."""
    datasets = [dataset for dataset in data.view.datasets if isinstance(dataset, InPlaceDataset)]
    found, most = [dataset.learnt() for dataset in datasets], sum(dataset.room for dataset in datasets)
    files, held = sum(each[0] for each in found), sum(each[1] for each in found)
    return f"of {files:,} files, {held / 2**20:,.1f} MiB of memory ({most >> 20:,} MiB at most); learnt when a file is first read"


def _buckets(data: PackedData | None) -> list[RemoteStatus]:
    """The datasets in buckets."""
    datasets = [] if data is None else [each for each in data.view.datasets if not isinstance(each, InPlaceDataset)]
    found = [dataset.opened.reader.files for dataset in datasets]
    return [files.status() for files in found if isinstance(files, RemoteFiles)]


def _bucket(status: RemoteStatus) -> str:
    """How far a dataset in a bucket is cached, and what was fetched."""
    unwritten = (
        f", which takes no more ({status.why})" if status.full else f", which cannot be written ({status.why})" if status.why else ""
    )
    return (
        f"{status.url}: {status.cached:,} of {status.count:,} samples in {status.cache}{unwritten}; "
        f"{status.fetched / 2**20:,.1f} MiB fetched by {status.ranges:,} requests"
    )


def _engine(plan: ExecutionPlan) -> str:
    workers = plan.settings.num_workers
    if plan.engine == "threads":
        return f"{workers} native threads" if workers else "native, in the calling thread"
    if plan.engine == "caller":
        return "Python, in the calling process"
    kept = "kept over epochs" if plan.settings.persistent_workers else "anew for every epoch"
    return f"Python, in {workers} worker processes, {kept}, over shared slots"


def _schedule(settings: Settings) -> str:
    if settings.seed_by == "sample" and settings.by_default_collate:
        return "all workers fill the rows of the oldest batch"
    if settings.seed_by == "sample":
        return "a free worker takes the next batch"
    if not settings.in_order:
        return "a free worker takes the next batch, and whichever is ready is handed out"
    return 'batch k goes to worker k mod N, as in torch; seed_by="sample" lets all workers fill one batch'


def _by_changed_default(settings: Settings) -> str:
    return f"by torch's default as it is now: {settings.collate_replaced}"


def _collate(settings: Settings) -> str:
    if settings.by_default_collate:
        return "in place, into the slot"
    how = "by your function" if settings.collation is None else str(settings.collation)
    if settings.default_replaced:
        how = _by_changed_default(settings)
    return f"{how}; its tensors are copied into the slot once"
