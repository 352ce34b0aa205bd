"""Run by test_change_kill: changes datasets in forked children that SIGKILL themselves at one point each, then looks and goes on.

Usage: change_kill_points.py CHANGE FOLDER. Prints the number of points. The points are every call that changes what is on the disk.
"""

from __future__ import annotations

import os
import shutil
import signal
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import kill_points
from versions_helpers import Shapes, check_shapes, packed

import fastload
from fastload.errors import PackError
from fastload.packing import verify
from fastload.store import DatasetChange, Manifest
from fastload.versions.append import remove_work

kill_points.CALLS += [(os, "link"), (os, "write"), (Path, "mkdir"), (Path, "rmdir")]


@dataclass(frozen=True)
class Change:
    """A change, the numbers of the samples before and after it, and how it is done again."""

    do: Callable[[Path], object]
    before: list[int]
    after: list[int]
    again: Callable[[Path], object] | None = None


def append(out: Path) -> None:
    """Appends four samples; goes on where that was begun."""
    try:
        fastload.append(out, Shapes(20, 4), workers=2, resume=(out / "append.tmp").is_dir())
    except PackError as error:
        assert "added its samples already" in str(error), error


CHANGES = {
    "append": Change(append, list(range(20)), list(range(24))),
}


def look(out: Path, change: Change) -> None:
    """The dataset is the old version or the new one, whole."""
    now = Manifest.load(out).version
    check_shapes(out, change.after if now == 3 else change.before)
    assert verify(out, workers=1).ok
    check_shapes(out, list(range(19)), version=1)


def finish(out: Path, change: Change) -> None:
    """A following command works, and leaves nothing else behind."""
    if Manifest.load(out).version == 2 or (out / "append.tmp").exists():
        change.do(out)
    DatasetChange(out, "").close()
    remove_work(out / "append.old")  # as the next append and prune do
    assert Manifest.load(out).version == 3
    look(out, change)
    named = {name for version in (1, 2, 3) for shard in Manifest.load(out, version).shards for _, name in shard.files}
    assert set(os.listdir(out)) == named | {"manifest.json", "manifest-00001.json", "manifest-00002.json"}


def main(change: Change, folder: Path) -> None:
    """Kills at point 1, 2, ... until a run ends unharmed."""
    base = folder / "base"

    def make() -> None:
        packed(base, 0, 19)
        fastload.append(base, Shapes(19, 1))

    assert kill_points.in_child(make) == 0
    point = 0
    while True:
        point += 1
        out = folder / f"killed-{point}"
        shutil.copytree(base, out)

        def attempt(limit: int = point, out: Path = out) -> None:
            kill_points.count_down(limit)
            change.do(out)

        status = kill_points.in_child(attempt)
        if status == 0:
            break
        assert os.WIFSIGNALED(status), f"point {point}: status {status}"
        assert os.WTERMSIG(status) == signal.SIGKILL, f"point {point}: status {status}"
        for check in (lambda out=out: look(out, change), lambda out=out: finish(out, change)):
            assert kill_points.in_child(check) == 0, f"point {point}"
        shutil.rmtree(out)
    sys.stdout.write(f"{point - 1}\n")


if __name__ == "__main__":
    main(CHANGES[sys.argv[1]], Path(sys.argv[2]))
