"""Label maps: pictures whose pixels are numbers of classes or objects. They are read as the numbers that the file has, not as colours."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from fastload.common.files import read_regular
from fastload.common.limits import checked_max_pixels
from fastload.errors import FastloadError, PackError, SampleError
from fastload.packing.pixels import MissingLibrary, opened_image
from fastload.packing.sources.protocol import FIRST_TRIES

MASK_EXTENSIONS = (".png", ".tif", ".tiff", ".bmp", ".gif", ".pgm", ".webp")
"""Files that may hold labels: of formats that can be lossless."""

LabelMap = npt.NDArray[np.uint8] | npt.NDArray[np.uint16]

_LOSSY = ("JPEG", "AVIF", "HEIF", "JPEG2000", "JXL")
_SPREAD = {"L;2": 85, "L;4": 17}
"""What Pillow multiplies grey values of 2 and 4 bits by, to spread them over 8."""


def read_label_map(data: bytes) -> LabelMap:
    """The labels (height, width) in a picture's file: the indices of one with a palette, the values of a grey one.

    Raises:
        MissingLibrary: Pillow is not installed.
        SampleError: it is no picture, is one of colours, of a lossy format, or has values beyond 16 bits. The message is the reason alone.
    """
    with opened_image(data) as image:
        if image.width * image.height > checked_max_pixels(None):
            raise _refused(f"{image.width} x {image.height} pixels are more than the limit (FASTLOAD_MAX_PIXELS)")
        if image.format in _LOSSY:
            raise _refused(f"a {image.format}, which changes labels when it is compressed; convert it to PNG from what it was made of")
        if image.mode not in ("P", "L", "1") and not image.mode.startswith("I"):
            raise _refused(
                f"a picture of colours ({image.mode}), where a mask has one number for each pixel: convert it to grey or palette labels"
            )
        spread = next((_SPREAD[raw] for raw in _raw_modes(image) if raw in _SPREAD), 1)
        pixels: npt.NDArray[Any] = np.array(image)
    if pixels.dtype == np.bool_:
        return pixels.astype(np.uint8)
    if pixels.dtype == np.uint8:
        return pixels // np.uint8(spread) if spread > 1 else pixels
    if pixels.min(initial=0) < 0 or pixels.max(initial=0) > 65535:
        raise _refused("it has labels outside 0 to 65535")
    return pixels.astype(np.uint16)


def label_map_of(path: str, owner: str, dtype: str) -> LabelMap:
    """The labels in a file, as uint8 or uint16. Raises PackError, which names the file and its sample, or MissingLibrary."""
    try:
        data = read_regular(path)
    except OSError as error:
        raise PackError(f"{owner}: its mask {path} cannot be read: {error.strerror or error}") from error
    return label_map_in(data, f"{owner}: its mask {path}", dtype)


def label_map_in(data: bytes, what: str, dtype: str) -> LabelMap:
    """The labels in a file's bytes, as uint8 or uint16. Raises PackError, which begins with `what`, or MissingLibrary."""
    try:
        return fitted(read_label_map(data), dtype)
    except MissingLibrary:
        raise
    except SampleError as error:
        raise PackError(f"{what}: {error.reason or error}") from error


def fitted(labels: LabelMap, dtype: str) -> LabelMap:
    """Labels of a dtype. Raises SampleError if they are beyond it."""
    if labels.dtype == dtype:
        return labels
    if dtype == "uint8" and int(labels.max(initial=0)) > 255:
        raise _refused(f"it has the label {int(labels.max())}, where other masks have 8 bits")
    return labels.astype(np.uint8) if dtype == "uint8" else labels.astype(np.uint16)


def some_are_deep(paths: Sequence[str]) -> bool:
    """Whether one of some files, spread over all, has pixels of 16 bits, by its header; one that cannot be read is passed over."""
    there = [path for path in paths if path]
    for path in there[:: max(1, len(there) // FIRST_TRIES)]:
        try:
            if is_deep(read_regular(path)):
                return True
        except (FastloadError, OSError):  # noqa: PERF203
            continue  # the sample's own error, when it is packed
    return False


def is_deep(data: bytes) -> bool:
    """Whether a picture's file has grey pixels of more than 8 bits, by its header. Raises as `read_label_map` does."""
    if data[:2] == b"\xff\xd8":  # a JPEG
        return False
    with opened_image(data) as image:
        return image.mode.startswith("I")


def _raw_modes(image: Any) -> list[str]:
    """Pillow's names of how the file has its pixels."""
    arguments = [entry[3] for entry in getattr(image, "tile", ())]
    return [raw for each in arguments for raw in (each if isinstance(each, tuple) else (each,)) if isinstance(raw, str)]


def _refused(reason: str) -> SampleError:
    return SampleError(reason, reason=reason)
