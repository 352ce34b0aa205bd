"""Limits of this process on its machine: CPUs and memory, as affinity, control groups and torchrun leave
them; and those of malloc.

NOTE [ control groups: which limits hold ]
A limit holds for a control group and for all groups below it, so each is read from the process's own group
upwards, as far as the file system shows, and the tightest counts. /proc/self/cgroup names the group and
/proc/self/mountinfo where its hierarchy is mounted: version 2, version 1, or both side by side. A path that
the mount does not show (a container that sees only its own group) is the mount itself. Every function takes
the root of the file system, which only tests change; what cannot be read sets no limit.
"""

from __future__ import annotations

import contextlib
import ctypes
import math
import os
import re
from collections.abc import Iterator
from fractions import Fraction
from pathlib import Path, PurePosixPath

ROOT = Path("/")

_RECLAIMABLE = ("inactive_file", "active_file", "slab_reclaimable")
"""Lines of memory.stat that count pages which the kernel drops before it refuses an allocation or kills: the
page cache of files, read long ago or just now, and freeable kernel objects. The same as MemAvailable of
/proc/meminfo adds. Not among them: shared memory and tmpfs, which the kernel keeps with the anonymous pages,
and locked pages ("unevictable")."""

_PERIODS = 100
"""Fewest periods of a CPU quota, usually 100 ms each, of which a share is told."""
_UNLIMITED = 1 << 62
"""Version 1 writes the largest whole number of pages where there is no limit."""


def available_cpus(root: Path = ROOT) -> int:
    """CPUs this process may use: its affinity mask, cut by the CPU quota of its control group; at least 1.

    A quota that is no whole number is rounded up: 1.5 CPUs are 2 threads, since one thread could not use what
    is granted.
    """
    cpus, quota = _bound_cpus(), cpu_quota(root)
    return max(1, cpus if quota is None else min(cpus, math.ceil(quota)))


def cpu_quota(root: Path = ROOT) -> Fraction | None:
    """CPUs that the control group of this process grants it, 3/2 for one and a half; None: no quota."""
    found = []
    for group in _groups("cpu", root):
        words = _words(group / "cpu.max") or _words(group / "cpu.cfs_quota_us") + _words(
            group / "cpu.cfs_period_us"
        )
        with contextlib.suppress(ValueError, ZeroDivisionError):  # "max", or no such file
            quota, period = (int(word) for word in words)
            if quota > 0:  # -1 is none
                found.append(Fraction(quota, period))
    return min(found, default=None)


def throttled_share(root: Path = ROOT) -> float | None:
    """Share of the CPU quota's periods, 0 to 1, in which the kernel stopped the processes of this one's group
    because the quota was used up; None: no quota, or too few periods to say."""
    for group in _groups("cpu", root):
        stat = _numbers(group / "cpu.stat")
        if stat.get("nr_periods", 0) >= _PERIODS:
            return stat.get("nr_throttled", 0) / stat["nr_periods"]
    return None


def local_ranks() -> int:
    """Number of processes of the job on this machine, as torchrun says it; 1 where it does not."""
    return _told("LOCAL_WORLD_SIZE")


