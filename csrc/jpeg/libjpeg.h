/* jpeg/libjpeg: libjpeg-turbo behind two calls: read the header, decode a box of it at a DCT scale.
 *
 * One fl_libjpeg per thread, made and freed by its owner; it keeps the decompressor and its scratch between
 * images, so a warm decode allocates nothing. A view it returns lives until the next call on the same
 * fl_libjpeg. libjpeg's error_exit returns here by longjmp and becomes an fl_code; warnings are counted, the
 * first is kept.
 */
#ifndef FL_JPEG_LIBJPEG_H
#define FL_JPEG_LIBJPEG_H

#include "common/image.h"
#include "common/status.h"

typedef struct fl_libjpeg fl_libjpeg;

typedef struct fl_libjpeg_info {
    uint32_t width, height;
    uint8_t components; /* 1, 3 or 4 */
    uint8_t color_space; /* libjpeg's J_COLOR_SPACE of the file */
    bool progressive, arithmetic;
} fl_libjpeg_info;

fl_code fl_libjpeg_create(fl_libjpeg **out, fl_error *err);
void fl_libjpeg_free(fl_libjpeg *jpeg); /* NULL is allowed */

/* Decoders not yet freed, in this process: tests end with the number they began with. */
long fl_libjpeg_live(void);

/* Reads the header of bytes[0..size), which must stay valid until the decode has returned. FL_ELIMIT before
 * any allocation when width x height > max_pixels; FL_EUNSUPPORTED for 12 bit and lossless files; FL_EJPEG
 * otherwise. */
fl_code fl_libjpeg_open(fl_libjpeg *jpeg, const uint8_t *bytes, size_t size, uint64_t max_pixels,
                        fl_libjpeg_info *info, fl_error *err);

/* Decodes the box (in full-size pixels, inside the image) of the file last opened, scaled by eighths/8 (1, 2,
 * 4 or 8). The view covers columns floor(x*s) .. ceil((x+width)*s) and rows alike, s = eighths/8, clipped to
 * the scaled image; at eighths = 8 it equals a full decode (accurate DCT, fancy upsampling) cropped, bit for
 * bit. Grey and CMYK/YCCK files come out as RGB, as Pillow's convert("RGB") makes them. FL_ETRUNCATED when
 * the data end before the box's last row. One decode per open. */
fl_code fl_libjpeg_decode(fl_libjpeg *jpeg, const fl_box *box, int eighths, fl_view *view, fl_error *err);

/* Warnings of the last open + decode, and the text of the first ("" when none). */
uint32_t fl_libjpeg_warnings(const fl_libjpeg *jpeg, const char **first);

/* The largest reduction (smallest eighths of 1, 2, 4, 8) that keeps box >= the target in both directions. */
int fl_jpeg_scale(uint32_t box_width, uint32_t box_height, uint32_t target_width, uint32_t target_height);

#endif
