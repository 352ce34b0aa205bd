/* Planes stay packed, a bit for each significant coefficient; eight coefficients at a time become bytes
 * (pdep), then words. */
#include "jpeg/dct_blocks_avx2.h"

#include "common/simd.h"
#include "jpeg/dct_blocks_pdep.h"
#include "jpeg/huffman.h"

#if defined(__x86_64__)

enum { PLANES = 7 };

#define EACH(x) ((x) * 0x0101010101010101ull)

/* The lowest eight bits, each in a byte of its own, times weight, a power of two. */
FL_AVX2_BMI2_INLINE uint64_t bytes_of(uint64_t bits, unsigned weight) {
    return _pdep_u64(bits, EACH((uint64_t)weight));
}

FL_AVX2_BMI2_INLINE __m128i words(uint64_t bytes) {
    return _mm_cvtepu8_epi16(_mm_cvtsi64_si128((long long)bytes));
}

FL_AVX2_BMI2_INLINE void one(fl_jpeg_dct_run *r) {
    const uint8_t *at = r->at;
    const fl_jpeg_dct_orders *o = r->orders;
    uint64_t bit = r->bit;
    const fl_jpeg_dct_next_block b = fl_jpeg_dct_take_block(r);
    int16_t *out = b.out;
    const unsigned last = b.last;
    const int16_t dc = b.dc;
    const __m256i zero = _mm256_setzero_si256();
    for (int i = 0; i < 4; i++) _mm256_storeu_si256((__m256i *)out + i, zero);
    if (__builtin_expect(!last, 0)) {
        *out = dc;
        return;
    }
    uint64_t sig = fl_jpeg_dct_wide(at, bit, last - 1) << 1 | 1ull << last;
    bit += last - 1;
    const unsigned n = fl_jpeg_dct_ones(sig);
    const fl_jpeg_dct_planes planes = fl_jpeg_dct_two(at, &bit, n);
    const uint64_t more = planes.first;
    uint64_t sign = planes.second;

    uint64_t above[3] = {_pext_u64(o->above[0], sig), _pext_u64(o->above[1], sig),
                         _pext_u64(o->above[2], sig)},
             lows[3];
    fl_jpeg_dct_lows(at, &bit, above, lows);

    /* plane[i]: bit i of U, as read where U has more bits, and its first one where it has not. */
    uint64_t plane[PLANES], high = 0;
    const fl_jpeg_dct_level l2 = fl_jpeg_dct_read_level(at, &bit, more, fl_jpeg_dct_ones(more)),
                            l3 = fl_jpeg_dct_read_level(at, &bit, l2.next, l2.count);
    plane[0] = l2.bits | (~more & ((1ull << n) - 1));
    plane[1] = l3.bits | (more & ~l2.next);
    plane[2] = l2.next;
    plane[3] = plane[4] = plane[5] = plane[6] = 0;
    if (l3.next) {
        const fl_jpeg_dct_level l4 = fl_jpeg_dct_read_level(at, &bit, l3.next, l3.count),
                                l5 = fl_jpeg_dct_read_level(at, &bit, l4.next, l4.count);
        high = 1;
        plane[2] = l4.bits | (l2.next & ~l3.next);
        plane[3] = l5.bits | (l3.next & ~l4.next);
        plane[4] = l4.next;
        if (l5.next) {
            const fl_jpeg_dct_level l6 = fl_jpeg_dct_read_level(at, &bit, l5.next, l5.count),
                                    l7 = fl_jpeg_dct_read_level(at, &bit, l6.next, l6.count);
            if (__builtin_expect(l7.next != 0, 0)) { /* U above a byte's half */
                r->bit = fl_jpeg_dct_block(at, r->bit, last, o, out);
                *out = dc;
                return;
            }
            plane[4] = l6.bits | (l4.next & ~l5.next);
            plane[5] = l7.bits | (l5.next & ~l6.next);
            plane[6] = l6.next;
        }
    }
    for (;;) {
        uint64_t u = bytes_of(plane[0], 1) | bytes_of(plane[1], 2) | bytes_of(plane[2], 4);
        if (high) {
            for (int i = 3; i < PLANES; i++) u |= bytes_of(plane[i], 1u << i);
            for (int i = 3; i < PLANES; i++) plane[i] >>= 8;
        }
        const uint64_t low = bytes_of(lows[0], 1) | bytes_of(lows[1], 2) | bytes_of(lows[2], 4);
        const uint64_t factor =
            EACH(1) + bytes_of(above[0], 1) + bytes_of(above[1], 2) + bytes_of(above[2], 4);
        const __m128i one_each = _mm_set1_epi16(1);
        __m128i value = _mm_mullo_epi16(_mm_sub_epi16(words(u), one_each), words(factor));
        value = _mm_add_epi16(_mm_add_epi16(value, words(low)), one_each);
        value = _mm_sign_epi16(
            value, _mm_cvtepi8_epi16(_mm_cvtsi64_si128((long long)(bytes_of(sign, 128) | EACH(1)))));
        int16_t made[8];
        _mm_storeu_si128((__m128i *)made, value);
        for (int i = 0; i < 8; i++, sig = _blsr_u64(sig))
            out[fl_jpeg_natural[_tzcnt_u64(sig)]] = made[i]; /* out[64] behind the last */
        if (!sig) break;
        plane[0] >>= 8, plane[1] >>= 8, plane[2] >>= 8;
        for (int i = 0; i < 3; i++) lows[i] >>= 8, above[i] >>= 8;
        sign >>= 8;
    }
    *out = dc;
    r->bit = bit;
}

FL_AVX2_BMI2 bool fl_jpeg_dct_make_avx2(fl_jpeg_dct_run *a, fl_jpeg_dct_run *b) { FL_JPEG_DCT_MAKE(one); }

#endif
