"""Any map-style Dataset: whatever has ``__getitem__`` and ``__len__``. Torch is neither needed nor imported.

Spatial values of a Dataset's samples: torchvision's tv_tensors and detection targets, and further Pillow
images, as fields.

| value | field |
|---|---|
| tv_tensors.Image, a Pillow image of colours | image |
| a grey Pillow image whose name has "depth" or "disparity" in it | image of one channel, 8 or 16 bits |
| tv_tensors.Mask (height, width), another Pillow image of grey or palette indices | mask |
| tv_tensors.Mask (number, height, width), `masks` beside boxes | instances |
| tv_tensors.BoundingBoxes, `boxes` of a target (xyxy) | boxes |
| tv_tensors.KeyPoints, `keypoints` beside boxes | keypoints |
| a tensor or array whose first side is that of the boxes, or differs by sample | array of many rows |

torchvision is not imported: its classes are recognised by module and name.
"""

from __future__ import annotations

import io
import os
import sys
from collections.abc import Iterator, Mapping, Sequence, Sized
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any, TypeGuard

import numpy as np
import numpy.typing as npt

from fastload.common.files import FILE_BYTES, read_regular
from fastload.errors import FastloadError, PackError, ResourceError
from fastload.sources.names import HEAD, IMAGE_KEYS, LABEL_KEYS, is_picture
from fastload.sources.object_column import (
    box_member,
    class_names,
    label_names,
    object_classes,
    object_columns,
    object_members,
    object_notices,
)
from fastload.sources.options import BoxFormat
from fastload.sources.pairs import leaves, structure_of
from fastload.sources.pixels import Pixels, to_rgb
from fastload.sources.protocol import IMAGE_FIELD, Item, Value, first_readable
from fastload.store import BOX_SIDES, Field
from fastload.store.form import Form, Parts
from fastload.store.labels import LABEL

if TYPE_CHECKING:
    from PIL import Image

TV_MODULE = "torchvision.tv_tensors"
BOXES = "boxes"
_DEPTH_NAMES = ("depth", "disparity")
_INDEXED = ("1", "L", "P", "I", "I;16", "I;16B", "I;16L")


def is_target(value: object) -> bool:
    """Returns True if a value is a detection target as torchvision's models take it: a dict with boxes
    (number, 4)."""
    return isinstance(value, Mapping) and BOXES in value and np.ndim(value[BOXES]) == 2


def has_boxes(values: Mapping[Any, Any]) -> bool:
    """Returns True if boxes are among the values of a sample."""
    return is_target(values) or any(_tv_class(value) == "BoundingBoxes" for value in values.values())


def is_tv_image(value: object) -> bool:
    """Returns True if a value is one of torchvision's tv_tensors.Image."""
    return _tv_class(value) == "Image"


def is_visual(value: object) -> bool:
    """Returns True if a value is a Pillow image or one of torchvision's tv_tensors."""
    return bool(_tv_class(value) or _is_picture(value))


def _is_array(value: object) -> bool:
    """Returns True if a value has rows, of which other samples may have more or fewer."""
    return not is_visual(value) and hasattr(value, "dtype") and getattr(value, "ndim", 0) > 0


def second_name(value: object) -> str:
    """The name of the second value of a tuple that begins with an image."""
    kind = _tv_class(value)
    if kind == "BoundingBoxes":
        return BOXES
    if kind == "Mask" or _is_indexed(value):
        return "mask"
    return "image2" if kind == "Image" or _is_picture(value) else "label"


def spatial_fields(samples: Sequence[Mapping[str, Any]]) -> dict[str, Field]:
    """The spatial fields of some samples' values, by name; {}: there are none, and values are what they are
    without.

    Raises:
        PackError: boxes are of a format that is not known.
    """
    first = samples[0]
    owner = next(
        (name for name in first if _tv_class(first[name]) == "BoundingBoxes"),
        BOXES if is_target(first) else "",
    )
    if not owner and not any(is_visual(value) for value in first.values()):
        return {}
    counts = [len(sample[owner]) for sample in samples] if owner else []
    found = {
        name: _spatial_field(name, [sample[name] for sample in samples], counts, owner) for name in first
    }
    return {name: field for name, field in found.items() if field is not None}


