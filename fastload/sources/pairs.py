"""Structure of a Dataset's pairs: tuples and dicts, nested, of which each part is a field of its own.

A list is JSON, and so is a tuple or dict where the first samples have other keys or numbers of parts. A field
has the key as its name, or the number after the name of the tuple: `label_0`, `pose_1`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from fastload.errors import ArgumentError, PackError
from fastload.store import Field
from fastload.store.form import Form, Parts, paths_of
from fastload.store.labels import LABEL

_DEPTH = 20
"""Limit on the depth of a structure; a deeper value is JSON."""


def structure_of(values: Sequence[Any], taken: str) -> Form | None:
    """Form of the second values of some pairs; None: they have no parts, or differ in them. No field is
    named `taken`, as the image is."""
    names = {taken}
    form = _form(values[0], "", names)
    return form if not isinstance(form, str) and all(fits(form, value) for value in values) else None


def fits(form: Form, value: object) -> bool:
    """Returns True if a value has a structure."""
    parts = _parts(value)
    if isinstance(form, str):
        return not parts
    return tuple(parts) == form.places and all(map(fits, form.parts, parts.values()))


def leaves(form: Form, value: object) -> dict[str, Any]:
    """Values by the names of the fields.

    Raises:
        PackError: the value has another structure.
    """
    if not fits(form, value):
        raise PackError(
            "its second value has other keys or another number of parts than those of the first "
            "samples: give all samples the same, or a "
            "list, which is stored as JSON"
        )
    return {name: _at(value, place) for name, place in paths_of(form).items()}


def _form(value: object, name: str, names: set[str], depth: int = 0) -> Form:
    parts = _parts(value) if depth < _DEPTH else {}
    if parts:
        inner = tuple(_form(part, _joined(name, key), names, depth + 1) for key, part in parts.items())
        return Parts(inner, tuple(parts) if isinstance(value, Mapping) else None)
    free = name if _can_name(name) else LABEL
    while free in names:
        free += "_"
    names.add(free)
    return free


def _joined(name: str, key: str | int) -> str:
    """The name of a part: a key alone at the top, else with the names above it."""
    if not name:
        return key if isinstance(key, str) else f"{LABEL}_{key}"
    return f"{name}_{key}"


def _can_name(name: str) -> bool:
    """Returns True if a field can have a name."""
    try:
        Field(name, "int")
    except ArgumentError:
        return False
    return True


def _parts(value: object) -> Mapping[Any, Any]:
    """Parts of a tuple or a dict by their places; {}: it is a value."""
    if isinstance(value, tuple):
        return dict(enumerate(value))
    if isinstance(value, Mapping) and all(isinstance(key, str | int) for key in value):
        return value
    return {}


def _at(value: Any, place: Sequence[Any]) -> Any:
    for key in place:
        value = value[key]
    return value
