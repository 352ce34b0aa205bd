#include "jpeg/transcode.h"

#include <stdlib.h>
#include <string.h>

#include "jpeg/libjpeg_io.h"
#include "jpeg/turn.h"

/* See NOTE [ jpeg: errors by longjmp ]: all that a call owns hangs off this, so that one function releases it
 * after a jump. */
typedef struct transcoder {
    struct jpeg_decompress_struct c;
    struct jpeg_compress_struct d;
    fl_libjpeg_io io;
    struct jpeg_destination_mgr dest;
    bool writing; /* the source has been read: what fails now is what baseline coding cannot hold */
    uint8_t *out;
    size_t capacity, written;
} transcoder;

static transcoder *of_compressor(j_compress_ptr d) {
    return (transcoder *)((char *)d - offsetof(transcoder, d));
}

static void init_destination(j_compress_ptr d) {
    transcoder *t = of_compressor(d);
    t->dest.next_output_byte = t->out;
    t->dest.free_in_buffer = t->capacity;
}

/* Called when the buffer is full, whatever free_in_buffer says. */
static boolean grow_destination(j_compress_ptr d) {
    transcoder *t = of_compressor(d);
    if (t->capacity > SIZE_MAX / 2)
        fl_libjpeg_io_fail(&t->io, FL_ELIMIT, "the transcoded JPEG does not fit the address space");
    uint8_t *bigger = realloc(t->out, t->capacity * 2);
    if (!bigger)
        fl_libjpeg_io_fail(&t->io, FL_ENOMEM, "no memory for the transcoded JPEG (%zu bytes)",
                           t->capacity * 2);
    t->out = bigger;
    t->dest.next_output_byte = bigger + t->capacity;
    t->dest.free_in_buffer = t->capacity;
    t->capacity *= 2;
    return TRUE;
}

static void end_destination(j_compress_ptr d) {
    transcoder *t = of_compressor(d);
    t->written = t->capacity - t->dest.free_in_buffer;
}

static fl_code transcoder_create(transcoder **out, fl_error *err) {
    transcoder *t = calloc(1, sizeof *t);
    *out = t;
    if (!t) return fl_fail(err, FL_ENOMEM, "no memory for a JPEG transcoder (%zu bytes)", sizeof *t);
    fl_libjpeg_io_init(&t->io, (j_common_ptr)&t->c);
    t->d.err = t->c.err;
    t->d.client_data = &t->io;
    t->dest.init_destination = init_destination;
    t->dest.empty_output_buffer = grow_destination;
    t->dest.term_destination = end_destination;
    fl_libjpeg_io_begin(&t->io, err);
    return FL_OK;
}

/* Safe in whatever state an error has left t: libjpeg's destroy functions accept what was zeroed and never
 * created. */
static fl_code transcoder_free(transcoder *t) {
    fl_code code = t->io.code;
    jpeg_destroy_compress(&t->d);
    jpeg_destroy_decompress(&t->c);
    free(t->out);
    free(t);
    return code;
}

static void baseline_body(transcoder *t, const uint8_t *bytes, size_t size, int orientation,
                          uint64_t max_pixels) {
    jpeg_create_decompress(&t->c);
    t->c.mem->max_memory_to_use = 0;
    fl_libjpeg_io_source(&t->io, &t->c, bytes, size);
    fl_libjpeg_io_header(&t->io, &t->c, max_pixels);
    fl_libjpeg_io_data(&t->io, &t->c);
    jvirt_barray_ptr *coefficients = jpeg_read_coefficients(&t->c);
    if (fl_libjpeg_io_smooths(&t->c))
        fl_libjpeg_io_fail(&t->io, FL_EUNSUPPORTED,
                           "the progressive JPEG stops before full precision, so decoders smooth it; "
                           "baseline coding would lose that");

    t->writing = true;
    t->capacity = size + size / 4 + 4096;
    t->out = malloc(t->capacity);
    if (!t->out)
        fl_libjpeg_io_fail(&t->io, FL_ENOMEM, "no memory for the transcoded JPEG (%zu bytes)", t->capacity);
    jpeg_create_compress(&t->d);
    t->d.mem->max_memory_to_use = 0;
    t->d.dest = &t->dest;
    jpeg_copy_critical_parameters(&t->c, &t->d);
    jvirt_barray_ptr *turned =
        orientation == 1 ? coefficients : fl_jpeg_turn_begin(&t->io, &t->d, orientation);
    t->d.optimize_coding = TRUE;
    t->d.arith_code = FALSE;
    jpeg_write_coefficients(&t->d, turned);
    if (orientation != 1) fl_jpeg_turn_fill(&t->c, coefficients, &t->d, turned, orientation);
    jpeg_finish_compress(&t->d);
    jpeg_finish_decompress(&t->c);
}

