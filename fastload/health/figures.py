"""Figures: computed from the counted steps of a loop and its loader's counters."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt

from fastload.common.system import available_cpus
from fastload.health.ring import Steps

_T = TypeVar("_T")
STAGES = ("read", "decode", "resize", "python", "collate", "copy", "augment")
"""Stages in the order in which a sample passes them; the workers do the first five."""
WORKER_STAGES = STAGES[:5]
TAIL = 0.05
"""Share of steps that count as slowest: their part of all waiting distinguishes spikes from a loader that
is slow throughout."""

_FACTS = ("mend", "packed", "splits_batches", "own_collate", "epoch_batches", "may_pin", "copied_floats")
"""Settings of a FastLoader that say which advice would change something."""


@dataclass(frozen=True)
class Waits:
    """Waits of some steps, in seconds; None if there was no such step. Quantiles interpolate linearly."""

    count: int
    p50: float | None
    p99: float | None
    max: float | None
    last: float | None


@dataclass(frozen=True)
class Figures:
    """All figures of a monitor at one moment; times are in seconds, and None means unknown.

    Attributes that are not listed are settings of the loader, and counters of FastLoader.stats().

    Attributes:
        steps, epochs, samples, all_wait_s, all_step_s: totals since the monitor was made.
        window_steps: number of the last steps, to which the other times and rates refer.
        waiting, waiting_first, load_step_ratio: parts of the loop's time spent waiting, and in epochs' first
            waits; time waited over time worked.
        wait_s, first_wait_s: waits within epochs, and the first ones, from iter() on.
        tail: share of wait_s that its slowest 5% took (fewer with many workers).
        samples_per_s, step_s: rate of the loop, and mean time worked on a batch.
        stage_s, worker_busy: seconds per sample and stage, over all workers, since the loader was made; part
            of the workers' time that they account for.
        envelope_share, envelope_bytes_share: pickled parts of batches, and of bytes.
        bad_samples: why the first bad samples failed.
        image_side, longer_sides: the longer side, in pixels, of the batches' images and of some stored ones
            that packing anew might shrink.
        mend: the change after which native threads make the batches; "" if they do, or none would help.
        splits_batches, own_collate, may_pin, copied_floats: True if several workers may make one batch, a
            function of the user's collates, pin_memory=True would change a copy, images are copied as floats.
    """

    steps: int
    epochs: int
    samples: int
    window_steps: int
    waiting: float | None
    waiting_first: float | None
    load_step_ratio: float | None
    wait_s: Waits
    first_wait_s: Waits
    tail: float | None
    samples_per_s: float | None
    step_s: float | None
    all_wait_s: float
    all_step_s: float
    engine: str | None
    workers: int | None
    cpus: int
    prefetch_factor: int | None
    persistent_workers: bool | None
    seed_by: str | None
    in_order: bool | None
    pin_memory: bool | None
    ready: int | None
    depth: int | None
    stage_s: dict[str, float]
    worker_busy: float | None
    batches: int | None
    bytes: int | None
    envelope_batches: int | None
    envelope_bytes: int | None
    envelope_share: float | None
    envelope_bytes_share: float | None
    restarts: int | None
    replaced: int | None
    skipped: int | None
    loaded: int | None
    bad_samples: tuple[str, ...]
    slow: tuple[tuple[Any, float], ...]
    image_side: int | None
    longer_sides: tuple[int, ...]
    mend: str | None
    packed: bool | None
    splits_batches: bool | None
    own_collate: bool | None
    epoch_batches: int | None
    may_pin: bool | None
    copied_floats: bool | None

    @property
    def waiting_within(self) -> float | None:
        """Part of the loop's time spent waiting inside epochs."""
        return (
            None if self.waiting is None or self.waiting_first is None else self.waiting - self.waiting_first
        )

    @property
    def stage_shares(self) -> dict[str, float]:
        """Each stage's share of a sample's time; empty if unknown."""
        whole = sum(self.stage_s.values())
        return {name: seconds / whole for name, seconds in self.stage_s.items()} if whole > 0 else {}

    def as_dict(self) -> dict[str, Any]:
        """The figures as JSON can hold them."""
        slow = [{"key": _json_key(key), "seconds": seconds} for key, seconds in self.slow]
        lists = {"slow": slow, "bad_samples": list(self.bad_samples), "longer_sides": list(self.longer_sides)}
        return {**asdict(self), "stage_share": self.stage_shares, **lists}


