"""What is ours in /dev/shm, which every program of the machine shares."""

from __future__ import annotations

import os
import re
import time
from collections.abc import Iterable
from multiprocessing.process import BaseProcess
from pathlib import Path

FOLDER = Path("/dev/shm")


def entries() -> frozenset[str]:
    """All names there now."""
    return frozenset(os.listdir(FOLDER))


def descendants(pid: int) -> set[int]:
    """A process and all its offspring that is alive."""
    found, todo = set(), [pid]
    while todo:
        found.add(each := todo.pop())
        for task in _listed(Path(f"/proc/{each}/task")):
            try:
                todo += [int(child) for child in (task / "children").read_text().split()]
            except OSError:
                continue
    return found


def used_by(pid: int) -> set[str]:
    """Names that a process has mapped or open."""
    try:
        lines = Path(f"/proc/{pid}/maps").read_text().splitlines()
    except OSError:
        return set()
    paths = [line.split(maxsplit=5)[-1] for line in lines if "/dev/shm/" in line]
    for link in _listed(Path(f"/proc/{pid}/fd")):
        try:
            paths.append(os.readlink(link))
        except OSError:
            continue
    return {Path(path).name for path in paths if path.startswith("/dev/shm/")}


_MAKER = re.compile(r"torch_(\d+)_")
_RECORD = os.memfd_create("processes of this test process")
"""Numbers of the processes that came of this one, those that have ended too, and when each began, in a file
that they share."""
_LIFE_S = 120
"""After which a number that has ended may be another program's: the system gives it again."""


def _record(pid: int) -> None:
    os.write(_RECORD, b"%d %f\n" % (pid, time.time()))


def _start(process: BaseProcess) -> None:
    _START(process)
    if process.pid is not None:
        _record(process.pid)


_START = BaseProcess.start
BaseProcess.start = _start  # type: ignore[method-assign]
os.register_at_fork(after_in_child=lambda: _record(os.getpid()))


def _begins() -> dict[int, float]:
    """When the last process of each number began that came of this one."""
    lines = os.pread(_RECORD, os.fstat(_RECORD).st_size, 0).splitlines()
    return {int(pid): float(began) for pid, began in map(bytes.split, lines)}


def ours_since(before: frozenset[str]) -> set[str]:
    """Names of torch's that were not there `before`, are this user's, and that this process or one that came
    of it made. Other names are other programs': fastload makes none there."""
    mine = descendants(os.getpid())
    others = {int(entry.name) for entry in _listed(Path("/proc")) if entry.name.isdigit()} - mine
    begins = _begins()

    def is_ours(name: str) -> bool:
        if (made := _MAKER.match(name)) is None:
            return False
        maker = int(made[1])
        after = _changed(FOLDER / name) - begins.get(maker, 0)
        return maker in mine or (maker not in others and -1 < after < _LIFE_S)

    new = {name for name in entries() - before if _owner(FOLDER / name) == os.getuid() and is_ours(name)}
    for process in others if new else ():
        new -= used_by(process)
    return new & entries()


def _changed(path: Path) -> float:
    try:
        return path.lstat().st_ctime
    except OSError:
        return 0


def _owner(path: Path) -> int | None:
    try:
        return path.lstat().st_uid
    except OSError:
        return None


def _listed(folder: Path) -> Iterable[Path]:
    try:
        return list(folder.iterdir())
    except OSError:
        return []
