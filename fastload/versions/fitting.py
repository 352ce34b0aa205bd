"""FittedSource: a source whose samples fit a dataset that they are appended to: the same fields, and labels that mean the same classes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING

from fastload.errors import PackError, printable
from fastload.packing import Item, Source
from fastload.packing.sources.protocol import Value, schema_of
from fastload.packing.trace import Traced
from fastload.store import Field, Manifest

if TYPE_CHECKING:
    from pathlib import Path

    from fastload.packing.summary import Notice

_LABEL = "label"


def fit_source(source: Source, manifest: Manifest, dataset: Path) -> tuple[Source, tuple[str, ...] | None]:
    """The source with labels of the dataset in `dataset`, and the names of the classes of both together.

    Classes go by their names: known ones keep their labels, new ones come after them. Labels without names must be below the number of
    the dataset's classes.

    Raises:
        PackError: the source has other fields than the dataset, or only it has names of classes.
    """
    _check_fields(source, manifest, dataset)
    names = None if manifest.classes is None else tuple(manifest.classes)
    given = source.classes
    labels: Mapping[int, int] = {}
    fields = tuple(field for field in manifest.schema if field != manifest.schema.image)
    if given is not None and given != names:
        if names is None:
            raise PackError(
                f"{source.title} does not fit {dataset}: its labels are classes with names, the dataset's are numbers without names; "
                "give the labels as numbers, in a .csv of path,label"
            )
        names = (*names, *(name for name in given if name not in names))
        places = {name: place for place, name in reversed(list(enumerate(names)))}
        labels = {label: places[name] for label, name in enumerate(given)}
    limit = None if names is None or given is not None or all(field.name != _LABEL for field in fields) else len(names)
    kind = _FittedTraced if isinstance(source, Traced) else _Fitted
    return kind(source, fields, labels, limit, dataset), names


def _check_fields(source: Source, manifest: Manifest, dataset: Path) -> None:
    wanted = {field.name: field for field in manifest.schema if field != manifest.schema.image}
    given = {field.name: field for field in source.fields}
    added = {name for shard in manifest.shards for name in shard.added}
    start = f"{source.title} does not fit {dataset}: "
    image, stored = schema_of(source).fields[0], manifest.schema.image
    if stored is not None and (image.dtype, image.shape) != (stored.dtype, stored.shape):
        raise PackError(f"{start}its image is {image}, the dataset's {stored}; change the source's")
    for name, field in wanted.items():
        if name not in given:
            drop = f", or take it away first: `fastload columns {dataset} drop {name}`" if name in added else ""
            raise PackError(f"{start}it has no field {name!r} ({field}); give the source one{drop}")
        if given[name] != field:
            raise PackError(f"{start}its field {name!r} is {given[name]}, the dataset's {field}; change the source's")
        if what := given[name].other_points(field):
            raise PackError(f"{start}the keypoints of its field {name!r} have other {what} than the dataset's; put them in its order")
    for name in given:
        if name not in wanted:
            raise PackError(
                f"{start}the dataset has no field {name!r}; leave it out of the source, or add it: `fastload columns {dataset} add`"
            )


class _Fitted:
    """A source with other labels."""

    def __init__(self, source: Source, fields: tuple[Field, ...], labels: Mapping[int, int], limit: int | None, dataset: Path) -> None:
        self._source = source
        self._labels = labels
        self._limit = limit
        self._dataset = dataset
        self.fields = fields

    @property
    def title(self) -> str:
        """The source's."""
        return self._source.title

    @property
    def classes(self) -> tuple[str, ...] | None:
        """The source's."""
        return self._source.classes

    @property
    def concurrent(self) -> bool:
        """The source's."""
        return self._source.concurrent

    @property
    def image_field(self) -> Field:
        """The source's."""
        return schema_of(self._source).fields[0]

    @property
    def label_limits(self) -> Mapping[str, int]:
        """The source's."""
        return dict(getattr(self._source, "label_limits", {}))

    @property
    def says_drawn_on(self) -> bool:
        """The source's."""
        return bool(getattr(self._source, "says_drawn_on", False))

    @property
    def notices(self) -> tuple[Notice, ...]:
        """The source's."""
        return tuple(getattr(self._source, "notices", ()))

    def __len__(self) -> int:
        return len(self._source)

    def name(self, position: int) -> str:
        """The source's."""
        return self._source.name(position)

    def read(self, position: int) -> Item:
        """The source's sample, with the label of the dataset."""
        item = self._source.read(position)
        return replace(item, values=self._fit(item.values, item.name))

    def _fit(self, values: dict[str, Value], name: str) -> dict[str, Value]:
        label = values.get(_LABEL)
        if isinstance(label, int) and label in self._labels:
            return {**values, _LABEL: self._labels[label]}
        if self._limit is not None and isinstance(label, int) and not 0 <= label < self._limit:
            raise PackError(
                f"{printable(name)} has the label {label}, and {self._dataset} has the classes 0 to {self._limit - 1}: "
                "give the source names of classes, of which new ones are added"
            )
        return values


class _FittedTraced(_Fitted):
    """A source that knows more of its samples than names."""

    _source: Source

    @property
    def _traced(self) -> Traced:
        assert isinstance(self._source, Traced)
        return self._source

    def key(self, position: int) -> str:
        """The source's."""
        return self._traced.key(position)

    def stamp(self, position: int) -> tuple[int, int]:
        """The source's."""
        return self._traced.stamp(position)

    def fields_of(self, position: int) -> dict[str, Value] | None:
        """The source's, with the label of the dataset."""
        values = self._traced.fields_of(position)
        return None if values is None else self._fit(values, self.name(position))
