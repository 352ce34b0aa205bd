"""sample_document(): all that a dataset has of one sample: its fields, its layers, and facts about its
record."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any
from urllib.parse import quote

from fastload.errors import SampleError
from fastload.store import Field, stored_size
from fastload.store.kinds.codecs import BY_ENTRY
from fastload.store.labels import object_labels
from fastload.view.layers import is_marked, layers_of
from fastload.view.shown import text_of
from fastload.view.subject import Subject


def sample_document(subject: Subject, index: int) -> dict[str, Any]:
    """A sample for a page: `index`, `label`, `size` [width, height], `images`, `layers`, `fields` and
    `facts`.

    Each image is {name, picture, width, height}, where `picture` is a path that `side=...` goes behind; each
    field is {name, kind, text}, and each fact [what, text].

    Raises:
        SampleError: its record cannot be read.
    """
    reader = subject.dataset.opened.reader
    values = _values(subject, index, reader.schema)
    height, width = stored_size(reader, index)
    label = subject.label
    return {
        "index": index,
        "label": "" if label is None else subject.label_text(int(values[label])),
        "size": [width, height],
        "images": [_image(subject, index, field) for field in reader.schema if field.handler.is_image],
        "layers": _layers(subject, index, values),
        "fields": _fields(subject, values) if subject.samples is None else _of_whole(subject, index),
        "facts": _facts(subject, index),
    }


def _fields(subject: Subject, values: dict[str, Any]) -> list[dict[str, str]]:
    dataset = subject.dataset
    return [
        {"name": field.name, "kind": field.describe(), "text": _text(subject, field, values)}
        for field in dataset.opened.reader.schema
        if field.name in dataset.fields and field.name in values and not field.handler.has_pixels
    ]


def _of_whole(subject: Subject, image: int) -> list[dict[str, str]]:
    """The fields of the sample that an image is one of."""
    sample, number = subject.place(image)
    others = [field for field in subject.whole.dataset.opened.reader.schema if not field.handler.is_list]
    about = {"name": "sample", "kind": "", "text": f"{sample}, its image {number}"}
    return [about, *_fields(subject.whole, _values(subject.whole, sample, others))]


def layers_document(subject: Subject, index: int, side: int) -> dict[str, Any]:
    """`layers` of a sample alone, whose pictures are within `side` pixels. Raises SampleError if its
    record cannot be read."""
    schema = subject.dataset.opened.reader.schema
    fields = [*filter(is_marked, schema), *object_labels(schema)]
    return {"layers": _layers(subject, index, _values(subject, index, fields), f"&side={side}")}


def _layers(subject: Subject, index: int, values: dict[str, Any], query: str = "") -> list[dict[str, Any]]:
    return layers_of(subject, values, lambda name: f"layer/{index}.png?field={quote(name, safe='')}{query}")


def _values(subject: Subject, index: int, fields: Iterable[Field]) -> dict[str, Any]:
    """Values of some of the sample's fields by name; of masks and instances none is read, and None stands
    in their place."""
    dataset, fields = subject.dataset, list(fields)
    stored = [field.name for field in fields if not field.is_column and not field.handler.has_pixels]
    values = dataset.stored_values(index, stored) if stored else {}
    names = {field.name for field in fields}
    values |= {name: found[0] for name, found in dataset.column_values([index]).items() if name in names}
    return values | {field.name: None for field in fields if field.handler.is_as_large}


def _text(subject: Subject, field: Field, values: dict[str, Any]) -> str:
    text = text_of(values[field.name])
    classes = subject.dataset.classes
    return f"{text}: {subject.label_text(int(text))}" if field.name == subject.label and classes else text


def _image(subject: Subject, index: int, field: Field) -> dict[str, Any]:
    height, width = stored_size(subject.dataset.opened.reader, index, field)
    query = (
        "" if field == subject.dataset.opened.reader.schema.image else f"field={quote(field.name, safe='')}&"
    )
    return {"name": field.name, "picture": f"picture/{index}.png?{query}", "width": width, "height": height}


def _facts(subject: Subject, index: int) -> list[list[str]]:
    reader = subject.dataset.opened.reader
    found = [["file", reader.shard_of(index)]]
    try:
        stored = reader.stored_fields(index)
    except SampleError as error:
        return [*found, ["record", error.reason or str(error)]]
    found.append(
        ["record", f"{sum(len(data) for _, data in stored.values()):,} bytes in {len(stored)} entries"]
    )
    for number, (kind, data) in stored.items():
        codec = BY_ENTRY.get(kind)
        if codec is not None and number < len(reader.schema):
            field = reader.schema.fields[number]
            height, width = stored_size(reader, index, field)
            found.append([field.name, f"{width} x {height}, {codec.name}, {len(data):,} bytes"])
    return found
