/* The walk of fl_entropy.h. Source of the rules: ITU-T T.81, annexes B (markers), C (codes from lengths), F.2 (sequential decoding). */
#include "fl_entropy.h"

#include <stdlib.h>
#include <string.h>

enum {
    SOF0 = 0xC0,
    SOF1 = 0xC1,
    DHT = 0xC4,
    RST0 = 0xD0,
    SOI = 0xD8,
    EOI = 0xD9,
    SOS = 0xDA,
    DQT = 0xDB,
    DRI = 0xDD,
    APP0 = 0xE0,
    APP14 = 0xEE,
    APP15 = 0xEF,
    COM = 0xFE
};
enum { WINDOW = 12, ENTRIES = 1 << WINDOW, BLOCK = 64, BLOCKS_MAX = 10 /* T.81 B.2.3, and libjpeg's own limit */ };

/* What a window of WINDOW bits starts with, in 16 bits so that the tables of a scan fit the nearest cache: low byte: bits, code and
 * value bits together (a symbol may reach beyond the window); high byte: run, the coefficients that they cover. RUN_EOB stands for
 * the rest of the block: larger than a block, with room to add the runs before it. RUN_NONE: no code of at most WINDOW bits. */
typedef uint16_t fl_step;
enum { RUN_EOB = 128, RUN_NONE = 255 };

typedef struct fl_codes {
    uint8_t lengths[16], symbols[256]; /* as in the file: the key of this cache */
    uint16_t symbol_count;
    bool built;
    int32_t last[17]; /* the largest code of each length, -1 for none */
    int32_t offset[17]; /* symbols[code + offset[length]] */
    fl_step all[ENTRIES]; /* of as many symbols as lie in the window wholly */
    fl_step first[ENTRIES]; /* of the first of them alone */
} fl_codes;

struct fl_entropy {
    fl_codes dc[4], ac[4];
    uint8_t *plain; /* coded data of one restart interval, stuffing removed, PAD zeros behind */
    size_t room;
};

/* More than one block can consume: 64 symbols of at most 31 bits, and what a refill reads ahead. */
enum { PAD = 512 };

typedef struct fl_frame {
    uint32_t width, height, interval;
    uint8_t count, id[4], h[4], v[4], quant[4];
    uint8_t block_count, block_dc[BLOCKS_MAX], block_ac[BLOCKS_MAX];
    uint32_t mcus;
    unsigned quants, dcs, acs; /* tables defined so far, one bit each */
    bool framed;
} fl_frame;

/* Bits are read from the top of `bits`; `left` of them are valid, and those below are the data's or zero. */
typedef struct fl_bits {
    const uint8_t *at;
    uint64_t bits;
    unsigned left;
} fl_bits;

fl_code fl_entropy_create(fl_entropy **out, fl_error *err) {
    *out = calloc(1, sizeof **out);
    if (!*out) return fl_fail(err, FL_ENOMEM, "%zu bytes for Huffman tables", sizeof **out);
    return FL_OK;
}

void fl_entropy_free(fl_entropy *entropy) {
    if (entropy) free(entropy->plain);
    free(entropy);
}

/* Bits that follow a code: the size category in the low half of its symbol. Run: the zeros in the high half and the coefficient. */
static void symbol_meaning(uint8_t symbol, bool ac, int *value_bits, int *run) {
    int size = symbol & 15, zeros = symbol >> 4;
    *value_bits = ac ? size : symbol;
    *run = !ac ? 1 : size ? zeros + 1 : zeros == 15 ? 16 : RUN_EOB;
}

static fl_step pack_step(int bits, int run) { return (fl_step)(bits | run << 8); }

