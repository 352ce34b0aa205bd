#include "jpeg/dct.h"

#include <stdlib.h>

#include "jpeg/dct_reader.h"
#include "jpeg/dct_scan.h"
#include "jpeg/dct_scans_read.h"
#include "jpeg/dct_scans_write.h"
#include "jpeg/dct_write.h"
#include "jpeg/markers.h"

enum {
    CHUNK = 32 /* blocks */,
    COEFFICIENTS_MAX = 512
        << 20 /* bytes, of an image that is converted: 178 million pixels in 4:2:0, 89 million in 4:4:4 */
};

struct fl_jpeg_dct {
    fl_jpeg_tables tables;
    fl_jpeg_frame frame;
    fl_jpeg_dct_scan scan;
    bool sound;
    fl_jpeg_dct_room room;
    fl_jpeg_dct_coded coded;
    fl_jpeg_dct_scans_room made; /* the file that is restored is made.out */
    fl_buffer row, dc, tail;
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
    fl_buffer_free(&dct->tail);
    fl_buffer_free(&dct->made.plain);
    fl_buffer_free(&dct->made.out);
    free(dct);
}

static fl_code no_memory(fl_error *err) {
    return fl_fail(err, FL_ENOMEM, "no memory for the coefficients of a JPEG");
}

/* ---- back to a JPEG
 * ------------------------------------------------------------------------------------------------ */

/* All blocks of a strip. */
static bool read_strip(const fl_jpeg_dct_kernels *kernels, const fl_jpeg_dct_strip *strip, int16_t *dc,
                       int16_t *coefs) {
    const uint32_t blocks = strip->lane->blocks;
    fl_jpeg_dct_reader r;
    fl_jpeg_dct_run none = {0};
    uint8_t counts[CHUNK];
    if (!fl_jpeg_dct_dc(strip, 0, blocks, dc) || !fl_jpeg_dct_enter(&r, kernels, strip, 0, blocks, dc))
        return false;
    r.run.coefs = coefs;
    while (fl_jpeg_dct_next(&r, CHUNK)) {
        r.run.counts = counts;
        if (!kernels->make(&r.run, &none) || !fl_jpeg_dct_settle(&r)) return false;
    }
    return true;
}

/* dct->frame and dct->tables are those of the form's head. */
static fl_jpeg_dct_restored restore_scan(fl_jpeg_dct *d, const fl_jpeg_dct_form *form, size_t *written) {
    const fl_jpeg_frame *f = &d->frame;
    const fl_jpeg_dct_kernels *kernels = fl_jpeg_dct_kernels_best();
    const size_t blocks = fl_jpeg_dct_row_blocks(f), most = fl_jpeg_dct_scan_most(f);
    if (!fl_buffer_fit(&d->row, blocks + 1, 64 * sizeof(int16_t), FL_JPEG_DCT_RULE) ||
        !fl_buffer_fit(&d->dc, blocks, sizeof(int16_t), FL_JPEG_DCT_RULE) ||
        !fl_buffer_fit(&d->made.plain, most, 1, FL_JPEG_DCT_RULE) ||
        !fl_jpeg_dct_grow(&d->made.out, 0, form->head.size))
        return FL_JPEG_DCT_MEMORY;
    const fl_jpeg_dct_rows rows = fl_jpeg_dct_rows_in(f, d->row.bytes);
    size_t used = form->head.size;
    memcpy(d->made.out.bytes, form->head.bytes, used);
    fl_jpeg_dct_scan_begin(&d->scan, &d->tables, f, form->ones);
    for (uint32_t row = 0; row < form->rows; row++) {
        /* Upwards, for a kernel may write the block behind its last. */
        for (uint32_t i = 0; i < form->lanes; i++) {
            const fl_jpeg_dct_lane *l = &form->lane[i];
            fl_jpeg_dct_strip strip;
            int16_t *coefs = rows.blocks[l->component] + (size_t)l->row * l->blocks * 64;
            if (!fl_jpeg_dct_find(form, row, i, &strip) || !read_strip(kernels, &strip, d->dc.bytes, coefs))
                return FL_JPEG_DCT_REFUSED;
        }
        if (!fl_jpeg_dct_grow(&d->made.out, used, most)) return FL_JPEG_DCT_MEMORY;
        uint8_t *start = d->made.out.bytes,
                *end = fl_jpeg_dct_scan_row(&d->scan, &rows, d->made.plain.bytes, start + used);
        if (!end) return FL_JPEG_DCT_REFUSED;
        used = (size_t)(end - start);
    }
    if (!fl_jpeg_dct_grow(&d->made.out, used, form->tail.size + 16)) return FL_JPEG_DCT_MEMORY;
    uint8_t *start = d->made.out.bytes;
    used = (size_t)(fl_jpeg_dct_scan_end(&d->scan, start + used) - start);
    memcpy(start + used, form->tail.bytes, form->tail.size);
    *written = used + form->tail.size;
    return FL_JPEG_DCT_RESTORED;
}

