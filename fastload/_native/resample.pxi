# Resampling, and the names of filters, types and layouts that it shares with the engine.

from fastload._native.c_common cimport (
    FL_BF16, FL_CHW, fl_code, fl_error, FL_F16, FL_F32, FL_HWC, fl_sink, FL_U8, FL_U16, fl_view,
)
from fastload._native.c_resize cimport (
    fl_resize, FL_RESIZE_BICUBIC, FL_RESIZE_BILINEAR, fl_resize_planes, fl_resize_planes_create,
    fl_resize_planes_free,
    fl_resize_planes_run, fl_resize_spec, fl_resizer, fl_resizer_create, fl_resizer_free,
)

from libc.string cimport memset

_FILTERS = {"bilinear": FL_RESIZE_BILINEAR, "bicubic": FL_RESIZE_BICUBIC}
_LAYOUTS = {"HWC": FL_HWC, "CHW": FL_CHW}
_DTYPES = {
    "uint8": (FL_U8, _np.uint8),
    "uint16": (FL_U16, _np.uint16),
    "float32": (FL_F32, _np.float32),
    "float16": (FL_F16, _np.float16),
    "bfloat16": (FL_BF16, _np.uint16),
}


cdef object _choice(dict table, object name, str what):
    try:
        return table[name]
    except (KeyError, TypeError):
        raise _errors.ArgumentError(f"{what} {name!r} is not one of {', '.join(table)}") from None


cdef object _default_lut(str dtype, channels, levels):
    """(channels, levels) values of value / (levels - 1) in dtype; bfloat16 as bit patterns, rounded to
    nearest even."""
    ramp = _np.tile(_np.arange(levels, dtype=_np.float32) / _np.float32(levels - 1), (channels, 1))
    if dtype == "bfloat16":
        bits = ramp.view(_np.uint32)
        return ((bits + 0x7FFF + ((bits >> 16) & 1)) >> 16).astype(_np.uint16)
    return ramp.astype(_DTYPES[dtype][1])


cdef class _Resizer:
    """One fl_resizer and one fl_resize_planes. Used by one thread; freed with the last reference."""

    cdef fl_resizer *handle
    cdef fl_resize_planes *planes

    def __cinit__(self):
        cdef fl_error err
        check(fl_resizer_create(&self.handle, &err), &err)
        check(fl_resize_planes_create(&self.planes, &err), &err)

    def __dealloc__(self):
        fl_resizer_free(self.handle)
        fl_resize_planes_free(self.planes)


def resize(image, box, size, filter="bilinear", bint antialias=True, *, window=None, bint hflip=False,
           bint vflip=False,
           dtype="uint8", layout="HWC", lut=None):
    """Resamples a box of an image as the engine does.

    Args:
        image: uint8 (height, width, 3).
        box: (x, y, width, height) in its pixels, may be fractional; None for all of it.
        size: (width, height) of what the box becomes.
        filter: "bilinear" or "bicubic".
        antialias: True: Pillow's filters; False: those of torch's interpolate (align_corners=False).
        window: (x, y, width, height) of that result which is wanted; None for all of it.
        hflip: mirror left and right, last. vflip: top and bottom.
        dtype: "uint8", "float32", "float16", or "bfloat16" (returned as uint16 bit patterns).
        layout: "HWC" or "CHW".
        lut: for the float types, (3, 256) values of that type, what each byte of each channel becomes; None
            for byte / 255.

    Returns:
        array (height, width, 3) or (3, height, width) of the window.

    Raises:
        ArgumentError: shapes, box, window or names do not fit.
    """
    image = _np.asarray(image)
    if image.dtype != _np.uint8 or image.ndim != 3 or image.shape[2] != 3 or image.size == 0:
        raise _errors.ArgumentError(
            f"resize: needs a uint8 image (height, width, 3), not {image.dtype} {image.shape}"
        )
    return _resampled(image, False, box, size, filter, antialias, window, hflip, vflip, dtype, layout, lut)


