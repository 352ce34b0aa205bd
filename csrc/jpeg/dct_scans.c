#include "jpeg/dct_scans.h"

#include "jpeg/markers.h"

static bool take_tables(fl_jpeg_dct_scans *s, const uint8_t *p, size_t size) {
    while (size > 0) {
        if (size < 17 || p[0] >> 4 > 1 || (p[0] & 15) > 3) return false;
        const bool ac = p[0] >> 4;
        const int slot = p[0] & 15;
        fl_jpeg_codes *codes = ac ? &s->tables->ac[slot] : &s->tables->dc[slot];
        size_t count = 0;
        for (int i = 0; i < 16; i++) count += p[1 + i];
        if (count > 256 || count > size - 17) return false;
        codes->built = false;
        codes->symbol_count = (uint16_t)count;
        memcpy(codes->lengths, p + 1, 16);
        memcpy(codes->symbols, p + 17, count);
        if (!fl_jpeg_codes_number(codes)) return false;
        fl_jpeg_dct_number(codes, ac ? s->ac[slot] : s->dc[slot]);
        *(ac ? &s->acs : &s->dcs) |= 1u << slot;
        p += 17 + count;
        size -= 17 + count;
    }
    return true;
}

/* Components in the frame's order, their tables, and the scan's MCUs. */
static bool take_components(fl_jpeg_dct_scans *s, fl_jpeg_dct_scan_header *h, const uint8_t *p) {
    const fl_jpeg_frame *f = s->frame;
    for (int i = 0, c = 0; i < h->count; i++, c++) {
        while (c < f->count && f->id[c] != p[1 + 2 * i]) c++;
        if (c == f->count) return false;
        h->component[i] = (uint8_t)c;
        h->dc[i] = p[2 + 2 * i] >> 4, h->ac[i] = p[2 + 2 * i] & 15;
    }
    h->across = f->mcus_across, h->down = f->mcus_down;
    if (h->count == 1 && f->count > 1) { /* samples of the component, then blocks: T.81 A.1.1 and A.2.2 */
        const int c = h->component[0];
        h->across = ((f->width * f->h[c] + f->h[0] - 1) / f->h[0] + 7) / 8;
        h->down = ((f->height * f->v[c] + f->v[0] - 1) / f->v[0] + 7) / 8;
    }
    return true;
}

/* Notes the bits that a scan brings. False for bits that are there already, or come before others that must
 * be there. */
static bool note_bits(fl_jpeg_dct_scans *s, const fl_jpeg_dct_scan_header *h) {
    for (int i = 0; i < h->count; i++) {
        uint8_t *missing = s->missing[h->component[i]];
        if (h->from && missing[0] == FL_JPEG_DCT_UNSENT) return false;
        for (int k = h->from; k <= h->to; k++) {
            if (missing[k] != (h->high ? h->high : FL_JPEG_DCT_UNSENT)) return false;
            missing[k] = h->low;
        }
    }
    return true;
}

static bool take_scan(fl_jpeg_dct_scans *s, const uint8_t *p, size_t size) {
    fl_jpeg_dct_scan_header h = {.count = size ? p[0] : 0};
    if (h.count < 1 || h.count > s->frame->count || size != 4 + 2 * (size_t)h.count ||
        !take_components(s, &h, p))
        return false;
    p += 1 + 2 * h.count;
    h.from = p[0], h.to = p[1], h.high = p[2] >> 4, h.low = p[2] & 15;
    if (h.from ? h.count > 1 || h.to > 63 || h.to < h.from : h.to != 0) return false;
    if (h.low > 13 || (h.high && h.high != h.low + 1)) return false;
    for (int i = 0; i < h.count; i++) {
        if (!h.from && !h.high && (h.dc[i] > 3 || !(s->dcs >> h.dc[i] & 1))) return false;
        if (h.from && (h.ac[i] > 3 || !(s->acs >> h.ac[i] & 1))) return false;
    }
    s->scan = h;
    return ++s->scans <= FL_JPEG_DCT_SCANS_MOST && note_bits(s, &h);
}

fl_jpeg_dct_segment fl_jpeg_dct_take(fl_jpeg_dct_scans *s, const uint8_t *at, const uint8_t *end,
                                     size_t *length) {
    if (fl_jpeg_marker_at(at, end, FL_JPEG_EOI)) return *length = 2, FL_JPEG_DCT_END;
    if (end - at < 4 || at[0] != 0xFF) return FL_JPEG_DCT_WRONG;
    const uint8_t marker = at[1], *p = at + 4;
    *length = 2 + ((size_t)at[2] << 8 | at[3]);
    if (*length < 4 || *length > (size_t)(end - at)) return FL_JPEG_DCT_WRONG;
    const size_t size = *length - 4;
    bool good = true;
    if (marker == FL_JPEG_SOS) return take_scan(s, p, size) ? FL_JPEG_DCT_SCAN : FL_JPEG_DCT_WRONG;
    if (marker == FL_JPEG_DHT) good = take_tables(s, p, size);
    else if (marker == FL_JPEG_DRI) {
        good = size == 2;
        if (good) s->interval = (uint32_t)p[0] << 8 | p[1];
    } else if (marker == FL_JPEG_DQT || marker == FL_JPEG_SOF2) good = s->scans == 0;
    else good = (marker >= FL_JPEG_APP0 && marker <= FL_JPEG_APP15) || marker == FL_JPEG_COM;
    return good ? FL_JPEG_DCT_OTHER : FL_JPEG_DCT_WRONG;
}

bool fl_jpeg_dct_complete(const fl_jpeg_dct_scans *s) {
    for (int c = 0; c < s->frame->count; c++)
        for (int k = 0; k < 64; k++)
            if (s->missing[c][k]) return false;
    return true;
}

/* Block of a component, whose first in an MCU is `place`. */
static int16_t *block_at(const fl_jpeg_dct_scans *s, uint32_t place, uint32_t h, uint32_t v, uint32_t x,
                         uint32_t y) {
    const size_t mcu = (size_t)(y / v) * s->frame->mcus_across + x / h;
    return s->blocks + 64 * (mcu * s->frame->block_count + place + y % v * h + x % h);
}

uint32_t fl_jpeg_dct_scan_mcu(const fl_jpeg_dct_scans *s, uint32_t mcu, int16_t *blocks[FL_JPEG_BLOCKS_MAX],
                              uint8_t components[FL_JPEG_BLOCKS_MAX]) {
    const fl_jpeg_frame *f = s->frame;
    const fl_jpeg_dct_scan_header *scan = &s->scan;
    const uint32_t column = mcu % scan->across, row = mcu / scan->across;
    uint32_t n = 0;
    for (uint8_t i = 0; i < scan->count; i++) {
        const uint8_t c = scan->component[i];
        const uint32_t h = f->count == 1 ? 1 : f->h[c], v = f->count == 1 ? 1 : f->v[c];
        const uint32_t place = c ? f->block_count - f->count + c : 0; /* chroma has a block each */
        const uint32_t wide = scan->count == 1 ? 1 : h, high = scan->count == 1 ? 1 : v;
        for (uint32_t y = 0; y < high; y++)
            for (uint32_t x = 0; x < wide; x++) {
                blocks[n] = block_at(s, place, h, v, column * wide + x, row * high + y);
                components[n++] = i;
            }
    }
    return n;
}
