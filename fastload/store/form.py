"""Form of a sample: tuples and dicts of the names of its fields, nested to any depth, and its JSON in a
manifest."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from fastload.store.checked import Bad, get_list, get_object, get_str, shown

Path = tuple[Any, ...]
"""Keys and positions that lead to a part of a sample or a batch."""
_DEPTH = 50
"""Limit on the depth of a form in a manifest."""


@dataclass(frozen=True)
class Parts:
    """Parts of a sample, or of a part of it.

    Attributes:
        parts: forms of the parts.
        keys: their keys in a dict; None: they are a tuple.
    """

    parts: tuple[Form, ...]
    keys: tuple[str | int, ...] | None = None

    @property
    def places(self) -> tuple[Any, ...]:
        """Keys, or positions, of the parts."""
        return tuple(range(len(self.parts))) if self.keys is None else self.keys


Form = str | Parts
"""The name of a field, or several parts."""


def names_of(form: Form) -> tuple[str, ...]:
    """Names of the fields, in order."""
    return tuple(name for name, _ in _paths(form))


def paths_of(form: Form) -> dict[str, Path]:
    """Path of each field in a sample, by name."""
    return dict(_paths(form))


def _paths(form: Form, at: Path = ()) -> Iterator[tuple[str, Path]]:
    if isinstance(form, str):
        yield form, at
    else:
        for place, part in zip(form.places, form.parts, strict=True):
            yield from _paths(part, (*at, place))


def names_in_tuples(form: Form) -> frozenset[str]:
    """Names of the fields that are entries of tuples, not of dicts."""
    if isinstance(form, str):
        return frozenset()
    own = (part for part in form.parts if isinstance(part, str) and form.keys is None)
    return frozenset(own).union(*map(names_in_tuples, form.parts))


def with_lists(form: Form, value: Any) -> object:
    """A value of a form, with lists in place of the form's tuples."""
    if isinstance(form, str):
        return value
    parts = [with_lists(part, value[place]) for place, part in zip(form.places, form.parts, strict=True)]
    return parts if form.keys is None else dict(zip(form.keys, parts, strict=True))


def filled(form: Form, values: Callable[[str], Any]) -> Any:
    """The sample, or the batch, of a form; `values` returns that of a field."""
    if isinstance(form, str):
        return values(form)
    parts = [filled(part, values) for part in form.parts]
    return tuple(parts) if form.keys is None else dict(zip(form.keys, parts, strict=True))


def to_json(form: Form) -> str | dict[str, Any]:
    """The JSON form that a manifest stores."""
    if isinstance(form, str):
        return form
    parts = [to_json(part) for part in form.parts]
    return (
        {"tuple": parts}
        if form.keys is None
        else {"dict": [list(pair) for pair in zip(form.keys, parts, strict=True)]}
    )


def from_json(value: object, depth: int = 0) -> Form:
    """Parses the form in a manifest; every value is checked, but for the names. Raises Bad if it is none."""
    if isinstance(value, str):
        return value
    found = get_object(value, "a part of the form")
    if depth > _DEPTH:
        raise Bad("the form is nested too deeply")
    if "tuple" in found:
        return Parts(
            tuple(from_json(part, depth + 1) for part in get_list(found["tuple"], "the parts of a tuple"))
        )
    pairs = [
        get_list(pair, "an entry of a dict") for pair in get_list(found.get("dict"), "the entries of a dict")
    ]
    if any(len(pair) != 2 for pair in pairs):
        raise Bad("an entry of a dict is no pair")
    keys = tuple(key if isinstance(key, int) else get_str(key, "a key") for key, _ in pairs)
    if len(set(keys)) < len(keys):
        raise Bad(f"a dict has a key twice: {shown(keys)}")
    return Parts(tuple(from_json(part, depth + 1) for _, part in pairs), keys)


def same_fields(form: Form, fields: Mapping[str, Any]) -> bool:
    """Returns True if a form has each of the fields once, and no other: otherwise fields were added or
    taken away since it was stored."""
    names = names_of(form)
    return sorted(names) == sorted(fields)
