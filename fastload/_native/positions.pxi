# Positions of samples.

from libc.stdint cimport int64_t


def extremes(const int64_t[:] values not None):
    """The least and the greatest of some positions; (0, -1) of none."""
    cdef int64_t low, high
    cdef Py_ssize_t i, count = values.shape[0]
    if count == 0:
        return 0, -1
    low = high = values[0]
    for i in range(1, count):
        low, high = min(low, values[i]), max(high, values[i])
    return low, high
