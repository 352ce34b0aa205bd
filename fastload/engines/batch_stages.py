"""Batch stages: the callables applied to whole batches, chosen from the settings and from the ops that the
plan leaves to the device."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import torch

from fastload.dataset.native_data import NativeData
from fastload.device.stages import BatchStage, StageCall, has_numbers, numbered, one_by_one, stage_calls
from fastload.device.to_float import DTYPES, Floats, TensorForm
from fastload.engines.of_kornia import per_sample, settings_of
from fastload.engines.settings import Settings
from fastload.errors import ArgumentError
from fastload.transforms.compiler import label
from fastload.transforms.ops import Normalize, ToFloat
from fastload.transforms.spec import DeviceOp, Plan

_FLOATS = ("ToFloat", "Normalize")
_TWICE = "Normalize or ToFloat both in the transform and in batch_transform=: drop one of them"
_NO_BYTES = "dtype=uint8 with ToFloat or Normalize in the transform: drop one of them"


class BatchStages:
    """Cache of one loader's batch stages: the callables are made again only when the settings or the plan
    that they depend on change."""

    def __init__(self) -> None:
        self._made_from: tuple[Any, ...] = ()
        self._calls: tuple[StageCall, ...] = ()

    def calls(self, settings: Settings, data: NativeData | None) -> tuple[StageCall, ...]:
        """The callables of all stages, in order.

        Raises:
            ArgumentError: an element of batch_transform= is not callable, or stages_of() raises it.
        """
        form = form_of(settings, data)
        values = None if data is None or data.native is None else data.native.datasets[0].plan.values
        asked = settings.dtype, settings.memory_format, settings.device
        views = 0 if data is None else len(data.view.datasets[0].plan.views)
        of_kornia = settings_of(settings.batch_transforms)
        made_from = (
            settings.batch_transforms,
            of_kornia,
            values,
            views,
            *asked,
            form,
            settings.by_default_collate,
            native_ops(data),
        )
        if self._made_from != made_from:
            stages = numbered(_join_ops(stages_of(settings, data)), _augment, native_ops(data))
            self._made_from, self._calls = made_from, _stage_calls(stages)
        return self._calls


def explained_stages(settings: Settings, data: NativeData | None) -> list[tuple[BatchStage, StageCall]]:
    """The batch stages for explain(): one stage for each op, even where the loop runs several ops in one
    call."""
    stages = one_by_one(numbered(stages_of(settings, data), _augment, native_ops(data)))
    return list(zip(stages, _stage_calls(stages), strict=True))


def native_ops(data: NativeData | None) -> int:
    """Number of ops on batches that native steps of the transform stand for."""
    view = None if data is None else data.native or data.view
    return 0 if view is None else max(each.plan.augmented for each in view.datasets)


def stages_of(settings: Settings, data: NativeData | None) -> list[BatchStage]:
    """The stages of whole batches, in order.

    Raises:
        ArgumentError: a conversion to floats is in both the transform and batch_transform=, there are two
            Normalize, or dtype=uint8 is given with either.
    """
    dtype = settings.dtype if settings.dtype in DTYPES else None
    form = Floats(dtype or torch.float32, memory_format=settings.memory_format or torch.contiguous_format)
    mine = [
        BatchStage((label(each),), _call_of(each, form, settings, data)) for each in settings.batch_transforms
    ]
    if settings.dtype == torch.uint8 and settings.has_floats:
        raise ArgumentError("dtype=uint8 with ToFloat or Normalize in batch_transform=: drop one of them")
    views = () if data is None else data.view.datasets[0].plan.views
    if views:
        _check_views(settings, len(views))
    if data is None or data.native is None:
        given = form_of(settings, data)
        first = (
            [] if given is None or not settings.by_default_collate else [BatchStage((f"to {given}",), given)]
        )
        alone = [*first, *_merged(mine)]
        return [stage for view in range(len(views)) for stage in _of_view(alone, view)] if views else alone
    plan, only_rgb = data.native.datasets[0].plan, data.native.datasets[0].images.only_rgb
    if plan.views:
        each = [_of_plan(settings, view, form, mine, only_rgb) for view in plan.views]
        return [stage for view, stages in enumerate(each) for stage in _of_view(stages, view)]
    return _of_plan(settings, plan, form, mine, only_rgb)


def _of_plan(
    settings: Settings, plan: Plan, form: Floats, mine: Sequence[BatchStage], only_rgb: bool
) -> list[BatchStage]:
    """The stages of the images of one native plan; `mine` are those of batch_transform=. Unless there is one
    image, of 8-bit RGB (`only_rgb`), the native pass makes the floats."""
    dtype = settings.dtype if settings.dtype in DTYPES else None
    if plan.patches is not None:
        if not all(isinstance(stage.call, Floats) for stage in mine):
            raise ArgumentError(
                "batch_transform= is for images, of which Patches makes patches: ToFloat and Normalize alone "
                "take them"
            )
        kept = form.dtype if plan.dtype in (None, "uint8") else getattr(torch, plan.dtype)
        form = replace(form, dtype=dtype or kept, memory_format=torch.contiguous_format)
    floats = plan.to_float or any(op.name in _FLOATS for op in plan.device)
    if floats and settings.has_floats:
        raise ArgumentError(_TWICE)
    if floats and settings.dtype == torch.uint8:
        raise ArgumentError(_NO_BYTES)
    bare = () if floats or dtype is None or settings.has_floats else (BatchStage((f"to {dtype}",), form),)
    if not plan.device and not (floats_on_device(settings, plan) and (only_rgb or settings.has_floats)):
        return _merged(mine)
    return _merged([*_planned(settings, plan, form), *bare, *mine])


def _of_view(stages: Sequence[BatchStage], view: int) -> list[BatchStage]:
    """The stages, named and numbered for one view."""
    return [
        replace(stage, names=tuple(_named(name, view) for name in stage.names), view=view) for stage in stages
    ]


def _named(name: str, view: int) -> str:
    prefix = f"view {view + 1}: "
    return name if prefix in name else f"{prefix}{name}"


def _check_views(settings: Settings, count: int) -> None:
    """Refuses what cannot be done to each view of a batch by itself."""
    for each in settings.batch_transforms:
        if isinstance(each, ToFloat | Normalize) or has_numbers(each):
            continue
        [call] = stage_calls([each], _seeded)
        if call.labels:
            raise ArgumentError(
                f"batch_transform: {each!r} mixes images and labels, and a sample has {count} views: "
                "mix them in the loop"
            )
        if "indices" in call.keys:
            raise ArgumentError(
                f"batch_transform: {each!r} draws from (seed, epoch, indices), and so the same for "
                f"each of the {count} views: "
                "wrap it in fastload.augment's Seeded, which seeds each view"
            )


def _stage_calls(stages: Sequence[BatchStage]) -> tuple[StageCall, ...]:
    calls = stage_calls([stage.call for stage in stages], _seeded)
    return tuple(
        call if stage.view is None else replace(call, view=stage.view)
        for stage, call in zip(stages, calls, strict=True)
    )


def form_of(settings: Settings, data: NativeData | None) -> TensorForm | None:
    """Conversion that dtype= and memory_format= request for images of packed data made in Python.

    Returns None if neither is given, or if another stage or the native pass does the conversion.

    Raises:
        ArgumentError: a conversion to floats is in both the transform and batch_transform=, or in the
            transform with dtype=uint8, or fields= leaves the images out.
    """
    if data is None or data.native is not None:
        return None
    floats = any(
        plan.to_float for dataset in data.view.datasets for plan in (dataset.plan, *dataset.plan.views)
    )
    if floats and settings.has_floats:
        raise ArgumentError(_TWICE)
    if floats and settings.dtype == torch.uint8:
        raise ArgumentError(_NO_BYTES)
    if settings.dtype is None and settings.memory_format is None:
        return None
    if any(dataset.image_field not in dataset.fields for dataset in data.view.datasets):
        raise ArgumentError("dtype= and memory_format= act on images, and fields= leaves them out")
    return None if settings.has_floats else TensorForm(settings.dtype, settings.memory_format)


def floats_on_device(settings: Settings, plan: Plan) -> bool:
    """Returns True if a batch stage, and not the native pass, converts bytes to floats."""
    apart = settings.collation is not None and settings.collation.form == "list"
    on_cuda = settings.device is not None and settings.device.type == "cuda" and not apart
    return on_cuda or settings.has_floats or any(op.name in _FLOATS for op in plan.device)


def _planned(settings: Settings, plan: Plan, form: Floats) -> list[BatchStage]:
    """The stages that the plan leaves to the device. Every conversion gives float32, but the last gives
    the requested dtype."""
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
    last = max((number for number, stage in enumerate(out) if isinstance(stage.call, Floats)), default=-1)
    for number, stage in enumerate(out):
        if isinstance(stage.call, Floats):
            dtype = form.dtype if number == last else torch.float32
            out[number] = replace(
                stage, call=replace(stage.call, dtype=dtype, memory_format=form.memory_format)
            )
    return out


def _call_of(transform: object, form: Floats, settings: Settings, data: NativeData | None) -> object:
    """The callable for an element of batch_transform=: a conversion like `form` for ToFloat and Normalize;
    Kornia's, see per_sample()."""
    if isinstance(transform, Normalize):
        return replace(form, mean=transform.mean, std=transform.std)
    return form if isinstance(transform, ToFloat) else per_sample(transform, settings, data is not None)


