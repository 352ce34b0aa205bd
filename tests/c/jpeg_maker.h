/* JPEGs made in memory by libjpeg's compressor, and what libjpeg's plain full decode makes of one: the oracle
 * of test_jpeg.c. Nothing here goes through csrc. A libjpeg error ends the program (its standard handler
 * prints and exits). */
#ifndef JPEG_MAKER_H
#define JPEG_MAKER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <jpeglib.h>

#include "draws.h"

typedef struct recipe {
    int width, height, quality;
    int components; /* 1, 3, or 4 (CMYK) */
    int h, v; /* luma's sampling factors; chroma's are 1 */
    bool progressive, arithmetic;
    int restart; /* MCUs; 0: none */
    bool bare; /* without tables */
    bool smooth; /* slopes with a little noise instead of noise: few coefficients */
    bool metadata; /* EXIF (orientation 6), ICC, comments, an Adobe marker is libjpeg's affair */
} recipe;

typedef struct file {
    unsigned char *bytes;
    unsigned long size;
} file;

static file make(const recipe *r) {
    static const unsigned char exif[] = {'E',  'x',  'i', 'f', 0, 0, 'I', 'I', 42, 0, 8, 0, 0, 0, 1, 0,
                                         0x12, 0x01, 3,   0,   1, 0, 0,   0,   6,  0, 0, 0, 0, 0, 0, 0};
    struct jpeg_compress_struct c;
    struct jpeg_error_mgr errors;
    file out = {NULL, 0};
    c.err = jpeg_std_error(&errors);
    jpeg_create_compress(&c);
    jpeg_mem_dest(&c, &out.bytes, &out.size);
    c.image_width = (JDIMENSION)r->width, c.image_height = (JDIMENSION)r->height;
    c.input_components = r->components;
    c.in_color_space = r->components == 1 ? JCS_GRAYSCALE : r->components == 4 ? JCS_CMYK : JCS_RGB;
    jpeg_set_defaults(&c);
    jpeg_set_quality(&c, r->quality, TRUE);
    c.comp_info[0].h_samp_factor = r->h, c.comp_info[0].v_samp_factor = r->v;
    c.restart_interval = (unsigned)r->restart;
    if (r->arithmetic) c.arith_code = TRUE;
    if (r->progressive) jpeg_simple_progression(&c);
    if (r->bare) jpeg_suppress_tables(&c, TRUE);
    jpeg_start_compress(&c, r->bare ? FALSE : TRUE);
    if (r->metadata) {
        jpeg_write_marker(&c, JPEG_APP0 + 1, exif, sizeof exif);
        jpeg_write_marker(&c, JPEG_APP0 + 2, (const unsigned char *)"ICC_PROFILE\0\1\1profile", 21);
        jpeg_write_marker(&c, JPEG_COM, (const unsigned char *)"a comment", 9);
    }
    unsigned char *row = malloc((size_t)r->width * (size_t)r->components);
    for (int y = 0; y < r->height; y++) {
        for (int i = 0; i < r->width * r->components; i++) {
            uint32_t random = noise() >> 24;
            row[i] = (unsigned char)(r->smooth ? (uint32_t)(5 * y + 3 * i) + random % 8 : random);
        }
        jpeg_write_scanlines(&c, &row, 1);
    }
    free(row);
    jpeg_finish_compress(&c);
    jpeg_destroy_compress(&c);
    return out;
}

/* Starts libjpeg on a file, its header read. */
static void open_file(struct jpeg_decompress_struct *c, struct jpeg_error_mgr *errors, file f) {
    c->err = jpeg_std_error(errors);
    jpeg_create_decompress(c);
    jpeg_mem_src(c, f.bytes, f.size);
    jpeg_read_header(c, TRUE);
}

/* The whole image at eighths/8, RGB (CMYK for 4 components); dimensions in *w, *h. */
__attribute__((unused)) static unsigned char *decode_all(file f, int eighths, int *w, int *h) {
    struct jpeg_decompress_struct c;
    struct jpeg_error_mgr errors;
    open_file(&c, &errors, f);
    c.out_color_space = c.num_components == 4 ? JCS_CMYK : JCS_RGB;
    c.scale_num = (unsigned)eighths, c.scale_denom = 8;
    jpeg_start_decompress(&c);
    *w = (int)c.output_width, *h = (int)c.output_height;
    size_t stride = (size_t)c.output_width * (size_t)c.output_components;
    unsigned char *out = malloc(stride * c.output_height);
    while (c.output_scanline < c.output_height) {
        JSAMPROW row = out + c.output_scanline * stride;
        jpeg_read_scanlines(&c, &row, 1);
    }
    jpeg_finish_decompress(&c);
    jpeg_destroy_decompress(&c);
    return out;
}

/* One number for all of a file's coefficients and quantisers, in a fixed order. */
__attribute__((unused)) static uint64_t coefficient_hash(file f) {
    struct jpeg_decompress_struct c;
    struct jpeg_error_mgr errors;
    open_file(&c, &errors, f);
    jvirt_barray_ptr *arrays = jpeg_read_coefficients(&c);
    uint64_t hash = 1469598103934665603u;
    for (int ci = 0; ci < c.num_components; ci++) {
        jpeg_component_info *info = &c.comp_info[ci];
        for (JDIMENSION y = 0; y < info->height_in_blocks; y++) {
            JBLOCKARRAY rows = c.mem->access_virt_barray((j_common_ptr)&c, arrays[ci], y, 1, FALSE);
            for (JDIMENSION x = 0; x < info->width_in_blocks; x++)
                for (int k = 0; k < DCTSIZE2; k++) {
                    hash = (hash ^ (uint16_t)rows[0][x][k]) * 1099511628211u;
                    hash = (hash ^ info->quant_table->quantval[k]) * 1099511628211u;
                }
        }
    }
    jpeg_finish_decompress(&c);
    jpeg_destroy_decompress(&c);
    return hash;
}

#endif
