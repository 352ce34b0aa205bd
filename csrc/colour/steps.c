#include "colour/steps.h"

#include <string.h>

#include "colour/blend.h"
#include "colour/box.h"
#include "colour/hue.h"
#include "colour/light.h"
#include "colour/sharpen.h"
#include "colour/lut.h"

enum { TOGETHER = 4096 }; /* pixels */

static bool is_of_pixels(const fl_colour_step *step) { return step->kind <= FL_COLOUR_TABLE; }

static void of_pixels(uint8_t *bytes, size_t pixels, size_t channels, const fl_colour_step *step) {
    switch (step->kind) {
    case FL_COLOUR_BLEND: fl_colour_blend_from(bytes, pixels * channels, step->level, step->factor); break;
    case FL_COLOUR_SATURATE: fl_colour_saturate(bytes, pixels, step->factor); break;
    case FL_COLOUR_GREY: fl_colour_grey(bytes, pixels); break;
    case FL_COLOUR_HUE: fl_colour_hue(bytes, pixels, step->level); break;
    case FL_COLOUR_TABLE:
        if (channels == 1) fl_colour_table(bytes, pixels, step->tables);
        else fl_colour_tables(bytes, pixels, (const uint8_t (*)[256])step->tables);
        break;
    default: break;
    }
}

/* From `image`, which may be `out`. */
static void together(const uint8_t *image, uint8_t *out, size_t pixels, size_t channels,
                     const fl_colour_step *steps, size_t count) {
    for (size_t at = 0; at < pixels; at += TOGETHER) {
        const size_t some = pixels - at < TOGETHER ? pixels - at : TOGETHER;
        if (image != out) memcpy(out + at * channels, image + at * channels, some * channels);
        for (size_t i = 0; i < count; i++) of_pixels(out + at * channels, some, channels, steps + i);
    }
}

static bool smoothed(uint8_t *image, size_t width, size_t height, size_t channels, const fl_colour_step *step,
                     fl_buffer *scratch) {
    const size_t bytes = width * height * channels;
    if (!fl_buffer_fit(scratch, 1, bytes, (fl_buffer_rule){.least = 1 << 16, .keep = 64 << 20})) return false;
    fl_colour_smooth(image, scratch->bytes, width, height, channels);
    if (step->kind == FL_COLOUR_SMOOTH) memcpy(image, scratch->bytes, bytes);
    else fl_colour_blend(image, scratch->bytes, bytes, step->factor);
    return true;
}

bool fl_colour_run(const uint8_t *image, uint8_t *out, size_t width, size_t height, size_t channels,
                   const fl_colour_step *steps, size_t count, fl_buffer *scratch) {
    size_t first = 0;
    while (first < count && is_of_pixels(steps + first)) first++;
    together(image, out, width * height, channels, steps, first);
    for (size_t i = first; i < count;) {
        size_t end = i;
        while (end < count && is_of_pixels(steps + end)) end++;
        if (end > i) {
            together(out, out, width * height, channels, steps + i, end - i);
            i = end;
            continue;
        }
        const fl_colour_step *step = steps + i++;
        if (step->kind == FL_COLOUR_CONTRAST) {
            const uint8_t level = fl_colour_mean_light(out, width * height, channels);
            fl_colour_blend_from(out, width * height * channels, level, step->factor);
        } else if (step->kind == FL_COLOUR_BLUR
                       ? !fl_colour_box_blur(out, width, height, channels, step->x_radius, step->y_radius,
                                             step->passes, scratch)
                       : !smoothed(out, width, height, channels, step, scratch))
            return false;
    }
    return true;
}
