/* jpeg/libjpeg_io: what fl_libjpeg and fl_transcode share: libjpeg's errors by longjmp, and a source over
 * borrowed bytes.
 *
 * NOTE [ jpeg: errors by longjmp ]
 * Every entry point calls fl_libjpeg_io_begin, then setjmp(io->jump), then a body in a function of its own,
 * so that no local of the frame that called setjmp changes between the two returns. A failure has filled the
 * caller's fl_error and io->code when the jump lands; the entry point then only releases and returns
 * io->code.
 *
 * NOTE [ jpeg: where a file ends ]
 * libjpeg reads ahead of the bits that it needs, so running out of bytes is not yet a missing pixel. In a
 * single-scan Huffman file the source then hands out an end marker and counts a warning; only when bits are
 * really missing (JWRN_HIT_MARKER) is the file truncated. Everywhere else (headers, between scans, arithmetic
 * coding, whose decoder makes up zeros without a word) running out of bytes is FL_ETRUNCATED at once. A real
 * end marker in the wrong place stays a warning, as in Pillow.
 */
#ifndef FL_JPEG_LIBJPEG_IO_H
#define FL_JPEG_LIBJPEG_IO_H

#include <setjmp.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include <jpeglib.h>

#include "common/status.h"

/* A progressive file of n scans costs n passes over all its blocks. Usual scripts have about 10, the longest
 * legitimate ones some 70 (every bit of every band alone); more is a decompression bomb. */
enum { FL_JPEG_SCANS_MAX = 100 };

/* Most bytes of coefficients. For a file of several scans libjpeg keeps each, 2 bytes, however small the box:
 * 3 bytes a pixel in 4:2:0, 6 in 4:4:4. Files that need more are refused before it is allocated: 178 million
 * pixels in 4:2:0, 89 million in 4:4:4. */
enum { FL_JPEG_COEFFICIENTS_MAX = 512 << 20 };

typedef struct fl_libjpeg_io {
    struct jpeg_error_mgr errors;
    struct jpeg_source_mgr source;
    struct jpeg_progress_mgr progress;
    jmp_buf jump;
    fl_error *err; /* the caller's, for the call in progress */
    fl_code code; /* FL_OK until a call fails */
    size_t size; /* of the file */
    bool end_allowed; /* see NOTE [ jpeg: where a file ends ] */
    bool ended; /* the end marker handed out was not the file's */
    int frame; /* the file's SOFn marker code; 0 before it is read */
    uint32_t warnings;
    char first[FL_TEXT];
} fl_libjpeg_io;

/* Sets cinfo->err, client_data; call before jpeg_create_(de)compress. */
void fl_libjpeg_io_init(fl_libjpeg_io *io, j_common_ptr cinfo);

/* A new call; warnings and frame stay. */
void fl_libjpeg_io_begin(fl_libjpeg_io *io, fl_error *err);

/* Points the decompressor at a file and forgets the last one's warnings. */
void fl_libjpeg_io_source(fl_libjpeg_io *io, j_decompress_ptr cinfo, const uint8_t *bytes, size_t size);

/* Fails the call in progress with a text of our own. */
__attribute__((noreturn, format(printf, 3, 4))) void fl_libjpeg_io_fail(fl_libjpeg_io *io, fl_code code,
                                                                        const char *format, ...);

/* jpeg_read_header, then what this build accepts: pixels within the limit, 8 bit, DCT, 1, 3 or 4 components.
 * Jumps otherwise. */
void fl_libjpeg_io_header(fl_libjpeg_io *io, j_decompress_ptr cinfo, uint64_t max_pixels);

/* After jpeg_read_header, before any data: sets the rules for running out of bytes and for the number of
 * scans. Jumps where several scans need more memory than FL_JPEG_COEFFICIENTS_MAX. */
void fl_libjpeg_io_data(fl_libjpeg_io *io, j_decompress_ptr cinfo);

/* True when a progressive file stops short of full precision, so that libjpeg smooths across its blocks: then
 * a pixel depends on blocks that are not its own, and on how the file was coded. Call when all scans have
 * been read. */
bool fl_libjpeg_io_smooths(j_decompress_ptr cinfo);

#endif
