/* The kernels of fl_jpeg_baseline with NEON, which every aarch64 has. Same arithmetic as
 * jpeg/baseline_scalar.c, same bytes for every input. A kernel of rows leaves rubbish behind its `n` samples,
 * within FL_JPEG_MARGIN (FL_JPEG_SLACK for pixels). */
#include "jpeg/baseline_neon.h"

#include <string.h>

#include "common/simd.h"
#include "jpeg/baseline_idct.h"
#include "jpeg/baseline_scalar.h"

#if defined(__aarch64__) && defined(__ARM_NEON)

#include <arm_neon.h>

/* Sums that may wrap are computed without signs: to GCC the intrinsics for signed numbers are plain C, where
 * overflow is undefined. */
#define WRAP(bits, operation, a, b)                                                                          \
    vreinterpretq_s##bits##_u##bits(                                                                         \
        operation##q_u##bits(vreinterpretq_u##bits##_s##bits(a), vreinterpretq_u##bits##_s##bits(b)))

FL_INLINE int16x8_t add_16(int16x8_t a, int16x8_t b) { return WRAP(16, vadd, a, b); }
FL_INLINE int16x8_t sub_16(int16x8_t a, int16x8_t b) { return WRAP(16, vsub, a, b); }
FL_INLINE int32x4_t add_32(int32x4_t a, int32x4_t b) { return WRAP(32, vadd, a, b); }
FL_INLINE int32x4_t sub_32(int32x4_t a, int32x4_t b) { return WRAP(32, vsub, a, b); }

/* 32 bits for each of 8 columns */
typedef struct wide {
    int32x4_t low, high;
} wide;

/* a * first + b * second */
FL_INLINE wide weigh(int16x8_t a, int16_t first, int16x8_t b, int16_t second) {
    return (wide){vmlal_n_s16(vmull_n_s16(vget_low_s16(a), first), vget_low_s16(b), second),
                  vmlal_n_s16(vmull_n_s16(vget_high_s16(a), first), vget_high_s16(b), second)};
}

FL_INLINE wide plus(wide a, wide b) { return (wide){add_32(a.low, b.low), add_32(a.high, b.high)}; }

FL_INLINE wide minus(wide a, wide b) { return (wide){sub_32(a.low, b.low), sub_32(a.high, b.high)}; }

/* x * 2^13 + round */
FL_INLINE wide raised(int16x8_t x, int32_t round) {
    const int32x4_t r = vdupq_n_s32(round);
    return (wide){vaddq_s32(vshll_n_s16(vget_low_s16(x), FL_JPEG_CONST_BITS), r),
                  vaddq_s32(vshll_n_s16(vget_high_s16(x), FL_JPEG_CONST_BITS), r)};
}

/* Samples i and 7 - i are even[i] + odd[i] and even[i] - odd[i], not yet shifted. */
typedef struct halves {
    wide even[4], odd[4];
} halves;

/* One dimension: x[i] holds coefficient i of 8 columns; `round` is half of what the result will be divided
 * by. */
FL_INLINE halves idct_8(const int16x8_t x[8], int32_t round) {
    const wide even2 =
        weigh(x[2], FL_JPEG_F_0_541196100, x[6], FL_JPEG_F_0_541196100 - FL_JPEG_F_1_847759065);
    const wide even3 =
        weigh(x[2], FL_JPEG_F_0_541196100 + FL_JPEG_F_0_765366865, x[6], FL_JPEG_F_0_541196100);
    const wide even0 = raised(add_16(x[0], x[4]), round), even1 = raised(sub_16(x[0], x[4]), round);

    const int16x8_t z3 = add_16(x[3], x[7]), z4 = add_16(x[1], x[5]);
    const wide a = weigh(z3, FL_JPEG_F_1_175875602 - FL_JPEG_F_1_961570560, z4, FL_JPEG_F_1_175875602);
    const wide b = weigh(z3, FL_JPEG_F_1_175875602, z4, FL_JPEG_F_1_175875602 - FL_JPEG_F_0_390180644);
    return (halves){
        {plus(even0, even3), plus(even1, even2), minus(even1, even2), minus(even0, even3)},
        {plus(weigh(x[7], -FL_JPEG_F_0_899976223, x[1], FL_JPEG_F_1_501321110 - FL_JPEG_F_0_899976223), b),
         plus(weigh(x[5], -FL_JPEG_F_2_562915447, x[3], FL_JPEG_F_3_072711026 - FL_JPEG_F_2_562915447), a),
         plus(weigh(x[5], FL_JPEG_F_2_053119869 - FL_JPEG_F_2_562915447, x[3], -FL_JPEG_F_2_562915447), b),
         plus(weigh(x[7], FL_JPEG_F_0_298631336 - FL_JPEG_F_0_899976223, x[1], -FL_JPEG_F_0_899976223), a)},
    };
}

