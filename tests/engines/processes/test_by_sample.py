"""seed_by="sample": batches do not depend on the number of workers, and their rows are collated as
default_collate does."""

from __future__ import annotations

import random
from collections import namedtuple
from typing import Any

import numpy as np
import pytest
import torch
from process_helpers import Made, engine_marks, ones
from torch.utils.data import default_collate
from worker_values import same

from fastload import FastLoader

pytestmark = engine_marks


def drawn(index: int) -> Any:
    return {
        "rand": torch.rand(3),
        "numpy": np.random.rand(2),
        "python": random.random(),
        "name": f"sample {index}",
        "pair": (index, f"in a tuple {index}"),
    }


def listed(samples: list[Any]) -> Any:
    return [*samples, torch.rand(2)]


@pytest.mark.parametrize("seed", [None, 11])
@pytest.mark.parametrize(
    ("make", "collate"), [(drawn, None), (drawn, listed), (lambda i: f"{i} {random.random()}", None)]
)
def test_by_sample_does_not_depend_on_workers(seed: int | None, make: Any, collate: Any) -> None:
    """Any number of workers gives the same batches, containers and strings included, in epoch 0 and 1."""
    runs = []
    for workers in range(4):
        torch.manual_seed(5)
        loader = FastLoader(
            Made(make, 22),
            batch_size=4,
            shuffle=True,
            num_workers=workers,
            seed_by="sample",
            seed=seed,
            collate_fn=collate,
        )
        runs.append([list(loader) for _ in range(2)])
    for run in runs[1:]:
        assert same(runs[0], run)
    assert not same(runs[0][0], runs[0][1])


@pytest.mark.parametrize(
    "make",
    [
        lambda i: torch.zeros(3 if i == 9 else 2),
        lambda i: {"x": torch.zeros(2)} if i != 9 else {"y": torch.zeros(2)},
        lambda i: (torch.zeros(2),) * (1 + (i == 9)),
        lambda i: torch.zeros(2) if i != 9 else None,
        lambda i: (torch.zeros(2), 2**70 if i == 9 else 1),
    ],
)
def test_mismatching_samples(make: Any) -> None:
    """A batch whose samples do not fit each other raises default_collate's own error, and the others are
    delivered."""
    with pytest.raises(Exception) as expected:  # noqa: PT011  (whatever it is)
        default_collate([make(index) for index in range(8, 12)])
    iterator = iter(FastLoader(Made(make, 20), batch_size=4, num_workers=2, seed_by="sample"))
    got: list[Any] = []
    for _ in range(5):
        try:
            got.append(next(iterator))
        except Exception as error:
            assert type(error) is expected.type
            assert str(expected.value).splitlines()[0] in str(error)
            got.append("failed")
    assert [batch == "failed" if isinstance(batch, str) else False for batch in got] == [
        False,
        False,
        True,
        False,
        False,
    ]
    assert same(got[0], default_collate([make(index) for index in range(4)]))


def test_samples_of_a_local_class() -> None:
    """A named tuple that is defined in a function works by sample as well."""
    Local = namedtuple("Local", ["x", "n"])
    batches = list(
        FastLoader(Made(lambda i: Local(ones(i), i), 12), batch_size=4, num_workers=2, seed_by="sample")
    )
    assert [batch.n.tolist() for batch in batches] == [[0, 1, 2, 3], [4, 5, 6, 7], [8, 9, 10, 11]]
    assert type(batches[0]).__name__ == "Local"


@pytest.mark.parametrize("kind", [tuple, np.array, torch.tensor])
def test_indices_of_any_kind(kind: Any) -> None:
    """A batch sampler may give tuples, arrays and tensors of indices, with the same samples by sample."""
    batches = [[3, 1, 2], [0, 5], [4]]
    expected = list(FastLoader(Made(drawn, 6), batch_sampler=batches, seed_by="sample", seed=1))
    dataset = Made(lambda index: drawn(int(index)), 6)
    got = list(
        FastLoader(
            dataset, batch_sampler=[kind(batch) for batch in batches], num_workers=2, seed_by="sample", seed=1
        )
    )
    assert same([batch["rand"] for batch in expected], [batch["rand"] for batch in got])
    assert [batch["name"] for batch in expected] == [batch["name"] for batch in got]
