"""Probes of the driver's calls: which libraries were found, what each call returns, pinned and registered
memory and their speed."""

from __future__ import annotations

import ctypes
import mmap
import statistics
import threading
import time
import warnings
from collections.abc import Callable
from typing import Any

import torch

from device_sections import planted
from device_sections.probing import Probe, Setting, check_late, loader_of
from device_sections.report import Details, Wrong
from fastload._native import core
from fastload.device import cuda_runtime
from fastload.device.pinning import PinnedCache, Registered, host_memory

LEAST_SHARE = 0.5
"""Least speed of copies from registered memory, as a share of that from torch's pinned memory."""


def mapped_libraries() -> list[str]:
    """Libraries of CUDA's runtime and driver that this process has loaded."""
    with open("/proc/self/maps") as maps:
        paths = {line.split(maxsplit=5)[5].strip() for line in maps if line.count("/")}
    return sorted(
        path for path in paths if "/libcudart" in path or "/libcuda.so" in path or "/libamdhip64" in path
    )


def runtime_calls(setting: Setting) -> Details:
    """The runtime is found and can record contexts; each of its calls returns 0; a context's event waits
    for every stream."""
    torch.zeros(1, device="cuda")
    details: Details = {"libraries": mapped_libraries()}
    runtime = cuda_runtime.runtime()
    if runtime is None:
        raise Wrong("the runtime that torch runs on was not found", **details)
    if isinstance(runtime, cuda_runtime.Runtime):
        details |= codes(runtime)
    if not runtime.records_contexts:
        raise Wrong("the driver's library was not found, or has no cuCtxRecordEvent", **details)
    if any(
        details.get(name) for name in ("cudaGetLastError", "exchange", "cuCtxGetCurrent", "cuCtxRecordEvent")
    ):
        raise Wrong("a call was refused", **details)
    check_late(setting)
    event = torch.cuda.current_stream().record_event()
    with torch.cuda.stream(torch.cuda.Stream()):
        setting.stall()
        runtime.record_context(event)
        behind = torch.cuda.current_stream().record_event()
    early, late = event.query(), behind.query()
    torch.cuda.synchronize()
    if early and not late:
        raise Wrong("the event of a context passed before the work of one of its streams", **details)
    if not event.query():
        raise Wrong("the event of a context did not pass", **details)
    return details | {"seen_waiting": not early}


def codes(runtime: cuda_runtime.Runtime) -> Details:
    """Codes that the calls return, as the wrappers do not keep them; 0 is success."""
    word = ctypes.c_int(2)
    exchange, before = runtime._exchange(ctypes.byref(word)), word.value
    back = runtime._exchange(ctypes.byref(word))
    found: Details = {
        "exchange": exchange or back,
        "mode_before": before,
        "mode_between": word.value,
        "cudaGetLastError": runtime._last_error(),
    }
    if runtime.records_contexts:
        context, event = ctypes.c_void_p(), torch.cuda.current_stream().record_event()
        found["cuCtxGetCurrent"] = runtime._current(ctypes.byref(context))
        found["context"] = bool(context.value)
        found["cuCtxRecordEvent"] = runtime._record(context, ctypes.c_void_p(event.cuda_event))
    return found


def memory(setting: Setting) -> Details:
    """A ring's memory and a registered memfd are pinned to torch, copies from them are whole, and as fast
    as from what torch pins."""
    size = 3 * setting.batch * setting.side**2 * (16 if setting.timed else 1)
    details: Details = {"bytes": size, "ms": {}, "GB/s": {}}
    ring, details["ms"]["ring slot"] = timed(lambda: PinnedCache()(size))
    slot = core.SharedSlot(size)
    guard = Registered()
    registered, details["ms"]["register a memfd"] = timed(lambda: slot.guard(guard))
    if ring is None or not registered:
        raise Wrong(
            "the driver would not pin memory", ring=ring is not None, slot=bool(registered), **details
        )
    again, details["ms"]["ring slot, again"] = timed(lambda: PinnedCache()(size))
    del again
    details["ms"] |= anonymous(size)
    sources = {"torch-pinned": torch.empty(size, dtype=torch.uint8, pin_memory=True), "ring slot": ring[1]}
    sources |= {
        "registered memfd": torch.frombuffer(slot, dtype=torch.uint8),
        "pageable": torch.empty(size, dtype=torch.uint8),
    }
    for name, source in sources.items():
        details["GB/s"][name] = speed(name, source)
    view = sources["registered memfd"]
    details["pinned"] = {name: source.is_pinned() for name, source in sources.items()}
    if details["pinned"] != dict.fromkeys(sources, True) | {"pageable": False}:
        raise Wrong(f"torch takes for pinned: {details['pinned']}", **details)
    if view.pin_memory().data_ptr() != view.data_ptr():
        raise Wrong("pin_memory() copies registered memory", **details)
    share = details["GB/s"]["registered memfd"] / details["GB/s"]["torch-pinned"]
    if setting.timed and share < LEAST_SHARE:
        raise Wrong(
            f"copies from registered memory have {share:.2f} of the speed of those from pinned memory",
            **details,
        )
    del view, source, sources
    _, details["ms"]["unregister"] = timed(lambda: guard.unpin(slot.address))
    guard.pin(slot.address, size)  # the slot's end undoes it
    return details | {
        "table": ", ".join(f"{name} {rate:.0f} GB/s" for name, rate in details["GB/s"].items())
        if setting.timed
        else "memory"
    }


