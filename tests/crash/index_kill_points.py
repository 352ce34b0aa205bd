"""Run by test_index_kill: indexes copies of a dataset in forked children that SIGKILL themselves at one point
each, then looks and goes on.

Usage: index_kill_points.py BARE EXPECTED FOLDER. Prints the number of points. The points are every call that
changes what is on the disk.
"""

from __future__ import annotations

import os
import shutil
import sys
from pathlib import Path

from kill_points import in_child, killed
from store_helpers import contents

from fastload.packing import index, verify
from fastload.store import Manifest


def look(out: Path) -> None:
    """The dataset is whole."""
    assert verify(out, workers=1).ok


def finish(out: Path, expected: Path) -> None:
    """Another run does the rest, and leaves nothing else behind."""
    index(out, workers=2)
    assert contents(out) == contents(expected)
    mine, other = Manifest.load(out), Manifest.load(expected)
    assert (mine.options, mine.summary) == (other.options, other.summary)
    named = [*(shard.file for shard in mine.shards), *(sidecar.file for sidecar in mine.sidecars)]
    assert sorted(os.listdir(out)) == sorted(["manifest.json", *named])


def main(bare: Path, expected: Path, folder: Path) -> None:
    """Kills at point 1, 2, ... until a run ends unharmed."""
    point = 0
    for point, out in killed(folder, lambda out: index(out, workers=2), bare):
        for check in (lambda out=out: look(out), lambda out=out: finish(out, expected)):
            assert in_child(check) == 0, f"point {point}"
        shutil.rmtree(out)
    sys.stdout.write(f"{point}\n")


if __name__ == "__main__":
    main(*(Path(argument) for argument in sys.argv[1:]))
