"""own_obstore: the package obstore for the calling process; a forked process gets another copy than its
parent's.

NOTE [ obstore after a fork ]
obstore runs its requests on a tokio runtime that it starts at its first use and keeps for ever: worker
threads and an epoll instance. A forked child has none of the threads, and shares the epoll instance with its
parent. Tried with obstore 0.12.1 and a real server:

- A child of a parent that never used obstore may use it. So may a child whose parent only made stores.
- A child of a parent that has made one request hangs in its first request, blocking or awaited, also with
  stores of its own.
- Its attempt also harms the parent: sockets of both are in one epoll instance, and the parent's next request
  hangs as well.
- Dropping a store that the child inherited wakes the parent's runtime, and may wait for a lock that a thread
  held which the fork lost.

Therefore the child loads obstore's extension module a second time, from a copy of its file. The dynamic
linker takes the copy for another library, with its own variables and so its own runtime. That costs 17 ms,
and 15 MB in an anonymous file that all children of one parent share, made by the first child that needs it.
The child keeps the parent's stores alive for ever. So worker processes that fork, as torch's DataLoader makes
them, read remote data like any other process, with connections of their own.

NOTE [ obstore at the interpreter's end ]
A thread of tokio that asks for the GIL while the interpreter ends is ended by it, and Rust answers with
abort(): exit status 134 in a third of programs that ended right after an awaited request. The exit handler
waits until these threads sleep.
"""

from __future__ import annotations

import atexit
import contextlib
import ctypes
import fcntl
import importlib
import importlib.machinery
import importlib.util
import os
import sys
import threading
import time
import weakref
from types import ModuleType
from typing import Protocol

from fastload.common.system import keep_memory, share_of_cpus
from fastload.errors import ClosedError

_THREADS = "TOKIO_WORKER_THREADS"
_MOST_THREADS = 4
"""Most worker threads of tokio: each brings about a gigabyte per second."""
_CPUS_A_THREAD = 4
_LARGEST, _KEPT = 16 << 20, 32 << 20
"""Limits of malloc: a body of 2 MiB is otherwise a mapping of its own, whose 512 pages the kernel clears for
every request: a sixth of the CPU that fetching takes."""


