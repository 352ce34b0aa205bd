# The resizer. Declarations of csrc/resize.

from libc.stdint cimport int64_t, uint8_t, uint16_t, uint32_t, uint64_t

from fastload._native.c_common cimport fl_box, fl_buffer, fl_code, fl_error, fl_sink, fl_view

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
    fl_code fl_resize_planes_run(fl_resize_planes *, const fl_view *, const fl_resize_spec *, const fl_sink *,
                                 fl_error *)

cdef extern from "resize/exact.h" nogil:
    ctypedef struct fl_resize_exact:
        pass
    ctypedef enum fl_resize_exact_filter:
        FL_RESIZE_EXACT_NEAREST
        FL_RESIZE_EXACT_LANCZOS
        FL_RESIZE_EXACT_BILINEAR
        FL_RESIZE_EXACT_BICUBIC
        FL_RESIZE_EXACT_BOX
        FL_RESIZE_EXACT_HAMMING
        FL_RESIZE_EXACT_MKS2013
        FL_RESIZE_EXACT_MKS2021
    ctypedef enum fl_resize_order:
        FL_RESIZE_ACROSS_FIRST
        FL_RESIZE_DOWN_FIRST
        FL_RESIZE_BY_SHRINK
    ctypedef struct fl_resize_exact_spec:
        int64_t image_x, image_y
        uint32_t image_width, image_height
        float left, top, right, bottom
        uint32_t out_width, out_height
        fl_box window
        fl_resize_exact_filter filter
        fl_resize_order order
    fl_code fl_resize_exact_create(fl_resize_exact **, fl_error *)
    void fl_resize_exact_free(fl_resize_exact *)
    fl_code fl_resize_exact_reads(const fl_resize_exact_spec *, fl_box *, fl_error *)
    fl_code fl_resize_exact_run(fl_resize_exact *, const fl_view *, const fl_resize_exact_spec *,
                                const fl_sink *, fl_error *)

cdef extern from "resize/normalize.h" nogil:
    enum: FL_RESIZE_NORMALIZE_CHANNELS
    void fl_resize_normalize(const float *, float *, size_t, float, float)
    void fl_resize_normalize_interleaved(const float *, float *, size_t, size_t, const float *, const float *)

cdef extern from "resize/reduce.h" nogil:
    fl_code fl_resize_reduce(const fl_view *, const fl_box *, uint32_t, uint32_t, fl_buffer *, uint8_t *,
                             fl_error *)
