"""Limits on the threads of numeric libraries: OpenMP, BLAS, OpenCV."""

from __future__ import annotations

import functools
import os
import sys

import torch
from threadpoolctl import ThreadpoolController

_THREADS = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS", "OPENCV_FOR_THREADS_NUM")


def hold_threads() -> None:
    """One thread for each numeric library in this process, unless the user set its variable; for libraries
    loaded later as well.

    OpenMP runtimes that are loaded already, torch's among them, get one thread whatever is set, as in torch's
    workers: a fork copies their pools without the threads, and the first parallel region would wait for those
    for ever.
    """
    ours = [name for name in _THREADS if name not in os.environ]
    for name in ours:
        os.environ[name] = "1"
    torch.set_num_threads(1)
    libraries = thread_libraries()
    libraries.limit(limits=1, user_api="openmp")
    if "OPENBLAS_NUM_THREADS" in ours:
        libraries.limit(limits=1, user_api="blas")
        _end_openblas_threads(libraries)
    if "OPENCV_FOR_THREADS_NUM" in ours and "cv2" in sys.modules:
        # sequential. At 1 it would end its pool, and wait for the parent's threads, or crash.
        sys.modules["cv2"].setNumThreads(0)


def _end_openblas_threads(libraries: ThreadpoolController) -> None:
    """Ends the threads that OpenBLAS has just started: in a forked process it starts all of them before it
    takes a limit, and each spins for a tenth of a second. With a limit of 1 it needs none, and whoever sets
    another one has them started again.

    The function is the one that OpenBLAS itself calls before a fork. Source: driver/others/blas_server.c of
    OpenBLAS 0.3.31.
    """
    for library in libraries.lib_controllers:
        if (
            library.internal_api == "openblas"
            and (end := getattr(library.dynlib, "blas_thread_shutdown_", None)) is not None
        ):
            end()


def thread_libraries() -> ThreadpoolController:
    """The loaded libraries whose threads can be counted. To look for them takes milliseconds: a parent
    does, and forks with it."""
    return _thread_libraries(len(sys.modules))


@functools.lru_cache(maxsize=1)
def _thread_libraries(modules: int) -> ThreadpoolController:
    return ThreadpoolController()