/* Between the passes: saturated to 16 bits. */
FL_INLINE int16x8_t middle(wide x) {
    enum { BITS = FL_JPEG_CONST_BITS - FL_JPEG_PASS1_BITS };
    return vcombine_s16(vqshrn_n_s32(x.low, BITS), vqshrn_n_s32(x.high, BITS));
}

/* At the end: the upper 16 bits of 32 are exact, and shifting by the other 2 saturates. */
FL_INLINE int8x8_t sum_8(wide a, wide b) {
    const int16x8_t upper = vcombine_s16(vaddhn_s32(a.low, b.low), vaddhn_s32(a.high, b.high));
    return vqshrn_n_s16(upper, FL_JPEG_CONST_BITS + FL_JPEG_PASS1_BITS + 3 - 16);
}

FL_INLINE int8x8_t difference_8(wide a, wide b) {
    const int16x8_t upper = vcombine_s16(vsubhn_s32(a.low, b.low), vsubhn_s32(a.high, b.high));
    return vqshrn_n_s16(upper, FL_JPEG_CONST_BITS + FL_JPEG_PASS1_BITS + 3 - 16);
}

#define TURN(bits, half, a, b)                                                                               \
    vreinterpretq_s16_s##bits(                                                                               \
        vtrn##half##q_s##bits(vreinterpretq_s##bits##_s16(a), vreinterpretq_s##bits##_s16(b)))

/* Rows for columns. */
FL_INLINE void transpose(int16x8_t x[8]) {
    int16x8_t a[8], b[8];
    for (int i = 0; i < 8; i += 2) {
        a[i] = vtrn1q_s16(x[i], x[i + 1]);
        a[i + 1] = vtrn2q_s16(x[i], x[i + 1]);
    }
    for (int i = 0; i < 8; i += 4)
        for (int j = i; j < i + 2; j++) {
            b[j] = TURN(32, 1, a[j], a[j + 2]);
            b[j + 2] = TURN(32, 2, a[j], a[j + 2]);
        }
    for (int i = 0; i < 4; i++) {
        x[i] = TURN(64, 1, b[i], b[i + 4]);
        x[i + 4] = TURN(64, 2, b[i], b[i + 4]);
    }
}

/* Rows y and y + 1, where a 32-bit word is half a row. */
FL_INLINE void store_rows(uint8_t *out, size_t stride, uint32x4_t rows) {
    const uint8x16_t samples = veorq_u8(vreinterpretq_u8_u32(rows), vdupq_n_u8(128));
    vst1_u8(out, vget_low_u8(samples));
    vst1_u8(out + stride, vget_high_u8(samples));
}

/* A block's samples, from columns. */
FL_INLINE void store_8(uint8_t *out, size_t stride, const int8x8_t x[8]) {
    const int8x16_t c04 = vcombine_s8(x[0], x[4]), c15 = vcombine_s8(x[1], x[5]);
    const int8x16_t c26 = vcombine_s8(x[2], x[6]), c37 = vcombine_s8(x[3], x[7]);
    const int16x8_t even01 = vreinterpretq_s16_s8(vtrn1q_s8(c04, c15)),
                    odd01 = vreinterpretq_s16_s8(vtrn2q_s8(c04, c15));
    const int16x8_t even23 = vreinterpretq_s16_s8(vtrn1q_s8(c26, c37)),
                    odd23 = vreinterpretq_s16_s8(vtrn2q_s8(c26, c37));
    const uint32x4_t r04 = vreinterpretq_u32_s16(vtrn1q_s16(even01, even23)),
                     r26 = vreinterpretq_u32_s16(vtrn2q_s16(even01, even23));
    const uint32x4_t r15 = vreinterpretq_u32_s16(vtrn1q_s16(odd01, odd23)),
                     r37 = vreinterpretq_u32_s16(vtrn2q_s16(odd01, odd23));
    store_rows(out, stride, vuzp1q_u32(r04, r15));
    store_rows(out + 2 * stride, stride, vuzp1q_u32(r26, r37));
    store_rows(out + 4 * stride, stride, vuzp2q_u32(r04, r15));
    store_rows(out + 6 * stride, stride, vuzp2q_u32(r26, r37));
}

