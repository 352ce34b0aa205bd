"""Containers of a batch: which types are kept, and which objects are passed over."""

from __future__ import annotations

from collections import OrderedDict, UserDict, defaultdict, namedtuple
from collections.abc import Iterator, Mapping
from typing import Any

import pytest
import torch

from fastload.batch.containers import (
    each_tensor,
    is_closed,
    record_stream,
    sequence_like,
    tensors_of,
    to_device,
)

Pair = namedtuple("Pair", "image label")


class Rows(list[Any]):
    """A list of a type of its own."""


ONE, TWO = torch.ones(1), torch.full((1,), 2.0)


def doubled(batch: Any) -> Any:
    """The batch with its tensors doubled."""
    return each_tensor(batch, lambda tensor: tensor * 2)


@pytest.mark.parametrize(
    "batch", [[ONE], (ONE,), Pair(ONE, "a"), Rows([ONE]), {"a": ONE}], ids=lambda batch: type(batch).__name__
)
def test_types_are_kept(batch: Any) -> None:
    """Lists, tuples, named tuples, what derives from them, and dicts come back as what they were, with
    other tensors."""
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


class Frozen(Mapping[str, Any]):
    """A mapping that cannot be updated."""

    def __init__(self, values: Mapping[str, Any]) -> None:
        self._values = values

    def __getitem__(self, key: str) -> Any:
        return self._values[key]

    def __iter__(self) -> Iterator[str]:
        return iter(self._values)

    def __len__(self) -> int:
        return len(self._values)


class Fixed(dict[str, Any]):
    """A dict that cannot be made of a dict, nor copied."""

    def __init__(self) -> None:
        super().__init__(a=ONE)

    def update(self, *args: Any, **kwargs: Any) -> None:
        raise TypeError


@pytest.mark.parametrize("kind", [OrderedDict, UserDict, Frozen, lambda values: defaultdict(list, values)])
def test_mappings(kind: Any) -> None:
    """Mappings of any type keep it, and are not written to."""
    mapping = kind({"a": ONE})
    changed = doubled(mapping)
    assert type(changed) is type(mapping)
    assert (list(tensors_of(changed)), mapping["a"]) == ([TWO], ONE)
    assert getattr(changed, "default_factory", None) is getattr(mapping, "default_factory", None)


def test_mapping_that_cannot_be_made_again() -> None:
    """It becomes a dict."""
    assert type(doubled(Fixed())) is dict


META = torch.device("meta")


class Graph:
    """An object that moves itself, by the methods that it is made with."""

    def __init__(self) -> None:
        self.x, self.streams = ONE, []


class New(Graph):
    def to(self, device: torch.device, non_blocking: bool = False) -> Graph:
        moved = type(self)()
        moved.x = self.x.to(device, non_blocking=non_blocking)
        return moved


class InPlace(Graph):
    def to(self, device: torch.device) -> None:
        self.x = self.x.to(device)


class Recorded(New):
    def record_stream(self, stream: Any) -> None:
        self.streams.append(stream)


def test_to_device() -> None:
    """Every tensor is moved, and every object that moves itself, whether its `to` returns something or
    takes non_blocking or not."""
    batch = [Pair(ONE, [TWO]), UserDict(a=ONE), {"new": New(), "in place": InPlace()}]
    moved = to_device(batch, META)
    assert {tensor.device.type for tensor in tensors_of(moved)} == {"meta"}
    assert {each.x.device.type for each in moved[2].values()} == {"meta"}
    assert moved[2]["in place"] is batch[2]["in place"]


def test_a_packed_sequence_keeps_its_sizes_on_the_host() -> None:
    """A named tuple with a `to` of its own is moved by that, not value by value."""
    sequence = torch.nn.utils.rnn.pack_sequence([torch.ones(3), torch.ones(2)])
    moved = to_device([sequence], META)[0]
    assert (moved.data.device.type, moved.batch_sizes.device.type) == ("meta", "cpu")


def test_closed_objects_can_be_left() -> None:
    """Objects that move themselves and do not say which streams use them stay where they are if the caller
    moves them later."""
    left = to_device([New(), Recorded(), ONE], META, closed=False)
    assert [left[0].x.device.type, left[1].x.device.type, left[2].device.type] == ["cpu", "meta", "meta"]
    assert [is_closed(each) for each in (New(), Recorded(), ONE, UserDict(), 3)] == [
        True,
        False,
        False,
        False,
        False,
    ]
    record_stream([left[1], 3], "stream")
    assert left[1].streams == ["stream"]


@pytest.mark.parametrize("module", ["transformers", "torch_geometric.data"])
def test_library_objects(module: str) -> None:
    """BatchEncoding and PyG's Data arrive on the device with their type."""
    library = pytest.importorskip(module)
    value = library.BatchEncoding({"ids": ONE}) if module == "transformers" else library.Data(x=ONE)
    moved = to_device({"value": value}, META)["value"]
    assert type(moved) is type(value)
    assert (moved["ids"] if module == "transformers" else moved.x).device.type == "meta"
    assert not is_closed(value)


def test_sequence_like() -> None:
    """A named tuple takes its values one by one, another sequence takes them at once."""
    assert sequence_like(Pair, [1, 2]) == Pair(1, 2)
    assert sequence_like(tuple, [1, 2]) == (1, 2)
