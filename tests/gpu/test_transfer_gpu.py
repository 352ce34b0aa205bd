"""Delivery on a real device: same bytes, no wait of the host, no slot refilled under a copy."""

from __future__ import annotations

import itertools
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.utils.data import Dataset

from fastload import FastLoader, PackedDataset
from fastload import augment as A
from fastload import transforms as T
from fastload.device.to_float import DTYPES, FORMATS, eager, to_float

pytestmark = [pytest.mark.gpu, pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device")]

TRAIN = [T.RandomResizedCrop(96), T.RandomHorizontalFlip()]
MEAN, STD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)
AUGMENT = A.AugmentBatch([A.RandomHorizontalFlip(), A.ColorJitter(0.4, 0.4, 0.4), A.RandomErasing(0.25)])


class Constant(Dataset[Any]):
    """Sample i is a large tensor full of i, and its label."""

    def __len__(self) -> int:
        return 120

    def __getitem__(self, index: int) -> tuple[torch.Tensor, int]:
        return torch.full((3, 256, 256), index, dtype=torch.uint8), index


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("source", FORMATS)
@pytest.mark.parametrize("out", FORMATS)
@pytest.mark.parametrize("shape", [(5, 64, 64), (3, 37, 41), (1, 1, 1), (2, 224, 224)])
def test_kernel_gives_the_bits_of_the_host(
    dtype: torch.dtype, source: Any, out: Any, shape: tuple[int, int, int]
) -> None:
    """One pass or torch's ops, device or host: the same bits and strides; with and without Normalize; also
    1/255 by multiplication."""
    rows, height, width = shape
    x = torch.randint(0, 256, (rows, 3, height, width), dtype=torch.uint8).contiguous(memory_format=source)
    for mean, std in ((MEAN, STD), (None, None)):
        for reciprocal in (False, True):
            want = eager(x, dtype, mean, std, out, reciprocal)
            got = to_float(x.cuda(), dtype, mean, std, out, reciprocal=reciprocal)
            assert torch.equal(got.cpu(), want)
            assert got.is_contiguous(memory_format=out)
            assert torch.equal(eager(x.cuda(), dtype, mean, std, out, reciprocal).cpu(), want)


@pytest.mark.parametrize(("source", "out"), list(itertools.product(FORMATS, FORMATS)))
def test_another_batch_size_compiles_nothing(source: Any, out: Any) -> None:
    """The last, smaller batch runs the kernel that was built for a whole one, whichever of the four it is."""
    kernels = pytest.importorskip("fastload.device.to_float_kernel")
    names = {
        (True, True): "_innermost",
        (False, True): "_to_last",
        (True, False): "_to_planar",
        (False, False): "_planar",
    }
    kernel = getattr(kernels, names[source is torch.channels_last, out is torch.channels_last])
    built = []
    for rows in (16, 16, 7, 1, 3):
        x = torch.zeros(rows, 3, 40, 40, dtype=torch.uint8, device="cuda").contiguous(memory_format=source)
        to_float(x, torch.bfloat16, MEAN, STD, out)
        built.append(_compiled(kernel))
    assert built[0] > 0
    assert set(built) == {built[0]}


def _compiled(function: Any) -> int:
    caches = function.device_caches if hasattr(function, "device_caches") else function.cache
    return sum(len(each[0] if isinstance(each, tuple) else each) for each in caches.values())


@pytest.mark.parametrize("prefetch", [0, 1, 3])
@pytest.mark.parametrize("dtype", [None, torch.bfloat16])
def test_packed_batches_are_the_hosts(packed: Path, prefetch: int, dtype: torch.dtype | None) -> None:
    """Over two epochs every batch on the device is the host's, normalised there or by the native pass, in
    the same layout."""
    floats = [] if dtype is None else [T.Normalize(MEAN, STD)]
    common: dict[str, Any] = {
        "batch_size": 8,
        "shuffle": True,
        "num_workers": 4,
        "transform": [*TRAIN, *floats],
        "seed": 3,
        "dtype": dtype,
    }
    with (
        FastLoader(packed, **common) as host,
        FastLoader(packed, **common, device="cuda", device_prefetch=prefetch) as moved,
    ):
        for _ in range(2):
            for (a, x), (b, y) in zip(host, moved, strict=True):
                assert b.is_cuda
                assert y.is_cuda
                assert torch.equal(a, b.cpu())
                assert torch.equal(x, y.cpu())
                assert a.stride() == b.stride()


@pytest.mark.parametrize("workers", [0, 3])
def test_workers_batches_are_the_hosts(workers: int) -> None:
    """The same for datasets of Python."""
    for pinned in (False, True):
        with FastLoader(Constant(), 4, num_workers=workers, device="cuda", pin_memory=pinned) as loader:
            for images, labels in loader:
                assert torch.equal(images, labels.to(torch.uint8)[:, None, None, None].expand_as(images))


