"""ObjectColumn: a column of objects, as Hugging Face's detection datasets have it, as boxes and the fields
beside them.

A value is a dict of lists with an entry an object, or a list of dicts, one an object:

| member | field |
|---|---|
| `bbox`, `bboxes` or `boxes`: lists of numbers | ``boxes``, of the format that the user gave |
| `category`, `category_id`, `label`, ...: whole numbers | ``labels``, one a box |
| other numbers (`area`, `id`) | an array of the member's name, one number a box |
| anything else (`segmentation`, texts) | JSON, a list with an entry a box |

A name that another column has already gets the column's name before it: ``objects_id``.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from fastload.errors import PackError
from fastload.sources.annotated import BOXES, box_rows, numbers, rows, whole_numbers
from fastload.sources.notices import EXAMPLES, OBJECTS, TEXTS, Notice
from fastload.sources.options import BoxFormat
from fastload.sources.protocol import IMAGE_FIELD, Value
from fastload.store import Field
from fastload.store.labels import LABELS

_BOX_MEMBERS = ("bbox", "bboxes", "boxes")
_LABEL_MEMBERS = ("category", "category_id", "categories", "label", "labels", "class", "class_id")
OTHER = ""
"""Type of a member whose values are not numbers."""


def box_member(members: Iterable[str]) -> str | None:
    """The member that holds the boxes, of the members' names; None: these are no objects with boxes."""
    return next((name for name in _BOX_MEMBERS if name in members), None)


class ObjectColumn:
    """The fields of one column of objects, and their values.

    Args:
        column: its name.
        members: dtypes of the members whose values are numbers, and `OTHER` for all others, by name; one is
            `box_member`.
        box_format: format of the boxes.
        taken: names of the dataset's other fields.

    Attributes:
        fields: the boxes first.
        label: the member with the labels; None: there is none.
        label_field: the name of the labels' field; "": there is none.
    """

    def __init__(
        self, column: str, members: Mapping[str, str], box_format: BoxFormat, taken: Iterable[str]
    ) -> None:
        boxes = box_member(members)
        assert boxes is not None
        integers = [name for name in _LABEL_MEMBERS if "int" in members.get(name, OTHER)]
        self.label = integers[0] if integers else None
        self._column, self._boxes, used = column, boxes, set(taken)
        self._fields: dict[str, Field] = {}
        owner = ""
        for member in (boxes, *(name for name in members if name != boxes)):
            name = {boxes: BOXES, self.label: LABELS}.get(member, member)
            name = f"{column}_{name}" if name in used else name
            used.add(name)
            if member == boxes:
                owner, self._fields[member] = name, Field(name, "boxes", format=box_format)
            else:
                dtype = members[member]
                self._fields[member] = Field(name, "json") if dtype == OTHER else rows(name, dtype, owner)
        self.fields = tuple(self._fields.values())
        self.label_field = "" if self.label is None else self._fields[self.label].name

    def values(self, name: str, value: object) -> dict[str, Value]:
        """The fields of a sample, by name; None is no objects.

        Raises:
            PackError: it is something else than such objects; `name` is what to call the sample.
        """
        found = self._by_member(name, value)
        boxes = found[self._boxes]
        for member, entries in found.items():
            if len(entries) != len(boxes):
                raise PackError(
                    f"{name}: its {self._column}.{member} has {len(entries)} entries, and there are "
                    f"{len(boxes)} boxes"
                )
        return {
            field.name: self._value(name, member, field, found[member])
            for member, field in self._fields.items()
        }

    def _by_member(self, name: str, value: object) -> dict[str, list[Any]]:
        if value is None:
            return {member: [] for member in self._fields}
        if isinstance(value, Mapping):
            found: dict[str, object] = {member: _listed(value.get(member)) for member in self._fields}
        else:
            objects = _listed(value)
            if not isinstance(objects, list) or not all(isinstance(each, Mapping) for each in objects):
                raise PackError(f"{name}: its {self._column} are no objects")
            found = {member: [_listed(each.get(member)) for each in objects] for member in self._fields}
        lists: dict[str, list[Any]] = {}
        for member, entries in found.items():
            if not isinstance(entries, list):
                raise PackError(f"{name}: its {self._column}.{member} is no list with an entry an object")
            lists[member] = entries
        return lists

    def _value(self, name: str, member: str, field: Field, entries: list[Any]) -> Value:
        what = f"{name}: its {self._column}.{member}"
        if field.handler.owns_objects:
            return box_rows([_listed(box) for box in entries], field.format, what)
        if field.handler.takes_null:
            return json_value(entries)
        if field.dtype.startswith("float"):
            return numbers(entries, None, what).astype(field.dtype)
        return whole_numbers(entries, field.dtype, what)


