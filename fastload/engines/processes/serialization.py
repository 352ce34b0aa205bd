"""Serialization of a batch into a slot, which holds its tensors and arrays, and an envelope, a small pickle
of everything else.

Any structure that pickle can handle works. The pickle holds a tensor's place in the slot. torchvision's
tv_tensors are such tensors with attributes. Tensors that are more than dense numbers (sparse, quantized, with
a gradient, other subclasses) are pickled by value, and counted.
"""

from __future__ import annotations

import contextlib
import copyreg
import io
import math
import pickle
import threading
from collections import ChainMap
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import numpy as np
import torch

from fastload._native import core
from fastload.engines.processes.pickling import cloud_pickler

ALIGN = 64
"""Alignment of each tensor in its slot, in bytes: a cache line, and enough for every vector load."""
ARRAY_LEAST = 1024
"""Bytes from which a NumPy array goes into the slot; smaller ones are pickled as quickly."""
INLINE_MOST = 1 << 13
"""Bytes up to which an envelope is sent as a message. A larger one is put into the slot, so that a worker
never waits for a reader."""

DTYPES: tuple[torch.dtype, ...] = (
    torch.uint8,
    torch.float32,
    torch.int64,
    torch.bool,
    torch.float64,
    torch.float16,
    torch.bfloat16,
    torch.int8,
    torch.int16,
    torch.int32,
    torch.complex64,
    torch.complex128,
    torch.uint16,
    torch.uint32,
    torch.uint64,
    # Their plain pickles cannot be read back.
    torch.complex32,
    torch.float8_e4m3fn,
    torch.float8_e4m3fnuz,
    torch.float8_e5m2,
    torch.float8_e5m2fnuz,
    *(
        getattr(torch, name)
        for name in ("float8_e8m0fnu", "float4_e2m1fn_x2", "bits8", "bits16")
        if hasattr(torch, name)
    ),
)
_CODES = {dtype: code for code, dtype in enumerate(DTYPES)}
_TV_TENSORS = "torchvision.tv_tensors"


def aligned(size: int) -> int:
    """The next multiple of ALIGN."""
    return (size + ALIGN - 1) & -ALIGN


def memory_order(tensor: torch.Tensor) -> tuple[int, ...] | None:
    """The order of a tensor's dimensions in which its numbers lie one after the other; None if there is
    none.

    A dimension of one number has the stride of the one before it, where a tensor was made so.
    """
    key = [(stride, size > 1) for stride, size in zip(tensor.stride(), tensor.shape, strict=True)]
    order = tuple(sorted(range(tensor.dim()), key=key.__getitem__, reverse=True))
    return order if tensor.permute(order).is_contiguous() else None


class Arena:
    """Bump allocator for the tensors of one batch in a slot.

    Without room `needed` still grows, so that after packing it is the size of a slot that the batch fits
    into.

    Attributes:
        packed: addresses of the tensors that were packed.
    """

    def __init__(self, slot: core.SharedSlot | None) -> None:
        self.slot = slot
        self.room = 0 if slot is None else slot.bytes
        self.base = 0 if slot is None else slot.address
        self.needed = 0
        self.overflowed = False
        self.packed: set[int] = set()

    def reserve(self, size: int) -> int | None:
        """Reserves `size` bytes and returns their offset, or None if there is no room."""
        at = self.needed
        self.needed = aligned(at + size)
        if at + size > self.room:
            self.overflowed = True
            return None
        return at

    def empty(self, shape: tuple[int, ...], dtype: torch.dtype) -> torch.Tensor:
        """An uninitialised contiguous tensor, in the slot if there is room."""
        size = math.prod(shape) * dtype.itemsize
        at = self.reserve(size) if 0 < size <= self.left else None
        if at is None:
            return torch.empty(shape, dtype=dtype, device="cpu")  # its place is reserved when it is packed
        return torch.frombuffer(self.slot, dtype=dtype, count=math.prod(shape), offset=at).view(shape)

    @property
    def left(self) -> int:
        """Bytes of room that are not reserved yet; negative after an overflow."""
        return self.room - self.needed

    def offset_of(self, address: int, size: int) -> int | None:
        """The offset in the slot of memory at this address; None if it lies elsewhere."""
        at = address - self.base
        return at if self.slot is not None and 0 <= at and at + size <= self.room else None


