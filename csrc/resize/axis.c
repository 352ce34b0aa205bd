#include "resize/axis.h"

#include <math.h>
#include <string.h>

static const fl_buffer_rule RULE = {.least = 1 << 10, .keep = 64 << 20};

fl_code fl_resize_fit(fl_buffer *buffer, size_t count, size_t size, fl_error *err) {
    if (fl_buffer_fit(buffer, count, size, RULE)) return FL_OK;
    return fl_fail(err, FL_ENOMEM, "resize: no memory for %zu x %zu bytes of scratch", count, size);
}

void fl_resize_axis_free(fl_resize_axis *axis) {
    fl_buffer_free(&axis->first_buffer);
    fl_buffer_free(&axis->coef_buffer);
    fl_buffer_free(&axis->weight_buffer);
    memset(axis, 0, sizeof *axis);
}

/* Cubic convolution (Keys, 1981) with parameter a, at distance x >= 0. */
static inline double cubic(double x, double a) {
    if (x < 1.0) return ((a + 2.0) * x - (a + 3.0)) * x * x + 1.0;
    if (x < 2.0) return (((x - 5.0) * x + 8.0) * x - 4.0) * a;
    return 0.0;
}

/* The first source pixel of `taps` around one that would be `begin`: moved so that all lie inside the
 * source. */
static inline uint32_t inside(const fl_resize_axis_key *key, double begin, uint32_t taps) {
    const double last = key->source > taps ? (double)(key->source - taps) : 0.0;
    return (uint32_t)(begin < 0.0 ? 0.0 : begin > last ? last : begin);
}

/* Pillow's geometry (libImaging/Resample.c): the filter is stretched by the scale when shrinking, a pixel is
 * seen from its centre, pixels outside the source are dropped and the rest normalised. The filters are 0
 * outside their support, so every output takes the same number of taps without asking where it ends. */
static inline __attribute__((always_inline)) void antialias_weights(fl_resize_axis *axis,
                                                                    const fl_resize_axis_key *key,
                                                                    fl_resize_filter filter, uint32_t taps) {
    const double scale = key->length / key->out, stretch = scale > 1.0 ? scale : 1.0, inverse = 1.0 / stretch;
    const double support = (filter == FL_RESIZE_BICUBIC ? 2.0 : 1.0) * stretch;
    const uint32_t there = taps < key->source ? taps : key->source;
    double *weight = axis->weight;
    for (uint32_t i = 0; i < key->count; i++, weight += taps) {
        const double center =
            key->start + (key->begin + (key->mirror ? key->count - 1 - i : i) + 0.5) * scale;
        const uint32_t first = inside(key, center - support + 0.5, taps);
        double sum = 0.0;
        for (uint32_t k = 0; k < taps; k++) {
            const double x = fabs((first + k + 0.5 - center) * inverse);
            const double triangle = 1.0 - x > 0.0 ? 1.0 - x : 0.0;
            weight[k] = k >= there ? 0.0 : filter == FL_RESIZE_BICUBIC ? cubic(x, -0.5) : triangle;
            sum += weight[k];
        }
        const double norm = 1.0 / sum;
        for (uint32_t k = 0; k < taps; k++) weight[k] *= norm;
        axis->first[i] = first;
    }
}

/* torch.nn.functional.interpolate, align_corners=False: 2 or 4 taps around the output's centre; one outside
 * the source takes the border's pixel, so its weight is added to the border's. */
static void plain_weights(fl_resize_axis *axis, const fl_resize_axis_key *key, uint32_t taps) {
    const int wanted = key->filter == FL_RESIZE_BICUBIC ? 4 : 2;
    const int64_t last = (int64_t)key->source - 1;
    double *weight = axis->weight;
    for (uint32_t i = 0; i < key->count; i++, weight += taps) {
        const uint32_t out = key->begin + (key->mirror ? key->count - 1 - i : i);
        const double real = key->start + (out + 0.5) * (key->length / key->out) - 0.5, base = floor(real),
                     t = real - base;
        const int64_t start = (int64_t)base - (wanted / 2 - 1);
        const uint32_t first = inside(key, (double)start, taps);
        for (uint32_t k = 0; k < taps; k++) weight[k] = 0.0;
        for (int k = 0; k < wanted; k++) {
            const int64_t at = start + k < 0 ? 0 : start + k > last ? last : start + k;
            const double x = fabs(t + (wanted / 2 - 1) - k);
            weight[at - first] += wanted == 4 ? cubic(x, -0.75) : 1.0 - x;
        }
        axis->first[i] = first;
    }
}

/* The nearest integer, for |value| < 2^51, without a call: adding 1.5 * 2^52 leaves no room for a
 * fraction. */
static inline double nearest(double value) { return (value + 0x1.8p52) - 0x1.8p52; }

