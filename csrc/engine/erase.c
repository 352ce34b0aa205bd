#include "engine/erase.h"

#include <math.h>
#include <string.h>

enum { CHANNELS = 3, TRIES = 10 };
/* Places in an op's options: least and most of each range. */
enum { AREA = 0, RATIO = 2 };

/* The first of the op's tries that fits into the image; false where none does, or the op's probability
 * leaves the image as it is. */
static bool draw(const fl_op *op, fl_key key, uint32_t width, uint32_t height, fl_box *box) {
    fl_rng rng = fl_rng_start(key, op->stream);
    if (fl_rng_uniform(&rng) >= op->p) return false;
    fl_rng_word(&rng), fl_rng_word(&rng); /* each try is a block of words */
    const double *area = op->options + AREA, *ratio = op->options + RATIO;
    const double low = log(ratio[0]), high = log(ratio[1]);
    for (int i = 0; i < TRIES; i++) {
        double drawn[4];
        for (int k = 0; k < 4; k++) drawn[k] = fl_rng_word(&rng) * 0x1p-32;
        const double pixels = (double)height * width * (area[0] + (area[1] - area[0]) * drawn[0]);
        const double aspect = fmin(fmax(exp(low + (high - low) * drawn[1]), ratio[0]), ratio[1]);
        const double tall = rint(sqrt(pixels * aspect)), wide = rint(sqrt(pixels / aspect));
        if (!(tall < height && wide < width)) continue;
        *box = (fl_box){.x = (uint32_t)(drawn[3] * (width - wide + 1)),
                        .y = (uint32_t)(drawn[2] * (height - tall + 1)),
                        .width = (uint32_t)wide,
                        .height = (uint32_t)tall};
        return true;
    }
    return false;
}

/* Mirrors the box where the op is a flip and is done. */
static void mirror(const fl_op *op, fl_key key, uint32_t width, uint32_t height, fl_box *box) {
    if (op->kind != FL_OP_HFLIP && op->kind != FL_OP_VFLIP) return;
    fl_rng rng = fl_rng_start(key, op->stream);
    if (fl_rng_uniform(&rng) >= op->p) return;
    if (op->kind == FL_OP_HFLIP) box->x = width - box->x - box->width;
    else box->y = height - box->y - box->height;
}

/* The nearest half-precision number, ties to even; infinity for one that is too large. */
static uint16_t half_of(float value) {
    const double magnitude = fabs((double)value);
    const uint32_t sign = signbit(value) ? 0x8000 : 0;
    double bits = rint(ldexp(magnitude, 24)); /* of a number below 2^-14 */
    if (magnitude >= 0x1p-14) {
        int exponent; /* of a fraction in [1/2, 1) */
        const double fraction = frexp(magnitude, &exponent);
        bits = rint(ldexp(fraction, 11)) + 1024.0 * (exponent + 13);
    }
    return (uint16_t)(sign | (uint32_t)fmin(bits, 0x7C00));
}

/* The nearest bfloat16, ties to even. */
static uint16_t bfloat_of(float value) {
    uint32_t bits;
    memcpy(&bits, &value, sizeof bits);
    return (uint16_t)((bits + 0x7FFF + (bits >> 16 & 1)) >> 16);
}

/* One pixel as the sink stores it, its values behind each other; returns the bytes of a value. */
static size_t pixel_of(const fl_op *op, const fl_sink *sink, uint8_t pixel[CHANNELS * sizeof(float)]) {
    const size_t size = fl_dtype_size(sink->dtype);
    for (size_t c = 0; c < CHANNELS; c++, pixel += size) {
        const uint8_t byte = op->fill[c];
        const float value = op->values[c];
        const uint16_t half = sink->dtype == FL_F16 ? half_of(value) : bfloat_of(value);
        if (sink->dtype == FL_U8) *pixel = byte;
        else if (!op->floats) memcpy(pixel, (const uint8_t *)sink->lut + (256 * c + byte) * size, size);
        else if (sink->dtype == FL_F32) memcpy(pixel, &value, size);
        else memcpy(pixel, &half, size);
    }
    return size;
}

static void fill(const fl_op *op, const fl_sink *sink, const fl_box *box) {
    uint8_t pixel[CHANNELS * sizeof(float)];
    const size_t size = pixel_of(op, sink, pixel), planes = sink->layout == FL_CHW ? CHANNELS : 1;
    const size_t unit = CHANNELS / planes * size, pitch = fl_sink_pitch(sink) * unit;
    for (size_t p = 0; p < planes; p++) {
        uint8_t *first =
            (uint8_t *)sink->data + p * fl_sink_plane(sink) * unit + box->y * pitch + box->x * unit;
        for (size_t x = 0; x < box->width; x++) memcpy(first + x * unit, pixel + p * unit, unit);
        for (size_t y = 1; y < box->height; y++) memcpy(first + y * pitch, first, box->width * unit);
    }
}

fl_code fl_erase_run(const fl_program *program, fl_key key, const fl_sink *sink, fl_error *err) {
    for (uint32_t i = 0; i < program->count; i++) {
        const fl_op *op = &program->ops[i];
        if (op->kind != FL_OP_ERASE) continue;
        if (sink->channels)
            return fl_fail(err, FL_EUNSUPPORTED, "RandomErasing of an image of %u channels", sink->channels);
        if (op->floats && sink->dtype == FL_U8)
            return fl_fail(err, FL_EARG, "RandomErasing of floats in an image of bytes");
        fl_box box;
        if (!draw(op, key, sink->width, sink->height, &box) || !box.width || !box.height) continue;
        for (uint32_t j = i + 1; j < program->count; j++)
            mirror(&program->ops[j], key, sink->width, sink->height, &box);
        fill(op, sink, &box);
    }
    return FL_OK;
}
