"""A monitor fed with constructed steps and counters."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from types import SimpleNamespace
from typing import Any

from fastload._native import core
from fastload.health import Figures
from fastload.health.figures import measure
from fastload.health.ring import steps_of

Step = tuple[float, float, int, bool]


def figures_of(
    steps: Iterable[Step],
    stats: Mapping[str, Any] | None = None,
    *,
    cpus: int = 4,
    side: int | None = None,
    **settings: Any,
) -> Figures:
    """The figures of these steps, as a machine with that many CPUs sees them."""
    ring = core.StepRing(1000)
    for step in steps:
        ring.add(*step)
    found = measure(steps_of(ring), stats or {}, settings, side)
    return Figures(**{**vars(found), "cpus": cpus})


def steady(
    wait_s: float, step_s: float, count: int = 200, samples: int = 64, first_s: float | None = None
) -> list[Step]:
    """One epoch of equal steps; its first wait is first_s, if given."""
    return [(wait_s if i or first_s is None else first_s, step_s, samples, i == 0) for i in range(count)]


class Loader:
    """An iterable that counts, as FastLoader does, and has settings."""

    def __init__(self, batches: list[Any], stats: dict[str, Any], **settings: Any) -> None:
        self.batches = batches
        self.counted = stats
        self.told = SimpleNamespace(epoch=None)
        vars(self).update(settings)

    def __iter__(self) -> Any:
        return iter(self.batches)

    def __len__(self) -> int:
        return len(self.batches)

    def stats(self) -> dict[str, Any]:
        return self.counted

    def set_epoch(self, epoch: int) -> None:
        self.told.epoch = epoch


FULL_STATS: dict[str, Any] = {
    "engine": "processes",
    "workers": 2,
    "batches": 200,
    "samples": 12800,
    "bytes": 1000000,
    "ready": 1,
    "depth": 4,
    "stage_seconds": {"collate": 1.28, "python": 12.8, "warp": 0.128},
    "envelope_batches": 50,
    "envelope_bytes": 20000,
    "slot_bytes": 4096,
    "slots": 5,
    "restarts": 1,
    "replaced": 2,
    "skipped": 3,
    "slow": [("b.jpg", 0.2), (("c", 1), 0.4), (7, 0.3)],
}
"""Every counter of the contract, and a stage that it does not name."""
