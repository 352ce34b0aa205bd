"""Containers of a batch: which types are kept, and which objects are passed over."""

from __future__ import annotations

from collections import OrderedDict, UserDict, namedtuple
from typing import Any

import pytest
import torch

from fastload.batch.containers import each_tensor, sequence_like, tensors_of, to_device

Pair = namedtuple("Pair", "image label")


class Rows(list[Any]):
    """A list of a type of its own."""


ONE, TWO = torch.ones(1), torch.full((1,), 2.0)


def doubled(batch: Any) -> Any:
    """The batch with its tensors doubled."""
    return each_tensor(batch, lambda tensor: tensor * 2)


@pytest.mark.parametrize("batch", [[ONE], (ONE,), Pair(ONE, "a"), Rows([ONE]), {"a": ONE}], ids=lambda batch: type(batch).__name__)
def test_types_are_kept(batch: Any) -> None:
    """Lists, tuples, named tuples, what derives from them, and dicts come back as what they were, with other tensors."""
    changed = doubled(batch)
    assert type(changed) is type(batch)
    assert len(changed) == len(batch)
    assert list(tensors_of(changed)) == [TWO]


def test_nested() -> None:
    """Tensors are found in order at any depth; other objects are the same ones afterwards."""
    other = object()
    batch = {"a": [ONE, Pair(TWO, other)], "b": (3, "text", None)}
    assert [float(tensor) for tensor in tensors_of(batch)] == [1, 2]
    changed = doubled(batch)
    assert [float(tensor) for tensor in tensors_of(changed)] == [2, 4]
    assert changed["a"][1].label is other
    assert changed["b"] == (3, "text", None)


def test_other_mappings() -> None:
    """What derives from dict becomes a dict; a mapping that does not is passed over."""
    assert type(doubled(OrderedDict(a=ONE))) is dict
    mapping = UserDict(a=ONE)
    assert doubled(mapping) is mapping
    assert list(tensors_of(mapping)) == []


def test_to_device() -> None:
    """Every tensor is moved."""
    assert {tensor.device.type for tensor in tensors_of(to_device(Pair(ONE, [TWO]), torch.device("meta")))} == {"meta"}


def test_sequence_like() -> None:
    """A named tuple takes its values one by one, another sequence takes them at once."""
    assert sequence_like(Pair, [1, 2]) == Pair(1, 2)
    assert sequence_like(tuple, [1, 2]) == (1, 2)
