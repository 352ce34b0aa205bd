# The JPEG room: libjpeg-turbo, markers, transcoding, the proof of coded data and its index. Declarations of
# csrc/jpeg.

from libc.stdint cimport int64_t, uint8_t, uint16_t, uint32_t, uint64_t

from fastload._native.c_common cimport fl_box, fl_code, fl_error, fl_view

cdef extern from "jpeg/libjpeg.h" nogil:
    ctypedef struct fl_libjpeg:
        pass
    ctypedef struct fl_libjpeg_info:
        uint32_t width, height
        uint8_t components, color_space
        bint progressive, arithmetic
    fl_code fl_libjpeg_create(fl_libjpeg **, fl_error *)
    void fl_libjpeg_free(fl_libjpeg *)
    long fl_libjpeg_live()
    fl_code fl_libjpeg_open(fl_libjpeg *, const uint8_t *, size_t, uint64_t, fl_libjpeg_info *, fl_error *)
    fl_code fl_libjpeg_decode(fl_libjpeg *, const fl_box *, int, fl_view *, fl_error *)
    uint32_t fl_libjpeg_warnings(const fl_libjpeg *, const char **)
    int fl_jpeg_scale(uint32_t, uint32_t, uint32_t, uint32_t)

cdef extern from "jpeg/decoder.h" nogil:
    ctypedef struct fl_jpeg_decoder:
        pass
    fl_code fl_jpeg_decoder_create(fl_jpeg_decoder **, fl_error *)
    void fl_jpeg_decoder_free(fl_jpeg_decoder *)
    fl_code fl_jpeg_decoder_open(fl_jpeg_decoder *, const uint8_t *, size_t, uint64_t, uint32_t *, uint32_t *,
                                 fl_error *)
    void fl_jpeg_decoder_index(fl_jpeg_decoder *, const uint8_t *, size_t)
    void fl_jpeg_decoder_learn(fl_jpeg_decoder *)
    void fl_jpeg_decoder_learnt(fl_jpeg_decoder *, size_t, const uint8_t **, size_t *)
    fl_code fl_jpeg_decoder_decode(fl_jpeg_decoder *, const fl_box *, int, fl_view *, fl_error *)
    bint fl_jpeg_decoder_fell_back(const fl_jpeg_decoder *)
    uint32_t fl_jpeg_decoder_components(const fl_jpeg_decoder *)
    size_t fl_jpeg_decoder_end(const fl_jpeg_decoder *)
    uint32_t fl_jpeg_decoder_warnings(const fl_jpeg_decoder *)

cdef extern from "jpeg/markers.h" nogil:
    ctypedef struct fl_jpeg_layout:
        uint32_t width, height
        uint8_t components, precision
        uint8_t h[4]
        uint8_t v[4]
        int kind
        bint arithmetic
        uint8_t orientation
        int adobe
        bint jfif, exif, icc
        uint32_t restart_interval, scans, stray
        bint eoi
        size_t end
        bint damaged
        char damage[240]
    fl_code fl_jpeg_markers_read(const uint8_t *, size_t, fl_jpeg_layout *, fl_error *)
    fl_code fl_jpeg_strip(const uint8_t *, size_t, uint8_t *, size_t, size_t *, fl_error *)

cdef extern from "jpeg/transcode.h" nogil:
    fl_code fl_jpeg_transform(const uint8_t *, size_t, int, uint64_t, uint8_t **, size_t *, fl_error *)
    ctypedef struct fl_jpeg_checked:
        uint32_t warnings
        char first[240]
        bint smoothed
    fl_code fl_jpeg_check(const uint8_t *, size_t, uint64_t, fl_jpeg_checked *, fl_error *)

cdef extern from "jpeg/entropy.h" nogil:
    ctypedef struct fl_jpeg_entropy:
        pass
    enum:
        FL_JPEG_INDEX_EVERY
    size_t fl_jpeg_index_most(size_t)
    fl_code fl_jpeg_entropy_create(fl_jpeg_entropy **, fl_error *)
    void fl_jpeg_entropy_free(fl_jpeg_entropy *)
    bint fl_jpeg_entropy_sound(fl_jpeg_entropy *, const uint8_t *, size_t)
    bint fl_jpeg_entropy_index(fl_jpeg_entropy *, const uint8_t *, size_t, uint32_t, size_t, const uint8_t **,
                               size_t *)

cdef extern from "jpeg/dct.h" nogil:
    ctypedef struct fl_jpeg_dct:
        pass
    fl_code fl_jpeg_dct_create(fl_jpeg_dct **, fl_error *)
    void fl_jpeg_dct_free(fl_jpeg_dct *)
    fl_code fl_jpeg_dct_encode(fl_jpeg_dct *, const uint8_t *, size_t, uint64_t, const uint8_t **, size_t *,
                               fl_error *)
    bint fl_jpeg_dct_sound(const fl_jpeg_dct *)
    fl_code fl_jpeg_dct_restore(fl_jpeg_dct *, const uint8_t *, size_t, const uint8_t **, size_t *,
                                fl_error *)

cdef extern from "jpeg/dct_form.h" nogil:
    bint fl_jpeg_dct_is(const uint8_t *, size_t)
