"""Probes of a first batch with a cold and a warm cache of Triton's, and of calls for which the host waits."""

from __future__ import annotations

import itertools
import os
import subprocess
import sys
import tempfile
import time
import warnings
from collections.abc import Callable
from contextlib import AbstractContextManager
from functools import partial
from pathlib import Path
from typing import Any
from unittest.mock import patch

import torch

from device_sections import planted
from device_sections.probing import Probe, Setting
from device_sections.report import Details, Skipped, Wrong
from fastload import augment as A

_FIRST_BATCH = """
import sys, time
import torch
from fastload import FastLoader, augment as A, transforms as T

torch.zeros(1, device="cuda")
began = time.perf_counter()
stages = [A.AugmentBatch([A.ColorJitter(0.4, 0.4, 0.4, 0.1)]), T.Normalize((0.5,) * 3, (0.2,) * 3)]
given = {"transform": T.Resize((64, 64)), "batch_transform": stages, "dtype": torch.bfloat16,
    "device": "cuda"}
with FastLoader(sys.argv[1], 8, num_workers=2, **given) as loader:
    images = next(iter(loader))[0]
    torch.cuda.synchronize()
print(time.perf_counter() - began)
"""


def start(setting: Setting, cache: Path) -> Details:
    """Seconds of a first batch in a process with this cache of Triton's, and the number of files that it has
    made there.

    In a rehearsal one kernel is compiled in this process, for a device that is not there.
    """
    before = files(cache)
    seconds = first_batch_of_a_process(setting, cache) if setting.timed else compilation(cache)
    return {"seconds": seconds, "made": len(files(cache) - before)}


