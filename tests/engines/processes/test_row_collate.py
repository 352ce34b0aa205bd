"""Batches whose rows are written one by one are exactly default_collate's; samples that are not of that
kind are refused."""

from __future__ import annotations

from collections import OrderedDict, UserDict, namedtuple
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.utils.data import default_collate
from worker_values import PLAIN, Pair, numbers, same

from fastload._native import core
from fastload.engines.processes import row_collate as rows
from fastload.engines.processes.serialization import opened

quick = settings(max_examples=150)

# What one leaf of a sample may be: a function of a number, so that samples of one layout differ in values.
_ARRAYS = ["u1", "i1", "i2", "i4", "i8", "u2", "u4", "u8", "f2", "f4", "f8", "c8", "c16", "?"]


def _tensor(shape: tuple[int, ...], dtype: torch.dtype, flipped: bool) -> Any:
    return lambda seed: (
        numbers(shape[::-1], dtype, seed).permute(tuple(reversed(range(len(shape)))))
        if flipped
        else numbers(shape, dtype, seed)
    )


def _array(shape: tuple[int, ...], kind: str, order: Any) -> Any:
    def make(seed: int) -> np.ndarray[Any, Any]:
        values = (np.arange(int(np.prod(shape, dtype=np.int64))) * 13 + seed) % 113
        return np.asarray(values.reshape(shape).astype(kind), order=order)

    return make


some_shapes = st.lists(st.integers(1, 4), max_size=3).map(tuple)
leaves = st.one_of(
    st.builds(_tensor, some_shapes, st.sampled_from(PLAIN), st.booleans()),
    st.builds(_array, some_shapes, st.sampled_from(_ARRAYS), st.sampled_from("CF")),
    st.sampled_from(
        [
            lambda seed: seed * 3 - 5,
            lambda seed: seed / 7,
            lambda seed: bool(seed % 2),
            lambda seed: f"name {seed}",
            lambda seed: b"bytes %d" % seed,
        ]
    ),
)


