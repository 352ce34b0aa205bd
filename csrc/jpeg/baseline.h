/* jpeg/baseline: a decoder of our own for the usual JPEG (baseline or extended sequential, 8 bit, Huffman,
 * one scan; grey, or YCbCr at 4:4:4, 4:2:2, 4:2:0, 4:4:0), that makes the very bytes fl_libjpeg makes and
 * passes quickly over what lies outside the box.
 *
 * NOTE [ baseline: libjpeg-turbo decides ]
 * Nothing here reports an error. Whatever is unusual, damaged or out of memory makes a call return false, and
 * the caller then opens the file with fl_libjpeg, which decodes it or says what is wrong with it. So a file
 * is judged by one decoder only, and this one refuses at the first doubt. It looks at no byte behind the MCUs
 * that the box needs.
 *
 * NOTE [ baseline: files of which libjpeg-turbo raises no error ]
 * Errors of libjpeg-turbo come of headers, tables and segments; what is wrong with coded data are warnings,
 * of which Pillow says nothing. So a file whose header this decoder reads (fl_jpeg_header_read refuses all of
 * which libjpeg might have anything to say), and in which nothing but stuffed zeros and restart markers
 * stands between its first coded byte and its end marker, loads in Pillow without an exception, whatever its
 * coded data are: a missing MCU becomes grey, and the end marker ends every wait for more data. To know that
 * takes one search for 0xFF. It says nothing about pixels: those of damaged data are libjpeg's business, as
 * ever.
 *
 * An image in the DCT form (jpeg/dct_form.h) is opened and decoded by the same calls, into the same pixels as
 * the JPEG that it was made of. It needs no index, and nobody else reads it: false then means that it is
 * damaged, or that there is no memory.
 *
 * One fl_jpeg_baseline per thread, made and freed by its owner; it keeps tables and scratch between images,
 * so a warm decode allocates nothing. A view lives until the next call on the same fl_jpeg_baseline.
 */
#ifndef FL_JPEG_BASELINE_H
#define FL_JPEG_BASELINE_H

#include "common/image.h"
#include "jpeg/entropy_index.h"
#include "common/status.h"

typedef struct fl_jpeg_baseline fl_jpeg_baseline;

fl_code fl_jpeg_baseline_create(fl_jpeg_baseline **out, fl_error *err);
void fl_jpeg_baseline_free(fl_jpeg_baseline *baseline); /* NULL is allowed */

/* Reads the markers of bytes[0..size), which must stay valid until the decode has returned. False: not a file
 * for this decoder. */
bool fl_jpeg_baseline_open(fl_jpeg_baseline *baseline, const uint8_t *bytes, size_t size, uint32_t *width,
                           uint32_t *height);

/* Components of the file last opened: 1 or 3. */
uint32_t fl_jpeg_baseline_components(const fl_jpeg_baseline *baseline);

/* Bytes of the file last opened, its end marker included; 0 where libjpeg-turbo might raise an error of it,
 * or wait for more data. See NOTE [ baseline: files of which libjpeg-turbo raises no error ]. */
size_t fl_jpeg_baseline_end(const fl_jpeg_baseline *baseline);

/* Pixels from mark to mark of an index that is made by the way: closer ones make it larger and noting dearer,
 * and decodes hardly faster. */
enum { FL_JPEG_LEARN_PIXELS = 64 };

/* Has the decodes of the file last opened note what an index is made of, as far as they come by it and know
 * more than the index that they are given: see NOTE [ baseline: an index by the way ] in
 * jpeg/baseline_rows.c. */
void fl_jpeg_baseline_learn(fl_jpeg_baseline *baseline);

/* The index that the last decode has learnt, of at most `most` bytes, valid until the next one; size 0: it
 * was not asked to, or knows no more than before. Where no index of all rows is so small, it is the one that
 * the decode was given, and says that no more can be known. */
void fl_jpeg_baseline_learnt(fl_jpeg_baseline *baseline, size_t most, const uint8_t **index, size_t *size);

/* Decodes the box (in full-size pixels, inside the image) of the file last opened, scaled by eighths/8 (1, 2,
 * 4 or 8): the view of fl_libjpeg_decode, byte for byte. May be called again for another box of the same
 * file. With an index (size 0: none) only the box's part of the coded data is read. One that is none of this
 * image's size, or that leads astray, is left aside: an index can make decoding slower, and if it lies with
 * great care show other parts of this image, but nothing worse. False: let fl_libjpeg do it. */
bool fl_jpeg_baseline_decode(fl_jpeg_baseline *baseline, const fl_box *box, int eighths, const uint8_t *index,
                             size_t index_size, fl_view *view);

#endif
