#include "jpeg/header.h"

#include <string.h>

#include "jpeg/markers.h"

enum { SIDE_MAX = 65500 /* libjpeg's own limit */ };

static bool read_tables(fl_jpeg_tables *tables, fl_jpeg_frame *f, const uint8_t *p, size_t size) {
    while (size > 0) {
        if (size < 17) return false;
        int count = 0, slot = p[0] & 15;
        bool ac = p[0] >> 4;
        for (int i = 0; i < 16; i++) count += p[1 + i];
        if (p[0] >> 4 > 1 || slot > 3 || count > 256 || (size_t)count > size - 17) return false;
        fl_jpeg_codes *codes = ac ? &tables->ac[slot] : &tables->dc[slot];
        if (!codes->built || codes->symbol_count != count || memcmp(codes->lengths, p + 1, 16) != 0 ||
            memcmp(codes->symbols, p + 17, (size_t)count) != 0) {
            codes->built = false;
            codes->symbol_count = (uint16_t)count;
            memcpy(codes->lengths, p + 1, 16);
            memcpy(codes->symbols, p + 17, (size_t)count);
            if (!fl_jpeg_codes_build(codes, ac)) return false;
        }
        *(ac ? &f->acs : &f->dcs) |= 1u << slot;
        p += 17 + count;
        size -= 17 + (size_t)count;
    }
    return true;
}

static bool read_quants(fl_jpeg_frame *f, const uint8_t *p, size_t size) {
    while (size > 0) {
        size_t need = p[0] >> 4 ? 129 : 65;
        if (p[0] >> 4 > 1 || (p[0] & 15) > 3 || size < need) return false;
        uint16_t *values = f->quantiser[p[0] & 15];
        for (int i = 0; i < 64; i++)
            values[i] = p[0] >> 4 ? (uint16_t)(p[1 + 2 * i] << 8 | p[2 + 2 * i]) : p[1 + i];
        f->quants |= 1u << (p[0] & 15);
        p += need;
        size -= need;
    }
    return true;
}

static bool read_frame(fl_jpeg_frame *f, const uint8_t *p, size_t size) {
    if (f->framed || size < 6 || p[0] != 8 || (p[5] != 1 && p[5] != 3) || size != 6 + 3 * (size_t)p[5])
        return false;
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
    return f->width > 0 && f->height > 0 && f->width <= SIDE_MAX && f->height <= SIDE_MAX;
}

/* Blocks of an MCU of all components, and the number of MCUs. */
static bool lay_out(fl_jpeg_frame *f) {
    uint32_t across = 1, down = 1;
    for (int i = 0; i < f->count; i++) {
        if (!(f->quants >> f->quant[i] & 1)) return false;
        uint32_t blocks = f->count == 1 ? 1 : (uint32_t)f->h[i] * f->v[i];
        if (f->block_count + blocks > FL_JPEG_BLOCKS_MAX) return false;
        for (uint32_t b = 0; b < blocks; b++) f->block_component[f->block_count++] = (uint8_t)i;
        if (f->count > 1 && f->h[i] > across) across = f->h[i];
        if (f->count > 1 && f->v[i] > down) down = f->v[i];
    }
    for (int i = 0; i < f->count && f->count > 1; i++)
        if (across % f->h[i] || down % f->v[i])
            return false; /* libjpeg makes whole pixels of a sample, or refuses */
    f->mcus_across = (f->width + 8 * across - 1) / (8 * across);
    f->mcus_down = (f->height + 8 * down - 1) / (8 * down);
    return true;
}

/* The scan's header, when it covers the whole frame. */
static bool read_scan(fl_jpeg_frame *f, const uint8_t *p, size_t size) {
    if (!f->framed || size != 4 + 2 * (size_t)f->count || p[0] != f->count || !lay_out(f)) return false;
    for (uint32_t b = 0; b < f->block_count; b++) {
        const uint8_t i = f->block_component[b], id = p[1 + 2 * i], dc = p[2 + 2 * i] >> 4,
                      ac = p[2 + 2 * i] & 15;
        if (id != f->id[i] || dc > 3 || ac > 3 || !(f->dcs >> dc & 1) || !(f->acs >> ac & 1)) return false;
        f->block_dc[b] = dc;
        f->block_ac[b] = ac;
    }
    const uint8_t *spectral = p + 1 + 2 * f->count;
    return spectral[0] == 0 && spectral[1] == 63 && spectral[2] == 0;
}

