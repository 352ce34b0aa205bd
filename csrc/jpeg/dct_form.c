#include "jpeg/dct_form.h"

const uint8_t fl_jpeg_dct_magic[4] = {0xFC, 'D', 'C', 'T'};

bool fl_jpeg_dct_open(fl_jpeg_dct_form *form, const uint8_t *bytes, size_t size) {
    if (size < FL_JPEG_DCT_HEADER + FL_JPEG_DCT_PAD || !fl_jpeg_dct_is(bytes, size) ||
        bytes[4] != FL_JPEG_DCT_VERSION || bytes[5] > (FL_JPEG_DCT_ONES | FL_JPEG_DCT_PROGRESSIVE) ||
        bytes[6] == 0 || bytes[7] || bytes[25] || bytes[26] || bytes[27])
        return false;
    const size_t head = fl_bytes_le32(bytes + 8), tail = fl_bytes_le32(bytes + 12),
                 data = fl_bytes_le32(bytes + 16);
    size_t behind;
    if (__builtin_add_overflow(head, tail, &behind)) return false;
    if (behind < FL_JPEG_DCT_PAD) behind = FL_JPEG_DCT_PAD;
    if (behind > size - FL_JPEG_DCT_HEADER || data > size - FL_JPEG_DCT_HEADER - behind) return false;
    const uint8_t *end = bytes + (size - behind);
    *form = (fl_jpeg_dct_form){
        .head = {end, head},
        .tail = {end + head, tail},
        .data = {end - data, data},
        .orders_at = bytes + FL_JPEG_DCT_HEADER,
        .ones = bytes[5] & FL_JPEG_DCT_ONES,
        .progressive = bytes[5] & FL_JPEG_DCT_PROGRESSIVE,
        .every = bytes[6],
        .widths = {bytes[20], {bytes[21], bytes[22]}, {bytes[23], bytes[24]}},
    };
    return true;
}

bool fl_jpeg_dct_frame(const fl_jpeg_dct_form *form, fl_jpeg_tables *tables, fl_jpeg_frame *f) {
    const fl_span head = form->head;
    const bool read = form->progressive ? fl_jpeg_header_progressive(f, head.bytes, head.size)
                                        : fl_jpeg_header_read(tables, f, head.bytes, head.size);
    return read && f->data == head.size && fl_jpeg_header_usual(f);
}

void fl_jpeg_dct_orders_spread(fl_jpeg_dct_orders *o) {
    for (int j = 0; j < 64; j++) {
        o->order[j] = 0;
        for (int i = 0; i < FL_JPEG_DCT_ORDER_MOST; i++) o->order[j] += (uint16_t)(o->above[i] >> j & 1);
        o->bias[j] = (int8_t)(1 - (1 << o->order[j]));
    }
}

void fl_jpeg_dct_measure(fl_jpeg_dct_form *form, const fl_jpeg_frame *f) {
    const uint32_t h = f->count == 1 ? 1 : f->h[0], v = f->count == 1 ? 1 : f->v[0];
    form->rows = f->mcus_down;
    form->segments = (f->mcus_across - 1) / form->every + 1;
    form->lanes = form->row_bits = 0;
    uint8_t place = 0;
    for (uint8_t c = 0; c < f->count; c++)
        for (uint8_t row = 0; row < (c ? 1 : v); row++) {
            const uint8_t across = c ? 1 : (uint8_t)h;
            form->lane[form->lanes++] = (fl_jpeg_dct_lane){
                c, row, place, across, f->mcus_across * across, form->every * across, form->row_bits};
            place += across;
            form->row_bits +=
                form->widths.start + form->widths.dc[c > 0] + (form->segments - 1) * form->widths.step[c > 0];
        }
}

static bool read_orders(fl_jpeg_dct_orders *o, const uint8_t *at) {
    for (int i = 0; i < FL_JPEG_DCT_ORDER_MOST; i++) {
        o->above[i] = fl_bytes_le64(at + 8 * i);
        if (o->above[i] & 1 || (i && o->above[i] & ~o->above[i - 1])) return false;
    }
    fl_jpeg_dct_orders_spread(o);
    return true;
}

