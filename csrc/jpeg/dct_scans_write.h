/* jpeg/dct_scans_write: coefficients as the scans of a progressive file. */
#ifndef FL_JPEG_DCT_SCANS_WRITE_H
#define FL_JPEG_DCT_SCANS_WRITE_H

#include "common/buffer.h"
#include "jpeg/dct_scans.h"

typedef struct fl_jpeg_dct_scans_room {
    fl_buffer plain, out;
} fl_jpeg_dct_scans_room;

typedef enum fl_jpeg_dct_restored {
    FL_JPEG_DCT_RESTORED,
    FL_JPEG_DCT_REFUSED,
    FL_JPEG_DCT_MEMORY
} fl_jpeg_dct_restored;

/* The file of scans->blocks, head and tail into room->out. FL_JPEG_DCT_REFUSED: head or tail do not hold, or
 * a table has no code for a coefficient. */
fl_jpeg_dct_restored fl_jpeg_dct_scans_write(fl_jpeg_dct_scans *scans, fl_span head, fl_span tail, bool ones,
                                             fl_jpeg_dct_scans_room *room, size_t *written);

#endif
