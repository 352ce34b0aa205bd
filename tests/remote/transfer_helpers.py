"""What tests of push, pull and packs to URLs share: small datasets, what is at a URL, and counts of
requests."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from pictures import write_folder

import fastload
from fastload.remote.manifest import find_manifest
from fastload.remote.objects import Objects
from fastload.remote.obstore import ObstoreObjects
from fastload.store import DatasetReader, Manifest


def source_of(folder: Path, count: int = 60) -> Path:
    """A folder of photos in three classes, for some shards of 1 MiB."""
    return write_folder(folder / f"source-{count}", count)


def dataset_of(folder: Path, count: int = 60, name: str = "dataset", **options: Any) -> Path:
    """A packed dataset of several shards."""
    out = folder / name
    fastload.pack(source_of(folder, count), out, shard_size="1MiB", **options)
    return out


def files_of(folder: Path) -> dict[str, bytes]:
    """Names and contents of the files in a folder."""
    return {path.name: path.read_bytes() for path in folder.iterdir()}


def values_of(dataset: Path) -> list[dict[str, Any]]:
    """Every stored field and column of each sample, images as stored."""
    with DatasetReader(dataset) as reader:
        columns = {name: reader.column(name) for name in reader.schema.columns}
        names = [field.name for field in reader.schema if not field.is_column and field.kind != "image"]
        return [
            {name: column[index].tolist() for name, column in columns.items()}
            | reader.stored_values(index, names)
            | {"image": sorted(map(repr, reader.stored_fields(index).values()))}
            for index in range(len(reader))
        ]


def manifest_at(objects: Objects) -> Manifest:
    """The manifest of the dataset at a URL."""
    found = find_manifest(objects)
    assert found is not None
    return found


def names_at(objects: Objects) -> list[str]:
    """Names of all objects at a URL."""
    return sorted(info.name for info in objects.list())


@contextmanager
def counted(monkeypatch: pytest.MonkeyPatch) -> Iterator[Counter[str]]:
    """Counts the calls of each method of a client, as `put_file`, and the names that they are called with,
    as `put_file NAME`."""
    counts: Counter[str] = Counter()

    def count(name: str) -> None:
        method = getattr(ObstoreObjects, name)

        def counting(self: ObstoreObjects, *arguments: Any, **settings: Any) -> Any:
            counts.update([name, *(f"{name} {each}" for each in arguments[:1])])
            return method(self, *arguments, **settings)

        monkeypatch.setattr(ObstoreObjects, name, counting)

    with monkeypatch.context():
        for name in ("get", "get_range", "fetch", "head", "list", "put", "put_file", "delete"):
            count(name)
        yield counts
    monkeypatch.undo()
