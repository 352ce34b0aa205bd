/* What libjpeg writes: jpeg/dct_scans.h. */
#include "jpeg/dct_scans_write.h"

#include <stdlib.h>

#include "jpeg/dct_write.h"
#include "jpeg/markers.h"

enum {
    RUN_MOST = 0x7FFF, /* ended blocks */
    CORRECTIONS_MOST = 937, /* that a run may have before the next block */
    CORRECTIONS_ROOM = CORRECTIONS_MOST + 64,
    MCU_MOST = 64 * 4 * FL_JPEG_BLOCKS_MAX + CORRECTIONS_ROOM +
        64 /* bytes, of an MCU and of the run before it */
};

/* A scan that is being written. */
typedef struct writer {
    const fl_jpeg_dct_scans *scans;
    uint64_t bits;
    unsigned count;
    uint8_t *at;
    int dc[3];
    uint32_t ended, corrections; /* blocks of the run, and bits that follow it */
    bool missing; /* a symbol had no code */
    uint8_t correction[CORRECTIONS_ROOM];
} writer;

static void put_bits(writer *w, uint64_t value, unsigned size) {
    w->at = fl_jpeg_dct_put(&w->bits, &w->count, value, size, w->at);
}

static void put_symbol(writer *w, const fl_jpeg_dct_code *codes, unsigned symbol, int value, unsigned size) {
    w->missing |= !codes[symbol].bits;
    w->at = fl_jpeg_dct_put_value(&w->bits, &w->count, codes[symbol], value, size, w->at);
}

static void put_corrections(writer *w, const uint8_t *bits, uint32_t count) {
    for (; count; count--) put_bits(w, *bits++, 1);
}

static const fl_jpeg_dct_code *ac_codes(const writer *w) { return w->scans->ac[w->scans->scan.ac[0]]; }

static void end_run(writer *w) {
    if (!w->ended) return;
    const unsigned size = fl_jpeg_dct_bits_of((int)w->ended) - 1;
    put_symbol(w, ac_codes(w), size << 4, 0, 0);
    put_bits(w, w->ended & ((1u << size) - 1), size);
    put_corrections(w, w->correction, w->corrections);
    w->ended = w->corrections = 0;
}

static void put_dc(writer *w, const int16_t *block, uint8_t i) {
    const fl_jpeg_dct_scan_header *h = &w->scans->scan;
    const int value = *block >> h->low, step = value - w->dc[i];
    if (h->high) {
        put_bits(w, value & 1, 1);
        return;
    }
    const unsigned size = fl_jpeg_dct_bits_of(step);
    w->dc[i] = value;
    put_symbol(w, w->scans->dc[h->dc[i]], size, step, size);
}

/* Without the bits that are not sent. */
static int shifted(int value, unsigned low) { return value < 0 ? -(-value >> low) : value >> low; }

static void put_ac(writer *w, const int16_t *block) {
    const fl_jpeg_dct_scan_header *h = &w->scans->scan;
    unsigned zeros = 0;
    for (int k = h->from; k <= h->to; k++) {
        const int value = shifted(block[k], h->low);
        if (!value) {
            zeros++;
            continue;
        }
        end_run(w);
        for (; zeros > 15; zeros -= 16) put_symbol(w, ac_codes(w), FL_JPEG_ZEROS, 0, 0);
        const unsigned size = fl_jpeg_dct_bits_of(value);
        w->missing |= size > 15;
        put_symbol(w, ac_codes(w), (zeros << 4 | size) & 255, value, size);
        zeros = 0;
    }
    if (zeros && ++w->ended == RUN_MOST) end_run(w);
}

static void put_refined(writer *w, const int16_t *block) {
    const fl_jpeg_dct_scan_header *h = &w->scans->scan;
    int last = 0; /* the last coefficient that is new */
    for (int k = h->from; k <= h->to; k++)
        if (abs(shifted(block[k], h->low)) == 1) last = k;
    /* behind those of the run, as long as it goes on */
    uint8_t bits[64], *into = w->correction + w->corrections;
    uint32_t count = 0;
    unsigned zeros = 0;
    for (int k = h->from; k <= h->to; k++) {
        const int value = abs(shifted(block[k], h->low));
        if (!value) {
            zeros++;
            continue;
        }
        for (; zeros > 15 && k <= last; zeros -= 16) {
            end_run(w);
            put_symbol(w, ac_codes(w), FL_JPEG_ZEROS, 0, 0);
            put_corrections(w, into, count);
            into = bits, count = 0;
        }
        if (value > 1) {
            into[count++] = value & 1;
            continue;
        }
        end_run(w);
        put_symbol(w, ac_codes(w), zeros << 4 | 1, 0, 0);
        put_bits(w, block[k] > 0, 1);
        put_corrections(w, into, count);
        into = bits, count = 0, zeros = 0;
    }
    if (!zeros && !count) return;
    if (into == bits) memcpy(w->correction, bits, count); /* the run begins here */
    w->ended++;
    w->corrections += count;
    if (w->ended == RUN_MOST || w->corrections > CORRECTIONS_MOST) end_run(w);
}