def value_of(field: Field, value: object) -> npt.NDArray[Any]:
    """A spatial value as `Item.values` has it."""
    if field.is_rgb and _is_picture(value):
        return np.asarray(value.convert("RGB"))
    return field.handler.from_array(_array(value), is_tv_image(value))


def _spatial_field(name: str, values: Sequence[Any], boxes: Sequence[int], owner: str) -> Field | None:
    """The field of a value, from those of some samples and the number of boxes in each; None: it is not
    spatial."""
    first, kind = values[0], _tv_class(values[0])
    if _is_picture(first):
        return _picture_field(name, values)
    if kind == "Image":
        return Field(name, "image", str(_array(first).dtype), (int(first.shape[-3]),))
    if not hasattr(first, "shape") or not hasattr(first, "dtype") or first.ndim == 0:
        return None
    rows_of = owner if boxes and name != owner and [len(value) for value in values] == list(boxes) else ""
    ranks = {value.ndim for value in values}
    if kind == "BoundingBoxes" or name == owner:
        return Field(name, "boxes", _box_dtype(values), format=_box_format(name, first))
    if ranks == {3} and (kind == "Mask" or (rows_of and name == "masks")):
        single = kind == "Mask" and not rows_of and all(len(value) == 1 for value in values)
        return _mask_field(name, values) if single else Field(name, "instances", of=rows_of)
    if kind == "Mask":
        return _mask_field(name, values)
    if kind == "KeyPoints" or (rows_of and name == "keypoints" and ranks == {3}):
        points, numbers = tuple(first.shape) if first.ndim == 2 else tuple(first.shape[1:])
        return Field(
            name, "keypoints", shape=(1 if first.ndim == 2 else int(points), int(numbers)), of=rows_of
        )
    shapes = {tuple(value.shape) for value in values}
    rows = {shape[1:] for shape in shapes}
    if len(rows) == 1 and (rows_of or len(shapes) > 1):
        return Field(
            name, "array", str(_array(first).dtype), (None, *(int(side) for side in rows.pop())), of=rows_of
        )
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
    """uint16 if a label does not fit 8 bits, or the values have 16 or 32; of int64, which torch makes of
    any labels, the labels decide."""
    arrays = [_array(value) for value in values]
    wide = any(each.dtype.kind in "iu" and each.dtype.itemsize in (2, 4) for each in arrays)
    return "uint16" if wide or any(int(each.max(initial=0)) > 255 for each in arrays) else "uint8"


def _box_dtype(values: Sequence[Any]) -> str:
    return "int64" if all(_array(value).dtype.kind in "iu" for value in values) else "float32"


def _box_format(name: str, boxes: object) -> str:
    """The format of boxes: that of a BoundingBoxes, else xyxy, as torchvision's targets have it."""
    given = getattr(boxes, "format", "xyxy")
    form = str(getattr(given, "value", given)).lower()
    if form not in BOX_SIDES:
        raise PackError(f"its {name!r} are boxes of format {form}; {', '.join(BOX_SIDES)} are known")
    return form


def _tv_class(value: object) -> str:
    """The tv_tensors class that a value is of or derives from: Image, Mask, BoundingBoxes, KeyPoints; ""
    for any other value."""
    names = (kind.__name__ for kind in type(value).__mro__ if kind.__module__.startswith(TV_MODULE))
    return next((name for name in names if name != "TVTensor"), "")


def _is_picture(value: object) -> TypeGuard[Image.Image]:
    """Returns True if a value is a Pillow image."""
    return hasattr(value, "convert") and hasattr(value, "getbands")


def _is_indexed(value: object) -> bool:
    """Returns True if a value is a Pillow image of one number a pixel: grey, or with a palette."""
    return _is_picture(value) and value.mode in _INDEXED


def _array(value: object) -> npt.NDArray[Any]:
    """A tensor or a Pillow image as an array: of a palette, its indices."""
    if hasattr(value, "detach") and hasattr(value, "numpy"):
        tensor: npt.NDArray[Any] = value.detach().cpu().numpy()
        return tensor
    pixels = np.asarray(value)
    return pixels.astype(np.uint8) if pixels.dtype == np.bool_ and _is_picture(value) else pixels