class _Reducers(ChainMap[type, Callable[[Any], Any]]):
    """A pickler's table of reducers by type, with one for torchvision's tv_tensors, which are recognised
    without importing them, and for subclasses of theirs that pickle as they do."""

    def __init__(self, of_tv_tensors: Callable[[Any], Any], *maps: Any) -> None:
        super().__init__(*maps)
        self._of_tv_tensors = of_tv_tensors

    def __missing__(self, kind: type) -> Callable[[Any], Any]:
        ways = ("__reduce_ex__", "__reduce__")
        as_torch = all(getattr(kind, way, None) is getattr(torch.Tensor, way) for way in ways)
        if as_torch and any(each.__module__.startswith(_TV_TENSORS) for each in kind.__mro__):
            return self._of_tv_tensors
        raise KeyError(kind)


def _plain_pickler(out: io.BytesIO, reducers: _Reducers) -> pickle.Pickler:
    made = pickle.Pickler(out, pickle.HIGHEST_PROTOCOL)
    made.dispatch_table = reducers
    return made


class BatchPickler:
    """Pickler of batches, which puts their tensors into an arena and returns the rest as an envelope."""

    def __init__(self) -> None:
        self.arena = Arena(None)
        self.by_value = 0

    def pack(self, batch: object, arena: Arena) -> bytes:
        """Puts the batch's tensors into the arena and pickles the rest. If the arena overflowed, the
        envelope is invalid: pack again."""
        self.arena = arena
        begun = arena.needed
        try:
            return self._dump(_plain_pickler, copyreg.dispatch_table, batch)
        except (pickle.PicklingError, AttributeError, TypeError):
            # A local class or a lambda: cloudpickle can.
            arena.needed = begun
            return self._dump(cloud_pickler, {}, batch)
        finally:
            self.arena = Arena(None)

    def _dump(
        self,
        pickler: Callable[[io.BytesIO, _Reducers], pickle.Pickler],
        table: Mapping[type, Any],
        batch: object,
    ) -> bytes:
        self.by_value = 0
        out = io.BytesIO()
        own = {torch.Tensor: self._tensor, np.ndarray: self._array}
        pickler(out, _Reducers(self._tv_tensor, own, table)).dump(batch)
        return out.getvalue()

    def _by_value(self, tensor: torch.Tensor) -> object:
        self.by_value += 1
        return tensor.__reduce_ex__(pickle.HIGHEST_PROTOCOL)  # type: ignore[no-untyped-call]

    def _tv_tensor(self, tensor: torch.Tensor) -> object:
        if tensor.requires_grad:
            return self._by_value(tensor)
        return rebuild_subclass, (type(tensor), tensor.as_subclass(torch.Tensor), vars(tensor))

    def _tensor(self, tensor: torch.Tensor) -> object:
        code = _CODES.get(tensor.dtype)
        if (
            code is None
            or tensor.is_nested
            or tensor.layout is not torch.strided
            or tensor.requires_grad
            or tensor.device.type != "cpu"
            or tensor.is_conj()
            or tensor.is_neg()
            or tensor.__dict__
        ):
            return self._by_value(tensor)
        order = None if tensor.is_contiguous() else memory_order(tensor)
        tensor = tensor.contiguous() if order is None else tensor.permute(order)
        shape = tuple(tensor.shape)
        return rebuild_tensor, (self._place(tensor), code, shape, order)

    def _place(self, tensor: torch.Tensor) -> int:
        """The offset of a contiguous tensor, which is copied into the slot unless it is there already; -1
        if empty, or without room."""
        size = tensor.numel() * tensor.element_size()
        if not size:
            return -1
        arena, address = self.arena, tensor.data_ptr()
        arena.packed.add(address)
        at = arena.offset_of(address, size)
        if at is None:
            at = arena.reserve(size)
            if at is not None and arena.slot is not None:
                torch.frombuffer(arena.slot, dtype=tensor.dtype, count=tensor.numel(), offset=at).copy_(
                    tensor.reshape(-1)
                )
        return -1 if at is None else at

    def _array(self, array: np.ndarray[Any, Any]) -> object:
        if (
            array.nbytes < ARRAY_LEAST
            or array.dtype.hasobject
            or not (array.flags.c_contiguous or array.flags.f_contiguous)
        ):
            return array.__reduce_ex__(pickle.HIGHEST_PROTOCOL)
        arena = self.arena
        flat = array.reshape(-1, order="A").view(np.uint8)
        at = arena.offset_of(flat.ctypes.data, flat.nbytes)
        if at is None:
            at = arena.reserve(flat.nbytes)
            if at is not None and arena.slot is not None:
                np.frombuffer(memoryview(arena.slot), np.uint8, flat.nbytes, at)[:] = flat
        order = "C" if array.flags.c_contiguous else "F"
        return rebuild_array, (-1 if at is None else at, array.dtype, array.shape, order)


