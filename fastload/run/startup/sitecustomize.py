"""First module of each Python process of a drop-in run. See NOTE [ run: how a program is met ].

A failure here must not end the program: it is told in one line, and torch's own DataLoader runs.
"""

from __future__ import annotations

import contextlib
import importlib
import importlib.util
import os
import sys


def _begin() -> None:
    """Waits for torch, with the copy of fastload that this file belongs to."""
    fastload = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
    if "fastload" not in sys.modules:
        spec = importlib.util.spec_from_file_location(
            "fastload", os.path.join(fastload, "__init__.py"), submodule_search_locations=[fastload]
        )
        assert spec is not None
        assert spec.loader is not None
        module = importlib.util.module_from_spec(spec)
        sys.modules["fastload"] = module
        spec.loader.exec_module(module)
    from fastload.run.swap import wait_for_torch

    wait_for_torch()


def _is_meant() -> bool:
    """Returns True if the run is for this interpreter: another one may not be able to import fastload."""
    return all(each in os.environ.get("FASTLOAD_RUN", "") for each in ('"main"', sys.prefix))


def _go_on() -> None:
    """Imports the sitecustomize that this file hides."""
    here = os.path.dirname(os.path.abspath(__file__))
    sys.path[:] = [path for path in sys.path if os.path.abspath(path) != here]
    own = sys.modules.pop("sitecustomize")
    try:
        importlib.import_module("sitecustomize")
    except ImportError as error:
        if error.name != "sitecustomize":
            raise
    finally:
        sys.modules.setdefault("sitecustomize", own)


if __name__ == "sitecustomize":
    try:
        if _is_meant():
            _begin()
    except Exception as error:
        with contextlib.suppress(OSError, AttributeError):  # full, or closed
            sys.stderr.write(f"fastload run: torch's own DataLoader runs: {error}\n")
    _go_on()