def measure(steps: Steps, stats: Mapping[str, Any], settings: Mapping[str, Any], side: int | None) -> Figures:
    """Computes the figures.

    `tail` uses the slowest 5% of the steps, but at most a share of 0.25 / `workers`: if one worker makes each
    batch, the batches of all other workers follow each long wait at once, and that is no spike.
    """
    wait, step, within = steps.wait_s, steps.step_s, steps.wait_s[~steps.first]
    waited, worked = float(wait.sum()), float(step.sum())
    first_waited = float(wait[steps.first].sum())
    whole = waited + worked
    rate = int(steps.samples.sum()) / whole if whole > 0 else None
    workers = _first_known(stats.get("workers"), settings.get("num_workers"))
    stage_s = _per_sample(stats)
    slots, pickled = stats.get("bytes"), stats.get("envelope_bytes")
    busy = [stage_s[name] for name in WORKER_STAGES if name in stage_s]
    return Figures(
        steps=steps.steps,
        epochs=steps.epochs,
        samples=steps.all_samples,
        window_steps=len(wait),
        waiting=waited / whole if whole > 0 else None,
        waiting_first=first_waited / whole if whole > 0 else None,
        load_step_ratio=waited / worked if worked > 0 else None,
        wait_s=_waits(within),
        first_wait_s=_waits(wait[steps.first]),
        tail=_tail(within, min(TAIL, 0.25 / max(1, workers or 1))),
        samples_per_s=rate,
        step_s=worked / len(wait) if len(wait) else None,
        all_wait_s=steps.all_wait_s,
        all_step_s=steps.all_step_s,
        engine=stats.get("engine"),
        workers=workers,
        cpus=available_cpus(),
        prefetch_factor=settings.get("prefetch_factor"),
        persistent_workers=settings.get("persistent_workers"),
        seed_by=settings.get("seed_by"),
        in_order=settings.get("in_order"),
        pin_memory=settings.get("pin_memory"),
        ready=stats.get("ready"),
        depth=stats.get("depth"),
        stage_s=stage_s,
        worker_busy=sum(busy) * rate / workers if busy and rate is not None and workers else None,
        batches=stats.get("batches"),
        bytes=stats.get("bytes"),
        envelope_batches=stats.get("envelope_batches"),
        envelope_bytes=stats.get("envelope_bytes"),
        envelope_share=_part(stats.get("envelope_batches"), stats.get("batches")),
        envelope_bytes_share=_part(pickled, None if pickled is None or slots is None else slots + pickled),
        restarts=stats.get("restarts"),
        replaced=stats.get("replaced"),
        skipped=stats.get("skipped"),
        loaded=stats.get("loaded"),
        bad_samples=tuple(stats.get("bad_samples", ())),
        slow=tuple(
            sorted(
                ((key, float(seconds)) for key, seconds in stats.get("slow", ())), key=lambda pair: -pair[1]
            )
        ),
        image_side=side,
        longer_sides=tuple(settings.get("longer_sides", ())),
        **{name: settings.get(name) for name in _FACTS},
    )


def _waits(found: npt.NDArray[np.float64]) -> Waits:
    if not len(found):
        return Waits(0, None, None, None, None)
    p50, p99 = np.quantile(found, (0.5, 0.99)).tolist()
    return Waits(len(found), p50, p99, float(found.max()), float(found[-1]))


def _tail(found: npt.NDArray[np.float64], part: float) -> float | None:
    """The share of the sum in the largest values: the share `part` of them, at least one. None for fewer
    than 1 / TAIL values."""
    whole = float(found.sum())
    if len(found) < 1 / TAIL or whole <= 0:
        return None
    largest = max(1, int(len(found) * part))
    return float(np.sort(found)[-largest:].sum()) / whole


def _per_sample(stats: Mapping[str, Any]) -> dict[str, float]:
    """Seconds per sample by stage, known stages in their order; empty before the first sample."""
    seconds: Mapping[str, float] = stats.get("stage_seconds") or {}
    samples = stats.get("samples") or 0
    names: Iterable[str] = [
        *(name for name in STAGES if name in seconds),
        *(name for name in seconds if name not in STAGES),
    ]
    return {name: float(seconds[name]) / samples for name in names} if samples > 0 else {}


def _part(some: float | None, whole: float | None) -> float | None:
    return some / whole if some is not None and whole else None


def _first_known(*values: _T | None) -> _T | None:
    return next((value for value in values if value is not None), None)


def _json_key(key: object) -> str | int:
    return key if isinstance(key, str | int) else str(key)
