/* Planes become masks over the 64 zigzag positions (pdep), magnitudes bytes that grow by masked adds. */
#include "jpeg/dct_blocks_avx512.h"

#include "common/simd.h"
#include "jpeg/dct_blocks_pdep.h"

#if defined(__x86_64__)

/* Zigzag position of each natural one. */
_Alignas(64) static const uint16_t ZIGZAG[64] = {
    0,  1,  5,  6,  14, 15, 27, 28, 2,  4,  7,  13, 16, 26, 29, 42, 3,  8,  12, 17, 25, 30,
    41, 43, 9,  11, 18, 24, 31, 40, 44, 53, 10, 19, 23, 32, 39, 45, 52, 54, 20, 22, 33, 38,
    46, 51, 55, 60, 21, 34, 37, 47, 50, 56, 59, 61, 35, 36, 48, 49, 57, 58, 62, 63};

FL_AVX512_INLINE __m512i plus(__m512i sum, uint64_t mask, int weight) {
    return _mm512_mask_add_epi8(sum, mask, sum, _mm512_set1_epi8((char)weight));
}

FL_AVX512_INLINE __m512i lower(__m512i bytes) { return _mm512_cvtepu8_epi16(_mm512_castsi512_si256(bytes)); }
FL_AVX512_INLINE __m512i upper(__m512i bytes) {
    return _mm512_cvtepu8_epi16(_mm512_extracti64x4_epi64(bytes, 1));
}

FL_AVX512_INLINE void one(fl_jpeg_dct_run *r) {
    const uint8_t *at = r->at;
    const fl_jpeg_dct_orders *o = r->orders;
    uint64_t bit = r->bit;
    const fl_jpeg_dct_next_block b = fl_jpeg_dct_take_block(r);
    int16_t *out = b.out;
    const unsigned last = b.last;
    const int16_t dc = b.dc;
    if (__builtin_expect(!last, 0)) {
        _mm512_storeu_si512(out, _mm512_zextsi128_si512(_mm_cvtsi32_si128((uint16_t)dc)));
        _mm512_storeu_si512(out + 32, _mm512_setzero_si512());
        return;
    }
    const uint64_t sig = fl_jpeg_dct_wide(at, bit, last - 1) << 1 | 1ull << last;
    bit += last - 1;
    const unsigned n = fl_jpeg_dct_ones(sig);
    const fl_jpeg_dct_planes planes = fl_jpeg_dct_two(at, &bit, n);
    const uint64_t more = planes.first;

    const uint64_t above[3] = {sig & o->above[0], sig & o->above[1], sig & o->above[2]};
    uint64_t lows[3];
    fl_jpeg_dct_lows(at, &bit, above, lows);
    __m512i low = _mm512_maskz_loadu_epi8(sig, o->bias);
    for (int i = 0; i < 3; i++) low = plus(low, lows[i], 1 << i);

    /* Bit k - 2 of U: as read where U has more bits, and its first one where it has not. */
    const uint64_t m2 = _pdep_u64(more, sig);
    const fl_jpeg_dct_level l2 = fl_jpeg_dct_read_level(at, &bit, m2, fl_jpeg_dct_ones(more)),
                            l3 = fl_jpeg_dct_read_level(at, &bit, l2.next, l2.count);
    __m512i u = _mm512_maskz_set1_epi8(l2.bits | (sig & ~m2), 1);
    u = plus(u, l3.bits | (m2 & ~l2.next), 2);
    if (l3.next) {
        const fl_jpeg_dct_level l4 = fl_jpeg_dct_read_level(at, &bit, l3.next, l3.count),
                                l5 = fl_jpeg_dct_read_level(at, &bit, l4.next, l4.count);
        u = plus(u, l4.bits | (l2.next & ~l3.next), 4);
        u = plus(u, l5.bits | (l3.next & ~l4.next), 8);
        if (l5.next) {
            const fl_jpeg_dct_level l6 = fl_jpeg_dct_read_level(at, &bit, l5.next, l5.count),
                                    l7 = fl_jpeg_dct_read_level(at, &bit, l6.next, l6.count);
            if (__builtin_expect(l7.next != 0, 0)) { /* U above a byte's half */
                memset(out, 0, 64 * sizeof *out);
                r->bit = fl_jpeg_dct_block(at, r->bit, last, o, out);
                *out = dc;
                return;
            }
            u = plus(u, l6.bits | (l4.next & ~l5.next), 16);
            u = plus(u, l7.bits | (l5.next & ~l6.next), 32);
            u = plus(u, l6.next, 64);
        } else {
            u = plus(u, l4.next, 16);
        }
    } else {
        u = plus(u, l2.next, 4);
    }
    const __m512i zero = _mm512_setzero_si512();
    const uint64_t negative = _pdep_u64(planes.second, sig);
    __m512i x = _mm512_sllv_epi16(lower(u), _mm512_load_si512(o->order)),
            y = _mm512_sllv_epi16(upper(u), _mm512_load_si512(o->order + 32));
    x = _mm512_add_epi16(x, _mm512_cvtepi8_epi16(_mm512_castsi512_si256(low)));
    y = _mm512_add_epi16(y, _mm512_cvtepi8_epi16(_mm512_extracti64x4_epi64(low, 1)));
    x = _mm512_mask_sub_epi16(x, (__mmask32)negative, zero, x);
    y = _mm512_mask_sub_epi16(y, (__mmask32)(negative >> 32), zero, y);
    _mm512_storeu_si512(out, _mm512_permutex2var_epi16(x, _mm512_load_si512(ZIGZAG), y));
    _mm512_storeu_si512(out + 32, _mm512_permutex2var_epi16(x, _mm512_load_si512(ZIGZAG + 32), y));
    *out = dc;
    r->bit = bit;
}

