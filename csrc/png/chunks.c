#include "png/chunks.h"

#include <libdeflate.h>
#include <stdlib.h>

#include "common/image.h"

enum {
    AROUND = 12,         /* bytes of a chunk beside its contents: length, name, checksum */
    TEXT_MOST = 1 << 20, /* PIL.PngImagePlugin.MAX_TEXT_CHUNK */
    TEXTS_MOST = 32      /* with TEXT_MOST bytes each: half of MAX_TEXT_MEMORY */
};

/* A chunk's name, big-endian. */
typedef enum name {
    IHDR = 0x49484452,
    PLTE = 0x504C5445,
    IDAT = 0x49444154,
    IEND = 0x49454E44,
    TRNS = 0x74524E53,
    GAMA = 0x67414D41,
    CHRM = 0x6348524D,
    SRGB = 0x73524742,
    PHYS = 0x70485973,
    ICCP = 0x69434350,
    TEXT = 0x74455874,
    ZTXT = 0x7A545874,
    ITXT = 0x69545874,
    EXIF = 0x65584966,
    ACTL = 0x6163544C,
    FCTL = 0x6663544C,
    FDAT = 0x66644154
} name;

typedef struct chunk {
    uint32_t name;
    fl_span content;
} chunk;

/* A file as it is walked through. */
typedef struct walk {
    fl_png *png;
    const uint8_t *at, *end;
    int texts;
    fl_error *err;
} walk;

static const uint8_t MAGIC[8] = {0x89, 'P', 'N', 'G', '\r', '\n', 0x1A, '\n'};

/* Of each colour: samples of a pixel, and the depths that it may have, one bit for each: 1, 2, 4, 8, 16. */
static const struct {
    uint8_t samples, depths;
} COLOURS[] = {[FL_PNG_GREY] = {1, 31},
               [FL_PNG_RGB] = {3, 24},
               [FL_PNG_PALETTE] = {1, 15},
               [FL_PNG_GREY_ALPHA] = {2, 24},
               [FL_PNG_RGB_ALPHA] = {4, 24}};

static fl_code unsupported(const walk *w, const char *why) {
    return fl_fail(w->err, FL_EUNSUPPORTED, "the PNG %s", why);
}

bool fl_png_is(fl_span data) { return data.size >= sizeof MAGIC && !memcmp(data.bytes, MAGIC, sizeof MAGIC); }

static uint32_t pixel_bits(const fl_png *png) { return (uint32_t)COLOURS[png->colour].samples * png->bits; }

size_t fl_png_row(const fl_png *png) { return ((size_t)png->width * pixel_bits(png) + 7) / 8; }

uint32_t fl_png_step(const fl_png *png) { return (pixel_bits(png) + 7) / 8; }

static bool is_letter(uint8_t byte) { return (byte | 32) >= 'a' && (byte | 32) <= 'z'; }

/* The chunk at w->at, which is not passed. */
static fl_code peek(const walk *w, chunk *out) {
    *out = (chunk){.name = 0};
    const size_t left = (size_t)(w->end - w->at);
    if (left < AROUND || fl_bytes_be32(w->at) > left - AROUND) return unsupported(w, "ends within a chunk");
    for (int i = 4; i < 8; i++)
        if (!is_letter(w->at[i])) return unsupported(w, "has a chunk without a name");
    *out = (chunk){fl_bytes_be32(w->at + 4), {w->at + 8, fl_bytes_be32(w->at)}};
    return FL_OK;
}

static void pass(walk *w, const chunk *c) { w->at = c->content.bytes + c->content.size + 4; }

static bool has_checksum(const chunk *c) {
    return libdeflate_crc32(0, c->content.bytes - 4, c->content.size + 4) ==
           fl_bytes_be32(c->content.bytes + c->content.size);
}

/* True if a zlib stream is sound and inflates to at most TEXT_MOST bytes. */
static bool text_fits(fl_span stream) {
    struct libdeflate_decompressor *inflater = libdeflate_alloc_decompressor();
    uint8_t *room = malloc(TEXT_MOST);
    size_t size;
    const bool fits =
        inflater && room &&
        !libdeflate_zlib_decompress(inflater, stream.bytes, stream.size, room, TEXT_MOST, &size);
    free(room);
    libdeflate_free_decompressor(inflater);
    return fits;
}

/* What follows the first zero byte, and `skip` bytes after it; nothing where there is none. */
static fl_span after_zero(fl_span from, size_t skip) {
    const uint8_t *zero = from.size ? memchr(from.bytes, 0, from.size) : NULL;
    const size_t used = zero ? (size_t)(zero - from.bytes) + 1 + skip : from.size;
    return used < from.size ? (fl_span){from.bytes + used, from.size - used} : (fl_span){from.bytes, 0};
}

static bool begins(fl_span text, const char *with) {
    return text.size >= strlen(with) && !memcmp(text.bytes, with, strlen(with));
}