/* The steps of all windows: single symbols by enumerating codes, then chained with those of what follows. */
static void build_steps(fl_codes *codes, bool ac) {
    for (uint32_t window = 0; window < ENTRIES; window++) codes->first[window] = pack_step(0, RUN_NONE);
    for (int length = 1; length <= WINDOW; length++) {
        for (int i = 0; i < codes->lengths[length - 1]; i++) {
            int32_t code = codes->last[length] - i;
            int value_bits, run;
            symbol_meaning(codes->symbols[code + codes->offset[length]], ac, &value_bits, &run);
            uint32_t start = (uint32_t)code << (WINDOW - length);
            for (uint32_t w = 0; w < 1u << (WINDOW - length); w++) codes->first[start + w] = pack_step(length + value_bits, run);
        }
    }
    for (uint32_t window = 0; window < ENTRIES; window++) {
        int bits = codes->first[window] & 255, run = codes->first[window] >> 8;
        while (ac && run < RUN_EOB && bits < WINDOW) {
            fl_step next = codes->first[(window << bits) & (ENTRIES - 1)];
            int next_bits = next & 255, next_run = next >> 8;
            if (next_run == RUN_NONE || next_bits > WINDOW - bits) break;
            if (next_run != RUN_EOB && run + next_run >= RUN_EOB) break; /* sums of runs stay below what marks the end */
            bits += next_bits;
            run += next_run;
        }
        codes->all[window] = pack_step(bits, run);
    }
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
    build_steps(codes, ac);
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

/* At least 56 bits, without a branch: bytes already counted are or-ed onto themselves (F. Giesen, "Reading bits in far too many ways"). */
static inline void refill(fl_bits *b) {
    uint64_t next;
    memcpy(&next, b->at, 8);
#if __BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__
    next = __builtin_bswap64(next);
#endif
    b->bits |= next >> b->left;
    b->at += (63 - b->left) >> 3;
    b->left |= 56;
}

static inline void take(fl_bits *b, unsigned count) {
    b->bits <<= count;
    b->left -= count;
}

static inline fl_step look(const fl_codes *codes, const fl_bits *b) { return codes->all[b->bits >> (64 - WINDOW)]; }

/* A symbol whose code may be longer than the window; 0 when there is no such code. Takes it, and returns its run. */
static int take_symbol(const fl_codes *codes, bool ac, fl_bits *b) {
    refill(b);
    fl_step step = codes->first[b->bits >> (64 - WINDOW)];
    int run = step >> 8;
    if (run != RUN_NONE) {
        take(b, step & 63);
        return run;
    }
    for (int length = WINDOW + 1; length <= 16; length++) {
        int32_t code = (int32_t)(b->bits >> (64 - length));
        if (code > codes->last[length]) continue;
        int value_bits;
        symbol_meaning(codes->symbols[code + codes->offset[length]], ac, &value_bits, &run);
        take(b, (unsigned)(length + value_bits));
        return run;
    }
    return 0;
}

/* Takes one block. Reads up to PAD bytes beyond the data; the caller compares positions afterwards. */
static inline bool walk_block(const fl_codes *dc, const fl_codes *ac, fl_bits *b) {
    refill(b);
    fl_step step = look(dc, b);
    if (step >> 8 != RUN_NONE) take(b, step & 63);
    else if (!take_symbol(dc, false, b)) return false;
    unsigned k = 1;
    for (;;) {
        refill(b);
        /* Two steps to a refill: neither takes more than WINDOW + 15 bits. */
        for (int i = 0; i < 2; i++) {
            step = look(ac, b);
            unsigned after = k + (step >> 8);
            if (after >= BLOCK) goto end;
            take(b, step & 63);
            k = after;
        }
        continue;
    end:;
        unsigned run = step >> 8;
        if (k + run == BLOCK || (run >= RUN_EOB && run != RUN_NONE && k + run - RUN_EOB < BLOCK)) {
            take(b, step & 63); /* the last symbol of the window ends the block */
            return true;
        }
        run = (unsigned)take_symbol(ac, true, b);
        if (run == RUN_EOB) return true;
        k += run;
        if (run == 0 || k > BLOCK) return false; /* a run over the block's end: libjpeg is silent, but let it decide */
        if (k == BLOCK) return true;
    }
}

/* Copies coded data up to the next marker, or to the end, without the zeros stuffed in behind 0xFF. */
static const uint8_t *unstuff(const uint8_t *at, const uint8_t *end, uint8_t *out, size_t *size) {
    uint8_t *start = out;
    while (at < end) {
        const uint8_t *found = memchr(at, 0xFF, (size_t)(end - at));
        size_t count = (size_t)((found ? found : end) - at);
        memcpy(out, at, count);
        out += count;
        at += count;
        if (end - at < 2 || at[1] != 0) break;
        *out++ = 0xFF;
        at += 2;
    }
    *size = (size_t)(out - start);
    memset(out, 0, PAD);
    return at;
}

/* MCUs that lie between two markers, with nothing behind them but padding to a whole byte. */
static bool walk_interval(const fl_entropy *e, const fl_frame *f, uint32_t mcus, size_t size) {
    fl_bits b = {e->plain, 0, 0};
    const uint8_t *end = e->plain + size;
    for (uint32_t mcu = 0; mcu < mcus; mcu++) {
        for (int i = 0; i < f->block_count; i++) {
            if (!walk_block(&e->dc[f->block_dc[i]], &e->ac[f->block_ac[i]], &b)) return false;
            if (b.at - b.left / 8 > end) return false;
        }
    }
    ptrdiff_t rest = (end - b.at) * 8 + (ptrdiff_t)b.left;
    return rest >= 0 && rest < 8;
}

static bool walk_scan(fl_entropy *e, const fl_frame *f, const uint8_t *at, const uint8_t *end) {
    size_t need = (size_t)(end - at) + PAD;
    if (need > e->room) {
        free(e->plain);
        e->plain = malloc(need);
        e->room = e->plain ? need : 0;
        if (!e->plain) return false;
    }
    uint32_t left = f->mcus;
    for (uint8_t restart = RST0;; restart = (uint8_t)(RST0 + ((restart - RST0 + 1) & 7))) {
        uint32_t mcus = f->interval && f->interval < left ? f->interval : left;
        size_t size;
        at = unstuff(at, end, e->plain, &size);
        if (!walk_interval(e, f, mcus, size)) return false;
        left -= mcus;
        if (end - at < 2 || at[0] != 0xFF || at[1] != (left ? restart : EOI)) return false;
        if (!left) return true;
        at += 2;
    }
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
