"""Figures of the operating system about a tree of processes, and facts about the machine. Imports no
torch."""

from __future__ import annotations

import os
import platform
import resource
import shutil
import statistics
import subprocess
import time
from collections.abc import Iterable
from contextlib import suppress
from importlib import metadata
from pathlib import Path

from fastload import __version__
from fastload._native import core

PROC = Path("/proc")


def median(values: Iterable[float | None]) -> float | None:
    """The median of the values that are there; None when there is none."""
    known = [value for value in values if value is not None]
    return statistics.median(known) if known else None


def spread(values: Iterable[float | None]) -> float | None:
    """Half the range of the values over their median: how far rounds lie apart, 0.03 for 3%. None below
    two values."""
    known = [value for value in values if value is not None]
    if len(known) < 2:
        return None
    middle = statistics.median(known)
    return (max(known) - min(known)) / 2 / middle if middle else None


def _stat_fields(pid: int) -> list[str] | None:
    try:
        text = (PROC / str(pid) / "stat").read_text(encoding="utf-8", errors="replace")
    except OSError:  # it ended since the folder was listed
        return None
    return text[text.rindex(")") + 2 :].split()  # the name before it may hold spaces and brackets


def descendants(root: int) -> list[int]:
    """The live descendants of process root, parents first, root not among them. Empty where there is no
    /proc."""
    if not (PROC / "self" / "stat").exists():
        return []
    children: dict[int, list[int]] = {}
    for entry in PROC.iterdir():
        if entry.name.isdigit() and (fields := _stat_fields(int(entry.name))) is not None:
            children.setdefault(int(fields[1]), []).append(int(entry.name))
    found: list[int] = []
    queue = [root]
    while queue:
        below = sorted(children.get(queue.pop(0), []))
        found += below
        queue += below
    return found


PSS_PARTS = {"Pss:": "pss", "Pss_Anon:": "anon", "Pss_File:": "file", "Pss_Shmem:": "shmem"}


def tree_pss(root: int) -> dict[str, int] | None:
    """Proportional set size of root and its descendants, in bytes: a page that n processes map counts 1/n in
    each.

    ``pss`` is the whole; ``anon`` (heap and stacks), ``file`` (libraries and mapped datasets: page cache) and
    ``shmem`` (shared memory, memfd) are its parts, where the kernel (5.4 and later) tells them. None where it
    tells nothing. Shared memory that is open, and of which no process has touched a page, counts too, which
    the kernel ascribes to none: such are batches of torch's workers that the loop has not taken, or not read.
    """
    total: dict[str, int] = {}
    tree = [root, *descendants(root)]
    for pid in tree:
        try:
            text = (PROC / str(pid) / "smaps_rollup").read_text(encoding="ascii")
        except OSError:
            if pid == root:
                return None
            continue  # a worker that has just ended
        for line in text.splitlines():
            name, *rest = line.split()
            if name in PSS_PARTS:
                total[PSS_PARTS[name]] = total.get(PSS_PARTS[name], 0) + int(rest[0]) * 1024
    unmapped = _unmapped_shared_bytes(tree)
    for name in ("pss", "shmem"):
        if name in total:
            total[name] += unmapped
    return total


def _unmapped_shared_bytes(pids: Iterable[int]) -> int:
    """Bytes of shared memory that these processes have open, and of whose pages none of them has touched any:
    the kernel ascribes a page to those that have."""
    touched: dict[int, int] = {}
    opened: dict[int, int] = {}
    for pid in pids:
        try:
            maps = (PROC / str(pid) / "smaps").read_text(encoding="utf-8", errors="replace")
            descriptors = list((PROC / str(pid) / "fd").iterdir())
        except OSError:  # it has ended
            continue
        inode = 0
        for line in maps.splitlines():
            words = line.split(maxsplit=5)
            if words[0] == "Pss:" and inode:
                touched[inode] = touched.get(inode, 0) + int(words[1]) * 1024
            elif not words[0].endswith(":"):
                inode = int(words[4]) if words[-1].startswith(_SHARED) else 0
        for descriptor in descriptors:
            with suppress(OSError):
                if os.readlink(descriptor).startswith(_SHARED):
                    found = descriptor.stat()
                    opened[found.st_ino] = found.st_blocks * 512
    return sum(max(size - touched.get(inode, 0), 0) for inode, size in opened.items())