static fl_jpeg_dct_scans scans_of(fl_jpeg_dct *d, const fl_jpeg_dct_image *image) {
    fl_jpeg_dct_scans s = {.frame = &d->frame,
                           .tables = &d->tables,
                           .dc = d->scan.dc,
                           .ac = d->scan.ac,
                           .blocks = image->blocks};
    memset(s.missing, FL_JPEG_DCT_UNSENT, sizeof s.missing);
    return s;
}

static size_t image_blocks(const fl_jpeg_frame *f) {
    return (size_t)f->mcus_across * f->mcus_down * f->block_count;
}

/* All coefficients of a form: from each of its strips to the MCUs. */
static fl_jpeg_dct_restored read_form(fl_jpeg_dct *d, const fl_jpeg_dct_form *form,
                                      fl_jpeg_dct_image *image) {
    const fl_jpeg_frame *f = &d->frame;
    const fl_jpeg_dct_kernels *kernels = fl_jpeg_dct_kernels_best();
    const size_t most = form->data.size / 6 * 8 + 8,
                 step = 64 * (size_t)f->block_count; /* a block takes 6 bits at least */
    if (image_blocks(f) > most || image_blocks(f) > COEFFICIENTS_MAX / (64 * sizeof(int16_t)))
        return FL_JPEG_DCT_REFUSED;
    if (!fl_jpeg_dct_image_fit(&d->coded, f, image) ||
        !fl_buffer_fit(&d->row, form->lane[0].blocks + 1, 64 * sizeof(int16_t), FL_JPEG_DCT_RULE) ||
        !fl_buffer_fit(&d->dc, form->lane[0].blocks, sizeof(int16_t), FL_JPEG_DCT_RULE))
        return FL_JPEG_DCT_MEMORY;
    for (uint32_t row = 0; row < form->rows; row++)
        for (uint32_t i = 0; i < form->lanes; i++) {
            const fl_jpeg_dct_lane *l = &form->lane[i];
            const int16_t *coefs = d->row.bytes;
            fl_jpeg_dct_strip strip;
            if (!fl_jpeg_dct_find(form, row, i, &strip) ||
                !read_strip(kernels, &strip, d->dc.bytes, d->row.bytes))
                return FL_JPEG_DCT_REFUSED;
            int16_t *out = image->blocks + (size_t)row * f->mcus_across * step + 64 * l->place;
            for (uint32_t block = 0; block < l->blocks; block++, coefs += 64)
                kernels->order(coefs, out + block / l->across * step + 64 * (block % l->across));
        }
    return FL_JPEG_DCT_RESTORED;
}

static fl_jpeg_dct_restored restore_scans(fl_jpeg_dct *d, const fl_jpeg_dct_form *form, size_t *written) {
    fl_jpeg_dct_image image;
    const fl_jpeg_dct_restored done = read_form(d, form, &image);
    if (done != FL_JPEG_DCT_RESTORED) return done;
    fl_jpeg_dct_scans s = scans_of(d, &image);
    return fl_jpeg_dct_scans_write(&s, form->head, form->tail, form->ones, &d->made, written);
}

fl_code fl_jpeg_dct_restore(fl_jpeg_dct *d, const uint8_t *bytes, size_t size, const uint8_t **out,
                            size_t *written, fl_error *err) {
    fl_jpeg_dct_form form;
    fl_jpeg_dct_restored done = FL_JPEG_DCT_REFUSED;
    if (fl_jpeg_dct_open(&form, bytes, size) && fl_jpeg_dct_frame(&form, &d->tables, &d->frame) &&
        fl_jpeg_dct_lay_out(&form, &d->frame))
        done = form.progressive ? restore_scans(d, &form, written) : restore_scan(d, &form, written);
    if (done == FL_JPEG_DCT_MEMORY) return no_memory(err);
    if (done == FL_JPEG_DCT_REFUSED) return fl_fail(err, FL_EJPEG, "the image in the DCT form is damaged");
    *out = d->made.out.bytes;
    return FL_OK;
}

/* ---- from a JPEG
 * --------------------------------------------------------------------------------------------------- */

static fl_code stays(fl_error *err, const char *reason) {
    return fl_fail(err, FL_EUNSUPPORTED, "%s", reason);
}

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
        if (memcmp(ordered, p->truth + mcu * step + 64 * (l->across == 2 ? block % 2 : 0), sizeof ordered) !=
            0)
            return false;
    }
    return !p->count || fl_jpeg_dct_settle(&p->reader);
}

/* Both strips side by side; q may be empty. */
static bool same_strips(const fl_jpeg_dct_kernels *kernels, proof *p, proof *q, size_t step) {
    for (;;) {
        next_chunk(p);
        next_chunk(q);
        if (!p->count && !q->count) return true;
        if (!kernels->make(&p->reader.run, &q->reader.run) || !same_chunk(kernels, p, step) ||
            !same_chunk(kernels, q, step))
            return false;
    }
}

