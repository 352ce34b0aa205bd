"""Start of obstore's runtime in a process: with few threads, and with memory that is used again for the next body."""

from __future__ import annotations

import os
from typing import Any

import numpy as np

from fastload.common.system import share_of_cpus

_THREADS = "TOKIO_WORKER_THREADS"
_MOST_THREADS = 4
"""One thread of tokio brings about a gigabyte per second."""
_CPUS_A_THREAD = 4
_KEPT = 16 << 20


def start(obstore: Any) -> None:
    """Starts obstore's runtime, unless this process has it already.

    Tokio takes a thread for each CPU, and these wake each other for every request. Here there is one for every four CPUs, unless the user
    says otherwise in TOKIO_WORKER_THREADS: on two CPUs that saves 5 % of the CPU that fetching takes, and what malloc keeps for each.
    """
    keep_memory()
    given = os.environ.get(_THREADS)
    if given is None:
        os.environ[_THREADS] = str(max(1, min(_MOST_THREADS, share_of_cpus() // _CPUS_A_THREAD)))
    try:
        obstore.put(obstore.store.MemoryStore(), "start", b"")  # the first request of a process starts it
    finally:
        if given is None:
            del os.environ[_THREADS]


def keep_memory() -> None:
    """Makes glibc's malloc take blocks of up to 16 MiB from its heaps, and keep up to 32 MiB free at the end of each.

    A body of 2 MiB is otherwise a mapping of its own, whose 512 pages the kernel clears for every request: a sixth of the CPU that fetching
    takes. malloc raises these limits by itself when such a mapping is freed, and does not where the user has set them: mallopt(3).
    """
    np.empty(_KEPT, np.uint8)  # never touched
