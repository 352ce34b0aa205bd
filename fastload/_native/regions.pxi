# The own JPEG decoder on one file after another, box by box, for images whose pixels are asked for later.

from fastload._native.c_common cimport fl_box, fl_code, fl_error, fl_view
from fastload._native.c_jpeg cimport (
    fl_jpeg_baseline, fl_jpeg_baseline_components, fl_jpeg_baseline_create, fl_jpeg_baseline_decode, fl_jpeg_baseline_end,
    fl_jpeg_baseline_free, fl_jpeg_baseline_open,
)

from libc.stdint cimport uint8_t, uint32_t
from libc.string cimport memcpy as _c_memcpy
from cpython.bytes cimport PyBytes_AS_STRING

cdef long _live_regions = 0

JpegRegions = _namedtuple("JpegRegions", ("width", "height", "components", "end"))


cdef class RegionDecoder:
    """The own decoder, without libjpeg-turbo behind it: what it does not know, it refuses.

    1. open() comes before decode(), which may follow any number of times for other boxes of the same file.
    2. It keeps its tables and scratch from file to file. It is used by one thread at a time, which the caller sees to.
    """

    cdef fl_jpeg_baseline *handle
    cdef bytes data

    def __cinit__(self):
        global _live_regions
        cdef fl_error err
        self.handle = NULL
        check(fl_jpeg_baseline_create(&self.handle, &err), &err)
        _live_regions += 1

    def __dealloc__(self):
        global _live_regions
        if self.handle != NULL:
            _live_regions -= 1
        fl_jpeg_baseline_free(self.handle)
        self.handle = NULL

    def open(self, bytes data not None):
        """Reads a file's header.

        Returns:
            JpegRegions(width, height, components, end), or None for a file that this decoder does not know. end: bytes of the file with
            its end marker; 0 if libjpeg-turbo, and so Pillow, might raise an exception about the file.
        """
        cdef const uint8_t *start = <const uint8_t *>PyBytes_AS_STRING(data)
        cdef size_t size = len(data), end = 0
        cdef uint32_t width = 0, height = 0
        cdef bint known
        self.data = data
        with nogil:
            known = fl_jpeg_baseline_open(self.handle, start, size, &width, &height)
            if known:
                end = fl_jpeg_baseline_end(self.handle)
        if not known:
            self.data = None
            return None
        return JpegRegions(width, height, fl_jpeg_baseline_components(self.handle), end)

    def decode(self, x, y, width, height, int eighths=8, bint grey=False):
        """Decodes a box (in pixels of the full image) of the file last opened, scaled by eighths/8 in the DCT; see jpeg_decode.

        Returns:
            uint8 array (height, width, 3), or (height, width) of the first channel with `grey`: libjpeg-turbo's bytes. None where this decoder
            met damage, or the box is not inside the image.
        """
        cdef fl_box area
        cdef fl_view view
        cdef uint32_t numbers[4]
        cdef uint32_t row, column
        cdef uint8_t[:, :, ::1] out
        cdef uint8_t[:, ::1] plane
        cdef const uint8_t *at
        cdef bint done
        if self.data is None:
            raise _errors.ArgumentError("RegionDecoder.decode: no file is open")
        _unsigned((x, y, width, height), numbers, 4, "box")
        area.x, area.y, area.width, area.height = numbers[0], numbers[1], numbers[2], numbers[3]
        with nogil:
            done = fl_jpeg_baseline_decode(self.handle, &area, eighths, NULL, 0, &view)
        if not done:
            return None
        if grey:
            pixels = _np.empty((view.height, view.width), dtype=_np.uint8)
            plane = pixels
            with nogil:
                for row in range(view.height):
                    at = view.pixels + row * view.stride
                    for column in range(view.width):
                        plane[row, column] = at[3 * column]
            return pixels
        pixels = _np.empty((view.height, view.width, 3), dtype=_np.uint8)
        out = pixels
        with nogil:
            for row in range(view.height):
                _c_memcpy(&out[row, 0, 0], view.pixels + row * view.stride, <size_t>view.width * 3)
        return pixels