def hosts_of_job() -> int:
    """Number of machines of the job, as torchrun says it; 1 where it does not."""
    return max(1, _told("WORLD_SIZE") // local_ranks())


def _told(variable: str) -> int:
    text = os.environ.get(variable, "")
    return max(1, int(text)) if text.isdecimal() else 1


def share_of_cpus() -> int:
    """CPUs for one of the processes that torchrun started on this machine (LOCAL_WORLD_SIZE of them), which
    each load for themselves.

    Processes that were bound to CPUs of their own keep those: their masks are small enough for all of them to
    fit the machine.
    """
    cpus, ranks = available_cpus(), local_ranks()
    if ranks < 2 or _bound_cpus() * ranks <= (os.cpu_count() or 1):
        return cpus
    return max(1, cpus // ranks)


def _bound_cpus() -> int:
    """CPUs of this process's affinity mask; all, on a system that has none."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def available_memory(root: Path = ROOT) -> int | None:
    """Bytes that can be allocated without swapping: the system's MemAvailable, cut by what the memory limits
    of the process's control group leave; None when unknown. Reclaimable pages of a group count as free: see
    `_RECLAIMABLE`."""
    free = _numbers(root / "proc/meminfo").get("MemAvailable:")
    if free is None:
        return None
    left = [free * 1024]
    for group in _groups("memory", root):
        limit = _number(group / "memory.max", group / "memory.limit_in_bytes")
        used = _number(group / "memory.current", group / "memory.usage_in_bytes")
        if limit is not None and used is not None:
            left.append(min(limit, limit - used + _reclaimable(group)))
    return max(0, min(left))


def memory_limit(root: Path = ROOT) -> int | None:
    """Bytes that the memory limits of the process's control group allow all processes of the group; None:
    no limit is known."""
    limits = [
        _number(group / "memory.max", group / "memory.limit_in_bytes") for group in _groups("memory", root)
    ]
    known = [limit for limit in limits if limit is not None and limit < _UNLIMITED]
    return min(known, default=None)


def oom_kills(root: Path = ROOT) -> int:
    """Number of processes of this one's control group that the kernel has killed for want of memory; 0 if
    that is unknown.

    The kernel counts a killed process in its own group (and, in version 2, in those above).
    """
    for group in _groups("memory", root):
        for name in ("memory.events", "memory.oom_control"):
            killed = _numbers(group / name).get("oom_kill")
            if killed is not None:
                return killed
    return 0


def _reclaimable(group: Path) -> int:
    stat = _numbers(group / "memory.stat")
    # Version 1 counts the groups below apart: its total_ lines are those that usage_in_bytes and the limit
    # are about.
    return sum(stat.get(f"total_{name}", stat.get(name, 0)) for name in _RECLAIMABLE)


def _groups(controller: str, root: Path) -> Iterator[Path]:
    """The folders of this process's control groups that may limit `controller`, each hierarchy from the
    process's own group upwards."""
    paths: dict[str, str] = {}  # by controller; version 2's is ""
    for line in _lines(root / "proc/self/cgroup"):
        fields = line.split(":", 2)
        if len(fields) == 3:
            paths |= dict.fromkeys(fields[1].split(","), fields[2])
    for line in _lines(root / "proc/self/mountinfo"):
        mount, _, kind = line.partition(" - ")
        places, kinds = mount.split(), kind.split()
        if len(places) < 5 or len(kinds) < 3:
            continue
        named = "" if kinds[0] == "cgroup2" else controller
        if named in paths and (
            kinds[0] == "cgroup2" or (kinds[0] == "cgroup" and controller in kinds[2].split(","))
        ):
            shown, point = (PurePosixPath(_unescaped(place)) for place in places[3:5])
            below = _below(PurePosixPath(paths[named]), shown)
            yield from (root / point.relative_to("/") / each for each in (below, *below.parents))


def _below(path: PurePosixPath, shown: PurePosixPath) -> PurePosixPath:
    """Path of a group in a mount that shows the hierarchy from `shown` on."""
    if ".." in path.parts or not path.is_relative_to(shown):
        return PurePosixPath()
    return path.relative_to(shown)


def _unescaped(place: str) -> str:
    return re.sub(r"\\([0-7]{3})", lambda found: chr(int(found[1], 8)), place)


def _lines(path: Path) -> list[str]:
    try:
        return path.read_text(errors="replace").splitlines()
    except OSError:
        return []


def _words(path: Path) -> list[str]:
    return " ".join(_lines(path)).split()


def _number(*paths: Path) -> int | None:
    """The number in the first of these files that holds one; None for "max"."""
    for path in paths:
        with contextlib.suppress(ValueError, IndexError):
            return int(_words(path)[0])
    return None


def _numbers(path: Path) -> dict[str, int]:
    """Lines of a name and a number."""
    found: dict[str, int] = {}
    for line in _lines(path):
        with contextlib.suppress(ValueError):
            name, value = line.split()[:2]
            found[name] = int(value)
    return found


_M_TRIM_THRESHOLD, _M_MMAP_THRESHOLD = -1, -3
_asked: dict[str, tuple[int, int]] = {}


def keep_memory(purpose: str, largest: int, kept: int) -> None:
    """Makes malloc take blocks of up to `largest` bytes from its heaps, and keep up to `kept` bytes free at
    the end of each.

    Of several purposes in a process the largest limits count, of one purpose those of its last call. Nothing
    is done where the user has set these limits of glibc's malloc, or where malloc is another one. Source:
    mallopt(3).
    """
    if (
        "MALLOC_TRIM_THRESHOLD_" in os.environ
        or "MALLOC_MMAP_THRESHOLD_" in os.environ
        or "glibc.malloc" in os.environ.get("GLIBC_TUNABLES", "")
    ):
        return
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is not None:
        _asked[purpose] = largest, kept
        mallopt(_M_MMAP_THRESHOLD, max(asked[0] for asked in _asked.values()))
        mallopt(_M_TRIM_THRESHOLD, max(asked[1] for asked in _asked.values()))


def return_memory() -> None:
    """Gives free memory of malloc's heaps back to the kernel, where malloc is glibc's. Source:
    malloc_trim(3)."""
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
    if trim is not None:
        trim(0)
