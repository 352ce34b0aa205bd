"""Imports of the libraries of an extra, when they are needed; one message where one is missing."""

from __future__ import annotations

from importlib import import_module
from typing import Any

from fastload.common.distribution import pip_install
from fastload.errors import ArgumentError


def optional(module: str, used_by: str, extra: str = "query") -> Any:
    """The imported module, which an extra of this distribution installs.

    Raises:
        ArgumentError: it is not installed; the message says what to install.
    """
    try:
        return import_module(module)
    except ImportError as error:
        raise ArgumentError(
            f"{used_by} needs {module}, which cannot be imported ({error}): {pip_install(extra)}"
        ) from error