def resize_planes(image, box, size, filter="bilinear", bint antialias=True, *, window=None, bint hflip=False,
                  bint vflip=False,
                  dtype=None, layout="HWC", lut=None):
    """Resamples a box of an image that is not 8-bit RGB, as the engine does.

    Args:
        image: uint8 or uint16 (height, width, 1 to 4).
        box, size, filter, antialias, window, hflip, vflip, layout: as for `resize`.
        dtype: "float32", "float16", or "bfloat16" (returned as uint16 bit patterns); None for the image's
            own.
        lut: for the float types, (channels, 256 or 65536) values of that type; None for value / 255 or 65535.

    Returns:
        array (height, width, channels) or (channels, height, width) of the window.

    Raises:
        ArgumentError: shapes, box, window or names do not fit.
    """
    image = _np.asarray(image)
    if image.dtype not in (_np.uint8, _np.uint16) or image.ndim != 3 or image.shape[2] > 4 or image.size == 0:
        raise _errors.ArgumentError(
            f"resize: needs a uint8 or uint16 image (height, width, 1 to 4), not {image.dtype} {image.shape}"
        )
    dtype = image.dtype.name if dtype is None else dtype
    return _resampled(image, True, box, size, filter, antialias, window, hflip, vflip, dtype, layout, lut)


cdef object _resampled(image, bint planes, box, size, filter, bint antialias, window, bint hflip, bint vflip,
                       dtype, layout, lut):
    cdef fl_view view
    cdef fl_resize_spec spec
    cdef fl_sink sink
    cdef fl_error err
    cdef fl_code code
    cdef uint32_t numbers[4]
    cdef const uint8_t[::1] pixels
    cdef _Resizer resizer = _Resizer()
    cdef size_t channels = image.shape[2], levels = 1 << 8 * image.dtype.itemsize
    memset(&view, 0, sizeof(view))
    memset(&sink, 0, sizeof(sink))
    image = _np.ascontiguousarray(image)
    pixels = image.reshape(-1).view(_np.uint8)
    view.pixels = &pixels[0]
    view.height, view.width = image.shape[:2]
    view.stride = image.strides[0]
    if planes:
        view.channels = sink.channels = <uint8_t>channels
        view.depth = sink.depth = <uint8_t>image.dtype.itemsize
    spec.x, spec.y, spec.width, spec.height = (0, 0, view.width, view.height) if box is None else box
    _unsigned(size, numbers, 2, "size")
    spec.out_width = numbers[0]
    spec.out_height = numbers[1]
    _unsigned((0, 0, spec.out_width, spec.out_height) if window is None else window, numbers, 4, "window")
    spec.window.x = numbers[0]
    spec.window.y = numbers[1]
    spec.window.width = numbers[2]
    spec.window.height = numbers[3]
    spec.at_x = 0
    spec.at_y = 0
    spec.filter = _choice(_FILTERS, filter, "filter")
    spec.antialias = antialias
    if (spec.window.x + <uint64_t>spec.window.width > spec.out_width
            or spec.window.y + <uint64_t>spec.window.height > spec.out_height):
        # Before its pixels are allocated.
        raise _errors.ArgumentError(f"window {window!r} is not inside the size {size!r}")

    sink.dtype, kind = _choice(_DTYPES, dtype, "dtype")
    sink.layout = _choice(_LAYOUTS, layout, "layout")
    sink.width = spec.window.width
    sink.height = spec.window.height
    sink.hflip = hflip
    sink.vflip = vflip
    sink.pitch, sink.plane = 0, 0
    if sink.layout == FL_HWC:
        out = _np.empty((sink.height, sink.width, channels), dtype=kind)
    else:
        out = _np.empty((channels, sink.height, sink.width), dtype=kind)
    floats = sink.dtype != FL_U8 and sink.dtype != FL_U16
    if lut is None and floats:
        lut = _default_lut(dtype, channels, levels)
    if lut is not None:
        lut = _np.ascontiguousarray(lut)
        if not floats or lut.shape != (channels, levels) or lut.dtype != kind:
            taken = f"({channels}, {levels}) of {_np.dtype(kind)}" if floats else "none"
            raise _errors.ArgumentError(
                f"resize: a lut of {lut.dtype} {lut.shape} does not fit dtype {dtype!r}, which takes {taken}"
            )
        sink.lut = <const void *>_address(lut)
    sink.data = <void *>_address(out)
    with nogil:
        if planes:
            code = fl_resize_planes_run(resizer.planes, &view, &spec, &sink, &err)
        else:
            code = fl_resize(resizer.handle, &view, &spec, &sink, &err)
    check(code, &err)
    return out