def _merged(stages: Sequence[BatchStage]) -> list[BatchStage]:
    """Merges adjacent conversions to floats into one stage."""
    out: list[BatchStage] = []
    for stage in stages:
        before = out[-1].call if out else None
        if not isinstance(stage.call, Floats) or not isinstance(before, Floats):
            out.append(stage)
            continue
        if before.mean is not None:
            raise ArgumentError(f"batch_transform: {stage.names[0]} after Normalize: drop it")
        names = tuple(dict.fromkeys(out[-1].names + stage.names))
        out[-1] = BatchStage(names, replace(stage.call, reciprocal=before.reciprocal))
    return out


def _join_ops(stages: Sequence[BatchStage]) -> list[BatchStage]:
    """Merges adjacent planned ops into one stage, so that each batch makes one call."""
    out: list[BatchStage] = []
    for stage in stages:
        if stage.ops and out and out[-1].ops and out[-1].view == stage.view:
            out[-1] = replace(stage, names=out[-1].names + stage.names, ops=out[-1].ops + stage.ops)
        else:
            out.append(stage)
    return out


def _seeded(transform: Callable[..., Any]) -> Callable[..., Any]:
    """Wraps a callable that draws from the global generators, so that its result depends on (seed, epoch,
    batch) alone."""
    from fastload.augment import Seeded  # imported here: most loaders need nothing of it

    return Seeded(transform)


def _augment(ops: Sequence[DeviceOp]) -> object:
    """An AugmentBatch of the ops that a plan leaves to the device."""
    from fastload import augment

    return augment.AugmentBatch([getattr(augment, op.name)(**op.arguments) for op in ops])
