"""default_collate and default_convert in workers: every kind of sample ends as torch makes it, or fails as
torch fails."""

from __future__ import annotations

import collections
import threading
from collections.abc import Callable
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, NamedTuple

import numpy as np
import pytest
import torch
from conformance_helpers import Failure, Rows, agree, drain, same
from torch.utils.data import DataLoader, Dataset, TensorDataset, default_collate
from torch.utils.data._utils.collate import collate, default_collate_fn_map

from fastload import FastLoader

pytestmark = [
    pytest.mark.filterwarnings("ignore:This DataLoader will create"),
    pytest.mark.filterwarnings("ignore:The given NumPy array is not writable"),
    pytest.mark.filterwarnings("ignore:Sparse"),
    pytest.mark.filterwarnings("ignore:TypedStorage is deprecated"),
    pytest.mark.filterwarnings("ignore:The PyTorch API of nested tensors"),
    pytest.mark.filterwarnings(
        "ignore:torch.quantize_per|.*quantization is deprecated|.*quantized.*deprecated"
    ),
]


class Point(NamedTuple):
    x: Any
    y: Any


class Tagged(torch.Tensor):
    """A tensor of a class of its own."""


class TaggedDict(dict[str, Any]):
    """A dict with an attribute, which default_collate keeps."""

    tag = "none"


class TaggedList(list[Any]):
    pass


@dataclass
class Opaque:
    """What default_collate does not know."""

    value: int


def tagged_dict(i: int) -> TaggedDict:
    made = TaggedDict(a=torch.full((2,), i), b=i)
    made.tag = "kept"
    return made


def image(i: int) -> torch.Tensor:
    return torch.arange(3 * 4 * 5, dtype=torch.uint8).reshape(3, 4, 5) + i


def coo(i: int) -> torch.Tensor:
    return torch.sparse_coo_tensor([[0, 1], [1, 0]], [1.0 + i, 2.0], (2, 2)).coalesce()


DTYPES = [
    torch.bool, torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64, torch.uint16, torch.uint32,
    torch.uint64, torch.float16,
    torch.bfloat16, torch.float32, torch.float64, torch.complex64, torch.complex128, torch.float8_e4m3fn,
    torch.float8_e5m2,
]  # fmt: skip
ARRAYS = ["?", "u1", "i1", "i2", "i4", "i8", "u2", "u4", "u8", "f2", "f4", "f8", "c8", "c16"]

