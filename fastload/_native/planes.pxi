# Planes (masks, depth, grey and RGBA images) and rows of any number: encoded, decoded and sampled.

from fastload._native.c_common cimport (
    fl_box, fl_buffer, fl_buffer_free, fl_bytes_le32, fl_code, fl_error, FL_OK, fl_span,
)
from fastload._native.c_store cimport (
    fl_planes, fl_planes_box, fl_planes_encode, fl_planes_open, FL_PLANES_RUNS, fl_planes_sample,
    FL_PLANES_STORED, FL_PLANES_ZLIB,
    FL_RECORD_KIND_PLANES, FL_RECORD_KIND_VARYING, fl_rle_axis, fl_rle_check, fl_rle_sample, fl_varying,
    FL_VARYING_LEVELS, fl_varying_open,
)

from libc.stdint cimport uint8_t, uint32_t
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize

KIND_PLANES = FL_RECORD_KIND_PLANES
KIND_VARYING = FL_RECORD_KIND_VARYING
PLANES_STORED = FL_PLANES_STORED
PLANES_RUNS = FL_PLANES_RUNS
PLANES_ZLIB = FL_PLANES_ZLIB

PlanesHeader = _namedtuple("PlanesHeader", ("height", "width", "channels", "dtype", "codec"))


cdef fl_span _span(bytes data):
    cdef fl_span span
    span.bytes = <const uint8_t *>PyBytes_AS_STRING(data)
    span.size = len(data)
    return span


cdef object _planes_dtype(const fl_planes *planes):
    return _np.dtype("u1" if planes.pixel == planes.channels else "<u2")


cdef object _planes_array(const fl_planes *planes, size_t height, size_t width):
    shape = (height, width) + ((planes.channels,) if planes.channels > 1 else ())
    return _np.empty(shape, _planes_dtype(planes))


def encode_planes(pixels not None):
    """The record entry of pixels, as bytes: see csrc/store/planes.h.

    Args:
        pixels: uint8 or uint16, (height, width) or (height, width, 1 to 4).

    Raises:
        ArgumentError: another dtype or shape.
        SampleError: more pixels than a record may have; the message is the bare reason.
    """
    cdef fl_error err
    cdef fl_code code
    cdef fl_buffer buffer
    cdef size_t size = 0
    cdef uint32_t channels, depth
    if pixels.ndim not in (2, 3) or pixels.dtype.newbyteorder("=") not in (_np.uint8,
            _np.uint16) or max(pixels.shape) > 0xFFFFFFFF:
        raise _errors.ArgumentError(
            f"planes are uint8 or uint16 (height, width[, channels]), not {pixels.dtype} {pixels.shape}"
        )
    depth = pixels.dtype.itemsize
    channels = pixels.shape[2] if pixels.ndim == 3 else 1
    values = _np.ascontiguousarray(pixels, "u1" if depth == 1 else "<u2")
    cdef uint32_t height = pixels.shape[0], width = pixels.shape[1]
    cdef const uint8_t[::1] view = values.reshape(-1).view(_np.uint8)
    buffer.bytes, buffer.room = NULL, 0
    cdef const uint8_t *start = &view[0] if view.shape[0] else NULL
    with nogil:
        code = fl_planes_encode(start, height, width, channels, depth, &buffer, &size, &err)
    try:
        check(code, &err)
        return PyBytes_FromStringAndSize(<const char *>buffer.bytes, size)
    finally:
        fl_buffer_free(&buffer)


def planes_header(bytes data not None):
    """The PlanesHeader of an entry of planes. Raises SampleError if it does not hold; the message is the
    bare reason."""
    cdef fl_error err
    cdef fl_planes planes
    check(fl_planes_open(_span(data), &planes, &err), &err)
    return PlanesHeader(planes.height, planes.width, planes.channels, _planes_dtype(&planes), planes.codec)


