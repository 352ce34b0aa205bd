/* The inverse DCTs give the results of libjpeg's "islow" method and its reductions.
 *
 * NOTE [ baseline: coefficients no encoder writes ]
 * Where products do not fit 16 bits, libjpeg-turbo's C code and its SIMD code differ. These kernels then do
 * what its x86 code does: a product of coefficient and quantiser wraps, so do sums before a multiplication,
 * and what leaves the first pass saturates.
 */
#include "jpeg/baseline_scalar.h"

#include "jpeg/baseline_idct.h"

static int16_t wrap(int32_t x) { return (int16_t)(uint16_t)x; }

static int32_t saturate(int32_t x) { return x < INT16_MIN ? INT16_MIN : x > INT16_MAX ? INT16_MAX : x; }

static int32_t descale(int32_t x, int bits) { return (int32_t)((uint32_t)x + (1u << (bits - 1))) >> bits; }

static int32_t add(int32_t a, int32_t b) { return (int32_t)((uint32_t)a + (uint32_t)b); }

static int32_t sub(int32_t a, int32_t b) { return (int32_t)((uint32_t)a - (uint32_t)b); }

static uint8_t sample(int32_t x) { return (uint8_t)(x < -128 ? 0 : x > 127 ? 255 : x + 128); }

/* One dimension of 8, from x[0], x[step], ... */
static void idct_8(const int32_t *x, size_t step, int bits, int32_t out[8]) {
    const int32_t x0 = x[0], x1 = x[step], x2 = x[2 * step], x3 = x[3 * step], x4 = x[4 * step],
                  x5 = x[5 * step], x6 = x[6 * step], x7 = x[7 * step];
    const int32_t even2 = x2 * FL_JPEG_F_0_541196100 + x6 * (FL_JPEG_F_0_541196100 - FL_JPEG_F_1_847759065);
    const int32_t even3 = x2 * (FL_JPEG_F_0_541196100 + FL_JPEG_F_0_765366865) + x6 * FL_JPEG_F_0_541196100;
    const int32_t even0 = wrap(x0 + x4) * (1 << FL_JPEG_CONST_BITS),
                  even1 = wrap(x0 - x4) * (1 << FL_JPEG_CONST_BITS);
    const int32_t e0 = add(even0, even3), e3 = sub(even0, even3), e1 = add(even1, even2),
                  e2 = sub(even1, even2);

    const int32_t z3 = wrap(x3 + x7), z4 = wrap(x1 + x5);
    const int32_t a = z3 * (FL_JPEG_F_1_175875602 - FL_JPEG_F_1_961570560) + z4 * FL_JPEG_F_1_175875602;
    const int32_t b = z3 * FL_JPEG_F_1_175875602 + z4 * (FL_JPEG_F_1_175875602 - FL_JPEG_F_0_390180644);
    const int32_t o0 =
        add(x7 * (FL_JPEG_F_0_298631336 - FL_JPEG_F_0_899976223) - x1 * FL_JPEG_F_0_899976223, a);
    const int32_t o1 =
        add(x5 * (FL_JPEG_F_2_053119869 - FL_JPEG_F_2_562915447) - x3 * FL_JPEG_F_2_562915447, b);
    const int32_t o2 =
        add(x3 * (FL_JPEG_F_3_072711026 - FL_JPEG_F_2_562915447) - x5 * FL_JPEG_F_2_562915447, a);
    const int32_t o3 =
        add(x1 * (FL_JPEG_F_1_501321110 - FL_JPEG_F_0_899976223) - x7 * FL_JPEG_F_0_899976223, b);
    const int32_t even[4] = {e0, e1, e2, e3}, odd[4] = {o3, o2, o1, o0};
    for (int i = 0; i < 4; i++) {
        out[i] = saturate(descale(add(even[i], odd[i]), bits));
        out[7 - i] = saturate(descale(sub(even[i], odd[i]), bits));
    }
}

