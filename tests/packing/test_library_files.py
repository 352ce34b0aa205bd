"""Datasets that other libraries wrote (data/sources): read and packed as the libraries' own readers read
them.

data/sources/make.py compares larger ones with the libraries at hand.
"""

from __future__ import annotations

import io
import json
import struct
from hashlib import sha256
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from packing_helpers import encoded, picture
from PIL import Image
from test_places import bytes_at_places

from fastload import PackedDataset, pack
from fastload.sources import Placed, Source, open_source
from fastload.sources.options import LmdbOptions, SourceOptions
from fastload.sources.protocol import Traced

DATA = Path(__file__).parent / "data" / "sources"
OPTIONS: dict[str, dict[str, str]] = {"lmdb": {"key_pattern": "image-%09d", "label_pattern": "label-%09d"}}
KINDS = ("tfrecord", "mds", "mds-pixels", "litdata", "litdata-pairs", "lmdb")


def opened(kind: str, root: Path = DATA) -> Source:
    return open_source(
        root / kind, SourceOptions(lmdb=LmdbOptions(**OPTIONS[kind]) if kind in OPTIONS else None)
    )


def rgb(image: Any) -> np.ndarray[Any, Any]:
    pixels = (
        np.asarray(Image.open(io.BytesIO(image)).convert("RGB"))
        if isinstance(image, bytes)
        else np.asarray(image)
    )
    return np.repeat(pixels[:, :, None], 3, axis=2) if pixels.ndim == 2 else pixels


def described(value: Any) -> Any:
    """A value as KIND.json has it."""
    if isinstance(value, bytes):
        return {"sha256": sha256(value).hexdigest()}
    if isinstance(value, np.ndarray):
        return {
            "dtype": value.dtype.name,
            "shape": list(value.shape),
            "sha256": sha256(value.tobytes()).hexdigest(),
        }
    return value


@pytest.mark.parametrize("kind", KINDS)
def test_every_value_is_that_of_the_librarys_reader(kind: str) -> None:
    """Pixels (or bytes) and all fields of all samples, in the same order."""
    source = opened(kind)
    expected = json.loads((DATA / f"{kind}.json").read_text())
    assert len(source) == len(expected)
    for position, theirs in enumerate(expected):
        item = source.read(position)
        image = item.image if "dtype" not in theirs["image"] else rgb(item.image)
        assert {"image": described(image)} | {
            name: described(value) for name, value in item.values.items()
        } == theirs


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("options", [{}, {"workers": 3, "shuffle": True}])
def test_a_pack_holds_them(kind: str, options: dict[str, Any], tmp_path: Path) -> None:
    """Pixels and labels of a pack are those of the source, also in a random order, which is the same for
    the same seed."""
    source = opened(kind)
    ours = sorted(
        (rgb(source.read(i).image).tobytes(), source.read(i).values["label"]) for i in range(len(source))
    )
    pack(DATA / kind, tmp_path / "out.fl", **options, **OPTIONS.get(kind, {}))
    packed = PackedDataset(tmp_path / "out.fl")
    found = sorted(
        (np.ascontiguousarray(image.permute(1, 2, 0).numpy()).tobytes(), label)
        for image, label, *_ in map(values, packed)
    )
    assert found == ours


def values(sample: Any) -> tuple[Any, ...]:
    return (sample["image"], sample["label"]) if isinstance(sample, dict) else sample


@pytest.mark.parametrize("more", [(), (7, 8, 9)])
def test_litdata_of_any_tuples(tmp_path: Path, more: tuple[int, ...]) -> None:
    """Samples of LitData may be an image alone, or have more than a label beside it: all values have
    names."""
    image = encoded(picture(0, 24, 32))
    row = (
        struct.pack(f"<{1 + len(more)}I", len(image), *[8] * len(more))
        + image
        + struct.pack(f"<{len(more)}q", *more)
    )
    (tmp_path / "chunk.bin").write_bytes(struct.pack("<3I", 1, 12, 12 + len(row)) + row)
    leaf = {"type": None, "context": None, "children_spec": []}
    spec = {"type": "builtins.tuple", "context": "null", "children_spec": [leaf] * (1 + len(more))}
    config = {"data_format": ["jpeg"] + ["int"] * len(more), "data_spec": json.dumps([1, spec])}
    (tmp_path / "index.json").write_text(
        json.dumps({"config": config, "chunks": [{"filename": "chunk.bin", "chunk_size": 1}]})
    )
    item = open_source(tmp_path).read(0)
    assert (item.image, item.values) == (image, dict(zip(("label", "field2", "field3"), more, strict=False)))


@pytest.mark.parametrize("kind", [kind for kind in KINDS if kind != "mds-pixels"])
def test_the_bytes_at_each_place_are_the_image(kind: str) -> None:
    """Also where a record has other values before and after the image, and where an LMDB value lies on
    pages of its own."""
    images = bytes_at_places(opened(kind))
    assert all(image.startswith(b"\xff\xd8\xff") for image in images)


def test_pixels_have_no_place() -> None:
    """An image that MDS stores decoded lies in no file as a file's bytes."""
    source = opened("mds-pixels")
    assert isinstance(source, Placed)
    assert {source.place(position) for position in range(len(source))} == {None}


@pytest.mark.parametrize("kind", KINDS)
def test_a_resume_knows_its_samples(kind: str) -> None:
    """Each sample has a name, a key that does not depend on the folder, and a stamp, so that a pack can be
    resumed elsewhere."""
    source = opened(kind)
    assert isinstance(source, Traced)
    keys = [source.key(position) for position in range(len(source))]
    assert len(set(keys)) == len(keys)
    assert not any(str(DATA) in key for key in keys)
    assert all(
        source.name(position).startswith(str(DATA)) and source.stamp(position)[0] > 0
        for position in range(len(source))
    )
