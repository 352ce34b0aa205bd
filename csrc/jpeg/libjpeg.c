#include "jpeg/libjpeg.h"

#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include "common/buffer.h"
#include "jpeg/libjpeg_io.h"

enum { TAIL = 64, ROWS_AT_ONCE = 64 };

/* The smallest scratch is roomy, so that most threads need no other. */
static const fl_buffer_rule RULE = {.least = 1 << 20, .keep = 64 << 20};

/* NOTE [ jpeg: tables of the last file ]
 * A decompressor keeps its quantisation and Huffman tables between images, and a file that defines none of
 * its own would be decoded with those of whichever file came before it. So every open takes them away.
 * libjpeg allocates tables in its permanent pool, which only grows; they are therefore handed back to it
 * through mem->alloc_small when it asks for the next. */
typedef struct spares {
    void *tables[NUM_QUANT_TBLS + 2 * NUM_HUFF_TBLS];
    int count;
} spares;

struct fl_libjpeg {
    struct jpeg_decompress_struct c;
    fl_libjpeg_io io;
    bool opened; /* a header has been read and not yet decoded */
    spares quant, huff;
    void *(*alloc_small)(j_common_ptr cinfo, int pool, size_t size); /* libjpeg's own */
    fl_buffer scratch;
};

static atomic_long live;

long fl_libjpeg_live(void) { return atomic_load(&live); }

static void *alloc_or_reuse(j_common_ptr cinfo, int pool, size_t size) {
    fl_libjpeg *jpeg = (fl_libjpeg *)cinfo;
    if (pool == JPOOL_PERMANENT) {
        if (size == sizeof(JQUANT_TBL) && jpeg->quant.count) return jpeg->quant.tables[--jpeg->quant.count];
        if (size == sizeof(JHUFF_TBL) && jpeg->huff.count) return jpeg->huff.tables[--jpeg->huff.count];
    }
    return jpeg->alloc_small(cinfo, pool, size);
}

static void forget_tables(fl_libjpeg *jpeg) {
    for (int i = 0; i < NUM_QUANT_TBLS; i++) {
        if (jpeg->c.quant_tbl_ptrs[i]) jpeg->quant.tables[jpeg->quant.count++] = jpeg->c.quant_tbl_ptrs[i];
        jpeg->c.quant_tbl_ptrs[i] = NULL;
    }
    for (int i = 0; i < NUM_HUFF_TBLS; i++) {
        if (jpeg->c.dc_huff_tbl_ptrs[i]) jpeg->huff.tables[jpeg->huff.count++] = jpeg->c.dc_huff_tbl_ptrs[i];
        if (jpeg->c.ac_huff_tbl_ptrs[i]) jpeg->huff.tables[jpeg->huff.count++] = jpeg->c.ac_huff_tbl_ptrs[i];
        jpeg->c.dc_huff_tbl_ptrs[i] = NULL;
        jpeg->c.ac_huff_tbl_ptrs[i] = NULL;
    }
}

fl_code fl_libjpeg_create(fl_libjpeg **out, fl_error *err) {
    fl_libjpeg *jpeg = calloc(1, sizeof *jpeg);
    *out = NULL;
    if (!jpeg) return fl_fail(err, FL_ENOMEM, "no memory for a JPEG decoder (%zu bytes)", sizeof *jpeg);
    fl_libjpeg_io_init(&jpeg->io, (j_common_ptr)&jpeg->c);
    fl_libjpeg_io_begin(&jpeg->io, err);
    if (setjmp(jpeg->io.jump)) {
        fl_code code = jpeg->io.code;
        jpeg_destroy_decompress(&jpeg->c);
        free(jpeg);
        return code;
    }
    jpeg_create_decompress(&jpeg->c);
    jpeg->c.mem->max_memory_to_use =
        0; /* max_pixels is the limit; a variable of the environment (JPEGMEM) is none of ours */
    jpeg->alloc_small = jpeg->c.mem->alloc_small;
    jpeg->c.mem->alloc_small = alloc_or_reuse;
    atomic_fetch_add(&live, 1);
    *out = jpeg;
    return FL_OK;
}

void fl_libjpeg_free(fl_libjpeg *jpeg) {
    if (!jpeg) return;
    jpeg_destroy_decompress(&jpeg->c);
    fl_buffer_free(&jpeg->scratch);
    free(jpeg);
    atomic_fetch_sub(&live, 1);
}

static void open_body(fl_libjpeg *jpeg, const uint8_t *bytes, size_t size, uint64_t max_pixels,
                      fl_libjpeg_info *info) {
    struct jpeg_decompress_struct *c = &jpeg->c;
    jpeg_abort_decompress(c);
    forget_tables(jpeg);
    fl_libjpeg_io_source(&jpeg->io, c, bytes, size);
    fl_libjpeg_io_header(&jpeg->io, c, max_pixels);
    info->width = c->image_width;
    info->height = c->image_height;
    info->components = (uint8_t)c->num_components;
    info->color_space = (uint8_t)c->jpeg_color_space;
    info->progressive = c->progressive_mode != FALSE;
    info->arithmetic = c->arith_code != FALSE;
}

