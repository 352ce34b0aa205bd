"""A loader's device=, batch_transform=, dtype= and memory_format=, and what its transform leaves to the device, resolved into a Moving."""

from __future__ import annotations

from typing import Any

import torch

from fastload.delivery.batch_steps import IMAGE, LABEL, Step, steps_of
from fastload.delivery.entries import Entry, Makers, entries_of, form_of, in_few, listed, numbered, one_by_one
from fastload.delivery.forms import of_batches
from fastload.delivery.packed_epochs import native_view
from fastload.delivery.transfer import Moving
from fastload.plan import Plan


def moving_of(loader: Any, makers: Makers) -> Moving:
    """Where the loader's next pass delivers, and what is done there. The steps are made anew only when what they follow from has changed.

    Raises:
        ArgumentError: a batch_transform that cannot be called, or what entries_of refuses.
    """
    state = loader._fastload
    settings, data = state.settings, state.packed.data
    image = IMAGE if data is None else data.view.datasets[0].image_field
    pin = loader.pin_memory and torch.accelerator.is_available()
    return Moving(settings.device, pin, _steps(loader, makers), (image, LABEL), settings.device_prefetch, state.spent)


def shown_steps(loader: Any, makers: Makers) -> list[tuple[Entry, Step]]:
    """The same steps for explain(): what one call does of several ops as one each."""
    entries = one_by_one(numbered(entries_of(loader, _plan(loader)), makers))
    return list(zip(entries, steps_of([entry.call for entry in entries], makers.seeded), strict=True))


def _plan(loader: Any) -> Plan | None:
    view = native_view(loader)
    return None if view is None else view.datasets[0].plan


def _steps(loader: Any, makers: Makers) -> tuple[Step, ...]:
    plan, state = _plan(loader), loader._fastload
    settings = state.settings
    made_from = (
        listed(settings.batch_transform),
        None if plan is None else plan.values,
        settings.dtype,
        settings.memory_format,
        settings.device,
        form_of(loader),
        of_batches(loader),
    )
    if state.steps is None or state.steps[0] != made_from:
        entries = numbered(in_few(entries_of(loader, plan)), makers)
        state.steps = made_from, steps_of([entry.call for entry in entries], makers.seeded)
    steps: tuple[Step, ...] = state.steps[1]
    return steps
