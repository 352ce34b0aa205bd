"""Heights and widths of images in place, by a pass over their headers."""

from __future__ import annotations

import io
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import numpy.typing as npt

from fastload._native import core
from fastload.common.ahead import ahead
from fastload.common.images import open_image
from fastload.errors import DatasetError, FastloadError

HEAD = 1 << 16
"""Bytes of a file that are read first."""
_BLOCK = 256
_THREADS, _SLOW_THREADS = 4, 64

Read = Callable[[int, int], bytes]
"""Returns at most so many of the first bytes of an image, by its index; -1: all of them."""


def header_sizes(count: int, read: Read, slow: bool) -> npt.NDArray[np.int64]:
    """(count, 2) heights and widths; 0 x 0 of a file that is gone or no image, which is an error of its
    sample when that is read.

    Args:
        count: number of images.
        read: reads one of them.
        slow: files lie on a disk that many reads at once make faster.

    Raises:
        DatasetError: a file cannot be read.
    """
    sizes = np.zeros((count, 2), np.int64)

    def look(start: int) -> None:
        for index in range(start, min(start + _BLOCK, count)):
            sizes[index] = _size(index, read)

    threads = _SLOW_THREADS if slow else _THREADS
    with ThreadPoolExecutor(threads, "fastload-headers") as pool:
        for _ in ahead(pool, look, range(0, count, _BLOCK), 2 * threads):
            pass
    return sizes


def _size(index: int, read: Read) -> tuple[int, int]:
    try:
        head = read(index, HEAD)
        try:
            height, width = core.stored_size(core.stored_kind(head), head)
        except FastloadError:  # another format, or a longer header
            with open_image(io.BytesIO(read(index, -1))) as image:
                width, height = image.size
    except FileNotFoundError:
        return 0, 0
    except OSError as error:
        if error.errno is None:  # Pillow's: it is no image
            return 0, 0
        raise DatasetError(f"{error.filename or index}: its size cannot be read: {error.strerror}") from error
    except FastloadError:
        return 0, 0
    return height, width
