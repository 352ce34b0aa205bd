"""ClassCounts: numbers of samples and of objects of each class, which a pack counts and a manifest holds;
and classes in words."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from fastload.store.field import Field
from fastload.store.labels import class_fields, class_name
from fastload.store.manifest import Manifest
from fastload.store.reader import DatasetReader

Counts = Mapping[str, Mapping[int, int]]
"""Number of samples, or of objects, of each label, by field."""

KEY = "class_counts"
"""Key of a manifest's summary."""
_LABELS_MOST = 1000
"""Labels without names up to which they are counted: of more they are no classes."""
_COLUMN_MOST = 10_000_000
"""Samples whose labels are counted where the manifest has no counts."""
_SHOWN = 5


class ClassCounts:
    """Counts of a running pack, by field. A field with too many labels, or with samples that were not
    counted, has None.

    Args:
        state: `state()` of the samples so far.
        counted: False if there were samples so far that were not counted: then none is.
    """

    def __init__(self, state: Mapping[str, Any] | None = None, counted: bool = True) -> None:
        self._counted = counted
        self._found: dict[str, dict[int, int] | None] = {}
        for name, counts in (state or {}).items():
            self._found[name] = (
                None if counts is None else {int(label): count for label, count in counts.items()}
            )

    def add(self, name: str, labels: Iterable[int], most: int) -> None:
        """Counts the labels of a sample; `most`: number of labels up to which they are counted,
        `labels_most`."""
        counts = self._found.setdefault(name, {} if self._counted else None)
        if counts is None:
            return
        for label in labels:
            counts[label] = counts.get(label, 0) + 1
        if len(counts) > most:
            self._found[name] = None

    def merge(self, later: ClassCounts) -> None:
        """Adds the counts of other samples."""
        for name, more in later._found.items():
            counts = self._found.setdefault(name, {})
            if counts is None or more is None:
                self._found[name] = None
                continue
            for label, count in more.items():
                counts[label] = counts.get(label, 0) + count

    def state(self) -> dict[str, dict[str, int] | None]:
        """The counts as JSON values."""
        return {
            name: None if counts is None else {str(label): n for label, n in counts.items()}
            for name, counts in self._found.items()
        }

    @property
    def known(self) -> dict[str, dict[int, int]]:
        """The counts of all fields that have them, labels ascending."""
        return {
            name: dict(sorted(counts.items())) for name, counts in self._found.items() if counts is not None
        }


def labels_most(classes: Sequence[str] | None) -> int:
    """The number of different labels up to which they are counted."""
    return max(_LABELS_MOST, 2 * len(classes or ()))


def to_summary(samples: int, counts: Counts) -> dict[str, Any]:
    """Counts as a manifest's summary holds them, under `KEY`, with the number of samples that they are of."""
    return {
        "samples": samples,
        "labels": {
            name: {str(label): count for label, count in found.items()} for name, found in counts.items()
        },
    }


def joined_counts(first: object, second: object) -> dict[str, Any] | None:
    """Counts of two datasets as one's summary holds them, of those of both; None: not both have some."""
    one, other = _of_summary(first), _of_summary(second)
    if one is None or other is None:
        return None
    (some, counts), (others, more) = one, other
    both = {
        name: {
            label: counts[name].get(label, 0) + more[name].get(label, 0)
            for label in (*counts[name], *more[name])
        }
        for name in counts
        if name in more
    }
    return to_summary(some + others, both)


def _of_summary(found: Any) -> tuple[int, dict[str, dict[int, int]]] | None:
    """(samples, counts) of what a manifest's summary holds; None: it holds none, or something else."""
    try:
        samples, labels = found["samples"], found["labels"]
        counts = {
            str(name): {int(label): int(count) for label, count in each.items()}
            for name, each in labels.items()
        }
    except (AttributeError, KeyError, TypeError, ValueError):
        return None
    return (samples, counts) if isinstance(samples, int) else None


def class_counts(manifest: Manifest, reader: DatasetReader | None = None) -> dict[str, dict[int, int]]:
    """Numbers of samples and of objects of each label, by field, as far as they are known.

    Args:
        manifest: the dataset's manifest. A change by an older release leaves it with the counts of other
            samples, which do not count.
        reader: reader of the same dataset, by which labels are counted where the manifest has no counts;
            None: they are not.
    """
    samples, counts = _of_summary(manifest.summary.get(KEY)) or (-1, {})
    fields = {field.name: field for field in class_fields(manifest.schema, manifest.classes)}
    found = {name: each for name, each in counts.items() if name in fields and samples == manifest.count}
    for name, field in fields.items():
        if name not in found and field.is_column and reader is not None and manifest.count <= _COLUMN_MOST:
            counted = _counted(reader, name, labels_most(manifest.classes))
            found |= {} if counted is None else {name: counted}
    return found


def _counted(reader: DatasetReader, name: str, most: int) -> dict[int, int] | None:
    """Number of samples of each label, ascending, read a shard at a time, of which nothing is kept; None:
    there are more than `most`."""
    counts: Counter[int] = Counter()
    for shard in (shard for shard in reader.manifest.shards if shard.count):
        labels, numbers = np.unique(
            reader.column_range(name, shard.first, shard.first + shard.count), return_counts=True
        )
        counts.update(dict(zip(labels.tolist(), numbers.tolist(), strict=True)))
        if len(counts) > most:
            return None
    return dict(sorted(counts.items()))


def classes_text(classes: Sequence[str] | None, counts: Mapping[int, int] | None) -> str:
    """The number of classes and the first ones with their counts, as in "37: Abyssinian (98), ..., and 32
    more"; "" if there are none."""
    labels = sorted({*range(len(classes or ())), *(counts or {})})
    if not labels:
        return ""
    some = [
        class_name(classes, label) + ("" if counts is None else f" ({counts.get(label, 0):,})")
        for label in labels[:_SHOWN]
    ]
    more = f", and {len(labels) - _SHOWN:,} more" if len(labels) > _SHOWN else ""
    return f"{len(labels):,}: {', '.join(some)}{more}"


def class_lines(
    schema: Iterable[Field], classes: Sequence[str] | None, counts: Counts
) -> list[tuple[str, str]]:
    """(what, text) of the classes in each field that holds some, and of those of a dataset without such a
    field, as of masks."""
    texts = [
        (f"classes in {each.name}", classes_text(classes, counts.get(each.name)))
        for each in class_fields(schema, classes)
    ]
    found = [line for line in texts if line[1]]
    return found or ([("classes", classes_text(classes, None))] if classes else [])