@pytest.mark.parametrize(
    "steps",
    [None, AUGMENT, [AUGMENT, T.Normalize(MEAN, STD), A.MixUp(0.2, num_classes=3)]],
    ids=["", "augment", "mixup"],
)
def test_nothing_waits_in_the_loop(packed: Path, no_waiting: Callable[[], None], steps: Any) -> None:
    """After a first epoch has compiled and allocated, epochs with work on every batch run without one
    synchronisation."""
    model = torch.nn.Conv2d(3, 8, 3).cuda()
    dtype = torch.float32 if isinstance(steps, list) else None
    with FastLoader(
        packed, 8, num_workers=4, transform=TRAIN, batch_transform=steps, device="cuda", dtype=dtype
    ) as loader:
        for number in range(3):
            if number == 1:
                no_waiting()
            for images, labels in loader:
                model(images.float()).sum().backward()
                labels.sum()


def test_workers_loop_does_not_wait(no_waiting: Callable[[], None]) -> None:
    """The same with worker processes."""
    with FastLoader(Constant(), 4, num_workers=2, device="cuda", persistent_workers=True) as loader:
        for number in range(2):
            if number == 1:
                no_waiting()
            for images, _ in loader:
                images.float().mean()


@pytest.mark.parametrize("prefetch", [1, 4])
def test_loops_stream_waits_for_the_copy(packed: Path, prefetch: int) -> None:
    """Used at once on a stream of the user's, and dropped at once while that stream is behind, batches are
    whole."""
    common: dict[str, Any] = {"batch_size": 8, "num_workers": 4, "transform": TRAIN, "seed": 1}
    with FastLoader(packed, **common) as loader:
        want = [images.long().sum().item() for images, _ in loader]
    with (
        FastLoader(packed, **common, device="cuda", device_prefetch=prefetch) as loader,
        torch.cuda.stream(torch.cuda.Stream()),
    ):
        sums = []
        for images, _ in loader:
            torch.cuda._sleep(20_000_000)
            sums.append(images.long().sum())
            del images
        torch.cuda.synchronize()
    assert [each.item() for each in sums] == want


@pytest.mark.parametrize("inside", [True, False])
def test_poisoned_refill(packed: Path, inside: bool) -> None:
    """A leased pinned tensor that the user copies without waiting, and drops at once, on that stream or
    outside of it, arrives whole: every refill would poison it."""
    ds = PackedDataset(packed, transform=T.RandomResizedCrop(224))
    common: dict[str, Any] = {"batch_size": 10, "num_workers": 4, "prefetch_factor": 1, "seed": 5}
    with FastLoader(ds, **common) as loader:
        want = [images.clone() for _ in range(4) for images, _ in loader]
    stalled, got = torch.cuda.Stream(), []
    with FastLoader(ds, **common, pin_memory=True) as loader:
        for _ in range(4):
            for images, _ in loader:
                assert images.is_pinned()
                with torch.cuda.stream(stalled):
                    torch.cuda._sleep(50_000_000)  # the copy begins long after the batch was dropped
                    got.append(images.to("cuda", non_blocking=True))
                    if inside:
                        del images
                if not inside:
                    del images
    torch.cuda.synchronize()
    assert all(torch.equal(a, b.cpu()) for a, b in zip(want, got, strict=True))


def test_memory_is_bounded_and_given_back(packed: Path) -> None:
    """After loops that were broken off and a close there is no thread, and the device's memory is as
    before."""
    torch.cuda.synchronize()
    before = torch.cuda.memory_allocated()
    with FastLoader(
        packed, 8, num_workers=4, transform=TRAIN, batch_transform=AUGMENT, device="cuda"
    ) as loader:
        for _ in range(3):
            for batch in loader:
                del batch
                break
    torch.cuda.synchronize()
    assert not [thread for thread in threading.enumerate() if thread.name == "fastload-ahead"]
    assert torch.cuda.memory_allocated() == before


@pytest.mark.skipif(torch.cuda.device_count() < 2, reason="one device")
def test_another_device(packed: Path) -> None:
    """device="cuda:1" is that device, whatever is current."""
    with FastLoader(
        packed, 8, num_workers=2, transform=TRAIN, batch_transform=AUGMENT, device="cuda:1"
    ) as loader:
        for images, labels in loader:
            assert images.device == labels.device == torch.device("cuda:1")


def test_the_devices_time_is_counted(packed: Path) -> None:
    """Copies and steps on whole batches are timed on the stream: more than nothing, and less in all than
    the epochs took."""
    common: dict[str, Any] = {"num_workers": 4, "transform": TRAIN, "batch_transform": AUGMENT}
    with FastLoader(packed, 8, **common, device="cuda") as loader:
        began = time.perf_counter()
        for _ in range(3):
            for images, _ in loader:
                images.float().mean()
        torch.cuda.synchronize()
        stages = loader.stats()["stage_seconds"]
        assert stages["copy"] > 0
        assert stages["augment"] > 0
        assert stages["copy"] + stages["augment"] < time.perf_counter() - began