fl_code fl_libjpeg_open(fl_libjpeg *jpeg, const uint8_t *bytes, size_t size, uint64_t max_pixels,
                        fl_libjpeg_info *info, fl_error *err) {
    jpeg->opened = false;
    if (!bytes && size) return fl_fail(err, FL_EARG, "fl_libjpeg_open: no bytes");
    fl_libjpeg_io_begin(&jpeg->io, err);
    if (setjmp(jpeg->io.jump)) {
        jpeg_abort_decompress(&jpeg->c);
        return jpeg->io.code;
    }
    open_body(jpeg, bytes, size, max_pixels, info);
    jpeg->opened = true;
    return FL_OK;
}

/* A range of columns and rows of the scaled image: [x0, x1) x [y0, y1). */
typedef struct area {
    uint32_t x0, y0, x1, y1;
} area;

static uint32_t scaled_end(uint64_t end, int eighths, uint32_t limit) {
    uint64_t scaled = (end * (uint64_t)eighths + 7) / 8;
    return scaled < limit ? (uint32_t)scaled : limit;
}

/* The columns to decode so that those of the box come out as in a full decode. Fancy upsampling takes a
 * chroma sample's neighbours, and treats the first and last decoded ones as the image's edges;
 * jpeg_crop_scanline itself moves the left edge down to an iMCU boundary.
 *   right  an even end is the right half of its sample, which takes the next one; an odd end needs none
 *   left   an inner boundary needs the sample before it: start one column earlier; likewise when the columns
 *   from there on
 *          are fewer than 3, for chroma one sample wide makes libjpeg give up interpolating */
static void add_margin(const struct jpeg_decompress_struct *c, int eighths, uint32_t *x0, uint32_t *x1) {
    bool subsampled = false;
    for (int ci = 0; ci < c->num_components; ci++)
        if (c->comp_info[ci].h_samp_factor != c->max_h_samp_factor) subsampled = true;
    if (!subsampled) return;
    uint32_t align = (uint32_t)eighths * (uint32_t)c->max_h_samp_factor;
    uint32_t left = *x0 / align * align;
    if (*x1 % 2 == 0) ++*x1;
    if (*x1 < left + 3) *x1 = left + 3;
    if (*x1 > c->output_width) *x1 = c->output_width;
    if (left && (*x0 == left || *x1 < left + 3)) *x0 = left - 1;
}

/* True if jpeg_crop_scanline leaves a component's samples as they are. In rare sampling it does not: if
 * libjpeg gives a component a larger inverse DCT and still has to upsample it (2x4 at 1/4) it counts too few
 * of its columns, and if one component becomes a sample wide (mixed factors, 4x1 with 2x1) it gives up
 * interpolating the others too. */
static bool crops_columns(const struct jpeg_decompress_struct *c) {
    for (int ci = 0; ci < c->num_components; ci++) {
        const jpeg_component_info *part = &c->comp_info[ci];
        const bool full =
            part->h_samp_factor == c->max_h_samp_factor && part->v_samp_factor == c->max_v_samp_factor;
        const bool usual = part->h_samp_factor == 1 && part->v_samp_factor == 1 &&
                           c->max_h_samp_factor <= 2 && c->max_v_samp_factor <= 2;
        if (!full && !usual) return false;
    }
    return true;
}

static void fit_scratch(fl_libjpeg *jpeg, size_t rows, size_t stride) {
    if (rows > (SIZE_MAX - 2 * TAIL) / stride)
        fl_libjpeg_io_fail(&jpeg->io, FL_ELIMIT,
                           "a box of %zu rows of %zu bytes does not fit the address space", rows, stride);
    const size_t need = rows * stride + TAIL;
    if (!fl_buffer_fit(&jpeg->scratch, need, 1, RULE))
        fl_libjpeg_io_fail(&jpeg->io, FL_ENOMEM, "no memory for the decoded box (%zu bytes)", need);
}

static void read_rows(fl_libjpeg *jpeg, uint32_t end, size_t stride) {
    struct jpeg_decompress_struct *c = &jpeg->c;
    uint8_t *at = jpeg->scratch.bytes;
    while (c->output_scanline < end) {
        JSAMPROW rows[ROWS_AT_ONCE];
        JDIMENSION count = end - c->output_scanline;
        if (count > ROWS_AT_ONCE) count = ROWS_AT_ONCE;
        for (JDIMENSION i = 0; i < count; i++) rows[i] = at + i * stride;
        JDIMENSION got = jpeg_read_scanlines(c, rows, count);
        if (got == 0)
            fl_libjpeg_io_fail(&jpeg->io, FL_EJPEG, "libjpeg stopped at row %u", c->output_scanline);
        at += got * stride;
    }
}

/* (a * b + 127) / 255, rounded to nearest, as Pillow's CMYK to RGB conversion computes it. */
static uint8_t product(uint32_t a, uint32_t b) {
    uint32_t t = a * b + 128;
    return (uint8_t)((t + (t >> 8)) >> 8);
}

