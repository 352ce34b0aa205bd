"""The last steps of a loop, as arrays."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from fastload._native import core


@dataclass(frozen=True)
class Steps:
    """The last steps of a loop, copied from a ring at one moment.

    Attributes:
        wait_s, step_s: float64, one entry a step, oldest first: seconds spent waiting for its batch, then
            working on it.
        samples: int64, number of samples in the step's batch.
        first: bool, whether the step's batch was the first of its epoch.
        steps, epochs, all_samples, all_wait_s, all_step_s: totals since the ring was made, forgotten steps
            included.
    """

    wait_s: npt.NDArray[np.float64]
    step_s: npt.NDArray[np.float64]
    samples: npt.NDArray[np.int64]
    first: npt.NDArray[np.bool_]
    steps: int
    epochs: int
    all_samples: int
    all_wait_s: float
    all_step_s: float


def steps_of(ring: core.StepRing) -> Steps:
    """The steps that the ring holds now."""
    wait_s, step_s, samples, at, totals = ring.copy()
    steps = totals[0]
    held, oldest = (steps, 0) if steps < ring.window else (ring.window, at)
    counted = np.roll(np.frombuffer(samples, np.int64)[:held], -oldest)
    first = counted < 0
    return Steps(
        np.roll(np.frombuffer(wait_s, np.float64)[:held], -oldest),
        np.roll(np.frombuffer(step_s, np.float64)[:held], -oldest),
        np.where(first, ~counted, counted),
        first,
        *totals,
    )
