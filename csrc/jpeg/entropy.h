/* jpeg/entropy: is a JPEG's entropy-coded data whole and sound? Proved by walking every Huffman code, without
 * making a coefficient.
 *
 * Packing wants to know of every file whether libjpeg-turbo would decode it without a warning. libjpeg can
 * tell (fl_jpeg_check), at a cost near to that of decoding. This walk tells for the usual file (one scan,
 * baseline or extended sequential, 8 bit, Huffman) in a fraction of it, because lengths are all it needs. It
 * only ever errs on one side: "not proved" says nothing against a file, and fl_jpeg_check then decides.
 */
#ifndef FL_JPEG_ENTROPY_H
#define FL_JPEG_ENTROPY_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/status.h"

/* Tables of the last file: cameras and encoders mostly write the same ones. One per thread; made and freed by
 * its owner. */
typedef struct fl_jpeg_entropy fl_jpeg_entropy;

fl_code fl_jpeg_entropy_create(fl_jpeg_entropy **out, fl_error *err);
void fl_jpeg_entropy_free(fl_jpeg_entropy *entropy); /* NULL is allowed */

/* True when bytes[0..size) is sound: libjpeg-turbo then decodes it without a warning. Proved are all files of
 * this form:
 * - segments before the scan, each begun by one 0xFF: DQT, DHT, DRI, one SOF0 or SOF1 (8 bit, 1 or 3
 *   components of different ids), APPn, COM. JFIF of version 1, an Adobe transform of 0 or 1; Huffman tables
 *   that are prefix codes without the code of all ones, DC symbols of 0 to 15, AC symbols of a value, 16
 *   zeros or the end of a block; sides of at most 65500, an MCU of at most 10 blocks, each sampling factor a
 *   divisor of the largest;
 * - one scan of all components in the frame's order, 0 to 63, without approximation;
 * - coded data in which every code exists, every block ends with its coefficient 63 or with an end of block,
 *   restarts come when due, with less than a byte of padding before each marker, and EOI follows the last MCU
 *   at once.
 * libjpeg is silent about some files beside these (runs over a block's end, a byte too many); they are not
 * proved. */
bool fl_jpeg_entropy_sound(fl_jpeg_entropy *entropy, const uint8_t *bytes, size_t size);

/* MCUs for each mark when packing: denser marks make decoding no faster. */
enum { FL_JPEG_INDEX_EVERY = 2 };
static inline size_t fl_jpeg_index_most(size_t size) { return size / 1000 * 15; }

/* The same, and in the same walk the file's index (jpeg/entropy_index.h): with a mark in every `every` MCUs,
 * or every 2 every, 3 every, ..., as dense as `most` bytes allow. `index` is valid until the next call on
 * `entropy`; its size is 0 when the file is not proved sound, is not one for fl_jpeg_baseline or too large
 * (FL_JPEG_NOTED_MOST), or when `most` is too little. */
bool fl_jpeg_entropy_index(fl_jpeg_entropy *entropy, const uint8_t *bytes, size_t size, uint32_t every,
                           size_t most, const uint8_t **index, size_t *index_size);

#endif