/* One dimension of 8 to 4 samples; x[4] is not looked at. */
static void idct_4(const int32_t *x, size_t step, int bits, int32_t out[4]) {
    const int32_t x1 = x[step], x3 = x[3 * step], x5 = x[5 * step], x7 = x[7 * step];
    const int32_t dc = x[0] * (1 << (FL_JPEG_CONST_BITS + 1)),
                  even = x[2 * step] * FL_JPEG_F_1_847759065 - x[6 * step] * FL_JPEG_F_0_765366865;
    const int32_t o0 = add(x1 * FL_JPEG_F_1_061594337 - x3 * FL_JPEG_F_2_172734803,
                           x5 * FL_JPEG_F_1_451774981 - x7 * FL_JPEG_F_0_211164243);
    const int32_t o1 = add(x1 * FL_JPEG_F_2_562915447 + x3 * FL_JPEG_F_0_899976223,
                           -x5 * FL_JPEG_F_0_601344887 - x7 * FL_JPEG_F_0_509795579);
    const int32_t e0 = add(dc, even), e1 = sub(dc, even);
    out[0] = saturate(descale(add(e0, o1), bits));
    out[3] = saturate(descale(sub(e0, o1), bits));
    out[1] = saturate(descale(add(e1, o0), bits));
    out[2] = saturate(descale(sub(e1, o0), bits));
}

/* One dimension of 8 to 2 samples; of the even ones only x[0] counts. Not saturated. */
static void idct_2(const int32_t *x, size_t step, int bits, int32_t out[2]) {
    const int32_t dc = (int32_t)((uint32_t)x[0] << (FL_JPEG_CONST_BITS + 2));
    const int32_t odd = add(x[step] * FL_JPEG_F_3_624509785 - x[3 * step] * FL_JPEG_F_1_272758580,
                            x[5 * step] * FL_JPEG_F_0_850430095 - x[7 * step] * FL_JPEG_F_0_720959822);
    out[0] = descale(add(dc, odd), bits);
    out[1] = descale(sub(dc, odd), bits);
}

static void dequantise(const int16_t *coefs, const int16_t *quant, int32_t out[64]) {
    for (int i = 0; i < 64; i++) out[i] = wrap(coefs[i] * quant[i]);
}

/* True when rows 1 to 7, but for row `except`, are zero: then libjpeg-turbo only shifts row 0, which wraps
 * where a sum would saturate. */
static bool flat(const int16_t *coefs, int except) {
    for (int i = 8; i < 64; i++)
        if (coefs[i] && i / 8 != except) return false;
    return true;
}

static void idct8(const fl_jpeg_job *jobs, size_t n, const int16_t *quant, size_t stride) {
    for (; n; n--, jobs++) {
        int32_t in[64], middle[64], out[8];
        dequantise(jobs->coefs, quant, in);
        const bool shift = flat(jobs->coefs, 0);
        for (size_t x = 0; x < 8; x++) {
            idct_8(in + x, 8, FL_JPEG_CONST_BITS - FL_JPEG_PASS1_BITS, out);
            for (size_t y = 0; y < 8; y++)
                middle[8 * y + x] = shift ? wrap(in[x] * (1 << FL_JPEG_PASS1_BITS)) : out[y];
        }
        for (size_t y = 0; y < 8; y++) {
            idct_8(middle + 8 * y, 1, FL_JPEG_CONST_BITS + FL_JPEG_PASS1_BITS + 3, out);
            for (size_t x = 0; x < 8; x++) jobs->out[y * stride + x] = sample(out[x]);
        }
    }
}

static void idct4(const fl_jpeg_job *jobs, size_t n, const int16_t *quant, size_t stride) {
    for (; n; n--, jobs++) {
        int32_t in[64], middle[32], out[4];
        dequantise(jobs->coefs, quant, in);
        const bool shift = flat(jobs->coefs, 4);
        for (size_t x = 0; x < 8; x++) {
            idct_4(in + x, 8, FL_JPEG_CONST_BITS - FL_JPEG_PASS1_BITS + 1, out);
            for (size_t y = 0; y < 4; y++)
                middle[8 * y + x] = shift ? wrap(in[x] * (1 << FL_JPEG_PASS1_BITS)) : out[y];
        }
        for (size_t y = 0; y < 4; y++) {
            idct_4(middle + 8 * y, 1, FL_JPEG_CONST_BITS + FL_JPEG_PASS1_BITS + 3 + 1, out);
            for (size_t x = 0; x < 4; x++) jobs->out[y * stride + x] = sample(out[x]);
        }
    }
}

