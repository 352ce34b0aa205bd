"""Spatial values of a Dataset's samples: torchvision's tv_tensors and detection targets, and further Pillow images, as fields.

| value | field |
|---|---|
| tv_tensors.Image, a Pillow image of colours | image |
| a grey Pillow image whose name has "depth" or "disparity" in it | image of one channel, 8 or 16 bits |
| tv_tensors.Mask (height, width), another Pillow image of grey or palette indices | mask |
| tv_tensors.Mask (number, height, width), `masks` beside boxes | instances |
| tv_tensors.BoundingBoxes, `boxes` of a target (xyxy) | boxes |
| tv_tensors.KeyPoints, `keypoints` beside boxes | keypoints |
| a tensor or array whose first side is always the number of boxes, or differs from sample to sample | array of any number of rows |

torchvision is not imported: its classes are recognised by module and name.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from fastload.errors import PackError
from fastload.store import BOX_SIDES, Field

TV_MODULE = "torchvision.tv_tensors"
BOXES = "boxes"
_DEPTH_NAMES = ("depth", "disparity")
_INDEXED = ("1", "L", "P", "I", "I;16", "I;16B", "I;16L")


def is_target(value: Any) -> bool:
    """Whether a value is a detection target as torchvision's models take it: a dict with boxes (number, 4)."""
    return isinstance(value, Mapping) and BOXES in value and np.ndim(value[BOXES]) == 2


def has_boxes(values: Mapping[Any, Any]) -> bool:
    """Whether boxes are among the values of a sample."""
    return is_target(values) or any(_tv_class(value) == "BoundingBoxes" for value in values.values())


def is_tv_image(value: Any) -> bool:
    """Whether a value is one of torchvision's tv_tensors.Image."""
    return _tv_class(value) == "Image"


def is_visual(value: Any) -> bool:
    """Whether a value is a Pillow image or one of torchvision's tv_tensors."""
    return bool(_tv_class(value) or _is_picture(value))


def second_name(value: Any) -> str:
    """The name of the second value of a tuple that begins with an image."""
    kind = _tv_class(value)
    if kind == "BoundingBoxes":
        return BOXES
    if kind == "Mask" or _is_indexed(value):
        return "mask"
    return "image2" if kind == "Image" or _is_picture(value) else "label"


def spatial_fields(samples: Sequence[Mapping[str, Any]]) -> dict[str, Field]:
    """The spatial fields of some samples' values, by name; {}: there are none, and values are what they are without.

    Raises:
        PackError: boxes are of a format that is not known.
    """
    first = samples[0]
    owner = next((name for name in first if _tv_class(first[name]) == "BoundingBoxes"), BOXES if is_target(first) else "")
    if not owner and not any(is_visual(value) for value in first.values()):
        return {}
    counts = [len(sample[owner]) for sample in samples] if owner else []
    found = {name: _field(name, [sample[name] for sample in samples], counts, owner) for name in first}
    return {name: field for name, field in found.items() if field is not None}


def value_of(field: Field, value: Any) -> Any:
    """A spatial value as `Item.values` has it."""
    if field.is_rgb and _is_picture(value):
        return np.asarray(value.convert("RGB"))
    array = _array(value)
    if field.kind == "image" and _tv_class(value) == "Image":
        array = array.transpose(1, 2, 0)
        return np.ascontiguousarray(array[:, :, 0] if array.shape[2] == 1 else array)
    if field.kind == "mask" and array.ndim == 3 and array.shape[0] == 1:
        return array[0]
    return array[:, None] if field.kind == "keypoints" and array.ndim == 2 else array


def empty_value(field: Field) -> Any:
    """No rows of a field that has any number of them, as a target without its key means it."""
    return [] if field.kind == "instances" else np.zeros((0, *field.row_shape), field.stored_dtype)


