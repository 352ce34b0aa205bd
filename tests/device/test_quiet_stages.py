"""What a loop sets for its thread does not reach the stages, on any engine: they give the bits that a
thread of its own gives."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.utils.data import Dataset

from fastload import FastLoader, PackedDataset
from fastload import augment as A
from fastload import transforms as T
from fastload.batch.containers import tensors_of
from fastload.device.quiet import quiet
from fastload.device.transfer import Clock, StageTimer

RESIZE = T.Resize((24, 24))
STAGES = [
    A.AugmentBatch(
        [A.RandomHorizontalFlip(), A.ColorJitter(0.4, 0.4, 0.4, 0.1), A.GaussianBlur(5), A.RandomRotation(20)]
    )
]
FLOATS = [T.Normalize((0.4, 0.5, 0.6), (0.2, 0.3, 0.4)), A.MixUp(0.3, num_classes=3)]


class Blur(torch.nn.Module):
    """A convolution of the user's, which draws from the global generator: it runs late."""

    def __init__(self) -> None:
        super().__init__()
        self.conv = torch.nn.Conv2d(3, 3, 5, padding=2, bias=False, dtype=torch.float32)
        torch.nn.init.uniform_(self.conv.weight, generator=torch.Generator().manual_seed(1))

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        return self.conv(images) + torch.rand((), dtype=torch.float32, device=images.device)


class InPlace:
    """A stage of the user's that writes to the batch it gets."""

    def __call__(self, images: torch.Tensor) -> torch.Tensor:
        return images.mul_(0.5)


class Samples(Dataset[Any]):
    """Any Dataset: the tensors of packed samples, made beforehand."""

    def __init__(self, path: Path) -> None:
        packed = PackedDataset(path, transform=[RESIZE, T.ToFloat()])
        self._samples = [(packed[number][0], torch.tensor(packed[number][1])) for number in range(12)]

    def __len__(self) -> int:
        return len(self._samples)

    def __getitem__(self, index: int) -> Any:
        return self._samples[index]


@contextmanager
def default_device() -> Iterator[None]:
    torch.set_default_device("meta")
    try:
        yield
    finally:
        torch.set_default_device(None)


@contextmanager
def default_dtype() -> Iterator[None]:
    torch.set_default_dtype(torch.float64)
    try:
        yield
    finally:
        torch.set_default_dtype(torch.float32)


SETTINGS: dict[str, Callable[[], AbstractContextManager[Any]]] = {
    "autocast": lambda: torch.autocast("cpu", torch.bfloat16),
    "inference": torch.inference_mode,
    "no grad": torch.no_grad,
    "default device": default_device,
    "default dtype": default_dtype,
}


def batches(
    path: Path, setting: Callable[[], AbstractContextManager[Any]] = nullcontext, **kwargs: Any
) -> list[tuple[torch.Tensor, ...]]:
    """The batches of a loop under a setting; with seeds of the loader's, so that nothing is drawn where
    the default device would draw."""
    with FastLoader(path, 4, seed=3, **kwargs) as loader, setting():
        return [tuple(tensor.clone() for tensor in tensors_of(batch)) for batch in loader]


@pytest.mark.parametrize("setting", SETTINGS)
@pytest.mark.parametrize("engine", ["threads ahead", "threads", "calling thread", "python"])
def test_stages_do_not_see_it(packed: Path, setting: str, engine: str) -> None:
    """Fastload's stages, one with parameters that draws, and one that writes to its input, give the same
    bits under every setting."""
    kwargs: dict[str, Any] = {
        "device": "cpu",
        "num_workers": 0 if engine in ("calling thread", "python") else 2,
    }
    kwargs |= {
        "device_prefetch": 2 if engine == "threads ahead" else 0,
        "batch_transform": [*STAGES, *FLOATS[:1], Blur(), InPlace(), FLOATS[1]],
    }
    data: Any = packed
    if engine == "python":
        if setting == "default device":
            pytest.skip("torch's loader, too, draws its base seed on the default device")
        data, kwargs["batch_transform"] = Samples(packed), [STAGES[0], Blur(), InPlace(), FLOATS[1]]
    else:
        kwargs["transform"] = RESIZE
    want, got = batches(data, **kwargs), batches(data, SETTINGS[setting], **kwargs)
    for ours, others in zip(got, want, strict=True):
        assert all(a.dtype == b.dtype and torch.equal(a, b) for a, b in zip(ours, others, strict=True))


@pytest.mark.parametrize("setting", ["default device", "default dtype", "inference"])
@pytest.mark.parametrize("collate", ["padded", "flat", None])
def test_native_batches_do_not_see_it(packed: Path, setting: str, collate: str | None) -> None:
    """Native batches without stages, padded and floats among them, are made on the host, with their
    dtypes."""
    kwargs: dict[str, Any] = {
        "transform": [T.Resize(24) if collate else RESIZE, T.ToFloat()],
        "collate": collate,
        "pad_to": 1 if collate else None,
        "num_workers": 2,
    }
    want, got = batches(packed, **kwargs), batches(packed, SETTINGS[setting], **kwargs)
    for ours, others in zip(got, want, strict=True):
        assert all(a.dtype == b.dtype and torch.equal(a, b) for a, b in zip(ours, others, strict=True))


def test_it_is_put_back() -> None:
    """After a stage, and after one that raises, the loop's settings are what they were."""
    with torch.autocast("cpu", torch.bfloat16), torch.inference_mode(), default_device():
        with pytest.raises(ZeroDivisionError), quiet(torch.device("cpu")):
            assert not torch.is_autocast_enabled("cpu")
            assert not torch.is_inference_mode_enabled()
            assert torch.empty(0).device.type == "cpu"
            raise ZeroDivisionError
        assert torch.is_autocast_enabled("cpu")
        assert torch.is_inference_mode_enabled()
        assert torch.empty(0).device.type == "meta"


def test_two_threads_share_a_clock() -> None:
    """The thread that moves and the loop's count on one clock, and no measured second is lost."""

    class Event:
        def query(self) -> bool:
            time.sleep(0)  # other threads may run
            return True

        def elapsed_time(self, other: Event) -> float:
            return 1000.0

    timer = StageTimer()
    clock = Clock(timer, on_stream=True)
    threads = [
        threading.Thread(target=lambda: [clock.count(Event(), Event(), Event()) for _ in range(1000)])
        for _ in range(4)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert timer.stages() == {"copy": 4000.0, "augment": 4000.0}
