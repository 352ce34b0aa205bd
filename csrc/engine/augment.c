#include "engine/augment.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "colour/gaussian.h"
#include "colour/steps.h"
#include "colour/warp.h"

enum { PENDING_MAX = 8 };
static const fl_buffer_rule RULE = {.least = 1 << 16, .keep = 64 << 20};
static const double PI = 3.14159265358979323846;

/* The ops of one image. Steps wait, and are done together, until one needs to see the pixels. */
typedef struct work {
    fl_augmenter *augmenter;
    uint32_t width, height;
    fl_error *err;
    const fl_op *op;
    fl_rng rng; /* of op */
    uint32_t count;
    fl_colour_step pending[PENDING_MAX];
    uint8_t tables[PENDING_MAX][3][256];
} work;

void fl_augment_free(fl_augmenter *augmenter) {
    fl_buffer_free(&augmenter->image);
    fl_buffer_free(&augmenter->warped);
    fl_buffer_free(&augmenter->scratch);
}

static bool augments(const fl_op *op) { return op->kind >= FL_OP_JITTER && op->kind != FL_OP_ERASE; }

bool fl_augment_needed(const fl_program *program) {
    for (uint32_t i = 0; i < program->count; i++)
        if (augments(&program->ops[i])) return true;
    return false;
}

static fl_code no_memory(fl_error *err, uint32_t width, uint32_t height) {
    return fl_fail(err, FL_ENOMEM, "no memory to augment an image of %u x %u pixels", width, height);
}

/* Fewer bytes than colour/warp.h and colour/lut.h can count. */
static const uint64_t BYTES_MAX = INT32_MAX;

fl_code fl_augment_begin(fl_augmenter *augmenter, uint32_t width, uint32_t height, fl_error *err) {
    const uint64_t pixels = (uint64_t)width * height;
    if (pixels > BYTES_MAX / 3)
        return fl_fail(err, FL_ELIMIT, "its transform augments an image of %u x %u pixels", width, height);
    return fl_buffer_fit(&augmenter->image, pixels, 3, RULE) ? FL_OK : no_memory(err, width, height);
}

static uint8_t *pixels_of(const work *w) { return w->augmenter->image.bytes; }
static size_t count_of(const work *w) { return (size_t)w->width * w->height; }

static fl_code flush(work *w) {
    const bool done = fl_colour_run(pixels_of(w), pixels_of(w), w->width, w->height, 3, w->pending, w->count,
                                    &w->augmenter->scratch);
    w->count = 0;
    return done ? FL_OK : no_memory(w->err, w->width, w->height);
}

static fl_code step(work *w, fl_colour_step made) {
    const fl_code code = w->count == PENDING_MAX ? flush(w) : FL_OK;
    if (!code) w->pending[w->count++] = made;
    return code;
}

/* The same table for each channel. */
static fl_code table(work *w, const uint8_t values[256]) {
    const fl_code code = w->count == PENDING_MAX ? flush(w) : FL_OK;
    if (code) return code;
    for (int c = 0; c < 3; c++) memcpy(w->tables[w->count][c], values, 256);
    return step(w, (fl_colour_step){.kind = FL_COLOUR_TABLE, .tables = w->tables[w->count][0]});
}

/* ---- draws: those of fastload/augment */

static double between(work *w, double low, double high) {
    return low + (high - low) * fl_rng_uniform(&w->rng);
}

static bool happens(work *w, double p) { return fl_rng_uniform(&w->rng) < p; }

/* The order of that number, of all orders of 0 to 3 in ascending order. */
static void order_of(uint32_t number, uint8_t order[4]) {
    static const uint32_t RESTS[4] = {6, 2, 1, 1};
    uint8_t left[4] = {0, 1, 2, 3};
    for (uint32_t i = 0; i < 4; i++) {
        const uint32_t at = number / RESTS[i];
        number %= RESTS[i];
        order[i] = left[at];
        memmove(left + at, left + at + 1, 3 - at);
    }
}

/* ---- ImageEnhance */

static fl_code brightness(work *w, double factor) {
    return step(w, (fl_colour_step){.kind = FL_COLOUR_BLEND, .level = 0, .factor = (float)factor});
}

static fl_code saturation(work *w, double factor) {
    return step(w, (fl_colour_step){.kind = FL_COLOUR_SATURATE, .factor = (float)factor});
}

