#include "jpeg/dct_read.h"

#include "common/cpu.h"
#include "jpeg/huffman.h"
#include "jpeg/markers.h"

/* The coded data of an interval. */
typedef struct interval {
    const fl_jpeg_codes *dc[FL_JPEG_BLOCKS_MAX], *ac[FL_JPEG_BLOCKS_MAX];
    const uint8_t *start, *end;
    uint32_t mcus;
} interval;

/* Reads an interval. False for damage, and for blocks that the writer writes otherwise. *rest: the bits that
 * are left, or less than 0. */
FL_INLINE bool read_mcus(const interval *in, const fl_jpeg_frame *f, int16_t *out, int64_t *rest) {
    const uint32_t blocks = f->block_count;
    fl_jpeg_bits b = {in->start, 0, 0};
    int dc[3] = {0};
    for (uint32_t mcu = in->mcus; mcu; mcu--) {
        for (uint32_t i = 0; i < blocks; i++, out += 64) {
            int *sum = &dc[f->block_component[i]];
            *sum += fl_jpeg_dc(in->dc[i], &b);
            if (*sum != (int16_t)*sum) return false; /* nor is it when there was no code */
            memset(out, 0, 64 * sizeof *out);
            const int count = fl_jpeg_make_ac(in->ac[i], &b, out, FL_JPEG_IN_ZIGZAG_ORDER);
            if (count < 0 || (count > 1 && !out[count - 1])) return false;
            *out = (int16_t)*sum;
        }
        if (fl_jpeg_bits_at(&b) > in->end) return false;
    }
    *rest = (in->end - b.at) * 8 + (int64_t)b.left;
    return true;
}

#if defined(__x86_64__)
FL_BMI2 static bool read_mcus_bmi2(const interval *in, const fl_jpeg_frame *f, int16_t *out, int64_t *rest) {
    return read_mcus(in, f, out, rest);
}
#endif

static bool read_any_mcus(const interval *in, const fl_jpeg_frame *f, int16_t *out, int64_t *rest) {
#if defined(__x86_64__)
    if (fl_cpu_has(FL_CPU_BMI2)) return read_mcus_bmi2(in, f, out, rest);
#endif
    return read_mcus(in, f, out, rest);
}

static bool no_symbol_twice(const fl_jpeg_codes *codes) {
    bool met[256] = {false};
    for (int i = 0; i < codes->symbol_count; i++) {
        if (met[codes->symbols[i]]) return false;
        met[codes->symbols[i]] = true;
    }
    return true;
}

static bool find_tables(interval *in, const fl_jpeg_tables *tables, const fl_jpeg_frame *f) {
    for (uint32_t i = 0; i < f->block_count; i++) {
        in->dc[i] = &tables->dc[f->block_dc[i]];
        in->ac[i] = &tables->ac[f->block_ac[i]];
        if (!no_symbol_twice(in->dc[i]) || !no_symbol_twice(in->ac[i])) return false;
    }
    return true;
}

void fl_jpeg_dct_coded_free(fl_jpeg_dct_coded *room) {
    fl_buffer_free(&room->plain);
    fl_buffer_free(&room->blocks);
}

bool fl_jpeg_dct_image_fit(fl_jpeg_dct_coded *room, const fl_jpeg_frame *f, fl_jpeg_dct_image *image) {
    const size_t blocks = (size_t)f->mcus_across * f->mcus_down * f->block_count;
    if (!fl_buffer_fit(&room->blocks, blocks + 1, 64 * sizeof(int16_t), FL_JPEG_DCT_RULE)) return false;
    image->blocks = room->blocks.bytes;
    return true;
}

void fl_jpeg_dct_note_fill(const uint8_t *last, unsigned count, unsigned *fill) {
    const unsigned mask = (1u << count) - 1, bits = count ? *last & mask : 0;
    if (bits != mask) *fill &= ~2u;
    if (bits) *fill &= ~1u;
}

fl_code fl_jpeg_dct_read(fl_jpeg_dct_coded *room, const fl_jpeg_tables *tables, const fl_jpeg_frame *f,
                         const uint8_t *at, const uint8_t *end, fl_jpeg_dct_image *image) {
    interval in;
    const uint32_t mcus = f->mcus_across * f->mcus_down;
    if (!fl_jpeg_dct_image_fit(room, f, image) ||
        !fl_buffer_fit(&room->plain, (size_t)(end - at) + FL_JPEG_PAD, 1, FL_JPEG_DCT_RULE))
        return FL_ENOMEM;
    if (!find_tables(&in, tables, f)) return FL_EUNSUPPORTED;
    unsigned fill = 3;
    for (uint32_t done = 0; done < mcus; done += in.mcus) {
        int64_t rest;
        size_t size;
        if (done) {
            if (!fl_jpeg_marker_at(at, end, (uint8_t)(FL_JPEG_RST0 + (done / f->interval - 1) % 8)))
                return FL_EUNSUPPORTED;
            at += 2;
        }
        at = fl_jpeg_unstuff(at, end, room->plain.bytes, &size);
        in.start = room->plain.bytes;
        in.end = in.start + size;
        in.mcus = f->interval && f->interval < mcus - done ? f->interval : mcus - done;
        if (!read_any_mcus(&in, f, image->blocks + (size_t)done * f->block_count * 64, &rest))
            return FL_EUNSUPPORTED;
        if (rest < 0 || rest >= 8) return FL_EUNSUPPORTED;
        fl_jpeg_dct_note_fill(in.end - 1, (unsigned)rest, &fill);
    }
    if (!fill) return FL_EUNSUPPORTED;
    image->end = at;
    image->ones = fill >> 1;
    image->progressive = false;
    return FL_OK;
}