_LOOKED_AT = 32
"""Samples that are looked at to tell what has any number of rows."""
_SEARCHED = 256
"""Samples that are searched for one with objects, where the first ones have none: without one nothing says
what objects are."""


class DatasetSource:
    """Items are ``(image, label)``, ``(image, label, more, ...)``, a dict, ``(image, dict with boxes)`` or an
    image alone.

    An image is a PIL image, an array or tensor of uint8 (height, width), (height, width, 1 or 3) or (1 or 3,
    height, width), a file's bytes, or a path. Other fields are numbers, text, bytes, arrays of one shape, or
    anything that JSON holds; the first item settles which. Where it has torchvision's tv_tensors, a second
    Pillow image or a dict with boxes, the first items say which fields there are: `fastload.sources.dataset`
    has the rules. With a `box_format`, a value that is a dict of lists with boxes, or a list of dicts,
    becomes the fields of an `ObjectColumn`. Names of classes are the Dataset's `classes`, or come from the
    ClassLabel in Hugging Face's `features`.

    Items are asked for one after another in one thread: a Dataset makes no promise about threads.

    Attributes:
        has_image: True if item 0 can be read, and its image is one, or a file.

    Raises:
        PackError: an item of another shape than the first, or an image of a kind not named above.
    """

    concurrent = False

    def __init__(self, dataset: Any, box_format: BoxFormat | None = None) -> None:
        self._dataset = dataset
        self.title = type(dataset).__name__
        self.layout = f"a Dataset ({self.title})"
        if len(dataset) == 0:
            raise PackError(f"{self.title}: it has no samples")
        self._targets = False  # True if the second part of a sample is a target, also without boxes
        self._at = -1  # the position of the item that settles the fields
        self._structure: Form | None = None  # of the second values of pairs, where it has parts
        item, first = self._first()
        image_key, _ = self._split(item, 0)
        image = item if image_key is None else item[image_key]
        self.has_image = self._at == 0 and names_image(image)
        if isinstance(image, list | tuple):
            raise PackError(
                f"{self.title}: a list is no image; give a PIL image, uint8 pixels, bytes or a path"
            )
        is_pair = isinstance(item, tuple | list) and len(item) == 2 and not self._targets
        if is_pair and list(first) == [LABEL] and not object_members([first[LABEL]]):
            self._structure = structure_of([item[1], *self._seconds(item[1])], IMAGE_FIELD)
            first = first if self._structure is None else leaves(self._structure, item[1])
        is_spatial = bool(spatial_fields([first]))
        is_varied = any(_is_array(value) for value in first.values()) or (
            is_pair and self._structure is not None
        )
        samples = (
            [first, *self._more(first)] if is_spatial or is_varied or box_format is not None else [first]
        )
        if box_format is not None:
            samples += self._with_objects(samples)
        self._spatial: dict[str, Field] = _varying(samples) if is_varied else {}
        self._spatial |= spatial_fields(samples) if is_spatial else {}
        members = {
            name: found for name in first if (found := object_members([sample[name] for sample in samples]))
        }
        self.box_format = box_format if members else None
        self.notices = object_notices(members) if box_format is None else ()
        self._objects = (
            {} if box_format is None else object_columns(members, {name: name for name in first}, box_format)
        )
        # lists of a target that are no fields of their own: an image without objects has empty ones
        self._lists = {
            name
            for name, value in first.items()
            if self._targets and name not in self._spatial and isinstance(value, list)
        }
        columns = {name: [sample[name] for sample in samples] for name in first}
        self.fields = tuple(
            field for name, values in columns.items() for field in self._fields_of(name, values)
        )
        self.form = self._form() if is_pair else None
        self.classes, self.label_limits = self._class_names()

    def _fields_of(self, name: str, values: Sequence[Any]) -> tuple[Field, ...]:
        """The fields of one value of the samples that were looked at."""
        if name in self._objects:
            return self._objects[name].fields
        if name in self._spatial:
            return (self._spatial[name],)
        return (_field(name, _plain(values[0])) if self._structure is None else joint_field(name, values),)

    def _form(self) -> Form | None:
        """The structure of a pair; None: it follows from the fields, or the second value is a picture, or
        several."""
        if self._structure is not None:
            return Parts((IMAGE_FIELD, self._structure))
        (field, *more) = self.fields
        if more or field.handler.is_image or field.handler.holds_labels or field.handler.can_label:
            return None
        return Parts((IMAGE_FIELD, field.name))

    def _class_names(self) -> tuple[tuple[str, ...] | None, dict[str, int]]:
        """Names of the classes, and the number of classes by the field of the objects' labels, if the
        names are theirs."""
        names = getattr(self._dataset, "classes", None)
        if isinstance(names, list | tuple) and (found := class_names(list(names))):
            return found, {}
        features: Any = getattr(self._dataset, "features", None)
        theirs: Any = getattr(sys.modules.get("datasets"), "Features", ())
        if not isinstance(features, theirs):
            return None, {}
        described = features.to_dict()
        label = next((key for key in LABEL_KEYS if key in described), None)
        if found := label_names(described.get(label)):
            return found, {}
        return object_classes(self._objects, described)

    def _first(self) -> tuple[Any, dict[str, Any]]:
        """The first sample and its values; the first one with boxes, where the first has a dict without:
        an image without objects."""
        first, values = first_readable(self._item_and_values, len(self._dataset))
        self._targets = _has_dict(first) and is_target(first[1])
        if _has_dict(first) and not self._targets:
            for position in range(1, min(_SEARCHED, len(self._dataset))):
                with suppress(PackError):
                    item, found = self._item_and_values(position)
                    if _has_dict(item) and is_target(item[1]):
                        self._targets = True
                        return item, found
        return first, values

    def _seconds(self, first: object) -> list[Any]:
        """The second values of further pairs, if the first is a tuple or a dict."""
        found = []
        for position in range(
            1, min(_LOOKED_AT, len(self._dataset)) if isinstance(first, tuple | Mapping) else 0
        ):
            with suppress(PackError):
                item = self._get(position)
                found += [item[1]] if isinstance(item, tuple | list) and len(item) == 2 else []
        return found

    def _item_and_values(self, position: int) -> tuple[Any, dict[str, Any]]:
        item = self._get(position)
        values = self._split(item, position)[1]
        self._at = position
        return item, values

    def _more(self, first: Mapping[str, Any]) -> list[dict[str, Any]]:
        """Values of further samples, which show what has any number of rows."""
        found = []
        for position in range(1, min(_LOOKED_AT, len(self._dataset))):
            with suppress(PackError):
                values = self._split(self._get(position), position)[1]
                alike = self._structure is not None or all(
                    type(value) is type(first[name]) for name, value in values.items()
                )
                found += [values] if alike and values.keys() == first.keys() else []
        return found

    def _with_objects(self, samples: list[dict[str, Any]]) -> list[dict[str, Any]]:
        """The first sample after those looked at that has an object, where none of `samples` has one; [] if
        there is none.

        Raises:
            PackError: none of the first `_SEARCHED` samples has one, and there are more.
        """
        if any(_has_objects(value) for sample in samples for value in sample.values()):
            return []
        for position in range(_LOOKED_AT, min(_SEARCHED, len(self._dataset))):
            with suppress(PackError):
                values = self._split(self._get(position), position)[1]
                if values.keys() == samples[0].keys() and any(
                    _has_objects(value) for value in values.values()
                ):
                    return [values]
        if len(self._dataset) > _SEARCHED:
            raise PackError(
                f"{self.title}: none of its first {_SEARCHED} samples has an object with a box "
                "(bbox), which would say what objects are: "
                "put one that has an object among these, or leave out the box format"
            )
        return []

    def __len__(self) -> int:
        return len(self._dataset)

    def name(self, position: int) -> str:
        samples = getattr(self._dataset, "samples", None)
        if isinstance(samples, list) and position < len(samples):
            entry = samples[position]
            if isinstance(entry, tuple) and entry and isinstance(entry[0], str):
                return entry[0]
        return f"{self.title}[{position}]"

    def read(self, position: int) -> Item:
        item = self._get(position)
        if not self._targets and _has_dict(item) and is_target(item[1]):
            raise PackError(
                f"{self.name(position)}: its target has boxes, and none of the first {_SEARCHED} "
                "samples has any, so there is no field for "
                "them: put a sample with boxes among these"
            )
        with self._named(position, "its item raised", OSError):
            image_key, found = self._split(item, position)
            values: dict[str, Value] = {}
            for name, value in found.items():
                objects = self._objects.get(name)
                values |= (
                    {name: self._value(name, value)}
                    if objects is None
                    else objects.values(self.name(position), value)
                )
            values |= {
                name: field.handler.empty(field)
                for name, field in self._spatial.items()
                if name not in values and field.is_varying
            }
            values |= {name: [] for name in self._lists if name not in values}
            image, lost = stored_form(item if image_key is None else item[image_key], self.name(position))
            return Item(self.name(position), image, values, lost)

    def _value(self, name: str, value: object) -> Value:
        field = self._spatial.get(name)
        if field is None:
            return _plain(value)
        found = value_of(field, value)
        if (
            field.handler.holds_labels
            and field.dtype == "uint8"
            and found.dtype.itemsize > 1
            and found.max(initial=0) > 255
        ):
            raise PackError(
                f"its {name!r} has the label {found.max()}, and the first {_LOOKED_AT} samples have "
                "labels of 8 bits: give masks with such "
                "labels as uint16 or int32"
            )
        return found

    def _get(self, position: int) -> Any:
        with self._named(position, "the Dataset raised"):
            return self._dataset[position]

    @contextmanager
    def _named(self, position: int, what: str, kept: type[Exception] = FastloadError) -> Iterator[None]:
        """Names the sample in whatever a user's Dataset, or an object that it gives, raises; fastload's
        own errors and `kept` pass."""
        try:
            yield
        except (FastloadError, kept):
            raise
        except MemoryError as error:
            raise ResourceError(f"{self.name(position)}: {what} a MemoryError {error}".rstrip()) from error
        except Exception as error:
            raise PackError(f"{self.name(position)}: {what} {type(error).__name__}: {error}") from error

    def _split(self, item: object, position: int) -> tuple[Any, dict[str, Any]]:
        """The key of the image within the item (None: the item is the image), and the other values."""
        if isinstance(item, Mapping):
            image_key = next((key for key in IMAGE_KEYS if key in item), None)
            for found in (is_tv_image, _is_image):
                if image_key is None:
                    image_key = next((key for key, value in item.items() if found(value)), None)
            if image_key is None:
                raise PackError(
                    f"{self.name(position)}: no image among {', '.join(map(str, item))}; name it 'image'"
                )
            label_key = next((key for key in LABEL_KEYS if key in item), None)
            renamed = {} if label_key is None or has_boxes(item) else {label_key: "label"}
            return image_key, {
                renamed.get(key, str(key)): value for key, value in item.items() if key != image_key
            }
        if _has_dict(item) and (self._targets or is_target(item[1])):
            return 0, {str(key): value for key, value in item[1].items()}
        if isinstance(item, tuple | list):
            if self._structure is not None and len(item) == 2:
                return 0, leaves(self._structure, item[1])
            return 0, _named_parts(item[1:])
        return None, {}


