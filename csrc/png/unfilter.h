/* png/unfilter: PNG's filters, undone. */
#ifndef FL_PNG_UNFILTER_H
#define FL_PNG_UNFILTER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { FL_PNG_BEYOND = 16 /* bytes that must be readable after a row and after the one above it */ };

/* Undoes the filter of a row of `size` bytes, in place. row[-1] is the filter's byte, `above` the row above
 * as it was made, or zeros; step: fl_png_step. False: there is no such filter. */
bool fl_png_unfilter(uint8_t *row, const uint8_t *above, size_t size, uint32_t step);

#endif
