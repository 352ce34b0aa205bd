"""obstore is started with few threads and reusable memory, unless the user's environment says otherwise."""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap

import pytest

pytest.importorskip("obstore")

THREADS = """
    import os, time
    from fastload.remote.obstore_process import own_obstore, worker_threads
    from fastload.common.system import share_of_cpus
    before = dict(os.environ)
    obstore = own_obstore()
    assert dict(os.environ) == before
    expected = int(before.get("TOKIO_WORKER_THREADS", max(1, min(4, share_of_cpus() // 4))))
    end = time.monotonic() + 10
    while len(worker_threads()) < expected and time.monotonic() < end:
        time.sleep(0.01)  # a thread takes its name when it first runs
    time.sleep(0.1)
    assert len(worker_threads()) == expected, (worker_threads(), expected)
"""
MEMORY = """
    import ctypes
    from fastload.remote import obstore_process as runtime

    class Info(ctypes.Structure):
        names = "arena ordblks smblks hblks hblkhd usmblks fsmblks uordblks fordblks keepcost"
        _fields_ = [(name, ctypes.c_size_t) for name in names.split()]

    libc = ctypes.CDLL(None)
    libc.mallinfo2.restype, libc.malloc.restype, libc.free.argtypes = Info, ctypes.c_void_p, [ctypes.c_void_p]

    def mappings():
        before, block = libc.mallinfo2().hblks, libc.malloc(8 << 20)
        made = libc.mallinfo2().hblks - before
        libc.free(block)
        return made

    runtime.keep_memory("requests", runtime._LARGEST, runtime._KEPT)
    assert mappings() == 0
"""


def run(program: str, **environment: str) -> None:
    """Runs a program; it must end with status 0."""
    values = {
        **{key: value for key, value in os.environ.items() if not key.startswith(("TOKIO_", "MALLOC_"))},
        **environment,
    }
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(program)],
        env=values,
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.returncode == 0, done.stderr


def test_there_is_a_thread_for_four_cpus() -> None:
    """The runtime has that many threads, at most four, and the environment is as before."""
    run(THREADS)


def test_the_users_number_of_threads_holds() -> None:
    """TOKIO_WORKER_THREADS is left as it is."""
    run(THREADS, TOKIO_WORKER_THREADS="3")


def test_a_body_is_no_mapping_of_its_own() -> None:
    """A block of 8 MiB lies in malloc's heap, even the first one."""
    run(MEMORY)
