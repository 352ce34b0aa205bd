"""What is ours in /dev/shm, which every program of the machine shares."""

from __future__ import annotations

import os
import re
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
"""Numbers of the processes that came of this one, those that have ended too, in a file that they share."""


def _record(pid: int) -> None:
    os.write(_RECORD, b"%d\n" % pid)


def _start(process: BaseProcess) -> None:
    _START(process)
    if process.pid is not None:
        _record(process.pid)


_START = BaseProcess.start
BaseProcess.start = _start  # type: ignore[method-assign]
os.register_at_fork(after_in_child=lambda: _record(os.getpid()))


def ours_since(before: frozenset[str]) -> set[str]:
    """Names that were not there `before`, are this user's, and that this process or one that came of it made;
    where the name says no maker, that no other process uses."""
    mine = descendants(os.getpid())
    made_by = mine | {int(line) for line in os.pread(_RECORD, os.fstat(_RECORD).st_size, 0).split()}
    new = {name for name in entries() - before if _owner(FOLDER / name) == os.getuid()}
    new = {name for name in new if (made := _MAKER.match(name)) is None or int(made[1]) in made_by}
    others = {int(entry.name) for entry in _listed(Path("/proc")) if entry.name.isdigit()} - mine
    for process in others if new else ():
        new -= used_by(process)
    return new & entries()


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
