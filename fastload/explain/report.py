"""What a loader can tell of itself: its counters for the health report, and its explanation."""

from __future__ import annotations

from typing import Any

from torch.utils.data import IterableDataset, default_collate

from fastload.dataset import PackedDataset
from fastload.explain import stage_table as stages
from fastload.threads.epochs import native_view, why_not_device

_SETTINGS = ("num_workers", "prefetch_factor", "persistent_workers", "pin_memory", "in_order", "timeout")


def settings(loader: Any) -> dict[str, Any]:
    """What the health report's advice names of a loader."""
    return {"seed_by": loader._fastload.settings.seed_by, **{name: getattr(loader, name) for name in _SETTINGS}}


def stats(loader: Any) -> dict[str, Any]:
    """Counters since the loader was made; what its engine does not count is missing. See FastLoader.stats."""
    if native_view(loader) is not None:
        return _of_threads(loader)
    counts = loader._fastload.worker_counts
    out: dict[str, Any] = {
        "engine": "processes" if loader.num_workers else "caller",
        "workers": loader.num_workers,
        **_losses(loader),
    }
    if not loader.num_workers:
        return out
    out |= {
        "batches": counts.batches,
        "samples": counts.samples,
        "bytes": counts.bytes,
        "envelope_batches": counts.envelope_batches,
        "envelope_bytes": counts.envelope_bytes,
        "stage_seconds": {"python": counts.python_seconds, "collate": counts.collate_seconds, **loader._fastload.timer.stages()},
        "restarts": counts.restarts,
        "slow": list(counts.slow),
        "ready": 0,
        "depth": loader.prefetch_factor * loader.num_workers,
    }
    alive = [iterator for iterator in loader._fastload.alive if not iterator.closed]
    for name in ("ready", "depth", "slots", "slot_bytes"):
        if alive:
            out[name] = sum(iterator.progress()[name] for iterator in alive)
    return out


def _of_threads(loader: Any) -> dict[str, Any]:
    out: dict[str, Any] = {
        "engine": "threads",
        "workers": loader.num_workers,
        "depth": loader.prefetch_factor or 1,
        **_losses(loader),
        "restarts": 0,
        "envelope_batches": 0,
        "envelope_bytes": 0,
    }
    engine = loader._fastload.packed.running
    if engine is None:
        return out
    counted, slots = engine.core.counters(), engine.ring.counts()
    out |= {
        "samples": counted["samples"],
        "bytes": counted["bytes"],
        "fallbacks": counted["fallbacks"],
        "ready": slots["ready"],
        "slots": slots["slots"],
        "slot_bytes": slots["bytes"],
        "stage_seconds": {stage: counted[f"{stage}_ns"] / 1e9 for stage in ("read", "decode", "resize")} | loader._fastload.timer.stages(),
    }
    return out


def _losses(loader: Any) -> dict[str, Any]:
    lost = loader._fastload.losses
    return {"replaced": lost.replaced, "skipped": lost.skipped, "bad_samples": list(lost.reasons)}


def explain(loader: Any, *, measure: bool = False) -> str:
    """Which engine runs, why, what went round its slots, and the stages of a sample. See FastLoader.explain."""
    told = stats(loader)
    lines = [f"engine     {_engine(loader, told)}", f"why        {_why(loader)}"]
    if told["engine"] == "processes":
        lines.append(f"schedule   {_schedule(loader)}")
        lines.append(f"collate    {_collate(loader)}")
    if told.get("batches"):
        share = told["envelope_batches"] / told["batches"]
        lines.append(
            f"envelopes  {told['envelope_batches']} of {told['batches']} batches ({share:.0%}) carried more than a slot holds; "
            f"{told['envelope_bytes']} bytes went by pickle, {told['bytes']} by slots"
        )
    return "\n".join([*lines, "", *stages.table(loader, measured=measure)])


def _engine(loader: Any, told: dict[str, Any]) -> str:
    if told["engine"] == "threads":
        return f"{told['workers']} native threads" if told["workers"] else "native, in the calling thread"
    if told["engine"] == "caller":
        return "Python, in the calling process"
    kept = "kept over epochs" if loader.persistent_workers else "anew for every epoch"
    return f"Python, in {told['workers']} worker processes, {kept}, over shared slots"


def _why(loader: Any) -> str:
    if loader._fastload.packed.data is None:
        kind = "an IterableDataset" if isinstance(loader.dataset, IterableDataset) else "a map-style Dataset"
        return f"{type(loader.dataset).__name__} is {kind} of Python: pack it (fastload pack) to have it read by native threads"
    if (view := native_view(loader)) is not None:
        left = " but for what the device does" if view.datasets[0].plan.device else ""
        return f"the dataset is packed and its transform is native{left}"
    for dataset in loader._fastload.packed.data.view.datasets:
        if not dataset.plan.native:
            return f"the transform has a part that is Python: everything runs per sample in Python{_not_moved(loader, dataset)}"
        if dataset.image_field not in dataset.fields:
            return "no image is asked for"
    return "the packed datasets end in different normalisations, or other ops on batches"


def _not_moved(loader: Any, dataset: PackedDataset) -> str:
    """Why that part is not left to the device, where it could be."""
    why = why_not_device(loader)
    if not dataset.plan.movable or loader._fastload.settings.device is None:
        return ""
    return f"; the device could do that part, but {why or 'the packed datasets differ in it'}"


def _schedule(loader: Any) -> str:
    if loader._fastload.settings.seed_by == "sample" and loader.collate_fn is default_collate and loader._auto_collation:
        return "all workers fill the rows of the oldest batch"
    if loader._fastload.settings.seed_by == "sample":
        return "a free worker takes the next batch"
    if not loader.in_order:
        return "a free worker takes the next batch, and whichever is ready is handed out"
    return 'batch k goes to worker k mod N, as in torch; seed_by="sample" lets all workers fill one batch'


def _collate(loader: Any) -> str:
    if loader.collate_fn is default_collate:
        return "in place, into the slot"
    return "by your function; its tensors are copied into the slot once"