def object_members(values: Iterable[Any]) -> dict[str, str]:
    """The members of objects in the values of some samples, as `ObjectColumn` takes them; {}: these are no
    objects with boxes."""
    found: dict[str, list[Any]] = {}
    for value in values:
        objects = _dict_or_list(value)
        # Before the members are made lists: other dicts may hold large arrays.
        if isinstance(objects, Mapping) and box_member(objects):
            entries: dict[str, object] = {str(name): _listed(each) for name, each in objects.items()}
        elif isinstance(objects, list) and objects and all(isinstance(each, Mapping) for each in objects):
            entries = {str(name): [_listed(each.get(name)) for each in objects] for name in objects[0]}
        else:
            continue
        lists = {name: each for name, each in entries.items() if isinstance(each, list)}
        if len(lists) < len(entries):
            continue
        for name, each in lists.items():
            found.setdefault(name, []).extend(each)
    boxes = box_member(found)
    if boxes is None or not all(isinstance(_listed(box), list) for box in found[boxes]):
        return {}
    return {name: _dtype_of(entries) for name, entries in found.items()}


def _dtype_of(entries: Sequence[Any]) -> str:
    """The dtype that holds all of some values; `OTHER` if they are not numbers."""
    kinds = {type(entry) for entry in entries}
    for known, dtype in (({bool}, "bool"), ({int}, "int64"), ({int, float}, "float64")):
        if kinds and kinds <= known:
            return dtype
    return OTHER


def object_columns(
    members: Mapping[str, Mapping[str, str]], names: Mapping[str, str], box_format: BoxFormat
) -> dict[str, ObjectColumn]:
    """Columns of objects with boxes, by name.

    Args:
        members: members of each of these columns, as `ObjectColumn` takes them.
        names: name of each column as a field.
        box_format: format of the boxes.
    """
    taken = {IMAGE_FIELD, *(name for column, name in names.items() if column not in members)}
    found = {}
    for column, kinds in members.items():
        found[column] = ObjectColumn(column, kinds, box_format, taken)
        taken |= {field.name for field in found[column].fields}
    return found


def object_notices(columns: Iterable[str]) -> tuple[Notice, ...]:
    """The notice that columns of objects with boxes are stored as JSON; () if there are none."""
    names = tuple(columns)
    return (Notice(OBJECTS, TEXTS[OBJECTS], len(names), names[:EXAMPLES]),) if names else ()


def object_classes(
    columns: Mapping[str, ObjectColumn], features: Mapping[str, Any]
) -> tuple[tuple[str, ...] | None, dict[str, int]]:
    """Names of the classes of objects, and their number by the field of labels; (None, {}): they have none.

    Args:
        columns: columns of objects.
        features: Hugging Face's description of all columns, as JSON holds it.
    """
    for column, objects in columns.items():
        if objects.label is not None and (names := _names_of(features.get(column), objects.label)):
            return names, {objects.label_field: len(names)}
    return None, {}


def label_names(feature: object) -> tuple[str, ...] | None:
    """Names of a ClassLabel, of Hugging Face's description of a column as JSON holds it; None: it is
    another feature."""
    return class_names(feature.get("names")) if isinstance(feature, Mapping) else None


def class_names(value: object) -> tuple[str, ...] | None:
    """A list of texts, not empty, as names of classes; None for anything else."""
    return (
        tuple(value)
        if isinstance(value, list) and value and all(isinstance(name, str) for name in value)
        else None
    )


def _names_of(feature: object, member: str) -> tuple[str, ...] | None:
    """The names of a ClassLabel that is a member of a feature of dicts, lists and Sequences; None if there
    is none."""
    if isinstance(feature, list):
        return _names_of(feature[0], member) if feature else None
    if not isinstance(feature, Mapping):
        return None
    if member not in feature:
        return _names_of(feature.get("feature"), member)
    label = feature[member]
    while isinstance(label, Mapping) and "names" not in label:
        label = label.get("feature")
    return label_names(label)


def _dict_or_list(value: object) -> Mapping[Any, Any] | list[Any] | None:
    """A dict or a list as it is, and a NumPy array of objects as a list; None for other values: arrays of
    numbers may be large."""
    if isinstance(value, Mapping | list):
        return value
    return value.tolist() if isinstance(value, np.ndarray) and value.dtype == np.object_ else None


def _listed(value: object) -> object:
    """An array or a tensor as a list; anything else as it is."""
    return value.tolist() if hasattr(value, "tolist") else value


def json_value(value: object) -> Value:
    """A nested value of JSON's types: bytes, dates and the like as text."""
    value = _listed(value)
    if isinstance(value, Mapping):
        return {str(key): json_value(each) for key, each in value.items()}
    if isinstance(value, list | tuple):
        return [json_value(each) for each in value]
    return value if isinstance(value, str | int | float | bool) or value is None else str(value)
