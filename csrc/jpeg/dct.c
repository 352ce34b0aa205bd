#include "jpeg/dct.h"

#include <stdlib.h>

#include "jpeg/dct_reader.h"
#include "jpeg/dct_write.h"
#include "jpeg/markers.h"

enum {
    CHUNK = 32 /* blocks */,
    COEFFICIENTS_MAX = 512 << 20 /* bytes, of an image that is converted: 178 million pixels in 4:2:0, 89 million in 4:4:4 */
};

struct fl_jpeg_dct {
    fl_jpeg_tables tables;
    fl_jpeg_frame frame;
    fl_jpeg_dct_scan scan;
    fl_jpeg_dct_room room;
    fl_buffer plain, coefs, row, dc, bits, jpeg;
};

fl_code fl_jpeg_dct_create(fl_jpeg_dct **out, fl_error *err) {
    *out = calloc(1, sizeof **out);
    if (!*out) return fl_fail(err, FL_ENOMEM, "%zu bytes for Huffman tables", sizeof **out);
    return FL_OK;
}

void fl_jpeg_dct_free(fl_jpeg_dct *dct) {
    if (!dct) return;
    fl_jpeg_dct_room_free(&dct->room);
    fl_buffer_free(&dct->plain);
    fl_buffer_free(&dct->coefs);
    fl_buffer_free(&dct->row);
    fl_buffer_free(&dct->dc);
    fl_buffer_free(&dct->bits);
    fl_buffer_free(&dct->jpeg);
    free(dct);
}

static fl_code no_memory(fl_error *err) { return fl_fail(err, FL_ENOMEM, "no memory for the coefficients of a JPEG"); }

/* ---- back to a JPEG ------------------------------------------------------------------------------------------------ */

/* All blocks of a strip. */
static bool read_strip(const fl_jpeg_dct_kernels *kernels, const fl_jpeg_dct_strip *strip, int16_t *dc, int16_t *coefs) {
    const uint32_t blocks = strip->lane->blocks;
    fl_jpeg_dct_reader r;
    fl_jpeg_dct_run none = {0};
    uint8_t counts[CHUNK];
    if (!fl_jpeg_dct_dc(strip, 0, blocks, dc) || !fl_jpeg_dct_enter(&r, kernels, strip, 0, blocks, dc)) return false;
    r.run.coefs = coefs;
    while (fl_jpeg_dct_next(&r, CHUNK)) {
        r.run.counts = counts;
        if (!kernels->make(&r.run, &none) || !fl_jpeg_dct_settle(&r)) return false;
    }
    return true;
}

typedef enum outcome { RESTORED, DAMAGED, NO_MEMORY } outcome;

/* dct->frame and dct->tables are those of the form's head. */
static outcome restore(fl_jpeg_dct *d, const fl_jpeg_dct_form *form, size_t *written) {
    const fl_jpeg_frame *f = &d->frame;
    const fl_jpeg_dct_kernels *kernels = fl_jpeg_dct_kernels_best();
    const size_t blocks = fl_jpeg_dct_row_blocks(f), most = fl_jpeg_dct_scan_most(f);
    if (!fl_buffer_fit(&d->row, blocks + 1, 64 * sizeof(int16_t), FL_JPEG_DCT_RULE) ||
        !fl_buffer_fit(&d->dc, blocks, sizeof(int16_t), FL_JPEG_DCT_RULE) || !fl_buffer_fit(&d->bits, most, 1, FL_JPEG_DCT_RULE) ||
        !fl_jpeg_dct_grow(&d->jpeg, 0, form->head.size))
        return NO_MEMORY;
    const fl_jpeg_dct_rows rows = fl_jpeg_dct_rows_in(f, d->row.bytes, 1);
    size_t used = form->head.size;
    memcpy(d->jpeg.bytes, form->head.bytes, used);
    fl_jpeg_dct_scan_begin(&d->scan, &d->tables, f, form->ones);
    for (uint32_t row = 0; row < form->rows; row++) {
        /* Upwards, for a kernel may write the block behind its last. */
        for (uint32_t i = 0; i < form->lanes; i++) {
            const fl_jpeg_dct_lane *l = &form->lane[i];
            fl_jpeg_dct_strip strip;
            int16_t *coefs = rows.blocks[l->component] + (size_t)l->row * l->blocks * 64;
            if (!fl_jpeg_dct_find(form, row, i, &strip) || !read_strip(kernels, &strip, d->dc.bytes, coefs)) return DAMAGED;
        }
        if (!fl_jpeg_dct_grow(&d->jpeg, used, most)) return NO_MEMORY;
        uint8_t *start = d->jpeg.bytes, *end = fl_jpeg_dct_scan_row(&d->scan, &rows, d->bits.bytes, start + used);
        if (!end) return DAMAGED;
        used = (size_t)(end - start);
    }
    if (!fl_jpeg_dct_grow(&d->jpeg, used, form->tail.size + 16)) return NO_MEMORY;
    uint8_t *start = d->jpeg.bytes;
    used = (size_t)(fl_jpeg_dct_scan_end(&d->scan, start + used) - start);
    memcpy(start + used, form->tail.bytes, form->tail.size);
    *written = used + form->tail.size;
    return RESTORED;
}

