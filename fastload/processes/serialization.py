"""A batch as a slot and an envelope: tensors and arrays lie in the slot, a small pickle says where, and carries the rest.

Any structure of containers works, as pickle knows them all. In the pickle a tensor is its place in the slot. Tensors that are more than
dense numbers (sparse, quantized, with a gradient, subclasses) are pickled by value: that is counted.
"""

from __future__ import annotations

import contextlib
import copyreg
import io
import pickle
import threading
from collections import ChainMap
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
import torch

from fastload._native import core

ALIGN = 64
"""Of each tensor in its slot: a cache line, and enough for every vector load."""
ARRAY_LEAST = 1024
"""Bytes from which a NumPy array goes into the slot; below it the pickle is as quick."""
INLINE_MOST = 1 << 13
"""Bytes up to which an envelope travels as a message; above, in the slot, so that a worker never waits for a reader."""

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
    # A plain pickle of these cannot be read again.
    torch.complex32,
    torch.float8_e4m3fn,
    torch.float8_e4m3fnuz,
    torch.float8_e5m2,
    torch.float8_e5m2fnuz,
    *(getattr(torch, name) for name in ("float8_e8m0fnu", "float4_e2m1fn_x2", "bits8", "bits16") if hasattr(torch, name)),
)
_CODES = {dtype: code for code, dtype in enumerate(DTYPES)}


def aligned(size: int) -> int:
    """The next multiple of ALIGN."""
    return (size + ALIGN - 1) & -ALIGN


class Arena:
    """Where a worker puts the tensors of one batch: places in a slot, handed out front to back.

    Where there is no room `needed` grows on, so that after packing it says how large a slot the batch takes.
    """

    def __init__(self, slot: core.SharedSlot | None) -> None:
        self.slot = slot
        self.room = 0 if slot is None else slot.bytes
        self.base = 0 if slot is None else slot.address
        self.needed = 0
        self.overflowed = False

    def reserve(self, size: int) -> int | None:
        """The offset of `size` bytes, or None when there is no room."""
        at = self.needed
        self.needed = aligned(at + size)
        if at + size > self.room:
            self.overflowed = True
            return None
        return at

    def empty(self, shape: tuple[int, ...], dtype: torch.dtype) -> torch.Tensor:
        """An uninitialised contiguous tensor, in the slot where there is room."""
        count = 1
        for side in shape:
            count *= side
        size = count * dtype.itemsize
        if not size or self.slot is None or self.needed + size > self.room:
            return torch.empty(shape, dtype=dtype)  # its place is reserved when it is packed
        at = self.reserve(size)
        assert at is not None
        return torch.frombuffer(self.slot, dtype=dtype, count=count, offset=at).view(shape)

    def offset_of(self, address: int, size: int) -> int | None:
        """Where in the slot memory lies that is already there."""
        at = address - self.base
        return at if self.slot is not None and 0 <= at and at + size <= self.room else None


class BatchPickler:
    """Turns batches into envelopes, putting their tensors into the arena of the moment."""

    def __init__(self) -> None:
        self.arena = Arena(None)
        self.by_value = 0

    def pack(self, batch: Any, arena: Arena) -> bytes:
        """Places the batch's tensors and pickles the rest. When the arena overflowed, the envelope is of no use: pack again."""
        self.arena = arena
        begun = arena.needed
        try:
            return self._dump(pickle.Pickler, copyreg.dispatch_table, batch)
        except (pickle.PicklingError, AttributeError, TypeError):  # a local class, a lambda: cloudpickle knows how
            arena.needed = begun
            import cloudpickle

            return self._dump(cloudpickle.Pickler, cloudpickle.Pickler.dispatch_table, batch)
        finally:
            self.arena = Arena(None)

    def _dump(self, kind: type[pickle.Pickler], table: Mapping[type, Any], batch: Any) -> bytes:
        self.by_value = 0
        out = io.BytesIO()
        pickler = kind(out, pickle.HIGHEST_PROTOCOL)
        pickler.dispatch_table = ChainMap({torch.Tensor: self._tensor, np.ndarray: self._array}, table)  # type: ignore[arg-type]
        pickler.dump(batch)
        return out.getvalue()

    def _tensor(self, tensor: torch.Tensor) -> Any:
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
            self.by_value += 1
            return tensor.__reduce_ex__(pickle.HIGHEST_PROTOCOL)  # type: ignore[no-untyped-call]
        if tensor.is_contiguous():
            order = None
        else:
            order = tuple(sorted(range(tensor.dim()), key=tensor.stride, reverse=True))
            permuted = tensor.permute(order)
            if permuted.is_contiguous():
                tensor = permuted
            else:
                order, tensor = None, tensor.contiguous()
        shape = tuple(tensor.shape)
        return rebuild_tensor, (self._place(tensor), code, shape, order)

    def _place(self, tensor: torch.Tensor) -> int:
        """The offset of a contiguous tensor, copied into the slot unless it lies there already; -1 when empty, or no room."""
        size = tensor.numel() * tensor.element_size()
        if not size:
            return -1
        arena = self.arena
        at = arena.offset_of(tensor.data_ptr(), size)
        if at is None:
            at = arena.reserve(size)
            if at is not None and arena.slot is not None:
                torch.frombuffer(arena.slot, dtype=tensor.dtype, count=tensor.numel(), offset=at).copy_(tensor.reshape(-1))
        return -1 if at is None else at

    def _array(self, array: np.ndarray[Any, Any]) -> Any:
        if array.nbytes < ARRAY_LEAST or array.dtype.hasobject or not (array.flags.c_contiguous or array.flags.f_contiguous):
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
    """The lease that tensors rebuilt by this thread belong to."""

    slot: core.SharedSlot | None = None
    lease: core.SharedLease | None = None


_opening = _Opening()


@contextlib.contextmanager
def opened(slot: core.SharedSlot | None) -> Iterator[None]:
    """Tensors rebuilt in this block view the slot and share one lease of it. Without such tensors the slot stays free."""
    _opening.slot = slot
    try:
        yield
    finally:
        _opening.slot = _opening.lease = None


def unpack(envelope: Any, slot: core.SharedSlot | None) -> Any:
    """The batch of an envelope (bytes-like) whose tensors lie in this slot."""
    with opened(slot):
        return pickle.loads(envelope)


def _lease() -> core.SharedLease:
    if _opening.lease is None:
        if _opening.slot is None:
            raise RuntimeError("an envelope whose tensors lie in a slot came without one")
        _opening.lease = _opening.slot.lease()
    return _opening.lease


def rebuild_tensor(at: int, code: int, shape: tuple[int, ...], order: tuple[int, ...] | None) -> torch.Tensor:
    """A tensor at its place in the slot that is being unpacked."""
    dtype = DTYPES[code]
    if at < 0:
        tensor = torch.empty(shape, dtype=dtype)
    else:
        count = 1
        for side in shape:
            count *= side
        tensor = torch.frombuffer(_lease(), dtype=dtype, count=count, offset=at).view(shape)
    if order is None:
        return tensor
    back = sorted(range(len(order)), key=order.__getitem__)
    return tensor.permute(back)


def rebuild_array(at: int, dtype: np.dtype[Any], shape: tuple[int, ...], order: str) -> np.ndarray[Any, Any]:
    """An array at its place in the slot that is being unpacked."""
    count = 1
    for side in shape:
        count *= side
    flat: np.ndarray[Any, Any] = np.frombuffer(memoryview(_lease()), dtype, count, at)
    return flat.reshape(shape, order="F" if order == "F" else "C")
