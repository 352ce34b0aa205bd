# Sizes of a batch's images, before they are made.

from fastload._native.c_common cimport fl_code, fl_error, fl_key, FL_OK
from fastload._native.c_engine cimport fl_geometry_size, FL_PARTS_MAX, fl_program

from libc.stdint cimport int32_t, uint32_t, uint64_t

import numpy as _np


cdef enum _Reason:
    _SIZE_OK, _SIZE_BAD, _SIZE_STORED, _SIZE_MADE, _SIZE_FAILED


def image_sizes(list programs not None, const int32_t[::1] heights not None,
                const int32_t[::1] widths not None,
                const uint64_t[::1] indices not None, uint64_t max_pixels, seed, epoch,
                const uint64_t[::1] seeds=None):
    """Sizes that programs make of the images of many samples at once; without the GIL.

    Args:
        programs: a Program for each part of a sample.
        heights, widths: sizes of the stored images, as columns say.
        indices: indices of the samples, uint64, contiguous.
        max_pixels: more are refused, of a stored image and of one that is made.
        seed, epoch: seed and epoch of random sizes.
        seeds: seed of each sample's; None: all have `seed`.

    Returns:
        (sizes, failed): uint32 (parts, samples, 2), width and height, 0 x 0 of a sample that cannot be made;
        and of each such sample (row, whether the transform does not fit it, reason).
    """
    cdef const fl_program *program[64]
    cdef uint32_t count = <uint32_t>len(programs), i, width, height
    cdef Py_ssize_t row, rows = indices.shape[0]
    cdef fl_key key = _key(seed, epoch, 0)
    cdef fl_code code = FL_OK
    cdef fl_error err
    cdef int reason
    if (
        count > 64
        or count > FL_PARTS_MAX
        or heights.shape[0] != rows
        or widths.shape[0] != rows
        or (seeds is not None and seeds.shape[0] != rows)
    ):
        raise _errors.ArgumentError(
            f"{count} programs, {heights.shape[0]} heights and {widths.shape[0]} widths for {rows} samples"
        )
    for i in range(count):
        program[i] = &(<Program?>programs[i]).program
    made = _np.zeros((count, rows, 2), _np.uint32)
    cdef uint32_t[:, :, ::1] out = made
    failed = []
    with nogil:
        for row in range(rows):
            reason = _SIZE_OK
            width = height = 0
            if heights[row] < 1 or widths[row] < 1:
                reason = _SIZE_BAD
            elif <uint64_t>heights[row] * <uint64_t>widths[row] > max_pixels:
                reason = _SIZE_STORED
            key.index = indices[row]
            if seeds is not None:
                key.seed = seeds[row]
            for i in range(count):
                if reason != _SIZE_OK:
                    break
                code = fl_geometry_size(program[i], <uint32_t>widths[row], <uint32_t>heights[row], key,
                                        &width, &height, &err)
                if code != FL_OK:
                    reason = _SIZE_FAILED
                elif <uint64_t>width * height > max_pixels:
                    reason = _SIZE_MADE
                else:
                    out[i, row, 0], out[i, row, 1] = width, height
            if reason == _SIZE_OK:
                continue
            for i in range(count):
                out[i, row, 0] = out[i, row, 1] = 0
            with gil:
                failed.append((row, reason == _SIZE_FAILED and code == FL_EARG,
                               _why_no_size(reason, widths[row], heights[row], width, height, max_pixels,
                                            &err)))
    return made, failed


cdef str _why_no_size(int reason, int32_t stored_width, int32_t stored_height, uint32_t width,
                      uint32_t height, uint64_t most, fl_error *err):
    if reason == _SIZE_FAILED:
        return error_text(err)
    if reason == _SIZE_BAD:
        return f"its columns say {stored_width} x {stored_height} pixels, which no image has"
    if reason == _SIZE_STORED:
        return f"its columns say {stored_width} x {stored_height} pixels; the limit is {most}"
    return f"the transform makes {width} x {height} pixels of it; the limit is {most}"
