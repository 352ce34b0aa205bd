#include "jpeg/turn.h"

/* How a picture is turned upright: transposed first, then mirrored. */
typedef struct moves {
    bool transpose, hflip, vflip;
} moves;

static const moves TURNS[9] = {[2] = {false, true, false}, [3] = {false, true, true},
                               [4] = {false, false, true}, [5] = {true, false, false},
                               [6] = {true, true, false},  [7] = {true, true, true},
                               [8] = {true, false, true}};

static JDIMENSION ceil_div(JDIMENSION a, JDIMENSION b) { return (a + b - 1) / b; }

static void transpose_shape(struct jpeg_compress_struct *d) {
    const JDIMENSION width = d->image_width;
    d->image_width = d->image_height, d->image_height = width;
#if JPEG_LIB_VERSION >= 70
    d->jpeg_width = d->image_width, d->jpeg_height = d->image_height;
#endif
    for (int ci = 0; ci < d->num_components; ci++) {
        jpeg_component_info *each = &d->comp_info[ci];
        const int h = each->h_samp_factor;
        each->h_samp_factor = each->v_samp_factor, each->v_samp_factor = h;
    }
    for (int i = 0; i < NUM_QUANT_TBLS; i++) {
        UINT16 *values = d->quant_tbl_ptrs[i] ? d->quant_tbl_ptrs[i]->quantval : NULL;
        for (int y = 0; values && y < DCTSIZE; y++)
            for (int x = 0; x < y; x++) {
                const UINT16 value = values[y * DCTSIZE + x];
                values[y * DCTSIZE + x] = values[x * DCTSIZE + y], values[x * DCTSIZE + y] = value;
            }
    }
}

jvirt_barray_ptr *fl_jpeg_turn_begin(fl_libjpeg_io *io, struct jpeg_compress_struct *d, int orientation) {
    const moves move = TURNS[orientation];
    if (move.transpose) transpose_shape(d);
    JDIMENSION across = 1, down = 1; /* blocks of an iMCU */
    for (int ci = 0; ci < d->num_components; ci++) {
        if (across < (JDIMENSION)d->comp_info[ci].h_samp_factor)
            across = (JDIMENSION)d->comp_info[ci].h_samp_factor;
        if (down < (JDIMENSION)d->comp_info[ci].v_samp_factor)
            down = (JDIMENSION)d->comp_info[ci].v_samp_factor;
    }
    const JDIMENSION width = d->num_components == 1 ? DCTSIZE : across * DCTSIZE,
                     height = d->num_components == 1 ? DCTSIZE : down * DCTSIZE;
    if ((move.hflip && d->image_width % width) || (move.vflip && d->image_height % height))
        fl_libjpeg_io_fail(io, FL_EUNSUPPORTED,
                           "the JPEG cannot be turned without loss (orientation %d): its sides are not whole "
                           "blocks of %u x %u",
                           orientation, width, height);
    jvirt_barray_ptr *arrays = d->mem->alloc_small((j_common_ptr)d, JPOOL_IMAGE,
                                                   sizeof(jvirt_barray_ptr) * (size_t)d->num_components);
    for (int ci = 0; ci < d->num_components; ci++) {
        const JDIMENSION h = (JDIMENSION)d->comp_info[ci].h_samp_factor,
                         v = (JDIMENSION)d->comp_info[ci].v_samp_factor;
        const JDIMENSION columns = ceil_div(ceil_div(d->image_width * h, across * DCTSIZE), h) * h;
        const JDIMENSION rows = ceil_div(ceil_div(d->image_height * v, down * DCTSIZE), v) * v;
        arrays[ci] = d->mem->request_virt_barray((j_common_ptr)d, JPOOL_IMAGE, TRUE, columns, rows, v);
    }
    return arrays;
}

/* A block turned as the picture: its columns of odd frequency change their sign where that is mirrored, or
 * its rows. */
static void turn_block(const JCOEF *from, JCOEF *to, moves move) {
    for (int v = 0; v < DCTSIZE; v++)
        for (int u = 0; u < DCTSIZE; u++) {
            const JCOEF value = move.transpose ? from[u * DCTSIZE + v] : from[v * DCTSIZE + u];
            to[v * DCTSIZE + u] = (JCOEF)(((move.hflip && u % 2) != (move.vflip && v % 2)) ? -value : value);
        }
}

void fl_jpeg_turn_fill(struct jpeg_decompress_struct *c, jvirt_barray_ptr *from,
                       struct jpeg_compress_struct *d, jvirt_barray_ptr *to, int orientation) {
    const moves move = TURNS[orientation];
    for (int ci = 0; ci < d->num_components; ci++) {
        const JDIMENSION columns = d->comp_info[ci].width_in_blocks, rows = d->comp_info[ci].height_in_blocks;
        for (JDIMENSION y = 0; y < rows; y++) {
            JBLOCKROW out = d->mem->access_virt_barray((j_common_ptr)d, to[ci], y, 1, TRUE)[0];
            const JDIMENSION v = move.vflip ? rows - 1 - y : y;
            for (JDIMENSION x = 0; x < columns; x++) {
                const JDIMENSION u = move.hflip ? columns - 1 - x : x;
                JBLOCKROW row = c->mem->access_virt_barray((j_common_ptr)c, from[ci], move.transpose ? u : v,
                                                           1, FALSE)[0];
                turn_block(row[move.transpose ? v : u], out[x], move);
            }
        }
    }
}