FL_INLINE void dequantise(const fl_jpeg_job *job, const int16_t *quant, int16x8_t x[8]) {
    for (int i = 0; i < 8; i++)
        x[i] = WRAP(16, vmul, vld1q_s16(job->coefs + 8 * i), vld1q_s16(quant + 8 * i));
}

/* True when 4 times some value does not fit 16 bits: what then happens is left to the scalar kernels. */
FL_INLINE bool huge(int16x8_t x) {
    const uint16x8_t fits =
        vceqq_s16(vqshlq_n_s16(x, FL_JPEG_PASS1_BITS), vshlq_n_s16(x, FL_JPEG_PASS1_BITS));
    return vminvq_u16(fits) == 0;
}

/* A block of which only the DC coefficient is left has one sample value. */
static void fill_8(const fl_jpeg_job *job, int16_t quant, size_t stride) {
    const int16_t x = (int16_t)(uint16_t)((uint32_t)job->coefs[0] * (uint32_t)quant << FL_JPEG_PASS1_BITS);
    const int8x8_t value = vqrshrn_n_s16(vdupq_n_s16(x), FL_JPEG_PASS1_BITS + 3);
    for (size_t y = 0; y < 8; y++)
        vst1_u8(job->out + y * stride, veor_u8(vreinterpret_u8_s8(value), vdup_n_u8(128)));
}

static void idct8(const fl_jpeg_job *jobs, size_t n, const int16_t *quant, size_t stride) {
    for (; n; n--, jobs++) {
        if (jobs->count == 1) {
            fill_8(jobs, quant[0], stride);
            continue;
        }
        int16x8_t x[8];
        dequantise(jobs, quant, x);
        if (huge(x[0])) {
            fl_jpeg_kernels_scalar.idct[3](jobs, 1, quant, stride);
            continue;
        }
        const halves first = idct_8(x, 1 << (FL_JPEG_CONST_BITS - FL_JPEG_PASS1_BITS - 1));
        for (int i = 0; i < 4; i++) {
            x[i] = middle(plus(first.even[i], first.odd[i]));
            x[7 - i] = middle(minus(first.even[i], first.odd[i]));
        }
        transpose(x);
        const halves second = idct_8(x, 1 << (FL_JPEG_CONST_BITS + FL_JPEG_PASS1_BITS + 3 - 1));
        int8x8_t samples[8];
        for (int i = 0; i < 4; i++) {
            samples[i] = sum_8(second.even[i], second.odd[i]);
            samples[7 - i] = difference_8(second.even[i], second.odd[i]);
        }
        store_8(jobs->out, stride, samples);
    }
}

/* As `halves`, of 4 samples of 4 columns. */
typedef struct quarters {
    int32x4_t even[2], odd[2];
} quarters;

/* One dimension of 8 to 4 samples; x[4] is not looked at. */
FL_INLINE quarters idct_4(const int16x4_t x[8], int32_t round) {
    const int32x4_t dc = vaddq_s32(vshll_n_s16(x[0], FL_JPEG_CONST_BITS + 1), vdupq_n_s32(round));
    const int32x4_t even = vmlsl_n_s16(vmull_n_s16(x[2], FL_JPEG_F_1_847759065), x[6], FL_JPEG_F_0_765366865);
    int32x4_t a = vmlsl_n_s16(vmull_n_s16(x[1], FL_JPEG_F_2_562915447), x[5], FL_JPEG_F_0_601344887);
    a = vmlsl_n_s16(vmlal_n_s16(a, x[3], FL_JPEG_F_0_899976223), x[7], FL_JPEG_F_0_509795579);
    int32x4_t b = vmlsl_n_s16(vmull_n_s16(x[1], FL_JPEG_F_1_061594337), x[3], FL_JPEG_F_2_172734803);
    b = vmlsl_n_s16(vmlal_n_s16(b, x[5], FL_JPEG_F_1_451774981), x[7], FL_JPEG_F_0_211164243);
    return (quarters){{vaddq_s32(dc, even), vsubq_s32(dc, even)}, {a, b}};
}

FL_INLINE void middle_4(const quarters *q, int16x4_t rows[4]) {
    enum { BITS = FL_JPEG_CONST_BITS - FL_JPEG_PASS1_BITS + 1 };
    for (int i = 0; i < 2; i++) {
        rows[i] = vqshrn_n_s32(add_32(q->even[i], q->odd[i]), BITS);
        rows[3 - i] = vqshrn_n_s32(sub_32(q->even[i], q->odd[i]), BITS);
    }
}

