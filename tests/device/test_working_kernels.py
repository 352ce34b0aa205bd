"""Kernels that cannot run are done without: where Triton is missing, and where it cannot build."""

from __future__ import annotations

import sys
from types import ModuleType

import pytest
import torch

from fastload.device import gpu

CPU = torch.device("cpu")


class Broken(ModuleType):
    """A kernel whose launcher cannot be built."""

    def __init__(self, error: Exception) -> None:
        super().__init__("broken_kernel")
        self.error = error
        self.proved = 0

    def prove(self, device: torch.device) -> None:
        self.proved += 1
        raise self.error


class Works(ModuleType):
    """One that runs."""

    def __init__(self) -> None:
        super().__init__("works")
        self.proved: list[torch.device] = []

    def prove(self, device: torch.device) -> None:
        self.proved.append(device)


def test_without_a_compiler() -> None:
    """One warning says what failed, where, and what to install; it is not tried again."""
    broken = Broken(RuntimeError("Failed to find C compiler.\nPlease specify via CC"))

    def load() -> ModuleType:
        return broken

    with pytest.warns(UserWarning, match="broken_kernel on cpu .Failed to find C compiler. Please.*gcc"):
        assert gpu.working(load, CPU) is None
    assert gpu.working(load, CPU) is None
    assert broken.proved == 1


def test_without_triton(monkeypatch: pytest.MonkeyPatch) -> None:
    """No warning: torch's own ops are what there is."""
    monkeypatch.setitem(sys.modules, "triton", None)
    monkeypatch.delitem(sys.modules, "fastload.device.to_float_kernel", raising=False)

    def load() -> ModuleType:
        from fastload.device import to_float_kernel as float_kernel

        return float_kernel

    assert gpu.working(load, CPU) is None


def test_no_memory_is_no_broken_kernel() -> None:
    """That is the caller's to see."""

    def load() -> ModuleType:
        return Broken(torch.OutOfMemoryError("out of memory"))

    with pytest.raises(torch.OutOfMemoryError):
        gpu.working(load, CPU)


def test_a_kernel_that_runs() -> None:
    """It is proved once a device, and handed out."""
    module = Works()

    def load() -> ModuleType:
        return module

    assert gpu.working(load, CPU) is gpu.working(load, CPU) is module
    assert module.proved == [CPU]
