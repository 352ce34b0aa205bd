#define _GNU_SOURCE
#include "floor_decode.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <jpeglib.h>

struct floor_decoder {
    /* First, so that libjpeg's pointer to it is one to the whole. */
    struct jpeg_decompress_struct c;
    struct jpeg_error_mgr err;
    const char *path; /* of the picture at hand */
    unsigned char *out;
    size_t capacity;
};

void floor_die(const char *what, const char *which) {
    fprintf(stderr, "%s: %s\n", which, what);
    exit(1);
}

double floor_seconds(clockid_t clock) {
    struct timespec t;
    clock_gettime(clock, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

/* SplitMix64 (Steele, Lea, Flood, OOPSLA'14), as a double in [0, 1). */
static double draw(uint64_t *state) {
    uint64_t z = (*state += 0x9E3779B97F4A7C15u);
    z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9u;
    z = (z ^ (z >> 27)) * 0x94D049BB133111EBu;
    return (double)((z ^ (z >> 31)) >> 11) * 0x1p-53;
}

/* Ten tries, then the largest centred box of an allowed ratio. */
floor_box floor_draw_box(unsigned width, unsigned height, uint64_t *state) {
    const double low = 3.0 / 4.0, high = 4.0 / 3.0;
    floor_box box;
    for (int attempt = 0; attempt < 10; attempt++) {
        double area = (double)width * height * (0.08 + 0.92 * draw(state));
        double ratio = exp(log(low) + draw(state) * (log(high) - log(low)));
        long w = lround(sqrt(area * ratio)), h = lround(sqrt(area / ratio));
        if (w < 1 || h < 1 || w > (long)width || h > (long)height) continue;
        box.width = (unsigned)w, box.height = (unsigned)h;
        box.x = (unsigned)(draw(state) * (width - box.width + 1));
        box.y = (unsigned)(draw(state) * (height - box.height + 1));
        return box;
    }
    double ratio = (double)width / height;
    box.width = ratio > high ? (unsigned)lround(height * high) : width;
    box.height = ratio < low ? (unsigned)lround(width / low) : height;
    box.x = (width - box.width) / 2, box.y = (height - box.height) / 2;
    return box;
}

unsigned floor_scale(const floor_box *box, unsigned target) {
    for (unsigned s = 1; s < 8; s *= 2)
        if ((uint64_t)box->width * s >= 8u * (uint64_t)target &&
            (uint64_t)box->height * s >= 8u * (uint64_t)target)
            return s;
    return 8;
}

static void on_error(j_common_ptr c) {
    char text[JMSG_LENGTH_MAX];
    c->err->format_message(c, text);
    const char *path = ((const floor_decoder *)c)->path;
    floor_die(text, path ? path : "libjpeg");
}

static void on_message(j_common_ptr c, int level) { (void)c, (void)level; }

floor_decoder *floor_create(void) {
    floor_decoder *decoder = calloc(1, sizeof *decoder);
    if (!decoder) floor_die("no memory", "libjpeg");
    decoder->c.err = jpeg_std_error(&decoder->err);
    decoder->err.error_exit = on_error, decoder->err.emit_message = on_message;
    jpeg_create_decompress(&decoder->c);
    return decoder;
}

void floor_free(floor_decoder *decoder) {
    jpeg_destroy_decompress(&decoder->c);
    free(decoder->out);
    free(decoder);
}

/* Rows land in one buffer that is used again for every image: the cheapest place there is to put them. */
static void read_rows(struct jpeg_decompress_struct *c, unsigned char *out, unsigned end) {
    size_t stride = (size_t)c->output_width * 3;
    while (c->output_scanline < end) {
        JSAMPROW rows[8];
        JDIMENSION want = end - c->output_scanline < 8 ? end - c->output_scanline : 8;
        for (JDIMENSION i = 0; i < want; i++) rows[i] = out + i * stride;
        out += jpeg_read_scanlines(c, rows, want) * stride;
    }
}

/* Moves to the box's first row and column; returns the row after its last. */
static unsigned seek_box(struct jpeg_decompress_struct *c, const floor_box *box) {
    uint64_t s = c->scale_num;
    unsigned end = c->output_height;
    JDIMENSION x = (JDIMENSION)(box->x * s / 8), y = (JDIMENSION)(box->y * s / 8);
    JDIMENSION right = (JDIMENSION)(((uint64_t)box->x + box->width) * s + 7) / 8;
    JDIMENSION below = (JDIMENSION)(((uint64_t)box->y + box->height) * s + 7) / 8;
    if (right > c->output_width) right = c->output_width;
    if (below < end) end = below;
    JDIMENSION width = right - x;
    jpeg_crop_scanline(c, &x, &width);
    if (y) jpeg_skip_scanlines(c, y);
    return end;
}

void floor_decode(floor_decoder *decoder, const picture *p, floor_kind kind, const floor_box *box,
                  unsigned eighths) {
    struct jpeg_decompress_struct *c = &decoder->c;
    size_t need = ((size_t)p->width + 64) * ((size_t)p->height + 64) * 3;
    if (need > decoder->capacity) {
        free(decoder->out);
        if (!(decoder->out = malloc(decoder->capacity = need))) floor_die("no room for one image", "libjpeg");
    }
    decoder->path = p->path;
    jpeg_mem_src(c, p->bytes, p->size);
    jpeg_read_header(c, TRUE);
    if (kind == FLOOR_ENTROPY) {
        jpeg_read_coefficients(c);
        jpeg_abort_decompress(c);
        return;
    }
    c->out_color_space = JCS_RGB;
    c->scale_denom = 8;
    c->scale_num = kind == FLOOR_REGION ? eighths : 8;
    jpeg_start_decompress(c);
    read_rows(c, decoder->out, kind == FLOOR_REGION ? seek_box(c, box) : c->output_height);
    jpeg_abort_decompress(c);
}

static void load(floor_decoder *decoder, picture *p) {
    FILE *f = fopen(p->path, "rb");
    if (!f || fseek(f, 0, SEEK_END)) floor_die("cannot be opened", p->path);
    long size = ftell(f);
    rewind(f);
    if (size < 1 || !(p->bytes = malloc(p->size = (size_t)size)) || fread(p->bytes, 1, p->size, f) != p->size)
        floor_die("cannot be read", p->path);
    fclose(f);
    decoder->path = p->path;
    jpeg_mem_src(&decoder->c, p->bytes, p->size);
    jpeg_read_header(&decoder->c, TRUE);
    p->width = decoder->c.image_width, p->height = decoder->c.image_height;
    jpeg_abort_decompress(&decoder->c);
}

picture *floor_load(const char *list, size_t *count) {
    FILE *f = fopen(list, "r");
    if (!f) floor_die("cannot be opened", list);
    floor_decoder *decoder = floor_create();
    picture *pictures = NULL;
    size_t capacity = 0, length = 0;
    char *line = NULL;
    *count = 0;
    for (ssize_t n; (n = getline(&line, &length, f)) > 0;) {
        while (n && (line[n - 1] == '\n' || line[n - 1] == '\r')) line[--n] = 0;
        if (!n) continue;
        if (*count == capacity &&
            !(pictures = realloc(pictures, (capacity = capacity ? 2 * capacity : 256) * sizeof *pictures)))
            floor_die("no memory", list);
        if (!(pictures[*count].path = strdup(line))) floor_die("no memory", list);
        load(decoder, &pictures[(*count)++]);
    }
    free(line);
    fclose(f);
    floor_free(decoder);
    if (!*count) floor_die("names no file", list);
    return pictures;
}

void floor_unload(picture *pictures, size_t count) {
    for (size_t i = 0; i < count; i++) free(pictures[i].path), free(pictures[i].bytes);
    free(pictures);
}
