"""Datasets whose state_dict() cannot be called, or raises."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
import torch
from torch.utils.data import Dataset, IterableDataset

from fastload import FastLoader

by_workers = pytest.mark.parametrize("workers", [0, 2])
KINDS = ("iterable", "map")


def numbers(kind: str, state_dict: Any) -> Any:
    """A dataset of 0 to 9 with a state_dict()."""
    methods: dict[str, Any] = {"state_dict": state_dict, "load_state_dict": lambda self, state: None}
    if kind == "map":
        methods |= {
            "__len__": lambda self: 10,
            "__getitem__": lambda self, index: torch.tensor(range(10)[index]),
        }
        return type("Map", (Dataset,), methods)()

    def iterate(self: Any) -> Iterator[int]:
        return iter(range(10))

    return type("Iterable", (IterableDataset,), methods | {"__iter__": iterate})()


@by_workers
@pytest.mark.parametrize("kind", KINDS)
def test_a_state_that_needs_arguments_is_not_asked_for(kind: str, workers: int) -> None:
    """Such a dataset is one without a state, and the loader's state_dict() says so."""
    loader = FastLoader(numbers(kind, lambda self, samples: {}), batch_size=5, num_workers=min(workers, 1))
    for _ in range(2):
        assert [batch.tolist() for batch in loader] == [[0, 1, 2, 3, 4], [5, 6, 7, 8, 9]]
    with pytest.warns(UserWarning, match=r"state_dict\(\) needs arguments"):
        loader.state_dict()


@by_workers
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(("error", "raised"), [(KeyError("lost"), KeyError), (StopIteration(), RuntimeError)])
def test_an_error_of_state_dict_comes_back(
    kind: str, workers: int, error: Exception, raised: type[Exception]
) -> None:
    """It is raised in the loop, or by the loader's own state_dict(), with its traceback; no worker dies of
    it, no epoch ends early."""

    def fails(self: Any) -> None:
        raise error

    loader = FastLoader(numbers(kind, fails), batch_size=5, num_workers=workers)
    with pytest.raises(raised, match=r"lost|raised StopIteration") as caught:
        assert len(list(loader)) == 2
        loader.state_dict()
    if workers:
        assert "in fails" in str(caught.value)