def decode_planes(bytes data not None, box=None):
    """The pixels of an entry of planes as an array (height, width, channels), or (height, width) of one
    channel.

    Args:
        data: the entry.
        box: (x, y, width, height); None: all of it.

    Raises:
        SampleError: the entry does not hold; the message is the bare reason.
        ArgumentError: the box is empty or not within.
    """
    cdef fl_error err
    cdef fl_planes planes
    cdef fl_code code
    cdef fl_box part
    cdef fl_buffer scratch
    check(fl_planes_open(_span(data), &planes, &err), &err)
    part.x, part.y, part.width, part.height = (0, 0, planes.width, planes.height) if box is None else box
    if part.width > planes.width or part.height > planes.height:
        raise _errors.ArgumentError(
            f"a box of {part.width} x {part.height} of {planes.width} x {planes.height} pixels"
        )
    out = _planes_array(&planes, part.height, part.width)
    cdef uint8_t[::1] view = out.reshape(-1).view(_np.uint8)
    cdef uint8_t *start = &view[0] if view.shape[0] else NULL
    scratch.bytes, scratch.room = NULL, 0
    with nogil:
        code = fl_planes_box(&planes, part, start, <size_t>part.width * planes.pixel, &scratch, &err)
        fl_buffer_free(&scratch)
    check(code, &err)
    return out


def sample_planes(bytes data not None, const uint32_t[::1] rows not None,
                  const uint32_t[::1] columns not None):
    """Pixel (columns[j], rows[i]) at each (i, j) of an array: nearest resampling. Raises as
    `decode_planes` does."""
    cdef fl_error err
    cdef fl_planes planes
    cdef fl_code code
    cdef fl_buffer scratch
    cdef uint32_t n = rows.shape[0], m = columns.shape[0]
    check(fl_planes_open(_span(data), &planes, &err), &err)
    out = _planes_array(&planes, n, m)
    if not n or not m:
        return out
    cdef uint8_t[::1] view = out.reshape(-1).view(_np.uint8)
    scratch.bytes, scratch.room = NULL, 0
    with nogil:
        code = fl_planes_sample(&planes, &rows[0], n, &columns[0], m, &view[0], <size_t>m * planes.pixel,
                                &scratch, &err)
        fl_buffer_free(&scratch)
    check(code, &err)
    return out


def split_varying(bytes data not None, uint32_t levels, uint32_t unit):
    """The rows of an entry of kind KIND_VARYING: see csrc/store/varying.h.

    Args:
        data: the entry.
        levels: number of levels of lengths before the values, 0 to 2.
        unit: bytes of one value of the innermost level.

    Returns:
        (number of rows, lengths of each level as uint32 arrays, the values' bytes as a uint8 array that
        shares the entry's memory).

    Raises:
        SampleError: a length does not hold; the message is the bare reason.
    """
    cdef fl_error err
    cdef fl_varying found
    cdef uint32_t i
    if levels > FL_VARYING_LEVELS or not unit:
        raise _errors.ArgumentError(f"{levels} levels of values of {unit} bytes")
    check(fl_varying_open(_span(data), levels, unit, &found, &err), &err)
    lengths, at = [], 4
    for i in range(levels):
        lengths.append(_np.frombuffer(data, "<u4", found.lengths[i].size // 4, at))
        at += found.lengths[i].size
    return found.rows, tuple(lengths), _np.frombuffer(data, _np.uint8, found.values.size, at)


def decode_instances(bytes data not None, uint32_t height, uint32_t width):
    """The masks of an entry of instances, as uint8 (number, height, width) of 0 and 1.

    Raises:
        SampleError: the entry does not hold, or the run lengths of a mask do not sum to its pixels; the
            message is the bare reason.
    """
    cdef fl_error err
    cdef fl_varying found
    cdef fl_code code = FL_OK
    cdef fl_span counts
    cdef size_t i, size = <size_t>height * width
    cdef fl_rle_axis rows, columns
    rows.count, columns.count, rows.edges, columns.edges = height, width, NULL, NULL
    check(fl_varying_open(_span(data), 1, 4, &found, &err), &err)
    counts.bytes = found.values.bytes
    with nogil:
        for i in range(found.rows):  # before memory is asked for
            counts.size = <size_t>fl_bytes_le32(found.lengths[0].bytes + 4 * i) * 4
            code = fl_rle_check(counts, height, width, &err)
            if code != FL_OK:
                break
            counts.bytes += counts.size
    check(code, &err)
    out = _np.zeros((found.rows, height, width), _np.uint8)
    cdef uint8_t[::1] view = out.reshape(-1)
    counts.bytes = found.values.bytes
    if not view.shape[0]:
        return out
    with nogil:
        for i in range(found.rows):
            counts.size = <size_t>fl_bytes_le32(found.lengths[0].bytes + 4 * i) * 4
            code = fl_rle_sample(counts, height, width, &rows, &columns, &view[i * size], width, &err)
            if code != FL_OK:
                break
            counts.bytes += counts.size
    check(code, &err)
    return out
