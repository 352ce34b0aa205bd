"""What is done to whole batches: decided from the settings and what the transform leaves to the device."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import torch

from fastload.device.batch_transform import BatchStage, numbered, one_by_one
from fastload.device.stage_call import StageCall, stage_calls
from fastload.device.to_float import DTYPES, Floats, Form
from fastload.errors import ArgumentError
from fastload.execution.packed_data import PackedData
from fastload.execution.settings import Settings
from fastload.plan import DeviceOp, Plan
from fastload.plan.compiler import label
from fastload.transforms import Normalize, ToFloat

_FLOATS = ("ToFloat", "Normalize")
_TWICE = "Normalize or ToFloat both in the transform and in batch_transform=: drop one of them"
_NO_BYTES = "dtype=uint8 with ToFloat or Normalize in the transform: drop one of them"


class BatchStages:
    """The stages of whole batches of one loader: the same callables for as long as what they follow from is the same."""

    def __init__(self) -> None:
        self._made_from: tuple[Any, ...] = ()
        self._calls: tuple[StageCall, ...] = ()

    def calls(self, settings: Settings, data: PackedData | None) -> tuple[StageCall, ...]:
        """The stages as they are called.

        Raises:
            ArgumentError: an entry of batch_transform cannot be called, or what stages_of refuses.
        """
        form = form_of(settings, data)
        values = None if data is None or data.native is None else data.native.datasets[0].plan.values
        asked = settings.dtype, settings.memory_format, settings.device
        made_from = (settings.batch_transforms, values, *asked, form, settings.by_default_collate)
        if self._made_from != made_from:
            entries = numbered(_in_few(stages_of(settings, data)), _augment)
            self._made_from, self._calls = made_from, stage_calls([entry.call for entry in entries], _seeded)
        return self._calls


def explained_stages(settings: Settings, data: PackedData | None) -> list[tuple[BatchStage, StageCall]]:
    """The same stages for explain(): one each for the ops that one call does."""
    entries = one_by_one(numbered(stages_of(settings, data), _augment))
    return list(zip(entries, stage_calls([entry.call for entry in entries], _seeded), strict=True))


def stages_of(settings: Settings, data: PackedData | None) -> list[BatchStage]:
    """The stages of whole batches, in order.

    Raises:
        ArgumentError: floats twice: in the transform and in batch_transform=, or two Normalize, or dtype=uint8 with either.
    """
    dtype = settings.dtype if settings.dtype in DTYPES else None
    form = Floats(dtype or torch.float32, memory_format=settings.memory_format or torch.contiguous_format)
    mine = [BatchStage((label(each),), _own(each, form)) for each in settings.batch_transforms]
    if settings.dtype == torch.uint8 and settings.has_floats:
        raise ArgumentError("dtype=uint8 with ToFloat or Normalize in batch_transform=: drop one of them")
    if data is None or data.native is None:
        given = form_of(settings, data)
        first = [] if given is None or not settings.by_default_collate else [BatchStage((f"to {given}",), given)]
        return [*first, *_merged(mine)]
    plan = data.native.datasets[0].plan
    floats = plan.to_float or any(op.name in _FLOATS for op in plan.device)
    if floats and settings.has_floats:
        raise ArgumentError(_TWICE)
    if floats and settings.dtype == torch.uint8:
        raise ArgumentError(_NO_BYTES)
    bare = () if floats or dtype is None or settings.has_floats else (BatchStage((f"to {dtype}",), form),)
    if not plan.device and not floats_on_device(settings, plan):
        return _merged(mine)
    return _merged([*_planned(settings, plan, form), *bare, *mine])


def form_of(settings: Settings, data: PackedData | None) -> Form | None:
    """What dtype= and memory_format= ask of the images of packed data that Python makes; None where nobody asks, or other steps do it.

    Raises:
        ArgumentError: floats twice, dtype=uint8 with floats in the transform, or no image is asked for.
    """
    if data is None or data.native is not None:
        return None
    floats = any(dataset.plan.to_float for dataset in data.view.datasets)
    if floats and settings.has_floats:
        raise ArgumentError(_TWICE)
    if floats and settings.dtype == torch.uint8:
        raise ArgumentError(_NO_BYTES)
    if settings.dtype is None and settings.memory_format is None:
        return None
    if any(dataset.image_field not in dataset.fields for dataset in data.view.datasets):
        raise ArgumentError("dtype= and memory_format= act on images, and fields= leaves them out")
    return None if settings.has_floats else Form(settings.dtype, settings.memory_format)


def floats_on_device(settings: Settings, plan: Plan) -> bool:
    """Whether bytes become floats by an entry, and not in the native pass."""
    on_cuda = settings.device is not None and settings.device.type == "cuda"
    return on_cuda or settings.has_floats or any(op.name in _FLOATS for op in plan.device)


def _planned(settings: Settings, plan: Plan, form: Floats) -> list[BatchStage]:
    """Of the plan: float32 between two conversions, the last one writes the dtype asked for."""
    names = {stage.position: f"{stage.position} {stage.name}" for stage in plan.stages}
    out: list[BatchStage] = []
    if plan.to_float and floats_on_device(settings, plan):
        native = tuple(names[position] for position in plan.floats)
        out.append(BatchStage(native, Floats(mean=plan.mean, std=plan.std, reciprocal=plan.reciprocal)))
    for op in plan.device:
        at = (names[op.position],)
        if op.name in _FLOATS:
            out.append(BatchStage(at, Floats(**op.arguments)))
        else:
            out.append(BatchStage(at, ops=(op,)))
    last = max((number for number, entry in enumerate(out) if isinstance(entry.call, Floats)), default=-1)
    for number, entry in enumerate(out):
        if isinstance(entry.call, Floats):
            dtype = form.dtype if number == last else torch.float32
            out[number] = replace(entry, call=replace(entry.call, dtype=dtype, memory_format=form.memory_format))
    return out


def _own(entry: Any, form: Floats) -> Any:
    if isinstance(entry, Normalize):
        return replace(form, mean=entry.mean, std=entry.std)
    return form if isinstance(entry, ToFloat) else entry


def _merged(entries: Sequence[BatchStage]) -> list[BatchStage]:
    """Neighbouring conversions as one."""
    out: list[BatchStage] = []
    for entry in entries:
        before = out[-1].call if out else None
        if not isinstance(entry.call, Floats) or not isinstance(before, Floats):
            out.append(entry)
            continue
        if before.mean is not None:
            raise ArgumentError(f"batch_transform: {entry.names[0]} after Normalize: drop it")
        names = tuple(dict.fromkeys(out[-1].names + entry.names))
        out[-1] = BatchStage(names, replace(entry.call, reciprocal=before.reciprocal))
    return out


def _in_few(entries: Sequence[BatchStage]) -> list[BatchStage]:
    """Neighbours of the plan's ops as one entry, for the loop."""
    out: list[BatchStage] = []
    for entry in entries:
        if entry.ops and out and out[-1].ops:
            out[-1] = BatchStage(out[-1].names + entry.names, ops=out[-1].ops + entry.ops)
        else:
            out.append(entry)
    return out


def _seeded(transform: Callable[..., Any]) -> Callable[..., Any]:
    """A callable that draws from the global generators, made a function of (seed, epoch, batch)."""
    from fastload.augment import Seeded  # needs Kornia, and only this does

    return Seeded(transform)


def _augment(ops: Sequence[DeviceOp]) -> Any:
    """An AugmentBatch of what a plan leaves to a device."""
    from fastload import augment

    return augment.AugmentBatch([getattr(augment, op.name)(**op.arguments) for op in ops])
