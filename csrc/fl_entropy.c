/* The walk of fl_entropy.h. Source of the rules: ITU-T T.81, annexes B (markers), C (codes from lengths), F.2 (sequential decoding). */
#include "fl_entropy.h"

#include <stdlib.h>
#include <string.h>

enum {
    SOF0 = 0xC0, SOF1 = 0xC1, DHT = 0xC4, RST0 = 0xD0, SOI = 0xD8, EOI = 0xD9, SOS = 0xDA, DQT = 0xDB, DRI = 0xDD, APP0 = 0xE0,
    APP14 = 0xEE, APP15 = 0xEF, COM = 0xFE
};
enum { WINDOW = 12, ENTRIES = 1 << WINDOW, BLOCK = 64, BLOCKS_MAX = 10 /* T.81 B.2.3, and libjpeg's own limit */ };

/* What a window of WINDOW bits starts with. Bits are code and value bits together; run counts coefficients that
 * they cover. first: one symbol; all: as many as lie in the window wholly. bits = 0: no code of at most WINDOW bits. */
typedef struct fl_step {
    uint8_t first_bits, first_run, all_bits, all_run;
} fl_step;

/* A run of EOB stands for the whole rest of the block: larger than any sum of other runs in a window, with room to add them. */
enum { RUN_EOB = 128 };

typedef struct fl_codes {
    uint8_t lengths[16], symbols[256]; /* as in the file: the key of this cache */
    uint16_t symbol_count;
    bool built;
    int32_t last[17]; /* the largest code of each length, -1 for none */
    int32_t offset[17]; /* symbols[code + offset[length]] */
    fl_step step[ENTRIES];
} fl_codes;

struct fl_entropy {
    fl_codes dc[4], ac[4];
};

typedef struct fl_frame {
    uint32_t width, height, interval;
    uint8_t count, id[4], h[4], v[4], quant[4];
    uint8_t block_count, block_dc[BLOCKS_MAX], block_ac[BLOCKS_MAX];
    uint32_t mcus;
    unsigned quants, dcs, acs; /* tables defined so far, one bit each */
    bool framed;
} fl_frame;

/* Bits are read from the top of `bits`; `left` of them are valid. */
typedef struct fl_bits {
    const uint8_t *at, *end;
    uint64_t bits;
    int left;
} fl_bits;

fl_code fl_entropy_create(fl_entropy **out, fl_error *err) {
    *out = calloc(1, sizeof **out);
    if (!*out) return fl_fail(err, FL_ENOMEM, "%zu bytes for Huffman tables", sizeof **out);
    return FL_OK;
}

void fl_entropy_free(fl_entropy *entropy) {
    free(entropy);
}

/* Bits that follow a code: the size category in the low half of its symbol. Run: the zeros in the high half and the coefficient. */
static void symbol_meaning(uint8_t symbol, bool ac, int *value_bits, int *run) {
    int size = symbol & 15, zeros = symbol >> 4;
    *value_bits = ac ? size : symbol;
    *run = !ac ? 1 : size ? zeros + 1 : zeros == 15 ? 16 : RUN_EOB;
}

/* One symbol from the top of a window, looking at no more than `have` bits. False when it does not fit in them. */
static bool symbol_at(const fl_codes *codes, bool ac, uint32_t window, int have, int *bits, int *run) {
    for (int length = 1; length <= have; length++) {
        int32_t code = (int32_t)(window >> (WINDOW - length));
        if (code > codes->last[length]) continue;
        int value_bits;
        symbol_meaning(codes->symbols[code + codes->offset[length]], ac, &value_bits, run);
        *bits = length + value_bits;
        return true;
    }
    return false;
}

