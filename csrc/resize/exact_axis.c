#include "resize/exact_axis.h"

#include <math.h>
#include <string.h>

#include "common/simd.h"
#include "resize/axis.h"

/* Half the width of each filter, unstretched. */
static const double SUPPORT[] = {[FL_RESIZE_EXACT_LANCZOS] = 3.0, [FL_RESIZE_EXACT_BILINEAR] = 1.0,
                                 [FL_RESIZE_EXACT_BICUBIC] = 2.0, [FL_RESIZE_EXACT_BOX] = 0.5,
                                 [FL_RESIZE_EXACT_HAMMING] = 1.0, [FL_RESIZE_EXACT_MKS2013] = 2.5,
                                 [FL_RESIZE_EXACT_MKS2021] = 4.5};

static inline double sinc(double x) { return x == 0.0 ? 1.0 : sin(x * M_PI) / (x * M_PI); }

static inline double hamming(double x) {
    if (x == 0.0) return 1.0;
    return x < 1.0 ? sin(x * M_PI) / (x * M_PI) * ((double)0.54f + (double)0.46f * cos(x * M_PI))
                   : 0.0; /* Pillow writes float constants */
}

/* Cubic convolution (Keys, 1981) with a = -0.5, in Pillow's order of operations. */
static inline double bicubic(double x) {
    if (x < 1.0) return ((-0.5 + 2.0) * x - (-0.5 + 3.0)) * x * x + 1.0;
    return x < 2.0 ? (((x - 5.0) * x + 8.0) * x - 4.0) * -0.5 : 0.0;
}

/* Magic Kernel Sharp of 2013 and of 2021: piecewise quadratic (J. Costella, johncostella.com/magic). */
static inline double mks2013(double x) {
    if (x < 0.5) return 17.0 / 16.0 - 7.0 / 4.0 * (x * x);
    if (x < 1.5) return (1.0 - x) * (7.0 / 4.0 - x);
    return x < 2.5 ? -1.0 / 8.0 * ((x - 5.0 / 2.0) * (x - 5.0 / 2.0)) : 0.0;
}

static inline double mks2021(double x) {
    if (x < 0.5) return 577.0 / 576.0 - 239.0 / 144.0 * (x * x);
    if (x < 1.5) return 35.0 / 36.0 * (x - 1.0) * (x - 239.0 / 140.0);
    if (x < 2.5) return 1.0 / 6.0 * (x - 2.0) * (65.0 / 24.0 - x);
    if (x < 3.5) return 1.0 / 36.0 * (x - 3.0) * (x - 15.0 / 4.0);
    return x < 4.5 ? -1.0 / 288.0 * ((x - 9.0 / 2.0) * (x - 9.0 / 2.0)) : 0.0;
}

/* The filter's value at a signed distance in its own units. */
FL_INLINE double filter_at(fl_resize_exact_filter filter, double x) {
    const double away = fabs(x);
    switch (filter) {
    case FL_RESIZE_EXACT_BOX: return x > -0.5 && x <= 0.5 ? 1.0 : 0.0;
    case FL_RESIZE_EXACT_HAMMING: return hamming(away);
    case FL_RESIZE_EXACT_BICUBIC: return bicubic(away);
    case FL_RESIZE_EXACT_LANCZOS: return x >= -3.0 && x < 3.0 ? sinc(x) * sinc(x / 3.0) : 0.0;
    case FL_RESIZE_EXACT_MKS2013: return mks2013(away);
    case FL_RESIZE_EXACT_MKS2021: return mks2021(away);
    default: return away < 1.0 ? 1.0 - away : 0.0;
    }
}

/* ---- where an output looks ---- */

typedef struct geometry {
    double begin, scale, support, inverse;
} geometry;

static geometry geometry_of(const fl_resize_exact_key *key) {
    const float length = key->end - key->begin;
    const double scale = (double)length / key->out, stretch = scale < 1.0 ? 1.0 : scale;
    return (geometry){key->begin, scale, SUPPORT[key->filter] * stretch, 1.0 / stretch};
}

/* An output's centre, and its pixels low .. high - 1. */
typedef struct span {
    double center;
    uint32_t low, high;
} span;

/* Centres lie in the box but for a rounding, and the box in the image: every cast is of a value between 0 and
 * 2^27. */
static inline span span_of(const fl_resize_exact_key *key, const geometry *g, uint32_t i) {
    const uint32_t out = key->from + (key->mirror ? key->count - 1 - i : i);
    if (key->copies) return (span){0.0, (uint32_t)key->begin + out, (uint32_t)key->begin + out + 1};
    const double center = g->begin + (out + 0.5) * g->scale;
    const double low = center - g->support + 0.5, high = center + g->support + 0.5;
    const uint32_t first = low < 0.0 ? 0 : (uint32_t)low,
                   end = high > key->source ? key->source : (uint32_t)high;
    return (span){center, first < end ? first : end, end};
}

/* The range, and the longest span. */
static uint32_t survey(const fl_resize_exact_key *key, uint32_t *low, uint32_t *high) {
    const geometry g = geometry_of(key);
    uint32_t longest = 0;
    *low = UINT32_MAX, *high = 0;
    for (uint32_t i = 0; i < key->count; i++) {
        const span at = span_of(key, &g, i);
        if (at.low == at.high) continue;
        longest = at.high - at.low > longest ? at.high - at.low : longest;
        *low = at.low < *low ? at.low : *low;
        *high = at.high > *high ? at.high : *high;
    }
    if (!longest) *low = 0;
    return longest;
}

