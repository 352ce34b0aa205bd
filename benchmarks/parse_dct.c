/* parse_dct: coefficients from Huffman codes against coefficients from the DCT form, nothing else: no inverse
 * DCT, no pixels.
 *
 *   cc -O3 -std=gnu11 -ffp-contract=off -Icsrc -o parse_dct benchmarks/parse_dct.c benchmarks/floor_decode.c
 *   $(find csrc -name '*.c') \
 *       $(pkg-config --cflags --libs libjpeg libwebp libdeflate lmdb zlib) -lm -lpthread
 *   ./parse_dct LIST ROUNDS
 *
 * LIST is a text file of paths, one a line; every file is read into RAM and converted first. A round goes
 * through all files once in each mode:
 *   huffman           fl_jpeg_baseline's reading of a whole scan, one stream, stuffed bytes removed on the
 *   way avx512, avx2      the form, two strips side by side, with these instructions and pdep; left out where
 *   the CPU lacks them lanes, neon       the same without pdep: AVX2, NEON
 *   bmi2, plain       without vectors; without any later instruction
 *   pass, dc          the form's AC planes passed over; its DC coefficients alone
 * One line of JSON on stdout: {"files": n, "stay": n, "jpeg_bytes": n, "dct_bytes": n, "index_bytes": n,
 * "rounds": [{mode: ns a block}]}, of the thread's CPU time. The bytes are those of the files that have a
 * form. Exit status 1 and a line on stderr on any failure.
 */
#define _GNU_SOURCE
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/cpu.h"
#include "floor_decode.h"
#include "jpeg/baseline_stream.h"
#include "jpeg/dct.h"
#include "jpeg/dct_reader.h"
#include "jpeg/entropy.h"

enum { CHUNK = 16, ACROSS_MOST = 16384 };

typedef struct input {
    const picture *file;
    fl_jpeg_tables *tables;
    fl_jpeg_frame frame;
    fl_jpeg_dct_form form;
} input;

static volatile int sink; /* what is made is not left out */
static uint8_t *plain;

FL_INLINE size_t read_codes(const input *in) {
    static int16_t coefs[64 * 8 + 64];
    const fl_jpeg_frame *f = &in->frame;
    const fl_jpeg_task t = {.tables = in->tables,
                            .frame = f,
                            .at = in->file->bytes + f->data,
                            .end = in->file->bytes + in->file->size,
                            .plain = plain};
    fl_jpeg_stream s = {.plain = plain};
    size_t blocks = 0;
    fl_jpeg_stream_begin(&t, &s);
    for (uint32_t mcu = f->mcus_across * f->mcus_down; mcu; mcu--) {
        if (!fl_jpeg_stream_ready(&t, &s)) floor_die("damaged", in->file->path);
        fl_jpeg_bits b = s.bits;
        for (uint32_t i = 0; i < f->block_count; i++) {
            int16_t *block = coefs + 64 * (blocks++ & 7);
            memset(block, 0, 64 * sizeof *block);
            if (!fl_jpeg_stream_dc(&t, s.dc, i, &b) ||
                fl_jpeg_make_ac(&t.tables->ac[f->block_ac[i]], &b, block, FL_JPEG_IN_NATURAL_ORDER) < 0)
                floor_die("damaged", in->file->path);
            block[0] = (int16_t)s.dc[f->block_component[i]];
        }
        s.bits = b;
        if (f->interval) s.until_restart--;
    }
    sink += coefs[5];
    return blocks;
}

#if defined(__x86_64__)
FL_BMI2 static size_t read_codes_bmi2(const input *in) { return read_codes(in); }
#endif
static size_t read_codes_plain(const input *in) { return read_codes(in); }

static size_t huffman(const input *in) {
#if defined(__x86_64__)
    if (fl_cpu_has(FL_CPU_BMI2)) return read_codes_bmi2(in);
#endif
    return read_codes_plain(in);
}

static void open_lane(const input *in, uint32_t row, uint32_t lane, fl_jpeg_dct_strip *strip) {
    if (!fl_jpeg_dct_find(&in->form, row, lane, strip)) floor_die("damaged", in->file->path);
}

static size_t planes(const input *in) {
    static int16_t dc[2][ACROSS_MOST], coefs[2][64 * CHUNK + 64];
    const fl_jpeg_dct_kernels *kernels = fl_jpeg_dct_kernels_best();
    const fl_jpeg_dct_form *form = &in->form;
    size_t blocks = 0;
    for (uint32_t row = 0; row < form->rows; row++)
        for (uint32_t lane = 0; lane < form->lanes;) {
            fl_jpeg_dct_strip strips[2];
            fl_jpeg_dct_reader r[2];
            fl_jpeg_dct_run none = {0};
            uint8_t counts[2][CHUNK];
            const bool two = lane + 1 < form->lanes && form->lane[lane + 1].blocks == form->lane[lane].blocks;
            bool good = true;
            for (uint32_t i = 0; i <= two; i++) {
                open_lane(in, row, lane + i, &strips[i]);
                const uint32_t n = strips[i].lane->blocks;
                good &= fl_jpeg_dct_dc(&strips[i], 0, n, dc[i]) &&
                        fl_jpeg_dct_enter(&r[i], kernels, &strips[i], 0, n, dc[i]);
                blocks += n;
            }
            while (good && fl_jpeg_dct_next(&r[0], CHUNK)) {
                for (int i = 0; i <= two; i++) {
                    r[i].run.coefs = coefs[i], r[i].run.counts = counts[i];
                    if (i) fl_jpeg_dct_next(&r[1], CHUNK);
                }
                good = kernels->make(&r[0].run, two ? &r[1].run : &none) && fl_jpeg_dct_settle(&r[0]) &&
                       (!two || fl_jpeg_dct_settle(&r[1]));
            }
            if (!good) floor_die("damaged", in->file->path);
            lane += 1 + two;
        }
    sink += coefs[0][5];
    return blocks;
}

