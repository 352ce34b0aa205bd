"""What the tests of changing datasets share: small sources, and every value of a dataset."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

import fastload
from fastload.packing import verify
from fastload.store import DatasetReader

CLASSES = ["cat", "dog", "eel"]


class Shapes:
    """Samples begin .. begin+count-1 of an endless sequence: every value follows from the number."""

    def __init__(self, begin: int, count: int, classes: list[str] | None = None) -> None:
        self.begin = begin
        self.count = count
        self.classes = CLASSES if classes is None else classes

    def __len__(self) -> int:
        return self.count

    def __getitem__(self, index: int) -> dict[str, Any]:
        if not 0 <= index < self.count:
            raise IndexError(index)
        return shape(self.begin + index)


def shape(number: int) -> dict[str, Any]:
    """Sample `number`."""
    return {
        "image": np.full((8 + number % 3, 12, 3), number % 256, np.uint8),
        "label": number % 3,
        "weight": number / 4,
        "box": np.arange(4, dtype=np.int32) * number,
        "caption": f"shape {number} \N{SNOWMAN}",
        "meta": {"number": number},
    }


def packed(folder: Path, begin: int = 0, count: int = 30, **options: Any) -> Path:
    """A dataset of Shapes in several shards."""
    fastload.pack(Shapes(begin, count), folder, shard_size=1 << 20, **options)
    return folder


def samples(path: Path, version: int | None = None) -> list[dict[str, Any]]:
    """Every sample of a dataset, as plain values by field; the image as its pixels."""
    out = []
    with DatasetReader(path, version) as reader:
        fields = [field for field in reader.schema if field.kind != "image"]
        stored = [field.name for field in fields if not field.is_column]
        for index in range(len(reader)):
            values = {
                field.name: reader.column(field.name)[index].tolist() for field in fields if field.is_column
            }
            image = reader.stored_fields(index)[reader.schema.number("image")]
            out.append({**values, **reader.stored_values(index, stored), "image": image})
    return out


def check_shapes(path: Path, numbers: list[int], version: int | None = None) -> None:
    """Checks that a dataset has exactly these samples, each with the values that follow from its number."""
    found = samples(path, version)
    assert len(found) == len(numbers)
    for sample, number in zip(found, numbers, strict=True):
        expected = shape(number)
        for name in ("label", "weight", "caption", "meta"):
            assert sample[name] == expected[name], (name, number)
        assert sample["box"] == expected["box"].tolist()
        assert sample["image"][1][12:] == expected["image"].tobytes()


def check_whole(path: Path) -> None:
    """Checks that nothing in a dataset is damaged."""
    report = verify(path, decode=True, workers=1)
    assert report.ok, report
