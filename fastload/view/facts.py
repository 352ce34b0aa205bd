"""Facts about a dataset: classes, and histograms of sizes, counts and numbers, from its columns; nothing is
decoded.

NOTE [ view: what is sampled ]
Columns are read whole for up to COLUMN_MOST samples: 8 bytes each. Of a larger dataset the facts are those of
so many evenly spaced samples, and the page says so. Texts lie in records, with the images: of a dataset on a
disk RECORDS evenly spaced records are read for them, of one in a bucket none. So do the classes of objects,
which are read likewise where the manifest has not counted them.
"""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from fastload.errors import SampleError
from fastload.store import HEIGHT_COLUMN, WIDTH_COLUMN, Field
from fastload.store.class_counts import class_counts
from fastload.store.labels import object_labels
from fastload.view.subject import Subject, spread

COLUMN_MOST = 4_000_000
"""Samples whose columns are read."""
RECORDS = 256
"""Records that are read."""
_BINS = 32
_EACH_MOST = 32
"""Distinct numbers up to which each has its own bar."""
_CLASSES_MOST = 2000
_COMMON = 12


class Facts:
    """The facts, which are made once, by the first thread that asks."""

    def __init__(self, subject: Subject) -> None:
        self._subject = subject
        self._lock = threading.Lock()
        self._made: dict[str, Any] | None = None

    def document(self) -> dict[str, Any]:
        """`sampled`: what was left out, in words; `classes`: [[name, label, number of samples], ...], most
        first; `classes_left`: how many more there are; `objects`: the same of each field with the classes of
        objects, [{field, of, classes, left}]; and `charts`.

        A chart is {title, name, bars}: `name` is the column of a condition, or ""; a bar is [text, number of
        samples, least, most], with most None if the bar is of the one value least.

        Raises:
            DatasetError: a column is damaged.
        """
        with self._lock:
            if self._made is None:
                self._made = self._make()
            return self._made

    def _make(self) -> dict[str, Any]:
        reader = self._subject.dataset.opened.reader
        count = len(self._subject.dataset)
        chosen = spread(count, COLUMN_MOST)
        sampled = (
            [] if len(chosen) == count else [f"columns of {len(chosen):,} evenly spaced samples of {count:,}"]
        )
        charts = [
            _chart(f"{name} of the image, pixels", name, self._column(column, chosen))
            for name, column in (("width", WIDTH_COLUMN), ("height", HEIGHT_COLUMN))
            if reader.manifest.knows_sizes
        ]
        for field in reader.schema:
            charts += self._charts(field, chosen)
        texts, objects, read = self._of_records()
        sampled += [f"{read:,} evenly spaced records"] if 0 < read < count else []
        classes, left = self._classes(chosen)
        return {
            "sampled": "; ".join(sampled),
            "classes": classes,
            "classes_left": left,
            "objects": objects,
            "charts": [*filter(None, charts), *texts],
        }

    def _column(self, name: str, chosen: Sequence[int]) -> npt.NDArray[Any]:
        reader = self._subject.dataset.opened.reader
        if isinstance(chosen, range):
            return reader.column(name)
        return reader.take(name, np.asarray(chosen, np.int64))

    def _charts(self, field: Field, chosen: Sequence[int]) -> list[dict[str, Any] | None]:
        reader = self._subject.dataset.opened.reader
        if field.is_varying or field.handler.is_list:
            if field.of:  # as many rows as there are boxes
                return []
            (hidden,) = reader.schema.hidden_names(field)
            return [_chart(f"number of {field.name}", f"{field.name}_count", self._column(hidden, chosen))]
        if not field.is_column or (field.name == self._subject.label and self._subject.dataset.classes):
            return []
        values = self._column(field.name, chosen)
        if values.ndim > 1:
            return [_chart(f"numbers in {field.name}", "", values.reshape(-1))]
        return [_chart(field.name, field.name, values)]

    def _classes(self, chosen: Sequence[int]) -> tuple[list[list[Any]], int]:
        label = self._subject.label
        if label is None or not self._subject.dataset.classes:
            return [], 0
        labels, counts = np.unique(self._column(label, chosen), return_counts=True)
        return self._counted(dict(zip(labels.tolist(), counts.tolist(), strict=True)))

    def _counted(self, counts: Mapping[int, int]) -> tuple[list[list[Any]], int]:
        """[name, label, count] of the most common labels, most first, and the number of the others."""
        order = sorted(counts, key=lambda label: (-counts[label], label))
        return [
            [self._subject.label_text(label), label, counts[label]] for label in order[:_CLASSES_MOST]
        ], max(0, len(order) - _CLASSES_MOST)

    def _of_records(self) -> tuple[list[dict[str, Any]], list[dict[str, Any]], int]:
        """Charts of the most common texts, classes of objects, and the number of samples that were read."""
        dataset = self._subject.dataset
        schema = dataset.opened.reader.schema
        texts = [field.name for field in schema if field.handler.is_text and not field.is_column]
        labels, counts = object_labels(schema), class_counts(dataset.opened.reader.manifest)
        asked = [*texts, *(field.name for field in labels if field.name not in counts)]
        found: dict[str, Counter[Any]] = {name: Counter() for name in asked}
        chosen = spread(len(dataset), 0 if dataset.opened.reader.files.remote or not asked else RECORDS)
        for index in chosen:
            for name, value in self._stored(index, asked).items():
                found[name].update([str(value)[:80]] if name in texts else value.tolist())
        known: Mapping[str, Mapping[int, int]] = {**counts, **(found if chosen else {})}
        objects = []
        for field in labels:
            if field.name in known:
                classes, left = self._counted(known[field.name])
                objects.append({"field": field.name, "of": field.of, "classes": classes, "left": left})
        return [_common(name, found[name]) for name in texts if chosen], objects, len(chosen)

    def _stored(self, index: int, names: list[str]) -> dict[str, Any]:
        """Values in a sample's record; {} of a bad one."""
        try:
            return self._subject.dataset.stored_values(index, names)
        except SampleError as error:
            self._subject.meet(index, error)
            return {}


