"""Calls of the CUDA runtime and driver that torch does not offer, in the libraries that torch has loaded."""

from __future__ import annotations

import ctypes
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache

import torch

_RELAXED = 2
"""cudaStreamCaptureModeRelaxed: while another thread captures a graph, this one may call whatever it
likes."""


_Call = Callable[..., int]
"""A call of the driver, which returns a CUresult."""
_NOT_SUPPORTED = 801
"""CUDA_ERROR_NOT_SUPPORTED."""


def _absent(*arguments: object) -> int:
    """Stands for a call that the driver does not have."""
    return _NOT_SUPPORTED


class Runtime:
    """The runtime that torch runs on: CUDA's, or HIP's, whose calls have other names and which cannot record
    contexts.

    Args:
        runtime: the loaded library of the runtime.
        driver: the loaded library of the driver; None: there is none of CUDA's.
        prefix: "cuda" or "hip".
    """

    def __init__(self, runtime: object, driver: object, prefix: str) -> None:
        self._last_error = getattr(runtime, f"{prefix}GetLastError")
        self._exchange = getattr(runtime, f"{prefix}ThreadExchangeStreamCaptureMode")
        self._record: _Call = getattr(driver, "cuCtxRecordEvent", _absent)
        self._current: _Call = getattr(driver, "cuCtxGetCurrent", _absent)

    @property
    def records_contexts(self) -> bool:
        """True if record_context() can be called: drivers of CUDA 12.5 and later."""
        return _absent not in (self._record, self._current)

    def clear_error(self) -> None:
        """Clears the error that a refused call has left in this thread: the next kernel's launch would
        report it."""
        self._last_error()

    def record_context(self, event: torch.cuda.Event) -> None:
        """Records an event, which was recorded before, over all work that was queued on the current device,
        on whatever stream.

        Not while a graph is captured: the call would end the capture.

        Raises:
            RuntimeError: the driver refuses.
        """
        context = ctypes.c_void_p()
        handle = ctypes.c_void_p(event.cuda_event)
        code = self._current(ctypes.byref(context)) or self._record(context, handle)
        if code:
            raise RuntimeError(f"cuCtxRecordEvent returned {code}")

    def relax_capture(self) -> None:
        """Lets this thread call whatever it likes, for its life, while another one captures a graph."""
        self._set_mode(_RELAXED)

    @contextmanager
    def relaxed(self) -> Iterator[None]:
        """As relax_capture(), for a while."""
        before = self._set_mode(_RELAXED)
        try:
            yield
        finally:
            self._set_mode(before)

    def _set_mode(self, mode: int) -> int:
        word = ctypes.c_int(mode)
        self._exchange(ctypes.byref(word))
        return word.value


@cache
def runtime() -> Runtime | None:
    """The runtime of this process; None if it is no library of its own, or lacks a call."""
    prefix = "cuda" if torch.version.hip is None else "hip"
    library, driver = _loaded("libcudart.so" if prefix == "cuda" else "libamdhip64.so"), _loaded("libcuda.so")
    try:
        return None if library is None else Runtime(library, driver, prefix)
    except AttributeError:
        return None


def _loaded(name: str) -> ctypes.CDLL | None:
    """The library of a name that this process has mapped; None: there is none."""
    with open("/proc/self/maps") as maps:
        paths = {line.split(maxsplit=5)[5].rstrip("\n") for line in maps if line.count("/")}
    found = next((path for path in sorted(paths) if os.path.basename(path).startswith(name)), None)
    return None if found is None else ctypes.CDLL(found)