fl_code fl_jpeg_dct_restore(fl_jpeg_dct *d, const uint8_t *bytes, size_t size, const uint8_t **out, size_t *written, fl_error *err) {
    fl_jpeg_dct_form form;
    outcome done = DAMAGED;
    if (fl_jpeg_dct_open(&form, bytes, size) && fl_jpeg_header_read(&d->tables, &d->frame, form.head.bytes, form.head.size) &&
        d->frame.data == form.head.size && fl_jpeg_header_usual(&d->frame) && fl_jpeg_dct_lay_out(&form, &d->frame))
        done = restore(d, &form, written);
    if (done == NO_MEMORY) return no_memory(err);
    if (done == DAMAGED) return fl_fail(err, FL_EJPEG, "the image in the DCT form is damaged");
    *out = d->jpeg.bytes;
    return FL_OK;
}

/* ---- from a JPEG --------------------------------------------------------------------------------------------------- */

static fl_code stays(fl_error *err, const char *reason) { return fl_fail(err, FL_EUNSUPPORTED, "%s", reason); }

static fl_code failed(fl_jpeg_dct_outcome outcome, fl_error *err) {
    return outcome == FL_JPEG_DCT_NO_MEMORY ? no_memory(err) : stays(err, "its coefficients are beyond the limits of the DCT form");
}

/* Bytes of the file that the restored head and scan are; 0 when they differ. */
static size_t same(fl_jpeg_dct *d, fl_span form_bytes, const uint8_t *bytes, size_t size, fl_code *code, fl_error *err) {
    fl_jpeg_dct_form form;
    size_t written;
    if (!fl_jpeg_dct_open(&form, form_bytes.bytes, form_bytes.size) || !fl_jpeg_dct_lay_out(&form, &d->frame)) return 0;
    const outcome done = restore(d, &form, &written);
    if (done == NO_MEMORY) *code = no_memory(err);
    return done == RESTORED && written <= size && memcmp(d->jpeg.bytes, bytes, written) == 0 ? written : 0;
}

fl_code fl_jpeg_dct_encode(fl_jpeg_dct *d, const uint8_t *bytes, size_t size, uint64_t max_pixels, const uint8_t **out, size_t *written,
                           fl_error *err) {
    const fl_jpeg_frame *f = &d->frame;
    if (!fl_jpeg_header_read(&d->tables, &d->frame, bytes, size) || !fl_jpeg_header_usual(f))
        return stays(err, "not one baseline or extended sequential scan of grey or YCbCr at 4:4:4, 4:2:2, 4:2:0 or 4:4:0");
    if ((uint64_t)f->width * f->height > max_pixels) return stays(err, "more pixels than the limit");
    const size_t blocks = (size_t)fl_jpeg_dct_row_blocks(f) * f->mcus_down;
    if (blocks > COEFFICIENTS_MAX / (64 * sizeof(int16_t))) return stays(err, "its coefficients need more memory than the limit");
    if (!fl_buffer_fit(&d->coefs, blocks + 1, 64 * sizeof(int16_t), FL_JPEG_DCT_RULE) ||
        !fl_buffer_fit(&d->plain, size - f->data + FL_JPEG_PAD, 1, FL_JPEG_DCT_RULE))
        return no_memory(err);
    const fl_jpeg_dct_rows rows = fl_jpeg_dct_rows_in(f, d->coefs.bytes, f->mcus_down);
    if (!fl_jpeg_dct_scan_read(&d->tables, f, bytes + f->data, bytes + size, d->plain.bytes, &rows))
        return stays(err, "its coded data are damaged, or unusual");
    const fl_span head = {bytes, f->data}, no_tail = {bytes, 0};
    fl_span form;
    fl_jpeg_dct_outcome done = fl_jpeg_dct_write(&d->room, f, &rows, head, &form);
    if (done != FL_JPEG_DCT_WRITTEN) return failed(done, err);
    const fl_span begun = form;
    fl_code code = FL_OK;
    for (int ones = 1; ones >= 0; ones--) {
        form = begun;
        done = fl_jpeg_dct_finish(&d->room, head, no_tail, ones, &form);
        if (done != FL_JPEG_DCT_WRITTEN) return failed(done, err);
        const size_t equal = same(d, form, bytes, size, &code, err);
        if (code) return code;
        if (!equal) continue;
        if (!fl_jpeg_marker_at(bytes + equal, bytes + size, FL_JPEG_EOI)) break;
        form = begun;
        done = fl_jpeg_dct_finish(&d->room, head, (fl_span){bytes + equal, size - equal}, ones, &form);
        if (done != FL_JPEG_DCT_WRITTEN) return failed(done, err);
        *out = form.bytes;
        *written = form.size;
        return FL_OK;
    }
    return stays(err, "its coded data do not come back byte for byte");
}
