#include "colour/convolve.h"

#include <math.h>
#include <string.h>

#include "colour/mirror.h"
#include "colour/vectors.h"
#include "common/cpu.h"

enum { TOGETHER = 64 }; /* sums in registers */

/* Added to a float of less than 2 ** 22, which rounds it to even. */
#define ROUNDS 0x1.8p23f

typedef struct window {
    const float *rows[FL_COLOUR_KERNEL_MOST]; /* those under the kernel */
    const fl_colour_kernel *kernel;
    size_t channels;
} window;

FL_INLINE void rounded(const float sums[TOGETHER], uint8_t *out, size_t count) {
    uint8_t bytes[TOGETHER];
    for (int i = 0; i < TOGETHER; i++) bytes[i] = (uint8_t)(int)((sums[i] + ROUNDS) - ROUNDS);
    memcpy(out, bytes, count < TOGETHER ? count : TOGETHER);
}

/* One row of the result. `floats` are vectors of `lanes`, with their instructions. */
#define VERSION(name, attribute, floats, lanes, set, load, fma, store)                                       \
    attribute static void row_##name(const window *w, uint8_t *out, size_t bytes) {                          \
        const size_t across = w->kernel->width, down = w->kernel->height;                                    \
        for (size_t x = 0; x < bytes; x += TOGETHER) {                                                       \
            const float *weight = w->kernel->weights;                                                        \
            floats sums[TOGETHER / (lanes)];                                                                 \
            float found[TOGETHER];                                                                           \
            for (int k = 0; k < TOGETHER / (lanes); k++) sums[k] = set(0.0f);                                \
            for (size_t j = 0; j < down; j++) {                                                              \
                const float *at = w->rows[j] + x;                                                            \
                for (size_t i = 0; i < across; i++, at += w->channels) {                                     \
                    const floats by = set(*weight++);                                                        \
                    for (int k = 0; k < TOGETHER / (lanes); k++)                                             \
                        sums[k] = fma(by, load(at + k * (lanes)), sums[k]);                                  \
                }                                                                                            \
            }                                                                                                \
            for (int k = 0; k < TOGETHER / (lanes); k++) store(found + k * (lanes), sums[k]);                \
            rounded(found, out + x, bytes - x);                                                              \
        }                                                                                                    \
    }

#define SAME(value) (value)
#define READ(at) (*(at))
#define WRITE(at, value) (*(at) = (value))
VERSION(plain, FL_PLAIN, float, 1, SAME, READ, fmaf, WRITE)
#if defined(__x86_64__)
VERSION(avx2, FL_AVX2_FMA, __m256, 8, _mm256_set1_ps, _mm256_loadu_ps, _mm256_fmadd_ps, _mm256_storeu_ps)
VERSION(avx512, FL_AVX512, __m512, 16, _mm512_set1_ps, _mm512_loadu_ps, _mm512_fmadd_ps, _mm512_storeu_ps)
#define ROW                                                                                                  \
    (fl_cpu_has(FL_CPU_AVX512) ? row_avx512 : fl_cpu_has(FL_CPU_AVX2 | FL_CPU_FMA) ? row_avx2 : row_plain)
#else
#define ROW row_plain
#endif

/* A row as floats, with `beyond` pixels on both sides. */
static void widened(const uint8_t *row, float *to, size_t width, size_t channels, size_t beyond) {
    float *inside = to + beyond * channels;
    for (size_t i = 0; i < width * channels; i++) inside[i] = row[i];
    fl_colour_mirror_ends(inside, width * channels, channels, beyond);
}

bool fl_colour_convolve(const uint8_t *image, uint8_t *restrict out, size_t width, size_t height,
                        size_t channels, const fl_colour_kernel *kernel, fl_buffer *scratch) {
    const size_t down = kernel->height, beyond = kernel->width / 2, bytes = width * channels,
                 stride = (width + 2 * beyond) * channels + TOGETHER; /* whole vectors read so far beyond */
    if (!fl_buffer_fit(scratch, down, stride * sizeof(float),
                       (fl_buffer_rule){.least = 1 << 16, .keep = 64 << 20}))
        return false;
    float *rows = scratch->bytes;
    memset(rows, 0, down * stride * sizeof(float));
    window w = {.kernel = kernel, .channels = channels};
    const ptrdiff_t above = (ptrdiff_t)(down / 2);
    for (size_t next = 0; next + 1 < down; next++)
        widened(image + bytes * fl_colour_mirrored_row((ptrdiff_t)next - above, height), rows + stride * next,
                width, channels, beyond);
    for (size_t y = 0; y < height; y++) {
        const size_t last = y + down - 1;
        widened(image + bytes * fl_colour_mirrored_row((ptrdiff_t)last - above, height),
                rows + stride * (last % down), width, channels, beyond);
        for (size_t j = 0; j < down; j++) w.rows[j] = rows + stride * ((y + j) % down);
        ROW(&w, out + bytes * y, bytes);
    }
    return true;
}