static fl_code sharpness(work *w, double factor) {
    return step(w, (fl_colour_step){.kind = FL_COLOUR_SHARPEN, .factor = (float)factor});
}

static fl_code contrast(work *w, double factor) {
    return step(w, (fl_colour_step){.kind = FL_COLOUR_CONTRAST, .factor = (float)factor});
}

/* torchvision's adjust_hue: the shift is truncated to whole steps of 1/255 of the circle. */
static fl_code hue(work *w, double turns) {
    return step(w, (fl_colour_step){.kind = FL_COLOUR_HUE, .level = (uint8_t)(int32_t)(turns * 255)});
}

/* ---- ImageOps */

static fl_code solarize(work *w, double threshold) {
    uint8_t values[256];
    for (int i = 0; i < 256; i++) values[i] = (uint8_t)(i < threshold ? i : 255 - i);
    return table(w, values);
}

static fl_code posterize(work *w, double bits) {
    uint8_t values[256];
    for (int i = 0; i < 256; i++) values[i] = (uint8_t)(i & ~((1 << (8 - (int)bits)) - 1));
    return table(w, values);
}

static fl_code autocontrast(work *w) { return step(w, (fl_colour_step){.kind = FL_COLOUR_AUTOCONTRAST}); }

static fl_code equalize(work *w) { return step(w, (fl_colour_step){.kind = FL_COLOUR_EQUALIZE}); }

/* ---- warps */

static double radians(double degrees) { return degrees * (PI / 180.0); }

/* Where a warp draws the image that is to come: of its size. NULL: no memory. */
static uint8_t *canvas_of(const work *w) {
    fl_buffer *canvas = &w->augmenter->warped;
    return fl_buffer_fit(canvas, count_of(w), 3, RULE) ? canvas->bytes : NULL;
}

static void exchange(const work *w) {
    const fl_buffer before = w->augmenter->image;
    w->augmenter->image = w->augmenter->warped;
    w->augmenter->warped = before;
}

/* Image.transform by the six numbers of Transform.AFFINE, or the eight of PERSPECTIVE. */
static fl_code warp(work *w, const double *numbers, int count) {
    const fl_code code = flush(w);
    if (code) return code;
    uint8_t *canvas = canvas_of(w);
    if (!canvas) return no_memory(w->err, w->width, w->height);
    for (size_t i = 0, all = 3 * count_of(w); i < all; i += 3) memcpy(canvas + i, w->op->fill, 3);
    fl_colour_map map = {.perspective = count == 8};
    memcpy(map.c, numbers, (size_t)count * sizeof *numbers);
    fl_colour_warp(pixels_of(w), w->width, w->height, 3, &map, (fl_colour_filter)w->op->warp,
                   (fl_colour_canvas){canvas, w->width, w->height});
    exchange(w);
    return FL_OK;
}

typedef struct affine {
    double centre_x, centre_y, angle, shift_x, shift_y, scale, shear_x, shear_y;
} affine;

/* torchvision's affine(): its matrix in its own operations and their order. */
static fl_code affine_about(work *w, affine to) {
    const double turn = radians(to.angle), sx = radians(to.shear_x), sy = radians(to.shear_y);
    const double a = cos(turn - sy) / cos(sy), b = -cos(turn - sy) * tan(sx) / cos(sy) - sin(turn);
    const double c = sin(turn - sy) / cos(sy), d = -sin(turn - sy) * tan(sx) / cos(sy) + cos(turn);
    const double back_x = -to.centre_x - to.shift_x, back_y = -to.centre_y - to.shift_y;
    double m[6] = {d / to.scale, -b / to.scale, 0, -c / to.scale, a / to.scale, 0};
    m[2] = m[0] * back_x + m[1] * back_y + to.centre_x;
    m[5] = m[3] * back_x + m[4] * back_y + to.centre_y;
    return warp(w, m, 6);
}

static affine centred(const work *w) {
    return (affine){.centre_x = w->width * 0.5, .centre_y = w->height * 0.5, .scale = 1};
}

/* Python's round(value, 15). */
static double rounded(double value) {
    char text[64];
    snprintf(text, sizeof text, "%.15f", value);
    return strtod(text, NULL);
}

