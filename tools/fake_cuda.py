"""FakeCuda: CUDA devices made of ordinary memory, whose streams run late. For tests of the order of copies,
kernels, events and frees on a machine without a GPU.

NOTE [ fake cuda: late streams ]
Work that is queued on a stream runs when somebody waits for it (an event, a stream, a device, a value on the
host), and not before. So a copy that is not waited for reads its source as late as a busy GPU might. Work
runs on addresses, not on tensors: whoever frees or refills memory under it changes what it reads, and memory
that nothing has written yet is full of POISON. Host and device memory come from caches that follow torch's
rules: a block is used again by the stream that it was made for at once, and after events on other streams
that were recorded on it. Faults that a driver would report, or that would corrupt memory, are collected in
`faults`.

What is real: the dispatcher, autograd, fastload. What is not: that two streams overlap, timings (each event
takes a microsecond), kernels.
"""

from __future__ import annotations

import ctypes
import itertools
import threading
import types
import warnings
import weakref
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from functools import partial
from typing import Any
from unittest.mock import patch

import numpy as np
import torch
from torch.library import Library
from torch.utils import _pytree as pytree

POISON = 0xAB
"""The byte that fresh memory is full of."""
_DEVICE_BLOCK = 512


class CaptureError(RuntimeError):
    """A call that CUDA does not allow while a graph is captured."""


class Stream:
    """A stream: a queue of work, of which `done` pieces have run."""

    def __init__(self, device: Any = None, priority: int = 0, *, fake: FakeCuda | None = None) -> None:
        self.fake = _installed() if fake is None else fake
        index = self.fake.index_of(device)
        self.fake.touch(index, "Stream")
        self.device, self.priority = torch.device("cuda", index), priority
        self.cuda_stream = next(self.fake.numbers)
        self.work: deque[Callable[[], None]] = deque()
        self.done = 0
        self.capturing = False
        self.graph: Graph | None = None
        self.fake.streams.append(self)

    @property
    def queued(self) -> int:
        """Pieces of work that were ever queued."""
        return self.done + len(self.work)

    def add(self, work: Callable[[], None]) -> None:
        """Queues work; while a graph is captured it becomes part of the graph and does not run."""
        with self.fake.lock:
            if not self.capturing:
                self.work.append(work)
            elif self.graph is not None:
                self.graph.work.append(work)

    def run(self, until: int | None = None) -> None:
        """Runs what is queued, up to a number of pieces."""
        with self.fake.lock:
            until = self.queued if until is None else until
            while self.done < until:
                self.work.popleft()()
                self.done += 1

    def record_event(self, event: Event | None = None) -> Event:
        event = Event() if event is None else event
        event.record(self)
        return event

    def wait_event(self, event: Event) -> None:
        if self.capturing and not event.captured:
            self.fake.fault(f"stream {self.cuda_stream} waits, in a capture, for an event from outside of it")
        marks = list(event.marks)
        self.add(lambda: _run_all((stream, mark) for stream, mark in marks if stream is not self))

    def wait_stream(self, stream: Stream) -> None:
        self.wait_event(stream.record_event())

    def query(self) -> bool:
        self.fake.unsafe("cudaStreamQuery")
        return not self.work

    def synchronize(self) -> None:
        self.fake.unsafe("cudaStreamSynchronize")
        self.run()


