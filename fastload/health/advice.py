"""Report of the figures as text, with advice: each piece names a setting to change, and the figure that
supports it.

NOTE [ advice: what would change nothing ]
A change is advised only if a figure says that it would change something: a setting that has that value
already, a limit above what is there, and a step that the reason for the engine forbids are not named. What is
unknown (None) of a loader of another library is taken for what that loader does by default, or is said as a
condition.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator

from fastload.health.figures import Figures, Waits

KEEPS_UP = 0.05
"""Share of the loop's time spent waiting from which a change is worth it: below, the gain is lost in
noise."""
SPIKY = 0.5
"""Share of all waiting in the slowest steps from which rare slow batches, and not throughput, are the
problem."""
ENVELOPES = 0.1
"""Share of batches, or of bytes, in pickled envelopes from which a change is worth it."""
IDLE = 0.5
"""If workers are busy for less than this share of the time while the loop waits, more workers would not
help."""
SPARE_PIXELS = 2.2
"""Ratio of a stored picture's longer side to the crop's side at which RandomResizedCrop seldom enlarges:
500 for 224."""
LOST = 0.01
"""Share of samples replaced or skipped from which that is the first thing to look at."""
SHOWN = 5
"""Limit on the slow samples that the text names."""
BATCH_STAGES = ("copy", "augment")
"""Stages on whole batches, after the workers: more workers do not speed them up."""
_ENGINES = {"threads": "native threads", "processes": "worker processes"}
"""Names of the workers of an engine, by its value in stats()."""
WORTH = 0.1
"""Share of the stored pixels from which it is worth packing the dataset anew without them."""


def advise(figures: Figures) -> list[str]:
    """Advice on what to change, the most useful first; never empty."""
    lost, most = _on_losses(figures)
    if figures.waiting is None or figures.waiting_first is None or figures.waiting_within is None:
        what = "the monitor" if figures.engine is None else "the loader, or the monitor around it"
        return lost or [f"no step has been seen yet: iterate {what}, or feed it by observe()"]
    found: list[str] = []
    if figures.waiting_within >= KEEPS_UP:
        found += _on_spikes(figures) or _on_rate(figures)
    if figures.waiting_first >= KEEPS_UP:
        found.append(_on_first_waits(figures))
    if not found:
        found.append(
            f"the loader keeps up: the loop waits for data {_percent(figures.waiting)} of the time; "
            "a faster loader gains no more"
        )
    found += _on_counters(figures)
    return [*lost, *found] if most else [*found, *lost]


def _on_spikes(figures: Figures) -> list[str]:
    """Advice if a few slow batches make up most of the waiting, and something is known to do about it;
    else an empty list."""
    p50, p99 = figures.wait_s.p50, figures.wait_s.p99
    if figures.tail is None or figures.tail < SPIKY or p50 is None or p99 is None:
        return []
    mends = _filled(_split_knob(figures), _deeper(figures), _largest_knob(figures))
    if figures.workers == 0:
        mends = [
            f"set num_workers to {_useful_workers(figures)}: num_workers=0 loads in the loop itself, "
            "and waits for every slow sample"
        ]
    if not mends:
        return []
    head = (
        f"waiting for data {_percent(figures.waiting)} of the time, {_percent(figures.tail)} of it in a "
        "few slow batches"
    )
    return [f"{head} (p99 {_time(p99)}, p50 {_time(p50)}): {', or '.join(mends)}"]


def _split_knob(figures: Figures) -> str | None:
    """Advice that lets several workers make one batch; None if they do, or cannot."""
    if figures.engine is None:
        return (
            'if the dataset has indices, use FastLoader with seed_by="sample": a slow sample then holds '
            "up one row"
        )
    if (
        figures.engine != "processes"
        or figures.seed_by == "sample"
        or figures.splits_batches is False
        or figures.workers == 1
    ):
        return None
    return 'pass seed_by="sample": a batch is then split over workers and a slow sample holds up one row'


def _deeper(figures: Figures) -> str | None:
    """A larger prefetch_factor, where more batches than are in flight are left in an epoch."""
    if not figures.workers:
        return None
    prefetch, batches = figures.prefetch_factor or 2, figures.epoch_batches
    in_flight = prefetch if figures.engine == "threads" else prefetch * figures.workers
    if batches is not None and in_flight >= batches:
        return None
    return f"raise prefetch_factor from {prefetch} to {2 * prefetch}"


def _largest_knob(figures: Figures) -> str | None:
    """Packing the largest images smaller, where native threads decode images that are larger than the
    training needs."""
    side = _useful_side(figures)
    if figures.engine != "threads" or side is None or figures.longer_sides[-1] <= side:
        return None
    return (
        f"pack the largest images smaller: --max-side {side} (they have {figures.longer_sides[-1]:,} pixels)"
    )


def _on_rate(figures: Figures) -> list[str]:
    """Advice if the loader is slow throughout."""
    shares = figures.stage_shares
    bound = max(shares, key=lambda name: shares[name]) if shares else None
    head = f"waiting for data {_percent(figures.waiting)} of the time"
    if bound is not None:
        head += f", {bound}-bound ({_percent(shares[bound])} of a sample's time)"
    knobs = _filled(_workers_knob(figures, bound), *_stage_knobs(figures, bound))
    if not knobs and (figures.workers or 0) >= figures.cpus and bound not in BATCH_STAGES:
        knobs = [f"all {figures.cpus} CPUs have a worker; what is left is less work per sample"]
    if not knobs:
        knobs = ["no setting is known that would change it; what is left is less work per sample"]
    return [f"{head}: {', or '.join(knobs)}"]


def _workers_knob(figures: Figures, bound: str | None) -> str | None:
    workers, busy = figures.workers, figures.worker_busy
    if workers is None:
        return f"set num_workers to {figures.cpus}, the CPUs there are"
    useful = _useful_workers(figures)
    if workers == 0:
        return f"set num_workers to {useful}: num_workers=0 loads in the loop itself"
    if bound in BATCH_STAGES:
        return None
    if busy is not None and busy < IDLE:
        idle = f"workers are busy only {_percent(busy)} of the time"
        deeper = _deeper(figures)
        return deeper and f"{deeper} ({idle}; if that changes nothing, other processes take the CPUs)"
    return f"raise num_workers from {workers} to {useful}" if useful > workers else None


def _useful_workers(figures: Figures) -> int:
    """Number of workers with which the loop would stop waiting if they scale; at most one for each CPU."""
    within = min(figures.waiting_within or 0.0, 0.99)
    return max(1, min(figures.cpus, math.ceil(max(1, figures.workers or 0) / (1 - within))))


def _stage_knobs(figures: Figures, bound: str | None) -> list[str | None]:
    """Settings that make the slowest stage faster."""
    smaller = _smaller(figures)
    if bound in ("decode", "resize"):
        return [smaller]
    if bound == "read":
        what = "images" if figures.packed is False else "packed data"
        return [f"keep the {what} on a faster disk or in memory", smaller and f"{smaller}: fewer bytes"]
    if bound in ("python", None):
        return [_native_knob(figures)]
    if bound == "collate":
        mixed = max(figures.envelope_share or 0.0, figures.envelope_bytes_share or 0.0) > 0
        if figures.own_collate is False and not mixed:
            return [_native_knob(figures)]
        return ["return tensors or arrays of one shape and let default_collate write them in place"]
    if bound == "copy":
        uint8 = "keep batches uint8 until they are on the device"
        return [
            "pass pin_memory=True" if figures.may_pin else None,
            None if figures.copied_floats is False else uint8,
        ]
    if bound == "augment":
        return ["leave fewer transforms to the device, or do those that are native in transform="]
    return []


def _native_knob(figures: Figures) -> str | None:
    """Advice that lets native threads make the batches; None if they do, or nothing would."""
    if figures.engine == "threads":
        return None
    if figures.mend is not None:
        return figures.mend or None
    return (
        "pack the dataset (fastload pack) and use FastLoader and fastload.transforms, so that native "
        "threads do the work"
    )


def _useful_side(figures: Figures) -> int | None:
    """The longer side of stored images beyond which the training sees no more of them; None where that or
    their sizes are unknown."""
    if figures.image_side is None or not figures.longer_sides:
        return None
    return math.ceil(figures.image_side * SPARE_PIXELS / 50) * 50


def _smaller(figures: Figures) -> str | None:
    """Packing images smaller, where enough of them are larger than the training needs."""
    side = _useful_side(figures)
    if side is None:
        return None
    before, after = (
        sum(each**2 for each in figures.longer_sides),
        sum(min(each, side) ** 2 for each in figures.longer_sides),
    )
    saved = 1 - after / before
    if saved < WORTH:
        return None
    return f"pack with --max-side {side}, which leaves out {_percent(saved)} of the pixels"


def _filled(*knobs: str | None) -> list[str]:
    return [knob for knob in knobs if knob]


def _on_first_waits(figures: Figures) -> str:
    first = figures.first_wait_s
    typical = _time(first.p50 or 0.0)
    head = (
        f"{_percent(figures.waiting_first)} of the time goes on the first batch of each epoch (p50 {typical})"
    )
    longer = "make epochs longer, such as by a sampler that repeats"
    if first.count < 2:
        return (
            f"{_percent(figures.waiting_first)} of the time went on the first batch ({typical}): a "
            "start-up, which longer runs pay once"
        )
    if figures.workers == 0:
        return (
            f"{head}: set num_workers to {_useful_workers(figures)}, so that batches are made ahead of "
            "the loop"
        )
    if figures.engine != "threads" and figures.persistent_workers is False:
        return f"{head}: pass persistent_workers=True, so that workers outlive an epoch"
    outlive = figures.engine == "threads" or figures.persistent_workers
    return f"{head}: {longer}{'; workers already outlive them' if outlive else ''}"


def _on_counters(figures: Figures) -> Iterator[str]:
    batches, size = figures.envelope_share, figures.envelope_bytes_share
    if max(batches or 0.0, size or 0.0) >= ENVELOPES:
        yield (
            f"{_percent(batches)} of batches ({_percent(size)} of bytes) travel in pickled "
            "envelopes: return tensors or arrays, "
            "of the same structure and type in every batch, from __getitem__ or collate_fn"
        )
    if figures.loaded and figures.loaded >= LOST * figures.samples:
        yield (
            f"{figures.loaded:,} of {figures.samples:,} files were opened by Pillow, one by one in "
            "the loop's process: they are no "
            "JPEGs, PNGs or WebPs, or damaged; write them anew, or pack the dataset"
        )
    if figures.restarts:
        yield (
            f"{figures.restarts} workers were started anew: look for what ended them; if memory ran "
            "out, lower num_workers or "
            "prefetch_factor"
        )


def _on_losses(figures: Figures) -> tuple[list[str], bool]:
    """Advice on samples that failed, and whether they are so many that nothing else is more urgent."""
    lost = [
        f"{count:,} {what}"
        for count, what in ((figures.replaced, "replaced"), (figures.skipped, "skipped"))
        if count
    ]
    if not lost:
        return [], False
    skipped = figures.skipped or 0
    share = ((figures.replaced or 0) + skipped) / max(1, figures.samples + skipped)
    first = f"; {figures.bad_samples[0]}" if figures.bad_samples else ""
    verify = (
        "" if figures.packed is False else ", and `fastload verify --decode` names all of a packed dataset"
    )
    return [
        f"samples that could not be made: {' and '.join(lost)} ({_percent(share)} of all){first}; "
        f'on_error="raise" stops at the first with its error{verify}'
    ], share >= LOST


def report(figures: Figures) -> str:
    """The known figures as lines of text, and the advice below them."""
    lines = [
        _title(figures),
        *(f"  {name:<18}{text}" for name, text in _lines(figures) if text is not None),
        "advice:",
    ]
    return "\n".join([*lines, *(f"- {text}" for text in advise(figures))])


def _title(figures: Figures) -> str:
    seen = f"the last {figures.window_steps:,} of {figures.steps:,} steps, {figures.epochs:,} epochs"
    parts = [seen]
    if figures.engine == "caller":
        parts.append("calling process")
    elif figures.workers is not None:
        parts.append(f"{figures.workers} {_ENGINES.get(figures.engine or '', 'workers')}")
    parts.append(f"{figures.cpus} CPUs")
    return f"loader's health: {', '.join(parts)}"


def _lines(figures: Figures) -> Iterator[tuple[str, str | None]]:
    if figures.waiting is not None:
        parts = (
            f"{_percent(figures.waiting_within)} within epochs, {_percent(figures.waiting_first)} on "
            "first batches"
        )
        yield "waiting for data", f"{_percent(figures.waiting)} of the time ({parts})"
    yield "wait", _waits(figures.wait_s)
    yield "first wait", _waits(figures.first_wait_s)
    yield "samples/s", _known(figures.samples_per_s, lambda rate: f"{rate:,.1f}")
    yield (
        "queue",
        _known(figures.ready, lambda ready: f"{ready} of {_or_unknown(figures.depth)} batches ready"),
    )
    shares = figures.stage_shares
    stages = ", ".join(
        f"{name} {_time(seconds)} ({_percent(shares.get(name))})" for name, seconds in figures.stage_s.items()
    )
    yield "a sample's time", stages or None
    yield "workers busy", _known(figures.worker_busy, _percent)
    envelopes = (
        f"{_percent(figures.envelope_share)} of batches, {_percent(figures.envelope_bytes_share)} of bytes"
    )
    yield "envelopes", _known(figures.envelope_share, lambda _: envelopes)
    counts = [
        f"{name} {count}"
        for name in ("restarts", "replaced", "skipped", "loaded")
        if (count := getattr(figures, name)) is not None
    ]
    yield "counted", ", ".join(counts) or None
    yield (
        "slow samples",
        ", ".join(f"{key} {_time(seconds)}" for key, seconds in figures.slow[:SHOWN]) or None,
    )


def _waits(waits: Waits) -> str | None:
    if waits.p50 is None or waits.p99 is None or waits.max is None:
        return None
    return f"p50 {_time(waits.p50)}, p99 {_time(waits.p99)}, max {_time(waits.max)}"


def _known(value: float | None, text: Callable[[float], str]) -> str | None:
    return None if value is None else text(value)


def _or_unknown(value: float | None) -> str:
    return "?" if value is None else str(value)


def _percent(part: float | None) -> str:
    if part is None:
        return "?"
    return f"{part:.0%}" if part >= 0.1 else f"{part:.1%}"


def _time(seconds: float) -> str:
    if seconds >= 1:
        return f"{seconds:.2f} s"
    return f"{seconds * 1e3:.1f} ms" if seconds >= 1e-3 else f"{seconds * 1e6:.0f} us"
