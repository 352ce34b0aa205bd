/* NOTE [ box: by columns, both ways ]
 *
 * A box of radius r + f weighs the 2 r + 1 values around each with `whole`, and the two beyond with `edge`, in 24
 * bits of fraction; values beyond the image are those at its edge. Down the columns that is one sum for each byte of
 * a row, which moves on by a row added and a row taken away: whole vectors, whatever the radius. Across, the image
 * is transposed, blurred by columns as often as is wanted, and transposed back. Integers: what Pillow's rows give. */
#include "colour/box.h"

#include <math.h>
#include <string.h>

#include "colour/vectors.h"
#include "common/cpu.h"

float fl_colour_gaussian_radius(float radius, int passes) {
    const float variance = radius * radius / (float)passes;
    const float length = (float)sqrt(12.0 * (double)variance + 1.0);
    const float whole = (float)floor(((double)length - 1.0) / 2.0);
    float part = (2 * whole + 1) * (whole * (whole + 1) - 3 * variance);
    part /= 6 * (variance - (whole + 1) * (whole + 1));
    return whole + part;
}

typedef struct box {
    ptrdiff_t radius;
    uint32_t whole, edge;
} box;

static box box_of(float radius) {
    box made = {.radius = (ptrdiff_t)(int)radius};
    made.whole = (uint32_t)((float)(1 << 24) / (radius * 2 + 1));
    made.edge = ((1u << 24) - (uint32_t)(made.radius * 2 + 1) * made.whole) / 2;
    return made;
}

FL_INLINE void line(uint32_t *restrict sums, const uint8_t *gone, const uint8_t *come, const uint8_t *before,
                    const uint8_t *after, uint8_t *restrict out, size_t bytes, box b) {
    for (size_t i = 0; i < bytes; i++) {
        const uint32_t sum = sums[i] + come[i] - gone[i];
        sums[i] = sum;
        out[i] = (uint8_t)((sum * b.whole + (uint32_t)(before[i] + after[i]) * b.edge + (1u << 23)) >> 24);
    }
}

/* One blur down the columns. */
FL_INLINE void columns(const uint8_t *image, uint8_t *restrict out, uint32_t *restrict sums, size_t bytes,
                       ptrdiff_t height, box b) {
    const ptrdiff_t last = height - 1, r = b.radius;
    memset(sums, 0, bytes * sizeof *sums);
    /* the sums of the row before the first: r + 1 times that row, and those up to r - 1 */
    for (size_t i = 0; i < bytes; i++) sums[i] = image[i] * (uint32_t)(r + 1);
    for (ptrdiff_t y = 0; y < r && y < last; y++)
        for (size_t i = 0; i < bytes; i++) sums[i] += image[(size_t)y * bytes + i];
    if (r > last)
        for (size_t i = 0; i < bytes; i++) sums[i] += image[(size_t)last * bytes + i] * (uint32_t)(r - last);
#define ROW(y) (image + bytes * (size_t)((y) < 0 ? 0 : (y) > last ? last : (y)))
    for (ptrdiff_t y = 0; y < height; y++)
        line(sums, ROW(y - r - 1), ROW(y + r), ROW(y - r - 1), ROW(y + r + 1), out + bytes * (size_t)y, bytes,
             b);
#undef ROW
}

#define VERSION(name, attribute)                                                                             \
    attribute static void columns_##name(const uint8_t *image, uint8_t *restrict out,                        \
                                         uint32_t *restrict sums, size_t bytes, ptrdiff_t height, box b) {   \
        columns(image, out, sums, bytes, height, b);                                                         \
    }

VERSION(plain, FL_PLAIN)
#if defined(__x86_64__)
VERSION(avx2, FL_AVX2)
VERSION(avx512, FL_AVX512)
#define COLUMNS                                                                                              \
    (fl_cpu_has(FL_CPU_AVX512) ? columns_avx512 : fl_cpu_has(FL_CPU_AVX2) ? columns_avx2 : columns_plain)
#else
#define COLUMNS columns_plain
#endif

enum { TILE = 16 }; /* pixels of a side: of both images a tile stays in the first cache */

/* Pixels of up to 4 bytes, copied with 4: a byte too many is overwritten by the next pixel down the tile. */
FL_INLINE void turned(const uint8_t *image, uint8_t *restrict out, size_t width, size_t height, size_t step) {
    for (size_t top = 0; top < height; top += TILE)
        for (size_t left = 0; left < width; left += TILE) {
            const size_t bottom = top + TILE < height - 1 ? top + TILE : height - 1,
                         right = left + TILE < width ? left + TILE : width;
            for (size_t x = left; x < right; x++)
                for (size_t y = top; y < bottom; y++)
                    memcpy(out + (x * height + y) * step, image + (y * width + x) * step,
                           step == 3 ? 4 : step);
        }
    for (size_t x = 0; x < width; x++)
        memcpy(out + (x * height + height - 1) * step, image + ((height - 1) * width + x) * step, step);
}

static void transpose(const uint8_t *image, uint8_t *restrict out, size_t width, size_t height,
                      size_t channels) {
    if (channels == 3) turned(image, out, width, height, 3);
    else if (channels == 1) turned(image, out, width, height, 1);
    else turned(image, out, width, height, channels);
}

/* The passes of one direction, from `image` to itself by way of `other`; `down` rows of `bytes`. */
static void passes_of(uint8_t *image, uint8_t *other, uint32_t *sums, size_t bytes, size_t down, box b,
                      int passes) {
    for (int i = 0; i < passes; i++) {
        COLUMNS(image, other, sums, bytes, (ptrdiff_t)down, b);
        uint8_t *swap = image;
        image = other;
        other = swap;
    }
    if (passes & 1) memcpy(other, image, bytes * down);
}

bool fl_colour_box_blur(uint8_t *image, size_t width, size_t height, size_t channels, float x_radius,
                        float y_radius, int passes, fl_buffer *scratch) {
    const size_t size = width * height * channels, side = (width > height ? width : height) * channels;
    if (!size) return true;
    if (!fl_buffer_fit(scratch, 1, 2 * size + side * sizeof(uint32_t) + sizeof(uint32_t),
                       (fl_buffer_rule){.least = 1 << 16, .keep = 64 << 20}))
        return false;
    uint32_t *sums = (uint32_t *)scratch->bytes;
    uint8_t *first = (uint8_t *)(sums + side), *second = first + size;
    if (x_radius != 0) {
        transpose(image, first, width, height, channels);
        passes_of(first, second, sums, height * channels, width, box_of(x_radius), passes);
        transpose(first, image, height, width, channels);
    }
    if (y_radius != 0) passes_of(image, first, sums, width * channels, height, box_of(y_radius), passes);
    return true;
}
