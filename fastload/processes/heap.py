"""Limits of malloc in a worker process: how much freed memory a worker keeps for its next batch."""

from __future__ import annotations

import ctypes
import os

# NOTE [ heap: memory kept between batches ]
# A worker allocates a batch of samples, copies them into a slot and frees them, and then does the same again. glibc's malloc gives free
# memory at the top of its heap back to the kernel from 128 KiB on (M_TRIM_THRESHOLD, which grows with the largest freed mapping, to 64 MiB
# at most), and the next batch faults every page in again: for float tensors of 600 KB, 125 page faults and 0.2 ms a sample, half of a
# worker's time. Whether this happens depends on whether some small object lies above the samples: the rate was 2,700 or 5,000 samples per
# second, from one run to the next. So workers keep up to KEPT bytes at the top of the heap, and take blocks under 32 MiB, glibc's own
# limit, from the heap and not from mappings of their own. A worker's memory stays at the
# peak that it reaches in every batch anyway, and does not grow beyond it.
# Source: mallopt(3), glibc's manual, "Malloc Tunable Parameters".
KEPT = 256 * 2**20
_LARGEST = 32 * 2**20
_M_TRIM_THRESHOLD, _M_MMAP_THRESHOLD = -1, -3


def keep_memory() -> None:
    """Makes malloc keep freed memory in this process, unless the user set its thresholds, or malloc is not glibc's."""
    if (
        "MALLOC_TRIM_THRESHOLD_" in os.environ
        or "MALLOC_MMAP_THRESHOLD_" in os.environ
        or "glibc.malloc" in os.environ.get("GLIBC_TUNABLES", "")
    ):
        return
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is not None:
        mallopt(_M_MMAP_THRESHOLD, _LARGEST)
        mallopt(_M_TRIM_THRESHOLD, KEPT)
