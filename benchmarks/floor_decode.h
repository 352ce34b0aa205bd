/* floor_decode: what floor.c and decode.c share: files in RAM, random boxes, and libjpeg-turbo's own way of
 * decoding a box. */
#ifndef FLOOR_DECODE_H
#define FLOOR_DECODE_H

#include <stddef.h>
#include <stdint.h>
#include <time.h>

typedef struct floor_box {
    unsigned x, y, width, height;
} floor_box;

typedef struct picture {
    char *path;
    unsigned char *bytes;
    size_t size;
    unsigned width, height;
    floor_box box; /* written between passes only */
} picture;

typedef enum floor_kind { FLOOR_FULL, FLOOR_REGION, FLOOR_ENTROPY } floor_kind;

/* A decompressor and the rows it writes. One per thread. */
typedef struct floor_decoder floor_decoder;

/* All of these end the program with a line on stderr when something fails. */
void floor_die(const char *what, const char *which);
picture *floor_load(const char *list, size_t *count); /* every file of a text file of paths, one a line */
void floor_unload(picture *pictures, size_t count);
floor_decoder *floor_create(void);
void floor_free(floor_decoder *decoder);

/* Decodes the whole picture, its entropy-coded data alone, or the box at the DCT scale eighths/8; box and
 * eighths are those of FLOOR_REGION. Nothing is kept. */
void floor_decode(floor_decoder *decoder, const picture *p, floor_kind kind, const floor_box *box,
                  unsigned eighths);

/* A RandomResizedCrop box: area 0.08..1, ratio 3/4..4/3. */
floor_box floor_draw_box(unsigned width, unsigned height, uint64_t *state);

/* The smallest of 1, 2, 4, 8 eighths that keeps the box >= target both ways. */
unsigned floor_scale(const floor_box *box, unsigned target);

double floor_seconds(clockid_t clock);

#endif