def _layer(inner: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    def all_of(make: Any) -> Any:
        return lambda children: lambda seed: make([child(seed) for child in children])

    several = st.lists(inner, max_size=3)
    keyed = st.dictionaries(st.text(max_size=3) | st.integers(0, 5) | st.booleans(), inner, max_size=3)
    return st.one_of(
        several.map(all_of(list)),
        several.map(all_of(tuple)),
        st.lists(inner, min_size=2, max_size=2).map(all_of(lambda pair: Pair(*pair))),
        keyed.map(lambda items: lambda seed: {key: child(seed) for key, child in items.items()}),
    )


samplers = st.recursive(leaves, _layer, max_leaves=6)


def by_rows(samples: list[Any], order: list[int] | None = None) -> Any:
    """The samples collated row by row, written in this order; None where one is refused."""
    layout = rows.describe(samples[0])
    if layout is None:
        return None
    count = len(samples)
    slot = core.SharedSlot(max(1, layout.bytes(count)))
    writer = rows.RowWriter(layout, slot, count)
    strings: dict[int, list[Any]] = {}
    for row in order or range(count):
        values = rows.flatten(samples[row], layout)
        if values is None:
            return None
        try:
            found = writer.write(row, values)
        except OverflowError:
            return None
        if found:
            strings[row] = found
    with opened(slot):
        return rows.batch_of(layout, count, [strings[row] for row in sorted(strings)])


def tensors_in(value: Any) -> bool:
    if isinstance(value, dict):
        return any(map(tensors_in, value.values()))
    if isinstance(value, list | tuple):
        return any(map(tensors_in, value))
    return isinstance(value, torch.Tensor)


@quick
@given(samplers, st.data())
def test_as_default_collate(make: Any, data: st.DataObject) -> None:
    """For samples of one layout: the same containers, dtypes, shapes and values, whatever order the rows
    are written in."""
    count = data.draw(st.integers(1, 5))
    samples = [make(seed) for seed in range(count)]
    expected = default_collate(samples)
    got = by_rows(samples, data.draw(st.permutations(range(count))))
    if tensors_in(expected):
        assert same(expected, got)
    else:
        assert got is None


@quick
@given(st.lists(samplers, min_size=2, max_size=3), st.data())
def test_mixed_samples_are_refused_or_right(makes: list[Any], data: st.DataObject) -> None:
    """Samples that differ in layout are refused, unless default_collate makes the same of them."""
    samples = [data.draw(st.sampled_from(makes))(seed) for seed in range(4)]
    got = by_rows(samples)
    if got is not None:
        assert same(default_collate(samples), got)


def _structured() -> Any:
    return np.zeros(2, [("a", "i4"), ("b", "f4")])


@pytest.mark.parametrize(
    "make",
    [
        lambda: None,
        lambda: 1j,
        lambda: {1},
        lambda: object(),
        lambda: np.float32(1.5),
        lambda: np.int64(3),
        lambda: np.array(["a", "b"]),
        lambda: np.array([object()]),
        lambda: np.array(["2020-01-01"], dtype="M8[D]"),
        lambda: np.arange(3, dtype=">i4"),
        lambda: np.arange(3)[::-1],
        lambda: np.zeros((0, 3)),
        lambda: np.longdouble([1, 2]),
        _structured,
        lambda: np.ones(3).view(type("Subclass", (np.ndarray,), {})),
        lambda: torch.zeros(0, 3),
        lambda: torch.ones(2, requires_grad=True),
        lambda: torch.nn.Parameter(torch.ones(2)),
        lambda: torch.ones(2, 2).to_sparse(),
        lambda: torch.ones(2, dtype=torch.complex64).conj(),
        lambda: torch.empty(2, device="meta"),
        lambda: OrderedDict(x=torch.ones(2)),
        lambda: UserDict(x=torch.ones(2)),
        lambda: [torch.ones(2), None],
        lambda: {"x": torch.ones(2), "y": {1, 2}},
        lambda: torch.Size([2, 3]),
        lambda: range(3),
    ],
    ids=lambda make: "",
)
def test_other_samples_are_not_described(make: Any) -> None:
    """What only default_collate itself, or nothing, can collate gets no layout."""
    assert rows.describe(make()) is None
    assert rows.describe({"x": torch.ones(2), "other": [make()]}) is None


@pytest.mark.parametrize("sample", ["text", {"text": "alone", "more": [b"x", ()]}, [], {}])
def test_without_tensors_there_are_no_rows(sample: Any) -> None:
    """Samples of strings alone have nothing to write into a slot."""
    assert rows.describe(sample) is None


@pytest.mark.filterwarnings("ignore:The PyTorch API of nested tensors")
@pytest.mark.parametrize("layout", [torch.strided, torch.jagged])
def test_nested_tensors_are_not_described(layout: torch.layout) -> None:
    """Nested tensors get default_collate's own error."""
    assert rows.describe([torch.nested.nested_tensor([torch.ones(2), torch.ones(1)], layout=layout)]) is None


X = torch.ones(2, 3)


@pytest.mark.parametrize(
    ("first", "second"),
    [
        ({"x": X}, {"x": X, "y": X}),
        ({"x": X, "y": 1}, {"y": 1, "x": X}),
        ({1: X}, {True: X}),
        ({1: X}, {1.0: X}),
        ((X, 1), (X, 1.0)),
        ((X, 1), (X, True)),
        ((X, True), (X, 1)),
        ((X, 1), (X, np.int64(1))),
        ((X, "a"), (X, b"a")),
        ((X, "a"), (X, 1)),
        ((X, X), [X, X]),
        ((X, X), (X,)),
        (Pair(X, X), (X, X)),
        (Pair(X, X), namedtuple("Pair", ["first", "second"])(X, X)),
        (X, torch.ones(3, 2)),
        (X, torch.ones(1, 3)),
        (X, X.double()),
        (X, X.numpy()),
        (X, X.clone().requires_grad_()),
        (X, torch.nn.Parameter(X)),
        (X, X.to_sparse()),
        (X.numpy(), X.numpy().astype(">f4")),
        (X.numpy(), X.numpy()[::-1]),
        (torch.tensor(1), 1),
        ((X, 1), (X, 2**63)),
        ((X, 1), (X, -(2**63) - 1)),
    ],
)
def test_unlike_the_first(first: Any, second: Any) -> None:
    """A sample whose keys, types, shapes or dtypes are not the first one's is refused; ints beyond 64 bits
    as well."""
    assert by_rows([first, first]) is not None
    assert by_rows([first, second]) is None


def test_ints_of_64_bits() -> None:
    """The largest and smallest int64 are written as they are."""
    samples = [(2**63 - 1, 0), (-(2**63), 1)]
    assert same(default_collate(samples), by_rows(samples))


def test_layout_of_a_slot() -> None:
    """Leaves follow each other at multiples of 64, each large enough for its rows."""
    layout = rows.describe((torch.ones(3, dtype=torch.uint8), "name", 1.0))
    assert layout is not None
    assert layout.offsets(30) == [0, 128, 128, 384]
    assert layout.bytes(30) == 384
    assert [leaf.row_bytes for leaf in layout.leaves] == [3, 0, 8]
