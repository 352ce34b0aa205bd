/* jpeg/decoder: a JPEG's box by whichever decoder may: fl_jpeg_baseline for the usual file, libjpeg-turbo
 * (fl_libjpeg) for every other and for all that is damaged. The bytes are the same (NOTE [ baseline:
 * libjpeg-turbo decides ]), and so are errors and warnings, which are libjpeg's.
 *
 * One fl_jpeg_decoder per thread, made and freed by its owner. A view lives until the next call on it.
 */
#ifndef FL_JPEG_DECODER_H
#define FL_JPEG_DECODER_H

#include "common/image.h"
#include "common/status.h"

typedef struct fl_jpeg_decoder fl_jpeg_decoder;

fl_code fl_jpeg_decoder_create(fl_jpeg_decoder **out, fl_error *err);
void fl_jpeg_decoder_free(fl_jpeg_decoder *decoder); /* NULL is allowed */

/* As fl_libjpeg_open: bytes[0..size) must stay valid until the decode has returned. */
fl_code fl_jpeg_decoder_open(fl_jpeg_decoder *decoder, const uint8_t *bytes, size_t size, uint64_t max_pixels,
                             uint32_t *width, uint32_t *height, fl_error *err);

/* Sets the entropy index of the opened file (jpeg/entropy_index.h), for its decode; valid as long as the
 * file. Size 0: none is known. */
void fl_jpeg_decoder_index(fl_jpeg_decoder *decoder, const uint8_t *index, size_t size);

/* As fl_jpeg_baseline_learn, for the decode of the opened file, and fl_jpeg_baseline_learnt after it: nothing
 * where libjpeg-turbo has the file. */
void fl_jpeg_decoder_learn(fl_jpeg_decoder *decoder);
void fl_jpeg_decoder_learnt(fl_jpeg_decoder *decoder, size_t most, const uint8_t **index, size_t *size);

/* As fl_libjpeg_decode. One decode per open. */
fl_code fl_jpeg_decoder_decode(fl_jpeg_decoder *decoder, const fl_box *box, int eighths, fl_view *view,
                               fl_error *err);

/* True if libjpeg-turbo, the slower of the two, has the file last opened: it was not usual, or the other met
 * damage in it. */
bool fl_jpeg_decoder_fell_back(const fl_jpeg_decoder *decoder);

/* Components of the file last opened, 1 or 3, if fl_jpeg_baseline has it; else 0. */
uint32_t fl_jpeg_decoder_components(const fl_jpeg_decoder *decoder);

/* As fl_jpeg_baseline_end, if fl_jpeg_baseline has the file last opened; else 0. */
size_t fl_jpeg_decoder_end(const fl_jpeg_decoder *decoder);

/* Warnings of the last open + decode. */
uint32_t fl_jpeg_decoder_warnings(const fl_jpeg_decoder *decoder);

#endif
