# Pillow's own resize and reduce, bit for bit. See NOTE [ resize: Pillow's arithmetic ].

from fastload._native.c_common cimport (
    fl_box, fl_buffer, fl_buffer_free, fl_code, fl_error, FL_HWC, fl_sink, FL_U8, fl_view,
)
from fastload._native.c_resize cimport (
    FL_RESIZE_ACROSS_FIRST, FL_RESIZE_BY_SHRINK, FL_RESIZE_DOWN_FIRST, fl_resize_exact,
    FL_RESIZE_EXACT_BICUBIC, FL_RESIZE_EXACT_BILINEAR,
    FL_RESIZE_EXACT_BOX, fl_resize_exact_create, fl_resize_exact_free, FL_RESIZE_EXACT_HAMMING,
    FL_RESIZE_EXACT_LANCZOS,
    FL_RESIZE_EXACT_MKS2013, FL_RESIZE_EXACT_MKS2021, FL_RESIZE_EXACT_NEAREST, fl_resize_exact_reads,
    fl_resize_exact_run,
    fl_resize_exact_spec, fl_resize_normalize, FL_RESIZE_NORMALIZE_CHANNELS, fl_resize_normalize_interleaved,
    fl_resize_reduce,
)

from libc.stdint cimport int64_t, uint8_t, uint32_t
from libc.string cimport memset

_EXACT_FILTERS = {
    "nearest": FL_RESIZE_EXACT_NEAREST,
    "box": FL_RESIZE_EXACT_BOX,
    "bilinear": FL_RESIZE_EXACT_BILINEAR,
    "hamming": FL_RESIZE_EXACT_HAMMING,
    "bicubic": FL_RESIZE_EXACT_BICUBIC,
    "lanczos": FL_RESIZE_EXACT_LANCZOS,
    "mks2013": FL_RESIZE_EXACT_MKS2013,
    "mks2021": FL_RESIZE_EXACT_MKS2021,
}
_ORDERS = {"horizontal": FL_RESIZE_ACROSS_FIRST, "vertical": FL_RESIZE_DOWN_FIRST,
           "by-shrink": FL_RESIZE_BY_SHRINK}
_EXACT_DTYPES = {name: _DTYPES[name] for name in ("uint8", "float32")}
_UNIT_LUT = _default_lut("float32", 3, 256)  # what torch's tensor.to(float32).div(255) gives


cdef class _ExactResizer:
    """One fl_resize_exact. Used by one thread; freed with the last reference."""

    cdef fl_resize_exact *handle

    def __cinit__(self):
        cdef fl_error err
        check(fl_resize_exact_create(&self.handle, &err), &err)

    def __dealloc__(self):
        fl_resize_exact_free(self.handle)


cdef int _exact_view(object image, fl_view *view, str what) except -1:
    """Points a view at an image (height, width, 3), (height, width, 1) or (height, width) of uint8, which
    must stay referenced."""
    channels = image.shape[2] if image.ndim == 3 else 1
    if image.dtype != _np.uint8 or image.ndim not in (2, 3) or channels not in (1, 3) or image.size == 0:
        raise _errors.ArgumentError(
            f"{what}: needs a uint8 image (height, width) or (height, width, 1 or 3), not {image.dtype} "
            f"{image.shape}"
        )
    memset(view, 0, sizeof(fl_view))
    view.pixels = <const uint8_t *>_address(image)
    view.height, view.width = image.shape[:2]
    view.stride = view.width * channels  # of one row numpy allows any stride
    if channels == 1:
        view.channels = view.depth = 1
    return 0


cdef int _exact_spec(fl_resize_exact_spec *spec, object box, object size, object filter, object order,
                     object window) except -1:
    """Fills all of a spec but the image: box is (left, top, right, bottom) or None for all of it."""
    cdef uint32_t numbers[4]
    if box is None:
        spec.left = spec.top = 0
        spec.right = spec.image_width
        spec.bottom = spec.image_height
    else:
        try:
            left, top, right, bottom = (float(each) for each in box)
        except (TypeError, ValueError, OverflowError):
            raise _errors.ArgumentError(
                f"box {box!r} is not four numbers (left, top, right, bottom)"
            ) from None
        spec.left, spec.top = <float><double>left, <float><double>top
        spec.right, spec.bottom = <float><double>right, <float><double>bottom
    _unsigned(size, numbers, 2, "size")
    spec.out_width = numbers[0]
    spec.out_height = numbers[1]
    _unsigned((0, 0, spec.out_width, spec.out_height) if window is None else window, numbers, 4, "window")
    spec.window.x = numbers[0]
    spec.window.y = numbers[1]
    spec.window.width = numbers[2]
    spec.window.height = numbers[3]
    spec.filter = _choice(_EXACT_FILTERS, filter, "filter")
    spec.order = _choice(_ORDERS, order, "order")
    return 0


