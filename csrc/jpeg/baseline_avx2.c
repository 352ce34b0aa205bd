/* Inverse DCTs go two blocks at a time, one in each lane. Same arithmetic as jpeg/baseline_scalar.c, same
 * bytes: each kernel of rows gives them for `n` samples, and rubbish behind them within FL_JPEG_MARGIN
 * (FL_JPEG_SLACK for pixels). */
#include "jpeg/baseline_avx2.h"

#include <string.h>

#include "common/simd.h"
#include "jpeg/baseline_idct.h"
#include "jpeg/baseline_scalar.h"

#if defined(__x86_64__)

/* For pairs (a, b) of 16 bits: a * first + b * second. */
FL_AVX2_INLINE __m256i weights(int first, int second) {
    return _mm256_set1_epi32((int32_t)((uint32_t)second << 16 | (uint16_t)first));
}

/* 32 bits for each of 16 columns: four low and four high of each lane. */
typedef struct wide {
    __m256i low, high;
} wide;

FL_AVX2_INLINE wide pairs(__m256i a, __m256i b) {
    return (wide){_mm256_unpacklo_epi16(a, b), _mm256_unpackhi_epi16(a, b)};
}

FL_AVX2_INLINE wide weigh(wide p, __m256i w) {
    return (wide){_mm256_madd_epi16(p.low, w), _mm256_madd_epi16(p.high, w)};
}

FL_AVX2_INLINE wide plus(wide a, wide b) {
    return (wide){_mm256_add_epi32(a.low, b.low), _mm256_add_epi32(a.high, b.high)};
}

FL_AVX2_INLINE wide minus(wide a, wide b) {
    return (wide){_mm256_sub_epi32(a.low, b.low), _mm256_sub_epi32(a.high, b.high)};
}

FL_AVX2_INLINE wide constant(int32_t x) { return (wide){_mm256_set1_epi32(x), _mm256_set1_epi32(x)}; }

/* x * 2^bits, x of 16 bits */
FL_AVX2_INLINE wide shifted(__m256i x, int bits) {
    const wide p = pairs(_mm256_setzero_si256(), x);
    return (wide){_mm256_srai_epi32(p.low, 16 - bits), _mm256_srai_epi32(p.high, 16 - bits)};
}

FL_AVX2_INLINE __m256i narrow(wide x, int bits) {
    return _mm256_packs_epi32(_mm256_srai_epi32(x.low, bits), _mm256_srai_epi32(x.high, bits));
}

/* One dimension: x[i] holds coefficient i of 16 columns and becomes sample i, rounded off by `bits`. */
FL_AVX2_INLINE void idct_8(__m256i x[8], int bits) {
    const wide round = constant(1 << (bits - 1));
    const wide p26 = pairs(x[2], x[6]);
    const wide even2 =
        weigh(p26, weights(FL_JPEG_F_0_541196100, FL_JPEG_F_0_541196100 - FL_JPEG_F_1_847759065));
    const wide even3 =
        weigh(p26, weights(FL_JPEG_F_0_541196100 + FL_JPEG_F_0_765366865, FL_JPEG_F_0_541196100));
    const wide even0 = plus(shifted(_mm256_add_epi16(x[0], x[4]), FL_JPEG_CONST_BITS), round);
    const wide even1 = plus(shifted(_mm256_sub_epi16(x[0], x[4]), FL_JPEG_CONST_BITS), round);
    const wide even[4] = {plus(even0, even3), plus(even1, even2), minus(even1, even2), minus(even0, even3)};

    const wide z = pairs(_mm256_add_epi16(x[3], x[7]), _mm256_add_epi16(x[1], x[5]));
    const wide a = weigh(z, weights(FL_JPEG_F_1_175875602 - FL_JPEG_F_1_961570560, FL_JPEG_F_1_175875602));
    const wide b = weigh(z, weights(FL_JPEG_F_1_175875602, FL_JPEG_F_1_175875602 - FL_JPEG_F_0_390180644));
    const wide p71 = pairs(x[7], x[1]), p53 = pairs(x[5], x[3]);
    const wide odd[4] = {
        plus(weigh(p71, weights(-FL_JPEG_F_0_899976223, FL_JPEG_F_1_501321110 - FL_JPEG_F_0_899976223)), b),
        plus(weigh(p53, weights(-FL_JPEG_F_2_562915447, FL_JPEG_F_3_072711026 - FL_JPEG_F_2_562915447)), a),
        plus(weigh(p53, weights(FL_JPEG_F_2_053119869 - FL_JPEG_F_2_562915447, -FL_JPEG_F_2_562915447)), b),
        plus(weigh(p71, weights(FL_JPEG_F_0_298631336 - FL_JPEG_F_0_899976223, -FL_JPEG_F_0_899976223)), a),
    };
    for (int i = 0; i < 4; i++) {
        x[i] = narrow(plus(even[i], odd[i]), bits);
        x[7 - i] = narrow(minus(even[i], odd[i]), bits);
    }
}

