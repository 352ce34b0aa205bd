"""What the tests of packing on a cluster share."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

from packing_helpers import encoded, picture, tree

from fastload.packing import PackSummary

COUNT = 40
EACH = 6


def folder(root: Path, bad: tuple[int, ...] = (), count: int = COUNT) -> Path:
    """Images of different sizes in three classes; those of `bad` cannot be decoded."""
    names = [f"c{i * 3 // count}/{i:04d}.jpg" for i in range(count)]
    images = (b"broken" if i in bad else encoded(picture(i, 20 + 7 * (i % 4), 30)) for i in range(count))
    return tree(root, dict(zip(names, images, strict=True)))


def path_of(root: Path, number: int) -> Path:
    """The file of an image of `folder`."""
    return next(root.glob(f"*/{number:04d}.jpg"))


def files_of(out: Path) -> dict[str, bytes]:
    """Names and contents of all files of a folder."""
    return {path.name: path.read_bytes() for path in sorted(out.iterdir())}


def counts(summary: PackSummary) -> dict[str, Any]:
    """A summary without what differs from run to run."""
    return {**dataclasses.asdict(summary), "seconds": 0.0, "packed_now": 0}
