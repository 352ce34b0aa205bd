# The resizer. Declarations of csrc/resize.

from libc.stdint cimport int64_t, uint8_t, uint16_t, uint32_t, uint64_t

from fastload._native.c_common cimport fl_box, fl_code, fl_error, fl_sink, fl_view

cdef extern from "resize/resize.h" nogil:
    ctypedef struct fl_resizer:
        pass
    ctypedef enum fl_resize_filter:
        FL_RESIZE_BILINEAR
        FL_RESIZE_BICUBIC
    ctypedef struct fl_resize_spec:
        double x, y, width, height
        uint32_t out_width, out_height
        fl_box window
        uint32_t at_x, at_y
        fl_resize_filter filter
        bint antialias
    fl_code fl_resizer_create(fl_resizer **, fl_error *)
    void fl_resizer_free(fl_resizer *)
    fl_code fl_resize(fl_resizer *, const fl_view *, const fl_resize_spec *, const fl_sink *, fl_error *)

cdef extern from "resize/resize_planes.h" nogil:
    ctypedef struct fl_resize_planes:
        pass
    fl_code fl_resize_planes_create(fl_resize_planes **, fl_error *)
    void fl_resize_planes_free(fl_resize_planes *)
    fl_code fl_resize_planes_run(fl_resize_planes *, const fl_view *, const fl_resize_spec *, const fl_sink *, fl_error *)