/* Image.transpose by so many quarters of a turn, counter-clockwise: 1 or 3 of a square, or 2. */
static fl_code turn_by_quarters(work *w, int quarters) {
    const fl_code code = flush(w);
    if (code) return code;
    uint8_t *canvas = canvas_of(w);
    if (!canvas) return no_memory(w->err, w->width, w->height);
    const size_t width = w->width, height = w->height;
    for (size_t y = 0; y < height; y++)
        for (size_t x = 0; x < width; x++) {
            const size_t to_x = quarters == 1 ? y : width - 1 - (quarters == 2 ? x : y);
            const size_t to_y = quarters == 3 ? x : height - 1 - (quarters == 2 ? y : x);
            memcpy(canvas + 3 * (to_y * width + to_x), pixels_of(w) + 3 * (y * width + x), 3);
        }
    exchange(w);
    return FL_OK;
}

/* Image.rotate by degrees, counter-clockwise. */
static fl_code rotate(work *w, double degrees) {
    double angle = fmod(degrees, 360.0);
    if (angle < 0) angle += 360.0; /* Python's remainder */
    if (angle == 0) return FL_OK;
    if (angle == 180) return turn_by_quarters(w, 2);
    if ((angle == 90 || angle == 270) && w->width == w->height)
        return turn_by_quarters(w, angle == 90 ? 1 : 3);
    const double turn = -radians(angle), x = w->width / 2.0, y = w->height / 2.0;
    const double c = rounded(cos(turn)), s = rounded(sin(turn)), minus_s = rounded(-sin(turn));
    const double m[6] = {c, s, c * -x + s * -y + 0.0 + x, minus_s, c, minus_s * -x + c * -y + 0.0 + y};
    return warp(w, m, 6);
}

enum { CORNERS = 4, UNKNOWN = 2 * CORNERS };

/* Solves the equations, rows of UNKNOWN factors and a value; false where they have no one solution. In more than
 * double, so that a solution in float is its nearest value. */
static bool solve(long double rows[UNKNOWN][UNKNOWN + 1], double solution[UNKNOWN]) {
    for (int k = 0; k < UNKNOWN; k++) {
        int most = k;
        for (int i = k + 1; i < UNKNOWN; i++)
            if (fabsl(rows[i][k]) > fabsl(rows[most][k])) most = i;
        if (rows[most][k] == 0) return false;
        for (int j = 0; j <= UNKNOWN; j++) {
            const long double kept = rows[k][j];
            rows[k][j] = rows[most][j], rows[most][j] = kept;
        }
        for (int i = 0; i < UNKNOWN; i++) {
            const long double by = i == k ? 0 : rows[i][k] / rows[k][k];
            for (int j = k; j <= UNKNOWN && i != k; j++) rows[i][j] -= by * rows[k][j];
        }
    }
    for (int k = 0; k < UNKNOWN; k++) solution[k] = (double)(float)(rows[k][UNKNOWN] / rows[k][k]);
    return true;
}

/* torchvision's perspective() that moves each corner towards the middle, from the top left one clockwise. */
static fl_code random_perspective(work *w) {
    const double share = w->op->options[0];
    const uint32_t across = (uint32_t)(share * (w->width / 2)) + 1,
                   down = (uint32_t)(share * (w->height / 2)) + 1;
    const double right = w->width - 1.0, bottom = w->height - 1.0;
    const double corners[CORNERS][2] = {{0, 0}, {right, 0}, {right, bottom}, {0, bottom}};
    long double rows[UNKNOWN][UNKNOWN + 1] = {{0}};
    for (int i = 0; i < CORNERS; i++) {
        const double x0 = corners[i][0], y0 = corners[i][1];
        const double x = fl_rng_below(&w->rng, across) + (x0 > 0 ? w->width - (double)across : 0);
        const double y = fl_rng_below(&w->rng, down) + (y0 > 0 ? w->height - (double)down : 0);
        const long double to_x[UNKNOWN + 1] = {x, y, 1, 0, 0, 0, -x0 * x, -x0 * y, x0},
                                         to_y[UNKNOWN + 1] = {0, 0, 0, x, y, 1, -y0 * x, -y0 * y, y0};
        memcpy(rows[2 * i], to_x, sizeof to_x), memcpy(rows[2 * i + 1], to_y, sizeof to_y);
    }
    double numbers[UNKNOWN];
    if (!solve(rows, numbers))
        return fl_fail(w->err, FL_EARG, "RandomPerspective moves corners of %u x %u pixels onto each other",
                       w->width, w->height);
    return warp(w, numbers, UNKNOWN);
}

/* ---- policies, by the names and numbers of fastload/transforms/policies.py */

