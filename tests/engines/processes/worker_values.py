"""Batches and samples of every kind for the tests of worker processes, and what it means for two of them
to be equal."""

from __future__ import annotations

import dataclasses
from collections import OrderedDict, namedtuple
from typing import Any

import numpy as np
import torch
from hypothesis import strategies as st

Pair = namedtuple("Pair", ["first", "second"])


@dataclasses.dataclass
class Record:
    """A dataclass as a batch."""

    image: Any
    label: Any


class Custom:
    """A class of a user's with state."""

    def __init__(self, content: Any) -> None:
        self.content = content


PLAIN = [
    *(
        torch.uint8,
        torch.int8,
        torch.int16,
        torch.int32,
        torch.int64,
        torch.uint16,
        torch.uint32,
        torch.uint64,
        torch.bool,
    ),
    *(torch.float16, torch.bfloat16, torch.float32, torch.float64, torch.complex64, torch.complex128),
]


def numbers(shape: tuple[int, ...], dtype: torch.dtype, seed: int) -> torch.Tensor:
    """Values that differ from place to place, the same for the same seed."""
    count = int(np.prod(shape, dtype=np.int64))
    values = (torch.arange(count, dtype=torch.int64) * 31 + seed * 7) % 113
    if dtype is torch.bool:
        return (values % 2).to(torch.bool).reshape(shape)
    if dtype.is_complex:
        return torch.complex(values.float(), -values.float()).to(dtype).reshape(shape)
    return values.to(dtype).reshape(shape)


shapes = st.lists(st.integers(0, 5), max_size=4).map(tuple)


@st.composite
def plain_tensors(draw: st.DrawFn) -> torch.Tensor:
    """Dense CPU tensors of every dtype and of many strides."""
    tensor = numbers(draw(shapes), draw(st.sampled_from(PLAIN)), draw(st.integers(0, 99)))
    match draw(st.integers(0, 5)):
        case 0:
            return tensor.permute(draw(st.permutations(range(tensor.dim()))))
        case 1 if tensor.dim() == 4:
            return tensor.contiguous(memory_format=torch.channels_last)
        case 2:
            return tensor.expand(draw(st.integers(1, 3)), *tensor.shape)
        case 3 if tensor.dim() and tensor.shape[-1] > 2:
            return tensor[..., 1::2]
        case 4 if tensor.dim() and tensor.shape[0] > 1:
            return tensor[1:].t() if tensor.dim() == 2 else tensor[1:]
        case 5 if not tensor.is_complex() and tensor.dtype is not torch.bool and tensor.dtype.is_signed:
            return tensor.flip(0) if tensor.dim() else tensor
    return tensor


@st.composite
def odd_tensors(draw: st.DrawFn) -> torch.Tensor:
    """Tensors that are more than dense numbers."""
    base = numbers((draw(st.integers(1, 3)), 2), torch.float32, draw(st.integers(0, 99)))
    match draw(st.integers(0, 8)):
        case 0:
            return base.requires_grad_()
        case 1:
            return torch.nn.Parameter(base)
        case 2:
            return base.to_sparse()
        case 3:
            return torch.quantize_per_tensor(base, 0.5, 3, torch.qint8)
        case 4:
            return torch.complex(base, base + 1).conj()
        case 5:
            return torch.complex(base, base + 1).conj().imag
        case 6:
            return torch.nested.nested_tensor([base[0], base[0, :1]], layout=torch.jagged)
        case 7:
            return base.to(torch.float8_e5m2)
    return torch.nested.nested_tensor([base[0], base[0, :1]], layout=torch.strided)


STRUCTURED = np.dtype([("a", "<i4"), ("b", ">f8"), ("c", "S3")])


@st.composite
def arrays(draw: st.DrawFn, most: int = 40) -> np.ndarray[Any, Any]:
    """NumPy arrays of all kinds, small and large."""
    side = draw(st.integers(0, most))
    shape = draw(st.sampled_from([(), (side,), (side, 7), (2, side, 3)]))
    kinds = ["u1", "<i8", ">i4", "<f4", ">f8", "<c8", "?", "<M8[ms]", "<m8[D]", "S5", "<U4", STRUCTURED]
    array = np.arange(np.prod(shape, dtype=np.int64)).reshape(shape).astype("<i8")
    kind = draw(st.sampled_from([*kinds, object]))
    if kind is STRUCTURED:
        made = np.zeros(shape, STRUCTURED)
        made["a"], made["b"], made["c"] = array, array * 0.5, b"xyz"
    elif kind is object:
        made = array.astype(object)
    else:
        made = array.astype(kind)
    match draw(st.integers(0, 4)):
        case 0:
            made = np.asfortranarray(made)
        case 1 if made.ndim:
            made = made[::-1]
        case 2 if made.ndim:
            made = made[..., ::2]
        case 3:
            made.flags.writeable = False
    return made


plain = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(),
    st.floats(allow_nan=False),
    st.text(max_size=8),
    st.binary(max_size=2000),
    st.complex_numbers(allow_nan=False),
)


def containers(leaves: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    """Nested containers of these leaves."""

    def layer(inner: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
        keyed = st.dictionaries(st.text(max_size=3) | st.integers(0, 9), inner, max_size=3)
        return st.one_of(
            st.lists(inner, max_size=3),
            st.lists(inner, max_size=3).map(tuple),
            keyed,
            keyed.map(OrderedDict),
            st.builds(Pair, inner, inner),
            st.builds(Record, inner, inner),
            st.builds(Custom, inner),
        )

    return st.recursive(leaves, layer, max_leaves=8)


def same(a: Any, b: Any) -> bool:
    """Equal in type, value, dtype, shape, and, where a tensor has no holes, in the strides of its sides
    longer than one."""
    if type(a) is not type(b):
        return False
    if isinstance(a, torch.Tensor):
        return _same_tensor(a, b)
    if isinstance(a, np.ndarray):
        # NumPy's own pickles of small strided arrays bring them into this machine's byte order
        return bool(
            a.dtype.newbyteorder("=") == b.dtype.newbyteorder("=")
            and a.shape == b.shape
            and np.array_equal(a, b)
        )
    if isinstance(a, dict):
        return list(a) == list(b) and all(same(a[key], b[key]) for key in a)
    if isinstance(a, list | tuple):
        return len(a) == len(b) and all(map(same, a, b))
    if isinstance(a, Record | Custom):
        return same(vars(a), vars(b))
    return bool(a == b)


def _same_tensor(a: torch.Tensor, b: torch.Tensor) -> bool:
    told = [
        (t.dtype, t.layout, t.requires_grad, t.is_nested, t.is_conj(), t.is_neg(), t.is_quantized)
        for t in (a, b)
    ]
    if told[0] != told[1]:
        return False
    if a.is_nested:
        return all(map(torch.equal, a.unbind(), b.unbind()))
    if a.shape != b.shape:
        return False
    if a.layout is not torch.strided:
        return torch.equal(a.to_dense(), b.to_dense())
    if a.numel() and torch.ops.aten.is_non_overlapping_and_dense(a):
        if [a.stride(d) for d in range(a.dim()) if a.shape[d] > 1] != [
            b.stride(d) for d in range(b.dim()) if b.shape[d] > 1
        ]:
            return False
    return (
        torch.equal(a.float(), b.float())
        if a.dtype.itemsize == 1 and a.dtype.is_floating_point
        else torch.equal(a, b)
    )
