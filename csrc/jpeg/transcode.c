#include "jpeg/transcode.h"

#include <stdlib.h>
#include <string.h>

#include "jpeg/libjpeg_io.h"

#include <turbojpeg.h>

/* See NOTE [ jpeg: errors by longjmp ]: all that a call owns hangs off this, so that one function releases it after a jump. */
typedef struct transcoder {
    struct jpeg_decompress_struct c;
    struct jpeg_compress_struct d;
    fl_libjpeg_io io;
    struct jpeg_destination_mgr dest;
    bool writing; /* the source has been read: what fails now is what baseline coding cannot hold */
    uint8_t *out;
    size_t capacity, written;
} transcoder;

static transcoder *of_compressor(j_compress_ptr d) { return (transcoder *)((char *)d - offsetof(transcoder, d)); }

static void init_destination(j_compress_ptr d) {
    transcoder *t = of_compressor(d);
    t->dest.next_output_byte = t->out;
    t->dest.free_in_buffer = t->capacity;
}

/* Called when the buffer is full, whatever free_in_buffer says. */
static boolean grow_destination(j_compress_ptr d) {
    transcoder *t = of_compressor(d);
    if (t->capacity > SIZE_MAX / 2) fl_libjpeg_io_fail(&t->io, FL_ELIMIT, "the transcoded JPEG does not fit the address space");
    uint8_t *bigger = realloc(t->out, t->capacity * 2);
    if (!bigger) fl_libjpeg_io_fail(&t->io, FL_ENOMEM, "no memory for the transcoded JPEG (%zu bytes)", t->capacity * 2);
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

/* Safe in whatever state an error has left t: libjpeg's destroy functions accept what was zeroed and never created. */
static fl_code transcoder_free(transcoder *t) {
    fl_code code = t->io.code;
    jpeg_destroy_compress(&t->d);
    jpeg_destroy_decompress(&t->c);
    free(t->out);
    free(t);
    return code;
}

/* TurboJPEG writes a turned file with the standard tables, which have codes for values of at most 11 bits (DC) and 10 (AC), and does not
 * look whether a value has more: it would write rubbish. Coefficients of 8-bit pixels never do. */
static void check_movable(transcoder *t, jvirt_barray_ptr *coefficients) {
    struct jpeg_decompress_struct *c = &t->c;
    for (int ci = 0; ci < c->num_components; ci++)
        for (JDIMENSION y = 0; y < c->comp_info[ci].height_in_blocks; y++) {
            JBLOCKROW row = c->mem->access_virt_barray((j_common_ptr)c, coefficients[ci], y, 1, FALSE)[0];
            for (JDIMENSION x = 0; x < c->comp_info[ci].width_in_blocks; x++)
                for (int k = 0; k < DCTSIZE2; k++)
                    if (row[x][k] < -1024 + (k > 0) || row[x][k] > 1023)
                        fl_libjpeg_io_fail(&t->io, FL_EUNSUPPORTED,
                                           "the JPEG has coefficients that no 8-bit picture has (%d): it cannot be turned", row[x][k]);
        }
}

static void baseline_body(transcoder *t, const uint8_t *bytes, size_t size, uint64_t max_pixels, bool movable) {
    jpeg_create_decompress(&t->c);
    t->c.mem->max_memory_to_use = 0;
    fl_libjpeg_io_source(&t->io, &t->c, bytes, size);
    fl_libjpeg_io_header(&t->io, &t->c, max_pixels);
    fl_libjpeg_io_data(&t->io, &t->c);
    jvirt_barray_ptr *coefficients = jpeg_read_coefficients(&t->c);
    if (fl_libjpeg_io_smooths(&t->c))
        fl_libjpeg_io_fail(&t->io, FL_EUNSUPPORTED,
                           "the progressive JPEG stops before full precision, so decoders smooth it; baseline coding would lose that");
    if (movable) check_movable(t, coefficients);

    t->writing = true;
    t->capacity = size + size / 4 + 4096;
    t->out = malloc(t->capacity);
    if (!t->out) fl_libjpeg_io_fail(&t->io, FL_ENOMEM, "no memory for the transcoded JPEG (%zu bytes)", t->capacity);
    jpeg_create_compress(&t->d);
    t->d.mem->max_memory_to_use = 0;
    t->d.dest = &t->dest;
    jpeg_copy_critical_parameters(&t->c, &t->d);
    t->d.optimize_coding = TRUE;
    t->d.arith_code = FALSE;
    jpeg_write_coefficients(&t->d, coefficients);
    jpeg_finish_compress(&t->d);
    jpeg_finish_decompress(&t->c);
}

/* fl_jpeg_transform without a turn; `movable`: only of coefficients that can be turned. */
static fl_code to_baseline(const uint8_t *bytes, size_t size, uint64_t max_pixels, bool movable, uint8_t **out, size_t *written,
                           fl_error *err) {
    transcoder *t;
    *out = NULL;
    fl_code code = transcoder_create(&t, err);
    if (code != FL_OK) return code;
    if (setjmp(t->io.jump)) {
        if (t->writing && t->io.code == FL_EJPEG) t->io.code = FL_EUNSUPPORTED;
        if (err) err->code = t->io.code;
        return transcoder_free(t);
    }
    baseline_body(t, bytes, size, max_pixels, movable);
    *out = t->out;
    *written = t->written;
    t->out = NULL;
    return transcoder_free(t);
}

static fl_code turn(const uint8_t *bytes, size_t size, int orientation, uint8_t **out, unsigned long *written, fl_error *err) {
    static const int turns[9] = {0,           TJXOP_NONE,       TJXOP_HFLIP, TJXOP_ROT180, TJXOP_VFLIP, TJXOP_TRANSPOSE,
                                 TJXOP_ROT90, TJXOP_TRANSVERSE, TJXOP_ROT270};
    tjhandle handle = tjInitTransform();
    if (!handle) return fl_fail(err, FL_ENOMEM, "no memory for a JPEG transform");
    tjtransform transform;
    memset(&transform, 0, sizeof transform);
    transform.op = turns[orientation];
    transform.options = TJXOPT_PERFECT | TJXOPT_COPYNONE;
    fl_code code = FL_OK;
    if (tjTransform(handle, bytes, (unsigned long)size, 1, out, written, &transform, 0) != 0)
        code = fl_fail(err, FL_EUNSUPPORTED, "the JPEG cannot be turned without loss (orientation %d): %s", orientation,
                       tjGetErrorStr2(handle));
    tjDestroy(handle);
    return code;
}

fl_code fl_jpeg_transform(const uint8_t *bytes, size_t size, int orientation, uint64_t max_pixels, uint8_t **out, size_t *written,
                          fl_error *err) {
    *out = NULL;
    if (orientation < 1 || orientation > 8) return fl_fail(err, FL_EARG, "EXIF orientation %d is not 1 to 8", orientation);
    uint8_t *upright = NULL;
    size_t upright_size = 0;
    /* first our own reader: it checks the limits and refuses truncated files, where TurboJPEG would fill in grey */
    fl_code code = to_baseline(bytes, size, max_pixels, orientation != 1, &upright, &upright_size, err);
    if (code != FL_OK || orientation == 1) {
        *out = upright;
        *written = upright_size;
        return code;
    }
    uint8_t *turned = NULL;
    unsigned long turned_size = 0;
    code = turn(upright, upright_size, orientation, &turned, &turned_size, err);
    free(upright);
    if (code == FL_OK) code = to_baseline(turned, turned_size, max_pixels, false, out, written, err); /* optimal tables again */
    tjFree(turned);
    return code;
}

/* Coefficients are decoded and dropped: at 1/8 only one of each block's 64 is transformed, and no more than a row is kept. */
static void check_body(transcoder *t, const uint8_t *bytes, size_t size, uint64_t max_pixels, bool *smoothed) {
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
        if (jpeg_read_scanlines(c, &row, 1) != 1) fl_libjpeg_io_fail(&t->io, FL_EJPEG, "libjpeg stopped at row %u", c->output_scanline);
    jpeg_finish_decompress(c);
}

fl_code fl_jpeg_check(const uint8_t *bytes, size_t size, uint64_t max_pixels, fl_jpeg_checked *checked, fl_error *err) {
    transcoder *t;
    *checked = (fl_jpeg_checked){.warnings = 0};
    fl_code code = transcoder_create(&t, err);
    if (code != FL_OK) return code;
    if (setjmp(t->io.jump) == 0) check_body(t, bytes, size, max_pixels, &checked->smoothed);
    checked->warnings = t->io.warnings;
    memcpy(checked->first, t->io.first, FL_TEXT);
    return transcoder_free(t);
}
