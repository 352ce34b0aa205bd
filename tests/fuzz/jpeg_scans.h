/* The scans of a random JPEG: which components and coefficients each holds, and the coded blocks. */
#ifndef JPEG_SCANS_H
#define JPEG_SCANS_H

#include "jpeg_bits.h"

typedef struct component {
    uint32_t h, v;
    uint32_t across, down; /* blocks, those included that fill up the last MCUs */
    uint32_t own_across, own_down; /* blocks of a scan of this component alone */
    uint64_t *known;       /* of each block: the coefficients, in zigzag order, that are not zero */
    uint8_t low[64];       /* the lowest bit sent of each coefficient; NOT_SENT */
} component;

enum { NOT_SENT = 14 };

typedef struct picture {
    uint32_t width, height, count, interval, densities;
    uint32_t mcus_across, mcus_down;
    bool progressive, lawful; /* lawful: no deliberate damage of coded data */
    component part[4];
} picture;

/* A scan in progress. */
typedef struct scan {
    picture *p;
    jpeg_out *o;
    huffman dc[2], ac[2];
    uint32_t from, to, high, low; /* Ss, Se, Ah, Al */
    uint32_t end_run;             /* blocks whose bands have ended already */
    uint32_t density;             /* of 8: how soon blocks end */
    uint32_t mcu, restarts;
} scan;

static void measure_picture(picture *p) {
    uint32_t h = 1, v = 1;
    for (uint32_t i = 0; i < p->count; i++)
        h = p->part[i].h > h ? p->part[i].h : h, v = p->part[i].v > v ? p->part[i].v : v;
    p->mcus_across = (p->width + 8 * h - 1) / (8 * h), p->mcus_down = (p->height + 8 * v - 1) / (8 * v);
    for (uint32_t i = 0; i < p->count; i++) {
        component *c = &p->part[i];
        c->across = p->mcus_across * c->h, c->down = p->mcus_down * c->v;
        c->own_across = (p->width * c->h + 8 * h - 1) / (8 * h),
        c->own_down = (p->height * c->v + 8 * v - 1) / (8 * v);
        c->known = calloc((size_t)c->across * c->down, sizeof *c->known);
        CHECK(c->known != NULL);
        memset(c->low, NOT_SENT, sizeof c->low);
    }
}

static void free_picture(picture *p) {
    for (uint32_t i = 0; i < p->count; i++) free(p->part[i].known);
}

/* ---- blocks */

static void put_value(scan *s, unsigned size) {
    uint32_t value = noise() >> 8;
    if (noise() % 8 == 0) value = value & 1 ? 0xFFFF : 0; /* the ends of the category */
    put_bits(s->o, value, size);
}

static void put_dc(scan *s, const huffman *t) {
    uint8_t symbol = any_symbol(t);
    for (int i = 0; i < 3 && symbol > 6; i++)
        symbol = any_symbol(t); /* sums of differences soon leave what an encoder writes */
    put_symbol(s->o, t, symbol);
    put_value(s, symbol);
}

/* A symbol that covers at most `room` coefficients; if none is found, any. */
static uint8_t fitting_symbol(const huffman *t, uint32_t room) {
    uint8_t symbol = any_symbol(t);
    for (int i = 0; i < 40; i++, symbol = any_symbol(t)) {
        const uint32_t size = symbol & 15, run = symbol >> 4;
        if (size ? run + 1 <= room : run == 15 ? room >= 16 : true) return symbol;
    }
    for (uint32_t i = 0; i < t->count; i++)
        if ((t->symbols[i] & 15) && (uint32_t)(t->symbols[i] >> 4) + 1 <= room) return t->symbols[i];
    return symbol;
}

static void put_sequential_ac(scan *s, const huffman *t) {
    for (uint32_t k = 1; k < 64;) {
        uint8_t symbol = fitting_symbol(t, 64 - k);
        if (noise() % 8 < s->density && t->length[0]) symbol = 0;
        if (!s->p->lawful && noise() % 256 == 0) symbol = any_symbol(t); /* may run over the block's end */
        put_symbol(s->o, t, symbol);
        put_value(s, symbol & 15);
        if ((symbol & 15) == 0 && symbol != 0xF0) return;
        k += symbol == 0xF0 ? 16 : (symbol >> 4) + 1u;
    }
}

