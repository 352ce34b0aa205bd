"""Images of formats that native threads do not decode, as Pillow decodes them: of foreign files, which
nobody has packed."""

from __future__ import annotations

import io

import numpy as np
import numpy.typing as npt

from fastload._native import core
from fastload.common.images import open_image
from fastload.common.optional import optional
from fastload.errors import FastloadError, SampleError

_DEEP = ("I", "F")
"""Beginnings of Pillow's modes of more than 8 bits a channel."""


def decoded(data: bytes, max_pixels: int) -> npt.NDArray[np.uint8]:
    """The pixels of an image's file, (height, width, 3), RGB, as `attach` stores those of such a file on a
    disk.

    Raises:
        SampleError: it is no image, of more than 8 bits a channel, or of too many pixels; with the reason
        alone.
    """
    optional("PIL", "an image that is no JPEG, PNG or WebP", "pack")
    try:
        with open_image(io.BytesIO(data)) as image:
            width, height = image.size
            if width * height > max_pixels:
                raise _bad(f"{width} x {height} pixels are more than the limit of {max_pixels}")
            if image.mode.startswith(_DEEP):
                raise _bad("it has more than 8 bits a channel")
            return np.ascontiguousarray(np.asarray(image.convert("RGB")))
    except (FastloadError, MemoryError):
        raise
    except Exception as error:  # Pillow's plugins raise many kinds of errors
        if kind := core.stored_kind(data):
            core.stored_decode(kind, data, None, max_pixels)  # raises the error with the reason
        text = str(error).split("<_io.BytesIO")[0].rstrip() or type(error).__name__
        raise _bad(f"it is no image that can be read: {text}" if data else "the file is empty") from None


def size_of(data: bytes) -> tuple[int, int]:
    """(height, width) of an image's file, by its header. Raises SampleError with the reason alone."""
    if kind := core.stored_kind(data):
        try:
            return core.stored_size(kind, data)
        except SampleError:
            pass  # Pillow may read what native threads do not
    optional("PIL", "an image that is no JPEG, PNG or WebP", "pack")
    try:
        with open_image(io.BytesIO(data)) as image:
            return image.size[1], image.size[0]
    except MemoryError:
        raise
    except Exception:
        raise _bad("it is no image that can be read") from None


def _bad(reason: str) -> SampleError:
    return SampleError(reason, reason=reason)
