# JPEG: headers, region decode and lossless transcoding, one call each over bytes in memory.
#
# Every function makes and frees the C handle that it needs, so that nothing is shared between threads or left
# behind by a fork; the engine, which decodes by the thousand, keeps handles of its own. The GIL is released
# around all native work.

from fastload._native.c_common cimport fl_box, fl_code, fl_error, fl_view
from fastload._native.c_jpeg cimport (
    fl_jpeg_check, fl_jpeg_checked, fl_jpeg_layout, fl_jpeg_markers_read, fl_jpeg_scale, fl_jpeg_transform,
    fl_libjpeg,
    fl_libjpeg_create, fl_libjpeg_decode, fl_libjpeg_free, fl_libjpeg_info, fl_libjpeg_open,
    fl_libjpeg_warnings,
)

from libc.stdint cimport uint8_t, uint16_t, uint32_t, uint64_t
from libc.stdlib cimport free as _c_free
from libc.string cimport memcpy as _c_memcpy
from cpython.buffer cimport PyBUF_STRIDED_RO, PyBuffer_Release, PyObject_GetBuffer
from cpython.bytes cimport PyBytes_FromStringAndSize

from collections import namedtuple as _namedtuple

import numpy as _np

from fastload.common.limits import MAX_PIXELS

JpegHeader = _namedtuple("JpegHeader", ("width", "height", "components", "progressive", "arithmetic"))

_KINDS = ("baseline", "extended", "progressive", "lossless", "hierarchical")


cdef void *_address(object array) except NULL:
    """The address of an array's first element; the array must stay referenced. ctypes.data takes a microsecond."""
    cdef Py_buffer view
    PyObject_GetBuffer(array, &view, PyBUF_STRIDED_RO)
    PyBuffer_Release(&view)
    return view.buf


cdef int _unsigned(object values, uint32_t *out, int count, str what) except -1:
    """Takes `count` integers of 0 .. 2**32 - 1 from a sequence."""
    if len(values) != count:
        raise _errors.ArgumentError(f"{what} {values!r} needs {count} numbers")
    for i in range(count):
        if not 0 <= values[i] < 1 << 32:
            raise _errors.ArgumentError(f"{what} {values!r} is out of range")
        out[i] = values[i]
    return 0


cdef class _Jpeg:
    """One fl_libjpeg. Used by one thread; freed with the last reference."""

    cdef fl_libjpeg *handle

    def __cinit__(self):
        cdef fl_error err
        self.handle = NULL
        check(fl_libjpeg_create(&self.handle, &err), &err)

    def __dealloc__(self):
        fl_libjpeg_free(self.handle)
        self.handle = NULL

    cdef fl_libjpeg_info open(self, const uint8_t[::1] view, uint64_t max_pixels) except *:
        cdef fl_error err
        cdef fl_libjpeg_info info
        cdef fl_code code
        cdef const uint8_t *start = _first(view)
        cdef size_t size = view.shape[0]
        with nogil:
            code = fl_libjpeg_open(self.handle, start, size, max_pixels, &info, &err)
        check(code, &err)
        return info


def jpeg_header(data, max_pixels=MAX_PIXELS):
    """Reads a JPEG's header.

    Returns:
        JpegHeader(width, height, components, progressive, arithmetic), sizes in pixels.

    Raises:
        SampleError: it is no JPEG, is cut off, has more than max_pixels pixels, or is of a kind that is not
            decoded.
    """
    cdef _Jpeg jpeg = _Jpeg()
    cdef fl_libjpeg_info info = jpeg.open(data, max_pixels)
    return JpegHeader(info.width, info.height, info.components, bool(info.progressive), bool(info.arithmetic))


def jpeg_decode_report(data, box=None, int eighths=8, max_pixels=MAX_PIXELS):
    """Decodes a box of a JPEG; see jpeg_decode. Returns (pixels, number of libjpeg's warnings, text of the
    first or "")."""
    cdef const uint8_t[::1] view = data  # held until the decode is over: libjpeg reads from it
    cdef _Jpeg jpeg = _Jpeg()
    cdef fl_libjpeg_info info = jpeg.open(view, max_pixels)
    cdef fl_box area
    cdef fl_view decoded
    cdef fl_error err
    cdef fl_code code
    cdef uint32_t numbers[4]
    cdef uint8_t[:, :, ::1] out
    cdef uint32_t row
    cdef const char *text = NULL
    area.x = 0
    area.y = 0
    area.width = info.width
    area.height = info.height
    if box is not None:
        _unsigned(box, numbers, 4, "box")
        area.x = numbers[0]
        area.y = numbers[1]
        area.width = numbers[2]
        area.height = numbers[3]
    with nogil:
        code = fl_libjpeg_decode(jpeg.handle, &area, eighths, &decoded, &err)
    check(code, &err)
    pixels = _np.empty((decoded.height, decoded.width, 3), dtype=_np.uint8)
    out = pixels
    with nogil:
        for row in range(decoded.height):
            _c_memcpy(&out[row, 0, 0], decoded.pixels + row * decoded.stride, <size_t>decoded.width * 3)
    warnings = fl_libjpeg_warnings(jpeg.handle, &text)
    return pixels, warnings, (<bytes>text).decode("utf-8", "replace")


