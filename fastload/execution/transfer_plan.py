"""Resolves device=, batch_transform=, dtype=, memory_format= and the device's part of the transform into a TransferPlan."""

from __future__ import annotations

from typing import Any

import torch

from fastload.device.batch_transform import BatchStage, Factories, entries_of, form_of, in_few, listed, numbered, one_by_one
from fastload.device.image_form import of_batches
from fastload.device.stage_call import IMAGE, LABEL, StageCall, stage_calls
from fastload.device.transfer import TransferPlan
from fastload.plan import Plan
from fastload.threads.epochs import native_view


def transfer_plan_of(loader: Any, factories: Factories) -> TransferPlan:
    """Where the loader's next pass delivers, and what is done there. The steps are made anew only when what they follow from has changed.

    Raises:
        ArgumentError: a batch_transform that cannot be called, or what entries_of refuses.
    """
    state = loader._fastload
    settings, data = state.settings, state.packed.data
    image = IMAGE if data is None else data.view.datasets[0].image_field
    pin = loader.pin_memory and torch.accelerator.is_available()
    return TransferPlan(settings.device, pin, _steps(loader, factories), (image, LABEL), settings.device_prefetch, state.timer)


def shown_steps(loader: Any, factories: Factories) -> list[tuple[BatchStage, StageCall]]:
    """The same steps for explain(): what one call does of several ops as one each."""
    entries = one_by_one(numbered(entries_of(loader, _plan(loader)), factories))
    return list(zip(entries, stage_calls([entry.call for entry in entries], factories.seeded), strict=True))


def _plan(loader: Any) -> Plan | None:
    view = native_view(loader)
    return None if view is None else view.datasets[0].plan


def _steps(loader: Any, factories: Factories) -> tuple[StageCall, ...]:
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
        entries = numbered(in_few(entries_of(loader, plan)), factories)
        state.steps = made_from, stage_calls([entry.call for entry in entries], factories.seeded)
    steps: tuple[StageCall, ...] = state.steps[1]
    return steps