static void put_first_ac(scan *s, const huffman *t, uint64_t *known) {
    if (s->end_run) {
        s->end_run--;
        return;
    }
    for (uint32_t k = s->from; k <= s->to;) {
        uint8_t symbol = fitting_symbol(t, s->to + 1 - k);
        if (noise() % 8 < s->density && t->length[0]) symbol = 0;
        const uint32_t run = symbol >> 4, size = symbol & 15;
        put_symbol(s->o, t, symbol);
        if (size == 0 && run < 15) {
            const uint32_t more = noise() & ((1u << run) - 1);
            put_bits(s->o, more, run);
            s->end_run = (1u << run) + more - 1;
            return;
        }
        put_value(s, size);
        k += run + 1;
        if (size && k <= 64) *known |= (uint64_t)1 << (k - 1);
    }
}

/* A correction bit for each coefficient from k on that is known, until `zeros` others have been passed;
 * returns the next one's place. */
static uint32_t put_corrections(scan *s, uint64_t known, uint32_t k, uint32_t zeros) {
    for (; k <= s->to; k++) {
        if (known >> k & 1) put_bits(s->o, noise(), 1);
        else if (zeros-- == 0) break;
    }
    return k;
}

static uint32_t count_zeros(uint64_t known, uint32_t from, uint32_t to) {
    uint32_t zeros = 0;
    for (uint32_t k = from; k <= to; k++) zeros += !(known >> k & 1);
    return zeros;
}

static void put_refining_ac(scan *s, const huffman *t, uint64_t *known) {
    uint32_t k = s->from;
    if (s->end_run) {
        s->end_run--;
        put_corrections(s, *known, k, 64);
        return;
    }
    while (k <= s->to) {
        uint8_t symbol = fitting_symbol(t, count_zeros(*known, k, s->to));
        if ((noise() % 8 < s->density || !count_zeros(*known, k, s->to)) && t->length[0]) symbol = 0;
        const uint32_t run = symbol >> 4, size = symbol & 15;
        put_symbol(s->o, t, symbol);
        if (size == 0 && run < 15) {
            const uint32_t more = noise() & ((1u << run) - 1);
            put_bits(s->o, more, run);
            s->end_run = (1u << run) + more - 1;
            put_corrections(s, *known, k, 64);
            return;
        }
        put_value(s, size ? 1 : 0);
        k = put_corrections(s, *known, k, run);
        if (size && k <= s->to) *known |= (uint64_t)1 << k;
        k++;
    }
}

static void put_block(scan *s, uint32_t index, uint32_t x, uint32_t y) {
    component *c = &s->p->part[index];
    const huffman *dc = &s->dc[index > 0], *ac = &s->ac[index > 0];
    uint64_t *known = &c->known[(size_t)y * c->across + x];
    if (!s->p->progressive) {
        put_dc(s, dc);
        put_sequential_ac(s, ac);
    } else if (s->from == 0) {
        if (s->high) put_bits(s->o, noise(), 1);
        else put_dc(s, dc);
    } else if (s->high) {
        put_refining_ac(s, ac, known);
    } else {
        put_first_ac(s, ac, known);
    }
}

/* Before each MCU: a restart where one is due, and sometimes where none is. */
static void put_restart(scan *s) {
    const picture *p = s->p;
    const bool due = p->interval && s->mcu && s->mcu % p->interval == 0;
    s->mcu++;
    if (!due && (p->lawful || noise() % 512)) return;
    align_bits(s->o);
    s->end_run = 0;
    if (!p->lawful && noise() % 8 == 0) {
        if (noise() % 2) return;
        put_byte(s->o, noise());
    }
    put_marker(s->o, 0xD0 + (p->lawful || noise() % 8 ? s->restarts : noise()) % 8);
    s->restarts++;
}

static void put_mcus(scan *s, const uint8_t *parts, uint32_t count) {
    picture *p = s->p;
    if (count == 1) {
        component *c = &p->part[parts[0]];
        for (uint32_t y = 0; y < c->own_down; y++)
            for (uint32_t x = 0; x < c->own_across; x++) {
                put_restart(s);
                put_block(s, parts[0], x, y);
            }
        return;
    }
    for (uint32_t m = 0; m < p->mcus_across * p->mcus_down; m++) {
        put_restart(s);
        for (uint32_t i = 0; i < count; i++) {
            const component *c = &p->part[parts[i]];
            for (uint32_t b = 0; b < c->h * c->v; b++)
                put_block(s, parts[i], m % p->mcus_across * c->h + b % c->h,
                          m / p->mcus_across * c->v + b / c->h);
        }
    }
}

