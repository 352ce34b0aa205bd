"""Types of the native module; one section for each of its parts."""

from collections.abc import Sequence
from mmap import mmap
from typing import Any, NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt

BytesLike: TypeAlias = bytes | bytearray | memoryview | mmap | npt.NDArray[np.uint8]

# --- image.pxi

MAX_PIXELS: int

class JpegHeader(NamedTuple):
    width: int
    height: int
    components: int
    progressive: bool
    arithmetic: bool

def jpeg_header(data: BytesLike, max_pixels: int = ...) -> JpegHeader: ...
def jpeg_decode(
    data: BytesLike, box: Sequence[int] | None = None, eighths: int = 8, max_pixels: int = ...
) -> npt.NDArray[np.uint8]: ...
def jpeg_decode_report(
    data: BytesLike, box: Sequence[int] | None = None, eighths: int = 8, max_pixels: int = ...
) -> tuple[npt.NDArray[np.uint8], int, str]: ...
def jpeg_scale(box: Sequence[int], target: Sequence[int]) -> int: ...
def jpeg_live() -> int: ...
def jpeg_scan(data: BytesLike, segments: bool = False) -> dict[str, Any]: ...
def jpeg_strip(data: BytesLike) -> bytes: ...
def jpeg_transform(data: BytesLike, orientation: int, max_pixels: int = ...) -> bytes: ...
def jpeg_to_baseline(data: BytesLike, max_pixels: int = ...) -> bytes: ...
def jpeg_check(data: BytesLike, max_pixels: int = ...) -> tuple[int, str]: ...
def resize(
    image: npt.NDArray[np.uint8],
    box: Sequence[float] | None,
    size: Sequence[int],
    filter: str = "bilinear",
    antialias: bool = True,
    *,
    window: Sequence[int] | None = None,
    hflip: bool = False,
    vflip: bool = False,
    dtype: str = "uint8",
    layout: str = "HWC",
    lut: npt.NDArray[Any] | None = None,
) -> npt.NDArray[Any]: ...
def resize_dispatch(best: bool) -> str: ...
def crc32c(data: BytesLike, crc: int = 0) -> int: ...