class Event:
    """An event: positions in streams, passed when all of them have run that far."""

    def __init__(
        self,
        enable_timing: bool = False,
        blocking: bool = False,
        interprocess: bool = False,
        *,
        fake: FakeCuda | None = None,
    ) -> None:
        self.fake = _installed() if fake is None else fake
        self.marks: list[tuple[Stream, int]] = []
        self.captured = False
        self.cuda_event = next(self.fake.numbers)
        self.fake.events[self.cuda_event] = self

    def record(self, stream: Stream | None = None) -> None:
        stream = self.fake.current_stream() if stream is None else stream
        self.captured = stream.capturing
        self.marks = [(stream, stream.queued)]

    def record_all(self) -> None:
        """Records all that was queued on every stream of the current device, as cuCtxRecordEvent does."""
        mine = [stream for stream in self.fake.streams if stream.device.index == self.fake.current_device()]
        self.marks = [(stream, stream.queued) for stream in mine]

    def wait(self, stream: Stream | None = None) -> None:
        (self.fake.current_stream() if stream is None else stream).wait_event(self)

    def query(self) -> bool:
        self._check("cudaEventQuery")
        return all(stream.done >= mark for stream, mark in self.marks)

    def synchronize(self) -> None:
        self._check("cudaEventSynchronize")
        for stream, mark in self.marks:
            stream.run(mark)

    def elapsed_time(self, other: Event) -> float:
        if not (self.query() and other.query()):
            raise RuntimeError("CUDA error: device not ready")
        return 1e-3

    def _check(self, call: str) -> None:
        self.fake.unsafe(call)
        if self.captured:
            self.fake.fault(f"{call} of an event that was recorded in a capture")


class Graph:
    """A captured graph: its work, and the memory that it keeps."""

    def __init__(self) -> None:
        self.work: list[Callable[[], None]] = []
        self.kept: list[Any] = []

    def replay(self) -> None:
        stream = _installed().current_stream()
        for work in self.work:
            stream.add(work)


class Cache:
    """Memory of one kind, kept in blocks as torch's caching allocators keep theirs.

    Attributes:
        reserved: bytes of all blocks.
    """

    def __init__(self, fake: FakeCuda, rounded: Callable[[int], int], call: str) -> None:
        self._fake, self._rounded, self._call = fake, rounded, call
        self._free: dict[tuple[int, Any], list[np.ndarray[Any, Any]]] = {}
        self._cooling: list[tuple[list[Event], tuple[int, Any], np.ndarray[Any, Any]]] = []
        self._live: dict[int, tuple[np.ndarray[Any, Any], set[Stream]]] = {}
        self.reserved = 0

    def take(self, size: int, owner: Any) -> torch.Tensor:
        """A tensor of `size` bytes for `owner`, the stream that may use the memory again at once; None:
        any."""
        with self._fake.lock:
            self._settle()
            key = self._rounded(max(size, 1)), owner
            kept = self._free.get(key)
            if kept:
                block = kept.pop()
            else:
                # Torch relaxes the thread that captures while it allocates.
                if owner is None or not owner.capturing:
                    self._fake.unsafe(self._call)
                block = np.full(key[0], POISON, np.uint8)
                self.reserved += key[0]
            self._live[block.ctypes.data] = block, set()
            held = block[:]  # the object whose end is the end of the tensor's storage
            weakref.finalize(held, self._ended, block.ctypes.data, key)
            if owner is not None and owner.graph is not None:
                owner.graph.kept.append(held)
            return torch.from_numpy(held)[:size]

    def _ended(self, address: int, key: tuple[int, Any]) -> None:
        with self._fake.lock:
            block, users = self._live.pop(address)
            events = [Event(fake=self._fake) for _ in users]
            for event, stream in zip(events, users, strict=True):
                event.record(stream)
            self._cooling.append((events, key, block))
            self._settle()

    def _settle(self) -> None:
        waiting, self._cooling = self._cooling, []
        for events, key, block in waiting:
            if all(stream.done >= mark for event in events for stream, mark in event.marks):
                self._free.setdefault(key, []).append(block)
            else:
                self._cooling.append((events, key, block))

    def used_on(self, tensor: torch.Tensor, stream: Stream) -> None:
        """Notes that a stream uses a tensor's memory, if it is of this cache."""
        with self._fake.lock:
            found = self._live.get(tensor.untyped_storage().data_ptr())
            if found is not None:
                found[1].add(stream)

    @property
    def allocated(self) -> int:
        """Bytes of the blocks of live tensors."""
        return sum(len(block) for block, _ in self._live.values())

    def holds(self, address: int) -> bool:
        """Returns True if memory lies in a live block."""
        return any(start <= address < start + len(block) for start, (block, _) in self._live.items())