const uint8_t *fl_jpeg_unstuff(const uint8_t *at, const uint8_t *end, uint8_t *out, size_t *size) {
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
    memset(out, 0, FL_JPEG_PAD);
    return at;
}

typedef enum colour { GREY, YCC, RGB } colour;

/* Markers that tell libjpeg the colour space; false for values of which it would warn. */
static bool read_application(fl_jpeg_frame *f, uint8_t marker, const uint8_t *p, size_t size) {
    if (marker == FL_JPEG_APP0 && size >= 14 && memcmp(p, "JFIF", 5) == 0) {
        f->jfif = true;
        return p[5] == 1;
    }
    if (marker == FL_JPEG_APP14 && size >= 12 && memcmp(p, "Adobe", 5) == 0) {
        f->adobe = p[11];
        return p[11] <= 1;
    }
    return true;
}

/* Meaning that libjpeg reads in the components, from the markers. */
static colour colour_of(const fl_jpeg_frame *f) {
    if (f->count == 1) return GREY;
    if (f->jfif) return YCC;
    if (f->adobe >= 0) return f->adobe ? YCC : RGB;
    return f->id[0] == 'R' && f->id[1] == 'G' && f->id[2] == 'B' ? RGB : YCC;
}

bool fl_jpeg_header_usual(const fl_jpeg_frame *f) {
    if (colour_of(f) == RGB) return false;
    for (int c = 1; c < f->count; c++)
        if (f->h[c] != 1 || f->v[c] != 1) return false;
    if (f->count > 1 && (f->h[0] > 2 || f->v[0] > 2)) return false;
    for (int c = 0; c < f->count; c++)
        for (int i = 0; i < 64; i++)
            if (f->quantiser[f->quant[c]][i] > INT16_MAX) return false;
    return true;
}

/* tables: NULL for a progressive file. */
static bool read_header(fl_jpeg_tables *tables, fl_jpeg_frame *f, const uint8_t *bytes, size_t size) {
    memset(f, 0, sizeof *f);
    f->adobe = -1;
    if (size < 4 || bytes[0] != 0xFF || bytes[1] != FL_JPEG_SOI) return false;
    size_t at = 2;
    while (size - at >= 4) {
        uint8_t marker = bytes[at + 1];
        size_t length = (size_t)bytes[at + 2] << 8 | bytes[at + 3];
        if (bytes[at] != 0xFF || length < 2 || length > size - at - 2) return false;
        const uint8_t *p = bytes + at + 4;
        at += 2 + length;
        size_t rest = length - 2;
        bool good;
        if (marker == FL_JPEG_DHT) good = !tables || read_tables(tables, f, p, rest);
        else if (marker == FL_JPEG_DQT) good = read_quants(f, p, rest);
        else if (tables ? marker == FL_JPEG_SOF0 || marker == FL_JPEG_SOF1 : marker == FL_JPEG_SOF2)
            good = read_frame(f, p, rest);
        else if (marker == FL_JPEG_DRI) {
            good = rest == 2;
            if (good) f->interval = (uint32_t)p[0] << 8 | p[1];
        } else if (marker == FL_JPEG_SOS) {
            f->data = at;
            return tables ? read_scan(f, p, rest) : f->framed && lay_out(f);
        } else {
            good = ((marker >= FL_JPEG_APP0 && marker <= FL_JPEG_APP15) || marker == FL_JPEG_COM) &&
                   read_application(f, marker, p, rest);
        }
        if (!good) return false;
    }
    return false;
}

bool fl_jpeg_header_read(fl_jpeg_tables *tables, fl_jpeg_frame *f, const uint8_t *bytes, size_t size) {
    return read_header(tables, f, bytes, size);
}

bool fl_jpeg_header_progressive(fl_jpeg_frame *f, const uint8_t *bytes, size_t size) {
    return read_header(NULL, f, bytes, size);
}
