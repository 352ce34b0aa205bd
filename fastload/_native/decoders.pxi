# Stored images of any kind, by the engine's table of decoders: one call each over bytes in memory.

from fastload._native.c_common cimport fl_box, fl_code, fl_error, fl_span, fl_view
from fastload._native.c_engine cimport (
    fl_decoder, fl_decoder_at, fl_decoder_find, fl_decoder_sniff, fl_image_form, fl_stored,
)

from types import MappingProxyType as _MappingProxyType


cdef class _Decoder:
    """The decoder of a kind of entry, with an image open. Used by one thread; freed with the last
    reference."""

    cdef const fl_decoder *decoder
    cdef void *state
    cdef const uint8_t[::1] view  # held until the decode is over: the decoder reads from it
    cdef fl_image_form form

    def __cinit__(self, int kind, data, max_pixels):
        cdef fl_error err
        cdef fl_code code
        cdef fl_stored image
        cdef uint64_t limit = max_pixels
        cdef int place = fl_decoder_find(kind)
        if place < 0:
            raise _errors.SampleError(f"its image is of kind {kind}, which this version cannot decode")
        self.decoder = fl_decoder_at(place)
        check(self.decoder.create(&self.state, &err), &err)
        self.view = data
        image.data.bytes, image.data.size = _first(self.view), <size_t>self.view.shape[0]
        image.kind, image.index.bytes, image.index.size, image.sound = kind, NULL, 0, False
        with nogil:
            code = self.decoder.open(self.state, &image, limit, &self.form, &err)
        check(code, &err)

    def __dealloc__(self):
        if self.state != NULL:
            self.decoder.free(self.state)


def _image_kinds():
    """Record kind of the stored images that each decoder of the table makes pixels of, by its name."""
    found = {}
    cdef int place = 0
    while fl_decoder_at(place) != NULL:
        found[fl_decoder_at(place).name.decode()] = fl_decoder_at(place).kind
        place += 1
    return found


IMAGE_KINDS = _MappingProxyType(_image_kinds())


def stored_kind(data):
    """Record kind of the image that a file holds, by its first bytes; 0: none that this version decodes."""
    cdef const uint8_t[::1] view = data
    cdef fl_span span
    span.bytes, span.size = _first(view), <size_t>view.shape[0]
    return <int>fl_decoder_sniff(span)


def stored_size(int kind, data, max_pixels=MAX_PIXELS):
    """(height, width) of a stored image, by its header; arguments and errors are those of stored_decode."""
    cdef _Decoder image = _Decoder(kind, data, max_pixels)
    return image.form.height, image.form.width


def stored_decode(int kind, data, box=None, max_pixels=MAX_PIXELS):
    """Decodes a stored image of 8-bit RGB.

    Args:
        kind: record kind of its entry, of IMAGE_KINDS.
        data: the entry's bytes, any contiguous bytes-like object.
        box: (x, y, width, height) in pixels, None for all of it.
        max_pixels: a larger image is refused before anything is allocated.

    Returns:
        uint8 array (height, width, 3).

    Raises:
        SampleError: it cannot be decoded, or has another form.
        ArgumentError: the box is not inside the image.
    """
    cdef _Decoder image = _Decoder(kind, data, max_pixels)
    cdef fl_box area
    cdef fl_view made
    cdef fl_error err
    cdef fl_code code
    cdef uint32_t numbers[4]
    cdef uint32_t row, x, y
    cdef uint8_t[:, :, ::1] out
    _unsigned((0, 0, image.form.width, image.form.height) if box is None else box, numbers, 4, "box")
    if image.form.channels:
        raise _errors.SampleError("its pixels are not 8-bit RGB")
    if not (0 < numbers[2] <= image.form.width - min(numbers[0], image.form.width)
            and 0 < numbers[3] <= image.form.height - min(numbers[1], image.form.height)):
        raise _errors.ArgumentError(
            f"box {box!r} is not inside an image of {image.form.width} x {image.form.height} pixels"
        )
    area.x, area.y, area.width, area.height = numbers[0], numbers[1], numbers[2], numbers[3]
    pixels = _np.empty((numbers[3], numbers[2], 3), _np.uint8)
    out = pixels
    with nogil:
        code = image.decoder.decode(image.state, &area, 8, &made, &err)
        if not code:
            x, y = numbers[0] - area.x, numbers[1] - area.y
            for row in range(numbers[3]):
                _c_memcpy(&out[row, 0, 0], made.pixels + (y + row) * made.stride + 3 * <size_t>x,
                          3 * <size_t>numbers[2])
    check(code, &err)
    return pixels