static void put_block(writer *w, const int16_t *block, uint8_t i) {
    const fl_jpeg_dct_scan_header *h = &w->scans->scan;
    if (!h->from) put_dc(w, block, i);
    else if (h->high) put_refined(w, block);
    else put_ac(w, block);
}

/* Appends an interval that is done. */
static bool append(writer *w, bool ones, fl_jpeg_dct_scans_room *room, size_t *used) {
    end_run(w);
    w->at = fl_jpeg_dct_fill(&w->bits, &w->count, ones, w->at);
    const uint8_t *start = room->plain.bytes;
    if (!fl_jpeg_dct_grow(&room->out, *used, 2 * (size_t)(w->at - start) + 2)) return false;
    uint8_t *out = room->out.bytes;
    *used = (size_t)(fl_jpeg_dct_stuff(start, w->at, out + *used) - out);
    return true;
}

static fl_jpeg_dct_restored write_scan(const fl_jpeg_dct_scans *s, bool ones, fl_jpeg_dct_scans_room *room,
                                       size_t *used) {
    const uint32_t mcus = s->scan.across * s->scan.down;
    writer w = {.scans = s, .at = room->plain.bytes};
    for (uint32_t mcu = 0, next = s->interval ? s->interval : mcus, restart = 0; mcu < mcus; mcu++) {
        if (mcu == next) {
            if (!append(&w, ones, room, used)) return FL_JPEG_DCT_MEMORY;
            uint8_t *out = (uint8_t *)room->out.bytes + *used;
            out[0] = 0xFF, out[1] = (uint8_t)(FL_JPEG_RST0 + restart++ % 8);
            *used += 2;
            next += s->interval;
            memset(w.dc, 0, sizeof w.dc);
            w.at = room->plain.bytes;
        }
        const size_t begun = (size_t)(w.at - (uint8_t *)room->plain.bytes);
        if (!fl_jpeg_dct_grow(&room->plain, begun, MCU_MOST)) return FL_JPEG_DCT_MEMORY;
        w.at = (uint8_t *)room->plain.bytes + begun;
        int16_t *blocks[FL_JPEG_BLOCKS_MAX];
        uint8_t components[FL_JPEG_BLOCKS_MAX];
        const uint32_t count = fl_jpeg_dct_scan_mcu(s, mcu, blocks, components);
        for (uint32_t i = 0; i < count; i++) put_block(&w, blocks[i], components[i]);
        if (w.missing) return FL_JPEG_DCT_REFUSED;
    }
    if (!append(&w, ones, room, used)) return FL_JPEG_DCT_MEMORY;
    return w.missing ? FL_JPEG_DCT_REFUSED : FL_JPEG_DCT_RESTORED;
}

static bool copy(fl_jpeg_dct_scans_room *room, size_t *used, const uint8_t *at, size_t size) {
    if (!fl_jpeg_dct_grow(&room->out, *used, size)) return false;
    memcpy((uint8_t *)room->out.bytes + *used, at, size);
    *used += size;
    return true;
}

/* Segments, each scan with its coded data behind it; up to the first scan, or from there to the end. */
static fl_jpeg_dct_restored write_part(fl_jpeg_dct_scans *s, const uint8_t *at, const uint8_t *end, bool ones,
                                       fl_jpeg_dct_scans_room *room, size_t *used) {
    const bool first = s->scans == 0;
    for (;;) {
        size_t length = 0;
        const fl_jpeg_dct_segment kind = fl_jpeg_dct_take(s, at, end, &length);
        if (kind == FL_JPEG_DCT_WRONG || (first && kind == FL_JPEG_DCT_END)) return FL_JPEG_DCT_REFUSED;
        if (kind == FL_JPEG_DCT_END) length = (size_t)(end - at);
        if (!copy(room, used, at, length)) return FL_JPEG_DCT_MEMORY;
        at += length;
        if (kind == FL_JPEG_DCT_END) return FL_JPEG_DCT_RESTORED;
        if (kind != FL_JPEG_DCT_SCAN) continue;
        const fl_jpeg_dct_restored done = write_scan(s, ones, room, used);
        if (done != FL_JPEG_DCT_RESTORED) return done;
        if (first) return at == end ? FL_JPEG_DCT_RESTORED : FL_JPEG_DCT_REFUSED;
    }
}

fl_jpeg_dct_restored fl_jpeg_dct_scans_write(fl_jpeg_dct_scans *s, fl_span head, fl_span tail, bool ones,
                                             fl_jpeg_dct_scans_room *room, size_t *written) {
    *written = 0;
    if (!copy(room, written, head.bytes, 2)) return FL_JPEG_DCT_MEMORY;
    const fl_jpeg_dct_restored done =
        write_part(s, head.bytes + 2, head.bytes + head.size, ones, room, written);
    return done == FL_JPEG_DCT_RESTORED
               ? write_part(s, tail.bytes, tail.bytes + tail.size, ones, room, written)
               : done;
}
