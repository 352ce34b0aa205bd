/* Inverse DCTs with AVX2, two blocks at a time: one in each lane. Same arithmetic as jpeg/baseline_scalar.c, same bytes. */
#include "jpeg/baseline_avx2.h"

#if defined(__x86_64__)

#include <immintrin.h>

enum { CONST_BITS = 13, PASS1_BITS = 2 };

/* round(x * 2^13) */
#define FIX(x) ((int16_t)((x) * (1 << CONST_BITS) + 0.5))

/* For pairs (a, b) of 16 bits: a * first + b * second. */
INLINE __m256i weights(int first, int second) { return _mm256_set1_epi32((int32_t)((uint32_t)second << 16 | (uint16_t)first)); }

/* 32 bits for each of 16 columns: four low and four high of each lane. */
typedef struct wide {
    __m256i low, high;
} wide;

INLINE wide pairs(__m256i a, __m256i b) { return (wide){_mm256_unpacklo_epi16(a, b), _mm256_unpackhi_epi16(a, b)}; }

INLINE wide weigh(wide p, __m256i w) { return (wide){_mm256_madd_epi16(p.low, w), _mm256_madd_epi16(p.high, w)}; }

INLINE wide plus(wide a, wide b) { return (wide){_mm256_add_epi32(a.low, b.low), _mm256_add_epi32(a.high, b.high)}; }

INLINE wide minus(wide a, wide b) { return (wide){_mm256_sub_epi32(a.low, b.low), _mm256_sub_epi32(a.high, b.high)}; }

INLINE wide constant(int32_t x) { return (wide){_mm256_set1_epi32(x), _mm256_set1_epi32(x)}; }

/* x * 2^bits, x of 16 bits */
INLINE wide shifted(__m256i x, int bits) {
    const wide p = pairs(_mm256_setzero_si256(), x);
    return (wide){_mm256_srai_epi32(p.low, 16 - bits), _mm256_srai_epi32(p.high, 16 - bits)};
}

INLINE __m256i narrow(wide x, int bits) { return _mm256_packs_epi32(_mm256_srai_epi32(x.low, bits), _mm256_srai_epi32(x.high, bits)); }

/* One dimension: x[i] holds coefficient i of 16 columns and becomes sample i, rounded off by `bits`. */
INLINE void idct_8(__m256i x[8], int bits) {
    const wide round = constant(1 << (bits - 1));
    const wide p26 = pairs(x[2], x[6]);
    const wide even2 = weigh(p26, weights(FIX(0.541196100), FIX(0.541196100) - FIX(1.847759065)));
    const wide even3 = weigh(p26, weights(FIX(0.541196100) + FIX(0.765366865), FIX(0.541196100)));
    const wide even0 = plus(shifted(_mm256_add_epi16(x[0], x[4]), CONST_BITS), round);
    const wide even1 = plus(shifted(_mm256_sub_epi16(x[0], x[4]), CONST_BITS), round);
    const wide even[4] = {plus(even0, even3), plus(even1, even2), minus(even1, even2), minus(even0, even3)};

    const wide z = pairs(_mm256_add_epi16(x[3], x[7]), _mm256_add_epi16(x[1], x[5]));
    const wide a = weigh(z, weights(FIX(1.175875602) - FIX(1.961570560), FIX(1.175875602)));
    const wide b = weigh(z, weights(FIX(1.175875602), FIX(1.175875602) - FIX(0.390180644)));
    const wide p71 = pairs(x[7], x[1]), p53 = pairs(x[5], x[3]);
    const wide odd[4] = {
        plus(weigh(p71, weights(-FIX(0.899976223), FIX(1.501321110) - FIX(0.899976223))), b),
        plus(weigh(p53, weights(-FIX(2.562915447), FIX(3.072711026) - FIX(2.562915447))), a),
        plus(weigh(p53, weights(FIX(2.053119869) - FIX(2.562915447), -FIX(2.562915447))), b),
        plus(weigh(p71, weights(FIX(0.298631336) - FIX(0.899976223), -FIX(0.899976223))), a),
    };
    for (int i = 0; i < 4; i++) {
        x[i] = narrow(plus(even[i], odd[i]), bits);
        x[7 - i] = narrow(minus(even[i], odd[i]), bits);
    }
}

/* Rows for columns, in each lane. */
INLINE void transpose(__m256i x[8]) {
    __m256i a[8], b[8];
    for (int i = 0; i < 4; i++) {
        a[2 * i] = _mm256_unpacklo_epi16(x[2 * i], x[2 * i + 1]);
        a[2 * i + 1] = _mm256_unpackhi_epi16(x[2 * i], x[2 * i + 1]);
    }
    for (int i = 0; i < 2; i++) {
        b[4 * i] = _mm256_unpacklo_epi32(a[4 * i], a[4 * i + 2]);
        b[4 * i + 1] = _mm256_unpackhi_epi32(a[4 * i], a[4 * i + 2]);
        b[4 * i + 2] = _mm256_unpacklo_epi32(a[4 * i + 1], a[4 * i + 3]);
        b[4 * i + 3] = _mm256_unpackhi_epi32(a[4 * i + 1], a[4 * i + 3]);
    }
    for (int i = 0; i < 4; i++) {
        x[2 * i] = _mm256_unpacklo_epi64(b[i], b[i + 4]);
        x[2 * i + 1] = _mm256_unpackhi_epi64(b[i], b[i + 4]);
    }
}

