"""Reader of .npy files from tar files. It checks the header before it allocates memory, and reads no pickles and no .npz."""

from __future__ import annotations

import io
import math
from typing import Any

import numpy as np
import numpy.typing as npt

NPY_MAGIC = b"\x93NUMPY"
"""What a .npy file begins with."""
_READERS = {(1, 0): np.lib.format.read_array_header_1_0, (2, 0): np.lib.format.read_array_header_2_0}
"""Header readers by version. Version 3.0 exists for structured arrays alone, which no field can hold."""


def read_npy(data: bytes) -> npt.NDArray[Any]:
    """Reads the array in the bytes of a .npy file (NEP 1), read-only and not copied.

    Raises:
        ValueError: the bytes are no .npy file, hold objects, or are shorter than the header says.
    """
    if not data.startswith(NPY_MAGIC):
        raise ValueError("it does not begin as a .npy file does")
    file = io.BytesIO(data)
    try:
        version = np.lib.format.read_magic(file)
        shape, fortran, dtype = _READERS[version](file)
    except Exception as error:  # the header is a Python literal: TokenError, RecursionError, MemoryError, KeyError, ...
        raise ValueError(f"its header cannot be read ({type(error).__name__})") from error
    if dtype.hasobject or dtype.itemsize == 0:
        raise ValueError(f"arrays of {dtype} are not read")
    if any(isinstance(side, bool) or side < 0 for side in shape):
        raise ValueError(f"its shape is {shape}")
    count, rest = math.prod(shape), len(data) - file.tell()
    if count * dtype.itemsize > rest:
        raise ValueError(f"its header says {count * dtype.itemsize:,} bytes of values, and {rest:,} are there")
    values: npt.NDArray[Any] = np.frombuffer(data, dtype, count, file.tell()) if count else np.empty(0, dtype)
    return values.reshape(shape, order="F" if fortran else "C")