class _Opening(threading.local):
    """The slot being unpacked by this thread, and the lease that its tensors hold."""

    slot: core.SharedSlot | None = None
    lease: core.SharedLease | None = None


_opening = _Opening()


@contextlib.contextmanager
def opened(slot: core.SharedSlot | None) -> Iterator[None]:
    """Context in which rebuilt tensors view the slot and share one lease of it. Without such tensors no
    lease is taken."""
    _opening.slot = slot
    try:
        yield
    finally:
        _opening.slot = _opening.lease = None


def unpack(envelope: Any, slot: core.SharedSlot | None) -> object:
    """Unpickles the batch of an envelope (bytes-like) whose tensors are in this slot."""
    with opened(slot):
        return pickle.loads(envelope)


def _lease() -> core.SharedLease:
    if _opening.lease is None:
        if _opening.slot is None:
            raise RuntimeError("an envelope whose tensors lie in a slot came without one")
        _opening.lease = _opening.slot.lease()
    return _opening.lease


def rebuild_tensor(at: int, code: int, shape: tuple[int, ...], order: tuple[int, ...] | None) -> torch.Tensor:
    """A tensor that views its place in the slot being unpacked."""
    dtype = DTYPES[code]
    if at < 0:
        tensor = torch.empty(shape, dtype=dtype, device="cpu")
    else:
        count = 1
        for side in shape:
            count *= side
        tensor = torch.frombuffer(_lease(), dtype=dtype, count=count, offset=at).view(shape)
    return tensor if order is None else permuted_back(tensor, order)


def permuted_back(tensor: torch.Tensor, order: tuple[int, ...]) -> torch.Tensor:
    """The tensor of which permute(order) is this one."""
    return tensor.permute(sorted(range(len(order)), key=order.__getitem__))


def rebuild_subclass(
    kind: type[torch.Tensor], tensor: torch.Tensor, attributes: dict[str, Any]
) -> torch.Tensor:
    """A tensor of a subclass, with its attributes, that views the plain one's memory."""
    rebuilt = tensor.as_subclass(kind)
    vars(rebuilt).update(attributes)
    return rebuilt


def rebuild_array(at: int, dtype: np.dtype[Any], shape: tuple[int, ...], order: str) -> np.ndarray[Any, Any]:
    """An array that views its place in the slot being unpacked."""
    count = 1
    for side in shape:
        count *= side
    flat: np.ndarray[Any, Any] = np.frombuffer(memoryview(_lease()), dtype, count, at)
    return flat.reshape(shape, order="F" if order == "F" else "C")