cdef object _exact_sink(fl_sink *sink, const fl_view *view, uint32_t width, uint32_t height, dtype, layout,
                        bint hflip, bint vflip, into, lut):
    """Points a sink at `into`, or at a new array, and returns that."""
    cdef object channels = 1 if view.channels else 3
    cdef object shape
    memset(sink, 0, sizeof(fl_sink))
    sink.dtype, kind = _choice(_EXACT_DTYPES, dtype, "dtype")
    sink.layout = _choice(_LAYOUTS, layout, "layout")
    sink.width, sink.height = width, height
    sink.hflip, sink.vflip = hflip, vflip
    sink.channels, sink.depth = view.channels, view.depth
    if sink.dtype != FL_U8:
        sink.lut = <const void *>_address(_float_lut(lut, channels))
    if sink.layout == FL_HWC:
        shape = (height, width, channels)
    else:
        shape = (channels, height, width)
    if into is None:
        into = _np.empty(shape, dtype=kind)
    elif (
        not isinstance(into, _np.ndarray)
        or into.dtype != kind
        or into.shape != shape
        or not into.flags.carray
    ):
        raise _errors.ArgumentError(f"into must be a writable, contiguous array of {dtype} {shape}")
    sink.data = <void *>_address(into)
    return into


cdef object _float_lut(object lut, object channels):
    """The table of a sink of floats, which must stay referenced: `lut` itself, or bytes over 255 for None."""
    if lut is None:
        return _UNIT_LUT
    if (
        not isinstance(lut, _np.ndarray)
        or lut.dtype != _np.float32
        or lut.shape != (channels, 256)
        or not lut.flags.c_contiguous
    ):
        raise _errors.ArgumentError(f"lut must be a contiguous float32 array of ({channels}, 256)")
    return lut


def resize_exact(image, box, size, filter="bilinear", *, order="horizontal", window=None, bint hflip=False,
                 bint vflip=False,
                 dtype="uint8", layout="HWC", into=None, lut=None):
    """Resizes a box of an image as Pillow's Image.resize does, bit for bit.

    Args:
        image: uint8 (height, width, 3), (height, width, 1) or (height, width).
        box: (left, top, right, bottom) in its pixels, which are rounded to float32, as Pillow does; None for
            all of it.
        size: (width, height) of what the box becomes.
        filter: "nearest", "box", "bilinear", "hamming", "bicubic", "lanczos", or, of Pillow 13, "mks2013" and
            "mks2021".
        order: order of the passes. "horizontal" first, as Pillow up to 12; "vertical" first; "by-shrink", as
            Pillow 13: vertical first where the height shrinks by more than twice as many pixels as the width.
        window: (x, y, width, height) of that result which is wanted; None for all of it.
        hflip: mirror left and right, last. vflip: top and bottom.
        dtype: "uint8", or "float32" for value / 255.
        layout: "HWC" or "CHW".
        into: an array of the result's shape and dtype that it is written to; None for a new one.
        lut: float32 (channels, 256), the values of bytes in a result of float32; None: value / 255.

    Returns:
        array (height, width, channels) or (channels, height, width) of the window.

    Raises:
        ArgumentError: shapes, box, window or names do not fit.
    """
    cdef fl_view view
    cdef fl_resize_exact_spec spec
    cdef fl_sink sink
    cdef fl_error err
    cdef fl_code code
    cdef fl_box reads
    cdef _ExactResizer resizer = _ExactResizer()
    image = _np.ascontiguousarray(image)
    _exact_view(image, &view, "resize")
    spec.image_x, spec.image_y = 0, 0
    spec.image_width, spec.image_height = view.width, view.height
    _exact_spec(&spec, box, size, filter, order, window)
    # Refuses what does not fit before its pixels are allocated
    check(fl_resize_exact_reads(&spec, &reads, &err), &err)
    into = _exact_sink(&sink, &view, spec.window.width, spec.window.height, dtype, layout, hflip, vflip, into, lut)
    with nogil:
        code = fl_resize_exact_run(resizer.handle, &view, &spec, &sink, &err)
    check(code, &err)
    return into


