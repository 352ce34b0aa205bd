"""SampleForm: the structure in which a dataset delivers the fields of a sample, as `fields=` asks for it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from fastload.batch.containers import Path
from fastload.errors import ArgumentError


@dataclass(frozen=True)
class SampleForm:
    """Fields of a sample, and their structure.

    | fields= | sample |
    |---|---|
    | ("image", "label") | names alone: the dataset's own form: a pair of an image and one int or one mask, else a dict |
    | ("image", ["boxes", "labels"]) | (image, {"boxes": ..., "labels": ...}) |
    | ("image", {"masks": "instances"}) | (image, {"masks": ...}), of the field "instances" |
    | {"pixels": "image", "y": "label"} | {"pixels": ..., "y": ...} |

    Attributes:
        names: names of the fields, in order.
        parts: entries of a tuple, each a name or (key, name) pairs; None for names alone.
        is_dict: True if the sample is the first of the parts, and no tuple.
    """

    names: tuple[str, ...]
    parts: tuple[str | tuple[tuple[str, str], ...], ...] | None = None
    is_dict: bool = False

    @classmethod
    def of(cls, fields: Sequence[Any] | Mapping[str, str]) -> SampleForm:
        """The form that an argument `fields=` asks for.

        Raises:
            ArgumentError: it is one text, has something else than names, lists and mappings of names, or a field twice in a structure.
        """
        if isinstance(fields, str):
            raise ArgumentError(f"fields={fields!r} is one text, not a sequence of names: write fields=({fields!r},)")
        if isinstance(fields, Mapping):
            return cls._checked((_pairs(fields),), True)
        given = tuple(fields)
        if all(isinstance(each, str) for each in given):
            return cls(given)
        return cls._checked(tuple(each if isinstance(each, str) else _pairs(each) for each in given), False)

    @classmethod
    def _checked(cls, parts: tuple[str | tuple[tuple[str, str], ...], ...], is_dict: bool) -> SampleForm:
        names = tuple(name for part in parts for name in ((part,) if isinstance(part, str) else (name for _, name in part)))
        for name in names:
            if names.count(name) > 1:
                raise ArgumentError(f"fields= has {name!r} twice: name it once")
        return cls(names, parts, is_dict)

    def __repr__(self) -> str:
        """The form as it was given, in lists, tuples and dicts."""
        if self.parts is None:
            return repr(list(self.names))
        shown = [part if isinstance(part, str) else _shown(part) for part in self.parts]
        return repr(shown[0] if self.is_dict else tuple(shown))

    def check(self, known: SampleForm, path: object) -> None:
        """Raises ArgumentError if a name is not among the known ones, of the dataset at `path`."""
        for name in self.names:
            if name not in known.names:
                raise ArgumentError(f"{path} has no field {name!r}; it has {', '.join(known.names)}")

    def fill(self, values: Mapping[str, Any]) -> Any:
        """The sample, or the batch, of this structure from values by field."""
        assert self.parts is not None  # whoever has a structure asks
        filled = [values[part] if isinstance(part, str) else {key: values[name] for key, name in part} for part in self.parts]
        return filled[0] if self.is_dict else tuple(filled)

    @property
    def paths(self) -> dict[str, Path]:
        """Path of each field in a sample, by name; empty for names alone."""
        return dict(self._paths())

    def _paths(self) -> Iterator[tuple[str, Path]]:
        for at, part in enumerate(self.parts or ()):
            if isinstance(part, str):
                yield part, (at,)
            else:
                yield from ((name, (key,) if self.is_dict else (at, key)) for key, name in part)


def _pairs(part: Any) -> tuple[tuple[str, str], ...]:
    """(key, name) of a list of names, which are keys themselves, or of a mapping of keys to names."""
    if isinstance(part, Mapping):
        pairs = tuple(part.items())
    elif isinstance(part, list):
        pairs = tuple((name, name) for name in part)
    else:
        pairs = ()
    if not pairs or not all(isinstance(each, str) for pair in pairs for each in pair):
        raise ArgumentError(f"fields= has {part!r}, which is no name, list of names, or mapping of keys to names")
    return pairs


def _shown(pairs: tuple[tuple[str, str], ...]) -> Any:
    return [name for _, name in pairs] if all(key == name for key, name in pairs) else dict(pairs)
