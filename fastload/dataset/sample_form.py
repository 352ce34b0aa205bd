"""SampleForm: the structure in which a dataset delivers the fields of a sample, as `fields=` asks for it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from fastload.errors import ArgumentError
from fastload.store.form import Form, Parts, Path, filled, names_of, paths_of


@dataclass(frozen=True)
class SampleForm:
    """Fields of a sample, and their structure.

    | fields= | sample |
    |---|---|
    | ["image", "label"] | names alone: a pair of an image and one int or one mask, else a dict |
    | ("image", "age") | a tuple of an image and one other value is a pair; of other names a dict |
    | ("image", ["boxes", "labels"]) | (image, {"boxes": ..., "labels": ...}) |
    | ("image", {"masks": "instances"}) | (image, {"masks": ...}), of the field "instances" |
    | ("image", ("age", {"x": "width"})) | (image, (age, {"x": width})), nested to any depth |
    | {"pixels": "image", "y": "label"} | {"pixels": ..., "y": ...} |

    Attributes:
        names: names of the fields, in order.
        root: the structure; None for names alone.
        is_tuple: True if names alone were given as a tuple.
    """

    names: tuple[str, ...]
    root: Form | None = None
    is_tuple: bool = field(default=False, compare=False)

    @classmethod
    def of(cls, fields: Sequence[Any] | Mapping[str, Any]) -> SampleForm:
        """The form that an argument `fields=` asks for.

        Raises:
            ArgumentError: it is one text, has something else than names, tuples, lists and mappings of names,
                or a field twice in a structure.
        """
        if isinstance(fields, str):
            raise ArgumentError(
                f"fields={fields!r} is one text, not a sequence of names: write fields=({fields!r},)"
            )
        if not isinstance(fields, Mapping) and all(isinstance(each, str) for each in fields):
            return cls(tuple(fields), is_tuple=isinstance(fields, tuple))
        return cls.structured(_part(fields) if isinstance(fields, Mapping) else _part(tuple(fields)))

    @classmethod
    def structured(cls, root: Form) -> SampleForm:
        """The form of a structure. Raises ArgumentError if it has a field twice."""
        names = names_of(root)
        for name in names:
            if names.count(name) > 1:
                raise ArgumentError(f"fields= has {name!r} twice: name it once")
        return cls(names, root)

    def __repr__(self) -> str:
        """The form as it was given, in lists, tuples and dicts."""
        return repr(list(self.names) if self.root is None else _shown(self.root))

    def check(self, known: SampleForm, path: object) -> None:
        """Raises ArgumentError if a name is not among the known ones, of the dataset at `path`."""
        for name in self.names:
            if name not in known.names:
                raise ArgumentError(f"{path} has no field {name!r}; it has {', '.join(known.names)}")

    def fill(self, values: Mapping[str, Any]) -> Any:
        """The sample, or the batch, of this structure from values by field."""
        assert self.root is not None  # whoever has a structure asks
        return filled(self.root, values.__getitem__)

    @property
    def paths(self) -> dict[str, Path]:
        """Path of each field in a sample, by name; empty for names alone."""
        return {} if self.root is None else paths_of(self.root)


def _part(part: object) -> Form:
    """The form of a name, a tuple of parts, a list of names, which are keys themselves, or a mapping of
    keys to parts."""
    if isinstance(part, str):
        return part
    if isinstance(part, tuple) and part:
        return Parts(tuple(map(_part, part)))
    if isinstance(part, list) and part and all(isinstance(each, str) for each in part):
        return Parts(tuple(part), tuple(part))
    if isinstance(part, Mapping) and part and all(isinstance(key, str | int) for key in part):
        return Parts(tuple(map(_part, part.values())), tuple(part))
    raise ArgumentError(
        f"fields= has {part!r}, which is no name, list of names, or mapping or tuple of parts"
    )


def _shown(form: Form) -> Any:
    if isinstance(form, str):
        return form
    if form.keys is None:
        return tuple(map(_shown, form.parts))
    if form.keys == form.parts:
        return list(form.keys)
    return dict(zip(form.keys, map(_shown, form.parts), strict=True))
