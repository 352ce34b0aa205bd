"""Checks of versions, of torch in a process of its own, and of the threads of OpenMP and BLAS."""

from __future__ import annotations

import json
import os
import platform
import re
import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fastload import __version__
from fastload.bench.measure import installed_version, libjpeg_version
from fastload.common.distribution import DISTRIBUTION
from fastload.common.system import available_cpus, local_ranks
from fastload.doctor.finding import Finding, judged

Version = tuple[int, ...]


@dataclass(frozen=True)
class Range:
    """Versions of a distribution that this one runs with, as pyproject.toml has them.

    Attributes:
        name: name of the distribution.
        least: lowest version.
        below: lowest version that is too new; None: none is known.
        required: True if it is no package of an extra.
    """

    name: str
    least: str
    below: str | None = None
    required: bool = False

    @property
    def requirement(self) -> str:
        """The range as pip takes it."""
        return f"{self.name}>={self.least}" + (f",<{self.below}" if self.below else "")

    def holds(self, version: str) -> bool:
        """Returns True if a version is in the range."""
        return parsed(self.least) <= parsed(version) and (
            self.below is None or parsed(version) < parsed(self.below)
        )


TORCH = Range("torch", "2.6", required=True)
RANGES = (
    Range("numpy", "1.26", required=True),
    Range("lmdb", "1.4", required=True),
    Range("PyTurboJPEG", "1.8", "2", required=True),
    Range("typing_extensions", "4.12", required=True),
    Range("cloudpickle", "3", required=True),
    Range("threadpoolctl", "3.2", required=True),
    Range("kornia", "0.7"),
    Range("pillow", "10"),
    Range("obstore", "0.11", "1"),
    Range("fsspec", "2024.6"),
    Range("duckdb", "1.3", "3"),
    Range("pyarrow", "16"),
    Range("ray", "2.40"),
)
"""Those of pyproject.toml that a job may use; a test compares both."""
PYTHONS = (3, 10), (3, 14)
"""The first and the last CPython that tests run on."""
TORCHVISION_AHEAD = 15
"""A release 2.N of torch goes with torchvision 0.(N + 15): torchvision's table of releases has no
exception since 2.0."""
SECONDS = 120
_CHILD = """
import json, torch, numpy, threadpoolctl
found = {"torch": torch.__version__, "built_for": torch.version.cuda or torch.version.hip}
found["threads"] = torch.get_num_threads()
accelerators = torch.accelerator if hasattr(torch, "accelerator") else torch.cuda
found["accelerator"] = accelerators.is_available()
found["pools"] = max((pool["num_threads"] for pool in threadpoolctl.threadpool_info()), default=1)
try:
    import torchvision
    torchvision.ops.nms(torch.zeros(0, 4), torch.zeros(0), 0.5)
except ModuleNotFoundError as error:
    found["torchvision_error"] = None if error.name == "torchvision" else f"{type(error).__name__}: {error}"
except Exception as error:
    found["torchvision_error"] = f"{type(error).__name__}: {error}"
print()
print(json.dumps(found))
"""


def parsed(version: str) -> Version:
    """The numbers at a version's beginning: (2, 13, 0) of 2.13.0+cpu. Zeros at the end are left out, so
    that 3 and 3.0 are equal."""
    found = re.match(r"\d+(?:\.\d+)*", version)
    numbers = [int(part) for part in found[0].split(".")] if found else []
    while numbers and not numbers[-1]:
        numbers.pop()
    return tuple(numbers)


def software_findings() -> Iterator[Finding]:
    """Findings about Python, torch and other packages."""
    yield _python()
    yield _own()
    answer = ask_torch()
    yield _torch(answer)
    yield torchvision(installed_version("torchvision"), answer)
    yield _packages()
    yield _threads(answer)


def _python() -> Finding:
    version, (first, last) = platform.python_version(), PYTHONS
    value = {"version": version, "executable": sys.executable}
    if first <= sys.version_info[:2] <= last:
        return Finding("python", "good", version, value=value)
    return Finding(
        "python",
        "unknown",
        f"{version}, which no test has run on",
        f"Python {first[0]}.{first[1]} to {last[0]}.{last[1]}",
        value,
    )


def _own() -> Finding:
    installed = installed_version(DISTRIBUTION)
    faults = {}
    if installed is not None and installed != __version__:
        faults[f"the installed distribution says {installed}, so that two are mixed"] = (
            f"pip install --force-reinstall {DISTRIBUTION}"
        )
    return judged("fastload", faults, __version__, {"version": __version__, "installed": installed})


def ask_torch() -> dict[str, Any] | str:
    """Facts about torch and torchvision from a new process, or why it has none: a broken torch ends that
    process, and not this one."""
    try:
        done = subprocess.run(
            [sys.executable, "-c", _CHILD],
            capture_output=True,
            text=True,
            errors="replace",
            timeout=SECONDS,
            check=False,
        )
    except subprocess.TimeoutExpired:
        return f"its import did not end within {SECONDS} s"
    if done.returncode < 0:
        return f"its import ended the process by {signal.Signals(-done.returncode).name}"
    if done.returncode:
        return (done.stderr.strip().splitlines() or [f"status {done.returncode}"])[-1]
    answer: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return answer