def start(obstore: ModuleType) -> None:
    """Starts obstore's runtime, unless this process has it already.

    Tokio takes a thread for each CPU, and these wake each other for every request. Here it takes one for
    every four CPUs, unless the user has set TOKIO_WORKER_THREADS: on two CPUs that saves 5 % of the CPU that
    fetching takes, and the memory that malloc keeps for each thread.
    """
    keep_memory("requests", _LARGEST, _KEPT)
    given = os.environ.get(_THREADS)
    if given is None:
        os.environ[_THREADS] = str(max(1, min(_MOST_THREADS, share_of_cpus() // _CPUS_A_THREAD)))
    try:
        obstore.put(obstore.store.MemoryStore(), "start", b"")  # the first request of a process starts it
    finally:
        if given is None:
            del os.environ[_THREADS]


_NATIVE = "obstore._obstore"
_WORKER_THREAD = "tokio-rt-worker"
_EXIT_LIMIT = 1.0
"""Most seconds that the end of the program waits for tokio's threads to sleep."""

_lock = threading.Lock()  # guards _module
_module: ModuleType | None = None
_forked_after_use = False
_spare_file = -1
"""Descriptor of an anonymous file for children: empty, or a copy of the extension module, written under a
lock on it."""
_origin = ""
"""The path of the extension module that pip installed."""


class Holder(Protocol):
    """A client, which holds stores."""

    def close(self) -> None:
        """Cancels all awaited requests, and drops the stores."""


_holders: weakref.WeakSet[Holder] = weakref.WeakSet()


def own_obstore() -> ModuleType:
    """The package obstore for this process, with `store` and `exceptions` imported.

    Raises:
        ClosedError: the process was forked after its parent used obstore, and no copy can be loaded.
    """
    global _module
    with _lock:
        if _module is None:
            used_before = _NATIVE in sys.modules
            # Imported by other code and without threads: it was not used yet, or a fork that fastload did not
            # see lost its threads.
            if _forked_after_use or (used_before and not worker_threads()):
                _module = _loaded_copy()
            else:
                _module = _imported()
        return _module


def add_holder(holder: Holder) -> None:
    """Registers an object that holds stores: forked children keep it alive for ever, and the end of the
    program closes it."""
    _holders.add(holder)


def worker_threads() -> list[str]:
    """The /proc folders of this process's tokio threads."""
    found = []
    with contextlib.suppress(OSError):
        for thread in os.listdir("/proc/self/task"):
            with contextlib.suppress(OSError), open(f"/proc/self/task/{thread}/comm") as comm:
                if comm.read().strip() == _WORKER_THREAD:
                    found.append(f"/proc/self/task/{thread}")
    return found


def _imported() -> ModuleType:
    global _origin
    obstore = importlib.import_module("obstore")
    for part in ("store", "exceptions"):
        importlib.import_module(f"obstore.{part}")
    if not _origin:
        spec = sys.modules[_NATIVE].__spec__
        _origin = "" if spec is None else spec.origin or ""
    _make_spare_file()  # now: a fork then leaves this process's descriptors as they are
    start(obstore)
    return obstore


def _loaded_copy() -> ModuleType:
    """Imports the package anew around a second copy of its extension module; sys.modules stays as it was."""
    global _origin
    if not _origin:
        found = importlib.util.find_spec(_NATIVE)
        _origin = (found.origin if found else None) or ""
    saved = {name: sys.modules.pop(name) for name in _names()}
    try:
        # The linker recognises a library by the text of its path: with this process's ID in it, the path is
        # no ancestor's.
        path = f"/proc/self/task/{os.getpid()}/fd/{_filled_copy()}"
        loader = importlib.machinery.ExtensionFileLoader(_NATIVE, path)
        spec = importlib.util.spec_from_file_location(_NATIVE, path, loader=loader)
        assert spec is not None
        native = importlib.util.module_from_spec(spec)
        sys.modules[_NATIVE] = native
        loader.exec_module(native)
        return _imported()
    except (OSError, ImportError) as error:
        raise ClosedError(
            "this process was forked from one that had read remote data, and obstore cannot be "
            "loaded a second time here "
            f"({type(error).__name__}): start workers with multiprocessing_context='spawn'"
        ) from error
    finally:
        for name in _names():
            del sys.modules[name]
        sys.modules.update(saved)


def _names() -> list[str]:
    return [name for name in sys.modules if name == "obstore" or name.startswith("obstore.")]


def _filled_copy() -> int:
    """A descriptor of a copy of the extension module; the first of the parent's children makes the copy.
    It is never closed."""
    global _spare_file
    file, _spare_file = (_spare_file if _spare_file >= 0 else _anonymous_file()), -1
    # Opened anew: a lock belongs to an open file, and all children inherit one and the same.
    with open(f"/proc/self/fd/{file}", "r+b") as copy, open(_origin, "rb") as original:
        fcntl.flock(copy, fcntl.LOCK_EX)
        size = os.fstat(original.fileno()).st_size
        done = os.fstat(copy.fileno()).st_size
        os.lseek(copy.fileno(), done, os.SEEK_SET)  # not 0 if a child was killed meanwhile
        while done < size:
            done += os.sendfile(copy.fileno(), original.fileno(), done, size - done)
    return file


def _anonymous_file() -> int:
    return os.memfd_create("fastload-obstore", os.MFD_CLOEXEC)


def _before_fork() -> None:
    """Makes the file that children share if obstore was used. It holds the lock over the fork: the child
    must not inherit it taken."""
    _lock.acquire()
    if _NATIVE in sys.modules and worker_threads():
        _make_spare_file()


def _make_spare_file() -> None:
    global _spare_file
    if _spare_file < 0:
        with contextlib.suppress(OSError):
            _spare_file = _anonymous_file()


def _after_fork_in_parent() -> None:
    _lock.release()


def _after_fork_in_child() -> None:
    global _module, _forked_after_use
    if _module is not None:
        # Never freed, even at the interpreter's end: NOTE [ obstore after a fork ].
        for kept in (_module, *_holders):
            ctypes.pythonapi.Py_IncRef(ctypes.py_object(kept))
    _forked_after_use = _forked_after_use or _NATIVE in sys.modules
    _module = None
    _lock.release()


def _at_exit() -> None:
    """Closes all clients and waits until all threads of tokio sleep: then none asks for the GIL while the
    interpreter ends."""
    if _module is None:
        return
    for holder in list(_holders):
        holder.close()
    end = time.monotonic() + _EXIT_LIMIT
    asleep = 0
    while asleep < 3 and time.monotonic() < end:
        time.sleep(0.002)  # releases the GIL
        asleep = asleep + 1 if all(_sleeps(thread) for thread in worker_threads()) else 0


def _sleeps(thread: str) -> bool:
    with contextlib.suppress(OSError), open(f"{thread}/stat") as stat:
        return stat.read().rpartition(")")[2].split()[0] == "S"
    return True


os.register_at_fork(
    before=_before_fork, after_in_parent=_after_fork_in_parent, after_in_child=_after_fork_in_child
)
atexit.register(_at_exit)
