/* Planes stay packed, a bit for each significant coefficient; eight coefficients at a time become bytes (pdep), then words. */
#include "jpeg/dct_blocks_avx2.h"

#include "common/simd.h"
#include "jpeg/huffman.h"

#if defined(__x86_64__)

enum { WINDOW = 57 /* bits that one load has */, PLANES = 7 };

FL_AVX2_BMI2_INLINE unsigned ones(uint64_t mask) { return (unsigned)_mm_popcnt_u64(mask); }

/* One level: of the coefficients in `now` (count of them) those that go on, as a mask, and the bits of U. */
typedef struct level {
    uint64_t next, bits;
    unsigned count; /* of next */
} level;

FL_AVX2_BMI2_INLINE level read_level(const uint8_t *at, uint64_t *bit, uint64_t now, unsigned count) {
    uint64_t window = fl_jpeg_dct_bits(at, *bit), larger = _bzhi_u64(window, count), bits = window >> (count & 63);
    if (__builtin_expect(2 * count > WINDOW, 0)) {
        larger = fl_jpeg_dct_wide(at, *bit, count);
        bits = fl_jpeg_dct_wide(at, *bit + count, count);
    }
    *bit += 2 * count;
    return (level){_pdep_u64(larger, now), _pdep_u64(bits, now), ones(larger)};
}

#define EACH(x) ((x) * 0x0101010101010101ull)

/* The lowest eight bits, each in a byte of its own, times weight, a power of two. */
FL_AVX2_BMI2_INLINE uint64_t bytes_of(uint64_t bits, unsigned weight) { return _pdep_u64(bits, EACH((uint64_t)weight)); }

FL_AVX2_BMI2_INLINE __m128i words(uint64_t bytes) { return _mm_cvtepu8_epi16(_mm_cvtsi64_si128((long long)bytes)); }

FL_AVX2_BMI2_INLINE void one(fl_jpeg_dct_run *r) {
    const uint8_t *at = r->at;
    const fl_jpeg_dct_orders *o = r->orders;
    int16_t *out = r->coefs;
    uint64_t bit = r->bit;
    const unsigned last = fl_jpeg_dct_last(at, r->lasts, r->block++);
    const int16_t dc = *r->dc++;
    r->coefs += 64;
    *r->counts++ = (uint8_t)(last + 1);
    r->count--;
    const __m256i zero = _mm256_setzero_si256();
    for (int i = 0; i < 4; i++) _mm256_storeu_si256((__m256i *)out + i, zero);
    if (__builtin_expect(!last, 0)) {
        *out = dc;
        return;
    }
    uint64_t sig = fl_jpeg_dct_wide(at, bit, last - 1) << 1 | 1ull << last;
    bit += last - 1;
    const unsigned n = ones(sig);
    uint64_t window = fl_jpeg_dct_bits(at, bit), more = _bzhi_u64(window, n), sign = window >> (n & 63);
    if (__builtin_expect(2 * n > WINDOW, 0)) {
        more = fl_jpeg_dct_wide(at, bit, n);
        sign = fl_jpeg_dct_wide(at, bit + n, n);
    }
    bit += 2 * n;

    uint64_t a0 = _pext_u64(o->above[0], sig), a1 = _pext_u64(o->above[1], sig), a2 = _pext_u64(o->above[2], sig);
    const unsigned n0 = ones(a0), n1 = ones(a1), n2 = ones(a2);
    window = fl_jpeg_dct_bits(at, bit);
    uint64_t low0 = window, low1 = window >> (n0 & 63), low2 = window >> ((n0 + n1) & 63);
    if (__builtin_expect(n0 + n1 + n2 > WINDOW, 0)) {
        low0 = fl_jpeg_dct_wide(at, bit, n0);
        low1 = fl_jpeg_dct_wide(at, bit + n0, n1);
        low2 = fl_jpeg_dct_wide(at, bit + n0 + n1, n2);
    }
    bit += n0 + n1 + n2;
    low0 = _pdep_u64(low0, a0), low1 = _pdep_u64(low1, a1), low2 = _pdep_u64(low2, a2);

    /* plane[i]: bit i of U, as read where U has more bits, and its first one where it has not. */
    uint64_t plane[PLANES], high = 0;
    const level l2 = read_level(at, &bit, more, ones(more)), l3 = read_level(at, &bit, l2.next, l2.count);
    plane[0] = l2.bits | (~more & ((1ull << n) - 1));
    plane[1] = l3.bits | (more & ~l2.next);
    plane[2] = l2.next;
    plane[3] = plane[4] = plane[5] = plane[6] = 0;
    if (l3.next) {
        const level l4 = read_level(at, &bit, l3.next, l3.count), l5 = read_level(at, &bit, l4.next, l4.count);
        high = 1;
        plane[2] = l4.bits | (l2.next & ~l3.next);
        plane[3] = l5.bits | (l3.next & ~l4.next);
        plane[4] = l4.next;
        if (l5.next) {
            const level l6 = read_level(at, &bit, l5.next, l5.count), l7 = read_level(at, &bit, l6.next, l6.count);
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
        const uint64_t low = bytes_of(low0, 1) | bytes_of(low1, 2) | bytes_of(low2, 4);
        const uint64_t factor = EACH(1) + bytes_of(a0, 1) + bytes_of(a1, 2) + bytes_of(a2, 4);
        const __m128i one_each = _mm_set1_epi16(1);
        __m128i value = _mm_mullo_epi16(_mm_sub_epi16(words(u), one_each), words(factor));
        value = _mm_add_epi16(_mm_add_epi16(value, words(low)), one_each);
        value = _mm_sign_epi16(value, _mm_cvtepi8_epi16(_mm_cvtsi64_si128((long long)(bytes_of(sign, 128) | EACH(1)))));
        int16_t made[8];
        _mm_storeu_si128((__m128i *)made, value);
        for (int i = 0; i < 8; i++, sig = _blsr_u64(sig)) out[fl_jpeg_natural[_tzcnt_u64(sig)]] = made[i]; /* out[64] behind the last */
        if (!sig) break;
        plane[0] >>= 8, plane[1] >>= 8, plane[2] >>= 8;
        low0 >>= 8, low1 >>= 8, low2 >>= 8;
        a0 >>= 8, a1 >>= 8, a2 >>= 8;
        sign >>= 8;
    }
    *out = dc;
    r->bit = bit;
}

FL_AVX2_BMI2 bool fl_jpeg_dct_make_avx2(fl_jpeg_dct_run *a, fl_jpeg_dct_run *b) { FL_JPEG_DCT_MAKE(one); }

#endif