/* In place: every pixel's 3 bytes are written after its 4 have been read, and never past them. JPEG files
 * hold CMYK inverted (Adobe's convention, which Pillow assumes for all of them), so a byte is what is left of
 * the light. */
static void cmyk_to_rgb(uint8_t *pixels, size_t count) {
    for (size_t i = 0; i < count; i++) {
        const uint8_t *in = pixels + 4 * i;
        uint32_t c = 255u - in[0], m = 255u - in[1], y = 255u - in[2], light = in[3];
        uint8_t *out = pixels + 3 * i;
        out[0] = (uint8_t)(light - product(c, light));
        out[1] = (uint8_t)(light - product(m, light));
        out[2] = (uint8_t)(light - product(y, light));
    }
}

static void decode_body(fl_libjpeg *jpeg, const fl_box *box, int eighths, fl_view *view) {
    struct jpeg_decompress_struct *c = &jpeg->c;
    bool cmyk = c->num_components == 4;
    c->out_color_space = cmyk ? JCS_CMYK : JCS_RGB;
    c->scale_num = (unsigned)eighths;
    c->scale_denom = 8;
    c->dct_method = JDCT_ISLOW;
    c->do_fancy_upsampling = TRUE;
    fl_libjpeg_io_data(&jpeg->io, c);
    jpeg_start_decompress(c);

    const area want = {(uint32_t)((uint64_t)box->x * (uint64_t)eighths / 8),
                       (uint32_t)((uint64_t)box->y * (uint64_t)eighths / 8),
                       scaled_end((uint64_t)box->x + box->width, eighths, c->output_width),
                       scaled_end((uint64_t)box->y + box->height, eighths, c->output_height)};
    area got = want;
    const bool whole_rows = !crops_columns(c);
    if (fl_libjpeg_io_smooths(c)) got = (area){0, 0, c->output_width, want.y1};
    else if (whole_rows) got.x0 = 0, got.x1 = c->output_width;
    else add_margin(c, eighths, &got.x0, &got.x1);

    JDIMENSION left = got.x0, width = got.x1 - got.x0;
    if (!whole_rows) jpeg_crop_scanline(c, &left, &width);
    if (got.y0 && jpeg_skip_scanlines(c, got.y0) != got.y0)
        fl_libjpeg_io_fail(&jpeg->io, FL_EJPEG, "libjpeg skipped fewer than %u rows", got.y0);
    size_t rows = got.y1 - got.y0, stride = (size_t)width * (cmyk ? 4 : 3);
    fit_scratch(jpeg, rows, stride);
    read_rows(jpeg, got.y1, stride);
    if (cmyk) cmyk_to_rgb(jpeg->scratch.bytes, rows * width);

    stride = (size_t)width * 3;
    size_t first = (want.y0 - got.y0) * stride + (size_t)(want.x0 - left) * 3;
    const uint32_t columns = want.x1 - want.x0, lines = want.y1 - want.y0;
    const size_t tail = jpeg->scratch.room - first - (size_t)(lines - 1) * stride - (size_t)columns * 3;
    *view = (fl_view){.pixels = (uint8_t *)jpeg->scratch.bytes + first,
                      .stride = stride,
                      .width = columns,
                      .height = lines,
                      .tail = tail};
}

fl_code fl_libjpeg_decode(fl_libjpeg *jpeg, const fl_box *box, int eighths, fl_view *view, fl_error *err) {
    if (!jpeg->opened)
        return fl_fail(err, FL_EARG, "fl_libjpeg_decode: no file is open (one decode per open)");
    if (eighths != 1 && eighths != 2 && eighths != 4 && eighths != 8)
        return fl_fail(err, FL_EARG, "fl_libjpeg_decode: scale %d/8 is not 1, 2, 4 or 8 eighths", eighths);
    if (!box->width || !box->height || (uint64_t)box->x + box->width > jpeg->c.image_width ||
        (uint64_t)box->y + box->height > jpeg->c.image_height)
        return fl_fail(err, FL_EARG, "the box %u,%u %ux%u is not inside the image of %ux%u pixels", box->x,
                       box->y, box->width, box->height, jpeg->c.image_width, jpeg->c.image_height);
    jpeg->opened = false;
    fl_libjpeg_io_begin(&jpeg->io, err);
    if (setjmp(jpeg->io.jump) == 0) decode_body(jpeg, box, eighths, view);
    jpeg_abort_decompress(&jpeg->c);
    return jpeg->io.code;
}

uint32_t fl_libjpeg_warnings(const fl_libjpeg *jpeg, const char **first) {
    if (first) *first = jpeg->io.first;
    return jpeg->io.warnings;
}

int fl_jpeg_scale(uint32_t box_width, uint32_t box_height, uint32_t target_width, uint32_t target_height) {
    for (uint64_t eighths = 1; eighths < 8; eighths *= 2)
        if (box_width * eighths >= (uint64_t)target_width * 8 &&
            box_height * eighths >= (uint64_t)target_height * 8)
            return (int)eighths;
    return 8;
}
