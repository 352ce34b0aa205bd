"""What the conformance tests share: running one thing under both loaders, and deep equality that sees
types."""

from __future__ import annotations

import random
import re
import traceback
import warnings
from collections.abc import Callable, Iterator, Mapping
from dataclasses import fields, is_dataclass
from typing import Any

import numpy as np
import torch
from torch.utils.data import DataLoader, Dataset

from fastload import FastLoader

LOADERS = [DataLoader, FastLoader]
CHANNELS_LAST = {4: [torch.channels_last], 5: [torch.channels_last_3d]}


class Rows(Dataset[Any]):
    """`make(i)` for i in range(n)."""

    def __init__(self, make: Callable[[int], Any], n: int = 7) -> None:
        self.make, self.n = make, n

    def __len__(self) -> int:
        return self.n

    def __getitem__(self, index: int) -> Any:
        return self.make(index)


class Failure:
    """An exception as a value: its class and what it says, without the process's own addresses and paths."""

    def __init__(self, error: BaseException) -> None:
        self.kind = type(error)
        lines = [line.strip() for line in str(error).splitlines() if line.strip()]
        self.first = re.sub(r"0x[0-9a-f]+|\(pid\(?s?\)? [\d, ]+\)", "", lines[0]) if lines else ""
        self.last = re.sub(r"0x[0-9a-f]+", "", lines[-1]) if lines else ""

    def __repr__(self) -> str:
        return f"{self.kind.__name__}: {self.first} ... {self.last}"


def _failure(error: Exception) -> Failure:
    """The error as a value. Its frames are cleared, since they hold themselves: an iterator of torch's that
    the garbage collector ends together with its queues has their file descriptors closed twice, once by a
    feeder thread that its end starts."""
    failure = Failure(error)
    traceback.clear_frames(error.__traceback__)
    return failure


def attempt(run: Callable[[], Any]) -> Any:
    """What `run` returns, or the Failure it ends with."""
    try:
        return run()
    except Exception as error:
        return _failure(error)


def seeded(seed: int = 0) -> None:
    """Seeds the three generators of this process."""
    torch.manual_seed(seed)
    random.seed(seed)
    np.random.seed(seed)


def agree(run: Callable[[Any], Any], seed: int = 0) -> Any:
    """`run` gives under FastLoader what it gives under DataLoader: values and types, or the same failure.
    Returns it."""
    results = []
    for loader_class in LOADERS:
        seeded(seed)
        results.append(attempt(lambda loader_class=loader_class: run(loader_class)))
    expected, got = results
    same(got, expected, "result")
    return expected


def epochs(loader: Any, count: int = 1) -> list[list[Any]]:
    return [list(loader) for _ in range(count)]


def drain(iterator: Iterator[Any]) -> Iterator[Any]:
    """Every item, and every exception as a Failure, until the iterator ends."""
    for _ in range(10_000):
        try:
            yield next(iterator)
        except StopIteration:
            return
        except Exception as error:
            yield _failure(error)
    raise AssertionError("the iterator does not end")


def caught(run: Callable[[], Any]) -> tuple[Any, list[tuple[type, str]]]:
    """What `run` returns, and the warnings given meanwhile."""
    with warnings.catch_warnings(record=True) as given:
        warnings.simplefilter("always")
        value = run()
    return value, [(w.category, str(w.message)) for w in given]


def _same_tensor(a: torch.Tensor, b: torch.Tensor, at: str) -> None:
    assert a.is_nested == b.is_nested, at
    if a.is_nested:
        same(list(a.unbind()), list(b.unbind()), at)
        return
    for name in ("dtype", "layout", "shape", "requires_grad", "is_quantized"):
        assert getattr(a, name) == getattr(b, name), (
            f"{at}: {name} {getattr(a, name)} is not {getattr(b, name)}"
        )
    if a.is_quantized:
        assert a.qscheme() == b.qscheme(), at
        if a.qscheme() == torch.per_tensor_affine:
            assert (a.q_scale(), a.q_zero_point()) == (b.q_scale(), b.q_zero_point()), at
        else:
            assert torch.equal(a.q_per_channel_scales(), b.q_per_channel_scales()), at
        assert torch.equal(a.int_repr(), b.int_repr()), at
        return
    if a.layout != torch.strided:
        assert a.layout != torch.sparse_coo or a.is_coalesced() == b.is_coalesced(), at
        a, b = a.to_dense(), b.to_dense()
    elif b.is_contiguous() or any(b.is_contiguous(memory_format=f) for f in CHANNELS_LAST.get(b.dim(), ())):
        # Gaps and overlaps need not be kept.
        assert a.stride() == b.stride(), f"{at}: strides {a.stride()} are not {b.stride()}"
    if a.is_meta or b.is_meta:
        assert a.is_meta, at
        assert b.is_meta, at
        return
    a, b = a.detach(), b.detach()
    if a.dtype.itemsize == 1 and a.dtype.is_floating_point:
        a, b = a.view(torch.uint8), b.view(torch.uint8)
    equal = torch.equal(a, b) or (
        torch.equal(torch.nan_to_num(a), torch.nan_to_num(b)) and torch.equal(a != a, b != b)
    )
    assert equal, f"{at}: {a} is not {b}"


def same(a: Any, b: Any, at: str = "value") -> None:
    """`a` is `b`: type for type, element for element; raises AssertionError that names the place."""
    assert type(a) is type(b), f"{at}: {type(a).__name__} is not {type(b).__name__}: {a!r}, {b!r}"
    if isinstance(a, type):
        assert a is b, f"{at}: {a} is not {b}"
    elif isinstance(a, torch.Tensor):
        _same_tensor(a, b, at)
    elif isinstance(a, np.ndarray):
        assert a.dtype == b.dtype, at
        assert a.shape == b.shape, at
        assert a.tobytes() == b.tobytes() if a.dtype != object else list(a) == list(b), at
    elif isinstance(a, Failure):
        assert (a.kind, a.first) == (b.kind, b.first), f"{at}: {a!r} is not {b!r}"
        assert a.last == b.last, f"{at}: {a!r} is not {b!r}"
    elif isinstance(a, Mapping):
        assert list(a) == list(b), f"{at}: keys {list(a)} are not {list(b)}"
        for key in a:
            same(a[key], b[key], f"{at}[{key!r}]")
        same(
            getattr(a, "__dict__", {}) if type(a) is not dict else 0,
            getattr(b, "__dict__", {}) if type(b) is not dict else 0,
            at,
        )
    elif isinstance(a, list | tuple) or (
        hasattr(a, "__getitem__") and hasattr(a, "__len__") and not isinstance(a, str | bytes)
    ):
        assert len(a) == len(b), f"{at}: {len(a)} items are not {len(b)}: {a!r}, {b!r}"
        for i, (x, y) in enumerate(zip(a, b, strict=True)):
            same(x, y, f"{at}[{i}]")
    elif is_dataclass(a) and not isinstance(a, type):
        for field in fields(a):
            same(getattr(a, field.name), getattr(b, field.name), f"{at}.{field.name}")
    else:
        assert a == b or (a != a and b != b), f"{at}: {a!r} is not {b!r}"
