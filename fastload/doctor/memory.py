"""Checks of memory: what is left to this process, /dev/shm, and what may be locked."""

from __future__ import annotations

import os
import resource
from collections.abc import Iterator
from pathlib import Path

from fastload.common.progress import human_bytes
from fastload.common.system import available_memory, memory_limit, oom_kills
from fastload.doctor.finding import Finding, judged
from fastload.doctor.job import PREFETCH, Job

SHM = Path("/dev/shm")
SHM_LEAST = 16 << 20
"""Free bytes of /dev/shm that multiprocessing's semaphores, OpenMP and a few buffers of NCCL have room in."""
SLOTS_MOST = 0.5
"""Share of the available memory from which the batches in flight leave too little for all else."""


def memory_findings(job: Job) -> Iterator[Finding]:
    """Findings about memory."""
    yield _memory(job)
    yield _shm(job)
    yield _memlock()


def _memory(job: Job) -> Finding:
    free, limit, killed = available_memory(), memory_limit(), oom_kills()
    value = {"available": free, "limit": limit, "slots": job.slots_bytes, "oom_kills": killed}
    if free is None:
        return Finding(
            "memory", "unknown", "the system does not say how much memory is available", value=value
        )
    text = f"{human_bytes(free)} available, " + (
        "no limit" if limit is None else f"a limit of {human_bytes(limit)}"
    )
    text += f"; batches in flight take {human_bytes(job.slots_bytes)}"
    faults = {}
    if job.slots_bytes > free * SLOTS_MOST:
        faults["that leaves too little for all else"] = "a smaller --batch-size, or more memory"
    if killed:
        faults[
            f"the kernel has killed {killed} process{'es' * (killed != 1)} of this control group for "
            "want of memory"
        ] = "raise the memory limit, or start fewer processes"
    return judged("memory", faults, text, value)


def _shm(job: Job) -> Finding:
    torchs = max(1, job.workers) * PREFETCH * job.batch_bytes
    try:
        found = os.statvfs(SHM)
    except OSError as error:
        remedy = "mount a tmpfs there (docker --shm-size=1g)"
        return Finding(
            "/dev/shm",
            "bad",
            f"it cannot be used ({error.strerror}), and multiprocessing has its semaphores there",
            remedy,
        )
    size, free = found.f_blocks * found.f_frsize, found.f_bavail * found.f_frsize
    value = {"size": size, "free": free, "loader": 0, "torch_dataloader": torchs}
    text = f"{human_bytes(free)} free of {human_bytes(size)}; FastLoader's batches lie elsewhere"
    if free < torchs:
        text += f", torch's own DataLoader would fill {human_bytes(torchs)} of it"
    faults = {}
    if free < SHM_LEAST:
        faults["too little for semaphores, OpenMP and NCCL"] = (
            "free it, or make it larger (docker --shm-size=1g, or an emptyDir of medium Memory)"
        )
    elif not os.access(SHM, os.W_OK):
        faults["this user may not write to it"] = "chmod 1777 /dev/shm"
    return judged("/dev/shm", faults, text, value)


def _memlock() -> Finding:
    soft, _ = resource.getrlimit(resource.RLIMIT_MEMLOCK)
    endless = soft == resource.RLIM_INFINITY
    fabric = Path("/sys/class/infiniband")
    has_fabric = fabric.is_dir() and any(fabric.iterdir())
    value = {"soft": None if endless else soft, "infiniband": has_fabric}
    text = (
        "no limit" if endless else f"a limit of {human_bytes(soft)}"
    ) + " of locked memory; the loader locks none"
    faults = {}
    if has_fabric and not endless:
        faults["NCCL over InfiniBand needs it without a limit"] = (
            "ulimit -l unlimited (docker --ulimit memlock=-1)"
        )
    return judged("memlock", faults, text, value)