bool fl_jpeg_dct_lay_out(fl_jpeg_dct_form *form, const fl_jpeg_frame *f) {
    const fl_jpeg_dct_widths *w = &form->widths;
    const size_t orders = (size_t)f->count * FL_JPEG_DCT_ORDERS,
                 between = (size_t)(form->data.bytes - form->orders_at);
    if (w->start > FL_JPEG_DCT_WIDTH_MOST || between < orders) return false;
    for (int i = 0; i < 2; i++)
        if (w->dc[i] > FL_JPEG_DCT_WIDTH_MOST || w->step[i] > FL_JPEG_DCT_WIDTH_MOST) return false;
    fl_jpeg_dct_measure(form, f);
    form->table = form->orders_at + orders;
    if (between - orders != ((uint64_t)form->row_bits * form->rows + 7) / 8) return false;
    for (int c = 0; c < f->count; c++)
        if (!read_orders(&form->orders[c], form->orders_at + (size_t)c * FL_JPEG_DCT_ORDERS)) return false;
    return true;
}

/* A number of at most 32 bits of the table, which at least FL_JPEG_DCT_PAD bytes follow. */
static uint64_t number(const fl_jpeg_dct_form *form, uint64_t bit, unsigned width) {
    return fl_jpeg_dct_bits(form->table, bit) & ((1ull << width) - 1);
}

bool fl_jpeg_dct_find(const fl_jpeg_dct_form *form, uint32_t row, uint32_t lane, fl_jpeg_dct_strip *strip) {
    const fl_jpeg_dct_lane *l = &form->lane[lane];
    const uint8_t start_width = form->widths.start, dc_width = form->widths.dc[l->component > 0];
    const uint64_t row_at = (uint64_t)row * form->row_bits, at = row_at + l->bits;
    const uint64_t start = number(form, at, start_width), dc = number(form, at + start_width, dc_width);
    uint64_t end = form->data.size;
    if (lane + 1 < form->lanes) end = number(form, row_at + form->lane[lane + 1].bits, start_width);
    else if (row + 1 < form->rows) end = number(form, row_at + form->row_bits, start_width);
    const uint64_t lasts = (6 * (uint64_t)l->blocks + 7) / 8;
    if (end > form->data.size || start > end || dc + lasts > end - start) return false;
    *strip = (fl_jpeg_dct_strip){.form = form,
                                 .lane = l,
                                 .at = form->data.bytes,
                                 .dc = 8 * start,
                                 .lasts = 8 * (start + dc),
                                 .ac = 8 * (start + dc + lasts),
                                 .end = 8 * end,
                                 .steps = at + start_width + dc_width};
    return true;
}

uint64_t fl_jpeg_dct_step(const fl_jpeg_dct_strip *s, uint32_t segment) {
    const unsigned width = s->form->widths.step[s->lane->component > 0];
    return number(s->form, s->steps + (uint64_t)segment * width, width);
}

static inline int unfold(unsigned value) { return (int)(value >> 1) ^ -(int)(value & 1); }

bool fl_jpeg_dct_dc(const fl_jpeg_dct_strip *s, uint32_t from, uint32_t to, int16_t *out) {
    uint64_t bit = s->dc;
    unsigned sum = 0; /* wraps in damaged data */
    for (uint32_t block = 0; block < to; block += FL_JPEG_DCT_GROUP) {
        const uint32_t left = s->lane->blocks - block,
                       n = left < FL_JPEG_DCT_GROUP ? left : FL_JPEG_DCT_GROUP;
        const unsigned width = fl_jpeg_dct_bits(s->at, bit) & 15, mask = (1u << width) - 1;
        bit += 4;
        if (block >= from && block + n <= to) {
            for (uint32_t i = 0; i < n; i++, bit += width) {
                sum += (unsigned)unfold(fl_jpeg_dct_bits(s->at, bit) & mask);
                out[block - from + i] = (int16_t)sum;
            }
        } else {
            for (uint32_t i = 0; i < n; i++, bit += width) {
                sum += (unsigned)unfold(fl_jpeg_dct_bits(s->at, bit) & mask);
                if (block + i >= from && block + i < to) out[block - from + i] = (int16_t)sum;
            }
        }
        if (bit > s->lasts) return false;
    }
    return true;
}
