/* png/chunks: what a PNG says of itself, and where its pixels' data lies.
 *
 * NOTE [ png: what is decoded here ]
 * The reference is Pillow: the pixels of Image.open(file).convert("RGB"), and which files are errors. A file
 * is decoded here only where it is certain that Pillow decodes it, without a warning of damage; any other is
 * FL_EUNSUPPORTED, sound or not, and where there is a file, Pillow opens it and decides. So every chunk must
 * be whole, those before the data must have their checksum, and what Pillow reads of a chunk must be there.
 * Left to Pillow on purpose: interlaced and animated files, palettes that are none, texts that inflate to
 * more than 1 MiB, a second series of data chunks. As Pillow does, this ignores gamma, colour profiles, tRNS
 * (which convert() drops), checksums of the data's chunks (zlib's own is checked), and all after IEND.
 */
#ifndef FL_PNG_CHUNKS_H
#define FL_PNG_CHUNKS_H

#include <stdbool.h>

#include "common/bytes.h"
#include "common/status.h"

typedef enum fl_png_colour {
    FL_PNG_GREY = 0,
    FL_PNG_RGB = 2,
    FL_PNG_PALETTE = 3,
    FL_PNG_GREY_ALPHA = 4,
    FL_PNG_RGB_ALPHA = 6
} fl_png_colour;

/* Borrows the file's bytes. */
typedef struct fl_png {
    uint32_t width, height; /* 1 .. FL_IMAGE_SIDE_MAX */
    fl_png_colour colour;
    uint8_t bits;      /* of a sample: 1, 2, 4, 8, 16, as PNG allows for its colour */
    bool may_turn;     /* it has metadata that may say how to turn it */
    fl_span palette;   /* RGB, at most 256 entries; only FL_PNG_PALETTE has one */
    fl_span chunks;    /* the data chunks, one after another, with their headers and checksums */
    size_t compressed; /* bytes of their contents */
} fl_png;

/* True if the bytes begin as a PNG. */
bool fl_png_is(fl_span data);

/* FL_EUNSUPPORTED with the reason. See NOTE [ png: what is decoded here ]. */
fl_code fl_png_open(fl_span data, fl_png *png, fl_error *err);

/* Bytes of a row without its filter's. */
size_t fl_png_row(const fl_png *png);

/* Bytes from a sample to that of the next pixel, for the filters: at least 1. */
uint32_t fl_png_step(const fl_png *png);

/* Copies the contents of the data chunks: png->compressed bytes. */
void fl_png_join(const fl_png *png, uint8_t *out);

#endif
