"""A loader's device=, batch_transform=, dtype= and memory_format=, resolved into a Moving."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import torch

from fastload.delivery.batch_steps import IMAGE, LABEL, Seeding, Step, steps_of
from fastload.delivery.floats import DTYPES, Floats
from fastload.delivery.packed_epochs import native_view
from fastload.delivery.transfer import Moving
from fastload.errors import ArgumentError
from fastload.transforms import Normalize, ToFloat


def moving_of(loader: Any, seeded: Seeding) -> Moving:
    """Where the loader's next pass delivers, and what is done there. The steps are made anew only when what they follow from has changed.

    Raises:
        ArgumentError: a batch_transform that cannot be called, or a second Normalize.
    """
    image = IMAGE if loader._view is None else loader._view.datasets[0].image_field
    pin = loader.pin_memory and torch.accelerator.is_available()
    return Moving(loader.device, pin, _steps(loader, seeded), (image, LABEL), loader.device_prefetch)


def floats_on_device(loader: Any) -> bool:
    """Whether bytes become floats there, and not in the native pass."""
    return (loader.device is not None and loader.device.type == "cuda") or has_floats(loader.batch_transform)


def has_floats(transform: Any) -> bool:
    """Whether a batch_transform has a Normalize or ToFloat."""
    return any(isinstance(entry, ToFloat | Normalize) for entry in listed(transform))


def listed(transform: Any) -> list[Any]:
    """A batch_transform as a list."""
    return [] if transform is None else list(transform) if isinstance(transform, list | tuple) else [transform]


def _steps(loader: Any, seeded: Seeding) -> tuple[Step, ...]:
    view = native_view(loader._view)
    plan = None if view is None else view.datasets[0].plan
    made_from = (
        loader.batch_transform,
        None if plan is None else plan.values,
        loader.dtype,
        loader.memory_format,
        floats_on_device(loader),
    )
    if loader._steps is None or loader._steps[0] != made_from:
        dtype = loader.dtype if loader.dtype in DTYPES else None
        form = Floats(dtype or torch.float32, memory_format=loader.memory_format or torch.channels_last)
        entries = _merged(listed(loader.batch_transform), form)
        if plan is not None and floats_on_device(loader):
            if plan.to_float and any(isinstance(entry, Floats) for entry in entries):
                raise ArgumentError("Normalize or ToFloat both in the transform and in batch_transform=: drop one of them")
            if plan.to_float or (dtype is not None and not has_floats(loader.batch_transform)):
                entries.insert(0, replace(form, mean=plan.mean, std=plan.std, reciprocal=plan.reciprocal))
        loader._steps = made_from, steps_of(entries, seeded)
    steps: tuple[Step, ...] = loader._steps[1]
    return steps


def _merged(entries: Sequence[Any], form: Floats) -> list[Any]:
    """ToFloat and Normalize as Floats, neighbours as one."""
    out: list[Any] = []
    for entry in entries:
        if not isinstance(entry, ToFloat | Normalize):
            out.append(entry)
            continue
        floats = replace(form, mean=entry.mean, std=entry.std) if isinstance(entry, Normalize) else form
        before = out[-1] if out and isinstance(out[-1], Floats) else None
        if before is not None and before.mean is not None:
            raise ArgumentError(f"batch_transform: {entry!r} after Normalize: drop it")
        out[len(out) - (before is not None) :] = [floats]
    return out