FL_AVX512 bool fl_jpeg_dct_make_avx512(fl_jpeg_dct_run *a, fl_jpeg_dct_run *b) { FL_JPEG_DCT_MAKE(one); }

/* Natural position of each zigzag one. */
_Alignas(64) static const uint16_t NATURAL[64] = {
    0,  1,  8,  16, 9,  2,  3,  10, 17, 24, 32, 25, 18, 11, 4,  5,  12, 19, 26, 33, 40, 48,
    41, 34, 27, 20, 13, 6,  7,  14, 21, 28, 35, 42, 49, 56, 57, 50, 43, 36, 29, 22, 15, 23,
    30, 37, 44, 51, 58, 59, 52, 45, 38, 31, 39, 46, 53, 60, 61, 54, 47, 55, 62, 63};

FL_AVX512 void fl_jpeg_dct_order_avx512(const int16_t *natural, int16_t *out) {
    const __m512i x = _mm512_loadu_si512(natural), y = _mm512_loadu_si512(natural + 32);
    _mm512_storeu_si512(out, _mm512_permutex2var_epi16(x, _mm512_load_si512(NATURAL), y));
    _mm512_storeu_si512(out + 32, _mm512_permutex2var_epi16(x, _mm512_load_si512(NATURAL + 32), y));
}

FL_AVX512 unsigned fl_jpeg_dct_list_avx512(const int16_t *block, uint8_t *places, int16_t *values) {
    _Alignas(64) static const uint8_t each[64] = {
        0,  1,  2,  3,  4,  5,  6,  7,  8,  9,  10, 11, 12, 13, 14, 15, 16, 17, 18, 19, 20, 21,
        22, 23, 24, 25, 26, 27, 28, 29, 30, 31, 32, 33, 34, 35, 36, 37, 38, 39, 40, 41, 42, 43,
        44, 45, 46, 47, 48, 49, 50, 51, 52, 53, 54, 55, 56, 57, 58, 59, 60, 61, 62, 63};
    const __m512i low = _mm512_loadu_si512(block), high = _mm512_loadu_si512(block + 32);
    const __mmask32 low_mask = _mm512_test_epi16_mask(low, low) & ~1u,
                    high_mask = _mm512_test_epi16_mask(high, high);
    const uint64_t mask = (uint64_t)high_mask << 32 | low_mask;
    _mm512_storeu_si512(values, _mm512_maskz_compress_epi16(low_mask, low));
    _mm512_storeu_si512(values + fl_jpeg_dct_ones(low_mask), _mm512_maskz_compress_epi16(high_mask, high));
    _mm512_storeu_si512(places, _mm512_maskz_compress_epi8(mask, _mm512_load_si512(each)));
    return fl_jpeg_dct_ones(mask);
}

/* At most 63 bits; those of value above them are zero. */
FL_AVX512_INLINE void put(fl_jpeg_dct_writer *w, uint64_t value, unsigned count) {
    const uint64_t low = w->bits | value << w->count,
                   high = value >> 1 >> (63 - w->count); /* at most 7 + 63 bits */
    const unsigned total = w->count + count;
    memcpy(w->at, &low, 8);
    w->at[8] = (uint8_t)high;
    w->at += total / 8;
    w->bits = total < 64 ? low >> (total & 56) : high;
    w->count = total % 8;
}

/* Two planes of as many bits each. */
FL_AVX512_INLINE void put_both(fl_jpeg_dct_writer *w, uint64_t first, uint64_t second, unsigned count) {
    if (__builtin_expect(2 * count > 63, 0)) {
        put(w, first, count);
        put(w, second, count);
    } else {
        put(w, first | second << (count & 63), 2 * count);
    }
}

FL_AVX512_INLINE uint64_t joined(__mmask32 low, __mmask32 high) { return (uint64_t)high << 32 | low; }

/* Lanes of x and y that have a bit of `bits`; that are above `limit`, as unsigned numbers. */
FL_AVX512_INLINE uint64_t having(__m512i x, __m512i y, int bits) {
    const __m512i all = _mm512_set1_epi16((short)bits);
    return joined(_mm512_test_epi16_mask(x, all), _mm512_test_epi16_mask(y, all));
}

FL_AVX512_INLINE uint64_t above(__m512i x, __m512i y, int limit) {
    const __m512i all = _mm512_set1_epi16((short)limit);
    return joined(_mm512_cmpgt_epu16_mask(x, all), _mm512_cmpgt_epu16_mask(y, all));
}