SAMPLES: dict[str, Callable[[int], Any]] = {
    "image and label": lambda i: (image(i), i),
    "int": lambda i: i,
    "float": lambda i: i / 3,
    "bool": lambda i: i % 2 == 0,
    "int, then float": lambda i: i if i % 3 == 0 else i + 0.5,
    "float, then int": lambda i: i + 0.5 if i % 3 == 0 else i,
    "bool, then int": lambda i: True if i % 3 == 0 else i,
    "int beyond 32 bits": lambda i: i + (1 << 40),
    "int beyond 64 bits": lambda i: i + (1 << 70),
    "complex": lambda i: complex(i, 1),
    "nan and inf": lambda i: (float("nan"), float("inf"), torch.tensor([float("nan"), i])),
    "str": lambda i: f"name {i}",
    "str with every kind of character": lambda i: "\0ü\U0001f600" * i,
    "bytes": lambda i: bytes([i]) * i,
    "bytearray": lambda i: bytearray([i, 1]),
    "None": lambda i: None,
    "None inside": lambda i: (image(i), None),
    "set": lambda i: {i},
    "opaque object": Opaque,
    "dict": lambda i: {"image": image(i), "label": i, "name": str(i)},
    "dict of ints": lambda i: {3: i, 1: -i},
    "dict with keys in another order": lambda i: {"a": i, "b": i} if i % 2 else {"b": i, "a": i},
    "dict with a missing key": lambda i: {"a": i, "b": i} if i % 3 != 1 else {"a": i},
    "dict with one key more": lambda i: {"a": i, "b": i} if i % 3 == 1 else {"a": i},
    "empty dict": lambda i: {},
    "empty list": lambda i: [],
    "empty tuple": lambda i: (),
    "nested": lambda i: {
        "a": [torch.ones(2) * i, {"b": (i, float(i)), "c": [str(i), b"x"]}],
        "p": Point(i, Point(image(i), "s")),
    },
    "list": lambda i: [torch.ones(3) * i, i],
    "lists of unequal length": lambda i: [i] * (1 + i % 2),
    "tuple": lambda i: (i, str(i), torch.ones(()) * i),
    "namedtuple": lambda i: Point(torch.ones(2) * i, i),
    "OrderedDict": lambda i: collections.OrderedDict(z=i, a=torch.ones(1) * i),
    "defaultdict": lambda i: collections.defaultdict(int, a=i),
    "UserDict": lambda i: collections.UserDict(a=i),
    "Counter": lambda i: collections.Counter(a=i),
    "MappingProxyType": lambda i: MappingProxyType({"a": i}),
    "dict subclass with an attribute": tagged_dict,
    "list subclass": lambda i: TaggedList([i, torch.ones(1) * i]),
    "UserList": lambda i: collections.UserList([i, i]),
    "deque": lambda i: collections.deque([i, i]),
    "range": lambda i: range(i, i + 3),
    "tensor 0-d": lambda i: torch.tensor(i),
    "tensor of no elements": lambda i: torch.empty(0),
    "tensor of no elements, 3-d": lambda i: torch.empty(2, 0, 3),
    "non-contiguous": lambda i: image(i).permute(1, 2, 0),
    "strided": lambda i: torch.arange(20.0)[i::2][:5],
    "expanded": lambda i: torch.tensor([float(i)]).expand(4),
    "view with an offset": lambda i: torch.arange(100.0).reshape(10, 10)[3:5, 2:7] + i,
    "channels last": lambda i: torch.ones(2, 3, 4, 5).contiguous(memory_format=torch.channels_last) * i,
    "conjugate": lambda i: torch.tensor([1 + 2j, i]).conj(),
    "negative bit": lambda i: torch.tensor([1 + 2j, i]).conj().imag,
    "tensors of unequal size": lambda i: torch.ones(2 + i % 2),
    "tensors of unequal rank": lambda i: torch.ones((2,) * (1 + i % 2)),
    "tensors of unequal dtype": lambda i: torch.ones(2, dtype=torch.float32 if i % 3 == 0 else torch.float64),
    "tensors of unequal dtype, wide first": lambda i: torch.ones(
        2, dtype=torch.float64 if i % 3 == 0 else torch.float32
    ),
    "integer, then float tensor": lambda i: torch.ones(2, dtype=torch.int64 if i % 3 == 0 else torch.float32),
    "sizes alike within a batch": lambda i: torch.ones(2 + i // 3),
    "sizes falling from batch to batch": lambda i: torch.ones(200 - 50 * (i // 3)),
    "dtype other in each batch": lambda i: torch.ones(
        2, dtype=[torch.float32, torch.int64, torch.float64][i // 3]
    ),
    "structure other in each batch": lambda i: [(image(i), i), {"a": i}, "text"][i // 3],
    "tensor, then number": lambda i: torch.ones(2) if i < 3 else i,
    "requires grad": lambda i: torch.ones(2, requires_grad=True),
    "parameter": lambda i: torch.nn.Parameter(torch.ones(2), requires_grad=False),
    "tensor subclass": lambda i: torch.full((2,), i).as_subclass(Tagged),
    "mixed subclass": lambda i: torch.full((2,), i).as_subclass(Tagged) if i % 3 else torch.full((2,), i),
    "sparse coo": coo,
    "sparse csr": lambda i: torch.ones(2, 2).to_sparse_csr(),
    "nested tensor": lambda i: torch.nested.nested_tensor(
        [torch.ones(2), torch.ones(3)], layout=torch.strided
    ),
    "quantized": lambda i: torch.quantize_per_tensor(torch.ones(4) * i, 0.1, 3, torch.qint8),
    "array 0-d": lambda i: np.array(i),
    "array of no elements": lambda i: np.zeros((0, 3), np.float32),
    "array, Fortran order": lambda i: np.asfortranarray(np.arange(6.0).reshape(2, 3) + i),
    "array, read-only": lambda i: np.frombuffer(bytes([i, 1, 2]), np.uint8),
    "array, negative stride": lambda i: np.arange(4)[::-1],
    "array, big-endian": lambda i: np.arange(4, dtype=">i4"),
    "array of objects": lambda i: np.array([None, i], dtype=object),
    "array of strings": lambda i: np.array(["a", "b"]),
    "array, structured": lambda i: np.zeros(2, dtype=[("a", "i4"), ("b", "f4")]),
    "array of dates": lambda i: np.array(["2020-01-01"], dtype="datetime64[D]"),
    "arrays of unequal size": lambda i: np.ones(2 + i % 2),
    "array, then tensor": lambda i: np.ones(2) if i % 3 == 0 else torch.ones(2),
    "tensor, then array": lambda i: torch.ones(2) if i % 3 == 0 else np.ones(2),
    "np.float32": np.float32,
    "np.float64": np.float64,
    "np.float16": np.float16,
    "np.int64": np.int64,
    "np.uint8": np.uint8,
    "np.bool_": lambda i: np.bool_(i % 2),
    "np.complex64": np.complex64,
    "np.str_": lambda i: np.str_("text"),
    "np.bytes_": lambda i: np.bytes_(b"text"),
    "np.datetime64": lambda i: np.datetime64("2020-01-01"),
    "memory map": lambda i: np.ones(3, np.float32).view(np.memmap) * i,
    "matrix": lambda i: np.ones((2, 2)).view(np.matrix) * i,
    **{str(d): lambda i, d=d: torch.arange(4).add(i).remainder(2).to(d) for d in DTYPES},
    **{f"array {d}": lambda i, d=d: (np.arange(4) + i).astype(d) for d in ARRAYS},
}
SAMPLES.pop("memory map")  # made of a file below: a memmap without one is no memmap
UNBATCHED = [
    name
    for name in SAMPLES
    if not name.startswith(("torch.", "array ")) and "unequal" not in name and "then" not in name
]
# DataLoader's workers lose the quantizer or the conjugation, fail on what stacks well without workers, say of
# unequal sizes that storage cannot be resized, or hang over an error in their queue's own thread: what it
# gives without workers is what is right.
WRONG_IN_TORCHS_WORKERS = {
    "quantized",
    "conjugate",
    "negative bit",
    "requires grad",
    "tensor, then array",
    "MappingProxyType",
}
WRONG_IN_TORCHS_WORKERS |= {"tensors of unequal size", "tensors of unequal rank", "arrays of unequal size"}


class Samples(Dataset[Any]):
    """Samples of all kinds; an index is a kind's name and a number."""

    def __getitem__(self, at: tuple[str, int]) -> Any:
        name, number = at
        return SAMPLES[name](number)


def by_kind(
    loader_class: Any, names: list[str], batch_size: int | None, workers: int
) -> dict[str, list[Any]]:
    """Batches of each kind, the last one short, or the exceptions in their places."""
    if batch_size is None:
        batches: list[Any] = [(name, number) for name in names for number in range(3)]
        given: dict[str, Any] = {"batch_size": None, "sampler": batches}
    else:
        batches = [[(name, number) for number in range(7)[at : at + 3]] for name in names for at in (0, 3, 6)]
        given = {"batch_sampler": batches}
    got = list(drain(iter(loader_class(Samples(), num_workers=workers, **given))))
    return {name: got[3 * at : 3 * at + 3] for at, name in enumerate(names)}


def check_kinds(names: list[str], batch_size: int | None) -> None:
    """One worker's batches of each kind are torch's: from a worker, or where that one is wrong, from none."""
    ours = by_kind(FastLoader, names, batch_size, 1)
    right = by_kind(
        DataLoader, [name for name in names if name not in WRONG_IN_TORCHS_WORKERS], batch_size, 1
    )
    other = by_kind(DataLoader, [name for name in names if name in WRONG_IN_TORCHS_WORKERS], batch_size, 0)
    for name in names:
        if name in right:
            same(ours[name], right[name], name)
            continue
        for got, expected in zip(ours[name], other[name], strict=True):
            if isinstance(expected, Failure) and isinstance(got, Failure):
                assert expected.kind is got.kind, name
                assert expected.last in got.last, name
            else:
                same(got, expected, name)


def test_default_collate_in_a_worker() -> None:
    """Batches of three made by one worker process, the last one short: as torch's, in values, types,
    strides and errors."""
    check_kinds(list(SAMPLES), 3)


def test_default_collate_without_workers() -> None:
    """The same for all of them in the calling process."""
    for make in SAMPLES.values():
        agree(lambda loader_class, make=make: list(loader_class(Rows(make, 7), batch_size=3)))


def test_default_convert_in_a_worker() -> None:
    """batch_size=None: each sample as default_convert leaves it."""
    check_kinds(UNBATCHED, None)


@pytest.mark.parametrize("batch_size", [3, None])
def test_what_cannot_be_pickled_is_an_error(batch_size: int | None) -> None:
    """A batch that cannot leave its worker is an error that says so; DataLoader waits for ever. The
    batches after it come."""

    def make(i: int) -> Any:
        return threading.Lock() if i == 0 else i

    loader = FastLoader(
        Rows(make, 7),
        batch_size=batch_size,
        num_workers=1,
        timeout=20,
        collate_fn=list if batch_size else None,
    )
    iterator = iter(loader)
    with pytest.raises(Exception, match="pickle"):
        next(iterator)
    assert list(iterator) == ([[3, 4, 5], [6]] if batch_size else [1, 2, 3, 4, 5, 6])


def test_memory_map(tmp_path: Any) -> None:
    """Rows of a numpy.memmap are tensors of their own."""
    np.arange(40, dtype=np.float32).tofile(tmp_path / "data")
    data = np.memmap(tmp_path / "data", dtype=np.float32, mode="r+", shape=(10, 4))
    agree(lambda loader_class: list(loader_class(data, batch_size=4, num_workers=2)))


def test_plain_sequences_as_datasets() -> None:
    """A list, a range, an array and a TensorDataset are datasets."""
    for data in (
        [3, 1, 2],
        range(5),
        np.arange(12.0).reshape(4, 3),
        TensorDataset(torch.arange(6.0).reshape(3, 2), torch.arange(3)),
    ):
        agree(lambda loader_class, data=data: list(loader_class(data, batch_size=2, num_workers=2)))


def opaque_batch(batch: list[Opaque], *, collate_fn_map: Any = None) -> torch.Tensor:
    return torch.tensor([item.value for item in batch])


def doubled(batch: list[torch.Tensor], *, collate_fn_map: Any = None) -> torch.Tensor:
    return torch.stack(batch) * 2


def as_tuple(batch: list[Any], *, collate_fn_map: Any = None) -> tuple[Any, ...]:
    return tuple(batch)


@pytest.mark.parametrize("workers", [0, 2])
def test_registered_type(workers: int) -> None:
    """A type registered in default_collate_fn_map is collated by its function, inside containers too."""
    default_collate_fn_map[Opaque] = opaque_batch
    agree(
        lambda loader_class: list(
            loader_class(Rows(lambda i: {"o": Opaque(i), "t": image(i)}), batch_size=2, num_workers=workers)
        )
    )


@pytest.mark.parametrize(
    ("kind", "function"), [(torch.Tensor, doubled), (float, as_tuple), (Tagged, doubled), (dict, as_tuple)]
)
def test_registered_function_replaces_torchs(kind: Any, function: Any) -> None:
    """What is registered for a type that torch already collates, or for a subclass, wins."""
    default_collate_fn_map[kind] = function

    def make(i: int) -> Any:
        return {"t": torch.ones(2) * i, "f": i / 2, "s": torch.full((2,), i).as_subclass(Tagged)}

    agree(lambda loader_class: list(loader_class(Rows(make), batch_size=3, num_workers=1)))


def with_own_map(batch: list[Any]) -> Any:
    return collate(batch, collate_fn_map={torch.Tensor: doubled})


def test_collate_with_a_map_of_its_own() -> None:
    """collate(..., collate_fn_map=) inside a custom collate_fn runs as written."""
    agree(
        lambda loader_class: list(
            loader_class(Rows(image), batch_size=3, num_workers=1, collate_fn=with_own_map)
        )
    )


def wrapped(batch: list[Any]) -> Any:
    return {"batch": default_collate(batch), "n": len(batch)}


@pytest.mark.parametrize(
    "name", ["image and label", "nested", "torch.float16", "sparse coo", "tensors of unequal size"]
)
def test_default_collate_called_by_a_custom_one(name: str) -> None:
    """A collate_fn that calls default_collate and adds to it."""
    agree(
        lambda loader_class: list(
            loader_class(Rows(SAMPLES[name]), batch_size=3, num_workers=1, collate_fn=wrapped)
        )
    )


def test_errors_are_errors_in_both() -> None:
    """The table above holds cases that fail, so that failing alike is tested too."""
    for name in (
        "None",
        "set",
        "opaque object",
        "lists of unequal length",
        "tensors of unequal size",
        "sparse coo",
        "array of objects",
    ):
        assert isinstance(
            agree(lambda loader_class, name=name: list(loader_class(Rows(SAMPLES[name]), batch_size=3))),
            Failure,
        ), name