/* Row `i` of two blocks, dequantised. */
INLINE __m256i row_of(const fl_job pair[2], const int16_t *quant, int i) {
    const __m128i *one = (const __m128i *)pair[0].coefs, *two = (const __m128i *)pair[1].coefs, *by = (const __m128i *)quant;
    const __m256i both = _mm256_inserti128_si256(_mm256_castsi128_si256(_mm_loadu_si128(one + i)), _mm_loadu_si128(two + i), 1);
    return _mm256_mullo_epi16(both, _mm256_broadcastsi128_si256(_mm_loadu_si128(by + i)));
}

/* True when 4 times some value does not fit 16 bits: what then happens is left to the scalar kernels. */
INLINE bool huge(__m256i x) {
    const __m256i back = _mm256_srai_epi16(_mm256_slli_epi16(x, PASS1_BITS), PASS1_BITS);
    return _mm256_movemask_epi8(_mm256_cmpeq_epi16(back, x)) != -1;
}

/* The two blocks' samples, from columns of 16 bits. */
INLINE void store_8(const fl_job pair[2], size_t stride, const __m256i x[8]) {
    const __m256i centre = _mm256_set1_epi8(-128);
    const __m256i even = _mm256_packs_epi16(x[0], x[2]), odd = _mm256_packs_epi16(x[1], x[3]);
    const __m256i even4 = _mm256_packs_epi16(x[4], x[6]), odd4 = _mm256_packs_epi16(x[5], x[7]);
    const __m256i c01 = _mm256_unpacklo_epi8(even, odd), c23 = _mm256_unpackhi_epi8(even, odd);
    const __m256i c45 = _mm256_unpacklo_epi8(even4, odd4), c67 = _mm256_unpackhi_epi8(even4, odd4);
    const __m256i left[2] = {_mm256_unpacklo_epi16(c01, c23), _mm256_unpackhi_epi16(c01, c23)};
    const __m256i right[2] = {_mm256_unpacklo_epi16(c45, c67), _mm256_unpackhi_epi16(c45, c67)};
    for (int i = 0; i < 4; i++) {
        __m256i rows = i % 2 ? _mm256_unpackhi_epi32(left[i / 2], right[i / 2]) : _mm256_unpacklo_epi32(left[i / 2], right[i / 2]);
        rows = _mm256_xor_si256(rows, centre);
        const __m128i one = _mm256_castsi256_si128(rows), two = _mm256_extracti128_si256(rows, 1);
        const size_t at = 2 * (size_t)i * stride;
        _mm_storel_epi64((__m128i *)(pair[0].out + at), one);
        _mm_storeh_pd((double *)(pair[0].out + at + stride), _mm_castsi128_pd(one));
        _mm_storel_epi64((__m128i *)(pair[1].out + at), two);
        _mm_storeh_pd((double *)(pair[1].out + at + stride), _mm_castsi128_pd(two));
    }
}

AVX2 static void idct8_pair(const fl_job pair[2], const int16_t *quant, size_t stride) {
    __m256i x[8];
    for (int i = 0; i < 8; i++) x[i] = row_of(pair, quant, i);
    if (huge(x[0])) {
        fl_decode_scalar.idct[3](pair, 2, quant, stride);
        return;
    }
    idct_8(x, CONST_BITS - PASS1_BITS);
    transpose(x);
    idct_8(x, CONST_BITS + PASS1_BITS + 3);
    store_8(pair, stride, x);
}

/* A block of which only the DC coefficient is left has one sample value. */
static uint8_t flat_sample(int16_t dc, int16_t quant) {
    const int16_t product = (int16_t)(uint16_t)(dc * quant);
    const int32_t x = ((int16_t)(uint16_t)(product * (1 << PASS1_BITS)) + (1 << (PASS1_BITS + 2))) >> (PASS1_BITS + 3);
    return (uint8_t)(x < -128 ? 0 : x > 127 ? 255 : x + 128);
}

static void fill_8(uint8_t *out, size_t stride, uint8_t value) {
    for (int y = 0; y < 8; y++) memset(out + (size_t)y * stride, value, 8);
}

AVX2 static void idct8(const fl_job *jobs, size_t n, const int16_t *quant, size_t stride) {
    fl_job pair[2];
    int have = 0;
    for (size_t i = 0; i < n; i++) {
        if (jobs[i].count == 1) {
            fill_8(jobs[i].out, stride, flat_sample(jobs[i].coefs[0], quant[0]));
            continue;
        }
        pair[have++] = jobs[i];
        if (have < 2) continue;
        idct8_pair(pair, quant, stride);
        have = 0;
    }
    if (have) {
        pair[1] = pair[0];
        idct8_pair(pair, quant, stride);
    }
}