def resize_exact_reads(image_size, box, size, filter="bilinear", *, window=None):
    """Returns the box (x, y, width, height) of an image's pixels that resize_exact looks at, sizes 0 where it
    is none.

    Args:
        image_size: (width, height) of the image.
        box, size, filter, window: as for `resize_exact`.

    Raises:
        ArgumentError: box, window or names do not fit.
    """
    cdef fl_resize_exact_spec spec
    cdef fl_error err
    cdef fl_box reads
    cdef uint32_t numbers[2]
    _unsigned(image_size, numbers, 2, "image size")
    spec.image_x, spec.image_y = 0, 0
    spec.image_width, spec.image_height = numbers[0], numbers[1]
    _exact_spec(&spec, box, size, filter, "horizontal", window)
    check(fl_resize_exact_reads(&spec, &reads, &err), &err)
    return reads.x, reads.y, reads.width, reads.height


def reduce_exact(image, factors, box=None):
    """Reduces a box of an image as Pillow's Image.reduce does, bit for bit.

    Args:
        image: uint8 (height, width, 3), (height, width, 1) or (height, width).
        factors: (across, down), or one for both: the pixels of which a pixel is the mean.
        box: (left, top, right, bottom) of whole pixels; None for all of it.

    Returns:
        array (ceil(height / down), ceil(width / across), channels).

    Raises:
        ArgumentError: shapes, factors or box do not fit.
    """
    cdef fl_view view
    cdef fl_box area
    cdef fl_buffer room
    cdef fl_error err
    cdef fl_code code
    cdef uint32_t numbers[4]
    cdef uint8_t *out
    image = _np.ascontiguousarray(image)
    _exact_view(image, &view, "reduce")
    _unsigned((0, 0, view.width, view.height) if box is None else box, numbers, 4, "box")
    if (
        numbers[2] <= numbers[0]
        or numbers[3] <= numbers[1]
        or numbers[2] > view.width
        or numbers[3] > view.height
    ):
        raise _errors.ArgumentError(
            f"reduce: the box {box!r} is empty or not inside the {view.width} x {view.height} image"
        )
    area.x, area.y = numbers[0], numbers[1]
    area.width, area.height = numbers[2] - numbers[0], numbers[3] - numbers[1]
    _unsigned((factors, factors) if isinstance(factors, int) else factors, numbers, 2, "factors")
    cdef uint32_t across = numbers[0], down = numbers[1]
    if not across or not down:
        raise _errors.ArgumentError(f"reduce: factors {factors!r} must be at least 1")
    made = _np.empty(((area.height - 1) // down + 1, (area.width - 1) // across + 1,
                      1 if view.channels else 3), dtype=_np.uint8)
    out = <uint8_t *>_address(made)
    memset(&room, 0, sizeof(room))
    with nogil:
        code = fl_resize_reduce(&view, &area, across, down, &room, out, &err)
    fl_buffer_free(&room)
    check(code, &err)
    return made


def normalize(const float[:, :, ::1] image, float[:, :, ::1] out, object mean, object std,
              bint interleaved=False):
    """Writes (image - mean) / std of each channel into `out`, each step rounded to float32, as torch's sub_
    and div_ do.

    Args:
        image, out: float32 (channels, height, width), or (height, width, channels) if `interleaved`; they may
            be the same memory.
        mean, std: numbers, one for each channel, at most 4; they are rounded to float32.

    Raises:
        ArgumentError: shapes or numbers of channels differ.
    """
    cdef float means[FL_RESIZE_NORMALIZE_CHANNELS]
    cdef float stds[FL_RESIZE_NORMALIZE_CHANNELS]
    cdef size_t channels = image.shape[2 if interleaved else 0], channel
    cdef size_t rows = image.shape[0 if interleaved else 1], columns = image.shape[1 if interleaved else 2]
    if (
        image.shape[0] != out.shape[0] or image.shape[1] != out.shape[1] or image.shape[2] != out.shape[2]
        or not 0 < channels <= FL_RESIZE_NORMALIZE_CHANNELS or len(mean) != channels or len(std) != channels
    ):
        raise _errors.ArgumentError(
            f"normalize: {len(mean)} means and {len(std)} standard deviations for {channels} channels of at "
            f"most {FL_RESIZE_NORMALIZE_CHANNELS}, or an output of another shape than the image's"
        )
    if not rows or not columns:
        return
    for channel in range(channels):
        means[channel], stds[channel] = mean[channel], std[channel]
    with nogil:
        if interleaved:
            fl_resize_normalize_interleaved(&image[0, 0, 0], &out[0, 0, 0], rows * columns, channels, means,
                                            stds)
        else:
            for channel in range(channels):
                fl_resize_normalize(&image[channel, 0, 0], &out[channel, 0, 0], rows * columns,
                                    means[channel], stds[channel])
