#include "jpeg/dct_scans_read.h"

#include "jpeg/dct_read.h"
#include "jpeg/huffman.h"
#include "jpeg/markers.h"

/* A scan that is being read. */
typedef struct reader {
    const fl_jpeg_dct_scans *scans;
    fl_jpeg_bits bits;
    int dc[3];
    uint32_t ended; /* blocks to come that have ended already */
} reader;

static unsigned take(reader *r, unsigned count) {
    fl_jpeg_refill(&r->bits);
    const unsigned value = count ? (unsigned)(r->bits.bits >> (64 - count)) : 0;
    fl_jpeg_take(&r->bits, count);
    return value;
}

/* -1: no such code. */
static int take_symbol(reader *r, const fl_jpeg_codes *codes) {
    fl_jpeg_refill(&r->bits);
    for (int length = 1; length <= 16; length++) {
        const int32_t code = (int32_t)(r->bits.bits >> (64 - length));
        if (code > codes->last[length]) continue;
        fl_jpeg_take(&r->bits, (unsigned)length);
        return codes->symbols[code + codes->offset[length]];
    }
    return -1;
}

static int take_value(reader *r, unsigned size) {
    fl_jpeg_refill(&r->bits);
    const int value = fl_jpeg_extend(r->bits.bits, size);
    fl_jpeg_take(&r->bits, size);
    return value;
}

static bool read_dc(reader *r, int16_t *block, uint8_t i) {
    const fl_jpeg_dct_scan_header *h = &r->scans->scan;
    if (h->high) {
        *block = (int16_t)(*block | (int)take(r, 1) << h->low);
        return true;
    }
    const int size = take_symbol(r, &r->scans->tables->dc[h->dc[i]]);
    if (size < 0 || size > 15) return false;
    if (size) r->dc[i] += take_value(r, (unsigned)size);
    if (r->dc[i] != (int16_t)r->dc[i]) return false;
    const int value = r->dc[i] * (1 << h->low);
    *block = (int16_t)value;
    return value == (int16_t)value;
}

/* A run of ended blocks, of which this is the first. */
static void begin_run(reader *r, int zeros) { r->ended = (1u << zeros) + take(r, (unsigned)zeros); }

static bool read_ac(reader *r, int16_t *block) {
    const fl_jpeg_dct_scan_header *h = &r->scans->scan;
    for (int k = h->from; !r->ended && k <= h->to; k++) {
        const int symbol = take_symbol(r, &r->scans->tables->ac[h->ac[0]]), zeros = symbol >> 4,
                  size = symbol & 15;
        if (symbol < 0) return false;
        if (!size && zeros < 15) {
            begin_run(r, zeros);
            break;
        }
        k += zeros;
        if (k > h->to) return false;
        if (!size) continue;
        const int value = take_value(r, (unsigned)size) * (1 << h->low);
        if (value != (int16_t)value) return false;
        block[k] = (int16_t)value;
    }
    if (r->ended) r->ended--;
    return true;
}

/* Corrects a coefficient that is there already. */
static void correct(reader *r, int16_t *value) {
    if (take(r, 1)) *value = (int16_t)(*value + (*value < 0 ? -1 : 1) * (1 << r->scans->scan.low));
}

static bool refine_ac(reader *r, int16_t *block) {
    const fl_jpeg_dct_scan_header *h = &r->scans->scan;
    int k = h->from;
    for (; !r->ended && k <= h->to; k++) {
        const int symbol = take_symbol(r, &r->scans->tables->ac[h->ac[0]]), size = symbol & 15;
        int zeros = symbol >> 4, value = 0;
        if (symbol < 0 || size > 1) return false;
        if (!size && zeros < 15) {
            begin_run(r, zeros);
            break;
        }
        if (size) value = (take(r, 1) ? 1 : -1) * (1 << h->low);
        for (; k <= h->to; k++) {
            if (block[k]) correct(r, &block[k]);
            else if (--zeros < 0) break;
        }
        if (k > h->to) return false;
        block[k] = (int16_t)value;
    }
    if (!r->ended) return true;
    for (; k <= h->to; k++)
        if (block[k]) correct(r, &block[k]);
    r->ended--;
    return true;
}

static bool read_block(reader *r, int16_t *block, uint8_t i) {
    const fl_jpeg_dct_scan_header *h = &r->scans->scan;
    return !h->from ? read_dc(r, block, i) : h->high ? refine_ac(r, block) : read_ac(r, block);
}

/* The coded data at [at, end). Returns where they end, or NULL. */
static const uint8_t *read_scan(const fl_jpeg_dct_scans *s, const uint8_t *at, const uint8_t *end,
                                uint8_t *plain, unsigned *fill) {
    const uint32_t mcus = s->scan.across * s->scan.down;
    reader r = {.scans = s};
    const uint8_t *plain_end = plain;
    for (uint32_t mcu = 0, next = 0, restart = 0; mcu < mcus; mcu++) {
        if (mcu == next) {
            size_t size;
            if (mcu) {
                if (r.ended || !fl_jpeg_marker_at(at, end, (uint8_t)(FL_JPEG_RST0 + restart++ % 8)))
                    return NULL;
                at += 2;
            }
            at = fl_jpeg_unstuff(at, end, plain, &size);
            plain_end = plain + size;
            r = (reader){.scans = s, .bits = {plain, 0, 0}};
            next = s->interval ? mcu + s->interval : mcus;
        }
        int16_t *blocks[FL_JPEG_BLOCKS_MAX];
        uint8_t components[FL_JPEG_BLOCKS_MAX];
        const uint32_t count = fl_jpeg_dct_scan_mcu(s, mcu, blocks, components);
        for (uint32_t i = 0; i < count; i++)
            if (!read_block(&r, blocks[i], components[i])) return NULL;
        const int64_t rest = (plain_end - r.bits.at) * 8 + (int64_t)r.bits.left;
        if (rest < 0) return NULL;
        if (mcu + 1 != next && mcu + 1 != mcus) continue;
        if (rest >= 8) return NULL;
        if (plain_end > plain) fl_jpeg_dct_note_fill(plain_end - 1, (unsigned)rest, fill);
    }
    return r.ended ? NULL : at;
}

bool fl_jpeg_dct_scans_read(fl_jpeg_dct_scans *s, const uint8_t *bytes, size_t size, uint8_t *plain,
                            uint8_t *tail, size_t *tail_size, bool *ones) {
    const uint8_t *at = bytes + 2, *end = bytes + size;
    unsigned fill = 3;
    *tail_size = 0;
    for (;;) {
        size_t length = 0;
        const bool first = s->scans == 0;
        const fl_jpeg_dct_segment kind = fl_jpeg_dct_take(s, at, end, &length);
        if (kind == FL_JPEG_DCT_WRONG) return false;
        if (kind == FL_JPEG_DCT_END) length = (size_t)(end - at); /* and whatever follows */
        if (!first) {
            memcpy(tail + *tail_size, at, length);
            *tail_size += length;
        }
        at += length;
        if (kind == FL_JPEG_DCT_END) break;
        if (kind == FL_JPEG_DCT_SCAN && !(at = read_scan(s, at, end, plain, &fill))) return false;
    }
    *ones = fill >> 1;
    return fill && fl_jpeg_dct_complete(s);
}