def at_address(tensor: torch.Tensor) -> torch.Tensor:
    """A tensor over the same bytes that does not keep them."""
    storage = tensor.untyped_storage()
    if not storage.nbytes():
        return tensor
    raw = torch.frombuffer(
        (ctypes.c_uint8 * storage.nbytes()).from_address(storage.data_ptr()), dtype=torch.uint8
    )
    bare = torch.empty(0, dtype=tensor.dtype, device="cpu")
    return bare.set_(raw.untyped_storage(), tensor.storage_offset(), tensor.size(), tensor.stride())


class CudaTensor(torch.Tensor):
    """A tensor on a fake device. `inner` holds its bytes."""

    inner: torch.Tensor

    @staticmethod
    def __new__(cls, inner: torch.Tensor, index: int) -> CudaTensor:
        made: CudaTensor = torch.Tensor._make_wrapper_subclass(  # type: ignore[attr-defined]
            cls,
            inner.size(),
            strides=inner.stride(),
            storage_offset=inner.storage_offset(),
            dtype=inner.dtype,
            device=torch.device("cuda", index),
        )
        made.inner = inner
        return made

    # Without these, a CPU build of torch asks for CUDA's current device before it dispatches.
    def copy_(self, source: torch.Tensor, non_blocking: bool = False) -> torch.Tensor:
        return torch.ops.aten.copy_.default(self, source, non_blocking)

    def __getitem__(self, index: Any) -> torch.Tensor:
        places = index if isinstance(index, tuple) else (index,)
        if any(isinstance(place, torch.Tensor | list) for place in places):
            given = [None if place == slice(None) else torch.as_tensor(place) for place in places]
            return torch.ops.aten.index.Tensor(self, given)
        return CudaTensor(self.inner[index], self.device.index)

    def __setitem__(self, index: Any, value: Any) -> None:
        target = self[index]
        target.copy_(value) if isinstance(value, torch.Tensor) else target.fill_(value)

    def item(self) -> Any:
        return self.cpu().item()

    def tolist(self) -> Any:
        return self.cpu().tolist()

    def __int__(self) -> int:
        return int(self.cpu())

    def __float__(self) -> float:
        return float(self.cpu())

    def __bool__(self) -> bool:
        return bool(self.cpu())

    def __repr__(self, *, tensor_contents: object = None) -> str:
        return f"CudaTensor({tuple(self.shape)}, {self.dtype}, {self.device})"

    @classmethod
    def __torch_dispatch__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        return _installed().call(func, args, kwargs or {})


def _inner(value: Any) -> Any:
    return value.inner if isinstance(value, CudaTensor) else value


