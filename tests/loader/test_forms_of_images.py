"""dtype= and memory_format= are for all images of a sample, alike on every engine."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from small_source import COUNT, packed

import fastload.transforms as T
from fastload import FastLoader, PackedDataset
from fastload.store import Field

ENGINES: tuple[Any, ...] = ("native", "python")


@pytest.mark.parametrize("collate", [None, "padded", "flat"])
@pytest.mark.parametrize(
    "transform",
    [[T.CenterCrop(8)], [T.CenterCrop(8), T.ToFloat()], T.Views([[T.CenterCrop(8)], [T.CenterCrop(6)]])],
)
@pytest.mark.parametrize("dtype", [None, torch.uint8, torch.float32, torch.bfloat16])
def test_further_images(tmp_path: Path, dtype: torch.dtype | None, transform: Any, collate: Any) -> None:
    """An image and its depth have the dtype and the memory format that were asked for."""
    if dtype is torch.uint8 and isinstance(transform, list) and len(transform) > 1:
        pytest.skip("refused: floats and bytes")
    depth = np.arange(256, dtype=np.uint16).reshape(16, 16, 1) * 255
    dataset = PackedDataset(packed(tmp_path / "d", depth, Field("depth", "image", "uint16", (1,))), transform)
    found = []
    for engine in ENGINES:
        with FastLoader(
            dataset,
            COUNT,
            num_workers=0,
            engine=engine,
            dtype=dtype,
            memory_format=torch.channels_last,
            collate=collate,
        ) as loader:
            found += list(loader)
    for name in ("image", "depth"):
        native, python = (
            [batch[name]] if isinstance(batch[name], torch.Tensor) else batch[name] for batch in found
        )
        for mine, theirs in zip(native, python, strict=True):
            assert mine.dtype == theirs.dtype
            assert torch.equal(mine, theirs)
            assert theirs.is_contiguous(memory_format=torch.channels_last)
            assert dtype in (None, torch.uint8) or mine.dtype == dtype