/* Rows for columns, in each lane. */
FL_AVX2_INLINE void transpose(__m256i x[8]) {
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
FL_AVX2_INLINE __m256i row_of(const fl_jpeg_job pair[2], const int16_t *quant, int i) {
    const __m128i *one = (const __m128i *)pair[0].coefs, *two = (const __m128i *)pair[1].coefs,
                  *by = (const __m128i *)quant;
    const __m256i both = _mm256_inserti128_si256(_mm256_castsi128_si256(_mm_loadu_si128(one + i)),
                                                 _mm_loadu_si128(two + i), 1);
    return _mm256_mullo_epi16(both, _mm256_broadcastsi128_si256(_mm_loadu_si128(by + i)));
}

/* True when 4 times some value does not fit 16 bits: what then happens is left to the scalar kernels. */
FL_AVX2_INLINE bool huge(__m256i x) {
    const __m256i back = _mm256_srai_epi16(_mm256_slli_epi16(x, FL_JPEG_PASS1_BITS), FL_JPEG_PASS1_BITS);
    return _mm256_movemask_epi8(_mm256_cmpeq_epi16(back, x)) != -1;
}

/* The two blocks' samples, from columns of 16 bits. */
FL_AVX2_INLINE void store_8(const fl_jpeg_job pair[2], size_t stride, const __m256i x[8]) {
    const __m256i centre = _mm256_set1_epi8(-128);
    const __m256i even = _mm256_packs_epi16(x[0], x[2]), odd = _mm256_packs_epi16(x[1], x[3]);
    const __m256i even4 = _mm256_packs_epi16(x[4], x[6]), odd4 = _mm256_packs_epi16(x[5], x[7]);
    const __m256i c01 = _mm256_unpacklo_epi8(even, odd), c23 = _mm256_unpackhi_epi8(even, odd);
    const __m256i c45 = _mm256_unpacklo_epi8(even4, odd4), c67 = _mm256_unpackhi_epi8(even4, odd4);
    const __m256i left[2] = {_mm256_unpacklo_epi16(c01, c23), _mm256_unpackhi_epi16(c01, c23)};
    const __m256i right[2] = {_mm256_unpacklo_epi16(c45, c67), _mm256_unpackhi_epi16(c45, c67)};
    for (int i = 0; i < 4; i++) {
        __m256i rows = i % 2 ? _mm256_unpackhi_epi32(left[i / 2], right[i / 2])
                             : _mm256_unpacklo_epi32(left[i / 2], right[i / 2]);
        rows = _mm256_xor_si256(rows, centre);
        const __m128i one = _mm256_castsi256_si128(rows), two = _mm256_extracti128_si256(rows, 1);
        const size_t at = 2 * (size_t)i * stride;
        _mm_storel_epi64((__m128i *)(pair[0].out + at), one);
        _mm_storeh_pd((double *)(pair[0].out + at + stride), _mm_castsi128_pd(one));
        _mm_storel_epi64((__m128i *)(pair[1].out + at), two);
        _mm_storeh_pd((double *)(pair[1].out + at + stride), _mm_castsi128_pd(two));
    }
}

FL_AVX2 static void idct8_pair(const fl_jpeg_job pair[2], const int16_t *quant, size_t stride) {
    __m256i x[8];
    for (int i = 0; i < 8; i++) x[i] = row_of(pair, quant, i);
    if (huge(x[0])) {
        fl_jpeg_kernels_scalar.idct[3](pair, 2, quant, stride);
        return;
    }
    idct_8(x, FL_JPEG_CONST_BITS - FL_JPEG_PASS1_BITS);
    transpose(x);
    idct_8(x, FL_JPEG_CONST_BITS + FL_JPEG_PASS1_BITS + 3);
    store_8(pair, stride, x);
}

/* A block of which only the DC coefficient is left has one sample value. */
static uint8_t flat_sample(int16_t dc, int16_t quant) {
    const int16_t product = (int16_t)(uint16_t)(dc * quant);
    const int32_t x =
        ((int16_t)(uint16_t)(product * (1 << FL_JPEG_PASS1_BITS)) + (1 << (FL_JPEG_PASS1_BITS + 2))) >>
        (FL_JPEG_PASS1_BITS + 3);
    return (uint8_t)(x < -128 ? 0 : x > 127 ? 255 : x + 128);
}

static void fill_8(uint8_t *out, size_t stride, uint8_t value) {
    for (int y = 0; y < 8; y++) memset(out + (size_t)y * stride, value, 8);
}

FL_AVX2 static void idct8(const fl_jpeg_job *jobs, size_t n, const int16_t *quant, size_t stride) {
    fl_jpeg_job pair[2];
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
FL_AVX2_INLINE __m256i odd_4(__m256i p13, __m256i p57, __m256i w13, __m256i w57) {
    return _mm256_add_epi32(_mm256_madd_epi16(p13, w13), _mm256_madd_epi16(p57, w57));
}

FL_AVX2 static void idct4_pair(const fl_jpeg_job pair[2], const int16_t *quant, size_t stride) {
    enum {
        FIRST = FL_JPEG_CONST_BITS - FL_JPEG_PASS1_BITS + 1,
        SECOND = FL_JPEG_CONST_BITS + FL_JPEG_PASS1_BITS + 3 + 1
    };
    const __m256i w26 = weights(FL_JPEG_F_1_847759065, -FL_JPEG_F_0_765366865);
    const __m256i a13 = weights(FL_JPEG_F_1_061594337, -FL_JPEG_F_2_172734803),
                  a57 = weights(FL_JPEG_F_1_451774981, -FL_JPEG_F_0_211164243);
    const __m256i b13 = weights(FL_JPEG_F_2_562915447, FL_JPEG_F_0_899976223),
                  b57 = weights(-FL_JPEG_F_0_601344887, -FL_JPEG_F_0_509795579);
    __m256i x[8];
    for (int i = 0; i < 8; i++) x[i] = row_of(pair, quant, i);
    if (huge(x[0])) {
        fl_jpeg_kernels_scalar.idct[2](pair, 2, quant, stride);
        return;
    }
    const wide dc = plus(shifted(x[0], FL_JPEG_CONST_BITS + 1), constant(1 << (FIRST - 1))),
               even = weigh(pairs(x[2], x[6]), w26);
    const wide p13 = pairs(x[1], x[3]), p57 = pairs(x[5], x[7]);
    const wide a = plus(weigh(p13, a13), weigh(p57, a57)), b = plus(weigh(p13, b13), weigh(p57, b57));
    const wide e0 = plus(dc, even), e1 = minus(dc, even);
    const __m256i r0 = narrow(plus(e0, b), FIRST), r3 = narrow(minus(e0, b), FIRST);
    const __m256i r1 = narrow(plus(e1, a), FIRST), r2 = narrow(minus(e1, a), FIRST);

    const wide top = pairs(r0, r1), bottom = pairs(r2, r3);
    const __m256i u0 = _mm256_unpacklo_epi32(top.low, bottom.low),
                  u1 = _mm256_unpackhi_epi32(top.low, bottom.low);
    const __m256i u2 = _mm256_unpacklo_epi32(top.high, bottom.high),
                  u3 = _mm256_unpackhi_epi32(top.high, bottom.high);
    const __m256i q13 = _mm256_unpackhi_epi16(u0, u1), q57 = _mm256_unpackhi_epi16(u2, u3),
                  q26 = _mm256_unpacklo_epi16(u1, u3);
    __m256i dc2 =
        _mm256_srai_epi32(_mm256_unpacklo_epi16(_mm256_setzero_si256(), u0), 16 - (FL_JPEG_CONST_BITS + 1));
    dc2 = _mm256_add_epi32(dc2, _mm256_set1_epi32(1 << (SECOND - 1)));
    const __m256i even2 = _mm256_madd_epi16(q26, w26), a2 = odd_4(q13, q57, a13, a57),
                  b2 = odd_4(q13, q57, b13, b57);
    const __m256i f0 = _mm256_add_epi32(dc2, even2), f1 = _mm256_sub_epi32(dc2, even2);
    const __m256i c0 = _mm256_srai_epi32(_mm256_add_epi32(f0, b2), SECOND),
                  c3 = _mm256_srai_epi32(_mm256_sub_epi32(f0, b2), SECOND);
    const __m256i c1 = _mm256_srai_epi32(_mm256_add_epi32(f1, a2), SECOND),
                  c2 = _mm256_srai_epi32(_mm256_sub_epi32(f1, a2), SECOND);

    const __m256i turn =
        _mm256_broadcastsi128_si256(_mm_setr_epi8(0, 4, 8, 12, 1, 5, 9, 13, 2, 6, 10, 14, 3, 7, 11, 15));
    __m256i bytes = _mm256_packs_epi16(_mm256_packs_epi32(c0, c1), _mm256_packs_epi32(c2, c3));
    bytes = _mm256_xor_si256(_mm256_shuffle_epi8(bytes, turn), _mm256_set1_epi8(-128));
    uint32_t rows[8];
    _mm256_storeu_si256((__m256i *)rows, bytes);
    for (int block = 0; block < 2; block++)
        for (int y = 0; y < 4; y++) memcpy(pair[block].out + (size_t)y * stride, &rows[4 * block + y], 4);
}

FL_AVX2 static void idct4(const fl_jpeg_job *jobs, size_t n, const int16_t *quant, size_t stride) {
    for (size_t i = 0; i + 1 < n; i += 2) idct4_pair(jobs + i, quant, stride);
    if (n % 2) {
        const fl_jpeg_job pair[2] = {jobs[n - 1], jobs[n - 1]};
        idct4_pair(pair, quant, stride);
    }
}

/* In each lane a block: its first pass is of columns, of which the first alone stays 32 bits wide. */
FL_AVX2 static void idct2_pair(const fl_jpeg_job pair[2], const int16_t *quant, size_t stride) {
    enum {
        FIRST = FL_JPEG_CONST_BITS - FL_JPEG_PASS1_BITS + 2,
        SECOND = FL_JPEG_CONST_BITS + FL_JPEG_PASS1_BITS + 3 + 2
    };
    const __m256i w13 = weights(FL_JPEG_F_3_624509785, -FL_JPEG_F_1_272758580),
                  w57 = weights(FL_JPEG_F_0_850430095, -FL_JPEG_F_0_720959822);
    const wide p13 = pairs(row_of(pair, quant, 1), row_of(pair, quant, 3)),
               p57 = pairs(row_of(pair, quant, 5), row_of(pair, quant, 7));
    const wide odd = plus(weigh(p13, w13), weigh(p57, w57));
    const wide dc = plus(shifted(row_of(pair, quant, 0), FL_JPEG_CONST_BITS + 2), constant(1 << (FIRST - 1)));
    const wide top = plus(dc, odd), bottom = minus(dc, odd);

    const __m256i by =
        _mm256_broadcastsi128_si256(_mm_setr_epi16(0, FL_JPEG_F_3_624509785, 0, -FL_JPEG_F_1_272758580, 0,
                                                   FL_JPEG_F_0_850430095, 0, -FL_JPEG_F_0_720959822));
    const __m256i products = _mm256_hadd_epi32(_mm256_madd_epi16(narrow(top, FIRST), by),
                                               _mm256_madd_epi16(narrow(bottom, FIRST), by));
    const __m256i odd2 = _mm256_hadd_epi32(products, products); /* of the top row, and of the bottom one */
    const __m256i first = _mm256_srai_epi32(_mm256_unpacklo_epi32(top.low, bottom.low), FIRST);
    const __m256i dc2 = _mm256_add_epi32(_mm256_slli_epi32(first, FL_JPEG_CONST_BITS + 2),
                                         _mm256_set1_epi32(1 << (SECOND - 1)));
    const __m256i left = _mm256_srai_epi32(_mm256_add_epi32(dc2, odd2), SECOND),
                  right = _mm256_srai_epi32(_mm256_sub_epi32(dc2, odd2), SECOND);
    __m256i bytes = _mm256_unpacklo_epi32(left, right);
    bytes = _mm256_packs_epi32(bytes, bytes);
    bytes = _mm256_xor_si256(_mm256_packs_epi16(bytes, bytes), _mm256_set1_epi8(-128));
    for (int block = 0; block < 2; block++) {
        const uint32_t samples = (uint32_t)_mm_cvtsi128_si32(block ? _mm256_extracti128_si256(bytes, 1)
                                                                   : _mm256_castsi256_si128(bytes));
        memcpy(pair[block].out, &samples, 2);
        memcpy(pair[block].out + stride, (const uint8_t *)&samples + 2, 2);
    }
}

FL_AVX2 static void idct2(const fl_jpeg_job *jobs, size_t n, const int16_t *quant, size_t stride) {
    for (size_t i = 0; i + 1 < n; i += 2) idct2_pair(jobs + i, quant, stride);
    if (n % 2) {
        const fl_jpeg_job pair[2] = {jobs[n - 1], jobs[n - 1]};
        idct2_pair(pair, quant, stride);
    }
}

FL_AVX2_INLINE __m256i widen(const uint8_t *at) {
    return _mm256_cvtepu8_epi16(_mm_loadu_si128((const __m128i *)at));
}

FL_AVX2_INLINE __m256i three(__m256i x) { return _mm256_add_epi16(x, _mm256_add_epi16(x, x)); }

/* Bytes of two vectors of 16, in turn. */
FL_AVX2_INLINE void store_turns(uint8_t *out, __m256i even, __m256i odd) {
    _mm256_storeu_si256((__m256i *)out, _mm256_or_si256(even, _mm256_slli_epi16(odd, 8)));
}

FL_AVX2 static void h2v1(const uint8_t *in, uint8_t *out, size_t n) {
    for (size_t i = 0; i < n; i += 16) {
        const __m256i here = three(widen(in + i));
        const __m256i even =
            _mm256_add_epi16(_mm256_add_epi16(here, widen(in + i - 1)), _mm256_set1_epi16(1));
        const __m256i odd = _mm256_add_epi16(_mm256_add_epi16(here, widen(in + i + 1)), _mm256_set1_epi16(2));
        store_turns(out + 2 * i, _mm256_srli_epi16(even, 2), _mm256_srli_epi16(odd, 2));
    }
}

FL_AVX2_INLINE __m256i column(const uint8_t *near, const uint8_t *far) {
    return _mm256_add_epi16(three(widen(near)), widen(far));
}

FL_AVX2 static void h2v2(const uint8_t *near, const uint8_t *far, uint8_t *out, size_t n) {
    for (size_t i = 0; i < n; i += 16) {
        const __m256i here = three(column(near + i, far + i));
        const __m256i even =
            _mm256_add_epi16(_mm256_add_epi16(here, column(near + i - 1, far + i - 1)), _mm256_set1_epi16(8));
        const __m256i odd =
            _mm256_add_epi16(_mm256_add_epi16(here, column(near + i + 1, far + i + 1)), _mm256_set1_epi16(7));
        store_turns(out + 2 * i, _mm256_srli_epi16(even, 4), _mm256_srli_epi16(odd, 4));
    }
}

FL_AVX2 static void h1v2(const uint8_t *near, const uint8_t *far, uint8_t *out, size_t n, int bias) {
    const __m256i add = _mm256_set1_epi16((int16_t)bias);
    for (size_t i = 0; i < n; i += 16) {
        __m256i sum = _mm256_srli_epi16(_mm256_add_epi16(column(near + i, far + i), add), 2);
        sum = _mm256_permute4x64_epi64(_mm256_packus_epi16(sum, sum), 0x08);
        _mm_storeu_si128((__m128i *)(out + i), _mm256_castsi256_si128(sum));
    }
}

FL_AVX2 static void h2(const uint8_t *in, uint8_t *out, size_t n) {
    for (size_t i = 0; i < n; i += 16) {
        const __m256i x = widen(in + i);
        store_turns(out + 2 * i, x, x);
    }
}

enum { NO = -128 };

/* 32 pixels from their 3 channels. A lane holds 16 of them, which become 48 bytes: three vectors, each of a
 * third of every channel. */
FL_AVX2_INLINE void store_rgb(uint8_t *rgb, __m256i r, __m256i g, __m256i b) {
    const __m256i r0 = FL_AVX2_BOTH(0, NO, NO, 1, NO, NO, 2, NO, NO, 3, NO, NO, 4, NO, NO, 5);
    const __m256i g0 = FL_AVX2_BOTH(NO, 0, NO, NO, 1, NO, NO, 2, NO, NO, 3, NO, NO, 4, NO, NO);
    const __m256i b0 = FL_AVX2_BOTH(NO, NO, 0, NO, NO, 1, NO, NO, 2, NO, NO, 3, NO, NO, 4, NO);
    const __m256i r1 = FL_AVX2_BOTH(NO, NO, 6, NO, NO, 7, NO, NO, 8, NO, NO, 9, NO, NO, 10, NO);
    const __m256i g1 = FL_AVX2_BOTH(5, NO, NO, 6, NO, NO, 7, NO, NO, 8, NO, NO, 9, NO, NO, 10);
    const __m256i b1 = FL_AVX2_BOTH(NO, 5, NO, NO, 6, NO, NO, 7, NO, NO, 8, NO, NO, 9, NO, NO);
    const __m256i r2 = FL_AVX2_BOTH(NO, 11, NO, NO, 12, NO, NO, 13, NO, NO, 14, NO, NO, 15, NO, NO);
    const __m256i g2 = FL_AVX2_BOTH(NO, NO, 11, NO, NO, 12, NO, NO, 13, NO, NO, 14, NO, NO, 15, NO);
    const __m256i b2 = FL_AVX2_BOTH(10, NO, NO, 11, NO, NO, 12, NO, NO, 13, NO, NO, 14, NO, NO, 15);
    const __m256i third[3] = {
        _mm256_or_si256(_mm256_or_si256(_mm256_shuffle_epi8(r, r0), _mm256_shuffle_epi8(g, g0)),
                        _mm256_shuffle_epi8(b, b0)),
        _mm256_or_si256(_mm256_or_si256(_mm256_shuffle_epi8(r, r1), _mm256_shuffle_epi8(g, g1)),
                        _mm256_shuffle_epi8(b, b1)),
        _mm256_or_si256(_mm256_or_si256(_mm256_shuffle_epi8(r, r2), _mm256_shuffle_epi8(g, g2)),
                        _mm256_shuffle_epi8(b, b2)),
    };
    for (int i = 0; i < 3; i++) {
        _mm_storeu_si128((__m128i *)(rgb + 16 * i), _mm256_castsi256_si128(third[i]));
        _mm_storeu_si128((__m128i *)(rgb + 48 + 16 * i), _mm256_extracti128_si256(third[i], 1));
    }
}

/* round(x * factor / 2^16) for a factor that fits 16 bits: ((2 x factor >> 16) + 1) >> 1 */
FL_AVX2_INLINE __m256i scaled(__m256i x, int16_t factor) {
    const __m256i high = _mm256_mulhi_epi16(_mm256_add_epi16(x, x), _mm256_set1_epi16(factor));
    return _mm256_srai_epi16(_mm256_sub_epi16(high, _mm256_set1_epi16(-1)), 1);
}

/* 16 pixels in 16 bits. Factors of 2^16 or more are split into whole multiples and a rest that fits 16
 * bits. */
FL_AVX2_INLINE void convert(__m256i y, __m256i u, __m256i v, __m256i *r, __m256i *g, __m256i *b) {
    const __m256i factors = _mm256_set1_epi32((int32_t)((uint32_t)(65536 - 46802) << 16 | (uint16_t)-22554));
    const __m256i half = _mm256_set1_epi32(32768);
    *r = _mm256_add_epi16(_mm256_add_epi16(y, v), scaled(v, 91881 - 65536));
    *b = _mm256_add_epi16(_mm256_add_epi16(y, _mm256_add_epi16(u, u)), scaled(u, 116130 - 131072));
    const __m256i low = _mm256_add_epi32(_mm256_madd_epi16(_mm256_unpacklo_epi16(u, v), factors), half);
    const __m256i high = _mm256_add_epi32(_mm256_madd_epi16(_mm256_unpackhi_epi16(u, v), factors), half);
    const __m256i rest = _mm256_packs_epi32(_mm256_srai_epi32(low, 16), _mm256_srai_epi32(high, 16));
    *g = _mm256_add_epi16(_mm256_sub_epi16(y, v), rest);
}

FL_AVX2 static void ycc(const uint8_t *y, const uint8_t *cb, const uint8_t *cr, uint8_t *rgb, size_t n) {
    const __m256i zero = _mm256_setzero_si256(), centre = _mm256_set1_epi16(128);
    for (size_t i = 0; i < n; i += 32) {
        const __m256i luma = _mm256_loadu_si256((const __m256i *)(y + i));
        const __m256i u = _mm256_loadu_si256((const __m256i *)(cb + i)),
                      v = _mm256_loadu_si256((const __m256i *)(cr + i));
        __m256i r[2], g[2], b[2];
        convert(_mm256_unpacklo_epi8(luma, zero), _mm256_sub_epi16(_mm256_unpacklo_epi8(u, zero), centre),
                _mm256_sub_epi16(_mm256_unpacklo_epi8(v, zero), centre), &r[0], &g[0], &b[0]);
        convert(_mm256_unpackhi_epi8(luma, zero), _mm256_sub_epi16(_mm256_unpackhi_epi8(u, zero), centre),
                _mm256_sub_epi16(_mm256_unpackhi_epi8(v, zero), centre), &r[1], &g[1], &b[1]);
        store_rgb(rgb + 3 * i, _mm256_packus_epi16(r[0], r[1]), _mm256_packus_epi16(g[0], g[1]),
                  _mm256_packus_epi16(b[0], b[1]));
    }
}

FL_AVX2 static void grey(const uint8_t *y, uint8_t *rgb, size_t n) {
    for (size_t i = 0; i < n; i += 32) {
        const __m256i luma = _mm256_loadu_si256((const __m256i *)(y + i));
        store_rgb(rgb + 3 * i, luma, luma, luma);
    }
}

const fl_jpeg_kernels *fl_jpeg_kernels_avx2(void) {
    static const fl_jpeg_kernels kernels = {
        {fl_jpeg_idct1, idct2, idct4, idct8}, h2v1, h2v2, h1v2, h2, ycc, grey};
    return &kernels;
}

#else

const fl_jpeg_kernels *fl_jpeg_kernels_avx2(void) { return NULL; }

#endif
