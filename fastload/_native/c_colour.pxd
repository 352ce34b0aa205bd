# Pillow's colour steps and warps. Declarations of csrc/colour.

from libc.stdint cimport uint8_t, uint32_t

from fastload._native.c_common cimport fl_buffer

cdef extern from "colour/steps.h" nogil:
    ctypedef enum fl_colour_kind:
        FL_COLOUR_BLEND
        FL_COLOUR_SATURATE
        FL_COLOUR_GREY
        FL_COLOUR_HUE
        FL_COLOUR_TABLE
        FL_COLOUR_CONTRAST
        FL_COLOUR_AUTOCONTRAST
        FL_COLOUR_EQUALIZE
        FL_COLOUR_SMOOTH
        FL_COLOUR_SHARPEN
        FL_COLOUR_BLUR
    ctypedef struct fl_colour_step:
        fl_colour_kind kind
        uint8_t level
        float factor
        float x_radius, y_radius
        int passes
        const uint8_t *tables
    bint fl_colour_run(const uint8_t *, uint8_t *, size_t, size_t, size_t, const fl_colour_step *, size_t,
                       fl_buffer *)

cdef extern from "colour/blend.h" nogil:
    void fl_colour_blend(uint8_t *, const uint8_t *, size_t, float)

cdef extern from "colour/box.h" nogil:
    float fl_colour_gaussian_radius(float, int)

cdef extern from "colour/convolve.h" nogil:
    enum:
        FL_COLOUR_KERNEL_MOST
    ctypedef struct fl_colour_kernel:
        size_t width, height
        const float *weights
    bint fl_colour_convolve(const uint8_t *, uint8_t *, size_t, size_t, size_t, const fl_colour_kernel *, fl_buffer *)

cdef extern from "colour/hue.h" nogil:
    ctypedef enum fl_colour_band:
        FL_COLOUR_H
        FL_COLOUR_S
        FL_COLOUR_V
    void fl_colour_hsv(const uint8_t *, size_t, fl_colour_band, uint8_t *)

cdef extern from "colour/light.h" nogil:
    void fl_colour_light(const uint8_t *, size_t, uint8_t *)

cdef extern from "colour/lut.h" nogil:
    void fl_colour_counts(const uint8_t *, size_t, size_t, uint32_t *)

cdef extern from "colour/warp.h" nogil:
    ctypedef enum fl_colour_filter:
        FL_COLOUR_NEAREST
        FL_COLOUR_BILINEAR
        FL_COLOUR_BICUBIC
    ctypedef struct fl_colour_map:
        double c[8]
        bint perspective
    ctypedef struct fl_colour_canvas:
        uint8_t *pixels
        uint32_t width, height
    void fl_colour_warp(const uint8_t *, uint32_t, uint32_t, uint32_t, const fl_colour_map *,
                        fl_colour_filter, fl_colour_canvas)
