"""Hides from fastload what macOS and Windows lack, in each process that has FASTLOAD_HIDDEN=darwin or win32.

The interpreter imports this module itself where its folder is on PYTHONPATH, also in worker processes that
are spawned. torch and the standard library run as they do on Linux: names of modules, and sys.platform, are
other ones for fastload and the program alone.
"""

from __future__ import annotations

import builtins
import importlib.abc
import io
import os
import sys
from types import ModuleType

_MISSING = {
    "win32": {
        "os": "fork memfd_create register_at_fork sched_getaffinity sched_setaffinity getuid geteuid pread "
        "pwrite preadv posix_fadvise posix_fallocate pidfd_open statvfs sysconf O_CLOEXEC O_DIRECTORY "
        "O_NOFOLLOW O_NOCTTY O_NONBLOCK O_DIRECT",
        "signal": "SIGHUP SIGUSR1 SIGUSR2 SIGALRM SIGKILL SIGBUS setitimer alarm",
        "socket": "CMSG_SPACE CMSG_LEN MSG_CMSG_CLOEXEC SCM_RIGHTS send_fds recv_fds",
        "select": "poll epoll POLLIN POLLOUT",
    },
    "darwin": {
        "os": "memfd_create sched_getaffinity sched_setaffinity posix_fadvise posix_fallocate pidfd_open "
        "O_DIRECT",
        "socket": "MSG_CMSG_CLOEXEC",
    },
}
_MODULES = {"win32": ("fcntl", "resource", "pwd", "grp", "termios"), "darwin": ()}


class _Refuse(importlib.abc.MetaPathFinder):
    """Refuses the native module, which lies in the source tree."""

    def find_spec(self, name: str, path: object = None, target: object = None) -> None:
        if name == "fastload._native.core":
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)


def _hide(system: str) -> None:
    import asyncio  # noqa: F401
    import multiprocessing.spawn
    import multiprocessing.synchronize  # noqa: F401
    import subprocess  # noqa: F401
    import tempfile  # noqa: F401

    for name, missing in _MISSING[system].items():
        _hide_names(sys.modules[name], frozenset(missing.split()))
    for name in _MODULES[system]:
        sys.modules[name] = None  # type: ignore[assignment]
    plain = io.open

    def opened(file: object, *arguments: object, **options: object) -> object:
        if isinstance(file, str | os.PathLike) and os.fspath(file).startswith(("/proc", "/sys")):
            raise FileNotFoundError(2, "No such file or directory", str(file))
        return plain(file, *arguments, **options)

    builtins.open = io.open = opened
    sys.meta_path.insert(0, _Refuse())
    sys.__class__ = type("_Sys", (_Module,), {"platform": property(_platform, lambda *_: None)})


class _Module(ModuleType):
    """A module of another class, which cloudpickle takes for one all the same."""

    def __reduce__(self) -> tuple[object, ...]:
        return importlib.import_module, (self.__name__,)


def _asked_by_fastload() -> bool:
    """True if the caller's caller is a module of fastload's, or the program."""
    caller = str(sys._getframe(2).f_globals.get("__name__"))
    return caller.partition(".")[0] in ("fastload", "__main__")


def _platform(module: object) -> str:
    return os.environ["FASTLOAD_HIDDEN"] if _asked_by_fastload() else "linux"


def _hide_names(module: ModuleType, missing: frozenset[str]) -> None:
    """Lets a module lack some names where fastload asks for them."""

    class Lacking(_Module):
        def __getattribute__(self, name: str) -> object:
            if name in missing and _asked_by_fastload():
                raise AttributeError(f"module {module.__name__!r} has no attribute {name!r}")
            return super().__getattribute__(name)

    module.__class__ = Lacking


if os.environ.get("FASTLOAD_HIDDEN"):
    _hide(os.environ["FASTLOAD_HIDDEN"])
