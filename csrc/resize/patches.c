/* NOTE [ patches: made whole, and written past the caches ]
 * An image in float32 patches of two frames has 24 bytes a pixel: more than a core's caches hold. A line has
 * 4 * side bytes of each square, so that lines as they come would touch each cache line of memory several
 * times, and each would first be read from there. Lines wait as bytes, which are few, until those of a row
 * of patches are there; then each patch is made in the cache, and written as a whole, past it: 0.2 ms for
 * 4.4 MB, instead of 0.6.
 */
#include "resize/patches.h"

#include <string.h>

#include "common/simd.h"

enum { LINE = 64, VALUES = 8 }; /* bytes of a cache line; values that are converted at once */

/* The parts of the room. */
typedef struct band {
    uint8_t *lines; /* [channel][line of a patch][pixel] */
    uint8_t *square, *patch; /* one channel's bytes, and all in the sink's type */
    size_t squared, patched, size; /* bytes of a square and a patch in the sink's type, and of all parts */
} band;

static size_t padded(size_t size) { return (size + LINE - 1) / LINE * LINE; }

static band band_of(const fl_resize_rows *rows) {
    const fl_patches *p = &rows->sink->patches;
    const size_t square = (size_t)p->side * p->side, values = padded(square + VALUES),
                 lines = padded((size_t)3 * p->side * rows->n);
    band out = {.lines = rows->room->band.bytes, .squared = square * fl_dtype_size(rows->sink->dtype)};
    out.patched = 3 * p->frames * out.squared;
    out.size = lines + values + out.patched + VALUES * sizeof(float);
    if (out.lines) out.square = out.lines + lines, out.patch = out.square + values;
    return out;
}

fl_code fl_resize_patches_start(const fl_resize_rows *rows, fl_error *err) {
    return fl_resize_fit(&rows->room->band, band_of(rows).size, 1, err);
}

/* Copies few bytes: a call of memcpy takes longer than that. */
static inline void copy_run(uint8_t *restrict to, const uint8_t *restrict from, size_t size) {
    enum { STEP = 16, HALF = 8 };
    if (size >= STEP) {
        for (size_t i = 0; i + STEP < size; i += STEP) memcpy(to + i, from + i, STEP);
        memcpy(to + size - STEP, from + size - STEP, STEP);
    } else if (size >= HALF) {
        memcpy(to, from, HALF);
        memcpy(to + size - HALF, from + size - HALF, HALF);
    } else {
        memcpy(to, from, size);
    }
}

/* Copies whole cache lines past the caches; await_streams() before another thread may read them. */
static void stream(uint8_t *restrict to, const uint8_t *restrict from, size_t size) {
    size_t i = 0;
#if defined(__x86_64__)
    const size_t before = (LINE - (uintptr_t)to % LINE) % LINE;
    i = before < size ? before : size;
    memcpy(to, from, i);
    for (; i + LINE <= size; i += LINE)
        for (size_t k = i; k < i + LINE; k += sizeof(__m128i))
            _mm_stream_si128((__m128i *)(to + k), _mm_loadu_si128((const __m128i *)(from + k)));
#endif
    memcpy(to + i, from + i, size - i);
}

static void await_streams(void) {
#if defined(__x86_64__)
    _mm_sfence();
#endif
}

/* Columns of a row of patches that are in one patch, and its lines that the window has. */
typedef struct piece {
    uint32_t x, y, columns, low, high; /* its first column in the window, and line in the sink */
} piece;

/* The first value of a piece's patch. */
static size_t patch_place(const fl_resize_rows *rows, const piece *at) {
    const fl_patches *p = &rows->sink->patches;
    const size_t merge = p->merge, column = (rows->x + at->x) / p->side, line = at->y / p->side;
    const size_t group = line / merge * (rows->sink->width / (p->side * merge)) + column / merge;
    const size_t patch = (group * merge + line % merge) * merge + column % merge;
    return patch * 3 * p->frames * p->side * p->side;
}

/* One channel of a piece in the sink's type. */
static void make_channel(const fl_resize_rows *rows, const band *band, const piece *at, uint32_t channel,
                         uint8_t *made) {
    const bool plain = rows->sink->dtype == FL_U8;
    const size_t side = rows->sink->patches.side, count = (size_t)(at->high - at->low) * at->columns;
    uint8_t *bytes = plain ? made : band->square;
    for (size_t line = at->low; line < at->high; line++, bytes += at->columns)
        copy_run(bytes, band->lines + (channel * side + line) * rows->n + at->x, at->columns);
    if (plain) return;
    memset(bytes, 0, VALUES); /* values that are too much land where later ones go, or behind the last */
    fl_resize_rows_convert(rows, (int)channel, band->square, made, (count + VALUES - 1) / VALUES * VALUES);
}

/* Lines of one square of a patch that the window has in part. */
static void store_part(const fl_resize_rows *rows, const piece *at, const uint8_t *made, uint8_t *square) {
    const size_t size = fl_dtype_size(rows->sink->dtype), side = rows->sink->patches.side;
    const size_t run = at->columns * size, within = (rows->x + at->x) % side;
    for (size_t line = at->low; line < at->high; line++, made += run)
        copy_run(square + (line * side + within) * size, made, run);
}

static void store_patch(const fl_resize_rows *rows, const band *band, const piece *at) {
    const fl_patches *p = &rows->sink->patches;
    const bool whole = at->columns == p->side && at->high - at->low == p->side;
    uint8_t *to = (uint8_t *)rows->sink->data + patch_place(rows, at) * fl_dtype_size(rows->sink->dtype);
    for (uint32_t c = 0; c < 3; c++) {
        const size_t place = c * p->frames * band->squared;
        uint8_t *made = band->patch + place;
        make_channel(rows, band, at, c, made);
        for (uint32_t f = 0; f < p->frames; f++) {
            if (!whole) store_part(rows, at, made, to + place + f * band->squared);
            else if (f) memcpy(made + f * band->squared, made, band->squared);
        }
    }
    if (whole) stream(to, band->patch, band->patched);
}

void fl_resize_patches_store(const fl_resize_rows *rows, uint32_t i, const uint8_t *row) {
    const fl_sink *sink = rows->sink;
    const band band = band_of(rows);
    const uint32_t side = sink->patches.side, y = fl_resize_rows_y(rows, i), line = y % side;
    const size_t plane = (size_t)side * rows->n;
    uint8_t *to = band.lines + (size_t)line * rows->n;
    rows->kernels->split(row, (uint8_t *const[3]){to, to + plane, to + 2 * plane}, rows->n);
    const bool ends = i + 1 == rows->count;
    if (line != (sink->vflip ? 0 : side - 1) && !ends) return;
    piece at = {.y = y - line, .low = line, .high = line + 1};
    if (sink->vflip) at.high = i < side - 1 - line ? line + i + 1 : side;
    else at.low = i < line ? line - i : 0;
    for (; at.x < rows->n; at.x += at.columns) {
        const uint32_t left = side - (rows->x + at.x) % side;
        at.columns = left < rows->n - at.x ? left : rows->n - at.x;
        store_patch(rows, &band, &at);
    }
    if (ends) await_streams();
}
