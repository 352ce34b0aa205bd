"""Python steps over whole samples: what lies in the image goes through a transform's steps with it, as torchvision's tv_tensors.

NOTE [ whole samples: what a step gets ]
A sample with masks, boxes or other fields that lie in its image goes to every Python step as a whole: one argument, in the structure that
`fields=` asks for, where images are tv_tensors.Image (never Pillow's), masks and instances Mask, boxes BoundingBoxes, keypoints KeyPoints,
keypoints with a visibility fastload.points.KeyPointsWithVisibility, (N, K, 3), and parts of polygons fastload.points.Outline, all of the
canvas that the native steps have left. What the last step returns is the sample: nothing is added to it. torchvision's ToTensor, which
means Pillow images, makes floats of the images here, and SanitizeBoundingBoxes drops what it drops natively: the rows of all fields that
are `of` the boxes, unless a labels_getter of the user's says what goes with them. torchvision is imported by this module and by
fastload.points alone, and only where there are such steps.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from fastload.batch.containers import Path, each_tensor, has_part, part_at, with_part
from fastload.store import Field, Schema
from fastload.transforms.spec import Plan
from fastload.transforms.torchvision import makes_floats, sanitized_by
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
        Whatever a step raises.
    """
    sample = wrapped(plan, schema, values, assemble)
    with word_flips(values.values()):
        for step in steps_of(plan, schema, list(values), assemble):
            sample = step(sample)
    return sample


def steps_of(plan: Plan, schema: Schema, names: Sequence[str], assemble: Assemble) -> list[Callable[[Any], Any]]:
    """The Python steps of a plan, for whole samples.

    Args:
        plan: the plan.
        schema: of the dataset.
        names: of the delivered fields.
        assemble: makes the sample's structure of values by field.
    """
    return [_step_of(step, schema, names, assemble) for step in plan.python]


def _step_of(step: Callable[[Any], Any], schema: Schema, names: Sequence[str], assemble: Assemble) -> Callable[[Any], Any]:
    if makes_floats(step):
        return _to_floats
    sizes = sanitized_by(step)
    if sizes is None:
        return step
    paths = _paths(assemble({name: name for name in names}))
    return _Sanitize(step, *sizes, tuple(schema[name] for name in names), paths)


@dataclass(frozen=True)
class _Sanitize:
    """torchvision's SanitizeBoundingBoxes as it is natively: each field of boxes drops boxes of its own, and the rows that are `of` them.

    Instances and torchvision's labels that are `of` no boxes go with the first boxes, as in torchvision, where they have as many rows. A
    field of which a step has made something else, of another number of rows, stays as it is.

    Attributes:
        step: torchvision's, which is called where steps before it have left no boxes in their place.
        min_size, min_area: its arguments.
        fields: that are delivered.
        paths: where each is in a sample.
    """

    step: Callable[[Any], Any]
    min_size: float
    min_area: float
    fields: tuple[Field, ...]
    paths: Mapping[str, Path]

    def __call__(self, sample: Any) -> Any:
        from torchvision import tv_tensors  # type: ignore[import-untyped]
        from torchvision.transforms.v2 import functional as F  # type: ignore[import-untyped]

        found = [field for field in self.fields if field.kind == "boxes"]
        paths = [self.paths[field.name] for field in found]
        if not found or not all(has_part(sample, path) and isinstance(part_at(sample, path), tv_tensors.BoundingBoxes) for path in paths):
            return self.step(sample)
        for number, (boxes, path) in enumerate(zip(found, paths, strict=True)):
            kept, valid = F.sanitize_bounding_boxes(part_at(sample, path), min_size=self.min_size, min_area=self.min_area)
            sample = with_part(sample, path, kept)
            for name in self._going_with(boxes, number == 0, sample):
                sample = _with_rows(sample, self.paths[name], valid)
        return sample

    def _going_with(self, boxes: Field, first: bool, sample: Any) -> list[str]:
        """Names of the fields that lose the rows of these boxes."""
        alone = [field for field in self.fields if not field.of and field.has_objects] if first else []
        labels = _labels_in([field for field in self.fields if field.has_objects], self.paths)
        loose = [field.name for field in alone if field.kind == "instances" or field.name == labels]
        return [*(field.name for field in self.fields if field.of == boxes.name), *loose]


def _labels_in(fields: Sequence[Field], paths: Mapping[str, Path]) -> str:
    """The field that torchvision takes for the labels: by its key, "labels" or else one with "label" in it; "": none."""
    keys = {field.name: str(paths[field.name][-1]).lower() for field in fields if paths[field.name]}
    exact = next((name for name, key in keys.items() if key == "labels"), "")
    return exact or next((name for name, key in keys.items() if "label" in key), "")


def _with_rows(sample: Any, path: Path, valid: Tensor) -> Any:
    """The sample with the rows of one field that are valid, if it has as many rows."""
    rows = part_at(sample, path) if has_part(sample, path) else None
    if isinstance(rows, list) and len(rows) == len(valid):
        return with_part(sample, path, [row for row, keep in zip(rows, valid.tolist(), strict=True) if keep])
    if not isinstance(rows, Tensor) or not rows.ndim or len(rows) != len(valid):
        return sample
    from torchvision import tv_tensors

    left = rows.as_subclass(Tensor)[valid]
    return with_part(sample, path, tv_tensors.wrap(left, like=rows) if isinstance(rows, tv_tensors.TVTensor) else left)


def _to_floats(sample: Any) -> Any:
    """The sample with its images as floats 0..1."""
    from torchvision import tv_tensors

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
        if field.row_shape[-1] == 2:
            return tv_tensors.KeyPoints(value, canvas_size=canvas)
        from fastload.points import KeyPointsWithVisibility

        return KeyPointsWithVisibility(value, canvas_size=canvas)
    if field.kind == "polygons":
        from fastload.points import Outline

        return [[Outline(part, canvas_size=canvas) for part in parts] for parts in value]
    return value


def _paths(names: Any, at: Path = ()) -> dict[str, Path]:
    """Where each name is in a structure of names."""
    if isinstance(names, str):
        return {names: at}
    entries: Sequence[tuple[Any, Any]] = list(names.items()) if isinstance(names, dict) else list(enumerate(names))
    return {name: path for key, inner in entries for name, path in _paths(inner, (*at, key)).items()}
