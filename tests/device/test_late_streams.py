"""Delivery to a fake device whose streams run late: no memory is used again under a copy, and no stream is
raced.

Each test fails if the order of copies, events and frees that it holds is another; what a driver itself does
is in tests/gpu.
"""

from __future__ import annotations

import ctypes
import gc
import itertools
import sys
import threading
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from coins import write_coco
from fake_cuda import FakeCuda
from torch.utils.data import Dataset

from fastload import FastLoader, pack
from fastload import transforms as T
from fastload._native import core
from fastload.device import cuda_runtime, transfer
from fastload.device.pinning import Registered

CUDA = torch.device("cuda", 0)
RESIZE = T.Resize((16, 16))


class Rows(Dataset[Any]):
    """Sample i is an image full of i, and its label."""

    def __init__(self, count: int = 24) -> None:
        self._count = count

    def __len__(self) -> int:
        return self._count

    def __getitem__(self, index: int) -> tuple[torch.Tensor, int]:
        return torch.full((3, 8, 8), index, dtype=torch.uint8), index


def loader_of(packed: Path | None, **kwargs: Any) -> FastLoader[Any]:
    """A loader over packed data, or over Rows by worker processes."""
    common: dict[str, Any] = {"batch_size": 4, "num_workers": 2, "prefetch_factor": 1, "seed": 3}
    if packed is None:
        return FastLoader(Rows(), **common | kwargs)
    return FastLoader(packed, **common | {"transform": RESIZE} | kwargs)


def expected(packed: Path | None, epochs: int = 1) -> list[torch.Tensor]:
    with loader_of(packed) as loader:
        return [images.clone() for _ in range(epochs) for images, _ in loader]


def same(got: list[torch.Tensor], want: list[torch.Tensor]) -> bool:
    """Returns True if tensors on the device, once it is done, equal those on the host."""
    torch.cuda.synchronize()
    return len(got) == len(want) and all(torch.equal(a.cpu(), b) for a, b in zip(got, want, strict=True))


ENGINES = pytest.mark.parametrize("native", [True, False], ids=["threads", "processes"])


@ENGINES
@pytest.mark.parametrize("inside", [True, False], ids=["dropped inside", "dropped outside"])
@pytest.mark.parametrize("contexts", [True, False], ids=["", "old driver"])
def test_no_memory_is_filled_again_under_a_users_copy(
    cuda: FakeCuda, packed: Path, native: bool, inside: bool, contexts: bool
) -> None:
    """A copy that was queued on any stream reads the batch's bytes, wherever the batch was dropped, and
    however late the stream runs."""
    cuda.records_contexts = contexts
    data = packed if native else None
    want = expected(data, epochs=3)
    mine, got = torch.cuda.Stream(), []
    with loader_of(data, pin_memory=True) as loader:
        for _ in range(3):
            for batch, _ in loader:
                assert batch.is_pinned()
                with torch.cuda.stream(mine):
                    got.append(batch.to("cuda", non_blocking=True))
                    if inside:
                        del batch
                if not inside:
                    del batch
    assert same(got, want)


@ENGINES
def test_views_of_a_batch_keep_its_memory(cuda: FakeCuda, packed: Path, native: bool) -> None:
    """One image that is kept keeps the whole batch's bytes, and a copy of it alone is waited for."""
    data = packed if native else None
    want = expected(data)
    with loader_of(data, pin_memory=True) as loader:
        with torch.cuda.stream(torch.cuda.Stream()):
            got = [images[1].to("cuda", non_blocking=True) for images, _ in loader]
        kept = [images[-1] for images, _ in loader]
        list(loader)
    assert same(got, [images[1] for images in want])
    assert all(torch.equal(a, b[-1]) for a, b in zip(kept, want, strict=True))


@ENGINES
@pytest.mark.parametrize("prefetch", [0, 2])
def test_batches_arrive_whole(cuda: FakeCuda, packed: Path, native: bool, prefetch: int) -> None:
    """With device=, batches that are dropped at once, used late and on a stream of the user's have the
    host's bytes."""
    data = packed if native else None
    want = expected(data, epochs=3)
    with (
        loader_of(data, device="cuda", device_prefetch=prefetch) as loader,
        torch.cuda.stream(torch.cuda.Stream()),
    ):
        sums = [images.long().sum() for _ in range(3) for images, _ in loader]
    assert same(sums, [images.long().sum() for images in want])


def test_every_kind_of_field_is_in_pinned_memory(cuda: FakeCuda, tmp_path: Path) -> None:
    """Fields beside the image lie in the batch's pinned memory too, with the values that they have without
    it."""
    path = tmp_path / "coins.fl"
    pack(write_coco(tmp_path / "coco", 7), path)
    common: dict[str, Any] = {"batch_size": 3, "num_workers": 1, "collate": "padded", "transform": RESIZE}
    with FastLoader(path, **common) as loader:
        want = [{name: _cloned(value) for name, value in batch.items()} for batch in loader]
    with FastLoader(path, **common, pin_memory=True) as loader:
        for batch, other in zip(loader, want, strict=True):
            assert batch["image"].is_pinned()
            for name, value in batch.items():
                assert _equal(value, other[name]), name


