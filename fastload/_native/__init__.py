"""The native module `core`: all of csrc as Python sees it."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path


def _check_built() -> None:
    """Checks that the native module lies here. Raises ImportError with what to do about it."""
    if importlib.util.find_spec(f"{__name__}.core") is not None:
        return
    root, python = (
        Path(__file__).resolve().parents[2],
        f"Python {sys.version_info.major}.{sys.version_info.minor}",
    )
    if (root / "csrc").is_dir():
        raise ImportError(
            f"{root} is a checkout of fastload whose native module is not built for this {python}: "
            "build it (make build), or, if another "
            "fastload is installed, run from another folder than this checkout"
        )
    raise ImportError(
        f"the fastload in {root} has no native module for this {python}: install it again with this "
        "Python's pip"
    )


_check_built()
