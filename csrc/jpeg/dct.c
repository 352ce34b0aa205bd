#include "jpeg/dct.h"

#include <stdlib.h>

#include "jpeg/dct_reader.h"
#include "jpeg/dct_scan.h"
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
    bool sound;
    fl_jpeg_dct_room room;
    fl_jpeg_dct_coded coded;
    fl_buffer row, dc, bits, jpeg;
};

fl_code fl_jpeg_dct_create(fl_jpeg_dct **out, fl_error *err) {
    *out = calloc(1, sizeof **out);
    if (!*out) return fl_fail(err, FL_ENOMEM, "%zu bytes for Huffman tables", sizeof **out);
    return FL_OK;
}

void fl_jpeg_dct_free(fl_jpeg_dct *dct) {
    if (!dct) return;
    fl_jpeg_dct_room_free(&dct->room);
    fl_jpeg_dct_coded_free(&dct->coded);
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
    const fl_jpeg_dct_rows rows = fl_jpeg_dct_rows_in(f, d->row.bytes);
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

/* A strip that is read again, against the image. */
typedef struct proof {
    fl_jpeg_dct_strip strip;
    fl_jpeg_dct_reader reader;
    const int16_t *truth; /* its first block */
    uint32_t first, count; /* blocks of the chunk */
    _Alignas(64) int16_t coefs[(CHUNK + 1) * 64];
    uint8_t counts[CHUNK];
} proof;

static void next_chunk(proof *p) {
    p->first = p->reader.run.block;
    p->count = fl_jpeg_dct_next(&p->reader, CHUNK);
    p->reader.run.coefs = p->coefs;
    p->reader.run.counts = p->counts;
}

static bool same_chunk(const fl_jpeg_dct_kernels *kernels, proof *p, size_t step) {
    const fl_jpeg_dct_lane *l = p->strip.lane;
    for (uint32_t i = 0; i < p->count; i++) {
        _Alignas(64) int16_t ordered[64];
        const uint32_t block = p->first + i, mcu = l->across == 2 ? block / 2 : block;
        kernels->order(p->coefs + 64 * i, ordered);
        if (memcmp(ordered, p->truth + mcu * step + 64 * (l->across == 2 ? block % 2 : 0), sizeof ordered) != 0) return false;
    }
    return !p->count || fl_jpeg_dct_settle(&p->reader);
}

/* Both strips side by side; q may be empty. */
static bool same_strips(const fl_jpeg_dct_kernels *kernels, proof *p, proof *q, size_t step) {
    for (;;) {
        next_chunk(p);
        next_chunk(q);
        if (!p->count && !q->count) return true;
        if (!kernels->make(&p->reader.run, &q->reader.run) || !same_chunk(kernels, p, step) || !same_chunk(kernels, q, step)) return false;
    }
}

/* True if the form gives the image's coefficients: NOTE [ dct: coded data that follow from their coefficients ]. */
static bool same(fl_jpeg_dct *d, fl_span bytes, const fl_jpeg_dct_image *image) {
    const fl_jpeg_frame *f = &d->frame;
    const fl_jpeg_dct_kernels *kernels = fl_jpeg_dct_kernels_best();
    const size_t step = 64 * (size_t)f->block_count;
    fl_jpeg_dct_form form;
    proof proofs[2] = {0};
    if (!fl_jpeg_dct_open(&form, bytes.bytes, bytes.size) || !fl_jpeg_dct_lay_out(&form, f)) return false;
    const uint32_t strips = form.rows * form.lanes;
    for (uint32_t i = 0; i < strips; i += 2) {
        for (uint32_t j = 0; j < 2 && i + j < strips; j++) {
            const uint32_t row = (i + j) / form.lanes, lane = (i + j) % form.lanes;
            proof *p = &proofs[j];
            int16_t *dc = (int16_t *)d->dc.bytes + j * form.lane[0].blocks;
            if (!fl_jpeg_dct_find(&form, row, lane, &p->strip) || !fl_jpeg_dct_dc(&p->strip, 0, p->strip.lane->blocks, dc) ||
                !fl_jpeg_dct_enter(&p->reader, kernels, &p->strip, 0, p->strip.lane->blocks, dc))
                return false;
            p->truth = image->blocks + (size_t)row * f->mcus_across * step + 64 * form.lane[lane].place;
        }
        if (!same_strips(kernels, &proofs[0], &proofs[1], step)) return false;
    }
    return true;
}

fl_code fl_jpeg_dct_encode(fl_jpeg_dct *d, const uint8_t *bytes, size_t size, uint64_t max_pixels, const uint8_t **out, size_t *written,
                           fl_error *err) {
    const fl_jpeg_frame *f = &d->frame;
    if (!fl_jpeg_header_read(&d->tables, &d->frame, bytes, size) || !fl_jpeg_header_usual(f))
        return stays(err, "not one baseline or extended sequential scan of grey or YCbCr at 4:4:4, 4:2:2, 4:2:0 or 4:4:0");
    if ((uint64_t)f->width * f->height > max_pixels) return stays(err, "more pixels than the limit");
    const size_t blocks = fl_jpeg_dct_row_blocks(f);
    if (blocks * f->mcus_down > COEFFICIENTS_MAX / (64 * sizeof(int16_t)))
        return stays(err, "its coefficients need more memory than the limit");
    if (!fl_buffer_fit(&d->dc, 2 * blocks, sizeof(int16_t), FL_JPEG_DCT_RULE)) return no_memory(err);
    fl_jpeg_dct_image image;
    const fl_code code = fl_jpeg_dct_read(&d->coded, &d->tables, f, bytes + f->data, bytes + size, &image);
    if (code == FL_ENOMEM) return no_memory(err);
    if (code) return stays(err, "its coded data are damaged, or such as no encoder makes of these coefficients");
    const fl_span head = {bytes, f->data}, tail = {image.end, (size_t)(bytes + size - image.end)};
    fl_span form;
    switch (fl_jpeg_dct_write(&d->room, f, &image, head, tail, &form)) {
    case FL_JPEG_DCT_NO_MEMORY: return no_memory(err);
    case FL_JPEG_DCT_TOO_LARGE: return stays(err, "its coefficients are beyond the limits of the DCT form");
    case FL_JPEG_DCT_WRITTEN: break;
    }
    if (!same(d, form, &image)) return stays(err, "its coefficients do not come back from the DCT form");
    *out = form.bytes;
    *written = form.size;
    d->sound = fl_jpeg_marker_at(image.end, bytes + size, FL_JPEG_EOI);
    return FL_OK;
}

bool fl_jpeg_dct_sound(const fl_jpeg_dct *dct) { return dct->sound; }
