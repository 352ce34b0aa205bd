"""Digests of positions: of all values, the same for every kind of list, in little memory."""

from __future__ import annotations

import tracemalloc
from typing import Any

import numpy as np
import pytest
import torch

from fastload.common.positions import as_positions, digest_of, summary_of

COUNT = 1_000_003


def test_every_index_counts() -> None:
    """Also one of a million that lies between others; lists, ranges, arrays and tensors of the same
    integers have one summary."""
    values = np.arange(COUNT)
    kinds = [
        values,
        values.astype(np.int32),
        list(range(COUNT)),
        range(COUNT),
        torch.arange(COUNT),
        tuple(range(COUNT)),
    ]
    (told,) = {summary_of(each) for each in kinds}
    assert told is not None
    assert told.startswith("[0, 1, 2, ...], 1,000,003 of them with the digest ")
    for place in (0, 65_535, 65_536, 777_777, COUNT - 1):
        other = values.copy()
        other[place] += 1
        assert summary_of(other) != told
    assert summary_of(values[:-1]) != told
    assert summary_of([]) == summary_of(np.arange(0))
    assert summary_of(["a"]) is None


@pytest.mark.long
@pytest.mark.parametrize("kind", [np.asarray, torch.as_tensor, list])
def test_a_digest_makes_no_second_list(kind: object) -> None:
    """At most 4 MB beside two million indices of 16 MB."""
    indices = kind(np.arange(2_000_000))  # type: ignore[operator]
    tracemalloc.start()
    summary_of(indices)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 4 << 20


def test_digests_of_any_values() -> None:
    """Of weights as well, of which zero and minus zero are two."""
    weights = np.zeros(100_000)
    assert digest_of(len(weights), lambda start, stop: weights[start:stop]) != digest_of(
        len(weights), lambda start, stop: -weights[start:stop]
    )


@pytest.mark.parametrize("values", [np.array([0.5]), torch.tensor([0.5]), [0.5]])
def test_an_error_names_the_type_that_was_given(values: Any) -> None:
    """A tensor is called a Tensor, an array an ndarray, and a value of a list by itself."""
    with pytest.raises(
        TypeError,
        match="not by 0.5" if isinstance(values, list) else f"not by a {type(values).__name__} of float",
    ):
        as_positions(values)