def _cloned(value: Any) -> Any:
    return (
        tuple(map(_cloned, value))
        if isinstance(value, tuple)
        else value.clone()
        if isinstance(value, torch.Tensor)
        else value
    )


def _equal(value: Any, other: Any) -> bool:
    if isinstance(value, tuple):
        return all(map(_equal, value, other))
    return torch.equal(value, other) if isinstance(value, torch.Tensor) else value == other


# ---- refusals


@ENGINES
def test_a_refusal_leaves_no_error(
    cuda: FakeCuda, packed: Path, native: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where the driver will not pin, it is said once, batches come all the same, and the user's next
    kernel runs."""
    cuda.refuse = True
    want = expected(packed if native else None)

    def refused(*args: Any, **kwargs: Any) -> Any:
        if kwargs.get("pin_memory") and native:
            raise RuntimeError("CUDA error: out of memory\nCompile with TORCH_USE_CUDA_DSA")
        return empty(*args, **kwargs)

    empty = torch.empty
    monkeypatch.setattr(torch, "empty", refused)
    with loader_of(packed if native else None, device="cuda") as loader:
        with pytest.warns(UserWarning, match=r"\(.*out of memory\)") as told:
            images = [images for images, _ in loader]
        torch.ones(2, device="cuda").add_(1)
    assert same(images, want)
    assert len(told) == 1 if native else len(told) >= 1


# ---- streams


def test_one_stream_for_all_passes(cuda: FakeCuda, packed: Path) -> None:
    """Copies of every pass are queued on one stream, so that the memory of earlier batches is used again:
    passes never take more than one did whose batches were all kept."""
    with loader_of(packed, device="cuda") as loader:
        kept = [(images, labels, images.sum()) for images, labels in loader]
        torch.cuda.synchronize()
        kept.clear()
        gc.collect()
        reserved, streams = torch.cuda.memory_reserved(), len(cuda.streams)
        for _ in range(11):
            for images, _labels in loader:
                images.sum()
            torch.cuda.synchronize()
            del images, _labels
            gc.collect()
            assert torch.cuda.memory_reserved() == reserved
    assert len(cuda.streams) == streams


class Writes:
    """A stage by the protocol of stages that run ahead, which multiplies by a weight of a module's."""

    def __init__(self, module: torch.nn.Module) -> None:
        self.module = module

    def __call__(self, images: torch.Tensor, *, seed: int, epoch: int, indices: Any) -> torch.Tensor:
        return images * self.module.weight


class Weight(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.weight = torch.nn.Parameter(torch.ones(1, device="cuda"), requires_grad=False)


@pytest.mark.parametrize("how", ["object", "closure", "bound", "module"])
@ENGINES
def test_a_stage_reads_what_the_loop_wrote(cuda: FakeCuda, packed: Path, native: bool, how: str) -> None:
    """Weights that the loop writes after each batch, on its own stream, are read by the stage of the next
    batch, and by no batch before."""
    module = Weight()
    keyed = Writes(module)
    stages: dict[str, Any] = {
        "object": keyed,
        "closure": lambda images, *, seed, epoch, indices: images * module.weight,
        "bound": keyed.__call__,
        "module": lambda images: images * module.weight,
    }
    data = packed if native else None
    want = [images.float() for images in expected(data)]
    with (
        loader_of(data, device="cuda", device_prefetch=2, batch_transform=stages[how]) as loader,
        torch.no_grad(),
    ):
        got = []
        for images, _ in loader:
            got.append(images)
            module.weight.add_(1)
    assert same(got, [images * number for number, images in enumerate(want, 1)])


def test_early_stages_come_after_what_the_loop_made_before(cuda: FakeCuda, packed: Path) -> None:
    """A stage that runs ahead may use a tensor that the loop has queued before iter()."""
    with torch.cuda.stream(torch.cuda.Stream()):
        offset = torch.zeros(1, device="cuda") + 5

        def shifted(images: torch.Tensor, *, seed: int, epoch: int, indices: Any) -> torch.Tensor:
            return images + offset

        with loader_of(packed, device="cuda", batch_transform=shifted) as loader:
            got = [images for images, _ in loader]
    assert same(got, [images + 5.0 for images in expected(packed)])


@ENGINES
def test_a_host_that_runs_ahead_is_held_back(cuda: FakeCuda, packed: Path, native: bool) -> None:
    """A loop that only queues never has more batches on the device than LOOP_AHEAD and those that are
    moved ahead, and two."""
    begun = itertools.count()
    most, at = 0, []
    with loader_of(packed if native else None, device="cuda", device_prefetch=2) as loader:
        for number, (images, _) in enumerate(itertools.chain(loader, loader, loader)):
            images.float().sum()
            torch.cuda.current_stream().add(lambda: at.append(next(begun)))
            most = max(most, number - len(at))
    assert most <= transfer.LOOP_AHEAD + 3


def test_contexts_are_opened_on_the_loops_device_alone(cuda: FakeCuda, packed: Path) -> None:
    """With device="cuda:1", or cuda:1 as the current device, no thread opens a context on device 0."""
    with loader_of(packed, device="cuda:1", batch_transform=lambda images: images) as loader:
        list(loader)
    torch.cuda.set_device(1)
    for memory in ({"pin_memory": True}, {"device": "cuda"}):
        with loader_of(
            packed, **memory, batch_transform=lambda images, *, seed, epoch, indices: images
        ) as loader:
            list(loader)
    with loader_of(None, pin_memory=True) as loader:
        for batch in loader:
            del batch
    assert cuda.contexts == [1]
    ahead = [(call, device) for thread, call, device in cuda.calls if thread == "fastload-ahead"]
    assert ahead
    assert {device for _, device in ahead} == {1}
    assert ahead[0] == ("set_device", 1)


# ---- graphs


@ENGINES
@pytest.mark.parametrize("memory", [{"device": "cuda"}, {"pin_memory": True}], ids=["device", "pinned"])
def test_a_graph_can_be_captured_in_the_loop(
    cuda: FakeCuda, packed: Path, native: bool, memory: dict[str, Any]
) -> None:
    """While a graph is captured the loader makes no call that would end the capture, though batches are
    dropped, and goes on afterwards."""
    data = packed if native else None
    held: list[Any] = []
    with loader_of(data, **memory) as loader:
        iterator = iter(loader)
        held = [next(iterator)[0] for _ in range(2)]
        with torch.cuda.stream(torch.cuda.Stream()), cuda.capture():
            torch.ones(3, device="cuda").add_(1)
            held.clear()
            gc.collect()
            ready = threading.Event()
            ready.wait(0.05)  # the ahead thread moves what it may
        rest = [images.to("cuda", non_blocking=True) for images, _ in iterator]
        again = [images.clone() for images, _ in loader]
    want = expected(data)
    assert same(rest, want[2:])
    assert len(again) == len(want)


def test_a_slot_that_is_dropped_in_a_capture_stays_mapped(
    cuda: FakeCuda, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A registered slot whose lease and last reference end while a graph is captured is neither waited for
    nor unmapped."""
    told: list[Any] = []
    monkeypatch.setattr(sys, "unraisablehook", lambda unraisable: told.append(str(unraisable.exc_value)))
    slot = core.SharedSlot(4096)
    assert slot.guard(Registered())
    address, lease = slot.address, slot.lease()
    torch.ones(1, device="cuda")
    with torch.cuda.stream(torch.cuda.Stream()), cuda.capture():
        del slot, lease
    assert ["stays mapped" in text for text in told] == [True]
    assert (ctypes.c_uint8 * 4096).from_address(address)[4095] == 0


def test_a_slot_stays_mapped_where_the_driver_refuses(
    cuda: FakeCuda, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A registered slot is not unmapped if the driver does not say when its copies end, and its code is
    told."""
    told: list[Any] = []
    monkeypatch.setattr(sys, "unraisablehook", lambda unraisable: told.append(str(unraisable.exc_value)))
    library = SimpleNamespace(cudaGetLastError=lambda: 0, cudaThreadExchangeStreamCaptureMode=lambda mode: 0)
    slot = core.SharedSlot(4096)
    assert slot.guard(Registered())
    address, lease = slot.address, slot.lease()
    torch.ones(1, device="cuda")
    driver = SimpleNamespace(cuCtxGetCurrent=lambda context: 0, cuCtxRecordEvent=lambda context, event: 709)
    monkeypatch.setattr(cuda_runtime, "runtime", lambda: cuda_runtime.Runtime(library, driver, "cuda"))
    del slot, lease
    assert set(told) == {"cuCtxRecordEvent returned 709"}
    assert (ctypes.c_uint8 * 4096).from_address(address)[4095] == 0


# ---- what moves itself


class Graph:
    """An object that moves itself, and does not show its tensors."""

    def __init__(self, x: torch.Tensor) -> None:
        self.x = x

    def to(self, device: torch.device, non_blocking: bool = False) -> Graph:
        return Graph(self.x.to(device, non_blocking=non_blocking))


def graphs(samples: list[Any]) -> dict[str, Any]:
    return {
        "graph": Graph(torch.stack([image for image, _ in samples])),
        "image": torch.stack([image for image, _ in samples]),
    }


def test_objects_that_move_themselves(cuda: FakeCuda) -> None:
    """They arrive whole on the device, moved on the loop's stream, whose memory they may use again."""
    want = expected(None)
    with loader_of(None, device="cuda", collate_fn=graphs) as loader, torch.cuda.stream(torch.cuda.Stream()):
        got = [(batch["graph"].x + 0, batch["image"] + 0) for batch in loader]
    assert same([x for x, _ in got], want)
    assert same([image for _, image in got], want)