/* Weights that sum to 1 into integers that sum to 2^bits exactly: what rounding takes from a tap is given to
 * the next. More than `most` is 1.0 itself where it does not fit; or a view lacks pixels of the box that
 * bits_of counts on: wrong then, but no wild value. */
static inline __attribute__((always_inline)) void quantize(fl_resize_axis *axis, uint32_t count,
                                                           uint32_t taps, int32_t most, uint32_t copies) {
    const double one = (double)(1 << axis->bits), *weight = axis->weight;
    const uint32_t stride = axis->stride;
    int16_t *coef = axis->coef;
    for (uint32_t i = 0; i < count; i++, weight += taps, coef += stride) {
        double carry = 0.0;
        for (uint32_t k = 0; k < taps; k++) {
            const double wanted = weight[k] * one + carry, rounded = nearest(wanted);
            const int32_t got = (int32_t)rounded;
            carry = wanted - rounded;
            for (uint32_t copy = 0; copy < copies; copy++)
                coef[copies * k + copy] = (int16_t)(uint16_t)(got < most ? got : most);
        }
    }
}

/* Outputs beyond what is wanted, up to a whole block: they look where the last one looks, and see nothing. */
static fl_code coef_table(fl_resize_axis *axis, uint32_t count, fl_error *err) {
    const size_t padded = ((size_t)count + FL_RESIZE_BLOCK - 1) / FL_RESIZE_BLOCK * FL_RESIZE_BLOCK;
    const fl_code code = fl_resize_fit(&axis->coef_buffer, padded, axis->stride * sizeof *axis->coef, err);
    if (code != FL_OK) return code;
    axis->coef = axis->coef_buffer.bytes;
    const bool odd = axis->taps % 2 != 0; /* FL_RESIZE_LONG's kernels take taps in pairs */
    const size_t from = odd ? 0 : (size_t)count * axis->stride;
    memset(axis->coef + from, 0, (padded * axis->stride - from) * sizeof *axis->coef);
    return FL_OK;
}

bool fl_resize_axis_copies(const fl_resize_axis_key *key) {
    return key->length == (double)key->out && key->start == floor(key->start);
}

double fl_resize_axis_width(const fl_resize_axis_key *key) {
    if (fl_resize_axis_copies(key)) return 1.0;
    const double scale = key->length / key->out;
    return (key->filter == FL_RESIZE_BICUBIC ? 4.0 : 2.0) * (key->antialias && scale > 1.0 ? scale : 1.0);
}

int fl_resize_row_bits(const fl_resize_axis_key *down) { return fl_resize_axis_width(down) <= 32.0 ? 6 : 2; }

/* Bits of FL_RESIZE_LONG. Not taken from the weights at hand, or a window would be rounded otherwise than the
 * whole. A triangle stretched by scale has samples that sum to at least 3/4 of scale even where the source's
 * edges cut it most (one output for all of the source), so 1.5 / scale is a safe bound of its normalised
 * weights. Interpolating weights stay below 1.1. */
static int bits_of(const fl_resize_axis_key *key) {
    const double scale = key->length / key->out;
    const double largest = key->antialias && scale > 1.5 && !fl_resize_axis_copies(key) ? 1.5 / scale : 1.0;
    const int most =
        key->horizontal ? FL_RESIZE_COEF_BITS_MAX : FL_RESIZE_COEF_BITS_MAX - fl_resize_row_bits(key);
    int bits = 14;
    while (bits < most && largest * (double)(2 << bits) < 32766.0) bits++; /* 1 is for the carry */
    return bits;
}

/* One pixel, and zeros for the taps that pad it. */
static void copying_weights(fl_resize_axis *axis, const fl_resize_axis_key *key) {
    double *weight = axis->weight;
    for (uint32_t i = 0; i < key->count; i++, weight += axis->taps) {
        const uint32_t at =
            (uint32_t)((int64_t)key->start + key->begin + (key->mirror ? key->count - 1 - i : i));
        axis->first[i] = inside(key, at, axis->taps);
        for (uint32_t k = 0; k < axis->taps; k++) weight[k] = at == axis->first[i] + k ? 1.0 : 0.0;
    }
}

/* A constant count of taps unrolls the loops, which take a tenth of a resize otherwise. */
static inline __attribute__((always_inline)) void fill(fl_resize_axis *axis, const fl_resize_axis_key *key,
                                                       uint32_t taps) {
    if (key->filter == FL_RESIZE_BICUBIC) antialias_weights(axis, key, FL_RESIZE_BICUBIC, taps);
    else antialias_weights(axis, key, FL_RESIZE_BILINEAR, taps);
    if (key->sum == FL_RESIZE_LONG) quantize(axis, key->count, taps, 32767, 1);
    else if (key->horizontal) quantize(axis, key->count, taps, 32767, 2);
    else quantize(axis, key->count, taps, 32768, 1);
}