void fl_jpeg_idct2(const fl_jpeg_job *jobs, size_t n, const int16_t *quant, size_t stride) {
    for (; n; n--, jobs++) {
        int32_t in[64], middle[16], out[2];
        dequantise(jobs->coefs, quant, in);
        for (size_t x = 0; x < 8; x++) {
            idct_2(in + x, 8, FL_JPEG_CONST_BITS - FL_JPEG_PASS1_BITS + 2, out);
            for (size_t y = 0; y < 2; y++) middle[8 * y + x] = x ? saturate(out[y]) : out[y];
        }
        for (size_t y = 0; y < 2; y++) {
            idct_2(middle + 8 * y, 1, FL_JPEG_CONST_BITS + FL_JPEG_PASS1_BITS + 3 + 2, out);
            for (size_t x = 0; x < 2; x++) jobs->out[y * stride + x] = sample(out[x]);
        }
    }
}

/* libjpeg-turbo has no SIMD code for this one, and its C code looks ten bits up in a table: it wraps. */
void fl_jpeg_idct1(const fl_jpeg_job *jobs, size_t n, const int16_t *quant, size_t stride) {
    (void)stride;
    for (; n; n--, jobs++) {
        int32_t dc = descale(jobs->coefs[0] * quant[0], 3) & 1023;
        jobs->out[0] = sample(dc < 512 ? dc : dc - 1024);
    }
}

static void h2v1(const uint8_t *in, uint8_t *out, size_t n) {
    for (size_t i = 0; i < n; i++) {
        int three = 3 * in[i], before = in[(ptrdiff_t)i - 1], after = in[i + 1];
        out[2 * i] = (uint8_t)((three + before + 1) >> 2);
        out[2 * i + 1] = (uint8_t)((three + after + 2) >> 2);
    }
}

static void h2v2(const uint8_t *near, const uint8_t *far, uint8_t *out, size_t n) {
    int before = 3 * near[-1] + far[-1], here = 3 * near[0] + far[0];
    for (size_t i = 0; i < n; i++) {
        int after = 3 * near[i + 1] + far[i + 1];
        out[2 * i] = (uint8_t)((3 * here + before + 8) >> 4);
        out[2 * i + 1] = (uint8_t)((3 * here + after + 7) >> 4);
        before = here, here = after;
    }
}

static void h1v2(const uint8_t *near, const uint8_t *far, uint8_t *out, size_t n, int bias) {
    for (size_t i = 0; i < n; i++) out[i] = (uint8_t)((3 * near[i] + far[i] + bias) >> 2);
}

static void h2(const uint8_t *in, uint8_t *out, size_t n) {
    for (size_t i = 0; i < n; i++) out[2 * i] = out[2 * i + 1] = in[i];
}

static uint8_t clamp(int x) { return (uint8_t)(x < 0 ? 0 : x > 255 ? 255 : x); }

/* JFIF's YCbCr, in libjpeg's fixed point: factors times 65536, rounded. */
static void ycc(const uint8_t *y, const uint8_t *cb, const uint8_t *cr, uint8_t *rgb, size_t n) {
    enum { HALF = 32768, R_CR = 91881, G_CB = 22554, G_CR = 46802, B_CB = 116130 };
    for (size_t i = 0; i < n; i++) {
        int u = cb[i] - 128, v = cr[i] - 128;
        rgb[3 * i] = clamp(y[i] + ((R_CR * v + HALF) >> 16));
        rgb[3 * i + 1] = clamp(y[i] + ((HALF - G_CB * u - G_CR * v) >> 16));
        rgb[3 * i + 2] = clamp(y[i] + ((B_CB * u + HALF) >> 16));
    }
}

static void grey(const uint8_t *y, uint8_t *rgb, size_t n) {
    for (size_t i = 0; i < n; i++) rgb[3 * i] = rgb[3 * i + 1] = rgb[3 * i + 2] = y[i];
}

const fl_jpeg_kernels fl_jpeg_kernels_scalar = {
    {fl_jpeg_idct1, fl_jpeg_idct2, idct4, idct8}, h2v1, h2v2, h1v2, h2, ycc, grey};
