/* colour/lut: bytes by tables, as Pillow's Image.point, and the counts that tables are made from. */
#ifndef FL_COLOUR_LUT_H
#define FL_COLOUR_LUT_H

#include <stddef.h>
#include <stdint.h>

/* In place: each byte by one table. Any thread, as all below. */
void fl_colour_table(uint8_t *bytes, size_t count, const uint8_t table[256]);

/* In place: the bytes of RGB pixels by a table for each channel. */
void fl_colour_tables(uint8_t *rgb, size_t pixels, const uint8_t tables[3][256]);

/* How many bytes of each of 1 or 3 channels have each value: 256 counts a channel, fewer than 2^32. */
void fl_colour_counts(const uint8_t *bytes, size_t pixels, size_t channels, uint32_t *counts);

/* ImageOps.autocontrast without a cutoff: from the least value at 0 to the largest at 255, by the counts of a channel,
 * not all 0. */
void fl_colour_autocontrast_table(const uint32_t counts[256], uint8_t table[256]);

/* ImageOps.equalize: values by their ranks, by the counts of a channel, not all 0. */
void fl_colour_equalize_table(const uint32_t counts[256], uint8_t table[256]);

#endif
