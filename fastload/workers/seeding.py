"""The random state of worker processes: as torch sets it per worker, or anew for every sample."""

from __future__ import annotations

import functools
import hashlib
import operator
import os
import random
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any

import numpy as np
import numpy.random
import torch
from threadpoolctl import ThreadpoolController
from torch.utils.data._utils.worker import _generate_state

from fastload._native import core

_STREAM = 0xFFFF
"""The Philox stream of sample seeds; transforms count theirs up from 0."""


def seed_worker(base_seed: int, worker: int) -> int:
    """Seeds torch, random and NumPy as torch's worker processes do; returns the worker's seed."""
    seed = base_seed + worker
    random.seed(seed)
    torch.manual_seed(seed)
    np.random.seed(_generate_state(base_seed, worker))  # type: ignore[no-untyped-call]
    return seed


def seed_sample(seed: int, epoch: int, index: Any) -> None:
    """Seeds torch, random and NumPy for one sample, from (seed, epoch, index) alone; an index that is no integer counts by its repr."""
    with suppress(TypeError):
        index = operator.index(index)
    if not isinstance(index, int) or index < 0:
        index = int.from_bytes(hashlib.blake2b(repr(index).encode(), digest_size=8).digest(), "little")
    words = core.random_words(seed, epoch, index & (2**64 - 1), _STREAM, 4)
    wide = words[0] | words[1] << 32
    if torch.version.cuda is None and torch.version.hip is None:
        torch.default_generator.manual_seed(wide)  # a seventh of the time
    else:
        torch.manual_seed(wide)
    random.seed(wide)
    np.random.seed(words[2])  # a fourth of the time of a list's


@contextmanager
def kept_state() -> Iterator[None]:
    """Leaves the global generators of torch, random and NumPy as they were."""
    states = torch.get_rng_state(), random.getstate(), np.random.get_state()
    try:
        yield
    finally:
        torch.set_rng_state(states[0])
        random.setstate(states[1])
        np.random.set_state(states[2])


_THREADS = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS", "OPENCV_FOR_THREADS_NUM")


def hold_threads() -> None:
    """One thread for each numeric library in this process, unless the user set its variable; for libraries loaded later as well.

    OpenMP runtimes that are loaded already, torch's among them, get one thread whatever is set, as in torch's workers: a fork copies their
    pools without the threads, and the first parallel region would wait for those for ever.
    """
    ours = [name for name in _THREADS if name not in os.environ]
    for name in ours:
        os.environ[name] = "1"
    torch.set_num_threads(1)
    libraries = thread_libraries()
    libraries.limit(limits=1, user_api="openmp")
    if "OPENBLAS_NUM_THREADS" in ours:
        libraries.limit(limits=1, user_api="blas")
    if "OPENCV_FOR_THREADS_NUM" in ours and "cv2" in sys.modules:
        sys.modules["cv2"].setNumThreads(0)  # sequential. At 1 it would end its pool, and wait for the parent's threads, or crash


def thread_libraries() -> ThreadpoolController:
    """The loaded libraries whose threads can be counted. To look for them takes milliseconds: a parent does, and forks with it."""
    return _thread_libraries(len(sys.modules))


@functools.lru_cache(maxsize=1)
def _thread_libraries(modules: int) -> ThreadpoolController:
    return ThreadpoolController()