enum {
    SHEAR_X = 1,
    SHEAR_Y,
    TRANSLATE_X,
    TRANSLATE_Y,
    ROTATE,
    BRIGHTNESS,
    COLOR,
    CONTRAST,
    SHARPNESS,
    POSTERIZE,
    SOLARIZE,
    AUTOCONTRAST,
    EQUALIZE,
    INVERT,
    SPACE = 14 /* the first of them, with 0 for none: those of RandAugment and TrivialAugmentWide */
};

/* The magnitude of a kind, in float as torchvision's tables are. */
static double magnitude(const work *w, uint32_t kind, uint32_t bin) {
    const fl_policy *policy = &w->op->policy;
    const double ramp = bin == policy->bins - 1 ? 1.0 : bin * (1.0 / (policy->bins - 1));
    double value = 0;
    switch (kind) {
    case SHEAR_X:
    case SHEAR_Y: value = policy->shear * ramp; break;
    case TRANSLATE_X: value = policy->translate * (policy->shares ? w->width : 1) * ramp; break;
    case TRANSLATE_Y: value = policy->translate * (policy->shares ? w->height : 1) * ramp; break;
    case ROTATE: value = policy->rotate * ramp; break;
    case BRIGHTNESS:
    case COLOR:
    case CONTRAST:
    case SHARPNESS: value = policy->blend * ramp; break;
    case POSTERIZE: value = rint(8.0 - bin / ((policy->bins - 1) / policy->posterize)); break;
    case SOLARIZE: value = 255.0 * (1.0 - ramp); break;
    default: break;
    }
    return (double)(float)value;
}

static fl_code policy_op(work *w, uint32_t kind, uint32_t bin, bool negative) {
    const bool is_signed = kind >= SHEAR_X && kind <= SHARPNESS;
    const double value = is_signed && negative ? -magnitude(w, kind, bin) : magnitude(w, kind, bin);
    affine to = kind == SHEAR_X || kind == SHEAR_Y ? (affine){.scale = 1} : centred(w);
    switch (kind) {
    case SHEAR_X: to.shear_x = atan(value) * (180.0 / PI); return affine_about(w, to);
    case SHEAR_Y: to.shear_y = atan(value) * (180.0 / PI); return affine_about(w, to);
    case TRANSLATE_X: to.shift_x = trunc(value); return affine_about(w, to);
    case TRANSLATE_Y: to.shift_y = trunc(value); return affine_about(w, to);
    case ROTATE: return rotate(w, value);
    case BRIGHTNESS: return brightness(w, 1.0 + value);
    case COLOR: return saturation(w, 1.0 + value);
    case CONTRAST: return contrast(w, 1.0 + value);
    case SHARPNESS: return sharpness(w, 1.0 + value);
    case POSTERIZE: return posterize(w, value);
    case SOLARIZE: return solarize(w, value);
    case AUTOCONTRAST: return autocontrast(w);
    case EQUALIZE: return equalize(w);
    case INVERT: return solarize(w, 0);
    default: return FL_OK;
    }
}

static fl_code rand_augment(work *w) {
    fl_code code = FL_OK;
    for (uint32_t i = 0; i < w->op->policy.count && !code; i++) {
        const uint32_t kind = fl_rng_below(&w->rng, SPACE);
        const bool negative = fl_rng_below(&w->rng, 2) == 1;
        code = policy_op(w, kind, w->op->policy.bin, negative);
    }
    return code;
}

static fl_code trivial_augment(work *w) {
    const uint32_t kind = fl_rng_below(&w->rng, SPACE), bin = fl_rng_below(&w->rng, w->op->policy.bins);
    const bool negative = fl_rng_below(&w->rng, 2) == 1;
    return policy_op(w, kind, bin, negative);
}

/* An option is two ops of 12 bits, the first in the lower ones: kind, tenths of its chance, bin. */
static fl_code auto_augment(work *w) {
    if (!w->op->option_count) return fl_fail(w->err, FL_EARG, "AutoAugment without a policy");
    uint32_t packed = (uint32_t)w->op->options[fl_rng_below(&w->rng, w->op->option_count)];
    fl_code code = FL_OK;
    for (int i = 0; i < 2 && !code; i++, packed >>= 12) {
        const bool wanted = happens(w, (packed >> 4 & 15) / 10.0);
        const bool negative = fl_rng_below(&w->rng, 2) == 1;
        if (wanted) code = policy_op(w, packed & 15, packed >> 8 & 15, negative);
    }
    return code;
}