def timed(call: Callable[[], Any]) -> tuple[Any, float]:
    """The result of a call, and its milliseconds."""
    began = time.perf_counter()
    found = call()
    return found, round((time.perf_counter() - began) * 1e3, 3)


def anonymous(size: int) -> dict[str, float]:
    """Milliseconds to register anonymous memory, which is no memfd."""
    private = mmap.mmap(-1, size)
    address = ctypes.addressof(ctypes.c_char.from_buffer(private))
    guard = Registered()
    pinned, spent = timed(lambda: guard.pin(address, size))
    if pinned:
        guard.unpin(address)
    return {"register anonymous memory": spent}


def speed(name: str, source: torch.Tensor) -> float:
    """GB/s of copies to the device, the median of seven. Raises Wrong if a copy has other bytes."""
    number = sum(name.encode()) % 200 + 1
    source.fill_(number)
    target = torch.zeros(len(source), dtype=torch.uint8, device="cuda")
    spent = []
    for _ in range(7):
        torch.cuda.synchronize()
        began = time.perf_counter()
        target.copy_(source, non_blocking=True)
        torch.cuda.synchronize()
        spent.append(time.perf_counter() - began)
    if int((target == number).sum()) != len(source):
        raise Wrong(f"a copy from {name} has other bytes")
    return round(len(source) / statistics.median(spent) / 1e9, 2)


def another_thread(setting: Setting) -> Details:
    """A thread that torch has not seen gets pinned memory, and opens no context."""
    found: Details = {}

    def take() -> None:
        memory, found["ms"] = timed(
            lambda: torch.empty(1 << 20, dtype=torch.uint8, device="cpu", pin_memory=True)
        )
        found["pinned"] = memory.is_pinned()

    thread = threading.Thread(target=take)
    thread.start()
    thread.join()
    if not found.get("pinned"):
        raise Wrong("a thread got no pinned memory", **found)
    return found


def explained(setting: Setting) -> Details:
    """With pin_memory=True, slots of workers are registered with the driver, and explain() says so; no
    batch is copied on the host."""
    with loader_of(setting, native=False, pin_memory=True) as loader:
        for images, _ in loader:
            if not images.is_pinned():
                raise Wrong("a batch is not pinned")
            if images.pin_memory().data_ptr() != images.data_ptr():
                raise Wrong("pin_memory() copies a registered batch")
            del images
        lines = [line.strip() for line in loader.explain(all=True).splitlines() if line.startswith("pinned")]
    if not any("registered with the driver" in line for line in lines):
        raise Wrong(
            "slots are not registered", explain=lines, host_memory=host_memory(True, None, "processes")
        )
    return {"explain": lines}


def refused(setting: Setting) -> Details:
    """After a registration that the driver refuses, a kernel runs: the error does not stay."""
    slot = core.SharedSlot(1 << 16)
    guard = Registered()
    if not slot.guard(guard):
        raise Wrong("the driver would not register a slot")
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        if guard.pin(slot.address, slot.bytes):
            raise Wrong("the driver registers the same memory twice")
    try:
        value = float(torch.ones(2, device="cuda").add_(1).sum())
    except RuntimeError as error:
        raise Wrong(f"a kernel after the refusal raised: {str(error).partition(chr(10))[0]}") from error
    if value != 4.0 or not told:
        raise Wrong(f"after the refusal 2 x 2 is {value}, and {len(told)} warnings came")
    return {"warning": str(told[0].message)}


PROBES = [
    Probe(
        "calls of the runtime",
        runtime_calls,
        {"one stream's events": planted.one_streams_events, "no contexts": planted.no_contexts},
    ),
    Probe("pinned and registered memory", memory, {"unregistered": planted.unregistered}),
    Probe("pinned memory in another thread", another_thread, {"pageable": planted.pageable}),
    Probe("workers' slots are registered", explained, {"no contexts": planted.no_contexts}),
    Probe("a refusal, then a kernel", refused, {"error stays": planted.no_clearing}),
]
