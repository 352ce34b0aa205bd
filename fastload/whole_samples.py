"""Python steps over whole samples: what lies in the image goes through a transform's steps with it, as torchvision's tv_tensors.

NOTE [ whole samples: what a step gets ]
A sample with masks, boxes or other fields that lie in its image goes to every Python step as a whole: one argument, in the structure that
`fields=` asks for, where images are tv_tensors.Image (never Pillow's), masks and instances Mask, boxes BoundingBoxes, keypoints KeyPoints,
and parts of polygons fastload.outlines.Outline, all of the canvas that the native steps have left. What the last step returns is the
sample. KeyPoints have x and y alone: a visibility waits outside and is put back to its points. torchvision's ToTensor, which
means Pillow images, makes floats of the images here. torchvision is imported by this module and by fastload.outlines alone, and only
where there are such steps.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from fastload.batch_tree import Path, each_tensor, has_part, part_at, with_part
from fastload.errors import TransformError
from fastload.plan import Plan
from fastload.plan.torchvision import makes_floats
from fastload.store import Field, Schema
from fastload.word_flips import word_flips

Assemble = Callable[[dict[str, Any]], Any]


def finished(plan: Plan, schema: Schema, values: Mapping[str, Any], assemble: Assemble) -> Any:
    """The sample that a plan's Python steps make. See NOTE [ whole samples: what a step gets ].

    Args:
        plan: its native part is done.
        schema: of the dataset.
        values: the delivered fields by name, as tensors; the first image is among them.
        assemble: makes the sample's structure of values by field.

    Raises:
        TransformError: steps have dropped keypoints whose visibility waits.
        Whatever a step raises.
    """
    sample = wrapped(plan, schema, values, assemble)
    with word_flips(values.values()):
        for step in steps_of(plan):
            sample = step(sample)
    visible = {name: values[name] for name in values if schema[name].kind == "keypoints" and schema[name].shape[-1] == 3}
    if not visible:
        return sample
    paths = _paths(assemble({name: name for name in values}))
    for name, points in visible.items():
        if has_part(sample, paths[name]):
            sample = _with_visibility(sample, paths[name], name, points[..., 2:])
    return sample


def steps_of(plan: Plan) -> list[Callable[[Any], Any]]:
    """The Python steps of a plan, for whole samples."""
    return [_to_floats if makes_floats(step) else step for step in plan.python]


def _to_floats(sample: Any) -> Any:
    """The sample with its images as floats 0..1."""
    from torchvision import tv_tensors  # type: ignore[import-untyped]

    def change(tensor: Tensor) -> Tensor:
        if not isinstance(tensor, tv_tensors.Image) or tensor.is_floating_point():
            return tensor
        floats: Tensor = tv_tensors.Image(tensor.as_subclass(Tensor).to(torch.float32) / torch.iinfo(tensor.dtype).max)
        return floats

    return each_tensor(sample, change)


def wrapped(plan: Plan, schema: Schema, values: Mapping[str, Any], assemble: Assemble) -> Any:
    """The sample that the first Python step gets."""
    assert schema.image is not None  # every dataset has one
    image = values[schema.image.name]
    canvas = int(image.shape[-2]), int(image.shape[-1])
    return assemble({name: _wrapped(schema[name], value, canvas, plan.box_format) for name, value in values.items()})


def _wrapped(field: Field, value: Any, canvas: tuple[int, int], box_format: str) -> Any:
    """A field's value as a tv_tensor. `box_format`: of boxes that the native part has converted, or ""."""
    from torchvision import tv_tensors

    if field.kind == "image":
        return tv_tensors.Image(value)
    if field.kind in ("mask", "instances"):
        return tv_tensors.Mask(value)
    if field.kind == "boxes":
        return tv_tensors.BoundingBoxes(value, format=(box_format or field.format).upper(), canvas_size=canvas)
    if field.kind == "keypoints":
        return tv_tensors.KeyPoints(value[..., :2], canvas_size=canvas)
    if field.kind == "polygons":
        from fastload.outlines import Outline

        return [[Outline(part, canvas_size=canvas) for part in parts] for parts in value]
    return value


def _with_visibility(sample: Any, path: Path, name: str, visibility: Tensor) -> Any:
    points = part_at(sample, path)
    if not isinstance(points, Tensor) or points.shape[-1:] != (2,):
        return sample
    if points.shape[:-1] != visibility.shape[:-1]:
        raise TransformError(
            f"Python steps have left {len(points)} of {len(visibility)} rows of {name!r}, and its visibility cannot follow: drop objects "
            "before the first step that runs in Python, or pack the visibility as a field of its own"
        )
    return with_part(sample, path, torch.cat((points.as_subclass(Tensor), visibility.to(points.dtype)), dim=-1))


def _paths(names: Any, at: Path = ()) -> dict[str, Path]:
    """Where each name is in a structure of names."""
    if isinstance(names, str):
        return {names: at}
    entries: Sequence[tuple[Any, Any]] = list(names.items()) if isinstance(names, dict) else list(enumerate(names))
    return {name: path for key, inner in entries for name, path in _paths(inner, (*at, key)).items()}