static fl_step step_of(const fl_codes *codes, bool ac, uint32_t window) {
    fl_step step = {0, 0, 0, 0};
    int bits, run;
    if (!symbol_at(codes, ac, window, WINDOW, &bits, &run)) return step;
    step.first_bits = step.all_bits = (uint8_t)bits;
    step.first_run = step.all_run = (uint8_t)run;
    while (ac && step.all_run < RUN_EOB && step.all_bits < WINDOW) {
        uint32_t rest = (window << step.all_bits) & (ENTRIES - 1);
        int have = WINDOW - step.all_bits;
        if (!symbol_at(codes, ac, rest, have, &bits, &run) || bits > have) break;
        if (run != RUN_EOB && step.all_run + run >= RUN_EOB) break; /* sums of runs must stay below what marks the end */
        step.all_bits = (uint8_t)(step.all_bits + bits);
        step.all_run = (uint8_t)(step.all_run + run);
    }
    return step;
}

/* T.81 C.2: codes of each length in order. False for lengths that are no prefix code, or that use the code of all ones. */
static bool build(fl_codes *codes, bool ac) {
    int32_t code = 0, used = 0;
    for (int length = 1; length <= 16; length++) {
        int count = codes->lengths[length - 1];
        codes->offset[length] = used - code;
        codes->last[length] = count ? code + count - 1 : -1;
        code += count;
        used += count;
        if (code >= 1 << length && count) return false;
        code <<= 1;
    }
    for (int i = 0; i < codes->symbol_count; i++) {
        if (!ac && codes->symbols[i] > 15) return false;
        if (ac && (codes->symbols[i] & 15) == 0 && codes->symbols[i] != 0 && codes->symbols[i] != 0xF0) return false;
    }
    for (uint32_t window = 0; window < ENTRIES; window++) codes->step[window] = step_of(codes, ac, window);
    codes->built = true;
    return true;
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
            if (!build(codes, ac)) return false;
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
static bool read_scan(fl_frame *f, const uint8_t *p, size_t size) {
    if (!f->framed || size != 4 + 2 * (size_t)f->count || p[0] != f->count) return false;
    uint32_t across = 1, down = 1;
    for (int i = 0; i < f->count; i++) {
        const uint8_t id = p[1 + 2 * i], dc = p[2 + 2 * i] >> 4, ac = p[2 + 2 * i] & 15;
        if (id != f->id[i] || dc > 3 || ac > 3) return false;
        if (!(f->dcs >> dc & 1) || !(f->acs >> ac & 1) || !(f->quants >> f->quant[i] & 1)) return false;
        uint32_t blocks = f->count == 1 ? 1 : (uint32_t)f->h[i] * f->v[i];
        if (f->block_count + blocks > BLOCKS_MAX) return false;
        for (uint32_t b = 0; b < blocks; b++) {
            f->block_dc[f->block_count] = dc;
            f->block_ac[f->block_count++] = ac;
        }
        if (f->count > 1 && f->h[i] > across) across = f->h[i];
        if (f->count > 1 && f->v[i] > down) down = f->v[i];
    }
    const uint8_t *spectral = p + 1 + 2 * f->count;
    if (spectral[0] != 0 || spectral[1] != 63 || spectral[2] != 0) return false;
    f->mcus = ((f->width + 8 * across - 1) / (8 * across)) * ((f->height + 8 * down - 1) / (8 * down));
    return true;
}

/* Tops the bits up to at least 32, more than any symbol with its value, or to all there are before the next marker. */
static inline void refill(fl_bits *b) {
    if (b->left >= 32) return;
    if (b->end - b->at >= 8) {
        uint64_t next;
        memcpy(&next, b->at, 8);
        /* A byte of 0xFF is a byte of zero in the complement: the classic test for one. */
        if (!((~next - 0x0101010101010101ull) & next & 0x8080808080808080ull)) {
            int bytes = (64 - b->left) >> 3;
#if __BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__
            next = __builtin_bswap64(next);
#endif
            /* Bits beyond the whole bytes taken are the same that the next refill will put there: or changes nothing. */
            b->bits |= next >> b->left;
            b->at += bytes;
            b->left += 8 * bytes;
            return;
        }
    }
    if (b->left < 64) b->bits &= b->left ? ~0ull << (64 - b->left) : 0;
    while (b->left <= 56 && b->at < b->end) {
        uint8_t byte = b->at[0];
        if (byte == 0xFF) {
            if (b->end - b->at < 2 || b->at[1] != 0) return;
            b->at++;
        }
        b->at++;
        b->bits |= (uint64_t)byte << (56 - b->left);
        b->left += 8;
    }
}

static inline bool take(fl_bits *b, int count) {
    if (count > b->left) return false;
    b->bits <<= count;
    b->left -= count;
    return true;
}

/* A symbol whose code is longer than the window. */
static bool long_symbol(const fl_codes *codes, bool ac, const fl_bits *b, int *bits, int *run) {
    for (int length = WINDOW + 1; length <= 16; length++) {
        int32_t code = (int32_t)(b->bits >> (64 - length));
        if (code > codes->last[length]) continue;
        int value_bits;
        symbol_meaning(codes->symbols[code + codes->offset[length]], ac, &value_bits, run);
        *bits = length + value_bits;
        return true;
    }
    return false;
}

static inline bool walk_block(const fl_codes *dc, const fl_codes *ac, fl_bits *b) {
    int bits, run;
    refill(b);
    fl_step step = dc->step[b->bits >> (64 - WINDOW)];
    bits = step.first_bits;
    if (!bits && !long_symbol(dc, false, b, &bits, &run)) return false;
    if (!take(b, bits)) return false;
    for (int k = 1; k < BLOCK;) {
        refill(b);
        step = ac->step[b->bits >> (64 - WINDOW)];
        if (k + step.all_run <= BLOCK && step.all_bits) {
            /* All symbols of the window lie inside the block, none is the end of it. */
            if (!take(b, step.all_bits)) return false;
            k += step.all_run;
            continue;
        }
        if (step.all_run >= RUN_EOB && k + (step.all_run - RUN_EOB) < BLOCK) {
            /* They lie inside the block, and the last of them ends it. */
            return take(b, step.all_bits);
        }
        bits = step.first_bits;
        run = step.first_run;
        if (!bits && !long_symbol(ac, true, b, &bits, &run)) return false;
        if (!take(b, bits)) return false;
        if (run == RUN_EOB) return true;
        k += run;
        if (k > BLOCK) return false; /* a run over the block's end: libjpeg is silent, but let it decide */
    }
    return true;
}

/* Between the last code and the marker that is due there is nothing but padding to a whole byte. */
static bool at_marker(fl_bits *b, uint8_t marker) {
    refill(b);
    int whole = b->left / 8;
    if (whole > 0) return false;
    if (b->end - b->at < 2 || b->at[0] != 0xFF || b->at[1] != marker) return false;
    b->at += 2;
    b->bits = 0;
    b->left = 0;
    return true;
}

static bool walk_scan(const fl_entropy *e, const fl_frame *f, const uint8_t *at, const uint8_t *end) {
    fl_bits b = {at, end, 0, 0};
    uint32_t until_restart = f->interval;
    uint8_t restart = RST0;
    for (uint32_t mcu = 0; mcu < f->mcus; mcu++) {
        if (f->interval && until_restart-- == 0) {
            if (!at_marker(&b, restart)) return false;
            restart = (uint8_t)(RST0 + ((restart - RST0 + 1) & 7));
            until_restart = f->interval - 1;
        }
        for (int i = 0; i < f->block_count; i++) {
            if (!walk_block(&e->dc[f->block_dc[i]], &e->ac[f->block_ac[i]], &b)) return false;
        }
    }
    return at_marker(&b, EOI);
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
            return read_scan(&f, p, rest) && walk_scan(e, &f, bytes + at, bytes + size);
        } else if ((marker >= APP0 && marker <= APP15) || marker == COM) {
            if (!plain_application(marker, p, rest)) return false;
        } else {
            return false;
        }
    }
    return false;
}
