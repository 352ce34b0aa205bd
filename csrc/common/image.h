/* common/image: the plain data that the decoder, the resizer and the pipeline hand to each other. Owns
 * nothing. */
#ifndef FL_COMMON_IMAGE_H
#define FL_COMMON_IMAGE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Longest side, in pixels: row offsets in bytes, and their sums, stay far below a uint32. */
enum { FL_IMAGE_SIDE_MAX = 1 << 24 };

/* RGB, 8 bit, interleaved; borrowed: valid until the next call on the object that returned it. Planes, which
 * are grey, RGBA and 16-bit images, say what their pixels are. */
typedef struct fl_view {
    const uint8_t *pixels;
    size_t stride; /* bytes from one row to the next */
    uint32_t width, height;
    size_t tail; /* bytes readable after the last pixel of the last row: lets SIMD loads run over the end */
    /* of planes: 1 to 4 channels, interleaved, of 1 or 2 bytes, little-endian; both 0: RGB, 8 bit */
    uint8_t channels, depth;
} fl_view;

/* Bytes of a pixel. */
static inline size_t fl_view_pixel(const fl_view *view) {
    return view->channels ? (size_t)view->channels * view->depth : 3;
}

/* An integer box in the pixels of the full-size image. */
typedef struct fl_box {
    uint32_t x, y, width, height;
} fl_box;

typedef enum fl_dtype {
    FL_U8 = 0,
    FL_F32 = 1,
    FL_F16 = 2,
    FL_BF16 = 3,
    FL_U16 = 4 /* of planes only */
} fl_dtype;

/* Bytes of a value. */
static inline size_t fl_dtype_size(fl_dtype dtype) { return dtype == FL_F32 ? 4 : dtype == FL_U8 ? 1 : 2; }

typedef enum fl_layout { FL_HWC = 0, FL_CHW = 1, FL_PATCHES = 2 } fl_layout;

/* FL_PATCHES: an RGB image cut into squares of `side` pixels, one after another, as Qwen2-VL's processors cut it:
 * merge x merge neighbours follow each other, and these groups row by row. A patch is [channel][frame][y][x]; a
 * still image is the same in all frames. Width and height are multiples of side * merge. */
typedef struct fl_patches {
    uint32_t side, merge, frames;
} fl_patches;

/* Destination of an image: its row of the batch, or the top left corner of a larger frame. The mirror is
 * applied last, over the whole target: pixel (x, y) of the unmirrored image is stored at (width - 1 - x, ...)
 * when hflip is set. */
typedef struct fl_sink {
    void *data;
    uint32_t width, height;
    fl_dtype dtype;
    fl_layout layout;
    /* of dtype, [channel][value]: 3 x 256, of planes channels x 256 or 65536; NULL for FL_U8 and FL_U16 */
    const void *lut;
    bool hflip, vflip;
    uint8_t channels, depth; /* as those of the fl_view that it is made from */
    uint32_t pitch; /* pixels from one row to the next, at least width; 0: width */
    size_t plane; /* FL_CHW: pixels from one plane to the next, at least pitch * height; 0: just that */
    fl_patches patches; /* of FL_PATCHES */
} fl_sink;

static inline size_t fl_sink_pitch(const fl_sink *sink) { return sink->pitch ? sink->pitch : sink->width; }
static inline size_t fl_sink_plane(const fl_sink *sink) {
    return sink->plane ? sink->plane : fl_sink_pitch(sink) * sink->height;
}

#endif
