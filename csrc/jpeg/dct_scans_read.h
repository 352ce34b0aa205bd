/* jpeg/dct_scans_read: the scans of a progressive file as coefficients. */
#ifndef FL_JPEG_DCT_SCANS_READ_H
#define FL_JPEG_DCT_SCANS_READ_H

#include "jpeg/dct_scans.h"

/* Coefficients of a whole file into scans->blocks, which are zero at first. `plain` has room for its bytes
 * and FL_JPEG_PAD. `tail` gets all behind the first scan's coded data but the coded data of the others, at
 * most `size` bytes. False: damaged, incomplete, or coded in a way that the writer does not. */
bool fl_jpeg_dct_scans_read(fl_jpeg_dct_scans *scans, const uint8_t *bytes, size_t size, uint8_t *plain,
                            uint8_t *tail, size_t *tail_size, bool *ones);

#endif