class FakeCuda:
    """Fake devices, between `with fake.installed():`.

    Attributes:
        faults: sentences about what a driver would refuse, or what would corrupt memory.
        contexts: numbers of the devices that have a context, in the order in which they got it.
        calls: (name of the thread, call, device) of what makes or needs a context.
        refuse: cudaHostRegister refuses.
        records_contexts: cuCtxRecordEvent exists.
        syncs: calls for which the host waited, by the thread's name.
        sync_mode: "default", "warn" or "error", as torch.cuda.set_sync_debug_mode has it.
        pinned, memory: caches of pinned host memory, and of each device's memory.
    """

    def __init__(self, devices: int = 1) -> None:
        self.lock = threading.RLock()
        self.devices = devices
        self.numbers = itertools.count(1)
        self.faults: list[str] = []
        self.contexts: list[int] = []
        self.calls: list[tuple[str, str, int]] = []
        self.syncs: list[tuple[str, str]] = []
        self.sync_mode: str | int = "default"
        self.refuse = False
        self.records_contexts = True
        self.streams: list[Stream] = []
        self.events: weakref.WeakValueDictionary[int, Event] = weakref.WeakValueDictionary()
        self.registered: dict[int, int] = {}
        self._thread = threading.local()
        self._default: dict[int, Stream] = {}
        self._reading: list[tuple[int, int]] = []  # addresses that queued copies will read
        self.pinned = Cache(self, lambda size: 1 << (size - 1).bit_length(), "cudaHostAlloc")
        self.memory = [
            Cache(self, lambda size: -(-size // _DEVICE_BLOCK) * _DEVICE_BLOCK, "cudaMalloc")
            for _ in range(devices)
        ]

    # ---- faults and capture

    def fault(self, text: str) -> None:
        """Notes a fault."""
        self.faults.append(text)

    def unsafe(self, call: str) -> None:
        """Notes a fault if `call` is made while a graph is captured, by a thread that is not relaxed."""
        if any(stream.capturing for stream in self.streams) and not getattr(self._thread, "relaxed", False):
            self.fault(f"{threading.current_thread().name}: {call} while a graph is captured")

    def synced(self, call: str) -> None:
        """Notes a wait of the host, for which torch's debug mode warns or raises."""
        self.syncs.append((threading.current_thread().name, call))
        if self.sync_mode == "error":
            raise RuntimeError("called a synchronizing CUDA operation")
        if self.sync_mode == "warn":
            warnings.warn("called a synchronizing CUDA operation", stacklevel=2)

    def set_sync_mode(self, mode: str | int) -> None:
        """torch.cuda.set_sync_debug_mode."""
        self.sync_mode = mode

    @contextmanager
    def capture(self, graph: Graph | None = None) -> Iterator[None]:
        """Captures what is queued on the current stream; without a graph it is dropped."""
        stream = self.current_stream()
        stream.capturing, stream.graph = True, graph
        try:
            yield
        finally:
            stream.capturing, stream.graph = False, None

    @contextmanager
    def captured(self, graph: Graph) -> Iterator[None]:
        """torch.cuda.graph: captures on a stream of its own."""
        self.synchronize()
        with self.stream(Stream(fake=self)), self.capture(graph):
            yield

    # ---- devices and streams of the current thread

    def index_of(self, device: Any) -> int:
        """Number of a device; the current one if it has no number."""
        if device is None:
            return self.current_device()
        if isinstance(device, int):
            return device
        index = torch.device(device).index
        return self.current_device() if index is None else index

    def current_device(self) -> int:
        return getattr(self._thread, "device", 0)

    def set_device(self, device: Any) -> None:
        self._thread.device = self.index_of(device)
        self.touch(self._thread.device, "set_device")

    def touch(self, index: int, call: str) -> None:
        """Notes a call that opens a device's context if it has none."""
        self.calls.append((threading.current_thread().name, call, index))
        if index not in self.contexts:
            self.contexts.append(index)

    @contextmanager
    def device(self, device: Any) -> Iterator[None]:
        before = self.current_device()
        self._thread.device = self.index_of(device)
        try:
            yield
        finally:
            self._thread.device = before

    def current_stream(self, device: Any = None) -> Stream:
        index = self.index_of(device)
        self.touch(index, "current_stream")
        with self.lock:
            if index not in self._default:
                self._default[index] = Stream(index, fake=self)
        found: Stream = getattr(self._thread, "streams", {}).get(index, self._default[index])
        return found

    @contextmanager
    def stream(self, stream: Stream | None) -> Iterator[None]:
        if stream is None:
            yield
            return
        index = stream.device.index
        before = dict(getattr(self._thread, "streams", {}))
        self._thread.streams = {**before, index: stream}
        with self.device(index):
            try:
                yield
            finally:
                self._thread.streams = before

    def synchronize(self, device: Any = None) -> None:
        self.unsafe("cudaDeviceSynchronize")
        self.syncs.append((threading.current_thread().name, "synchronize"))
        for stream in list(self.streams):
            stream.run()

    def run_others(self) -> None:
        """Runs every stream but the current one, as a device does whose other streams are not busy."""
        current = self.current_stream()
        for stream in list(self.streams):
            if stream is not current:
                stream.run()

    # ---- host memory

    def host_register(self, address: int, size: int, flags: int) -> Any:
        """cudaHostRegister. A refusal, as of memory that is registered already, also becomes the thread's
        last error."""
        self.unsafe("cudaHostRegister")
        if self.refuse or address in self.registered:
            self._thread.error = 2 if self.refuse else 712
            return self._thread.error
        self.registered[address] = size
        return 0

    def host_unregister(self, address: int) -> int:
        """cudaHostUnregister. A copy that will still read the memory is a fault."""
        self.unsafe("cudaHostUnregister")
        size = self.registered.pop(address)
        if any(address <= start < address + size for start, _ in self._reading):
            self.fault("memory was unregistered under a copy")
        return 0

    def is_pinned(self, tensor: torch.Tensor, device: Any = None) -> bool:
        if isinstance(tensor, CudaTensor):
            return False
        address = tensor.data_ptr()
        return self.pinned.holds(address) or any(
            start <= address < start + size for start, size in self.registered.items()
        )

    def pin_memory(self, tensor: torch.Tensor, device: Any = None) -> torch.Tensor:
        if self.is_pinned(tensor):
            return tensor
        return self.take_pinned(tensor).copy_(tensor)

    def take_pinned(self, like: torch.Tensor) -> torch.Tensor:
        """Pinned memory for a tensor of this shape."""
        self.touch(self.contexts[0] if self.contexts else self.current_device(), "cudaHostAlloc")
        return _over(self.pinned.take(like.nbytes, None), like)

    # ---- tensors

    def empty(self, like: torch.Tensor, index: int) -> CudaTensor:
        """A tensor on a device, shaped and strided as `like`."""
        self.touch(index, "cudaMalloc")
        count = (
            1 + sum((n - 1) * abs(step) for n, step in zip(like.size(), like.stride(), strict=True))
            if like.numel()
            else 0
        )
        flat = self.memory[index].take(count * like.element_size(), self.current_stream(index))
        return CudaTensor(_over(flat, like, count), index)

    def to_device(self, tensor: torch.Tensor, index: int, non_blocking: bool) -> CudaTensor:
        """The copy of a host tensor: of pinned memory as late as its stream runs, of any other as it is
        now."""
        out = self.empty(torch.empty_like(tensor, device="meta"), index)
        self.copy(out, tensor, non_blocking)
        return out

    def copy(self, out: CudaTensor, tensor: torch.Tensor, non_blocking: bool) -> None:
        self._raise_last_error()
        stream, target = self.current_stream(out.device), at_address(out.inner)
        if self.is_pinned(tensor) and non_blocking:
            self.pinned.used_on(tensor, stream)
            source = at_address(tensor)
            reads = (tensor.data_ptr(), tensor.nbytes)
            self._reading.append(reads)

            def late() -> None:
                target.copy_(source)
                self._reading.remove(reads)

            stream.add(late)
            return
        kept = tensor.detach().clone()
        stream.add(partial(_run, target.copy_, kept))
        if not non_blocking:
            self.synced("copy")
            stream.run()

    def to_host(self, tensor: CudaTensor) -> torch.Tensor:
        """The copy of a device's tensor, for which the host waits."""
        self.synced("copy to the host")
        self.current_stream(tensor.device).synchronize()
        return tensor.inner.clone()

    def _raise_last_error(self) -> None:
        """A kernel's launch reports the error that an earlier call has left."""
        error, self._thread.error = getattr(self._thread, "error", 0), 0
        if error:
            raise RuntimeError("CUDA error: left by an earlier call")

    def call(self, func: Any, args: Any, kwargs: Any) -> Any:
        """An op of torch on tensors of a device: queued, with an output of its own; a view at once."""
        name = func.overloadpacket.__name__
        given = [each for each in pytree.tree_leaves((args, kwargs)) if isinstance(each, torch.Tensor)]
        on_device = next(each for each in given if isinstance(each, CudaTensor))
        if name in ("_local_scalar_dense", "equal", "is_nonzero"):
            self.synced(name)
            self.current_stream(on_device.device).synchronize()
            return func(*pytree.tree_map(_inner, args), **kwargs)
        if name == "copy_":
            return self._copied(*args, **kwargs)
        if name in ("_to_copy", "to"):
            return self._converted(func, args, kwargs)
        index = on_device.device.index
        kwargs = {key: value for key, value in kwargs.items() if key not in ("device", "pin_memory")}
        schema = func._schema
        if any(each.alias_info is not None and each.alias_info.is_write for each in schema.arguments):
            return self._in_place(func, args, kwargs, index)
        if any(each.alias_info is not None for each in schema.returns):
            out = func(*pytree.tree_map(_inner, args), **pytree.tree_map(_inner, kwargs))
            return pytree.tree_map(
                lambda each: CudaTensor(each, index) if isinstance(each, torch.Tensor) else each, out
            )
        return self._computed(func, args, kwargs, index)

    def _computed(self, func: Any, args: Any, kwargs: Any, index: int) -> Any:
        self._raise_last_error()
        shapes = func(*pytree.tree_map(_meta, args), **pytree.tree_map(_meta, kwargs))
        out = pytree.tree_map(
            lambda each: self.empty(each, index) if isinstance(each, torch.Tensor) else each, shapes
        )
        late_args, late_kwargs = pytree.tree_map(_raw, args), pytree.tree_map(_raw, kwargs)
        targets = [at_address(each.inner) for each in pytree.tree_leaves(out) if isinstance(each, CudaTensor)]

        def late() -> None:
            with torch.no_grad():
                found = [
                    each
                    for each in pytree.tree_leaves(func(*late_args, **late_kwargs))
                    if isinstance(each, torch.Tensor)
                ]
                for target, value in zip(targets, found, strict=True):
                    target.copy_(value)

        self.current_stream(index).add(late)
        return out

    def _in_place(self, func: Any, args: Any, kwargs: Any, index: int) -> Any:
        self._raise_last_error()
        late_args, late_kwargs = pytree.tree_map(_raw, args), pytree.tree_map(_raw, kwargs)
        self.current_stream(index).add(partial(_run, func, *late_args, **late_kwargs))
        written = [
            value
            for argument, value in [*zip(func._schema.arguments, args, strict=False), *_named(func, kwargs)]
            if argument.alias_info is not None and argument.alias_info.is_write
        ]
        return written[0] if len(written) == 1 else tuple(written)

    def _copied(self, out: Any, source: Any, non_blocking: bool = False) -> Any:
        if isinstance(out, CudaTensor) and not isinstance(source, CudaTensor):
            self.copy(out, source.expand_as(out) if source.shape != out.shape else source, non_blocking)
        elif isinstance(out, CudaTensor):
            target, raw = at_address(out.inner), at_address(source.inner)
            self.current_stream(out.device).add(partial(_run, target.copy_, raw))
        else:
            out.copy_(self.to_host(source))
        return out

    def _converted(self, func: Any, args: Any, kwargs: Any) -> Any:
        device = kwargs.get("device")
        if device is not None and torch.device(device).type == "cpu":
            return func(self.to_host(args[0]), *args[1:], **kwargs)
        rest = {
            key: value for key, value in kwargs.items() if key not in ("device", "non_blocking", "pin_memory")
        }
        return self._computed(func, args, rest, args[0].device.index)

    def made(self, func: Any, *args: Any, **kwargs: Any) -> Any:
        """A factory's tensor, such as torch.zeros(..., device="cuda")."""
        index = self.index_of(kwargs.pop("device", None))
        kwargs.pop("pin_memory", None)
        return self._computed(func, args, {**kwargs, "device": "cpu"}, index)

    # ---- in torch's place

    @contextmanager
    def installed(self) -> Iterator[FakeCuda]:
        """Puts the fake in the place of torch.cuda for every thread of the process."""
        assert not torch.cuda.is_available(), "there is a real device"
        torch._C._ensureCUDADeviceGuardSet()  # type: ignore[attr-defined]
        with ExitStack() as stack:
            library = Library("_", "IMPL")
            library.fallback(lambda func, *args, **kwargs: self.made(func, *args, **kwargs), "CUDA")
            stack.callback(library._destroy)
            if torch.version.cuda is not None:
                self._replace_factories(stack)
            for owner, name, value in self._replacements():
                # CPU builds lack some.
                stack.enter_context(patch.object(owner, name, value, create=owner is torch._C))
            global _fake
            _fake, before = self, _fake
            try:
                yield self
            finally:
                for stream in self.streams:
                    stream.run()
                _fake = before

    def _replace_factories(self, stack: ExitStack) -> None:
        """Makes tensors in the place of a CUDA build's own factories, of which a fallback is not asked."""
        library = Library("aten", "IMPL")
        stack.callback(library._destroy)
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", "Warning only once for all operators", UserWarning)
            for func in (torch.ops.aten.empty.memory_format, torch.ops.aten.empty_strided.default):
                library.impl(func, partial(self.made, func), "CUDA")

    def _replacements(self) -> Sequence[tuple[Any, str, Any]]:
        from fastload.device import cuda_runtime

        cuda, tensor, accelerator = torch.cuda, torch.Tensor, torch.accelerator
        names = {
            "is_available": lambda: True,
            "is_initialized": lambda: True,
            "_lazy_init": lambda: None,
            "init": lambda: None,
            "device_count": lambda: self.devices,
            "current_device": self.current_device,
            "set_device": self.set_device,
            "device": self.device,
            "current_stream": self.current_stream,
            "default_stream": lambda device=None: (
                self._default.get(self.index_of(device)) or self.current_stream(device)
            ),
            "stream": self.stream,
            "Stream": Stream,
            "Event": Event,
            "synchronize": self.synchronize,
            "cudart": lambda: self._cudart,
            "is_current_stream_capturing": lambda: self.current_stream().capturing,
            "CUDAGraph": Graph,
            "graph": self.captured,
            "_sleep": lambda cycles: self.current_stream().add(lambda: None),
            "set_sync_debug_mode": self.set_sync_mode,
            "memory_reserved": lambda device=None: self.memory[self.index_of(device)].reserved,
            "memory_allocated": lambda device=None: self.memory[self.index_of(device)].allocated,
            "get_rng_state": lambda device="cuda": torch.zeros(16, dtype=torch.uint8),
            "set_rng_state": lambda state, device="cuda": None,
            "manual_seed": lambda seed: None,
        }
        runtime = _Runtime(self)
        return [
            *((cuda, name, value) for name, value in names.items()),
            (torch._C, "_cuda_hasPrimaryContext", lambda index: index in self.contexts),
            (accelerator, "is_available", lambda: True),
            (accelerator, "current_accelerator", lambda check_available=False: torch.device("cuda")),
            (accelerator, "current_device_index", self.current_device),
            (accelerator, "set_device_index", self.set_device),
            (tensor, "to", _to),
            (
                tensor,
                "cuda",
                lambda self, device=None, non_blocking=False: self.to(
                    device or "cuda", non_blocking=non_blocking
                ),
            ),
            (tensor, "cpu", lambda self: self.to("cpu")),
            (tensor, "is_pinned", lambda tensor, device=None: self.is_pinned(tensor)),
            (tensor, "pin_memory", lambda tensor, device=None: self.pin_memory(tensor)),
            (tensor, "record_stream", _record_stream),
            (torch, "empty", _empty),
            (torch, "arange", _arange),
            (cuda_runtime, "runtime", lambda: runtime),
        ]

    @property
    def _cudart(self) -> Any:
        return types.SimpleNamespace(
            cudaHostRegister=self.host_register,
            cudaHostUnregister=self.host_unregister,
            cudaGetErrorString=lambda code: "out of memory",
        )


class _Runtime:
    """In the place of fastload.device.cuda_runtime.Runtime."""

    def __init__(self, fake: FakeCuda) -> None:
        self._fake = fake

    @property
    def records_contexts(self) -> bool:
        return self._fake.records_contexts

    def clear_error(self) -> None:
        self._fake._thread.error = 0

    def record_context(self, event: Any) -> None:
        self._fake.unsafe("cuCtxRecordEvent")
        self._fake.events[event.cuda_event].record_all()

    def relax_capture(self) -> None:
        self._fake._thread.relaxed = True

    @contextmanager
    def relaxed(self) -> Iterator[None]:
        before = getattr(self._fake._thread, "relaxed", False)
        self._fake._thread.relaxed = True
        try:
            yield
        finally:
            self._fake._thread.relaxed = before


_fake: FakeCuda | None = None
_real_to, _real_empty, _real_arange = torch.Tensor.to, torch.empty, torch.arange


def _installed() -> FakeCuda:
    assert _fake is not None, "no fake device is installed"
    return _fake


def _run(function: Callable[..., object], *args: Any, **kwargs: Any) -> None:
    with torch.no_grad():
        function(*args, **kwargs)


def _run_all(marks: Iterable[tuple[Stream, int]]) -> None:
    for stream, mark in marks:
        stream.run(mark)


def _over(flat: torch.Tensor, like: torch.Tensor, count: int | None = None) -> torch.Tensor:
    """A tensor over bytes, shaped and strided as `like`."""
    values = flat[: (like.numel() if count is None else count) * like.element_size()].view(like.dtype)
    return values.view(like.shape) if count is None else values.as_strided(like.size(), like.stride())


def _meta(value: Any) -> Any:
    if isinstance(value, CudaTensor):
        return torch.empty_strided(value.size(), value.stride(), dtype=value.dtype, device="meta")
    if isinstance(value, torch.Tensor) and value.ndim:
        raise RuntimeError(
            "Expected all tensors to be on the same device, but found at least two devices, cuda:0 and cpu!"
        )
    return torch.device("meta") if value == "cpu" or value == torch.device("cpu") else value


def _raw(value: Any) -> Any:
    return at_address(value.inner) if isinstance(value, CudaTensor) else value


def _named(func: Any, kwargs: Any) -> list[tuple[Any, Any]]:
    arguments = {each.name: each for each in func._schema.arguments}
    return [(arguments[name], value) for name, value in kwargs.items()]


def _to(tensor: torch.Tensor, *args: Any, **kwargs: Any) -> torch.Tensor:
    """Tensor.to, from the host to a fake device, within it, and back."""
    device, dtype, non_blocking, form = torch._C._nn._parse_to(
        *args, **{k: v for k, v in kwargs.items() if k != "copy"}
    )
    fake = _installed()
    goes, lies = device is not None and device.type == "cuda", isinstance(tensor, CudaTensor)
    if not goes and not lies:
        return _real_to(tensor, *args, **kwargs)
    if not lies:
        tensor = fake.to_device(tensor.detach(), fake.index_of(device), non_blocking)
    elif device is not None and not goes:
        tensor = fake.to_host(tensor)
    rest = {} if form is None else {"memory_format": form}
    return _real_to(tensor, dtype=dtype or tensor.dtype, copy=lies and kwargs.get("copy", False), **rest)


def _empty(*args: Any, pin_memory: bool = False, **kwargs: Any) -> torch.Tensor:
    made = _real_empty(*args, **kwargs)
    return _installed().take_pinned(made) if pin_memory else made


def _arange(*args: Any, device: Any = None, **kwargs: Any) -> torch.Tensor:
    """torch.arange, which makes an empty tensor and has its op resize it."""
    made = _real_arange(
        *args, **kwargs, device=None if device is None or torch.device(device).type == "cuda" else device
    )
    return (
        made if device is None or torch.device(device).type != "cuda" else made.to(device, non_blocking=True)
    )


def _record_stream(tensor: torch.Tensor, stream: Stream) -> None:
    assert isinstance(tensor, CudaTensor)
    _installed().memory[tensor.device.index].used_on(tensor.inner, stream)