fl_code fl_jpeg_transform(const uint8_t *bytes, size_t size, int orientation, uint64_t max_pixels,
                          uint8_t **out, size_t *written, fl_error *err) {
    transcoder *t;
    *out = NULL;
    if (orientation < 1 || orientation > 8)
        return fl_fail(err, FL_EARG, "EXIF orientation %d is not 1 to 8", orientation);
    fl_code code = transcoder_create(&t, err);
    if (code != FL_OK) return code;
    if (setjmp(t->io.jump)) {
        if (t->writing && t->io.code == FL_EJPEG) t->io.code = FL_EUNSUPPORTED;
        if (err) err->code = t->io.code;
        return transcoder_free(t);
    }
    baseline_body(t, bytes, size, orientation, max_pixels);
    *out = t->out;
    *written = t->written;
    t->out = NULL;
    return transcoder_free(t);
}

static void encode_body(transcoder *t, const fl_view *image, int quality) {
    struct jpeg_compress_struct *d = &t->d;
    t->capacity = (size_t)image->width * image->height / 2 + 4096;
    t->out = malloc(t->capacity);
    if (!t->out) fl_libjpeg_io_fail(&t->io, FL_ENOMEM, "no memory for a JPEG (%zu bytes)", t->capacity);
    jpeg_create_compress(d);
    d->mem->max_memory_to_use = 0;
    d->dest = &t->dest;
    d->image_width = image->width, d->image_height = image->height;
    d->input_components = 3, d->in_color_space = JCS_RGB;
    jpeg_set_defaults(d);
    jpeg_set_quality(d, quality, TRUE);
    jpeg_start_compress(d, TRUE);
    while (d->next_scanline < d->image_height) {
        JSAMPROW row = (JSAMPROW)(uintptr_t)(image->pixels + d->next_scanline * image->stride);
        (void)jpeg_write_scanlines(d, &row, 1);
    }
    jpeg_finish_compress(d);
}

fl_code fl_jpeg_encode(const fl_view *image, int quality, uint8_t **out, size_t *written, fl_error *err) {
    transcoder *t;
    *out = NULL;
    if (image->width > JPEG_MAX_DIMENSION || image->height > JPEG_MAX_DIMENSION)
        return fl_fail(err, FL_EUNSUPPORTED, "%u x %u pixels are more than a JPEG may have", image->width,
                       image->height);
    const fl_code code = transcoder_create(&t, err);
    if (code != FL_OK) return code;
    if (setjmp(t->io.jump)) {
        if (err) err->code = t->io.code;
        return transcoder_free(t);
    }
    encode_body(t, image, quality);
    *out = t->out;
    *written = t->written;
    t->out = NULL;
    return transcoder_free(t);
}

/* Coefficients are decoded and dropped: at 1/8 only one of each block's 64 is transformed, and no more than a
 * row is kept. */
static void check_body(transcoder *t, const uint8_t *bytes, size_t size, uint64_t max_pixels,
                       bool *smoothed) {
    struct jpeg_decompress_struct *c = &t->c;
    jpeg_create_decompress(c);
    c->mem->max_memory_to_use = 0;
    fl_libjpeg_io_source(&t->io, c, bytes, size);
    fl_libjpeg_io_header(&t->io, c, max_pixels);
    fl_libjpeg_io_data(&t->io, c);
    c->out_color_space = c->num_components == 4 ? JCS_CMYK : JCS_RGB;
    c->scale_num = 1;
    c->scale_denom = 8;
    jpeg_start_decompress(c);
    *smoothed = fl_libjpeg_io_smooths(c);
    t->out = malloc((size_t)c->output_width * 4);
    if (!t->out) fl_libjpeg_io_fail(&t->io, FL_ENOMEM, "no memory for a row of %u pixels", c->output_width);
    JSAMPROW row = t->out;
    while (c->output_scanline < c->output_height)
        if (jpeg_read_scanlines(c, &row, 1) != 1)
            fl_libjpeg_io_fail(&t->io, FL_EJPEG, "libjpeg stopped at row %u", c->output_scanline);
    jpeg_finish_decompress(c);
}

fl_code fl_jpeg_check(const uint8_t *bytes, size_t size, uint64_t max_pixels, fl_jpeg_checked *checked,
                      fl_error *err) {
    transcoder *t;
    *checked = (fl_jpeg_checked){.warnings = 0};
    fl_code code = transcoder_create(&t, err);
    if (code != FL_OK) return code;
    if (setjmp(t->io.jump) == 0) check_body(t, bytes, size, max_pixels, &checked->smoothed);
    checked->warnings = t->io.warnings;
    memcpy(checked->first, t->io.first, FL_TEXT);
    return transcoder_free(t);
}