def _named_parts(parts: Sequence[Any]) -> dict[str, Any]:
    """The parts of a sample after its image, by name: label, field2, ..., and mask, image2, ... of pictures.

    A part that is itself a tuple or list with pictures, as torchvision's Cityscapes gives of several target
    types, is parts of its own.
    """
    found: dict[str, Any] = {}
    for place, part in enumerate(parts, 1):
        if not (isinstance(part, tuple | list) and any(map(is_visual, part))):
            found[second_name(part) if place == 1 else f"field{place}"] = part
            continue
        for number, inner in enumerate(part, place):
            name = second_name(inner) if is_visual(inner) else f"field{number}"
            numbered = (f"{name.rstrip('2')}{more}" for more in range(2, len(part) + 3))
            found[name if name not in found else next(each for each in numbered if each not in found)] = inner
    return found


def _has_objects(value: object) -> bool:
    """Returns True if a value has objects with boxes, at least one."""
    if not object_members([value]):
        return False
    objects = value[box_member(value)] if isinstance(value, Mapping) else value
    return isinstance(objects, Sized) and len(objects) > 0


def _has_dict(item: object) -> TypeGuard[Sequence[Any]]:
    """Returns True if an item is a pair whose second part is a dict."""
    return isinstance(item, tuple | list) and len(item) == 2 and isinstance(item[1], Mapping)


