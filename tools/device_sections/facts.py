"""Facts: the machine, its driver, and what is installed on it. Nothing that is missing is an error, except
a device."""

from __future__ import annotations

import importlib.metadata
import os
import platform
import shutil
import subprocess
import sys
import sysconfig
from collections.abc import Callable
from pathlib import Path
from typing import Any

from device_sections.report import MEASURED, Details, Report, Wrong

PACKAGES = (
    *(
        "torch",
        "triton",
        "torchvision",
        "kornia",
        "kornia_rs",
        "numpy",
        "pillow",
        "lmdb",
        "PyTurboJPEG",
        "nvidia-ml-py",
        "timm",
    ),
    *(
        "Cython",
        "setuptools",
        "pytest",
        "pytest-xdist",
        "pytest-timeout",
        "hypothesis",
        "rich",
        "typer",
        "cloudpickle",
        "threadpoolctl",
    ),
)
CARD = (
    "name,driver_version,memory.total,pstate,clocks.sm,clocks.max.sm,power.limit,temperature.gpu,"
    "compute_mode,mig.mode.current"
)


def run(report: Report, rehearse: bool) -> None:
    """Reports the card, the system, the packages, the tools of a build, and torch's view of the device."""
    parts: dict[str, Callable[[], Details]] = {
        "card": card,
        "system": system,
        "packages": lambda: {name: version(name) for name in PACKAGES},
        "tools": tools,
    }
    for name, part in parts.items():
        report.run(name, part, 15, MEASURED)
    report.run("device", lambda: device(rehearse), 40)


def said(*command: str) -> str | None:
    """The output of a command; None if it is missing, fails or hangs."""
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=10)
    except (OSError, subprocess.TimeoutExpired):
        return None
    return done.stdout.strip() if done.returncode == 0 else None


def version(package: str) -> str | None:
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return None


def card() -> Details:
    line = said("nvidia-smi", f"--query-gpu={CARD}", "--format=csv,noheader")
    found: Details = (
        {"nvidia-smi": None} if line is None else dict(zip(CARD.split(","), line.split(", "), strict=False))
    )
    return found | {"table": line.partition(",")[0] if line else "no nvidia-smi"}


def system() -> Details:
    memory = Path("/proc/meminfo")
    limits = Path("/proc/self/limits")
    return {
        "kernel": platform.release(),
        "is_gvisor": "gvisor" in (said("dmesg") or "").lower(),
        "system": platform.freedesktop_os_release().get("PRETTY_NAME")
        if hasattr(platform, "freedesktop_os_release")
        else None,
        "glibc": platform.libc_ver()[1],
        "python": sys.version.split()[0],
        "executable": sys.executable,
        "cores": len(os.sched_getaffinity(0)),
        "memory": memory.read_text().splitlines()[:3] if memory.exists() else None,
        "locked_memory": next((line for line in limits.read_text().splitlines() if "locked" in line), None)
        if limits.exists()
        else None,
        "shm_bytes": shutil.disk_usage("/dev/shm").total if Path("/dev/shm").is_dir() else None,
        "disk_free": shutil.disk_usage(".").free,
        "user": os.getuid(),
        "environment": {
            name: value
            for name, value in os.environ.items()
            if name.startswith(("CUDA", "NVIDIA", "TORCH", "PYTORCH", "TRITON"))
        },
    }


def tools() -> Details:
    includes = [sysconfig.get_path(each) for each in ("include", "platinclude")]
    return {
        "cc": (said("cc", "--version") or said("gcc", "--version") or "").partition("\n")[0] or None,
        "Python.h": [path for path in includes if Path(path, "Python.h").exists()],
        "jpeglib.h": [
            path for path in ("/usr/include/jpeglib.h", "/usr/local/include/jpeglib.h") if Path(path).exists()
        ],
        "pkg-config": shutil.which("pkg-config"),
        "PKG_CONFIG": os.environ.get("PKG_CONFIG"),
        "nvcc": shutil.which("nvcc"),
        "compute-sanitizer": shutil.which("compute-sanitizer"),
        "libcuda": said("sh", "-c", "ldconfig -p | grep libcuda.so"),
    }


def device(rehearse: bool) -> Details:
    """torch's view of the device. Raises Wrong if there is none, except in a rehearsal."""
    import torch

    found: dict[str, Any] = {"torch": torch.__version__, "cuda": torch.version.cuda, "capability": None}
    if not torch.cuda.is_available():
        if rehearse:
            return found | {"device": None, "table": f"torch {torch.__version__}"}
        raise Wrong("torch finds no device", **found)
    properties = torch.cuda.get_device_properties(0)
    return found | {
        "capability": torch.cuda.get_device_capability(0),
        "device": properties.name,
        "memory": properties.total_memory,
        "multiprocessors": properties.multi_processor_count,
        "value": float((torch.ones(3, device="cuda") * 2).sum()),
        "table": f"torch {torch.__version__}",
    }
