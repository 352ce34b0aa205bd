"""Run by test_writer: writes datasets in forked children that SIGKILL themselves at one point each, then
resumes each.

Usage: kill_points.py FOLDER. Prints the number of points. The points are every call that changes what is on
the disk.
"""

from __future__ import annotations

import os
import shutil
import signal
import sys
from collections.abc import Callable, Iterable, Iterator
from itertools import count
from pathlib import Path
from typing import Any

from store_helpers import contents, write

from fastload.errors import DatasetError
from fastload.store import DatasetReader, shard, writer

COUNT = 60
CALLS = [
    (os, "fsync"),
    (os, "replace"),
    (os, "truncate"),
    (os, "open"),
    (Path, "unlink"),
    (shard.ShardFile, "_commit"),
]


def count_down(limit: int) -> list[int]:
    """Makes every point count; the one that reaches limit kills the process. Returns the count, as a list
    of one."""
    seen = [0]

    def wrap(call: Callable[..., Any]) -> Callable[..., Any]:
        def wrapped(*args: Any, **kwargs: Any) -> Any:
            seen[0] += 1
            if seen[0] == limit:
                os.kill(os.getpid(), signal.SIGKILL)
            return call(*args, **kwargs)

        return wrapped

    for owner, name in CALLS:
        setattr(owner, name, wrap(getattr(owner, name)))
    return seen


def in_child(action: Callable[[], None]) -> int:
    """Runs the action in a forked child; returns its wait status."""
    child = os.fork()
    if child == 0:
        try:
            action()
            os._exit(0)
        except BaseException:
            sys.excepthook(*sys.exc_info())
            os._exit(1)
    return os.waitpid(child, 0)[1]


def killed(
    folder: Path, act: Callable[[Path], object], base: Path | None = None
) -> Iterator[tuple[int, Path]]:
    """(point, what is left) of a run that is killed at point 1, 2, ..., until one ends unharmed.

    Args:
        folder: where the outputs lie.
        act: what is done to an output; in a child.
        base: what each output is a copy of; None: it does not exist.
    """

    def out_of(point: int) -> Path:
        return folder / f"killed-{point}"

    def prepared() -> Iterator[int]:
        for point in count(1):
            if base is not None:
                shutil.copytree(base, out_of(point))
            yield point

    for point in killed_at(prepared(), lambda point: act(out_of(point))):
        yield point, out_of(point)


def killed_at(points: Iterable[int], act: Callable[[int], object]) -> Iterator[int]:
    """The points at which a run of `act`, in a child, was killed, until one ends unharmed; it is told the
    point."""
    for point in points:

        def attempt(point: int = point) -> None:
            count_down(point)
            act(point)

        status = in_child(attempt)
        if status == 0:
            return
        assert os.WIFSIGNALED(status), f"point {point}: status {status}"
        assert os.WTERMSIG(status) == signal.SIGKILL, f"point {point}: status {status}"
        yield point


def main(folder: Path) -> None:
    """Kills at point 1, 2, ... until a run ends unharmed; each must be unreadable, and equal the
    uninterrupted one when resumed."""
    assert writer.JOURNAL_NAME == "progress.json"
    whole = folder / "whole"
    assert in_child(lambda: (write(whole, COUNT), None)[1]) == 0
    expected = contents(whole)
    point = 0
    for point, out in killed(folder, lambda out: write(out, COUNT, resume=True)):
        complete = (out / "manifest.json").exists()
        try:
            DatasetReader(out).close()
            assert complete
        except DatasetError as error:
            assert not complete, error
        assert in_child(lambda out=out: (write(out, COUNT, resume=True), None)[1]) == 0, f"point {point}"
        assert contents(out) == expected, f"point {point}"
        assert sorted(os.listdir(out)) == sorted(os.listdir(whole)), f"point {point}"
    sys.stdout.write(f"{point}\n")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
