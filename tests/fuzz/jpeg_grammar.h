/* Random JPEGs by the grammar of ITU-T T.81, symbol first: Huffman tables are drawn, then the blocks are made
 * of the symbols that those tables have. So every table, run, size and end of a block occurs, and most files
 * are still lawful. Choices come from draws.h.
 *
 * With FUZZ_DUMP=file in the environment each file made is written there: the last one is what a crash was
 * about. */
#ifndef JPEG_GRAMMAR_H
#define JPEG_GRAMMAR_H

#include "jpeg_scans.h"

static void put_quantisers(jpeg_out *o) {
    for (uint32_t i = 0; i < 2; i++) {
        const bool wide = below(6) == 0;
        const uint32_t kind = below(6), limit = 1 + below(wide ? 65536 : 255);
        const size_t start = begin_segment(o, 0xDB);
        put_byte(o, (uint32_t)wide << 4 | i);
        for (int k = 0; k < 64; k++) {
            uint32_t value = kind < 3    ? 1 + (uint32_t)k * kind
                             : kind == 3 ? limit
                             : kind == 4 ? 1 + noise() % limit
                                         : noise();
            if (wide) put_word(o, value);
            else put_byte(o, value % 256 ? value : 1);
        }
        end_segment(o, start);
    }
}

static void put_application(jpeg_out *o, uint32_t marker, const char *begin, uint32_t size) {
    const size_t start = begin_segment(o, marker), length = strlen(begin) + 1;
    for (size_t i = 0; i < length; i++) put_byte(o, (uint8_t)begin[i]);
    for (uint32_t i = 0; i < size; i++) put_byte(o, noise());
    end_segment(o, start);
}

static void put_exif(jpeg_out *o, uint32_t orientation) {
    static const uint8_t head[] = {'E', 'x', 'i', 'f', 0,    0,    'I', 'I', 42, 0, 8, 0,
                                   0,   0,   1,   0,   0x12, 0x01, 3,   0,   1,  0, 0, 0};
    const size_t start = begin_segment(o, 0xE1);
    for (size_t i = 0; i < sizeof head; i++) put_byte(o, head[i]);
    for (int i = 0; i < 8; i++) put_byte(o, i ? 0 : orientation);
    end_segment(o, start);
}

static void put_adobe(jpeg_out *o, uint32_t transform) {
    static const uint8_t head[] = {'A', 'd', 'o', 'b', 'e', 0, 100, 0, 0, 0, 0};
    const size_t start = begin_segment(o, 0xEE);
    for (size_t i = 0; i < sizeof head; i++) put_byte(o, head[i]);
    put_byte(o, transform);
    end_segment(o, start);
}

static void put_jfif(jpeg_out *o) {
    static const uint8_t jfif[] = {'J', 'F', 'I', 'F', 0, 1, 1, 0, 0, 1, 0, 1, 0, 0};
    const size_t start = begin_segment(o, 0xE0);
    for (size_t i = 0; i < sizeof jfif; i++) put_byte(o, jfif[i]);
    end_segment(o, start);
}

/* Segments that say nothing of the picture, and those that say its colour space. */
static void put_metadata(jpeg_out *o) {
    for (uint32_t n = below(4) ? 0 : 1 + below(3); n; n--) {
        switch (below(8)) {
        case 0: put_jfif(o); break;
        case 1: put_adobe(o, below(8) ? below(2) : below(256)); break;
        case 2: put_exif(o, below(12)); break;
        case 3: put_application(o, 0xE2, "ICC_PROFILE", below(40)); break;
        case 4: put_application(o, 0xFE, "a comment", below(300)); break;
        case 5: put_application(o, 0xE0 + below(16), "Exif", below(20)); break;
        case 6: put_application(o, 0xE0, "JFIF", below(14)); break;
        default: put_application(o, 0xE0 + below(16), "", below(5));
        }
    }
}

/* What stands between segments and belongs to none. Rare. */
static void put_stray(jpeg_out *o) {
    if (below(24)) return;
    switch (below(5)) {
    case 0: put_byte(o, 0xFF); break; /* fill bytes are lawful before a marker */
    case 1: put_byte(o, noise()); break;
    case 2: put_marker(o, 0xD0 + below(8)); break;
    case 3: put_marker(o, 0x01); break;
    default: put_marker(o, below(256));
    }
}