_SHARED = ("/dev/shm/", "/memfd:")


def tree_cpu_seconds() -> float:
    """User and system CPU seconds that this process and its descendants, ended ones included, have used.

    This process's own share has the clock's resolution, the live descendants' the kernel's tick (10 ms).
    """
    ended = resource.getrusage(resource.RUSAGE_CHILDREN)
    ticks = 0
    for pid in descendants(os.getpid()):
        if (fields := _stat_fields(pid)) is not None:
            ticks += sum(int(value) for value in fields[11:15])  # utime, stime, cutime, cstime
    return time.process_time() + ended.ru_utime + ended.ru_stime + ticks / os.sysconf("SC_CLK_TCK")


def machine_busy_seconds() -> float | None:
    """CPU seconds that the whole machine has been busy, time stolen by a hypervisor included; None where
    unknown."""
    try:
        fields = (PROC / "stat").read_text(encoding="ascii").splitlines()[0].split()
    except OSError:
        return None
    user, nice, system, _idle, _wait, irq, softirq, steal = (int(value) for value in fields[1:9])
    return (user + nice + system + irq + softirq + steal) / os.sysconf("SC_CLK_TCK")


class OthersTime:
    """Clock of the CPU time that other processes take from now on."""

    def __init__(self) -> None:
        self._began, self._busy, self._own = time.perf_counter(), machine_busy_seconds(), tree_cpu_seconds()

    def share(self) -> float | None:
        """Their share of the machine's CPU time, 0 to 1; None: unknown."""
        busy = machine_busy_seconds()
        if busy is None or self._busy is None:
            return None
        others = busy - self._busy - (tree_cpu_seconds() - self._own)
        return max(0.0, others) / (time.perf_counter() - self._began) / (os.cpu_count() or 1)


def tree_read_bytes() -> int | None:
    """Bytes that this process and its live descendants made the kernel fetch from storage; None where
    unknown."""
    total = 0
    for pid in [os.getpid(), *descendants(os.getpid())]:
        try:
            text = (PROC / str(pid) / "io").read_text(encoding="ascii")
        except OSError:
            return None
        total += next(
            (int(line.split()[1]) for line in text.splitlines() if line.startswith("read_bytes:")), 0
        )
    return total


def _cpu_model() -> str:
    try:
        lines = (PROC / "cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        return platform.processor() or platform.machine()
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.machine()


def installed_version(package: str) -> str | None:
    """The version of an installed distribution; None: it is not installed."""
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return None


def libjpeg_version() -> str | None:
    """The version of the system's libjpeg-turbo, as pkg-config has it; None where it has none."""
    if shutil.which("pkg-config") is None:
        return None
    done = subprocess.run(
        ["pkg-config", "--modversion", "libturbojpeg"], capture_output=True, text=True, check=False
    )
    return done.stdout.strip() or None


def cores() -> int:
    """The CPUs that this process may run on."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def machine_facts() -> dict[str, str | int | float | None]:
    """Facts about the machine that place the numbers; no host name and no path."""
    return {
        "cpu": _cpu_model(),
        "cpu_features": core.cpu_features(),
        "cores": cores(),
        "memory_gib": round(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30, 1),
        "system": f"{platform.system()} {platform.machine()}",
        "python": platform.python_version(),
        "torch": installed_version("torch"),
        "pillow": installed_version("pillow"),
        "opencv": installed_version("opencv-python-headless") or installed_version("opencv-python"),
        "pyturbojpeg": installed_version("PyTurboJPEG"),
        "lmdb": installed_version("lmdb"),
        "libjpeg_turbo": libjpeg_version(),
        "fastload": __version__,
    }
