"""A loop over a loader inside a function that torch.compile compiles."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.utils.data import DataLoader, Dataset

from fastload import FastLoader, PackedDataset
from fastload import transforms as T

pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning:torch.*")


class Rows(Dataset[Any]):
    """12 rows of random numbers that follow from torch's generator, labelled."""

    def __len__(self) -> int:
        return 12

    def __getitem__(self, index: int) -> tuple[torch.Tensor, int]:
        return torch.rand(3) + index, index


@pytest.fixture(autouse=True)
def fresh_compiler() -> Iterator[None]:
    """What is compiled in a test is forgotten."""
    torch._dynamo.reset()
    yield
    torch._dynamo.reset()


def loop(loader: Any, scale: torch.Tensor) -> list[torch.Tensor]:
    """What the test compiles: two epochs."""
    out = []
    for _ in range(2):
        for images, labels in loader:
            out.append((images.float() * scale).sum() + labels.sum())
    return out


def compiled(loader: Any) -> list[torch.Tensor]:
    torch.manual_seed(3)
    function = torch.compile(loop, backend="eager")
    return function(loader, torch.tensor(2.0))


@pytest.mark.parametrize("workers", [0, 2])
@pytest.mark.parametrize("persistent", [False, True])
def test_python_data(workers: int, persistent: bool) -> None:
    """The caller's engine and forked workers, kept or not, give what torch's loader gives in the same
    compiled function."""
    if persistent and not workers:
        pytest.skip("needs workers")
    options: dict[str, Any] = {"batch_size": 5, "num_workers": workers, "persistent_workers": persistent}
    expected = compiled(DataLoader(Rows(), **options))
    with FastLoader(Rows(), **options) as loader:
        assert torch.equal(torch.stack(compiled(loader)), torch.stack(expected))


@pytest.mark.parametrize("workers", [0, 2])
@pytest.mark.parametrize("steps", [None, lambda images: images // 2])
def test_packed_data(packed: Path, workers: int, steps: Any) -> None:
    """Native threads, also with a batch_transform, give in a compiled function what they give outside."""
    dataset = PackedDataset(packed, transform=[T.RandomResizedCrop(8)])
    options: dict[str, Any] = {"batch_size": 20, "num_workers": workers, "seed": 4, "batch_transform": steps}
    with FastLoader(dataset, **options) as loader, FastLoader(dataset, **options) as plain:
        expected = loop(plain, torch.tensor(2.0))
        assert torch.equal(torch.stack(compiled(loader)), torch.stack(expected))


def test_a_compiled_step_stays_compiled() -> None:
    """A batch_transform that torch.compile made is compiled, in a plain loop and in a compiled one."""
    graphs: list[Any] = []

    def backend(graph: Any, inputs: Any) -> Any:
        graphs.append(graph)
        return graph.forward

    step = torch.compile(lambda images: images + 1, backend=backend)
    loader = FastLoader(Rows(), batch_size=6, batch_transform=step)
    assert len(loop(loader, torch.tensor(2.0))) == 4
    assert len(graphs) == 1
    torch._dynamo.reset()
    assert len(compiled(loader)) == 4
    assert len(graphs) == 2
