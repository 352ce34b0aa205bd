"""An image's file as Pillow and as the engine's decoders make pixels of it."""

from __future__ import annotations

from typing import Any

from fastload._native import core
from fastload.errors import SampleError


def by_engine(name: str, data: bytes, box: tuple[int, ...] | None = None) -> Any:
    """The pixels of a box by the decoder of this name; None if it refuses the file."""
    try:
        return core.stored_decode(core.IMAGE_KINDS[name], data, box)
    except SampleError:
        return None
