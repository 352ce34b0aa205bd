"""Swap of torch's DataLoader name, in this process. Torch is not imported for it."""

from __future__ import annotations

import sys

from fastload.common.imports import after_import
from fastload.common.streams import tell
from fastload.run.launch import RunOptions

_PLACES = ("torch.utils.data", "torch.utils.data.dataloader")


def wait_for_torch() -> None:
    """Swaps the name when torch has been imported, if this process belongs to a drop-in run."""
    if RunOptions.in_force() is not None:
        after_import("torch", swap)


def swap() -> None:
    """Makes the name DataLoader of torch.utils.data the stand-in. If fastload cannot be imported, a line
    says so and nothing changes."""
    options = RunOptions.in_force() or RunOptions()
    try:
        from fastload.run.report import report
        from fastload.run.stand_in import DataLoader
    except Exception as error:
        tell(f"fastload run: torch's own DataLoader runs, for fastload cannot be imported: {error}")
        return
    report.begin(options)
    for place in _PLACES:
        setattr(sys.modules[place], "DataLoader", DataLoader)  # noqa: B010  (mypy knows it for a class)
