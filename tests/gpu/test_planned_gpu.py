"""What a transform leaves to the device, on a real one: the CPU's pixels but for rounding, and no wait of
the host."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from fastload import FastLoader

v2 = pytest.importorskip("torchvision.transforms.v2")
pytestmark = [pytest.mark.gpu, pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device")]

MEAN, STD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)
STEPS = [
    v2.RandomResizedCrop(64),
    v2.RandomHorizontalFlip(),
    v2.ColorJitter(0.4, 0.4, 0.4, 0.1),
    v2.ToImage(),
    v2.ToDtype(torch.float32, scale=True),
    v2.Normalize(MEAN, STD),
    v2.RandomErasing(0.5),
]


def epoch(path: Path, device: str, **kwargs: Any) -> list[tuple[torch.Tensor, torch.Tensor]]:
    with FastLoader(path, 8, transform=STEPS, seed=3, num_workers=2, device=device, **kwargs) as loader:
        assert loader._fastload.plan.native is not None
        return [(images.clone(), labels.clone()) for images, labels in loader]


def test_as_on_the_cpu(packed: Path) -> None:
    """The same list gives the same pixels on both: 99.5% within one level of 255."""
    for (got, labels), (want, same) in zip(epoch(packed, "cuda"), epoch(packed, "cpu"), strict=True):
        assert got.is_cuda
        assert torch.equal(labels.cpu(), same)
        apart = (got.cpu() - want).mul(torch.tensor(STD).view(3, 1, 1)).mul(255).abs()
        assert float((apart > 1.01).float().mean()) <= 0.005


def test_the_host_waits_for_nothing(packed: Path, no_waiting: Callable[[], None]) -> None:
    """An epoch under synchronisations that raise, after one that warms up."""
    with FastLoader(
        packed, 8, transform=STEPS, seed=3, num_workers=2, device="cuda", dtype=torch.bfloat16
    ) as loader:
        list(loader)
        no_waiting()
        assert {images.dtype for images, _ in loader} == {torch.bfloat16}


def test_explain_measures_the_device(packed: Path) -> None:
    """Rows on the device, with the conversion that the engine leaves to it, have their costs."""
    with FastLoader(
        packed, 8, transform=STEPS[:2] + STEPS[3:], seed=3, num_workers=2, device="cuda"
    ) as loader:
        rows = [row for row in loader.explain(measure=True, all=True).splitlines() if "  device" in row]
    assert [row.split()[1].split("(")[0] for row in rows] == ["ToDtype", "Normalize", "RandomErasing"]
    assert all(any(cell.endswith("%") for cell in row.split()) or "″" in row for row in rows)
