"""Planted defects: each makes one thing in fastload wrong again, as a context manager. A probe that does
not notice its own is none."""

from __future__ import annotations

import weakref
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any
from unittest.mock import patch

import torch

from fastload.augment import kernels
from fastload.device import cuda_runtime, pinning, transfer
from fastload.device.stages import StageCall


def prompt_copies() -> AbstractContextManager[Any]:
    """Every copy is waited for, so that nothing is late."""
    real = torch.Tensor.to

    def waited(tensor: torch.Tensor, *args: Any, **kwargs: Any) -> torch.Tensor:
        out = real(tensor, *args, **kwargs)
        torch.cuda.current_stream().synchronize()
        return out

    return patch.object(torch.Tensor, "to", waited)


def one_buffer() -> AbstractContextManager[Any]:
    """Torch's pinned cache gives every batch the same memory."""
    real, kept = pinning.PinnedCache.__call__, {}

    def again(cache: pinning.PinnedCache, size: int) -> Any:
        if size not in kept:
            kept[size] = real(cache, size)
        return kept[size]

    return patch.object(pinning.PinnedCache, "__call__", again)


@contextmanager
def events_pass_at_once() -> Iterator[None]:
    """A slot that was dropped is filled again at once, and unmapped when the device is done: a copy from
    memory that is gone would end the process."""
    real = pinning.Registered.unpin

    def unpin(guard: pinning.Registered, address: int) -> None:
        torch.cuda.synchronize()
        real(guard, address)

    with (
        patch.object(pinning.StreamEvent, "query", lambda event: True),
        patch.object(pinning.ContextEvents, "query", lambda event: True),
        patch.object(pinning.Registered, "unpin", unpin),
    ):
        yield


def one_streams_events() -> AbstractContextManager[Any]:
    """An event covers its own stream alone."""
    return patch.object(type(cuda_runtime.runtime()), "record_context", lambda runtime, event: None)


def no_record() -> AbstractContextManager[Any]:
    """The allocator does not hear which stream uses a batch."""
    return patch.object(transfer, "record_stream", lambda batch, stream: None)


def no_follow() -> AbstractContextManager[Any]:
    """The side stream does not wait for what the loop has queued."""
    return patch.object(transfer.Lane, "follow", lambda lane: None)


def no_waiting() -> AbstractContextManager[Any]:
    """The loop does not wait for a batch's copy."""
    return patch.object(transfer.Transfer, "get", lambda self, moved: moved.batch)


def all_ahead() -> AbstractContextManager[Any]:
    """Every stage runs ahead, those with weights too."""
    return patch.object(StageCall, "ahead", property(lambda stage: True))


def no_hold_back() -> AbstractContextManager[Any]:
    """Nothing bounds how far the loop is before the device."""
    return patch.object(transfer.Lane, "hold_back", lambda lane: None)


def lane_a_pass() -> AbstractContextManager[Any]:
    """Each pass has a side stream of its own."""
    return patch.object(
        transfer.Lanes,
        "on",
        lambda lanes, device: transfer.Lane(torch.device("cuda", torch.cuda.current_device())),
    )


@contextmanager
def no_relaxing() -> Iterator[None]:
    """No thread may work while another captures."""
    kind = type(cuda_runtime.runtime())
    with (
        patch.object(kind, "relax_capture", lambda runtime: None),
        patch.object(kind, "relaxed", lambda runtime: nullcontext()),
    ):
        yield


def asking_ends() -> AbstractContextManager[Any]:
    """The end of a batch's memory asks its stream."""
    real = pinning.PinnedCache.__call__

    def watched(cache: pinning.PinnedCache, size: int) -> Any:
        address, memory = real(cache, size)
        held = memory.numpy()[:]  # the end of the storage is the end of this object
        weakref.finalize(held, lambda: torch.cuda.current_stream().query())
        return address, torch.from_numpy(held)

    return patch.object(pinning.PinnedCache, "__call__", watched)


def unseen_captures() -> AbstractContextManager[Any]:
    """A slot that is dropped in a capture records its events at once."""
    return patch.object(torch.cuda, "is_current_stream_capturing", lambda: False)


def no_clearing() -> AbstractContextManager[Any]:
    """The error of a refused registration stays."""
    return patch.object(type(cuda_runtime.runtime()), "clear_error", lambda runtime: None)


@contextmanager
def unregistered() -> Iterator[None]:
    """Slots are taken for registered, and are not."""
    kind = pinning.Registered
    with (
        patch.object(kind, "pin", lambda guard, address, size: True),
        patch.object(kind, "unpin", lambda guard, address: None),
    ):
        yield


def no_contexts() -> AbstractContextManager[Any]:
    """The driver cannot record contexts."""
    return patch.object(type(cuda_runtime.runtime()), "records_contexts", property(lambda runtime: False))


def waiting_flip() -> AbstractContextManager[Any]:
    """The flip reads a value on the host."""
    real = kernels.hflip

    def waits(images: torch.Tensor) -> torch.Tensor:
        int(images.long().sum())
        return real(images)

    return patch.object(kernels, "hflip", waits)


def pageable() -> AbstractContextManager[Any]:
    """torch.empty does not pin."""
    real = torch.empty
    return patch.object(torch, "empty", lambda *args, pin_memory=False, **kwargs: real(*args, **kwargs))


def untold() -> AbstractContextManager[Any]:
    """torch does not warn of waits."""
    return patch.object(torch.cuda, "set_sync_debug_mode", lambda mode: None)
