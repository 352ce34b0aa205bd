# Random draws of samples: the words of their streams.

from fastload._native.c_common cimport fl_key, fl_rng, fl_rng_start, fl_rng_word

from libc.stdint cimport uint16_t, uint32_t, uint64_t

import numpy as _np


def random_words(seed, epoch, index, stream, int count):
    """The first `count` 32-bit words of the stream (seed, epoch, index, stream)."""
    cdef fl_key key = _key(seed, epoch, index)
    cdef fl_rng rng = fl_rng_start(key, <uint16_t>stream)
    return [fl_rng_word(&rng) for _ in range(count)]


# The blocks of a stream are counted in the 16 bits below its number: one more would be the next stream's
# first.
cdef enum:
    _STREAM_WORDS = 4 << 16


def random_rows(seed, epoch, const uint64_t[::1] indices not None, wants, const uint64_t[::1] seeds=None):
    """The first words of several streams for many indices at once; without the GIL.

    Args:
        seed, epoch: as for random_words.
        indices: (B,), contiguous.
        wants: for each stream, its number, below 2**16, and a number of words, at most 2**18.
        seeds: (B,), the seed of each index; None: all have `seed`.

    Returns:
        uint32 (B, all counts together): row i has, side by side in the order of `wants`, random_words(seed,
            epoch, indices[i], stream, count).

    Raises:
        ArgumentError: a stream or count out of range, or another number of seeds.
    """
    if seeds is not None and seeds.shape[0] != indices.shape[0]:
        raise _errors.ArgumentError(f"{seeds.shape[0]} seeds for {indices.shape[0]} indices")
    wants = [(int(stream), int(count)) for stream, count in wants]
    for stream, count in wants:
        if not 0 <= stream <= 0xFFFF or not 0 <= count <= _STREAM_WORDS:
            raise _errors.ArgumentError(
                f"{count} words of stream {stream}: streams are 0 to {0xFFFF}, of at most {_STREAM_WORDS} "
                "words"
            )
    made = _np.empty((indices.shape[0], sum(count for _, count in wants)), _np.uint32)
    cdef const uint16_t[::1] streams = _np.array([stream for stream, _ in wants], _np.uint16)
    cdef const uint32_t[::1] counts = _np.array([count for _, count in wants], _np.uint32)
    cdef uint32_t[:, ::1] out = made
    cdef fl_key key = _key(seed, epoch, 0)
    cdef fl_rng rng
    cdef Py_ssize_t row, want, at
    cdef uint32_t word
    with nogil:
        for row in range(indices.shape[0]):
            key.index = indices[row]
            if seeds is not None:
                key.seed = seeds[row]
            at = 0
            for want in range(streams.shape[0]):
                rng = fl_rng_start(key, streams[want])
                for word in range(counts[want]):
                    out[row, at] = fl_rng_word(&rng)
                    at += 1
    return made


def occurrence_seeds(seed, epoch, stream, const uint32_t[::1] occurrences not None):
    """The seeds of samples' draws, by how often their indices came before, uint64 (B,): that of 0 is `seed`,
    of any other number it is the first 64 bits of the stream (seed, epoch, number, stream)."""
    made = _np.empty(occurrences.shape[0], _np.uint64)
    cdef uint64_t[::1] out = made
    cdef fl_key key = _key(seed, epoch, 0)
    cdef uint16_t number = <uint16_t>stream
    cdef fl_rng rng
    cdef Py_ssize_t row
    cdef uint64_t low
    with nogil:
        for row in range(occurrences.shape[0]):
            out[row] = key.seed
            if occurrences[row]:
                key.index = occurrences[row]
                rng = fl_rng_start(key, number)
                low = fl_rng_word(&rng)
                out[row] = low | <uint64_t>fl_rng_word(&rng) << 32
    return made


def count_occurrences(uint32_t[::1] counts not None, const int64_t[::1] positions not None):
    """Number of times that each of some positions came before, uint32 (B,), by counts of all positions, to
    which they are added.

    Raises:
        IndexError: there is no count of a position; none is added.
    """
    made = _np.empty(positions.shape[0], _np.uint32)
    cdef uint32_t[::1] out = made
    cdef Py_ssize_t row
    cdef int64_t most = counts.shape[0]
    with nogil:
        for row in range(positions.shape[0]):
            if not 0 <= positions[row] < most:
                with gil:
                    raise IndexError(f"position {positions[row]} is out of range for {most} counts")
        for row in range(positions.shape[0]):
            out[row] = counts[positions[row]]
            counts[positions[row]] += 1
    return made


cdef fl_key _key(seed, epoch, index):
    cdef fl_key key
    key.seed = <uint64_t>(int(seed) & 0xFFFFFFFFFFFFFFFF)
    key.epoch = <uint32_t>(int(epoch) & 0xFFFFFFFF)
    key.index = <uint64_t>int(index)
    return key
