#include "colour/gaussian.h"

#include <math.h>
#include <string.h>

#include "colour/mirror.h"
#include "colour/vectors.h"
#include "common/cpu.h"

typedef float floats __attribute__((vector_size(32)));

enum { WIDE = sizeof(floats) / sizeof(float), SUMS = 4 };

/* The two values at one distance from the middle are added first: in either order the sum is the same, and so the
 * result of a mirrored image is the mirrored result. Sums of some values stay in registers for all weights. */
FL_INLINE void line(const float *const *from, const float *weights, uint32_t count, float *restrict out,
                    size_t n) {
    const uint32_t middle = count / 2;
    size_t at = 0;
    for (; at + SUMS * WIDE <= n; at += SUMS * WIDE) {
        floats sums[SUMS], before, after;
        for (int s = 0; s < SUMS; s++) {
            memcpy(&before, from[middle] + at + s * WIDE, sizeof before);
            sums[s] = weights[middle] * before;
        }
        for (uint32_t k = 0; k < middle; k++)
            for (int s = 0; s < SUMS; s++) {
                memcpy(&before, from[k] + at + s * WIDE, sizeof before);
                memcpy(&after, from[count - 1 - k] + at + s * WIDE, sizeof after);
                sums[s] += weights[k] * (before + after);
            }
        memcpy(out + at, sums, sizeof sums);
    }
    for (; at < n; at++) {
        float sum = weights[middle] * from[middle][at];
        for (uint32_t k = 0; k < middle; k++) sum += weights[k] * (from[k][at] + from[count - 1 - k][at]);
        out[at] = sum;
    }
}

FL_INLINE void widened(const uint8_t *bytes, float *restrict out, size_t n) {
    for (size_t i = 0; i < n; i++) out[i] = (float)bytes[i];
}

/* Adding 1.5 * 2^23 leaves a float no bits of fraction. */
FL_INLINE void rounded(const float *values, uint8_t *restrict out, size_t n) {
    const float whole = 12582912.0f;
    for (size_t i = 0; i < n; i++) {
        const float value = (values[i] + whole) - whole;
        out[i] = (uint8_t)(int)(value > 255.0f ? 255.0f : value);
    }
}

#define VERSION(name, attribute)                                                                             \
    attribute static void line_##name(const float *const *from, const float *weights, uint32_t count,        \
                                      float *restrict out, size_t n) {                                       \
        line(from, weights, count, out, n);                                                                  \
    }                                                                                                        \
    attribute static void widened_##name(const uint8_t *bytes, float *restrict out, size_t n) {              \
        widened(bytes, out, n);                                                                              \
    }                                                                                                        \
    attribute static void rounded_##name(const float *values, uint8_t *restrict out, size_t n) {             \
        rounded(values, out, n);                                                                             \
    }

VERSION(plain, FL_PLAIN)
#if defined(__x86_64__)
VERSION(avx2, FL_AVX2)
#define CHOSEN(name) (fl_cpu_has(FL_CPU_AVX2) ? name##_avx2 : name##_plain)
#else
#define CHOSEN(name) name##_plain
#endif

/* The work of one image, in the caller's scratch. */
typedef struct work {
    const fl_colour_gaussian *gaussian;
    size_t width, height, channels;
    float *across, *down; /* weights */
    float *padded;        /* a row with its mirrored ends */
    float *rows;          /* the last `tall` rows, convolved across: row y at y modulo tall */
    float *sum;
    const float **from; /* what a line is made of */
} work;

static void weigh(float *weights, uint32_t count, double sigma) {
    const double middle = (count - 1) * 0.5;
    double sum = 0;
    for (uint32_t i = 0; i < count; i++) {
        const double away = (i - middle) / sigma;
        sum += exp(-0.5 * away * away);
    }
    for (uint32_t i = 0; i < count; i++) {
        const double away = (i - middle) / sigma;
        weights[i] = (float)(exp(-0.5 * away * away) / sum);
    }
}

static bool prepare(work *w, fl_buffer *scratch) {
    const size_t wide = w->gaussian->wide, tall = w->gaussian->tall, n = w->width * w->channels;
    const size_t most = wide > tall ? wide : tall, padded = n + (wide - 1) * w->channels;
    const size_t floats = wide + tall + padded + n * (tall + 1);
    if (!fl_buffer_fit(scratch, 1, most * sizeof *w->from + floats * sizeof(float),
                       (fl_buffer_rule){.least = 1 << 16, .keep = 64 << 20}))
        return false;
    w->from = scratch->bytes;
    w->across = (float *)(w->from + most);
    w->down = w->across + wide;
    w->padded = w->down + tall;
    w->rows = w->padded + padded;
    w->sum = w->rows + n * tall;
    weigh(w->across, w->gaussian->wide, w->gaussian->sigma);
    weigh(w->down, w->gaussian->tall, w->gaussian->sigma);
    return true;
}

/* Convolves a row of the image across. */
static void across(const work *w, const uint8_t *row, float *out) {
    const size_t reach = w->gaussian->wide / 2, c = w->channels, n = w->width * c;
    float *middle = w->padded + reach * c;
    CHOSEN(widened)(row, middle, n);
    fl_colour_mirror_ends(middle, n, c, reach);
    for (size_t k = 0; k < w->gaussian->wide; k++) w->from[k] = w->padded + k * c;
    CHOSEN(line)(w->from, w->across, w->gaussian->wide, out, n);
}

bool fl_colour_gaussian_run(uint8_t *image, size_t width, size_t height, size_t channels,
                            const fl_colour_gaussian *gaussian, fl_buffer *scratch) {
    work w = {.gaussian = gaussian, .width = width, .height = height, .channels = channels};
    if (!prepare(&w, scratch)) return false;
    const size_t n = width * channels, tall = gaussian->tall, reach = tall / 2;
    size_t done = 0; /* rows */
    for (size_t y = 0; y < height; y++) {
        for (; done < height && done <= y + reach; done++)
            across(&w, image + done * n, w.rows + done % tall * n);
        for (size_t k = 0; k < tall; k++)
            w.from[k] =
                w.rows + fl_colour_mirrored_row((ptrdiff_t)(y + k) - (ptrdiff_t)reach, height) % tall * n;
        CHOSEN(line)(w.from, w.down, gaussian->tall, w.sum, n);
        CHOSEN(rounded)(w.sum, image + y * n, n);
    }
    return true;
}
