/* store/planes_strips: the entry of planes in a record: its header, and the bytes of its strips.
 *
 * An entry of kind FL_RECORD_KIND_PLANES, little-endian: u32 height, u32 width, u8 channels, u8 bytes of a
 * channel, u8 codec, u8 zero; then
 *   stored  the pixels, row by row.
 *   runs    of one channel: label maps. A table of strips, then their rows: see store/planes_runs.h.
 *   zlib    a table of strips, then each strip deflated: see store/planes_zlib.h.
 * A strip is FL_PLANES_STRIP rows, the last one fewer. The table has u32 for each: where its bytes end,
 * counted from the table's end.
 */
#ifndef FL_STORE_PLANES_STRIPS_H
#define FL_STORE_PLANES_STRIPS_H

#include "common/bytes.h"
#include "common/image.h"
#include "common/status.h"

enum {
    FL_PLANES_HEADER = 12,
    FL_PLANES_STRIP = 16,
    FL_PLANES_CHANNELS = 4, /* the most */
};
typedef enum fl_planes_codec { FL_PLANES_STORED = 0, FL_PLANES_RUNS = 1, FL_PLANES_ZLIB = 2 } fl_planes_codec;

typedef struct fl_planes {
    uint32_t height, width; /* 1 .. FL_IMAGE_SIDE_MAX */
    uint32_t channels;      /* 1 .. FL_PLANES_CHANNELS */
    uint32_t pixel;         /* bytes of a pixel: channels times 1 or 2 */
    fl_planes_codec codec;
    fl_span data; /* what comes after the header; of the entry's owner */
} fl_planes;

/* Parses an entry's header, and checks the size of what follows it. FL_ERECORD. */
fl_code fl_planes_open(fl_span entry, fl_planes *out, fl_error *err);

/* The bytes of a strip, from the table of the codecs that have one. FL_ERECORD. */
fl_code fl_planes_strip(const fl_planes *planes, uint32_t strip, fl_span *out, fl_error *err);

#endif
