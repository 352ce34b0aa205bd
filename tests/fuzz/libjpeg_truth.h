/* What plain libjpeg-turbo makes of a file: a full decode through its own memory source, without a line of
 * csrc. */
#ifndef LIBJPEG_TRUTH_H
#define LIBJPEG_TRUTH_H

#include <setjmp.h>

#include "fuzz.h"

#include <jpeglib.h>

typedef struct truth {
    bool decodes; /* to the end, with or without warnings */
    bool limited; /* not tried: too many pixels, or more scans than jpeg/libjpeg_io.h allows */
    long warnings;
    uint32_t width, height; /* at this scale */
    uint32_t components;
    uint8_t *pixels; /* RGB, interleaved, the caller's */
    char text[JMSG_LENGTH_MAX]; /* of the first warning, or of the error */
} truth;

enum { FUZZ_PIXELS_MOST = 1 << 17, FUZZ_SCANS_MOST = 100 };

typedef struct truth_decoder {
    struct jpeg_decompress_struct c;
    struct jpeg_error_mgr errors;
    struct jpeg_progress_mgr progress;
    jmp_buf jump;
    truth *t;
    uint8_t *row;
} truth_decoder;

static void truth_fails(j_common_ptr cinfo) {
    truth_decoder *d = cinfo->client_data;
    cinfo->err->format_message(cinfo, d->t->text);
    longjmp(d->jump, 1);
}

static void truth_notes(j_common_ptr cinfo, int level) {
    truth_decoder *d = cinfo->client_data;
    if (level >= 0) return;
    if (!d->t->warnings++) cinfo->err->format_message(cinfo, d->t->text);
}

static void truth_counts_scans(j_common_ptr cinfo) {
    truth_decoder *d = cinfo->client_data;
    if (d->c.input_scan_number <= FUZZ_SCANS_MOST) return;
    d->t->limited = true;
    longjmp(d->jump, 1);
}

/* Pillow's conversion of Adobe's inverted CMYK: each product over 255 rounded to nearest. */
static void truth_from_cmyk(const uint8_t *cmyk, uint8_t *rgb, uint32_t width) {
    for (uint32_t x = 0; x < width; x++, cmyk += 4, rgb += 3)
        for (int c = 0; c < 3; c++) {
            const uint32_t product = (255u - cmyk[c]) * cmyk[3];
            rgb[c] = (uint8_t)(cmyk[3] - (2 * product + 255) / 510);
        }
}

static void truth_body(truth_decoder *d, const uint8_t *bytes, size_t size, int eighths) {
    struct jpeg_decompress_struct *c = &d->c;
    truth *t = d->t;
    jpeg_create_decompress(c);
    c->mem->max_memory_to_use = 0;
    jpeg_mem_src(c, (unsigned char *)(uintptr_t)bytes, (unsigned long)size);
    jpeg_read_header(c, TRUE);
    t->components = (uint32_t)c->num_components;
    t->limited = (uint64_t)c->image_width * c->image_height > FUZZ_PIXELS_MOST || c->data_precision != 8;
    if (t->limited || (t->components != 1 && t->components != 3 && t->components != 4)) longjmp(d->jump, 1);
    d->progress.progress_monitor = truth_counts_scans;
    c->progress = &d->progress;
    c->out_color_space = t->components == 4 ? JCS_CMYK : JCS_RGB;
    c->scale_num = (unsigned)eighths, c->scale_denom = 8;
    jpeg_start_decompress(c);
    t->width = c->output_width, t->height = c->output_height;
    t->pixels = fuzz_allocate((size_t)t->width * t->height * 3);
    d->row = fuzz_allocate((size_t)t->width * 4);
    while (c->output_scanline < c->output_height) {
        uint8_t *to = t->pixels + (size_t)c->output_scanline * t->width * 3;
        JSAMPROW row = d->row;
        jpeg_read_scanlines(c, &row, 1);
        if (t->components == 4) truth_from_cmyk(d->row, to, t->width);
        else memcpy(to, d->row, (size_t)t->width * 3);
    }
    jpeg_finish_decompress(c);
    t->decodes = true;
}

static truth decode_truth(const uint8_t *bytes, size_t size, int eighths) {
    truth t = {0};
    truth_decoder *d = calloc(1, sizeof *d);
    CHECK(d != NULL);
    d->t = &t;
    d->c.err = jpeg_std_error(&d->errors);
    d->c.client_data = d;
    d->errors.error_exit = truth_fails;
    d->errors.emit_message = truth_notes;
    if (size && setjmp(d->jump) == 0) truth_body(d, bytes, size, eighths);
    if (!t.decodes) {
        free(t.pixels);
        t.pixels = NULL;
    }
    jpeg_destroy_decompress(&d->c);
    free(d->row);
    free(d);
    return t;
}

#endif
