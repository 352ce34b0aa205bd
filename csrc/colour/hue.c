/* NOTE [ hue: Pillow's bytes by other arithmetic ]
 *
 * Pillow (Convert.c, rgb2hsv and hsv2rgb, after Python's colorsys) divides in float and rounds in double. Which
 * bytes come out of it was enumerated, over all colours and all values of H, S and V: they follow from these
 * rules, whose operations are those of whole vectors.
 *
 * - S is 255 * (max - min) / max, rounded down: an exact quotient, for one that is no integer is at least 1/255
 *   away from the next.
 * - H is 255 * x rounded down, x = h / 6, plus 1 if that is negative, and h = base +- (max - mid) / (max - min),
 *   each in float with one rounding; of a grey H is 0, which comes back as that grey. Where x is a multiple of 1/255 the quotients' rounding decides, so these
 *   operations must stay as they are.
 * - Back: with 6 H = 255 k + m, the sides of a colour are V, P = V - V S / 255, and in the even sextants k
 *   V - V S (255 - m) / 65025, in the odd V - V S m / 65025, each quotient rounded to the nearest. None lies in
 *   the middle, since 255 is odd, and Pillow's errors reach no middle.
 *
 * tests/native/test_colour.py compares all 2^24 colours with Pillow. */
#include "colour/hue.h"

#include "colour/vectors.h"
#include "common/cpu.h"

typedef struct hsv {
    uint8_t top[FL_COLOUR_BLOCK]; /* V */
    uint8_t span[FL_COLOUR_BLOCK]; /* max - min */
    uint8_t far[FL_COLOUR_BLOCK]; /* max - mid */
    int8_t base[FL_COLOUR_BLOCK], sign[FL_COLOUR_BLOCK];
    uint8_t low[FL_COLOUR_BLOCK], middle[FL_COLOUR_BLOCK]; /* the new colour's other two sides */
    uint8_t sextant[FL_COLOUR_BLOCK];
} hsv;

/* r highest: 1 - q, or q - 1 if b > g; g: 1 + q, or 3 - q if b > r; b: 3 + q, or 5 - q if r > g. */
FL_INLINE void extremes(const fl_colour_planes *in, hsv *out) {
    FL_COLOUR_ROLLED
    for (int i = 0; i < FL_COLOUR_BLOCK; i++) {
        const uint8_t r = in->r[i], g = in->g[i], b = in->b[i];
        const uint8_t rg = r > g ? r : g, gr = r > g ? g : r, high = b > rg ? b : rg, low = b < gr ? b : gr;
        const int8_t by_r = b > g ? -1 : 1, by_g = b > r ? 3 : 1, by_b = r > g ? 5 : 3;
        const int8_t sign_g = b > r ? -1 : 1, sign_b = r > g ? -1 : 1;
        out->top[i] = high;
        out->span[i] = (uint8_t)(high - low);
        out->far[i] = (uint8_t)(low + high - (uint8_t)(r + g + b - high)); /* max - mid */
        out->base[i] = r == high ? by_r : g == high ? by_g : by_b;
        out->sign[i] = r == high ? (int8_t)-by_r : g == high ? sign_g : sign_b;
    }
}

FL_INLINE int saturation_at(const hsv *px, int i) {
    const int top = px->top[i];
    return (int)((float)(255 * px->span[i]) / (float)(top | (top == 0)));
}

FL_INLINE int hue_at(const hsv *px, int i) {
    const int span = px->span[i];
    const float q = (float)px->far[i] / (float)(span | (span == 0));
    const float h = ((float)px->base[i] + (float)px->sign[i] * q) / 6.0f;
    const float x = h + (float)(h < 0.0f);
    return (int)(x * 255.0f);
}