def _plain(value: Any) -> Value:
    """A value as Python or numpy has it: tensors to arrays, arrays and tensors without shape to numbers."""
    if hasattr(value, "detach") and hasattr(value, "numpy"):
        value = value.detach().cpu().numpy()
    found: Value = value
    if isinstance(value, np.generic) or (isinstance(value, np.ndarray) and value.ndim == 0):
        found = value.item()
    elif isinstance(value, bytearray | memoryview):
        found = bytes(value)
    return found


def _field(name: str, value: Value) -> Field:
    if isinstance(value, int):  # bool too
        return Field(name, "int")
    if isinstance(value, float):
        return Field(name, "float")
    if isinstance(value, str):
        return Field(name, "text")
    if isinstance(value, bytes):
        return Field(name, "bytes")
    if isinstance(value, np.ndarray):
        return Field(name, "array", shape=value.shape, dtype=str(value.dtype))
    return Field(name, "json")


def joint_field(name: str, values: Sequence[Any]) -> Field:
    """The field of a value of several samples: int and float are float; other kinds that differ are JSON."""
    fields = [_field(name, _plain(value)) for value in values]
    kinds = {field.kind for field in fields}
    if len(kinds) == 1:
        return fields[0]
    return Field(name, "float" if kinds == {"int", "float"} else "json")