/* ---- scans */

static void put_scan(jpeg_out *o, picture *p, const uint8_t *parts, uint32_t count, const uint32_t band[4]) {
    scan s = {.p = p,
              .o = o,
              .from = band[0],
              .to = band[1],
              .high = band[2],
              .low = band[3],
              .density = p->densities % 8};
    const table_use use = !p->progressive ? FOR_AC : s.high ? FOR_REFINING : FOR_PROGRESSIVE_AC;
    const bool two = below(2);
    p->densities = p->densities * 5 + 1;
    for (uint32_t i = 0; i < 2; i++) {
        s.dc[i] = i && !two ? s.dc[0] : make_table(FOR_DC);
        s.ac[i] = i && !two ? s.ac[0] : make_table(use);
        if (s.from == 0 && !s.high) put_table(o, &s.dc[i], i);
        if (s.to > 0) put_table(o, &s.ac[i], 0x10 | i);
    }
    const size_t start = begin_segment(o, 0xDA);
    put_byte(o, count);
    for (uint32_t i = 0; i < count; i++) {
        put_byte(o, parts[i] + 1u);
        put_byte(o, p->lawful || noise() % 32 ? parts[i] > 0 ? 0x11 : 0 : noise());
    }
    put_byte(o, s.from);
    put_byte(o, p->lawful || noise() % 32 ? s.to : noise() % 70);
    put_byte(o, s.high << 4 | s.low);
    end_segment(o, start);
    put_mcus(&s, parts, count);
    align_bits(o);
    for (uint32_t i = 0; i < count; i++)
        for (uint32_t k = s.from; k <= s.to; k++) p->part[parts[i]].low[k] = (uint8_t)s.low;
}

static void put_sequential_scans(jpeg_out *o, picture *p) {
    static const uint8_t all[4] = {0, 1, 2, 3};
    static const uint32_t band[4] = {0, 63, 0, 0};
    if (below(6)) {
        put_scan(o, p, all, p->count, band);
        return;
    }
    for (uint32_t i = 0; i < p->count;) { /* neighbours together or each alone */
        const uint32_t count = 1 + below(p->count - i);
        put_scan(o, p, all + i, count, band);
        i += count;
    }
}

/* One scan of one component's band that the last scans allow, or at random where damage is meant. */
static void put_band(jpeg_out *o, picture *p, bool last) {
    const uint8_t part = (uint8_t)below(p->count);
    component *c = &p->part[part];
    uint32_t from = last ? 1 : 1 + below(63), to = from;
    const uint8_t before = c->low[from];
    while (to < 63 && c->low[to + 1] == before && (last || noise() % 24)) to++;
    uint32_t low = before == NOT_SENT ? last ? 0 : below(3) : before ? before - 1u : 0;
    if (before == 0 && p->lawful) return;
    const uint32_t band[4] = {from, to, before == NOT_SENT ? 0 : before, low};
    put_scan(o, p, &part, 1, band);
}

static void put_progressive_scans(jpeg_out *o, picture *p) {
    static const uint8_t all[4] = {0, 1, 2, 3};
    uint32_t dc[4] = {0, 0, 0, below(3)};
    put_scan(o, p, all, p->count, dc);
    for (uint32_t n = below(7); n; n--) put_band(o, p, false);
    while (dc[3] && below(4)) {
        dc[2] = dc[3]--;
        put_scan(o, p, all, p->count, dc);
    }
    if (below(2)) return; /* stops short of full precision: libjpeg smooths */
    for (uint8_t part = 0; part < p->count; part++)
        for (uint32_t from = 1, tries = 0; from < 64 && tries < 40; tries++) {
            const uint8_t before = p->part[part].low[from];
            uint32_t to = from;
            while (to < 63 && p->part[part].low[to + 1] == before) to++;
            if (before == 0) {
                from = to + 1;
                continue;
            }
            const uint32_t band[4] = {from, to, before == NOT_SENT ? 0 : before,
                                      before == NOT_SENT ? 0 : before - 1u};
            put_scan(o, p, &part, 1, band);
        }
}

#endif