/* Four rows of 8 for 8 columns of 4. */
FL_INLINE void transpose_4(const int16x8_t rows[4], int16x4_t x[8]) {
    const int16x8_t even01 = vtrn1q_s16(rows[0], rows[1]), odd01 = vtrn2q_s16(rows[0], rows[1]);
    const int16x8_t even23 = vtrn1q_s16(rows[2], rows[3]), odd23 = vtrn2q_s16(rows[2], rows[3]);
    const int16x8_t c04 = TURN(32, 1, even01, even23), c26 = TURN(32, 2, even01, even23);
    const int16x8_t c15 = TURN(32, 1, odd01, odd23), c37 = TURN(32, 2, odd01, odd23);
    x[0] = vget_low_s16(c04), x[4] = vget_high_s16(c04), x[2] = vget_low_s16(c26), x[6] = vget_high_s16(c26);
    x[1] = vget_low_s16(c15), x[5] = vget_high_s16(c15), x[3] = vget_low_s16(c37), x[7] = vget_high_s16(c37);
}

/* As sum_8: two columns of 4 samples. */
FL_INLINE int8x8_t narrow_4(int16x4_t a, int16x4_t b) {
    return vqshrn_n_s16(vcombine_s16(a, b), FL_JPEG_CONST_BITS + FL_JPEG_PASS1_BITS + 3 + 1 - 16);
}

FL_INLINE void store_4(uint8_t *out, size_t stride, const quarters *q) {
    static const uint8_t turn[16] = {0, 4, 8, 12, 1, 5, 9, 13, 2, 6, 10, 14, 3, 7, 11, 15};
    const int8x8_t left = narrow_4(vaddhn_s32(q->even[0], q->odd[0]), vaddhn_s32(q->even[1], q->odd[1]));
    const int8x8_t right = narrow_4(vsubhn_s32(q->even[1], q->odd[1]), vsubhn_s32(q->even[0], q->odd[0]));
    const uint8x16_t columns = veorq_u8(vreinterpretq_u8_s8(vcombine_s8(left, right)), vdupq_n_u8(128));
    uint8_t rows[16];
    vst1q_u8(rows, vqtbl1q_u8(columns, vld1q_u8(turn)));
    for (size_t y = 0; y < 4; y++) memcpy(out + y * stride, rows + 4 * y, 4);
}

static void idct4(const fl_jpeg_job *jobs, size_t n, const int16_t *quant, size_t stride) {
    for (; n; n--, jobs++) {
        int16x8_t x[8], rows[4];
        dequantise(jobs, quant, x);
        if (huge(x[0])) {
            fl_jpeg_kernels_scalar.idct[2](jobs, 1, quant, stride);
            continue;
        }
        int16x4_t low[8], high[8], column[8];
        for (int i = 0; i < 8; i++) low[i] = vget_low_s16(x[i]), high[i] = vget_high_s16(x[i]);
        const quarters left = idct_4(low, 1 << (FL_JPEG_CONST_BITS - FL_JPEG_PASS1_BITS)),
                       right = idct_4(high, 1 << (FL_JPEG_CONST_BITS - FL_JPEG_PASS1_BITS));
        middle_4(&left, low);
        middle_4(&right, high);
        for (int i = 0; i < 4; i++) rows[i] = vcombine_s16(low[i], high[i]);
        transpose_4(rows, column);
        const quarters second = idct_4(column, 1 << (FL_JPEG_CONST_BITS + FL_JPEG_PASS1_BITS + 3));
        store_4(jobs->out, stride, &second);
    }
}

/* 3 near + far */
FL_INLINE uint16x8_t weighed(uint8x8_t near, uint8x8_t far) {
    return vmlal_u8(vmovl_u8(far), near, vdup_n_u8(3));
}

static void h2v1(const uint8_t *in, uint8_t *out, size_t n) {
    for (size_t i = 0; i < n; i += 8) {
        const uint8x8_t here = vld1_u8(in + i);
        const uint16x8_t even = weighed(here, vld1_u8(in + i - 1)), odd = weighed(here, vld1_u8(in + i + 1));
        vst2_u8(out + 2 * i,
                ((uint8x8x2_t){{vshrn_n_u16(vaddq_u16(even, vdupq_n_u16(1)), 2), vrshrn_n_u16(odd, 2)}}));
    }
}

