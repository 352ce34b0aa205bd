# The DCT form of JPEGs: coefficients as bit planes, decoded faster than Huffman codes, and back to the file's
# bytes.

from fastload._native.c_common cimport fl_code, fl_error, FL_EUNSUPPORTED
from fastload._native.c_jpeg cimport (
    fl_jpeg_dct, fl_jpeg_dct_create, fl_jpeg_dct_encode, fl_jpeg_dct_free, fl_jpeg_dct_is,
    fl_jpeg_dct_restore,
    fl_jpeg_dct_sound,
)

from libc.stdint cimport uint8_t, uint64_t
from cpython.bytes cimport PyBytes_FromStringAndSize


def is_dct_form(data):
    """True for bytes that begin as an image in the DCT form does."""
    cdef const uint8_t[::1] view = data
    return bool(fl_jpeg_dct_is(_first(view), view.shape[0]))


cdef class DctCoder:
    """Converts JPEGs to the DCT form (docs/format.md) and back; keeps the Huffman tables of the last file.

    Used by one thread at a time, which the caller sees to; freed with the last reference. RegionDecoder
    decodes the form as it does JPEGs.
    """

    cdef fl_jpeg_dct *handle

    def __cinit__(self):
        cdef fl_error err
        self.handle = NULL
        check(fl_jpeg_dct_create(&self.handle, &err), &err)

    def __dealloc__(self):
        fl_jpeg_dct_free(self.handle)
        self.handle = NULL

    def encode(self, data, max_pixels=MAX_PIXELS):
        """Converts a JPEG, reads the result again and compares the coefficients, from which the file's bytes
        follow.

        Returns:
            (the DCT form, ""), or (None, the reason) for a file that stays a JPEG: another kind than one
            baseline or extended sequential scan or a complete progressive file, damaged coded data, more than
            max_pixels pixels, or one that does not come back byte for byte.
        """
        cdef const uint8_t[::1] view = data
        cdef const uint8_t *start = _first(view)
        cdef const uint8_t *out = NULL
        cdef size_t size = view.shape[0], written = 0
        cdef uint64_t limit = max_pixels
        cdef fl_error err
        cdef fl_code code
        with nogil:
            code = fl_jpeg_dct_encode(self.handle, start, size, limit, &out, &written, &err)
        if code == FL_EUNSUPPORTED:
            return None, error_text(&err)
        check(code, &err)
        return PyBytes_FromStringAndSize(<const char *>out, written), ""

    @property
    def sound(self):
        """True if the file of the last encode() that returned a form would be proved sound by
        JpegPreparer.prepare(), which need not walk it."""
        return bool(fl_jpeg_dct_sound(self.handle))

    def restore(self, data):
        """Returns the bytes of the JPEG.

        Raises:
            SampleError: the bytes are no image in the DCT form, or a damaged one.
        """
        cdef const uint8_t[::1] view = data
        cdef const uint8_t *start = _first(view)
        cdef const uint8_t *out = NULL
        cdef size_t size = view.shape[0], written = 0
        cdef fl_error err
        cdef fl_code code
        with nogil:
            code = fl_jpeg_dct_restore(self.handle, start, size, &out, &written, &err)
        check(code, &err)
        return PyBytes_FromStringAndSize(<const char *>out, written)
