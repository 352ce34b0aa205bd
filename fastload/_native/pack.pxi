# Packing's fast path: one native call from a file's bytes to what is stored of it.

from fastload._native.c_common cimport fl_code, fl_error, FL_OK
from fastload._native.c_jpeg cimport (
    fl_jpeg_entropy, fl_jpeg_entropy_create, fl_jpeg_entropy_free, fl_jpeg_entropy_index,
    fl_jpeg_entropy_sound,
    FL_JPEG_INDEX_EVERY, fl_jpeg_index_most, fl_jpeg_layout, fl_jpeg_markers_read, fl_jpeg_strip,
)

from libc.stdint cimport SIZE_MAX
from libc.string cimport memcmp as _c_memcmp
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize
from cpython.ref cimport Py_DECREF, Py_INCREF

cdef extern from "Python.h":
    int _PyBytes_Resize(PyObject **, Py_ssize_t) except -1
    ctypedef struct PyObject:
        pass

Prepared = _namedtuple(
    "Prepared",
    ("width", "height", "components", "precision", "kind", "arithmetic", "orientation", "scans", "whole",
     "sound", "data", "entropy_index"),
)


cdef class JpegPreparer:
    """Strips JPEGs, proves them sound and indexes them; keeps the Huffman tables of the last file.

    Used by one thread at a time, which the caller sees to; freed with the last reference.
    """

    cdef fl_jpeg_entropy *handle

    def __cinit__(self):
        cdef fl_error err
        self.handle = NULL
        check(fl_jpeg_entropy_create(&self.handle, &err), &err)

    def __dealloc__(self):
        fl_jpeg_entropy_free(self.handle)
        self.handle = NULL

    def prepare(self, bytes data not None, bint entropy=True, bint index=False):
        """Walks a JPEG, strips it, proves it sound and makes its entropy index in one call without the GIL.

        Args:
            data: the file.
            entropy: also walk the entropy-coded data.
            index: also make the index, for which they are walked anyway.

        Returns:
            Prepared: width, height, components, precision, kind and arithmetic as jpeg_scan gives them;
                orientation (EXIF, 1 to 8); scans; whole:
            nothing in the markers is damaged, nothing stray stands between them and the end marker is there;
            sound: whole, and with `entropy` proved to decode without a warning, so False does not yet mean
                that there is one; data: the stripped file,
            `data` itself when there is nothing to strip, or None when its structure is too damaged to be
            stripped; entropy_index: as `index` gives it, and it holds for `data` as well as for the stripped
            file; b"" when it was not asked for.

        Raises:
            SampleError: it is no JPEG, or ends before its first scan.
        """
        cdef const uint8_t *start = <const uint8_t *>PyBytes_AS_STRING(data)
        cdef size_t size = len(data), written = 0
        cdef fl_jpeg_layout layout
        cdef fl_error err, damage
        cdef fl_code code, strip
        cdef bint whole, sound = False, proved = False
        cdef const uint8_t *made = NULL
        cdef size_t made_size = 0
        cdef object out = PyBytes_FromStringAndSize(NULL, size)
        cdef uint8_t *into = <uint8_t *>PyBytes_AS_STRING(out)
        cdef PyObject *held
        with nogil:
            code = fl_jpeg_markers_read(start, size, &layout, &err)
            strip = code
            if code == FL_OK:
                strip = fl_jpeg_strip(start, size, into, size, &written, &damage)
                whole = strip == FL_OK and layout.eoi and layout.stray == 0 and not layout.damaged
                if whole and index:
                    proved = fl_jpeg_entropy_index(self.handle, into, written, FL_JPEG_INDEX_EVERY,
                                                   fl_jpeg_index_most(written), &made, &made_size)
                elif whole and entropy:
                    proved = fl_jpeg_entropy_sound(self.handle, into, written)
                sound = whole and (proved or not entropy)
        check(code, &err)
        found = PyBytes_FromStringAndSize(<const char *>made, made_size)
        if strip != FL_OK:
            out = None
        elif written == size:
            out = data
        else:
            # shrunk in place: `out` is the only reference, which the call consumes and gives back
            held = <PyObject *>out
            Py_INCREF(out)
            out = None
            _PyBytes_Resize(&held, written)
            out = <object>held
            Py_DECREF(out)
        return Prepared(layout.width, layout.height, layout.components, layout.precision, _KINDS[layout.kind],
                        bool(layout.arithmetic),
                        layout.orientation, layout.scans, whole, sound, out, found)

    def index(self, bytes data not None):
        """The entropy index of a JPEG (jpeg/entropy_index.h): where in its coded data MCUs start, in at most
        1.5 % of the file's size.

        Returns:
            bytes; b"" for a file that is damaged, not of the usual kind (see jpeg/baseline.h), or for which
            no index is small enough.
        """
        cdef const uint8_t *start = <const uint8_t *>PyBytes_AS_STRING(data)
        cdef const uint8_t *made = NULL
        cdef size_t size = len(data), made_size = 0
        with nogil:
            fl_jpeg_entropy_index(self.handle, start, size, FL_JPEG_INDEX_EVERY, fl_jpeg_index_most(size),
                                  &made, &made_size)
        return PyBytes_FromStringAndSize(<const char *>made, made_size)

    def index_holds(self, bytes data not None, bytes index not None):
        """Returns True if an index is that of this JPEG: true in every mark, however dense they are."""
        cdef const uint8_t *start = <const uint8_t *>PyBytes_AS_STRING(data)
        cdef const uint8_t *stored = <const uint8_t *>PyBytes_AS_STRING(index)
        cdef const uint8_t *made = NULL
        cdef size_t size = len(data), stored_size = len(index), made_size = 0
        cdef uint32_t every = 0
        with nogil:
            if stored_size > 1:
                every = stored[1]
                fl_jpeg_entropy_index(self.handle, start, size, every, SIZE_MAX, &made, &made_size)
        return made_size > 0 and made_size == stored_size and _c_memcmp(made, stored, made_size) == 0
