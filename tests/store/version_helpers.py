"""Datasets as changes leave them, their manifests and files written by hand: rows left out, fields added,
shards elsewhere."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from store_helpers import write

from fastload._native import core
from fastload.store import Field, Manifest, Schema, Segment


def segment(path: Path, data: bytes, folder: str | None = None, before: bytes = b"") -> Segment:
    """Writes a file whose bytes after `before` are the segment."""
    path.write_bytes(before + data)
    return Segment(path.name, len(before), len(data), core.crc32c(data), folder)


def packed_values(values: Sequence[bytes]) -> bytes:
    """A segment of values of any length."""
    ends = np.cumsum([0, *map(len, values)]).astype("<u8")
    return ends.tobytes() + b"".join(values)


def changed(folder: Path, count: int = 40) -> tuple[Path, list[int]]:
    """A dataset with every key of format 2, and the number of each of its samples among the `count` of
    store_helpers.

    The shards lie in another folder, in reverse order; every third sample is left out of the first; the
    fields `score` (float), `note` (text) and `tags` (json) were added, and `caption` is hidden in favour of
    an added one; `weight` is gone.
    """
    there, out = folder / "there", folder / "out"
    manifest = write(there, count)
    out.mkdir()
    kept = [field for field in manifest.schema if field.name != "weight"]
    schema = Schema((*kept, Field("score", "float"), Field("note", "text"), Field("tags", "json")))
    names = tuple(field.name for field in manifest.schema)
    shards, of, first = [], [], 0
    for number, shard in enumerate(reversed(manifest.shards)):
        stored = range(shard.first, shard.first + shard.count)
        rows = [row for row in range(shard.count) if number or row % 3]
        parts = {
            "score": np.array([index / 2 for index in stored], "<f8").tobytes(),
            "note": packed_values([f"note {index}".encode() for index in stored]),
            "tags": packed_values([json.dumps([index] * (index % 3)).encode() for index in stored]),
            "caption": packed_values([f"new {index}".encode() for index in stored]),
        }
        added = {
            name: segment(out / f"values-{10 * number + at:05d}.bin", data, before=b"x" * at)
            for at, (name, data) in enumerate(parts.items())
        }
        part = None
        if len(rows) < shard.count:
            part = segment(there / f"rows-{number:05d}.bin", np.array(rows, "<u4").tobytes(), "../there")
        shards.append(
            replace(
                shard,
                first=first,
                count=len(rows),
                folder="../there",
                rows=part,
                added=added,
                fields=names,
                base=f"files/{number}",
            )
        )
        of += [stored[row] for row in rows]
        first += len(rows)
    Manifest(schema, tuple(shards), manifest.classes, manifest.options, manifest.summary, 7).write(out)
    return out, of


def values_now(values: dict[str, Any], index: int) -> dict[str, Any]:
    """What sample `index` of store_helpers is in a dataset of `changed`."""
    kept = {name: value for name, value in values.items() if name != "weight"}
    return kept | {
        "caption": f"new {index}",
        "score": index / 2,
        "note": f"note {index}",
        "tags": [index] * (index % 3),
    }