static size_t pass(const input *in) {
    const fl_jpeg_dct_kernels *kernels = fl_jpeg_dct_kernels_best();
    size_t blocks = 0;
    for (uint32_t row = 0; row < in->form.rows; row++)
        for (uint32_t lane = 0; lane < in->form.lanes; lane++) {
            fl_jpeg_dct_strip strip;
            fl_jpeg_dct_reader r;
            open_lane(in, row, lane, &strip);
            bool good = fl_jpeg_dct_enter(&r, kernels, &strip, 0, strip.lane->blocks, NULL);
            blocks += r.run.count = strip.lane->blocks;
            if (!good || !kernels->pass(&r.run)) floor_die("damaged", in->file->path);
        }
    return blocks;
}

static size_t dc(const input *in) {
    static int16_t made[ACROSS_MOST];
    size_t blocks = 0;
    for (uint32_t row = 0; row < in->form.rows; row++)
        for (uint32_t lane = 0; lane < in->form.lanes; lane++) {
            fl_jpeg_dct_strip strip;
            open_lane(in, row, lane, &strip);
            if (!fl_jpeg_dct_dc(&strip, 0, strip.lane->blocks, made)) floor_die("damaged", in->file->path);
            blocks += strip.lane->blocks;
        }
    sink += made[0];
    return blocks;
}

static const struct {
    const char *name, *cpu; /* cpu: "" for all features */
    unsigned needs;
    size_t (*run)(const input *);
} MODES[] = {
    {"huffman", "", 0, huffman},
    {"avx512", "bmi2,avx512,pdep", FL_CPU_BMI2 | FL_CPU_AVX512 | FL_CPU_PDEP, planes},
    {"avx2", "bmi2,avx2,pdep", FL_CPU_BMI2 | FL_CPU_AVX2 | FL_CPU_PDEP, planes},
    {"lanes", "bmi2,avx2", FL_CPU_BMI2 | FL_CPU_AVX2, planes},
    {"neon", "neon", FL_CPU_NEON, planes},
    {"bmi2", "bmi2", FL_CPU_BMI2, planes},
    {"plain", "plain", 0, planes},
    {"pass", "", 0, pass},
    {"dc", "", 0, dc},
};

static uint8_t *kept(const uint8_t *bytes, size_t size) {
    uint8_t *copy = malloc(size);
    if (!copy) floor_die("no memory for an image", "parse_dct");
    return memcpy(copy, bytes, size);
}

int main(int argc, char **argv) {
    if (argc != 3) return fprintf(stderr, "usage: parse_dct LIST ROUNDS\n"), 2;
    size_t count, used = 0, jpeg_bytes = 0, dct_bytes = 0, index_bytes = 0, largest = 0;
    picture *pictures = floor_load(argv[1], &count);
    input *inputs = calloc(count, sizeof *inputs);
    fl_jpeg_dct *dct;
    fl_jpeg_entropy *entropy;
    fl_error err;
    if (!inputs || fl_jpeg_dct_create(&dct, &err) || fl_jpeg_entropy_create(&entropy, &err))
        floor_die("no memory", "parse_dct");
    for (size_t i = 0; i < count; i++) {
        const picture *p = &pictures[i];
        const uint8_t *form, *index;
        size_t size, index_size;
        if (fl_jpeg_dct_encode(dct, p->bytes, p->size, UINT64_MAX, &form, &size, &err)) continue;
        input *in = &inputs[used++];
        in->file = p;
        if (!(in->tables = calloc(1, sizeof *in->tables))) floor_die("no memory", p->path);
        if (!fl_jpeg_header_read(in->tables, &in->frame, p->bytes, p->size) ||
            !fl_jpeg_dct_open(&in->form, kept(form, size), size) ||
            !fl_jpeg_dct_lay_out(&in->form, &in->frame) || in->frame.mcus_across * 2 > ACROSS_MOST)
            floor_die("does not come back", p->path);
        fl_jpeg_entropy_index(entropy, p->bytes, p->size, FL_JPEG_INDEX_EVERY, fl_jpeg_index_most(p->size),
                              &index, &index_size);
        jpeg_bytes += p->size, dct_bytes += size, index_bytes += index_size;
        if (p->size > largest) largest = p->size;
    }
    if (!(plain = malloc(largest + FL_JPEG_PAD))) floor_die("no memory", "parse_dct");
    printf("{\"files\": %zu, \"stay\": %zu, \"jpeg_bytes\": %zu, \"dct_bytes\": %zu, \"index_bytes\": %zu, "
           "\"rounds\": [",
           used, count - used, jpeg_bytes, dct_bytes, index_bytes);
    for (int round = -1; round < atoi(argv[2]); round++) { /* the first one warms up */
        const char *before = "{";
        if (round > 0) printf(", ");
        for (size_t m = 0; m < sizeof MODES / sizeof *MODES; m++) {
            if (fl_cpu_use(MODES[m].cpu, &err)) floor_die(err.text, "parse_dct");
            if (!fl_cpu_has(MODES[m].needs)) continue;
            size_t blocks = 0;
            const double start = floor_seconds(CLOCK_THREAD_CPUTIME_ID);
            for (size_t i = 0; i < used; i++) blocks += MODES[m].run(&inputs[i]);
            if (round >= 0)
                printf("%s\"%s\": %.3f", before, MODES[m].name,
                       (floor_seconds(CLOCK_THREAD_CPUTIME_ID) - start) / (double)blocks * 1e9);
            before = ", ";
        }
        if (round >= 0) printf("}");
    }
    printf("]}\n");
    return 0;
}
