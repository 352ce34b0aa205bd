/* Random inputs for the kernels of fl_jpeg_baseline, on which the SIMD ones must give the plain C ones'
 * bytes; for test_kernels.c and a fuzz target. Under the address sanitizer they also show that nothing is
 * read or written beyond the margins that jpeg/baseline_parts.h allows. */
#ifndef KERNEL_CASES_H
#define KERNEL_CASES_H

#include "check.h"
#include "draws.h"
#include "common/cpu.h"
#include "jpeg/baseline_avx2.h"
#include "jpeg/baseline_neon.h"
#include "jpeg/baseline_scalar.h"
#include "jpeg/huffman.h"

static const fl_jpeg_kernels *fast;

static void *allocate(size_t size) {
    void *bytes = malloc(size);
    CHECK(bytes != NULL);
    return bytes;
}

/* ---- inverse DCTs */

/* A value of any size up to the whole of 16 bits, or one of its ends. */
static int16_t value(void) {
    static const int16_t ends[] = {
        INT16_MIN, INT16_MAX, INT16_MIN / 4, INT16_MAX / 4, INT16_MIN / 4 - 1, INT16_MAX / 4 + 1, 1, -1};
    const uint32_t x = noise();
    return x % 8 ? (int16_t)((int16_t)(x >> 16) >> x / 8 % 16) : ends[x / 8 % 8];
}

/* Coefficients of one block, and how many of them in zigzag order are not known to be zero. */
static int make_block(int16_t *coefs) {
    memset(coefs, 0, 64 * sizeof *coefs);
    const uint32_t kind = below(5), density = 1 + below(8), limit = 1 + below(64);
    coefs[0] = value();
    for (uint32_t k = 1; k < 64; k++) {
        const uint32_t at = fl_jpeg_natural[k], row = at / 8;
        const int16_t x = below(8) < density ? value() : 0;
        if (kind == 1 && k < limit) coefs[at] = (int16_t)(x >> 4); /* as in a photograph */
        if (kind == 2) coefs[at] = x;
        if (kind == 3 && (row == 0 || (row == 4 && limit % 2)))
            coefs[at] = x; /* what libjpeg-turbo takes for a shift only */
        if (kind == 4) coefs[at] = x > 0 ? INT16_MAX : INT16_MIN;
    }
    int count = 64;
    while (count > 1 && !coefs[fl_jpeg_natural[count - 1]]) count--;
    return below(4) ? count : 64;
}

/* Blocks side by side in noise: all of the plane must come out the same, so nothing is written but the
 * blocks. */
static void inverse_dct(int log2) {
    const size_t n = 1 + below(9), side = (size_t)1 << log2, odd = below(16);
    const size_t before = side * below(5), stride = side * (n + below(5)), size = before + stride * side;
    int16_t *coefs = allocate((odd + n * 64) * sizeof *coefs), *quant = allocate((odd + 64) * sizeof *quant);
    uint8_t *planes[2] = {allocate(size), allocate(size)};
    fl_jpeg_job jobs[2][9];
    const uint32_t limit = below(3) ? 255 : 65535;
    for (int i = 0; i < 64; i++)
        quant[odd + (size_t)i] = (int16_t)(uint16_t)(1 + below(below(4) ? limit : 1));
    for (size_t i = 0; i < size; i++) planes[0][i] = planes[1][i] = (uint8_t)noise();
    for (size_t i = 0; i < n; i++) {
        int16_t *block = coefs + odd + 64 * i;
        const int count = make_block(block);
        for (int j = 0; j < 2; j++) jobs[j][i] = (fl_jpeg_job){block, planes[j] + before + i * side, count};
    }
    fl_jpeg_kernels_scalar.idct[log2](jobs[0], n, quant + odd, stride);
    fast->idct[log2](jobs[1], n, quant + odd, stride);
    CHECK(memcmp(planes[0], planes[1], size) == 0);
    free(coefs), free(quant), free(planes[0]), free(planes[1]);
}

/* ---- rows */

typedef enum kernel { H2V1, H2V2, H1V2, H2, YCC, GREY, KERNELS } kernel;

static void run(const fl_jpeg_kernels *k, kernel which, uint8_t *const in[3], uint8_t *out, size_t n,
                int bias) {
    switch (which) {
    case H2V1: k->h2v1(in[0], out, n); return;
    case H2V2: k->h2v2(in[0], in[1], out, n); return;
    case H1V2: k->h1v2(in[0], in[1], out, n, bias); return;
    case H2: k->h2(in[0], out, n); return;
    case YCC: k->ycc(in[0], in[1], in[2], out, n); return;
    default: k->grey(in[0], out, n);
    }
}

static const size_t made[KERNELS] = {2, 2, 1, 2, 3, 3}; /* bytes for each sample */

static void fill(uint8_t *bytes, size_t size) {
    const uint32_t kind = below(3);
    for (size_t i = 0; i < size; i++) bytes[i] = (uint8_t)(kind ? noise() : noise() % 2 ? 255 : 0);
}

static void row(kernel which, size_t n) {
    const bool pixels = which == YCC || which == GREY;
    const size_t size = made[which] * n, odd = below(33);
    const size_t ahead = odd + (pixels ? 0 : FL_JPEG_MARGIN),
                 behind = pixels ? FL_JPEG_SLACK : FL_JPEG_MARGIN;
    const int bias = 1 + (int)below(2);
    uint8_t *blocks[3], *in[3], *out[2];
    for (int i = 0; i < 3; i++) {
        const size_t shift = below(33), all = shift + FL_JPEG_MARGIN + n + FL_JPEG_MARGIN;
        fill(blocks[i] = allocate(all), all);
        in[i] = blocks[i] + shift + FL_JPEG_MARGIN;
    }
    for (int i = 0; i < 2; i++) {
        out[i] = allocate(ahead + size + behind);
        memset(out[i], 0x5A, ahead + size + behind);
        run(i ? fast : &fl_jpeg_kernels_scalar, which, in, out[i] + ahead, n, bias);
    }
    CHECK(memcmp(out[0] + ahead, out[1] + ahead, size) == 0);
    for (size_t i = 0; i < odd; i++) CHECK(out[1][i] == 0x5A);
    for (int i = 0; i < 3; i++) free(blocks[i]);
    free(out[0]), free(out[1]);
}

#endif