def _varying(samples: Sequence[Mapping[str, Any]]) -> dict[str, Field]:
    """Fields of arrays that have any number of rows in several samples, by name."""
    found: dict[str, Field] = {}
    for name in samples[0]:
        values = [sample[name] for sample in samples]
        if not is_visual(values[0]) and all(
            hasattr(value, "shape") and hasattr(value, "dtype") for value in values
        ):
            field = _spatial_field(name, values, (), "")
            found |= {} if field is None else {name: field}
    return found


def _is_image(value: object) -> bool:
    return _is_picture(value) or (
        getattr(value, "ndim", 0) in (2, 3) and str(getattr(value, "dtype", "")).endswith("uint8")
    )


def is_image(value: object) -> bool:
    """Returns True if a value is a picture, pixels, or a picture's file."""
    return _is_image(value) or (isinstance(value, bytes) and is_picture(value[:HEAD]))


def names_image(value: object) -> bool:
    """Returns True if a value is an image, or the path of a file that is there."""
    return is_image(value) or (isinstance(value, str | os.PathLike) and os.path.isfile(value))


def stored_form(value: object, name: str) -> tuple[bytes | Pixels, tuple[str, ...]]:
    """An image of a Dataset as Item has it, and kinds of losses in reading it. Raises PackError, OSError."""
    if _is_picture(value) and value.mode != "L":
        return to_rgb(value, oriented=False)
    return _image(value, name), ()


def _image(value: object, name: str) -> bytes | Pixels:
    if isinstance(value, bytes | bytearray | memoryview):
        return bytes(value)
    if isinstance(value, str | os.PathLike):
        return read_regular(os.fspath(value))
    if isinstance(value, io.IOBase):
        data: bytes = value.read(FILE_BYTES + 1)
        if len(data) > FILE_BYTES:
            raise PackError(f"{name}: its image has more bytes than the limit of {FILE_BYTES:,}")
        return data
    if _is_picture(value):
        return np.asarray(value)
    array = _plain(value)
    if not isinstance(array, np.ndarray):
        raise PackError(
            f"{name}: a {type(value).__name__} is no image; give a PIL image, uint8 pixels, bytes or a path"
        )
    if array.dtype != np.uint8:
        raise PackError(
            f"{name}: pixels of {array.dtype} are not stored; pack the Dataset without "
            "ToTensor/Normalize, so that it "
            "gives uint8, and let the loader convert"
        )
    if array.ndim == 3 and array.shape[2] not in (1, 3) and array.shape[0] in (1, 3):
        array = array.transpose(1, 2, 0)
    if array.ndim == 3 and array.shape[2] == 1:
        array = array[:, :, 0]
    if array.ndim not in (2, 3) or (array.ndim == 3 and array.shape[2] != 3) or 0 in array.shape:
        raise PackError(
            f"{name}: pixels of shape {array.shape} are no image; give (height, width, 3) or (3, "
            "height, width)"
        )
    return np.ascontiguousarray(array)
