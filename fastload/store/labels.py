"""Labels: the field with the class of a sample, and the fields with the classes of its objects."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence

from fastload.store.field import Field

LABEL = "label"
"""Name of the field of a sample's class."""
LABELS = "labels"
"""Name of the field of the classes of a sample's objects."""
_IDS = frozenset(("id", "index", "idx", "imageid", "imgid", "imageindex", "sampleid", "sampleindex"))
"""Names, in small letters and without underscores, of numbers that tell samples apart."""
_LABEL_NAMES = ("label", "category", "categories", "class", "classes", "class_id", "category_id", "label_id")
_NO_LABELS = frozenset(("id", "iscrowd", "crowd", "difficult", "truncated", "occluded", "ignore", "segment"))
"""Names of whole numbers that objects have beside their class."""


def is_label(field: Field) -> bool:
    """Returns True if a field is the label, which files of samples have apart from other numbers."""
    return field.name == LABEL and field.handler.can_label


def label_field(schema: Iterable[Field], names: Collection[str] | None = None) -> Field | None:
    """The field with the class of a sample: `label`, or else the only whole number; None: a sample has no
    class.

    A number that is an id by its name is no class. Beside boxes, masks or instances only `label` is: the
    classes are those of the objects.

    Args:
        schema: fields of the dataset.
        names: names of the fields among which it is; None: all.
    """
    schema = tuple(schema)
    found = [field for field in schema if field.handler.can_label and (names is None or field.name in names)]
    named = next(filter(is_label, found), None)
    if named is not None or len(found) != 1 or any(_has_classes(field) for field in schema):
        return named
    return None if found[0].name.replace("_", "").lower() in _IDS else found[0]


def object_labels(schema: Iterable[Field]) -> tuple[Field, ...]:
    """The fields with the classes of objects: for each field of boxes at most one, and `labels` of
    instances without boxes."""
    schema = tuple(schema)
    owners = [field.name for field in schema if field.handler.owns_objects]
    found = [labels_of(schema, owner) for owner in owners]
    if any(_is_instances(field) and not field.of for field in schema):
        found.append(
            next(
                (
                    field
                    for field in schema
                    if field.name == LABELS and _is_number_each(field) and not field.of
                ),
                None,
            )
        )
    return tuple(field for field in found if field is not None)


def class_fields(schema: Iterable[Field], classes: Sequence[str] | None) -> tuple[Field, ...]:
    """The fields that hold classes: that of a sample, if classes have names or it is called `label`, and
    those of objects."""
    schema = tuple(schema)
    label = label_field(schema)
    return (
        *((label,) if label is not None and (classes is not None or is_label(label)) else ()),
        *object_labels(schema),
    )


def labels_of(schema: Iterable[Field], boxes: str) -> Field | None:
    """The field with the class of each of the boxes: `labels`, one of a usual name, or the only whole
    number; None: boxes have no class."""
    found = {
        field.name: field
        for field in schema
        if field.of == boxes and _is_number_each(field) and field.name not in _NO_LABELS
    }
    ends = [name for name in found if name.endswith(f"_{LABELS}")]
    name = next((name for name in (LABELS, *ends, *_LABEL_NAMES) if name in found), "")
    return found.get(name) or (next(iter(found.values())) if len(found) == 1 else None)


def class_name(classes: Sequence[str] | None, label: int) -> str:
    """The class of a label, or its number where it has no name."""
    return classes[label] if classes is not None and 0 <= label < len(classes) else str(label)


def _has_classes(field: Field) -> bool:
    """Returns True for boxes, masks and instances."""
    return field.handler.owns_objects or field.handler.is_as_large


def _is_instances(field: Field) -> bool:
    return field.handler.is_as_large and not field.handler.holds_labels


def _is_number_each(field: Field) -> bool:
    """Returns True for an array of any number of whole numbers."""
    return (
        field.is_varying
        and field.handler.is_array
        and not field.row_shape
        and field.stored_dtype.kind in "iu"
    )