def _common(name: str, counter: Counter[str]) -> dict[str, Any]:
    """The chart of the most common texts."""
    bars = [[text, count, None, None] for text, count in counter.most_common(_COMMON)]
    return {"title": f"most common of {name}: {len(counter):,} different", "name": "", "bars": bars}


def _chart(title: str, name: str, values: npt.NDArray[Any]) -> dict[str, Any] | None:
    """The histogram of numbers: a bar for each of few, else bars of equal width; None if there are none."""
    finite = values[np.isfinite(values)] if values.dtype.kind == "f" else values
    if not finite.size:
        return None
    least, most = finite.min(), finite.max()
    bars: list[list[Any]]
    if least == most or (finite.dtype.kind in "iub" and int(most) - int(least) < _EACH_MOST):
        numbers, counts = np.unique(finite, return_counts=True)
        bars = [
            [f"{number:g}", count, number, None]
            for number, count in zip(numbers.tolist(), counts.tolist(), strict=True)
        ]
    else:
        wide = finite.astype(np.float64)
        edges = np.histogram_bin_edges(wide, _BINS)
        edges[-1] = np.nextafter(edges[-1], np.inf)  # a bar's condition is least <= x < most
        if finite.dtype.kind in "iu":
            edges = np.append(np.unique(np.ceil(edges[:-1])), float(most) + 1)
        counts, _ = np.histogram(wide, edges)
        spans = zip(edges[:-1].tolist(), edges[1:].tolist(), counts.tolist(), strict=True)
        last = 1 if finite.dtype.kind in "iu" else 0
        bars = [
            [f"{low:g}" if high == low + last else f"{low:g} .. {high - last:g}", count, low, high]
            for low, high, count in spans
        ]
    left = int(values.size - finite.size)
    return {"title": title + (f" ({left:,} are not finite)" if left else ""), "name": name, "bars": bars}
