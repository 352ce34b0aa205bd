"""Small datasets of every kind of field, whose values follow from the index."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from fastload.store import DatasetReader, DatasetWriter, Field, Manifest, Schema

SCHEMA = Schema(
    (
        Field("image", "image"),
        Field("label", "int"),
        Field("weight", "float"),
        Field("box", "array", "int16", (2, 2)),
        Field("raw", "bytes"),
        Field("caption", "text"),
        Field("meta", "json"),
    )
)
OPTIONS = {"encode": "keep", "quality": 90}


def values_of(index: int) -> dict[str, Any]:
    """Sample index: the image is no real JPEG, which the store does not look at."""
    rng = np.random.default_rng(index)
    return {
        "image": rng.bytes(int(rng.integers(1, 9000))),
        "label": index * 3 - 7,
        "weight": index / 3,
        "box": rng.integers(-(2**15), 2**15, (2, 2), dtype=np.int16),
        "raw": rng.bytes(index % 50),
        "caption": f"Nr. {index} — ☃",
        "meta": {"n": index, "list": [None, True, 1.5]},
    }


def append(writer: DatasetWriter, index: int) -> None:
    """Appends sample index with a state, and a note, that name it."""
    writer.note(b"%08d" % index)
    writer.append(
        values_of(index), image_kind="jpeg", height=index % 90 + 1, width=7, state=lambda: {"done": index}
    )


def write(out: Path, count: int, *, shard_size: int = 60_000, **arguments: Any) -> Manifest:
    """A dataset of count samples, or the rest of one that is resumed."""
    with DatasetWriter(out, SCHEMA, shard_size=shard_size, options=OPTIONS, **arguments) as writer:
        for index in range(writer.next_index, count):
            append(writer, index)
        return writer.finish(["a", "b"], {"samples": count})


def contents(path: Path) -> tuple[list[bytes], dict[str, list[Any]]]:
    """Every record and every column of a dataset."""
    with DatasetReader(path) as reader:
        records = [reader.record(i) for i in range(len(reader))]
        return records, {name: reader.column(name).tolist() for name in reader.schema.columns}
