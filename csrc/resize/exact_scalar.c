#include "resize/exact_scalar.h"

#include "common/simd.h"

enum { CHUNK = 128 }; /* sums of so many values stay in L1 while the taps go by */

/* Sums are unsigned, so that they wrap; the shift is of the signed value, and rounds down. */
static const uint32_t HALF = 1u << (FL_RESIZE_EXACT_BITS - 1);

static inline uint8_t byte_of(uint32_t sum) {
    const int32_t value = (int32_t)sum >> FL_RESIZE_EXACT_BITS;
    return (uint8_t)(value < 0 ? 0 : value > 255 ? 255 : value);
}

FL_INLINE void across_row(const fl_resize_exact_axis *axis, const uint8_t *src, uint8_t *dst,
                          uint32_t channels) {
    const int16_t *coef = axis->coef;
    for (uint32_t i = 0; i < axis->key.count; i++, coef += 2 * axis->taps, dst += channels) {
        const uint8_t *pixel = src + (size_t)(axis->first[i] - axis->low) * channels;
        uint32_t sum[3] = {HALF, HALF, HALF};
        const uint32_t taps = axis->high - axis->first[i] < axis->taps ? axis->high - axis->first[i]
                                                                       : axis->taps; /* beyond are zeros */
        for (uint32_t k = 0; k < taps; k++, pixel += channels)
            for (uint32_t c = 0; c < channels; c++)
                sum[c] += (uint32_t)fl_resize_exact_coef(coef, k) * pixel[c];
        for (uint32_t c = 0; c < channels; c++) dst[c] = byte_of(sum[c]);
    }
}

static void across(const fl_resize_exact_axis *axis, const uint8_t *const *src, uint8_t *const *dst) {
    for (int r = 0; r < FL_RESIZE_EXACT_ROWS && (r == 0 || dst[r] != dst[r - 1]); r++)
        across_row(axis, src[r], dst[r], 3);
}

static void across_grey(const fl_resize_exact_axis *axis, const uint8_t *const *src, uint8_t *const *dst) {
    for (int r = 0; r < FL_RESIZE_EXACT_ROWS && (r == 0 || dst[r] != dst[r - 1]); r++)
        across_row(axis, src[r], dst[r], 1);
}

static void down(const int16_t *coef, uint32_t taps, const uint8_t *const *rows, uint8_t *dst, size_t n) {
    uint32_t sum[CHUNK];
    for (size_t at = 0; at < n; at += CHUNK) {
        const size_t m = n - at < CHUNK ? n - at : CHUNK;
        for (size_t i = 0; i < m; i++) sum[i] = HALF;
        for (uint32_t k = 0; k < taps; k++) {
            const uint8_t *row = rows[k] + at;
            const uint32_t c = (uint32_t)fl_resize_exact_coef(coef, k);
            for (size_t i = 0; i < m; i++) sum[i] += row[i] * c;
        }
        for (size_t i = 0; i < m; i++) dst[at + i] = byte_of(sum[i]);
    }
}

const fl_resize_exact_kernels fl_resize_exact_scalar = {across, across_grey, down};