static void choose_sampling(picture *p) {
    static const uint8_t usual[5][2] = {{2, 2}, {2, 1}, {1, 1}, {1, 2}, {4, 1}};
    const uint32_t kind = below(4);
    for (uint32_t i = 0; i < p->count; i++) p->part[i].h = p->part[i].v = 1;
    if (kind < 2 || p->count == 1) {
        const uint8_t *of = usual[below(5)];
        p->part[0].h = of[0], p->part[0].v = of[1];
        return;
    }
    uint32_t blocks = 0;
    for (uint32_t i = 0; i < p->count; i++) {
        component *c = &p->part[i];
        c->h = 1 + below(kind == 2 ? 2 : 4), c->v = 1 + below(kind == 2 ? 2 : 4);
        if (blocks + c->h * c->v > 10 - (p->count - 1 - i) && below(16)) c->h = c->v = 1;
        blocks += c->h * c->v;
    }
}

/* `usual`: of the kind that fl_jpeg_baseline decodes, without damage meant. */
static void choose_picture(picture *p, bool usual) {
    static const uint8_t components[8] = {3, 3, 3, 3, 1, 1, 4, 2};
    const uint32_t shape = below(8), count = below(8);
    p->width = 1 + below(shape == 0 ? 400 : 48), p->height = 1 + below(shape == 1 ? 400 : 48);
    p->count = count == 7 && below(4) ? 3 : components[count];
    p->progressive = below(3) == 0;
    p->densities = below(256);
    p->lawful = below(4) != 0;
    choose_sampling(p);
    if (usual) {
        p->count = p->count == 1 ? 1 : 3;
        p->progressive = false, p->lawful = true;
        p->densities |= 7;
        for (uint32_t i = 0; i < 3; i++)
            p->part[i].h = i || p->part[i].h > 2 ? 1 : p->part[i].h,
            p->part[i].v = i || p->part[i].v > 2 ? 1 : p->part[i].v;
    }
    measure_picture(p);
}

static void put_frame(jpeg_out *o, const picture *p) {
    const uint32_t marker = p->progressive ? 0xC2 : below(4) ? 0xC0 : 0xC1;
    const size_t start = begin_segment(o, below(64) ? marker : 0xC0 + below(16));
    const bool letters = p->count == 3 && below(16) == 0; /* by which libjpeg knows RGB */
    put_byte(o, below(64) ? 8 : 12);
    put_word(o, below(128) ? p->height : below(2) ? 0 : 65535);
    put_word(o, below(128) ? p->width : below(2) ? 0 : 65535);
    put_byte(o, p->count);
    for (uint32_t i = 0; i < p->count; i++) {
        put_byte(o, letters ? (uint32_t)"RGB"[i] : i + 1);
        put_byte(o, p->part[i].h << 4 | p->part[i].v);
        put_byte(o, below(100) ? i > 0 : below(6));
    }
    end_segment(o, start);
}

static void put_restart_interval(jpeg_out *o, picture *p) {
    p->interval = below(3) ? 0 : 1 + below(below(3) ? 6 : 60);
    if (!p->interval && below(16)) return;
    const size_t start = begin_segment(o, 0xDD);
    put_word(o, p->interval);
    end_segment(o, start);
}

static void put_end(jpeg_out *o) {
    if (below(24) == 0) o->size -= below((uint32_t)o->size / 4 + 1); /* cut off */
    else if (below(24)) put_marker(o, 0xD9);
    if (below(24) == 0)
        for (uint32_t n = below(200); n; n--) put_byte(o, noise());
}

/* A JPEG from the draws to come; the caller frees its bytes. */
static jpeg_out make_jpeg(bool usual) {
    jpeg_out o = {0};
    picture p = {0};
    put_marker(&o, 0xD8);
    choose_picture(&p, usual);
    put_stray(&o);
    if (below(4)) put_jfif(&o);
    put_metadata(&o);
    put_quantisers(&o);
    if (below(2)) put_restart_interval(&o, &p);
    put_frame(&o, &p);
    put_metadata(&o);
    if (!p.interval) put_restart_interval(&o, &p);
    put_stray(&o);
    if (p.progressive) put_progressive_scans(&o, &p);
    else put_sequential_scans(&o, &p);
    put_end(&o);
    free_picture(&p);
    const char *dump = getenv("FUZZ_DUMP");
    FILE *file = dump ? fopen(dump, "wb") : NULL;
    if (file) {
        fwrite(o.bytes, 1, o.size, file);
        fclose(file);
    }
    return o;
}

#endif