/* True if the form gives the image's coefficients: NOTE [ dct: coded data that follow from their coefficients
 * ]. */
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
            if (!fl_jpeg_dct_find(&form, row, lane, &p->strip) ||
                !fl_jpeg_dct_dc(&p->strip, 0, p->strip.lane->blocks, dc) ||
                !fl_jpeg_dct_enter(&p->reader, kernels, &p->strip, 0, p->strip.lane->blocks, dc))
                return false;
            p->truth = image->blocks + (size_t)row * f->mcus_across * step + 64 * form.lane[lane].place;
        }
        if (!same_strips(kernels, &proofs[0], &proofs[1], step)) return false;
    }
    return true;
}

/* The form of an image that was read. */
static fl_code write_form(fl_jpeg_dct *d, const fl_jpeg_dct_image *image, fl_span head, fl_span tail,
                          fl_span *form, fl_error *err) {
    switch (fl_jpeg_dct_write(&d->room, &d->frame, image, head, tail, form)) {
    case FL_JPEG_DCT_NO_MEMORY: return no_memory(err);
    case FL_JPEG_DCT_TOO_LARGE: return stays(err, "its coefficients are beyond the limits of the DCT form");
    case FL_JPEG_DCT_WRITTEN: break;
    }
    return same(d, *form, image) ? FL_OK : stays(err, "its coefficients do not come back from the DCT form");
}

static fl_code encode_scan(fl_jpeg_dct *d, fl_span file, fl_span *form, fl_error *err) {
    const fl_span head = {file.bytes, d->frame.data};
    const uint8_t *end = file.bytes + file.size;
    fl_jpeg_dct_image image;
    const fl_code code =
        fl_jpeg_dct_read(&d->coded, &d->tables, &d->frame, head.bytes + head.size, end, &image);
    if (code == FL_ENOMEM) return no_memory(err);
    if (code)
        return stays(err, "its coded data are damaged, or such as no encoder makes of these coefficients");
    d->sound = fl_jpeg_marker_at(image.end, end, FL_JPEG_EOI);
    return write_form(d, &image, head, (fl_span){image.end, (size_t)(end - image.end)}, form, err);
}

static fl_code encode_scans(fl_jpeg_dct *d, fl_span file, fl_span *form, fl_error *err) {
    const fl_span head = {file.bytes, d->frame.data};
    fl_jpeg_dct_image image = {.progressive = true};
    fl_span tail = {NULL, 0};
    size_t written;
    if (!fl_jpeg_dct_image_fit(&d->coded, &d->frame, &image) ||
        !fl_buffer_fit(&d->coded.plain, file.size + FL_JPEG_PAD, 1, FL_JPEG_DCT_RULE) ||
        !fl_buffer_fit(&d->tail, file.size, 1, FL_JPEG_DCT_RULE))
        return no_memory(err);
    memset(image.blocks, 0, image_blocks(&d->frame) * 64 * sizeof(int16_t));
    fl_jpeg_dct_scans s = scans_of(d, &image);
    tail.bytes = d->tail.bytes;
    if (!fl_jpeg_dct_scans_read(&s, file.bytes, file.size, d->coded.plain.bytes, d->tail.bytes, &tail.size,
                                &image.ones))
        return stays(err, "a progressive file that is damaged or incomplete");
    s = scans_of(d, &image);
    const fl_jpeg_dct_restored done = fl_jpeg_dct_scans_write(&s, head, tail, image.ones, &d->made, &written);
    if (done == FL_JPEG_DCT_MEMORY) return no_memory(err);
    if (done == FL_JPEG_DCT_REFUSED || written != file.size ||
        memcmp(d->made.out.bytes, file.bytes, written) != 0)
        return stays(err, "a progressive file whose scans libjpeg would code otherwise");
    d->sound = false;
    return write_form(d, &image, head, tail, form, err);
}

fl_code fl_jpeg_dct_encode(fl_jpeg_dct *d, const uint8_t *bytes, size_t size, uint64_t max_pixels,
                           const uint8_t **out, size_t *written, fl_error *err) {
    const fl_jpeg_frame *f = &d->frame;
    const bool scan = fl_jpeg_header_read(&d->tables, &d->frame, bytes, size);
    if ((!scan && !fl_jpeg_header_progressive(&d->frame, bytes, size)) || !fl_jpeg_header_usual(f))
        return stays(err, "not one baseline or extended sequential scan, nor progressive, of grey or YCbCr "
                          "at 4:4:4, 4:2:2, 4:2:0 or 4:4:0");
    if ((uint64_t)f->width * f->height > max_pixels) return stays(err, "more pixels than the limit");
    if (image_blocks(f) > COEFFICIENTS_MAX / (64 * sizeof(int16_t)))
        return stays(err, "its coefficients need more memory than the limit");
    if (!fl_buffer_fit(&d->dc, 2 * (size_t)fl_jpeg_dct_row_blocks(f), sizeof(int16_t), FL_JPEG_DCT_RULE))
        return no_memory(err);
    fl_span form;
    const fl_code code = (scan ? encode_scan : encode_scans)(d, (fl_span){bytes, size}, &form, err);
    if (code) return code;
    *out = form.bytes;
    *written = form.size;
    return FL_OK;
}

bool fl_jpeg_dct_sound(const fl_jpeg_dct *dct) { return dct->sound; }