static void fill_plain(fl_resize_axis *axis, const fl_resize_axis_key *key) {
    if (fl_resize_axis_copies(key)) copying_weights(axis, key);
    else plain_weights(axis, key, axis->taps);
    quantize(axis, key->count, axis->taps, key->sum == FL_RESIZE_QUAD && !key->horizontal ? 32768 : 32767,
             key->sum == FL_RESIZE_QUAD && key->horizontal ? 2 : 1);
}

static fl_code fill_table(fl_resize_axis *axis, const fl_resize_axis_key *key, fl_error *err) {
    const uint32_t wanted = (uint32_t)ceil(fl_resize_axis_width(key));
    if (key->sum == FL_RESIZE_LONG && key->horizontal) axis->taps = (wanted + 1) / 2 * 2;
    else axis->taps = wanted < key->source ? wanted : key->source;
    axis->stride = key->sum == FL_RESIZE_LONG ? (axis->taps + 1) / 2 * 2
                   : key->horizontal          ? 2 * axis->taps
                                              : axis->taps;
    axis->bits = key->sum == FL_RESIZE_QUAD ? 15 : bits_of(key);

    fl_code code = fl_resize_fit(&axis->weight_buffer, key->count, axis->taps * sizeof *axis->weight, err);
    if (code == FL_OK) code = coef_table(axis, key->count, err);
    if (code != FL_OK) return code;
    axis->weight = axis->weight_buffer.bytes;
    if (!key->antialias || fl_resize_axis_copies(key)) {
        fill_plain(axis, key);
        return FL_OK;
    }
    switch (axis->taps) {
    case 2: fill(axis, key, 2); break;
    case 3: fill(axis, key, 3); break;
    case 4: fill(axis, key, 4); break;
    default: fill(axis, key, axis->taps);
    }
    return FL_OK;
}

static bool same_key(const fl_resize_axis_key *a, const fl_resize_axis_key *b) {
    return a->start == b->start && a->length == b->length && a->source == b->source && a->out == b->out &&
           a->begin == b->begin && a->count == b->count && a->filter == b->filter &&
           a->antialias == b->antialias && a->mirror == b->mirror && a->horizontal == b->horizontal &&
           a->sum == b->sum;
}

fl_code fl_resize_axis_build(fl_resize_axis *axis, const fl_resize_axis_key *key, fl_error *err) {
    if (axis->valid && same_key(&axis->key, key)) return FL_OK;
    axis->valid = false;
    const uint32_t padded = (key->count + FL_RESIZE_BLOCK - 1) / FL_RESIZE_BLOCK * FL_RESIZE_BLOCK;
    fl_code code = fl_resize_fit(&axis->first_buffer, padded, sizeof *axis->first, err);
    if (code != FL_OK) return code;
    axis->first = axis->first_buffer.bytes;

    code = fill_table(axis, key, err);
    if (code != FL_OK) return code;

    for (uint32_t i = key->count; i < padded; i++) axis->first[i] = axis->first[key->count - 1];
    const uint32_t a = axis->first[0], b = axis->first[key->count - 1]; /* first[] is monotonic */
    axis->low = a < b ? a : b;
    axis->high = (a < b ? b : a) + axis->taps;
    /* The AVX2 kernel loads 16 bytes for 4 taps, or for the last 2. */
    axis->reach = key->horizontal && key->sum == FL_RESIZE_LONG
                      ? ((size_t)axis->high - (axis->taps % 4 == 2 ? 2 : 4)) * 3 + FL_RESIZE_LOAD
                      : 0;
    axis->high = axis->high < key->source ? axis->high : key->source;
    axis->key = *key;
    axis->valid = true;
    return FL_OK;
}

static fl_resize_axis_key key_of(double start, double length, uint32_t source, uint32_t out,
                                 const fl_resize_spec *spec) {
    fl_resize_axis_key key = {.start = start,
                              .length = length,
                              .source = source,
                              .out = out,
                              .filter = spec->filter,
                              .antialias = spec->antialias};
    const double over = key.start + key.length - source;
    if (over > 0.0 && over <= FL_RESIZE_EDGE) key.length -= over;
    return key;
}

void fl_resize_axis_keys(const fl_view *view, const fl_resize_spec *spec, const fl_sink *sink,
                         fl_resize_axis_key *across, fl_resize_axis_key *down) {
    *across = key_of(spec->x, spec->width, view->width, spec->out_width, spec);
    across->begin = spec->window.x;
    across->count = spec->window.width;
    across->mirror = sink->hflip;
    *down = key_of(spec->y, spec->height, view->height, spec->out_height, spec);
    down->begin = spec->window.y;
    down->count = spec->window.height;
}