/* ---- ops */

static fl_code jitter(work *w) {
    static fl_code (*const ADJUST[4])(work *, double) = {brightness, contrast, saturation, hue};
    static const double NEUTRAL[4] = {1, 1, 1, 0};
    const double *ranges = w->op->options;
    const bool wanted = happens(w, w->op->p);
    double drawn[4];
    uint8_t order[4];
    for (int i = 0; i < 4; i++) drawn[i] = between(w, ranges[2 * i], ranges[2 * i + 1]);
    order_of(fl_rng_below(&w->rng, 24), order);
    fl_code code = FL_OK;
    for (int i = 0; i < 4 && wanted && !code; i++) {
        const int k = order[i];
        const bool idle = ranges[2 * k] == NEUTRAL[k] && ranges[2 * k + 1] == NEUTRAL[k];
        if (!idle) code = ADJUST[k](w, drawn[k]);
    }
    return code;
}

static fl_code gaussian_blur(work *w) {
    const double *options = w->op->options;
    const fl_colour_gaussian gaussian = {(uint32_t)options[0], (uint32_t)options[1],
                                         between(w, options[2], options[3])};
    if (gaussian.wide / 2 >= w->width || gaussian.tall / 2 >= w->height)
        return fl_fail(w->err, FL_EARG,
                       "GaussianBlur of %u x %u weights reflects beyond an image of %u x %u pixels",
                       gaussian.wide, gaussian.tall, w->width, w->height);
    const fl_code code = flush(w);
    if (code) return code;
    return fl_colour_gaussian_run(pixels_of(w), w->width, w->height, 3, &gaussian, &w->augmenter->scratch)
               ? FL_OK
               : no_memory(w->err, w->width, w->height);
}

static fl_code random_affine(work *w) {
    const double *options = w->op->options;
    affine to = centred(w);
    to.angle = between(w, options[0], options[1]);
    const double most_x = options[2] * w->width, most_y = options[3] * w->height;
    to.shift_x = rint(between(w, -most_x, most_x));
    to.shift_y = rint(between(w, -most_y, most_y));
    to.scale = between(w, options[4], options[5]);
    to.shear_x = between(w, options[6], options[7]);
    to.shear_y = between(w, options[8], options[9]);
    return affine_about(w, to);
}

static fl_code run(work *w) {
    const fl_op *op = w->op;
    switch (op->kind) {
    case FL_OP_JITTER: return jitter(w);
    case FL_OP_RAND_AUGMENT: return rand_augment(w);
    case FL_OP_TRIVIAL_AUGMENT: return trivial_augment(w);
    case FL_OP_AUTO_AUGMENT: return auto_augment(w);
    default: break;
    }
    if (!happens(w, op->p)) return FL_OK;
    switch (op->kind) {
    case FL_OP_GREY: return step(w, (fl_colour_step){.kind = FL_COLOUR_GREY});
    case FL_OP_SOLARIZE: return solarize(w, op->options[0]);
    case FL_OP_POSTERIZE: return posterize(w, op->options[0]);
    case FL_OP_INVERT: return solarize(w, 0);
    case FL_OP_EQUALIZE: return equalize(w);
    case FL_OP_AUTOCONTRAST: return autocontrast(w);
    case FL_OP_SHARPNESS: return sharpness(w, op->options[0]);
    case FL_OP_GAUSSIAN_BLUR: return gaussian_blur(w);
    case FL_OP_ROTATE: return rotate(w, between(w, op->options[0], op->options[1]));
    case FL_OP_AFFINE: return random_affine(w);
    case FL_OP_PERSPECTIVE: return random_perspective(w);
    default: return fl_fail(w->err, FL_EARG, "a transform of unknown kind %d", (int)op->kind);
    }
}

fl_code fl_augment_run(fl_augmenter *augmenter, const fl_program *program, fl_key key, uint32_t width,
                       uint32_t height, fl_error *err) {
    work w = {.augmenter = augmenter, .width = width, .height = height, .err = err};
    fl_code code = FL_OK;
    for (uint32_t i = 0; i < program->count && !code; i++) {
        if (!augments(&program->ops[i])) continue;
        w.op = &program->ops[i];
        w.rng = fl_rng_start(key, w.op->stream);
        code = run(&w);
    }
    return code ? code : flush(&w);
}