/* The planes of the low bits, which are together at most 63 bits, most of the time. */
FL_AVX512_INLINE void put_lows(fl_jpeg_dct_writer *w, __m512i less_x, __m512i less_y, uint64_t sig,
                               const fl_jpeg_dct_orders *o) {
    const uint64_t a0 = sig & o->above[0], a1 = sig & o->above[1], a2 = sig & o->above[2];
    const unsigned n0 = fl_jpeg_dct_ones(a0), n1 = fl_jpeg_dct_ones(a1), n2 = fl_jpeg_dct_ones(a2);
    const uint64_t low0 = _pext_u64(having(less_x, less_y, 1), a0),
                   low1 = _pext_u64(having(less_x, less_y, 2), a1),
                   low2 = _pext_u64(having(less_x, less_y, 4), a2);
    if (__builtin_expect(n0 + n1 + n2 > 63, 0)) {
        put(w, low0, n0);
        put(w, low1, n1);
        put(w, low2, n2);
    } else {
        put(w, low0 | low1 << (n0 & 63) | low2 << ((n0 + n1) & 63), n0 + n1 + n2);
    }
}

/* Levels 2 and 3, whether there is anything in them or not: a branch would be noise. Returns the positions of
 * level 4. */
FL_AVX512_INLINE uint64_t put_levels(fl_jpeg_dct_writer *w, __m512i ux, __m512i uy, uint64_t now) {
    const uint64_t next = above(ux, uy, 3), last = above(ux, uy, 7);
    const unsigned n = fl_jpeg_dct_ones(now), m = fl_jpeg_dct_ones(next);
    const uint64_t larger = _pext_u64(next, now), bits = _pext_u64(having(ux, uy, 1), now);
    const uint64_t more = _pext_u64(last, next), more_bits = _pext_u64(having(ux, uy, 2), next);
    if (__builtin_expect(2 * (n + m) > 63, 0)) {
        put_both(w, larger, bits, n);
        put_both(w, more, more_bits, m);
    } else {
        put(w, larger | bits << (n & 63) | more << (2 * n & 63) | more_bits << ((2 * n + m) & 63),
            2 * (n + m));
    }
    return last;
}

/* False for a magnitude that the form does not hold. */
FL_AVX512_INLINE bool put_block(fl_jpeg_dct_writer *w, const int16_t *block, const fl_jpeg_dct_orders *o,
                                uint8_t *last) {
    const __m512i low = _mm512_loadu_si512(block), high = _mm512_loadu_si512(block + 32),
                  one_each = _mm512_set1_epi16(1);
    const uint64_t sig = joined(_mm512_test_epi16_mask(low, low), _mm512_test_epi16_mask(high, high)) & ~1ull;
    *last = 0;
    if (!sig) return true;
    const unsigned end = 63 - (unsigned)_lzcnt_u64(sig), n = fl_jpeg_dct_ones(sig);
    const __m512i x = _mm512_abs_epi16(low), y = _mm512_abs_epi16(high);
    if (above(x, y, FL_JPEG_DCT_MAGNITUDE_MOST) & sig) return false;
    *last = (uint8_t)end;
    put(w, (sig & ~(1ull << end)) >> 1, end - 1);
    const __m512i less_x = _mm512_sub_epi16(x, one_each), less_y = _mm512_sub_epi16(y, one_each);
    const __m512i ux = _mm512_maskz_add_epi16(
        (__mmask32)sig, _mm512_srlv_epi16(less_x, _mm512_load_si512(o->order)), one_each);
    const __m512i uy = _mm512_maskz_add_epi16(
        (__mmask32)(sig >> 32), _mm512_srlv_epi16(less_y, _mm512_load_si512(o->order + 32)), one_each);
    uint64_t now = above(ux, uy, 1);
    const uint64_t negative = joined(_mm512_movepi16_mask(low), _mm512_movepi16_mask(high));
    put_both(w, _pext_u64(now, sig), _pext_u64(negative, sig), n);
    put_lows(w, less_x, less_y, sig, o);
    now = put_levels(w, ux, uy, now);
    for (int k = 4; __builtin_expect(now != 0, 0); k++) {
        const uint64_t larger = above(ux, uy, (1 << k) - 1), bits = having(ux, uy, 1 << (k - 2));
        put_both(w, _pext_u64(larger, now), _pext_u64(bits, now), fl_jpeg_dct_ones(now));
        now = larger;
    }
    return true;
}

FL_AVX512 bool fl_jpeg_dct_put_avx512(fl_jpeg_dct_writer *writer, const fl_jpeg_dct_source *from,
                                      uint8_t *lasts, uint32_t *ends) {
    fl_jpeg_dct_writer w = *writer;
    const uint8_t *start = w.at;
    for (uint32_t mcu = 0; mcu < from->mcus; mcu++) {
        const int16_t *block = from->blocks + mcu * from->step;
        for (uint32_t x = 0; x < from->across; x++, block += 64)
            if (!put_block(&w, block, from->orders, lasts++)) return false;
        *ends++ = (uint32_t)((w.at - start) * 8) + w.count;
    }
    *writer = w;
    return true;
}

#endif