static void h2v2(const uint8_t *near, const uint8_t *far, uint8_t *out, size_t n) {
    uint16x8_t before = weighed(vld1_u8(near - 8), vld1_u8(far - 8)),
               here = weighed(vld1_u8(near), vld1_u8(far));
    for (size_t i = 0; i < n; i += 8) {
        const uint16x8_t after = weighed(vld1_u8(near + i + 8), vld1_u8(far + i + 8));
        const uint16x8_t even = vmlaq_n_u16(vextq_u16(before, here, 7), here, 3),
                         odd = vmlaq_n_u16(vextq_u16(here, after, 1), here, 3);
        vst2_u8(out + 2 * i,
                ((uint8x8x2_t){{vrshrn_n_u16(even, 4), vshrn_n_u16(vaddq_u16(odd, vdupq_n_u16(7)), 4)}}));
        before = here, here = after;
    }
}

static void h1v2(const uint8_t *near, const uint8_t *far, uint8_t *out, size_t n, int bias) {
    const uint16x8_t add = vdupq_n_u16((uint16_t)bias);
    for (size_t i = 0; i < n; i += 8)
        vst1_u8(out + i, vshrn_n_u16(vaddq_u16(weighed(vld1_u8(near + i), vld1_u8(far + i)), add), 2));
}

static void h2(const uint8_t *in, uint8_t *out, size_t n) {
    for (size_t i = 0; i < n; i += 16) {
        const uint8x16_t x = vld1q_u8(in + i);
        vst2q_u8(out + 2 * i, ((uint8x16x2_t){{x, x}}));
    }
}

/* round(x * factor / 2^16): doubled and halved, for the instruction's result is that of 2 x factor. */
FL_INLINE int16x8_t scaled(int16x8_t x, int16_t factor) { return vrshrq_n_s16(vqdmulhq_n_s16(x, factor), 1); }

FL_INLINE int16x8_t centred(uint8x8_t x) { return vreinterpretq_s16_u16(vsubl_u8(x, vdup_n_u8(128))); }

/* 8 pixels. Factors of 2^15 or more are split into whole multiples of 2^16 and a rest that fits 16 bits. */
FL_INLINE uint8x8x3_t convert(uint8x8_t luma, uint8x8_t cb, uint8x8_t cr) {
    const int16x8_t y = vreinterpretq_s16_u16(vmovl_u8(luma)), u = centred(cb), v = centred(cr);
    const wide green = weigh(u, -22554, v, 65536 - 46802);
    const int16x8_t r = vaddq_s16(vaddq_s16(y, v), scaled(v, 91881 - 65536));
    const int16x8_t g =
        vaddq_s16(vsubq_s16(y, v), vcombine_s16(vrshrn_n_s32(green.low, 16), vrshrn_n_s32(green.high, 16)));
    const int16x8_t b = vaddq_s16(vaddq_s16(y, vaddq_s16(u, u)), scaled(u, 116130 - 131072));
    return (uint8x8x3_t){{vqmovun_s16(r), vqmovun_s16(g), vqmovun_s16(b)}};
}

static void ycc(const uint8_t *y, const uint8_t *cb, const uint8_t *cr, uint8_t *rgb, size_t n) {
    for (size_t i = 0; i < n; i += 16) {
        const uint8x16_t luma = vld1q_u8(y + i), u = vld1q_u8(cb + i), v = vld1q_u8(cr + i);
        const uint8x8x3_t low = convert(vget_low_u8(luma), vget_low_u8(u), vget_low_u8(v));
        const uint8x8x3_t high = convert(vget_high_u8(luma), vget_high_u8(u), vget_high_u8(v));
        const uint8x16x3_t pixels = {{vcombine_u8(low.val[0], high.val[0]),
                                      vcombine_u8(low.val[1], high.val[1]),
                                      vcombine_u8(low.val[2], high.val[2])}};
        vst3q_u8(rgb + 3 * i, pixels);
    }
}

static void grey(const uint8_t *y, uint8_t *rgb, size_t n) {
    for (size_t i = 0; i < n; i += 16) {
        const uint8x16_t luma = vld1q_u8(y + i);
        vst3q_u8(rgb + 3 * i, ((uint8x16x3_t){{luma, luma, luma}}));
    }
}

const fl_jpeg_kernels *fl_jpeg_kernels_neon(void) {
    static const fl_jpeg_kernels kernels = {
        {fl_jpeg_idct1, fl_jpeg_idct2, idct4, idct8}, h2v1, h2v2, h1v2, h2, ycc, grey};
    return &kernels;
}

#else

const fl_jpeg_kernels *fl_jpeg_kernels_neon(void) { return NULL; }

#endif