def _field(name: str, values: Sequence[Any], boxes: Sequence[int], owner: str) -> Field | None:
    """The field of a value, from those of some samples and the number of boxes in each; None: it is not spatial."""
    first, kind = values[0], _tv_class(values[0])
    if _is_picture(first):
        return _picture_field(name, values)
    if kind == "Image":
        return Field(name, "image", str(_array(first).dtype), (int(first.shape[-3]),))
    if not hasattr(first, "shape") or not hasattr(first, "dtype") or first.ndim == 0:
        return None
    of = owner if boxes and name != owner and [len(value) for value in values] == list(boxes) else ""
    ranks = {value.ndim for value in values}
    if kind == "BoundingBoxes" or name == owner:
        return Field(name, "boxes", _box_dtype(values), format=_box_format(name, first))
    if ranks == {3} and (kind == "Mask" or (of and name == "masks")):
        single = kind == "Mask" and not of and all(len(value) == 1 for value in values)
        return _mask_field(name, values) if single else Field(name, "instances", of=of)
    if kind == "Mask":
        return _mask_field(name, values)
    if kind == "KeyPoints" or (of and name == "keypoints" and ranks == {3}):
        points, numbers = tuple(first.shape) if first.ndim == 2 else tuple(first.shape[1:])
        return Field(name, "keypoints", shape=(1 if first.ndim == 2 else int(points), int(numbers)), of=of)
    shapes = {tuple(value.shape) for value in values}
    rows = {shape[1:] for shape in shapes}
    if len(rows) == 1 and (of or len(shapes) > 1):
        return Field(name, "array", str(_array(first).dtype), (None, *(int(side) for side in rows.pop())), of=of)
    return None


def _picture_field(name: str, values: Sequence[Any]) -> Field:
    if not _is_indexed(values[0]):
        return Field(name, "image")
    if any(each in name.lower() for each in _DEPTH_NAMES):
        return Field(name, "image", _label_dtype(values), (1,))
    return _mask_field(name, values)


def _mask_field(name: str, values: Sequence[Any]) -> Field:
    return Field(name, "mask", _label_dtype(values))


def _label_dtype(values: Sequence[Any]) -> str:
    """uint16 if a label does not fit 8 bits, or the values have 16 or 32; of int64, which torch makes of any labels, the labels decide."""
    arrays = [_array(value) for value in values]
    wide = any(each.dtype.kind in "iu" and each.dtype.itemsize in (2, 4) for each in arrays)
    return "uint16" if wide or any(int(each.max(initial=0)) > 255 for each in arrays) else "uint8"


def _box_dtype(values: Sequence[Any]) -> str:
    return "int64" if all(_array(value).dtype.kind in "iu" for value in values) else "float32"


def _box_format(name: str, boxes: Any) -> Any:
    """The format of boxes: that of a BoundingBoxes, else xyxy, as torchvision's targets have it."""
    given = getattr(boxes, "format", "xyxy")
    form = str(getattr(given, "value", given)).lower()
    if form not in BOX_SIDES:
        raise PackError(f"its {name!r} are boxes of format {form}; {', '.join(BOX_SIDES)} are known")
    return form


def _tv_class(value: Any) -> str:
    """The tv_tensors class that a value is of or derives from: Image, Mask, BoundingBoxes, KeyPoints; "" for any other value."""
    names = (kind.__name__ for kind in type(value).__mro__ if kind.__module__.startswith(TV_MODULE))
    return next((name for name in names if name != "TVTensor"), "")


def _is_picture(value: Any) -> bool:
    return hasattr(value, "convert") and hasattr(value, "getbands")


def _is_indexed(value: Any) -> bool:
    """Whether a value is a Pillow image of one number a pixel: grey, or of a palette."""
    return _is_picture(value) and value.mode in _INDEXED


def _array(value: Any) -> Any:
    """A tensor or a Pillow image as an array: of a palette, its indices."""
    if hasattr(value, "detach") and hasattr(value, "numpy"):
        return value.detach().cpu().numpy()
    pixels = np.asarray(value)
    return pixels.astype(np.uint8) if pixels.dtype == np.bool_ and _is_picture(value) else pixels