void fl_resize_exact_range(const fl_resize_exact_key *key, uint32_t *low, uint32_t *high) {
    (void)survey(key, low, high);
}

/* ---- the table ---- */

/* Rounds half away from 0. A coefficient is below 2, since a centre has a pixel within one half; the bound is
 * for what must not be. */
static inline int32_t fixed(double weight) {
    const double value = weight * (1 << FL_RESIZE_EXACT_BITS), most = 1 << 25;
    const double bounded = value > most ? most : value < -most ? -most : value;
    return bounded < 0.0 ? (int32_t)(bounded - 0.5) : (int32_t)(bounded + 0.5);
}

/* Sets the coefficient of tap k; low is of -1024 .. 1023. */
static inline void put(int16_t *coef, uint32_t k, int32_t value) {
    const int32_t half = 1 << (FL_RESIZE_EXACT_LOW_BITS - 1),
                  high = (value + half) >> FL_RESIZE_EXACT_LOW_BITS;
    int16_t *pair = coef + k / 2 * FL_RESIZE_EXACT_PAIR;
    pair[k % 2] = (int16_t)high;
    pair[2 + k % 2] = (int16_t)(value - high * (1 << FL_RESIZE_EXACT_LOW_BITS));
}

/* Spans begin where all `longest` taps lie in low .. high - 1; what a shorter span has there besides is 0. */
FL_INLINE void fill(fl_resize_exact_axis *axis, const fl_resize_exact_key *key, uint32_t longest,
                    fl_resize_exact_filter filter) {
    const geometry g = geometry_of(key);
    const uint32_t last = axis->high - longest;
    double *weight = axis->weight_buffer.bytes;
    int16_t *coef = axis->coef;
    for (uint32_t i = 0; i < key->count; i++, coef += 2 * axis->taps) {
        const span at = span_of(key, &g, i);
        const uint32_t first = at.low < last ? at.low : last, taps = at.high - at.low;
        double sum = 0.0;
        for (uint32_t k = 0; k < taps; k++) {
            weight[k] = filter_at(filter, ((int32_t)(k + at.low) - at.center + 0.5) * g.inverse);
            sum += weight[k];
        }
        for (uint32_t k = 0; k < taps; k++)
            put(coef, at.low - first + k, fixed(sum != 0.0 ? weight[k] / sum : weight[k]));
        axis->first[i] = first;
    }
}

static void fill_copies(fl_resize_exact_axis *axis, const fl_resize_exact_key *key) {
    const geometry g = geometry_of(key);
    for (uint32_t i = 0; i < key->count; i++) {
        axis->first[i] = span_of(key, &g, i).low;
        put(axis->coef + (size_t)i * 2 * axis->taps, 0, 1 << FL_RESIZE_EXACT_BITS);
    }
}

static void fill_table(fl_resize_exact_axis *axis, const fl_resize_exact_key *key, uint32_t longest) {
    if (key->copies) {
        fill_copies(axis, key);
        return;
    }
    switch (key->filter) { /* a constant filter is inlined */
    case FL_RESIZE_EXACT_BILINEAR: fill(axis, key, longest, FL_RESIZE_EXACT_BILINEAR); break;
    case FL_RESIZE_EXACT_BICUBIC: fill(axis, key, longest, FL_RESIZE_EXACT_BICUBIC); break;
    default: fill(axis, key, longest, key->filter);
    }
}

static bool same_key(const fl_resize_exact_key *a, const fl_resize_exact_key *b) {
    return a->begin == b->begin && a->end == b->end && a->source == b->source && a->out == b->out &&
           a->from == b->from && a->count == b->count && a->filter == b->filter && a->copies == b->copies &&
           a->mirror == b->mirror;
}

fl_code fl_resize_exact_axis_build(fl_resize_exact_axis *axis, const fl_resize_exact_key *key,
                                   fl_error *err) {
    if (axis->valid && same_key(&axis->key, key)) return FL_OK;
    axis->valid = false;
    const uint32_t padded = (key->count + FL_RESIZE_BLOCK - 1) / FL_RESIZE_BLOCK * FL_RESIZE_BLOCK;
    const uint32_t longest = survey(key, &axis->low, &axis->high);
    axis->taps = (longest + 1) / 2 * 2;
    fl_code code = fl_resize_fit(&axis->first_buffer, padded, sizeof *axis->first, err);
    if (!code)
        code = fl_resize_fit(&axis->coef_buffer, padded, 2 * (size_t)axis->taps * sizeof *axis->coef, err);
    if (!code) code = fl_resize_fit(&axis->weight_buffer, longest, sizeof(double), err);
    if (code) return code;
    axis->first = axis->first_buffer.bytes;
    axis->coef = axis->coef_buffer.bytes;
    memset(axis->coef, 0, (size_t)padded * 2 * axis->taps * sizeof *axis->coef);
    fill_table(axis, key, longest);
    for (uint32_t i = key->count; i < padded; i++) axis->first[i] = axis->first[key->count - 1];
    axis->key = *key;
    axis->valid = true;
    return FL_OK;
}

void fl_resize_exact_axis_free(fl_resize_exact_axis *axis) {
    fl_buffer_free(&axis->first_buffer);
    fl_buffer_free(&axis->coef_buffer);
    fl_buffer_free(&axis->weight_buffer);
    memset(axis, 0, sizeof *axis);
}
