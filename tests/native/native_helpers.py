"""Single steps of packing, for tests of the native module."""

from __future__ import annotations

from fastload._native import core
from fastload.errors import SampleError


def strip(data: bytes) -> bytes:
    """The JPEG without metadata and whatever follows its end, as packing stores it. Raises SampleError
    where packing would not strip it."""
    stripped = core.JpegPreparer().prepare(bytes(data), entropy=False).data
    if stripped is None:
        raise SampleError("its structure is damaged", reason="its structure is damaged")
    return stripped
