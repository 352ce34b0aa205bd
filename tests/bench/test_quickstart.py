"""The quickstart's photographs and its sentence."""

from __future__ import annotations

import hashlib
import re
from pathlib import Path
from typing import Any

import torch
from torch.utils.data import DataLoader, TensorDataset

from fastload import FastLoader
from fastload.bench.quickstart import CROPS, drawn, side_by_side, verdict, write_photographs


def test_photographs_are_the_same_each_time(tmp_path: Path) -> None:
    """Two folders have the same JPEGs, one class for each photograph."""
    folders = [tmp_path / "a", tmp_path / "b"]
    written = [write_photographs(folder, drawn(2)) for folder in folders]
    digests = [[hashlib.sha256(path.read_bytes()).digest() for path in paths] for paths in written]
    assert digests[0] == digests[1]
    assert len(set(digests[0])) == 2 * CROPS
    assert [path.relative_to(folders[0]) for path in written[0]] == sorted(
        each.relative_to(folders[0]) for each in folders[0].rglob("*.jpg")
    )


def test_loaders_take_turns() -> None:
    """Each loader runs its first epoch, then they alternate who begins; both rates and a sentence come
    back."""
    begun: list[str] = []

    class Noted(DataLoader[Any]):
        def __iter__(self) -> Any:
            begun.append("torch")
            return super().__iter__()

    class Ours(FastLoader[Any]):
        def __iter__(self) -> Any:
            begun.append("fastload")
            return super().__iter__()

    data = TensorDataset(torch.zeros(64, 3))
    said = side_by_side(Ours(data, batch_size=8), Noted(data, batch_size=8), epochs=2)
    assert begun == ["fastload", "torch", "torch", "fastload", "fastload", "torch"]
    assert re.fullmatch(
        r"FastLoader [\d,]+ images/s, torch's DataLoader [\d,]+ \(first epoch: [\d.]+ "
        r"times\)\nfastload is .* torch here[.:].*",
        said,
    )


def test_verdict_says_so_when_torch_is_as_fast() -> None:
    """A ratio that is no gain is not called one."""
    assert verdict(4.04) == "fastload is 4.0 times as fast as torch here."
    assert verdict(1.02).startswith("fastload is no faster than torch here: 1.02 of its rate.")
    assert verdict(0.5).startswith("fastload is no faster than torch here: 0.50 of its rate.")
