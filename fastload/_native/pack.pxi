# Packing's fast path: one native call from a file's bytes to what is stored of it.

from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize
from cpython.ref cimport Py_DECREF, Py_INCREF

cdef extern from "Python.h":
    int _PyBytes_Resize(PyObject **, Py_ssize_t) except -1
    ctypedef struct PyObject:
        pass

cdef extern from "fl_entropy.h" nogil:
    ctypedef struct fl_entropy:
        pass
    fl_code fl_entropy_create(fl_entropy **, fl_error *)
    void fl_entropy_free(fl_entropy *)
    bint fl_entropy_sound(fl_entropy *, const uint8_t *, size_t)

Prepared = _namedtuple(
    "Prepared",
    ("width", "height", "components", "precision", "kind", "arithmetic", "orientation", "scans", "whole", "sound", "data"),
)


cdef class JpegPreparer:
    """Strips JPEGs and proves them sound; keeps the Huffman tables of the last file.

    Used by one thread at a time, which the caller sees to; freed with the last reference.
    """

    cdef fl_entropy *handle

    def __cinit__(self):
        cdef fl_error err
        self.handle = NULL
        check(fl_entropy_create(&self.handle, &err), &err)

    def __dealloc__(self):
        fl_entropy_free(self.handle)
        self.handle = NULL

    def prepare(self, bytes data not None, bint entropy=True):
        """Walks a JPEG, strips it and proves it sound in one call without the GIL.

        Args:
            data: the file.
            entropy: also walk the entropy-coded data.

        Returns:
            Prepared: width, height, components, precision, kind and arithmetic as jpeg_scan gives them; orientation (EXIF, 1 to 8); scans; whole:
            nothing in the markers is damaged, nothing stray stands between them and the end marker is there; sound: whole, and with `entropy`
            proved to decode without a warning, so False does not yet mean that there is one; data: the stripped file,
            `data` itself when there is nothing to strip, or None when its structure is too damaged to be stripped.

        Raises:
            SampleError: it is no JPEG, or ends before its first scan.
        """
        cdef const uint8_t *start = <const uint8_t *>PyBytes_AS_STRING(data)
        cdef size_t size = len(data), written = 0
        cdef fl_jpeg_layout layout
        cdef fl_error err, damage
        cdef fl_code code, strip
        cdef bint whole, sound = False
        cdef object out = PyBytes_FromStringAndSize(NULL, size)
        cdef uint8_t *into = <uint8_t *>PyBytes_AS_STRING(out)
        cdef PyObject *held
        with nogil:
            code = fl_jpeg_scan(start, size, &layout, NULL, 0, &err)
            strip = code
            if code == FL_OK:
                strip = fl_jpeg_strip(start, size, into, size, &written, &damage)
                whole = strip == FL_OK and layout.eoi and layout.stray == 0 and not layout.damaged
                sound = whole and (not entropy or fl_entropy_sound(self.handle, into, written))
        check(code, &err)
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
        return Prepared(layout.width, layout.height, layout.components, layout.precision, _KINDS[layout.kind], bool(layout.arithmetic),
                        layout.orientation, layout.scans, whole, sound, out)
