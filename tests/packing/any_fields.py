"""A source of samples of random fields, of every kind that is stored."""

from __future__ import annotations

from typing import Any

import numpy as np
from packing_helpers import encoded, picture

from fastload.packing import Item
from fastload.store import BOX_SIDES, Field
from fastload.store.kinds.arrays import ARRAY_DTYPES

NAMES = (
    "00000000.png",
    "mask",
    "boxes",
    "path",
    "json",
    "jpg",
    "Boxes",
    "a/b",
    "..",
    "x.y",
    "\u732b",
    "label",
    "fields.jsonl",
    "image2",
    "cls",
)


def fields_of(rng: np.random.Generator) -> tuple[Field, ...]:
    """Fields of random kinds, dtypes and shapes, under names that are hard on files."""
    names = rng.permutation(NAMES)[: rng.integers(0, 9)].tolist()
    owner = names[0] if names else ""
    found = []
    for name in names:
        of = owner if rng.random() < 0.5 else ""
        sides = tuple(int(side) for side in rng.integers(1, 4, rng.integers(0, 3)))
        choices = (
            Field(name, "int"),
            Field(name, "float"),
            Field(name, "text"),
            Field(name, "json"),
            Field(name, "bytes"),
            Field(name, "array", str(rng.choice(ARRAY_DTYPES)), sides),
            Field(
                name,
                "array",
                str(rng.choice(ARRAY_DTYPES)),
                (None, *(int(side) for side in rng.integers(1, 4, rng.integers(0, 2)))),
                of=of,
            ),
            Field(name, "mask", str(rng.choice(["uint8", "uint16"]))),
            Field(name, "image", str(rng.choice(["uint8", "uint16"])), (int(rng.choice([1, 3, 4])),)),
            Field(name, "keypoints", shape=(int(rng.integers(1, 4)), int(rng.choice([2, 3]))), of=of),
            Field(name, "polygons", of=of),
            Field(name, "instances", of=of),
        )
        if name == owner or rng.random() < 0.1:
            found.append(
                Field(
                    name,
                    "boxes",
                    str(rng.choice(["float32", "int64"])),
                    format=str(rng.choice(list(BOX_SIDES))),
                )
            )
        else:
            found.append(choices[rng.integers(len(choices))])
    return tuple(found)


class Anything:
    """A source of samples of random fields, which follow from a seed."""

    title, concurrent = "anything", True

    def __init__(self, seed: int, count: int) -> None:
        rng = np.random.default_rng(seed)
        self.fields = fields_of(rng)
        self.classes = (None, ("a", "B/b", ".."), ("x",))[rng.integers(3)]
        dtype, channels = [("uint8", 3), ("uint8", 3), ("uint16", 1), ("uint8", 4), ("uint16", 3)][
            rng.integers(5)
        ]
        self.image_field = Field("image", "image", str(dtype), (int(channels),))
        self._seed, self._count = seed, count

    def __len__(self) -> int:
        return self._count

    def name(self, position: int) -> str:
        return f"sample-{position}"

    def read(self, position: int) -> Item:
        rng = np.random.default_rng((self._seed, position))
        size, objects = (int(rng.integers(1, 9)), int(rng.integers(1, 9))), int(rng.choice([0, 1, 5]))
        image: Any = _pixels(rng, self.image_field, size)
        if self.image_field.is_rgb and position % 2:
            image = encoded(picture(position, *size))
        return Item(
            self.name(position),
            image,
            {field.name: _value(rng, field, size, objects) for field in self.fields},
        )


def _pixels(rng: np.random.Generator, field: Field, size: tuple[int, int]) -> np.ndarray[Any, Any]:
    shape = size if field.channels == 1 else (*size, field.channels)
    return rng.integers(0, np.iinfo(field.dtype or "uint8").max, shape, field.dtype or "uint8", endpoint=True)


def _value(rng: np.random.Generator, field: Field, size: tuple[int, int], objects: int) -> Any:
    count = objects if field.kind == "boxes" or field.of else int(rng.integers(0, 4))
    if field.kind == "int":
        return int(rng.integers(-3, 5))
    if field.kind == "float":
        return float(rng.choice([rng.normal(), 0.1, -0.0, np.nan, np.inf]))
    if field.kind == "text":
        return str(rng.choice(["", "a\nb", '"\u2028\\", ', "\u732b\0x"]))
    if field.kind == "json":
        return [None, {"a": [1.5, True]}, "text", 3, []][rng.integers(5)]
    if field.kind == "bytes":
        return rng.bytes(count)
    if field.kind == "mask":
        return _pixels(rng, field, size)
    if field.kind == "image":
        return _pixels(rng, field, (int(rng.integers(1, 9)), 3))
    if field.kind == "polygons":
        return [
            [rng.normal(0, 9, 2 * rng.integers(0, 4)).tolist() for _ in range(rng.integers(0, 3))]
            for _ in range(count)
        ]
    if field.kind == "instances":
        return rng.integers(0, 2, (count, *size), dtype=np.uint8)
    shape = (count, *field.row_shape) if field.is_varying else field.shape
    if field.kind == "boxes":
        return (
            rng.integers(0, 50, shape)
            + (0.1 if field.dtype == "float32" else 0)
            + (np.arange(shape[1]) > 1) * 50
        )
    return _numbers(rng, np.dtype(field.dtype), shape, finite=field.kind == "keypoints")


def _numbers(
    rng: np.random.Generator, dtype: np.dtype[Any], shape: Any, finite: bool
) -> np.ndarray[Any, Any]:
    if dtype.kind == "f":
        values = (rng.normal(size=shape) * 10.0 ** rng.integers(-6, 4, shape)).astype(dtype)
        return values if finite else np.where(rng.random(shape) < 0.1, dtype.type(np.nan), values)
    if dtype.kind == "b":
        return rng.random(shape) < 0.5
    limits = np.iinfo(dtype)
    return rng.integers(limits.min, limits.max, shape, dtype, endpoint=True)
