"""A Dataset of pairs packs to pairs, whatever their second values are: these come back in their own
structure, on every way."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch.utils.data import default_collate

import fastload
from fastload import FastLoader, PackedDataset
from fastload.errors import PackError
from fastload.packing import export, unpack

COUNT = 5


class Pairs:
    """Pixels, and what a function makes of the index."""

    def __init__(self, make: Callable[[int], Any], count: int = COUNT) -> None:
        self._make, self._count = make, count

    def __len__(self) -> int:
        return self._count

    def __getitem__(self, index: int) -> Any:
        return np.full((8, 8, 3), index, np.uint8), self._make(index)


NESTED = ["float", "nested", "dict"]
SECONDS: dict[str, Callable[[int], Any]] = {
    "float": lambda i: i / 2,
    "int": lambda i: i,
    "text": lambda i: f"caption {i}",
    "array": lambda i: torch.arange(3) + i,
    "rows": lambda i: torch.ones(i + 1, 2),
    "list": lambda i: [i, {"a": None}],
    "nested": lambda i: (i / 4, {"name": f"n{i}", "size": (i, torch.full((2,), i)), 7: [i] * 2}, b"%d" % i),
    "dict": lambda i: {"age": i / 2 if i else 0, "image": i, " ": "odd", "either": "text" if i > 2 else i},
    "keys": lambda i: {"always": i} | ({"seldom": 1} if i == 3 else {}),
}


def same(a: Any, b: Any) -> bool:
    """Returns True if two values have the same structure and values."""
    if isinstance(b, torch.Tensor):
        return torch.equal(a, b)
    if isinstance(b, dict):
        return list(a) == list(b) and all(same(a[key], b[key]) for key in b)
    if isinstance(b, tuple | list):
        return type(a) is type(b) and len(a) == len(b) and all(map(same, a, b))
    return bool(a == b)


@pytest.mark.parametrize("kind", SECONDS)
def test_pairs(tmp_path: Path, kind: str) -> None:
    """Samples are the pairs that were packed; batches of both engines are default_collate's, where it
    takes them."""
    data = Pairs(SECONDS[kind])
    fastload.pack(data, tmp_path / "d")
    packed = PackedDataset(tmp_path / "d")
    samples = [packed[index] for index in range(COUNT)]
    for (image, second), (pixels, wanted) in zip(samples, data, strict=False):
        assert same(image, torch.from_numpy(pixels).permute(2, 0, 1))
        assert same(second, wanted)
    for engine in ("native", "python"):
        with FastLoader(packed, batch_size=COUNT, num_workers=0, engine=engine, collate="list") as loader:  # type: ignore[arg-type]
            [(_, seconds)] = loader
        assert same(seconds, [second for _, second in samples])
        if kind not in ("rows", "list"):
            with FastLoader(packed, batch_size=2, num_workers=0, engine=engine) as loader:  # type: ignore[arg-type]
                assert same(next(iter(loader)), default_collate(samples[:2]))


@pytest.mark.parametrize("kind", NESTED)
@pytest.mark.parametrize("form", ["parquet", "tar", "folders", "concat"])
def test_other_forms(tmp_path: Path, kind: str, form: str) -> None:
    """Whatever a dataset was exported, unpacked or joined to packs to the same pairs again."""
    fastload.pack(Pairs(SECONDS[kind]), tmp_path / "d")
    if form == "concat":
        fastload.concat([tmp_path / "d", tmp_path / "d"], tmp_path / "again")
    else:
        out = tmp_path / ("files" if form == "folders" else f"files.{form}")
        (unpack if form == "folders" else export)(tmp_path / "d", out)
        fastload.pack(out, tmp_path / "again")
    first, again = PackedDataset(tmp_path / "d"), PackedDataset(tmp_path / "again")
    assert all(same(again[index], first[index]) for index in range(COUNT))


def test_parts_are_fields(tmp_path: Path) -> None:
    """A part has its key as its name, by which `fields=` takes it, nested too; `where` knows it."""
    fastload.pack(Pairs(SECONDS["nested"]), tmp_path / "d")
    packed = PackedDataset(tmp_path / "d")
    assert packed.fields == (
        "image",
        "label_0",
        "label_1_name",
        "label_1_size_0",
        "label_1_size_1",
        "label_1_7",
        "label_2",
    )
    assert PackedDataset(tmp_path / "d", fields=("image", "label_0"))[3][1] == 0.75
    assert PackedDataset(tmp_path / "d", fields=("image", ("label_0", {"x": ("label_1_name",)})))[3][1] == (
        0.75,
        {"x": ("n3",)},
    )
    assert list(PackedDataset(tmp_path / "d", fields=["image", "label_0"])[3]) == ["image", "label_0"]
    assert len(packed.where("label_0 > 0.5")) == 2


def test_another_structure_later(tmp_path: Path) -> None:
    """A pair whose structure is another than that of the first 32 is an error that names it and says what
    to do."""
    data = Pairs(lambda i: {"a": i} | ({"b": 1} if i == 35 else {}), 40)
    with pytest.raises(PackError, match=r"Pairs\[35\]: .*other keys .*: give all samples the same"):
        fastload.pack(data, tmp_path / "d")
