# Regions of one JPEG at a time: decoded, then resampled, in the calling thread.

from fastload._native.c_common cimport (
    fl_box, fl_buffer, fl_buffer_fit, fl_buffer_free, fl_buffer_rule, fl_code, fl_error, fl_sink, fl_view,
)
from fastload._native.c_jpeg cimport (
    fl_jpeg_decoder, fl_jpeg_decoder_components, fl_jpeg_decoder_create, fl_jpeg_decoder_decode,
    fl_jpeg_decoder_end,
    fl_jpeg_decoder_fell_back, fl_jpeg_decoder_free, fl_jpeg_decoder_index, fl_jpeg_decoder_learn,
    fl_jpeg_decoder_learnt, fl_jpeg_decoder_open, fl_jpeg_decoder_warnings,
)
from fastload._native.c_resize cimport (
    fl_resize, fl_resize_exact, fl_resize_exact_create, fl_resize_exact_free, fl_resize_exact_reads,
    fl_resize_exact_run,
    fl_resize_exact_spec, fl_resize_spec, fl_resizer, fl_resizer_create, fl_resizer_free,
)

from libc.stdint cimport uint8_t, uint32_t, uint64_t

from libc.string cimport memchr
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize

cdef long _live_regions = 0


def has_end_marker(bytes data not None):
    """Returns True if the two bytes of a JPEG's end marker stand anywhere in the data."""
    cdef const uint8_t *at = <const uint8_t *><char *>data
    cdef const uint8_t *end = at + len(data)
    while end - at >= 2:
        at = <const uint8_t *>memchr(at, 0xFF, <size_t>(end - at - 1))
        if at is NULL:
            return False
        if at[1] == 0xD9:
            return True
        at += 1
    return False