def _torch(answer: dict[str, Any] | str) -> Finding:
    pip = f"pip install '{TORCH.requirement}'"
    if isinstance(answer, str):
        installed = installed_version("torch")
        text = (
            "it is not installed"
            if installed is None
            else f"{installed} is installed, and cannot be imported"
        )
        return Finding("torch", "bad", f"{text}: {answer}", pip, {"version": installed})
    version, built_for = answer["torch"], answer["built_for"]
    text = f"{version}, {'for the CPU alone' if built_for is None else f'for {built_for}'}"
    faults = {}
    if not TORCH.holds(version):
        faults["it is too old"] = pip
    if _has_nvidia() and not answer["accelerator"]:
        if built_for is None:
            faults["this machine has a GPU"] = "install the build for its driver: pytorch.org/get-started"
        else:
            faults["it finds no GPU, and this machine has one"] = (
                "check nvidia-smi, CUDA_VISIBLE_DEVICES, and the driver against the build"
            )
    return judged(
        "torch",
        faults,
        text,
        {"version": version, "built_for": built_for, "accelerator": answer["accelerator"]},
    )


def _has_nvidia() -> bool:
    return any(Path("/dev").glob("nvidia[0-9]*"))


def torchvision(version: str | None, answer: dict[str, Any] | str) -> Finding:
    """The finding about a version of torchvision, None if there is none, beside the torch of `ask_torch`."""
    value = {"version": version}
    if version is None:
        return Finding("torchvision", "good", "not installed; packed data need none", value=value)
    if isinstance(answer, str):
        return Finding(
            "torchvision", "unknown", f"{version}; torch cannot be imported", "mend torch first", value
        )
    major, minor = (*parsed(answer["torch"]), 0)[:2]
    wanted = f"0.{minor + TORCHVISION_AHEAD}"
    faults = {}
    if major == 2 and parsed(version)[:2] != parsed(wanted):
        faults[f"torch {answer['torch']} goes with torchvision {wanted}"] = (
            f"pip install 'torchvision=={wanted}.*'"
        )
    if answer.get("torchvision_error"):
        faults[f"it cannot be used ({answer['torchvision_error']})"] = (
            f"install torchvision {wanted} from the index that torch came from: both are built for "
            "the CPU, or for one CUDA"
        )
    return judged("torchvision", faults, f"{version} with torch {answer['torch']}", value)


def _packages() -> Finding:
    versions = {each.name: installed_version(each.name) for each in RANGES}
    return packages(versions | {"libjpeg-turbo": libjpeg_version()})


def packages(versions: Mapping[str, str | None]) -> Finding:
    """The finding about the other distributions, by their versions; None: not installed."""
    faults = {}
    for each in RANGES:
        version = versions.get(each.name)
        if version is None and each.required:
            faults[f"{each.name} is missing"] = f"pip install '{each.requirement}'"
        elif version is not None and not each.holds(version):
            faults[
                f"{each.name} {version} is "
                f"{'too new' if parsed(each.least) <= parsed(version) else 'too old'}"
            ] = f"pip install '{each.requirement}'"
    text = ", ".join(f"{name} {version}" for name, version in versions.items() if version is not None)
    return judged("packages", faults, text, versions)


_VARIABLES = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS")


def _threads(answer: dict[str, Any] | str) -> Finding:
    set_to = {name: os.environ[name] for name in _VARIABLES if name in os.environ}
    usable, ranks = available_cpus(), local_ranks()
    said = ", ".join(f"{name}={text}" for name, text in set_to.items()) or "no variable sets them"
    asked = [int(first) for text in set_to.values() if (first := text.partition(",")[0].strip()).isdecimal()]
    started = (
        max(answer["threads"], answer["pools"], *asked)
        if isinstance(answer, dict)
        else max(asked, default=None)
    )
    value = {"threads": started, "cpus": usable, "ranks": ranks, "variables": set_to}
    if started is None:
        return Finding(
            "threads",
            "unknown",
            f"{said}; without torch nobody says how many OpenMP starts",
            "mend torch first",
            value,
        )
    share = max(1, usable // ranks)
    text = f"OpenMP and BLAS start {started} on {usable} CPU{'s' * (usable != 1)} ({said})"
    faults = {}
    if started > usable:
        faults["more than the CPUs, and they wait for each other"] = f"OMP_NUM_THREADS={share}" + (
            "" if set(set_to) <= {"OMP_NUM_THREADS"} else ", and unset the others"
        )
    elif started * ranks > usable and ranks > 1:
        faults[f"{ranks} processes start as many each"] = f"OMP_NUM_THREADS={share}"
    return judged("threads", faults, text, value)
