#include "png/unfilter.h"

#include <stdlib.h>
#include <string.h>

#include "common/simd.h"

enum { NONE, SUB, UP, AVERAGE, PAETH };

static void up(uint8_t *row, const uint8_t *above, size_t size) {
    for (size_t i = 0; i < size; i++) row[i] = (uint8_t)(row[i] + above[i]);
}

/* The neighbour of three that is nearest to left + above - corner. */
static int paeth(int left, int above, int corner) {
    const int a = abs(above - corner), b = abs(left - corner), c = abs(left + above - 2 * corner);
    if (a <= b && a <= c) return left;
    return b <= c ? above : corner;
}

/* A row of pixels of `step` bytes, which the compiler knows where that matters. */
FL_INLINE void undo(uint8_t *row, const uint8_t *above, size_t size, size_t step, int filter) {
    for (size_t i = 0; i < step; i++) {
        if (filter == AVERAGE) row[i] = (uint8_t)(row[i] + above[i] / 2);
        if (filter == PAETH) row[i] = (uint8_t)(row[i] + above[i]);
    }
    for (size_t i = step; i < size; i++) {
        const int left = row[i - step];
        const int base = filter == SUB       ? left
                         : filter == AVERAGE ? (left + above[i]) / 2
                                             : paeth(left, above[i], above[i - step]);
        row[i] = (uint8_t)(row[i] + base);
    }
}

#if defined(__x86_64__)

FL_INLINE __m128i load(const uint8_t *at, size_t step) {
    if (step > 4) return _mm_loadl_epi64((const __m128i *)at);
    int32_t word;
    memcpy(&word, at, sizeof word);
    return _mm_cvtsi32_si128(word);
}

FL_INLINE void store(uint8_t *at, __m128i pixel, size_t step) {
    const int64_t word = _mm_cvtsi128_si64(pixel);
    memcpy(at, &word, step);
}

FL_INLINE __m128i magnitude(__m128i words) {
    return _mm_max_epi16(words, _mm_sub_epi16(_mm_setzero_si128(), words));
}

FL_INLINE __m128i choose(__m128i mask, __m128i yes, __m128i no) {
    return _mm_or_si128(_mm_and_si128(mask, yes), _mm_andnot_si128(mask, no));
}

/* As paeth, of eight 16-bit values. */
FL_INLINE __m128i paeths(__m128i left, __m128i above, __m128i corner) {
    const __m128i x = _mm_sub_epi16(above, corner), y = _mm_sub_epi16(left, corner);
    const __m128i a = magnitude(x), b = magnitude(y), c = magnitude(_mm_add_epi16(x, y));
    const __m128i least = _mm_min_epi16(c, _mm_min_epi16(a, b));
    return choose(_mm_cmpeq_epi16(least, a), left, choose(_mm_cmpeq_epi16(least, b), above, corner));
}

/* Pixel by pixel, all bytes of one at a time: 3, 4, 6 or 8. What a load has beyond its pixel is the next
 * one's, and no store writes it. */
FL_INLINE void undo_pixels(uint8_t *row, const uint8_t *above, size_t size, size_t step, int filter) {
    const __m128i zero = _mm_setzero_si128();
    __m128i left = zero, corner = zero;
    for (size_t i = 0; i < size; i += step) {
        const __m128i coded = load(row + i, step);
        if (filter == SUB) {
            left = _mm_add_epi8(left, coded);
        } else if (filter == AVERAGE) {
            const __m128i over = load(above + i, step),
                          odd = _mm_and_si128(_mm_xor_si128(left, over), _mm_set1_epi8(1));
            left = _mm_add_epi8(coded, _mm_sub_epi8(_mm_avg_epu8(left, over), odd));
        } else {
            const __m128i over = _mm_unpacklo_epi8(load(above + i, step), zero);
            const __m128i sum = _mm_add_epi8(_mm_unpacklo_epi8(coded, zero), paeths(left, over, corner));
            left = _mm_and_si128(sum, _mm_set1_epi16(255)), corner = over;
        }
        store(row + i, filter == PAETH ? _mm_packus_epi16(left, left) : left, step);
    }
}

#define PIXELS(filter)                                                                                       \
    switch (step) {                                                                                          \
    case 3: undo_pixels(row, above, size, 3, filter); return true;                                           \
    case 4: undo_pixels(row, above, size, 4, filter); return true;                                           \
    case 6: undo_pixels(row, above, size, 6, filter); return true;                                           \
    case 8: undo_pixels(row, above, size, 8, filter); return true;                                           \
    default: undo(row, above, size, step, filter); return true;                                              \
    }

#else

#define PIXELS(filter)                                                                                       \
    undo(row, above, size, step, filter);                                                                    \
    return true;

#endif

bool fl_png_unfilter(uint8_t *row, const uint8_t *above, size_t size, uint32_t step) {
    switch (row[-1]) {
    case NONE: return true;
    case UP: up(row, above, size); return true;
    case SUB: PIXELS(SUB)
    case AVERAGE: PIXELS(AVERAGE)
    case PAETH: PIXELS(PAETH)
    default: return false;
    }
}
