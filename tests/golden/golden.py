"""Golden datasets: the inputs that they are packed from, the calls that pack them, and digests of all that is
read from one.

make_golden.py packed data/ with them, and test_golden.py reads it. Nothing here depends on a random
generator, or on an encoder of another library: pictures are arithmetic, and the JPEG files lie in data/photos
and data/jpegs.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

import fastload
import fastload.transforms as T
from fastload import FastLoader, PackedDataset
from fastload._native import core
from fastload.packing import Item, rebase
from fastload.store import DatasetReader, Field

DATA = Path(__file__).parent / "data"
COUNT = 7
TYPES = (
    "bool",
    "int8",
    "int16",
    "int32",
    "int64",
    "uint8",
    "uint16",
    "uint32",
    "uint64",
    "float16",
    "float32",
    "float64",
)

Array = npt.NDArray[Any]


def noise(seed: int, *shape: int) -> Array:
    """Whole numbers of 32 bits that look random, the same on every machine."""
    numbers = np.arange(int(np.prod(shape)), dtype=np.uint64) * np.uint64(0x9E3779B97F4A7C15) + np.uint64(
        seed * 0xBF58476D + 0x94D049BB
    )
    for shift, factor in ((30, 0xBF58476D1CE4E5B9), (27, 0x94D049BB133111EB)):
        numbers = (numbers ^ (numbers >> np.uint64(shift))) * np.uint64(factor)
    return ((numbers >> np.uint64(32)) % np.uint64(2**32)).reshape(shape)


def picture(seed: int, height: int, width: int, channels: int = 3, dtype: str = "uint8") -> Array:
    """Pixels with smooth areas and some noise."""
    rows, columns = np.mgrid[0:height, 0:width]
    planes = [
        (
            rows * (3 + c)
            + columns * (2 + seed % 5)
            + 40 * c
            + (noise(seed + c, height, width) % 9).astype(int)
        )
        for c in range(channels)
    ]
    pixels = np.stack(planes, 2) % 256 * (257 if dtype == "uint16" else 1)
    return pixels.astype(dtype) if channels > 1 else pixels[:, :, 0].astype(dtype)


def labels(seed: int, height: int, width: int, dtype: str = "uint8") -> Array:
    """A mask of rectangles."""
    cells = noise(seed, height // 8 + 1, width // 8 + 1) % (5 if dtype == "uint8" else 3000)
    return np.kron(cells, np.ones((8, 8), np.uint64))[:height, :width].astype(dtype)


class Numbered:
    """Base of a source of COUNT samples that follow from their numbers."""

    title, classes, concurrent = "golden", ("ant", "bee", "cow"), True
    image_field = Field("image", "image")
    fields: tuple[Field, ...] = (Field("label", "int"),)

    def __init__(self, begin: int = 0) -> None:
        self._begin = begin

    def __len__(self) -> int:
        return COUNT

    def name(self, position: int) -> str:
        return f"sample-{self._begin + position}"

    def read(self, position: int) -> Item:
        raise NotImplementedError


class Plain(Numbered):
    """Raw pixels with the kinds of format version 1: numbers, arrays of each dtype, bytes, text, JSON."""

    fields = (
        Field("label", "int"),
        Field("weight", "float"),
        *(Field(f"of_{name}", "array", name, (2, 2)) for name in TYPES),
        Field("raw", "bytes"),
        Field("caption", "text"),
        Field("meta", "json"),
    )

    def read(self, position: int) -> Item:
        number = self._begin + position
        values: dict[str, Any] = {"label": number % 3, "weight": number / 4 if number % 3 else float("inf")}
        for name in TYPES:
            values[f"of_{name}"] = (
                (noise(number, 2, 2) % (2 if name == "bool" else 100)) / (1, 4)["float" in name]
            ).astype(name)
        values |= {
            "raw": bytes(range(number)),
            "caption": f"Nr. {number} \N{SNOWMAN}",
            "meta": {"n": number, "list": [None, True, 1.5, "\xe9"]},
        }
        return Item(self.name(position), picture(number, 20 + number, 31), values)


class Kinds(Numbered):
    """JPEGs with every kind of format version 3; sample 0 has no object."""

    fields = (
        Field("label", "int"),
        Field("mask", "mask"),
        Field("segments", "mask", "uint16"),
        Field("second", "image"),
        Field("drawn", "image"),
        Field("depth", "image", "uint16", (1,)),
        Field("alpha", "image", "uint8", (4,)),
        Field("boxes", "boxes", format="xyxy"),
        Field("labels", "array", "int64", (None,), of="boxes"),
        Field("grid", "array", "float16", (None, 2, 3)),
        Field("points", "keypoints", shape=(3, 3), of="boxes"),
        Field("corners", "keypoints", shape=(2, 2)),
        Field("masks", "instances", of="boxes"),
        Field("lines", "polygons", of="boxes"),
        Field("note", "text"),
    )

    def read(self, position: int) -> Item:
        number, rows = self._begin + position, position % 4
        image = sorted((DATA / "jpegs").rglob("*.jpg"))[position]
        width, height = jpeg_size(image.read_bytes())
        first = noise(number, rows, 2) % np.uint64(min(width, height) // 2)
        boxes = np.concatenate([first, first + 1 + noise(number + 1, rows, 2) % 20], 1).astype("float32")
        line = [[1.5, 2, 9, 2.25, 8, 7], [10, 10, 12, 10, 12, 13, 9, 12]]
        values: dict[str, Any] = {
            "label": number % 3,
            "mask": labels(number, height, width),
            "segments": labels(number, height, width, "uint16"),
            "second": sorted((DATA / "jpegs").rglob("*.jpg"))[position - 1].read_bytes(),
            "drawn": picture(number, 9, 10 + number),
            "depth": picture(number, 12, 18, 1, "uint16"),
            "alpha": picture(number, 5, 6, 4),
            "boxes": boxes,
            "labels": np.arange(rows) % 3,
            "grid": (noise(number, position % 3, 2, 3) % 64 / 8).astype("float16"),
            "points": (noise(number, rows, 3, 3) % 3).astype("float32") * 7,
            "corners": (noise(number, 2, 2, 2) % 30).astype("float32") / 4,
            "masks": [labels(number + row, height, width) % 2 for row in range(rows)],
            "lines": [line[: row % 3] for row in range(rows)],
            "note": f"sample {number}",
        }
        return Item(self.name(position), image.read_bytes(), values)


class Turned(Numbered):
    """Pixels of 16 bits and three channels, with boxes of the other formats and dtypes."""

    image_field = Field("image", "image", "uint16", (3,))
    fields = (
        *(Field(name, "boxes", format=name) for name in ("xywh", "cxcywh", "xywhr", "cxcywhr", "xyxyxyxy")),
        Field("whole", "boxes", "int64", format="xyxy"),
        Field("outline", "polygons"),
        Field("parts", "instances"),
    )

    def read(self, position: int) -> Item:
        sides = {"xywh": 4, "cxcywh": 4, "xywhr": 5, "cxcywhr": 5, "xyxyxyxy": 8}
        values: dict[str, Any] = {
            name: (noise(position + at, 2, at) % 40).astype("float32") / 2 for name, at in sides.items()
        }
        values["whole"] = [[1, 2, 3 + position, 4]] * position
        values["outline"] = [[[0.5, 1, 4, 1, 4, 6.25]]] * (position % 3)
        values["parts"] = [{"size": [16, 24], "counts": [5 + position, 20, 359 - position]}]
        return Item(self.name(position), picture(position, 16, 24, 3, "uint16"), values)


class Grey(Numbered):
    """Pixels of 8 bits and one channel: noise, steps, one colour."""

    image_field = Field("image", "image", "uint8", (1,))

    def read(self, position: int) -> Item:
        forms = (
            picture(position, 30, 40, 1),
            labels(position, 33, 41),
            np.full((17, 5), 9, np.uint8),
            (noise(position, 8, 9) % 256).astype(np.uint8),
        )
        return Item(self.name(position), forms[position % 4], {"label": position % 3})


class Lists(Numbered):
    """Samples of any number of JPEGs, with a time of each; sample 2 has none."""

    classes = None
    image_list = "images"
    fields = (Field("note", "text"), Field("times", "array", "float64", (None,)))

    def read(self, position: int) -> Item:
        files = sorted((DATA / "jpegs").rglob("*.jpg"))
        count = (position + 1) % 3
        images = [files[(position + number) % len(files)].read_bytes() for number in range(count)]
        values = {"note": f"document {position}", "times": np.arange(count) / 4 + position}
        return Item(self.name(position), b"", values, images=images)


def jpeg_size(data: bytes) -> tuple[int, int]:
    """(width, height) of a JPEG."""
    at = 2
    while data[at + 1] not in (0xC0, 0xC1, 0xC2):
        at += 2 + int.from_bytes(data[at + 2 : at + 4], "big")
    return int.from_bytes(data[at + 7 : at + 9], "big"), int.from_bytes(data[at + 5 : at + 7], "big")


def changed(folder: Path) -> None:
    """Packs a dataset and makes each change of it a version: 2 appends, 3 to 5 add fields, 6 drops two, 7
    drops samples."""
    fastload.pack(Plain(), folder, shard_samples=4, workers=1)
    fastload.append(folder, Plain(COUNT), workers=1)
    table = folder.parent / "columns.csv"
    table.write_text(
        "score,price,words,tags\n"
        + "".join(f'{i},{i / 4},word {i},"[{i}, null]"\n' for i in range(2 * COUNT))
    )
    fastload.add_columns(folder, table, columns=["score", "price"])
    fastload.add_columns(folder, table, columns=["words", "tags:json"])
    vectors = folder.parent / "vectors.npy"
    np.save(vectors, (noise(3, 2 * COUNT, 3) % 50).astype("<f4") / 4)
    fastload.add_columns(folder, vectors)
    fastload.drop_columns(folder, "weight", "raw")
    fastload.drop(folder, indices=[0, 5, 11])
    table.unlink()
    vectors.unlink()


def attached(folder: Path, **options: Any) -> None:
    """Attaches the JPEG files, by paths that are relative to the dataset."""
    fastload.attach("jpegs", folder, workers=1, **options)
    rebase(folder, "../jpegs")


def joined(folder: Path) -> None:
    """A dataset of two others."""
    fastload.concat(["photos.fl", "noindex.fl"], folder)


MAKES: Mapping[str, Callable[[Path], object]] = {
    "photos": lambda out: fastload.pack("photos", out, shard_samples=3, workers=1),
    "noindex": lambda out: fastload.pack("photos", out, index=False, encode="keep", workers=1),
    "kept": lambda out: fastload.pack("files", out, encode="keep", workers=1),
    "raw": lambda out: fastload.pack("photos", out, encode="raw", limit=3, workers=1),
    "attached": lambda out: attached(out),
    "unindexed": lambda out: attached(out, index=False),
    "plain": lambda out: fastload.pack(Plain(), out, shard_samples=4, workers=1),
    "kinds": lambda out: fastload.pack(Kinds(), out, shard_samples=4, workers=1),
    "turned": lambda out: fastload.pack(Turned(), out, workers=1),
    "grey": lambda out: fastload.pack(Grey(), out, workers=1),
    "lists": lambda out: fastload.pack(Lists(), out, workers=1),
    "changed": changed,
}
"""The call that packs each dataset anew, in a folder with the pictures; `joined`, which refers to others
of them, is made after them."""
VERSIONS = {"changed": tuple(range(1, 8))}
"""Versions of the datasets that have several."""


def digest(data: Any) -> str:
    """Digest of bytes, half of a SHA-256."""
    return hashlib.sha256(data).hexdigest()[:32]


def told(value: Any) -> Any:
    """A value as JSON says it: tensors and arrays by dtype, shape and digest, floats by their exact text,
    containers by their type."""
    if isinstance(value, torch.Tensor):
        bytes_of = value.contiguous().reshape(-1).view(torch.uint8).numpy() if value.numel() else b""
        return f"{type(value).__name__} {value.dtype} {list(value.shape)} {digest(bytes_of)}"
    if isinstance(value, np.ndarray):
        return f"array {value.dtype.str} {list(value.shape)} {digest(np.ascontiguousarray(value))}"
    if isinstance(value, bytes):
        return f"bytes {len(value)} {digest(value)}"
    if isinstance(value, dict):
        return {"dict": {key: told(each) for key, each in value.items()}}
    if isinstance(value, list | tuple):
        return [type(value).__name__, *map(told, value)]
    if hasattr(value, "__dict__") or hasattr(value, "__slots__"):
        names = getattr(value, "__slots__", None) or vars(value)
        return {type(value).__name__: {name: told(getattr(value, name)) for name in names}}
    return f"{type(value).__name__} {value!r}"


def stored(folder: Path, version: int | None = None) -> dict[str, Any]:
    """Digests of what a dataset stores: its schema, every record and entry, every column, every value as
    the reader gives it; and of the images of lists, which lie in a dataset of their own."""
    with DatasetReader(folder, version) as reader:
        names = [field.name for field in reader.schema if not field.is_column]
        columns = {name: told(reader.column(name)) for name in reader.schema.columns}
        entries = [[_entry(*entry) for entry in reader.record_fields(index)] for index in range(len(reader))]
        values = [told(reader.stored_values(index, names)) for index in range(len(reader))]
        records = [digest(reader.record(index)) for index in range(len(reader))]
        images = {} if reader.schema.images is None else {"images": stored(folder / "images")}
        return {
            **images,
            "schema": reader.schema.to_json(),
            "classes": None if reader.manifest.classes is None else list(reader.manifest.classes),
            "columns": columns,
            "records": records,
            "entries": entries,
            "values": values,
        }


def _entry(number: int, kind: int, data: bytes) -> list[Any]:
    """An entry of a record, but for what depends on the machine: what zlib makes of pixels, and when a
    file was changed."""
    if kind == core.KIND_PLANES and data[10] == 2:
        data = data[:11]
    elif kind == core.KIND_PLACE:
        data = data[:16] + data[24:]
    return [number, kind, digest(data)]


def steps() -> list[object]:
    """A native transform of cuts, flips and a resize."""
    return [T.RandomResizedCrop(24, scale=(0.3, 1.0)), T.RandomHorizontalFlip(), T.RandomVerticalFlip()]


def delivered(folder: Path, version: int | None = None) -> dict[str, Any]:
    """Digests of what a dataset delivers: each sample as it is, and the batches of loaders on native
    threads, moved and as they are."""
    dataset = PackedDataset(folder, version=version)
    frames: dict[str, Any] = {"collate": "padded", "batch_size": 3, "num_workers": 1}
    moved = PackedDataset(folder, steps(), version=version, seed=5)
    return {
        "samples": [told(dataset[index]) for index in range(len(dataset))],
        "moved": [told(moved[index]) for index in range(len(moved))],
        "flat": [told(batch) for batch in FastLoader(moved, batch_size=3, collate="flat", num_workers=1)],
        "padded": [
            told(batch)
            for batch in (
                FastLoader(dataset, pad_to=16, **frames)
                if dataset.lists is None
                else FastLoader(moved, **frames)
            )
        ],
    }


def described(folder: Path, version: int | None = None) -> dict[str, Any]:
    """All digests of one version of a dataset."""
    return {**stored(folder, version), **delivered(folder, version)}


def lines(content: Mapping[str, Any]) -> str:
    """JSON of a description with a line for each sample, so that a difference is seen in a diff."""
    parts = []
    for key, value in content.items():
        if isinstance(value, list) and value and key != "classes":
            parts.append(
                f"{json.dumps(key)}: [\n"
                + ",\n".join(json.dumps(each, sort_keys=True) for each in value)
                + "\n]"
            )
        else:
            parts.append(f"{json.dumps(key)}: {json.dumps(value, sort_keys=True)}")
    return "{\n" + ",\n".join(parts) + "\n}\n"