def jpeg_decode(data, box=None, int eighths=8, max_pixels=MAX_PIXELS):
    """Decodes a box of a JPEG to RGB, scaled by eighths/8 in the DCT.

    Args:
        data: the file, any contiguous bytes-like object.
        box: (x, y, width, height) in pixels of the full image, None for all of it.
        eighths: 1, 2, 4 or 8.
        max_pixels: a larger image is refused before anything is allocated.

    Returns:
        uint8 array (height, width, 3): columns floor(x * s) to ceil((x + width) * s), s = eighths / 8, and
        rows alike. Unscaled, it is what a full decode (accurate DCT, fancy upsampling) holds there, bit for
        bit. Grey, CMYK and YCCK come out as Pillow's convert("RGB").

    Raises:
        SampleError: it cannot be decoded, or ends before the box's last row.
        ArgumentError: the box is not inside the image, or eighths is none of the four.
    """
    return jpeg_decode_report(data, box, eighths, max_pixels)[0]


def jpeg_scale(box, target):
    """The smallest eighths of 1, 2, 4, 8 at which a box (width, height) is still at least target (width,
    height)."""
    cdef uint32_t a[2]
    cdef uint32_t b[2]
    _unsigned(box, a, 2, "box")
    _unsigned(target, b, 2, "target")
    return fl_jpeg_scale(a[0], a[1], b[0], b[1])


def jpeg_scan(data):
    """Walks a JPEG's markers without decoding it.

    Returns:
        dict: width, height, components, precision, sampling ((h, v) of each component, 4 at most), kind
            ("baseline", "extended", "progressive",
        "lossless", "hierarchical"), arithmetic, orientation (EXIF, 1 to 8), adobe (transform, None without
        marker), jfif, exif, icc, restart_interval, scans, stray (bytes between segments), eoi (the end marker
        is there), end (bytes that are the image), size (of data), damage (what is wrong with the structure,
        "" when nothing).

    Raises:
        SampleError: it is no JPEG, or ends before its first scan.
    """
    cdef const uint8_t[::1] view = data
    cdef const uint8_t *start = _first(view)
    cdef size_t size = view.shape[0]
    cdef fl_jpeg_layout layout
    cdef fl_error err
    cdef fl_code code
    with nogil:
        code = fl_jpeg_markers_read(start, size, &layout, &err)
    check(code, &err)
    return {
        "width": layout.width,
        "height": layout.height,
        "components": layout.components,
        "precision": layout.precision,
        "sampling": tuple((layout.h[i], layout.v[i]) for i in range(min(layout.components, 4))),
        "kind": _KINDS[layout.kind],
        "arithmetic": bool(layout.arithmetic),
        "orientation": layout.orientation,
        "adobe": None if layout.adobe < 0 else layout.adobe,
        "jfif": bool(layout.jfif),
        "exif": bool(layout.exif),
        "icc": bool(layout.icc),
        "restart_interval": layout.restart_interval,
        "scans": layout.scans,
        "stray": layout.stray,
        "eoi": bool(layout.eoi),
        "end": layout.end,
        "size": size,
        "damage": (<bytes>(<const char *>layout.damage)).decode("utf-8", "replace"),
    }


def jpeg_transform(data, int orientation, max_pixels=MAX_PIXELS):
    """A baseline JPEG of the same DCT coefficients, turned upright as EXIF orientation 1 to 8 asks, without
    metadata.

    Raises:
        SampleError: it cannot be decoded; a side that would have to move is not whole iMCUs; or see
            jpeg_to_baseline.
        ArgumentError: orientation is not 1 to 8.
    """
    cdef const uint8_t[::1] view = data
    cdef const uint8_t *start = _first(view)
    cdef size_t size = view.shape[0], written = 0
    cdef uint64_t limit = max_pixels
    cdef uint8_t *out = NULL
    cdef fl_error err
    cdef fl_code code
    with nogil:
        code = fl_jpeg_transform(start, size, orientation, limit, &out, &written, &err)
    check(code, &err)
    try:
        return PyBytes_FromStringAndSize(<const char *>out, written)
    finally:
        _c_free(out)


def jpeg_to_baseline(data, max_pixels=MAX_PIXELS):
    """A JPEG of any DCT kind (progressive, arithmetic, several scans) as one baseline scan of the same
    coefficients, Huffman tables optimal, without metadata: the same pixels, decoded faster.

    Raises:
        SampleError: it cannot be decoded, or baseline coding cannot hold the same pixels (the caller then
            keeps data).
    """
    return jpeg_transform(data, 1, max_pixels)


def jpeg_check(data, max_pixels=MAX_PIXELS):
    """Decodes all of a JPEG's entropy-coded data, up to its end marker.

    Returns:
        (number of libjpeg's warnings, text of the first or "").

    Raises:
        SampleError: it cannot be decoded, or is cut off.
    """
    warnings, first, _ = jpeg_survey(data, max_pixels)
    return warnings, first


def jpeg_survey(data, max_pixels=MAX_PIXELS):
    """As jpeg_check(), and in third place whether libjpeg smooths it. See NOTE [ jpeg: files that decoders
    smooth ]."""
    cdef const uint8_t[::1] view = data
    cdef const uint8_t *start = _first(view)
    cdef size_t size = view.shape[0]
    cdef uint64_t limit = max_pixels
    cdef fl_jpeg_checked checked
    cdef fl_error err, first
    cdef fl_code code
    with nogil:
        code = fl_jpeg_check(start, size, limit, &checked, &err)
    check(code, &err)
    _c_memcpy(first.text, checked.first, sizeof(first.text))
    return checked.warnings, error_text(&first), bool(checked.smoothed)
