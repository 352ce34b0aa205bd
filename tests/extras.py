"""Packages that tests do without: a test, or a file of tests, that imports one which is not installed is
skipped, and says so."""

from __future__ import annotations

from collections.abc import Iterable
from importlib.util import find_spec
from typing import Any, NoReturn

import pytest

EXTRAS = frozenset(
    "accelerate asyncssh cv2 datasets duckdb fsspec ignite kornia lightly lightning litdata "
    "matplotlib mypy obstore paramiko "
    "playwright prometheus_client pyarrow pycocotools ray scipy skimage sklearn starlette streaming "
    "tensorboard timm torchdata "
    "torchvision triton uvicorn webdataset yaml".split()
)
"""Names under which they are imported. Tests need pytest, pytest-timeout, hypothesis and Pillow beside
fastload's own dependencies."""


class TestFile(pytest.Module):
    """A test file, which is skipped where an import at its top, or in a module that it imports, finds one
    of EXTRAS missing."""

    __test__ = False

    def collect(self) -> Iterable[Any]:
        """The file's tests. Skips the file if a package of EXTRAS is missing."""
        try:
            return super().collect()
        except self.CollectError as error:
            missing = missing_extra(error)
            if missing is None:
                raise
        skip_without(missing)


def missing_extra(error: BaseException | None) -> str | None:
    """The package of EXTRAS that is not installed, whose absence is the cause of an error; None: it has
    another cause."""
    while error is not None:
        if isinstance(error, ModuleNotFoundError) and error.name is not None:
            package = error.name.partition(".")[0]
            return package if package in EXTRAS and find_spec(package) is None else None
        error = error.__cause__ or error.__context__
    return None


def needed(*packages: str) -> None:
    """Skips the file if one of EXTRAS is not installed, and imports none: each test process collects every
    file."""
    for package in packages:
        if find_spec(package) is None:
            skip_without(package)


def skip_without(package: str) -> NoReturn:
    """Skips the test, or the file of tests, that needs a package which is not installed."""
    pytest.skip(f"needs {package}, which is not installed", allow_module_level=True)
