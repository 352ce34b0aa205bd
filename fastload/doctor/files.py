"""Check of the number of files that may be open."""

from __future__ import annotations

import os
import resource

from fastload.doctor.finding import Finding, judged
from fastload.doctor.job import PREFETCH, Job

OTHERS = 128
"""Open files of Python, torch, loggers and sockets of a training program."""


def open_files(job: Job, shards: int | None = None) -> Finding:
    """The finding about the limit of open files.

    Args:
        job: the job.
        shards: files of the dataset, which stay open while they are at most a quarter of the limit; None:
            unknown.
    """
    soft, hard = (
        None if limit == resource.RLIM_INFINITY else limit
        for limit in resource.getrlimit(resource.RLIMIT_NOFILE)
    )
    now = len(os.listdir("/proc/self/fd"))
    needed = OTHERS + max(1, job.workers) * (2 + PREFETCH)
    value = {"soft": soft, "hard": hard, "open": now, "needed": needed, "shards": shards}
    text = "no limit" if soft is None else f"a limit of {soft:,}"
    text += f" open files; a job with {job.workers} workers needs about {needed}"
    if shards is not None:
        text += f", and the dataset has {shards:,} shard{'s' * (shards != 1)}"
    faults = {}
    most = max(4096, 1 << (4 * (shards or 0) + needed).bit_length())
    raised = (
        f"ulimit -n {most}" if hard is None or hard >= most else f"raise the hard limit, {hard:,}, to {most}"
    )
    if soft is not None and soft < needed:
        faults["that is too few"] = raised
    elif soft is not None and shards is not None and shards > soft // 4:
        faults["shards beyond a quarter of the limit are opened again and again"] = raised
    return judged("open files", faults, text, value)