FL_INLINE void turn(hsv *px, int shift) {
    FL_COLOUR_ROLLED
    for (int i = 0; i < FL_COLOUR_BLOCK; i++) {
        const int top = px->top[i], s = saturation_at(px, i);
        const int h6 = ((hue_at(px, i) + shift) & 255) * 6;
        const int k = (h6 * 0x8081) >> 23; /* h6 / 255 */
        const int m = h6 - 255 * k, vs = top * s;
        const int part = (k & 1) ? m : 255 - m;
        px->middle[i] = (uint8_t)(top - (int)((float)vs * (float)part * (1.0f / 65025.0f) + 0.5f));
        px->low[i] = (uint8_t)(top - ((vs + 128 + ((vs + 128) >> 8)) >> 8));
        px->sextant[i] = (uint8_t)k;
    }
}

FL_INLINE void sides(const hsv *in, fl_colour_planes *out) {
    FL_COLOUR_ROLLED
    for (int i = 0; i < FL_COLOUR_BLOCK; i++) {
        const uint8_t v = in->top[i], p = in->low[i], x = in->middle[i], k = in->sextant[i];
        const uint8_t k0 = (uint8_t)((k == 0) | (k == 6));
        const uint8_t r = ((k == 1) | (k == 4)) ? x : p, g = (k0 | (k == 3)) ? x : p,
                      b = ((k == 2) | (k == 5)) ? x : p;
        out->r[i] = (k0 | (k == 5)) ? v : r;
        out->g[i] = ((k == 1) | (k == 2)) ? v : g;
        out->b[i] = ((k == 3) | (k == 4)) ? v : b;
    }
}

FL_INLINE void block(fl_colour_planes *planes, int shift) {
    hsv px;
    extremes(planes, &px);
    turn(&px, shift);
    sides(&px, planes);
}

/* One byte a pixel: its H, S or V. */
FL_INLINE void band_of(const fl_colour_planes *planes, fl_colour_band band, uint8_t out[FL_COLOUR_BLOCK]) {
    hsv px;
    extremes(planes, &px);
    if (band == FL_COLOUR_H) {
        FL_COLOUR_ROLLED
        for (int i = 0; i < FL_COLOUR_BLOCK; i++) out[i] = (uint8_t)(hue_at(&px, i) & -(px.span[i] != 0));
    } else if (band == FL_COLOUR_S) {
        FL_COLOUR_ROLLED
        for (int i = 0; i < FL_COLOUR_BLOCK; i++) out[i] = (uint8_t)saturation_at(&px, i);
    } else memcpy(out, px.top, FL_COLOUR_BLOCK);
}

#define BAND(name, attribute, version)                                                                       \
    attribute static void band_##name(const uint8_t *rgb, size_t pixels, fl_colour_band band,                \
                                      uint8_t *out) {                                                        \
        FL_COLOUR_BYTES(version, rgb, pixels, out, band_of, &planes, band);                                  \
    }

BAND(plain, FL_PLAIN, )
FL_PLAIN static void hue_plain(uint8_t *rgb, size_t pixels, int shift) {
    FL_COLOUR_BLOCKS(, rgb, pixels, block, shift);
}

#if defined(__x86_64__)
BAND(avx2, FL_AVX2, _avx2)
FL_AVX2 static void hue_avx2(uint8_t *rgb, size_t pixels, int shift) {
    FL_COLOUR_BLOCKS(_avx2, rgb, pixels, block, shift);
}
BAND(avx512, FL_AVX512, _avx512)
FL_AVX512 static void hue_avx512(uint8_t *rgb, size_t pixels, int shift) {
    FL_COLOUR_BLOCKS(_avx512, rgb, pixels, block, shift);
}
#define CHOSEN(name)                                                                                         \
    (fl_cpu_has(FL_CPU_AVX512) ? name##_avx512 : fl_cpu_has(FL_CPU_AVX2) ? name##_avx2 : name##_plain)
#else
#define CHOSEN(name) name##_plain
#endif

void fl_colour_hue(uint8_t *rgb, size_t pixels, uint8_t shift) { CHOSEN(hue)(rgb, pixels, shift); }

void fl_colour_hsv(const uint8_t *rgb, size_t pixels, fl_colour_band band, uint8_t *out) {
    CHOSEN(band)(rgb, pixels, band, out);
}
