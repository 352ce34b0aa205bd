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

/* Each channel by a table that follows from the counts of its values. */
static void by_counts(uint8_t *image, size_t pixels, size_t channels,
                      void (*table_of)(const uint32_t counts[256], uint8_t table[256])) {
    uint32_t counts[3][256];
    uint8_t tables[3][256];
    fl_colour_counts(image, pixels, channels, counts[0]);
    for (size_t c = 0; c < channels; c++) table_of(counts[c], tables[c]);
    of_pixels(image, pixels, channels,
              &(fl_colour_step){.kind = FL_COLOUR_TABLE, .tables = (const uint8_t *)tables});
}

/* A step that looks at the whole image. False: no memory. */
static bool of_image(uint8_t *image, size_t width, size_t height, size_t channels, const fl_colour_step *step,
                     fl_buffer *scratch) {
    const size_t pixels = width * height;
    switch (step->kind) {
    case FL_COLOUR_CONTRAST:
        fl_colour_blend_from(image, pixels * channels, fl_colour_mean_light(image, pixels, channels),
                             step->factor);
        return true;
    case FL_COLOUR_AUTOCONTRAST:
        by_counts(image, pixels, channels, fl_colour_autocontrast_table);
        return true;
    case FL_COLOUR_EQUALIZE: by_counts(image, pixels, channels, fl_colour_equalize_table); return true;
    case FL_COLOUR_BLUR:
        return fl_colour_box_blur(image, width, height, channels, step->x_radius, step->y_radius,
                                  step->passes, scratch);
    default: return smoothed(image, width, height, channels, step, scratch);
    }
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
        if (!of_image(out, width, height, channels, steps + i++, scratch)) return false;
    }
    return true;
}
