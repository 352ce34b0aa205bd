"""Control groups of tests, where this user may make them."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path

import pytest


@contextlib.contextmanager
def groups(*folders: Path) -> Iterator[None]:
    """These control groups, from the outermost inwards, while the block runs."""
    with contextlib.ExitStack() as made:
        for folder in folders:
            try:
                folder.mkdir()
            except OSError as error:
                pytest.skip(f"no control groups can be made here: {error}")
            made.callback(folder.rmdir)
        yield
