/* The markers of fl_entropy.h's files. Source of the rules: ITU-T T.81, annex B. */
#include "fl_entropy.h"

#include <stdlib.h>
#include <string.h>

#include "fl_entropy_walk.h"

enum {
    SOF0 = 0xC0,
    SOF1 = 0xC1,
    DHT = 0xC4,
    SOI = 0xD8,
    SOS = 0xDA,
    DQT = 0xDB,
    DRI = 0xDD,
    APP0 = 0xE0,
    APP14 = 0xEE,
    APP15 = 0xEF,
    COM = 0xFE
};

struct fl_entropy {
    fl_codes dc[4], ac[4];
    fl_walk_room room;
};

typedef struct fl_frame {
    uint32_t width, height, interval;
    uint8_t count, id[4], h[4], v[4], quant[4];
    fl_mcu mcu;
    uint32_t mcus;
    unsigned quants, dcs, acs; /* tables defined so far, one bit each */
    bool framed;
} fl_frame;

fl_code fl_entropy_create(fl_entropy **out, fl_error *err) {
    *out = calloc(1, sizeof **out);
    if (!*out) return fl_fail(err, FL_ENOMEM, "%zu bytes for Huffman tables", sizeof **out);
    return FL_OK;
}

void fl_entropy_free(fl_entropy *entropy) {
    if (entropy) fl_walk_free(&entropy->room);
    free(entropy);
}

static bool read_tables(fl_entropy *e, fl_frame *f, const uint8_t *p, size_t size) {
    while (size > 0) {
        if (size < 17) return false;
        int count = 0, slot = p[0] & 15;
        bool ac = p[0] >> 4;
        for (int i = 0; i < 16; i++) count += p[1 + i];
        if (p[0] >> 4 > 1 || slot > 3 || count > 256 || (size_t)count > size - 17) return false;
        fl_codes *codes = ac ? &e->ac[slot] : &e->dc[slot];
        if (!codes->built || codes->symbol_count != count || memcmp(codes->lengths, p + 1, 16) != 0 ||
            memcmp(codes->symbols, p + 17, (size_t)count) != 0) {
            codes->built = false;
            codes->symbol_count = (uint16_t)count;
            memcpy(codes->lengths, p + 1, 16);
            memcpy(codes->symbols, p + 17, (size_t)count);
            if (!fl_codes_build(codes, ac)) return false;
        }
        *(ac ? &f->acs : &f->dcs) |= 1u << slot;
        p += 17 + count;
        size -= 17 + (size_t)count;
    }
    return true;
}

static bool read_quants(fl_frame *f, const uint8_t *p, size_t size) {
    while (size > 0) {
        size_t need = p[0] >> 4 ? 129 : 65;
        if (p[0] >> 4 > 1 || (p[0] & 15) > 3 || size < need) return false;
        f->quants |= 1u << (p[0] & 15);
        p += need;
        size -= need;
    }
    return true;
}

static bool read_frame(fl_frame *f, const uint8_t *p, size_t size) {
    if (f->framed || size < 6 || p[0] != 8 || (p[5] != 1 && p[5] != 3) || size != 6 + 3 * (size_t)p[5]) return false;
    f->framed = true;
    f->height = (uint32_t)p[1] << 8 | p[2];
    f->width = (uint32_t)p[3] << 8 | p[4];
    f->count = p[5];
    for (int i = 0; i < f->count; i++) {
        f->id[i] = p[6 + 3 * i];
        f->h[i] = p[7 + 3 * i] >> 4;
        f->v[i] = p[7 + 3 * i] & 15;
        f->quant[i] = p[8 + 3 * i];
        if (f->h[i] < 1 || f->h[i] > 4 || f->v[i] < 1 || f->v[i] > 4 || f->quant[i] > 3) return false;
        for (int j = 0; j < i; j++) {
            if (f->id[j] == f->id[i]) return false;
        }
    }
    return f->width > 0 && f->height > 0;
}

/* The scan's header, when it covers the whole frame: blocks of an MCU with their tables, and the number of MCUs. */
static bool read_scan(const fl_entropy *e, fl_frame *f, const uint8_t *p, size_t size) {
    if (!f->framed || size != 4 + 2 * (size_t)f->count || p[0] != f->count) return false;
    uint32_t across = 1, down = 1;
    for (int i = 0; i < f->count; i++) {
        const uint8_t id = p[1 + 2 * i], dc = p[2 + 2 * i] >> 4, ac = p[2 + 2 * i] & 15;
        if (id != f->id[i] || dc > 3 || ac > 3) return false;
        if (!(f->dcs >> dc & 1) || !(f->acs >> ac & 1) || !(f->quants >> f->quant[i] & 1)) return false;
        uint32_t blocks = f->count == 1 ? 1 : (uint32_t)f->h[i] * f->v[i];
        if (f->mcu.blocks + blocks > FL_MCU_BLOCKS) return false;
        for (uint32_t b = 0; b < blocks; b++) {
            f->mcu.dc[f->mcu.blocks] = &e->dc[dc];
            f->mcu.ac[f->mcu.blocks++] = &e->ac[ac];
        }
        if (f->count > 1 && f->h[i] > across) across = f->h[i];
        if (f->count > 1 && f->v[i] > down) down = f->v[i];
    }
    const uint8_t *spectral = p + 1 + 2 * f->count;
    if (spectral[0] != 0 || spectral[1] != 63 || spectral[2] != 0) return false;
    f->mcus = ((f->width + 8 * across - 1) / (8 * across)) * ((f->height + 8 * down - 1) / (8 * down));
    return true;
}

/* Markers that tell libjpeg the colour space, with values that it takes without a word. */
static bool plain_application(uint8_t marker, const uint8_t *p, size_t size) {
    if (marker == APP0 && size >= 14 && memcmp(p, "JFIF", 5) == 0) return p[5] == 1;
    if (marker == APP14 && size >= 12 && memcmp(p, "Adobe", 5) == 0) return p[11] <= 1;
    return true;
}

bool fl_entropy_sound(fl_entropy *e, const uint8_t *bytes, size_t size) {
    fl_frame f;
    memset(&f, 0, sizeof f);
    if (size < 4 || bytes[0] != 0xFF || bytes[1] != SOI) return false;
    size_t at = 2;
    while (size - at >= 4) {
        uint8_t marker = bytes[at + 1];
        size_t length = (size_t)bytes[at + 2] << 8 | bytes[at + 3];
        if (bytes[at] != 0xFF || length < 2 || length > size - at - 2) return false;
        const uint8_t *p = bytes + at + 4;
        at += 2 + length;
        size_t rest = length - 2;
        if (marker == DHT) {
            if (!read_tables(e, &f, p, rest)) return false;
        } else if (marker == DQT) {
            if (!read_quants(&f, p, rest)) return false;
        } else if (marker == SOF0 || marker == SOF1) {
            if (!read_frame(&f, p, rest)) return false;
        } else if (marker == DRI) {
            if (rest != 2) return false;
            f.interval = (uint32_t)p[0] << 8 | p[1];
        } else if (marker == SOS) {
            return read_scan(e, &f, p, rest) && fl_walk_scan(&e->room, &f.mcu, f.mcus, f.interval, bytes + at, bytes + size);
        } else if ((marker >= APP0 && marker <= APP15) || marker == COM) {
            if (!plain_application(marker, p, rest)) return false;
        } else {
            return false;
        }
    }
    return false;
}
