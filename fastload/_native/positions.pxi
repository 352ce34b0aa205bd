# Positions of samples, and the bins that they are packed into.

from libc.stdint cimport int32_t, int64_t, uint64_t

import numpy as _np


cdef extern from *:
    int _lowest "__builtin_ctzll" (unsigned long long) nogil


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


def best_fit(const int64_t[::1] tokens not None, const int64_t[::1] order not None, int64_t room, int64_t unit):
    """Numbers of bins, int64, one for each sample: in `order` each goes to a bin with the least room that takes
    it, of several to the one that was filled last, or to a new one.

    Args:
        tokens: tokens of each sample, 0 .. room.
        order: a permutation of the samples, fewer than 2^31.
        room: tokens of a bin.
        unit: tokens by which rooms are told apart.
    """
    cdef Py_ssize_t i, n = order.shape[0], last
    cdef int64_t size, kind, word, at
    cdef int32_t number, bins = 0
    cdef uint64_t bits
    if n >> 31 or tokens.shape[0] != n or room < 1 or not 1 <= unit <= room:
        raise _errors.ArgumentError(f"{tokens.shape[0]} sizes of {n} samples, bins of {room} by {unit}")
    last = (room // unit >> 6) + 1
    made = _np.empty(n, _np.int64)
    cdef int64_t[::1] found = made, left = _np.empty(n, _np.int64)
    cdef int32_t[::1] after = _np.empty(n, _np.int32), first = _np.full(room // unit + 1, -1, _np.int32)
    cdef uint64_t[::1] there = _np.zeros(last + 1, _np.uint64)  # bit c: some bin has room of c units
    with nogil:
        for i in range(n):
            at = order[i]
            size = tokens[at] if 0 <= at < n else -1
            if not 0 <= size <= room:
                break
            kind = size // unit
            bits = 1
            if first[kind] < 0 or left[first[kind]] < size:  # else that one has room for it, to the token
                kind += 1
                word = kind >> 6
                bits = there[word] >> (kind & 63) << (kind & 63)
                while bits == 0 and word < last:
                    word += 1
                    bits = there[word]
                if bits:
                    kind = word * 64 + _lowest(bits)
            if bits:
                number = first[kind]
                first[kind] = after[number]
                if first[kind] < 0:
                    there[kind >> 6] &= ~(<uint64_t>1 << (kind & 63))
            else:
                number = bins
                left[number] = room
                bins += 1
            found[at] = number
            left[number] -= size
            kind = left[number] // unit
            after[number] = first[kind]
            first[kind] = number
            there[kind >> 6] |= <uint64_t>1 << (kind & 63)
        else:
            i = n
    if i < n:
        raise _errors.ArgumentError(f"a sample of {size} tokens for bins of {room}")
    return made