/* A text, a profile: Pillow reads each, and inflates what is deflated. */
static fl_code read_text(walk *w, const chunk *c) {
    const fl_span method = after_zero(c->content, 0);
    fl_span stream = {NULL, 0};
    if (++w->texts > TEXTS_MOST || c->content.size > TEXT_MOST)
        return unsupported(w, "has more text than is read");
    if (c->name == ICCP || c->name == ZTXT) {
        if (!method.size || method.bytes[0]) return unsupported(w, "has a text of an unknown compression");
        stream = (fl_span){method.bytes + 1, method.size - 1};
    } else if (c->name == ITXT && method.size >= 2 && method.bytes[0]) {
        stream = after_zero(after_zero((fl_span){method.bytes + 2, method.size - 2}, 0), 0);
    }
    if (stream.size && !text_fits(stream))
        return unsupported(w, "has a text that does not inflate, or to more than is read");
    if (begins(c->content, "Raw profile type") || begins(c->content, "XML:com.adobe.xmp") ||
        begins(c->content, "xmp") || begins(c->content, "exif"))
        w->png->may_turn = true;
    return FL_OK;
}

/* A chunk that is no data: it must hold what Pillow reads of it. */
static fl_code read_other(walk *w, const chunk *c) {
    static const struct {
        uint32_t name, least; /* bytes */
    } LEAST[] = {{GAMA, 4}, {CHRM, 32}, {SRGB, 1}, {PHYS, 9}};
    for (size_t i = 0; i < sizeof LEAST / sizeof *LEAST; i++)
        if (c->name == LEAST[i].name && c->content.size < LEAST[i].least)
            return unsupported(w, "has a chunk of too few bytes");
    fl_png *png = w->png;
    switch (c->name) {
    case IHDR: return unsupported(w, "has two headers");
    case ACTL:
    case FCTL:
    case FDAT: return unsupported(w, "is animated");
    case PLTE:
        if (png->colour != FL_PNG_PALETTE) return FL_OK;
        if (png->palette.size || !c->content.size || c->content.size % 3 || c->content.size > 3 * 256)
            return unsupported(w, "has a palette that is none");
        png->palette = c->content;
        return FL_OK;
    case TRNS: /* grey and RGB need a whole colour; those with alpha have none that is read */
        if (png->colour <= FL_PNG_RGB && c->content.size < (png->colour == FL_PNG_GREY ? 2u : 6u))
            return unsupported(w, "has a chunk of too few bytes");
        return FL_OK;
    case EXIF: png->may_turn = true; return FL_OK;
    case TEXT:
    case ZTXT:
    case ITXT:
    case ICCP: return read_text(w, c);
    default: return FL_OK;
    }
}

static fl_code read_header(walk *w) {
    chunk c;
    const fl_code code = peek(w, &c);
    if (code) return code;
    const uint8_t *s = c.content.bytes;
    if (c.name != IHDR || c.content.size != 13 || !has_checksum(&c))
        return unsupported(w, "has no sound header");
    const uint32_t width = fl_bytes_be32(s), height = fl_bytes_be32(s + 4);
    const uint8_t bits = s[8], colour = s[9], depth = bits ? (uint8_t)(__builtin_ctz(bits)) : 0;
    if (!width || !height || width > FL_IMAGE_SIDE_MAX || height > FL_IMAGE_SIDE_MAX)
        return unsupported(w, "has no size");
    if (colour >= sizeof COLOURS / sizeof *COLOURS || !bits || bits != 1u << depth ||
        !(COLOURS[colour].depths >> depth & 1))
        return unsupported(w, "has pixels of an unknown form");
    if (s[10] || s[11]) return unsupported(w, "has another compression or filter than PNG's");
    if (s[12]) return unsupported(w, "is interlaced");
    *w->png = (fl_png){.width = width, .height = height, .colour = (fl_png_colour)colour, .bits = bits};
    pass(w, &c);
    return FL_OK;
}

/* All chunks up to the first of that name: IDAT, before which each must have its checksum, or, after the
 * data, IEND. */
static fl_code read_up_to(walk *w, uint32_t last) {
    const bool before = last == IDAT;
    chunk c;
    for (;;) {
        fl_code code = peek(w, &c);
        if (code || c.name == last) return code;
        if (c.name == (before ? IEND : IDAT))
            return unsupported(w, before ? "has no data" : "has data in two places");
        if (before && !has_checksum(&c)) return unsupported(w, "has a chunk with a wrong checksum");
        code = read_other(w, &c);
        if (code) return code;
        pass(w, &c);
    }
}

static fl_code read_data(walk *w) {
    chunk c;
    fl_code code;
    w->png->chunks.bytes = w->at;
    while (!(code = peek(w, &c)) && c.name == IDAT) {
        w->png->compressed += c.content.size;
        pass(w, &c);
    }
    w->png->chunks.size = (size_t)(w->at - w->png->chunks.bytes);
    return code;
}

fl_code fl_png_open(fl_span data, fl_png *png, fl_error *err) {
    walk w = {.png = png, .at = data.bytes + sizeof MAGIC, .end = data.bytes + data.size, .err = err};
    *png = (fl_png){.width = 0};
    if (!fl_png_is(data)) return fl_fail(err, FL_EUNSUPPORTED, "it is no PNG");
    fl_code code = read_header(&w);
    if (!code) code = read_up_to(&w, IDAT);
    if (!code && png->colour == FL_PNG_PALETTE && !png->palette.size)
        code = unsupported(&w, "has no palette");
    if (!code) code = read_data(&w);
    return code ? code : read_up_to(&w, IEND);
}

void fl_png_join(const fl_png *png, uint8_t *out) {
    for (const uint8_t *at = png->chunks.bytes, *end = at + png->chunks.size; at < end;
         at += AROUND + fl_bytes_be32(at)) {
        memcpy(out, at + 8, fl_bytes_be32(at));
        out += fl_bytes_be32(at);
    }
}