def first_batch_of_a_process(setting: Setting, cache: Path) -> float:
    done = subprocess.run(
        [sys.executable, "-c", _FIRST_BATCH, str(setting.packed)],
        env={**os.environ, "TRITON_CACHE_DIR": str(cache)},
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode:
        raise Wrong("the first batch failed", tail=done.stderr.splitlines()[-30:])
    return float(done.stdout.split()[-1])


def compilation(cache: Path) -> float:
    from triton.backends.compiler import GPUTarget
    from triton.compiler import ASTSource, compile

    from fastload.device import to_float_kernel as kernels

    began = time.perf_counter()
    kernel = kernels._planar
    values = {"RECIPROCAL": False, "NORMALIZE": False, "DIVIDE": False, "BLOCK": kernels.BLOCK}
    kinds = {"source": "*u8", "out": "*fp32", "plane": "i32"}
    signature = {
        name: kinds.get(name, "constexpr" if name in values else "fp32") for name in kernel.arg_names
    }
    constants = {(at,): values[name] for at, name in enumerate(kernel.arg_names) if name in values}
    with patch.dict(os.environ, {"TRITON_CACHE_DIR": str(cache)}):
        compile(
            ASTSource(kernel, signature, constants),
            target=GPUTarget("cuda", 90, 32),
            options={"enable_fp_fusion": False},
        )
    return time.perf_counter() - began


def files(folder: Path) -> set[Path]:
    return {path for path in folder.rglob("*") if path.is_file()}


def first_batch(setting: Setting) -> Details:
    """The first batch builds kernels into an empty cache, and builds none where the cache is full."""
    try:
        import triton  # noqa: F401
    except ImportError:
        raise Skipped("Triton is not installed") from None
    with tempfile.TemporaryDirectory() as folder:
        cold, warm = (start(setting, Path(folder)) for _ in range(2))
    if not cold["made"]:
        raise Wrong("no kernel was built", cold=cold, warm=warm)
    if warm["made"]:
        raise Wrong("kernels were built again", cold=cold, warm=warm)
    return {
        "cold": cold,
        "warm": warm,
        "table": f"first batch {cold['seconds']:.1f} s cold, {warm['seconds']:.1f} s warm",
    }


def another_cache() -> AbstractContextManager[Any]:
    """Planted: every process has a cache of its own."""
    real, numbers = start, itertools.count()
    return patch.object(
        sys.modules[__name__], "start", lambda setting, cache: real(setting, cache / str(next(numbers)))
    )


def waits_of(call: Callable[[], Any]) -> list[str]:
    """Waits of the host in a call, of which torch's debug mode warns. It runs once before, to build what
    it needs."""
    call()
    torch.cuda.synchronize()
    return told_waits(call)


def told_waits(call: Callable[[], Any]) -> list[str]:
    """Warnings of waits in a call."""
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        torch.cuda.set_sync_debug_mode("warn")
        try:
            call()
        finally:
            torch.cuda.set_sync_debug_mode("default")
    torch.cuda.synchronize()
    return [str(each.message) for each in told if "synchronizing" in str(each.message)]


def check_counted(images: torch.Tensor) -> None:
    """Raises Wrong unless a wait is counted."""
    if not told_waits(lambda: int(images.sum())):
        raise Wrong("torch does not tell of a wait")


OPS = [
    A.RandomHorizontalFlip(),
    A.ColorJitter(0.4, 0.4, 0.4, 0.1),
    A.RandomErasing(),
    A.RandAugment(2, 9),
    A.GaussianBlur(5),
]
KORNIA = {
    "RandomHorizontalFlip": {"p": 0.5},
    "RandomCrop": {"size": (24, 24), "padding": 4},
    "RandomResizedCrop": {"size": (24, 24)},
    "RandomAffine": {"degrees": 15.0, "p": 1.0},
    "RandomRotation": {"degrees": 15.0, "p": 1.0},
    "RandomPerspective": {"p": 1.0},
    "ColorJitter": {"brightness": 0.4, "contrast": 0.4, "saturation": 0.4, "hue": 0.1, "p": 1.0},
    "RandomBrightness": {"p": 1.0},
    "RandomGamma": {"p": 1.0},
    "RandomGrayscale": {"p": 1.0},
    "RandomGaussianBlur": {"kernel_size": (5, 5), "sigma": (0.1, 2.0), "p": 1.0},
    "RandomGaussianNoise": {"p": 1.0},
    "RandomSolarize": {"p": 1.0},
    "RandomPosterize": {"p": 1.0},
    "RandomEqualize": {"p": 1.0},
    "RandomSharpness": {"p": 1.0},
    "RandomErasing": {"p": 1.0},
    "RandomElasticTransform": {"p": 1.0},
}
"""Arguments of modules of kornia.augmentation."""


def own_ops(setting: Setting) -> Details:
    """No op of fastload.augment makes the host wait."""
    images = torch.full((4, 3, 32, 32), 100, dtype=torch.uint8).to("cuda")
    check_counted(images)
    found = {
        type(op).__name__: len(
            waits_of(partial(A.AugmentBatch([op]), images, seed=1, epoch=0, indices=range(4)))
        )
        for op in OPS
    }
    if any(found.values()):
        raise Wrong(f"the host waits for {[name for name, count in found.items() if count]}", waits=found)
    return {"waits": found}


def kornia_modules(setting: Setting) -> Details:
    """Waits of the host for each module of Kornia's, in an AugmentBatch and as it is."""
    import kornia.augmentation as K

    images = torch.full((4, 3, 32, 32), 0.4).to("cuda")
    check_counted(images)
    found: Details = {}
    for name, arguments in KORNIA.items() if setting.timed else list(KORNIA.items())[:1]:
        for way, make in {
            "AugmentBatch": lambda module: A.AugmentBatch([module]),
            "as it is": A.Seeded,
        }.items():
            key: dict[str, Any] = {"indices": range(4)} if way == "AugmentBatch" else {"batch": 0}
            try:
                call = make(getattr(K, name)(**arguments))
                found[f"{name}, {way}"] = len(waits_of(partial(call, images, seed=1, epoch=0, **key)))
            except (
                Exception
            ) as error:  # a module that does not run so on the device is what this is to find out
                found[f"{name}, {way}"] = f"{type(error).__name__}: {error}"[:200]
    if not any(isinstance(count, int) for count in found.values()):
        raise Wrong("no module of Kornia's runs", waits=found)
    return {
        "waits": found,
        "table": (
            f"{sum(count == 0 for count in found.values())} of {len(found)} Kornia modules wait for nothing"
        ),
    }


PROBES = [
    Probe("first batch, cold and warm", first_batch, {"another cache": another_cache}, 60),
    Probe("own ops wait for nothing", own_ops, {"a flip that waits": planted.waiting_flip}),
    Probe("waits of Kornia's modules", kornia_modules, {"waits are not told": planted.untold}, 40),
]