cdef class RegionDecoder:
    """Decodes boxes of one JPEG at a time, and resamples them; warm, it allocates nothing but the results.

    1. open() a file, decode() a box of it, then resample() or pixels() as often as wanted: several crops of
       one region cost one decode.
    2. The file's bytes stay referenced until the next open() or close(); the decoded region lives until the
       next open(), decode() or close().
    3. Any thread may call; one at a time runs. The GIL is released around decoding and resampling.
    4. After close(), which may be called again, every call raises ClosedError.
    """

    cdef fl_jpeg_decoder *jpeg
    cdef fl_resizer *resizer
    cdef fl_resize_exact *exact
    cdef const uint8_t[::1] data
    cdef fl_view view
    cdef fl_buffer grey_room
    cdef uint64_t max_pixels
    cdef uint32_t width, height
    cdef bint opened, spent, decoded
    cdef object _lock

    def __cinit__(self):
        cdef fl_error err
        self._lock = _threading.Lock()
        check(fl_jpeg_decoder_create(&self.jpeg, &err), &err)
        _add(&_live_regions, 1)
        check(fl_resizer_create(&self.resizer, &err), &err)
        check(fl_resize_exact_create(&self.exact, &err), &err)

    def __dealloc__(self):
        self._free()

    cdef void _free(self) noexcept:
        if self.jpeg is not NULL:
            fl_jpeg_decoder_free(self.jpeg)
            self.jpeg = NULL
            _add(&_live_regions, -1)
        fl_resizer_free(self.resizer)
        fl_resize_exact_free(self.exact)
        fl_buffer_free(&self.grey_room)
        self.resizer = NULL
        self.exact = NULL

    def close(self):
        """Frees the native handles and lets go of the file's bytes."""
        with self._lock:
            self._free()
            self.opened = self.decoded = False
            self.data = None

    cdef int _check_open(self) except -1:
        if self.jpeg is NULL:
            raise _errors.ClosedError("this decoder is closed")
        return 0

    cdef int _check_opened(self) except -1:
        self._check_open()
        if not self.opened:
            raise _errors.ArgumentError("no JPEG is open: call open() first")
        return 0

    cdef int _check_decoded(self) except -1:
        self._check_opened()
        if not self.decoded:
            raise _errors.ArgumentError("nothing is decoded: call decode() first")
        return 0

    cdef int _open(self) except -1:
        cdef fl_error err
        cdef fl_code code
        cdef const uint8_t *start = _first(self.data)
        cdef size_t size = self.data.shape[0]
        self.opened = self.decoded = self.spent = False
        with nogil:
            code = fl_jpeg_decoder_open(self.jpeg, start, size, self.max_pixels, &self.width, &self.height,
                                        &err)
        check(code, &err)
        self.opened = True
        return 0

    def open(self, data, max_pixels=MAX_PIXELS):
        """Reads a JPEG's header.

        Args:
            data: the file, any contiguous bytes-like object; it must not change while it is open.
            max_pixels: a larger image is refused before anything is allocated.

        Returns:
            (width, height) in pixels.

        Raises:
            SampleError: it is no JPEG, is cut off, is too large, or is of a kind that is not decoded.
        """
        with self._lock:
            self._check_open()
            self.opened = self.decoded = False
            self.data = data
            self.max_pixels = max_pixels
            self._open()
            return self.width, self.height

    @property
    def fell_back(self):
        """True if libjpeg-turbo has the file, because it is not a usual baseline JPEG, or because the own
        decoder met damage in it."""
        with self._lock:
            self._check_opened()
            return bool(fl_jpeg_decoder_fell_back(self.jpeg))

    @property
    def components(self):
        """Components of the file, 1 or 3; 0 where libjpeg-turbo has it."""
        with self._lock:
            self._check_opened()
            return fl_jpeg_decoder_components(self.jpeg)

    @property
    def end(self):
        """Bytes of the file, its end marker included; 0 where libjpeg-turbo might raise an error about it.

        See NOTE [ baseline: files of which libjpeg-turbo raises no error ].
        """
        cdef size_t found
        with self._lock:
            self._check_opened()
            with nogil:
                found = fl_jpeg_decoder_end(self.jpeg)
            return found

    @property
    def warnings(self):
        """Number of libjpeg's warnings of the last open() and decode()."""
        with self._lock:
            self._check_opened()
            return fl_jpeg_decoder_warnings(self.jpeg)

    def decode(self, box=None, int eighths=8, bint grey=False, bytes index not None=b"",
               bint learn=False):
        """Decodes a box of the file to RGB, scaled by eighths/8 in the DCT, as jpeg_decode() does; its pixels
        are kept here.

        Args:
            box: (x, y, width, height) in pixels of the full image, None for all of it.
            eighths: 1, 2, 4 or 8.
            grey: keep one channel, the red, which is all that a grey file has.
            index: entropy index of the file, by which only the box's part of the coded data is read. One that
                does not fit the file is left aside, as far as the decoder notices (csrc/jpeg/baseline.h).
            learn: note on the way what an index is made of: see learnt().

        Returns:
            (width, height) of the decoded region.

        Raises:
            SampleError: it cannot be decoded, or ends before the box's last row.
            ArgumentError: the box is not inside the image, eighths is none of the four, or no file is open.
        """
        cdef fl_error err
        cdef fl_code code
        cdef fl_box area
        cdef uint32_t numbers[4]
        with self._lock:
            self._check_opened()
            _unsigned((0, 0, self.width, self.height) if box is None else box, numbers, 4, "box")
            area.x, area.y, area.width, area.height = numbers[0], numbers[1], numbers[2], numbers[3]
            if self.spent:
                self._open()
            self.spent = True
            self.decoded = False
            if learn:
                fl_jpeg_decoder_learn(self.jpeg)
            fl_jpeg_decoder_index(self.jpeg, <const uint8_t *>PyBytes_AS_STRING(index), len(index))
            with nogil:
                code = fl_jpeg_decoder_decode(self.jpeg, &area, eighths, &self.view, &err)
            check(code, &err)
            if grey:
                self._keep_red()
            self.decoded = True
            return self.view.width, self.view.height

    def learnt(self, size_t most):
        """The entropy index that the last decode with `learn` has come by, in at most so many bytes: of the
        rows that it read. b"": it knows no more than the index that it was given."""
        cdef const uint8_t *made = NULL
        cdef size_t size = 0
        with self._lock:
            self._check_opened()
            fl_jpeg_decoder_learnt(self.jpeg, most, &made, &size)
            return PyBytes_FromStringAndSize(<const char *>made, size)

    cdef int _keep_red(self) except -1:
        """Replaces the view of RGB by one of its red channel."""
        cdef fl_buffer_rule rule
        cdef const uint8_t *row
        cdef uint8_t *out
        cdef uint32_t x, y
        rule.least, rule.keep = 1 << 16, 64 << 20
        if not fl_buffer_fit(&self.grey_room, self.view.height, self.view.width, rule):
            raise _errors.ResourceError(
                f"no memory for {self.view.width} x {self.view.height} bytes of pixels"
            )
        out = <uint8_t *>self.grey_room.bytes
        with nogil:
            for y in range(self.view.height):
                row = self.view.pixels + y * self.view.stride
                for x in range(self.view.width):
                    out[x] = row[3 * <size_t>x]
                out += self.view.width
        self.view.pixels = <const uint8_t *>self.grey_room.bytes
        self.view.stride = self.view.width
        self.view.tail = self.grey_room.room - <size_t>self.view.width * self.view.height
        self.view.channels = self.view.depth = 1
        return 0

    def resample(self, box, size, filter="bilinear", *, image=None, window=None, bint hflip=False,
                 bint vflip=False, dtype="uint8",
                 layout="HWC", into=None, lut=None, order="horizontal", bint exact=True):
        """Resamples a box of the decoded region.

        Args:
            box: (left, top, right, bottom) in pixels of `image`; None for all of it.
            image: (x, y, width, height): the image beyond whose edges no pixel exists, in pixels of the
                region, of which it may stick out where nothing is read (see resize_exact_reads). None: the
                region itself.
            size, filter, window, hflip, vflip, dtype, layout, into, lut, order: as for resize_exact().
            exact: True: Pillow's resize, bit for bit; False: as resize() with antialiasing, within 1 of it:
                filter is "bilinear" or "bicubic", `image` is inside the region, which is RGB, and order does
                not matter.

        Returns:
            `into`, or a new array.

        Raises:
            ArgumentError: box, window, shapes or names do not fit, or nothing is decoded.
        """
        cdef fl_resize_exact_spec spec
        cdef fl_sink sink
        cdef fl_error err
        cdef fl_box reads
        cdef fl_code code
        with self._lock:
            self._check_decoded()
            self._place_image(&spec, image)
            _exact_spec(&spec, box, size, filter, order, window)
            check(fl_resize_exact_reads(&spec, &reads, &err), &err)
            into = _exact_sink(&sink, &self.view, spec.window.width, spec.window.height, dtype, layout, hflip,
                               vflip, into, lut)
            if exact:
                with nogil:
                    code = fl_resize_exact_run(self.exact, &self.view, &spec, &sink, &err)
                check(code, &err)
            else:
                self._resize(&spec, filter, &sink)
        return into

    def pixels(self, box=None, *, bint hflip=False, bint vflip=False, dtype="uint8", layout="HWC", into=None,
               lut=None):
        """Copies a box (x, y, width, height) of the decoded region, None for all of it; the other arguments
        as for resize_exact().

        Raises:
            ArgumentError: the box is not inside the region, shapes or names do not fit, or nothing is
                decoded.
        """
        with self._lock:
            self._check_decoded()
            x, y, width, height = (0, 0, self.view.width, self.view.height) if box is None else box
        return self.resample((x, y, x + width, y + height), (width, height), "nearest", hflip=hflip,
                             vflip=vflip, dtype=dtype, layout=layout, into=into, lut=lut)

    cdef int _place_image(self, fl_resize_exact_spec *spec, image) except -1:
        if image is None:
            spec.image_x, spec.image_y = 0, 0
            spec.image_width, spec.image_height = self.view.width, self.view.height
            return 0
        cdef uint32_t numbers[2]
        x, y, width, height = image
        for each in (x, y):
            if not -1 << 31 <= each < 1 << 31:
                raise _errors.ArgumentError(f"image {image!r} is out of range")
        spec.image_x, spec.image_y = x, y
        _unsigned((width, height), numbers, 2, "image size")
        spec.image_width, spec.image_height = numbers[0], numbers[1]
        return 0

    cdef int _resize(self, const fl_resize_exact_spec *exact, filter, const fl_sink *sink) except -1:
        """fl_resize of what an exact spec describes."""
        cdef fl_view view = self.view
        cdef fl_resize_spec spec
        cdef fl_error err
        cdef fl_code code
        if (exact.image_x < 0 or exact.image_y < 0 or exact.image_x + exact.image_width > view.width
                or exact.image_y + exact.image_height > view.height):
            raise _errors.ArgumentError(
                "the image is not inside the decoded region, which only exact=True allows"
            )
        view.pixels += exact.image_y * view.stride + exact.image_x * 3
        view.tail += (view.height - exact.image_y - exact.image_height) * view.stride
        view.tail += (view.width - exact.image_x - exact.image_width) * 3
        view.width, view.height = exact.image_width, exact.image_height
        spec.x, spec.y = exact.left, exact.top
        spec.width, spec.height = <double>exact.right - exact.left, <double>exact.bottom - exact.top
        spec.out_width, spec.out_height = exact.out_width, exact.out_height
        spec.window = exact.window
        spec.at_x = spec.at_y = 0
        spec.filter = _choice(_FILTERS, filter, "filter")
        spec.antialias = True
        with nogil:
            code = fl_resize(self.resizer, &view, &spec, sink, &err)
        check(code, &err)
        return 0
