"""What is done to whole batches, in order: what the transform leaves to the device, then batch_transform=.

NOTE [ entries: one list, one numbering ]
Every AugmentBatch of a loader, made from the plan or given by the user, counts its ops on from those before it, over the whole list:
equal ops at two places draw different numbers, and what a sample gets does not depend on how the list is cut into calls.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from itertools import chain
from typing import Any

import torch

from fastload.device.image_form import of_batches
from fastload.device.to_float import DTYPES, Floats, Form
from fastload.errors import ArgumentError
from fastload.plan import DeviceOp, Plan
from fastload.plan.compiler import label
from fastload.transforms import Normalize, ToFloat

_FLOATS = ("ToFloat", "Normalize")
_TWICE = "Normalize or ToFloat both in the transform and in batch_transform=: drop one of them"
_NO_BYTES = "dtype=uint8 with ToFloat or Normalize in the transform: drop one of them"


@dataclass(frozen=True)
class Factories:
    """What only the floor above can make, since it needs Kornia.

    Attributes:
        seeded: wraps a callable that draws from the global generators (fastload.augment's Seeded).
        augment: an AugmentBatch of a plan's ops.
    """

    seeded: Callable[[Callable[..., Any]], Callable[..., Any]]
    augment: Callable[[Sequence[DeviceOp]], Any]


@dataclass(frozen=True)
class BatchStage:
    """One thing done to whole batches.

    Attributes:
        names: of the stages that it stands for, as explain() shows them.
        call: what is called with them; None where that is still to be made of `ops`.
        ops: of a plan, one for each name.
    """

    names: tuple[str, ...]
    call: Any = None
    ops: tuple[DeviceOp, ...] = ()


def has_floats(transform: Any) -> bool:
    """Whether a batch_transform has a Normalize or ToFloat."""
    return any(isinstance(entry, ToFloat | Normalize) for entry in listed(transform))


def listed(transform: Any) -> list[Any]:
    """A batch_transform as a list."""
    return [] if transform is None else list(transform) if isinstance(transform, list | tuple) else [transform]


def entries_of(loader: Any, plan: Plan | None) -> list[BatchStage]:
    """The entries of a loader whose engine does the native part of `plan` (None: it has another engine).

    Raises:
        ArgumentError: floats twice: in the transform and in batch_transform=, or two Normalize, or dtype=uint8 with either.
    """
    settings = loader._fastload.settings
    dtype = settings.dtype if settings.dtype in DTYPES else None
    form = Floats(dtype or torch.float32, memory_format=settings.memory_format or torch.contiguous_format)
    mine = [BatchStage((label(each),), _own(each, form)) for each in listed(settings.batch_transform)]
    if settings.dtype == torch.uint8 and has_floats(settings.batch_transform):
        raise ArgumentError("dtype=uint8 with ToFloat or Normalize in batch_transform=: drop one of them")
    if plan is None:
        given = form_of(loader)
        first = [] if given is None or not of_batches(loader) else [BatchStage((f"to {given}",), given)]
        return [*first, *_merged(mine)]
    floats = plan.to_float or any(op.name in _FLOATS for op in plan.device)
    if floats and has_floats(settings.batch_transform):
        raise ArgumentError(_TWICE)
    if floats and settings.dtype == torch.uint8:
        raise ArgumentError(_NO_BYTES)
    bare = () if floats or dtype is None or has_floats(settings.batch_transform) else (BatchStage((f"to {dtype}",), form),)
    if not plan.device and not floats_on_device(loader, plan):
        return _merged(mine)
    return _merged([*_planned(loader, plan, form), *bare, *mine])


def form_of(loader: Any) -> Form | None:
    """What dtype= and memory_format= ask of the images of packed data that Python makes; None where nobody asks, or other steps do it.

    Raises:
        ArgumentError: floats twice, dtype=uint8 with floats in the transform, or no image is asked for.
    """
    settings, data = loader._fastload.settings, loader._fastload.packed.data
    if data is None or data.native is not None:
        return None
    floats = any(dataset.plan.to_float for dataset in data.view.datasets)
    if floats and has_floats(settings.batch_transform):
        raise ArgumentError(_TWICE)
    if floats and settings.dtype == torch.uint8:
        raise ArgumentError(_NO_BYTES)
    if settings.dtype is None and settings.memory_format is None:
        return None
    if any(dataset.image_field not in dataset.fields for dataset in data.view.datasets):
        raise ArgumentError("dtype= and memory_format= act on images, and fields= leaves them out")
    return None if has_floats(settings.batch_transform) else Form(settings.dtype, settings.memory_format)


def floats_on_device(loader: Any, plan: Plan) -> bool:
    """Whether bytes become floats by an entry, and not in the native pass."""
    on_cuda = loader._fastload.settings.device is not None and loader._fastload.settings.device.type == "cuda"
    return on_cuda or has_floats(loader._fastload.settings.batch_transform) or any(op.name in _FLOATS for op in plan.device)


def _planned(loader: Any, plan: Plan, form: Floats) -> list[BatchStage]:
    """Of the plan: float32 between two conversions, the last one writes the dtype asked for."""
    names = {stage.position: f"{stage.position} {stage.name}" for stage in plan.stages}
    out: list[BatchStage] = []
    if plan.to_float and floats_on_device(loader, plan):
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


def in_few(entries: Sequence[BatchStage]) -> list[BatchStage]:
    """Neighbours of the plan's ops as one entry, for the loop."""
    out: list[BatchStage] = []
    for entry in entries:
        if entry.ops and out and out[-1].ops:
            out[-1] = BatchStage(out[-1].names + entry.names, ops=out[-1].ops + entry.ops)
        else:
            out.append(entry)
    return out


def numbered(entries: Sequence[BatchStage], factories: Factories) -> list[BatchStage]:
    """The entries with their calls; see NOTE [ entries: one list, one numbering ]."""
    out, first = [], 0
    for entry in entries:
        call = factories.augment(entry.ops) if entry.ops else entry.call
        if _counts(call):
            call = call.numbered(first)
            first += len(call.ops)
        out.append(BatchStage(entry.names, call, entry.ops))
    return out


def one_by_one(entries: Sequence[BatchStage]) -> list[BatchStage]:
    """Numbered entries with one op each, for explain()."""
    return list(chain.from_iterable(_apart(entry) for entry in entries))


def _apart(entry: BatchStage) -> list[BatchStage]:
    if not _counts(entry.call):
        return [entry]
    parts = entry.call.apart()
    names = entry.names if entry.ops else [label(part.ops[0]) for part in parts]
    return [BatchStage((name,), part) for name, part in zip(names, parts, strict=True)]


def _counts(call: Any) -> bool:
    """An AugmentBatch, which this floor does not import."""
    return callable(getattr(call, "numbered", None)) and callable(getattr(call, "apart", None))