/* Second dimension: u[i] holds columns 2 i and 2 i + 1, four rows each. */
INLINE __m256i odd_4(__m256i p13, __m256i p57, __m256i w13, __m256i w57) {
    return _mm256_add_epi32(_mm256_madd_epi16(p13, w13), _mm256_madd_epi16(p57, w57));
}

AVX2 static void idct4_pair(const fl_job pair[2], const int16_t *quant, size_t stride) {
    enum { FIRST = CONST_BITS - PASS1_BITS + 1, SECOND = CONST_BITS + PASS1_BITS + 3 + 1 };
    const __m256i w26 = weights(FIX(1.847759065), -FIX(0.765366865));
    const __m256i a13 = weights(FIX(1.061594337), -FIX(2.172734803)), a57 = weights(FIX(1.451774981), -FIX(0.211164243));
    const __m256i b13 = weights(FIX(2.562915447), FIX(0.899976223)), b57 = weights(-FIX(0.601344887), -FIX(0.509795579));
    __m256i x[8];
    for (int i = 0; i < 8; i++) x[i] = row_of(pair, quant, i);
    if (huge(x[0])) {
        fl_decode_scalar.idct[2](pair, 2, quant, stride);
        return;
    }
    const wide dc = plus(shifted(x[0], CONST_BITS + 1), constant(1 << (FIRST - 1))), even = weigh(pairs(x[2], x[6]), w26);
    const wide p13 = pairs(x[1], x[3]), p57 = pairs(x[5], x[7]);
    const wide a = plus(weigh(p13, a13), weigh(p57, a57)), b = plus(weigh(p13, b13), weigh(p57, b57));
    const wide e0 = plus(dc, even), e1 = minus(dc, even);
    const __m256i r0 = narrow(plus(e0, b), FIRST), r3 = narrow(minus(e0, b), FIRST);
    const __m256i r1 = narrow(plus(e1, a), FIRST), r2 = narrow(minus(e1, a), FIRST);

    const wide top = pairs(r0, r1), bottom = pairs(r2, r3);
    const __m256i u0 = _mm256_unpacklo_epi32(top.low, bottom.low), u1 = _mm256_unpackhi_epi32(top.low, bottom.low);
    const __m256i u2 = _mm256_unpacklo_epi32(top.high, bottom.high), u3 = _mm256_unpackhi_epi32(top.high, bottom.high);
    const __m256i q13 = _mm256_unpackhi_epi16(u0, u1), q57 = _mm256_unpackhi_epi16(u2, u3), q26 = _mm256_unpacklo_epi16(u1, u3);
    __m256i dc2 = _mm256_srai_epi32(_mm256_unpacklo_epi16(_mm256_setzero_si256(), u0), 16 - (CONST_BITS + 1));
    dc2 = _mm256_add_epi32(dc2, _mm256_set1_epi32(1 << (SECOND - 1)));
    const __m256i even2 = _mm256_madd_epi16(q26, w26), a2 = odd_4(q13, q57, a13, a57), b2 = odd_4(q13, q57, b13, b57);
    const __m256i f0 = _mm256_add_epi32(dc2, even2), f1 = _mm256_sub_epi32(dc2, even2);
    const __m256i c0 = _mm256_srai_epi32(_mm256_add_epi32(f0, b2), SECOND), c3 = _mm256_srai_epi32(_mm256_sub_epi32(f0, b2), SECOND);
    const __m256i c1 = _mm256_srai_epi32(_mm256_add_epi32(f1, a2), SECOND), c2 = _mm256_srai_epi32(_mm256_sub_epi32(f1, a2), SECOND);

    const __m256i turn = _mm256_broadcastsi128_si256(_mm_setr_epi8(0, 4, 8, 12, 1, 5, 9, 13, 2, 6, 10, 14, 3, 7, 11, 15));
    __m256i bytes = _mm256_packs_epi16(_mm256_packs_epi32(c0, c1), _mm256_packs_epi32(c2, c3));
    bytes = _mm256_xor_si256(_mm256_shuffle_epi8(bytes, turn), _mm256_set1_epi8(-128));
    uint32_t rows[8];
    _mm256_storeu_si256((__m256i *)rows, bytes);
    for (int block = 0; block < 2; block++)
        for (int y = 0; y < 4; y++) memcpy(pair[block].out + (size_t)y * stride, &rows[4 * block + y], 4);
}

AVX2 static void idct4(const fl_job *jobs, size_t n, const int16_t *quant, size_t stride) {
    for (size_t i = 0; i + 1 < n; i += 2) idct4_pair(jobs + i, quant, stride);
    if (n % 2) {
        const fl_job pair[2] = {jobs[n - 1], jobs[n - 1]};
        idct4_pair(pair, quant, stride);
    }
}

const fl_decode_kernels *fl_decode_avx2(void) {
    static const fl_decode_kernels kernels = {
        {fl_idct1, fl_idct2, idct4, idct8}, fl_h2v1_avx2, fl_h2v2_avx2, fl_h1v2_avx2, fl_h2_avx2, fl_ycc_avx2, fl_grey_avx2};
    return __builtin_cpu_supports("avx2") ? &kernels : NULL;
}

#else

const fl_decode_kernels *fl_decode_avx2(void) { return NULL; }

#endif
