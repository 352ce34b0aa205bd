/* decode: fl_jpeg_baseline, with and without the entropy index and the resize, against libjpeg-turbo on the
 * same files and boxes, turn by turn.
 *
 *   cc -O3 -std=gnu11 -ffp-contract=off -Icsrc -o decode benchmarks/decode.c benchmarks/decode_modes.c
 *   benchmarks/floor_decode.c \
 *       $(find csrc -name '*.c') $(pkg-config --cflags --libs libjpeg libturbojpeg libwebp libdeflate lmdb
 *       zlib) -lm -lpthread
 *   ./decode LIST SIZE EVERY SECONDS SEED THREADS[,THREADS...] MODE...
 *
 * LIST is a text file of paths, one a line; every file is read into RAM and its index made first. A file that
 * fl_jpeg_baseline refuses is an error, and so are other pixels than TurboJPEG's, which are looked for when
 * turbojpeg and full are both measured. A round draws new boxes, then decodes all files once in each mode
 * with each number of threads, one after the other; the first round warms up and the others run until SECONDS
 * have gone by. Threads have decoders of their own, kept from pass to pass, and take the next picture that
 * nobody has taken.
 *   floor          floor.c's region: a RandomResizedCrop box at the smallest DCT scale that keeps it >= SIZE;
 *   not resized crop           the same box and scale by fl_jpeg_baseline with the index (as packing makes
 *   it, or with EVERY a mark at every EVERY MCUs of
 *                  a row), resized to SIZE x SIZE as the loader does it (bilinear, antialiased)
 *   crop_unmarked  the same without the index
 *   region         crop without the resize
 *   turbojpeg      the whole image: tjDecompress2, TJPF_RGB, no flags, which is the accurate DCT and fancy
 *   upsampling full           the whole image by fl_jpeg_baseline without the index
 *   centre         Resize(SIZE * 8 / 7) + CenterCrop(SIZE), with the index, resized
 *   floor_centre   libjpeg-turbo's region decode of the box that centre decodes, at its scale; not resized
 *   walk, index    fl_jpeg_entropy's walk over the whole file; the same with an index made
 *   crop_dct, centre_dct, full_dct   crop, centre and full of the picture in the DCT form
 *   encode_dct     the DCT form made of the file, read again and compared
 * One line of JSON on stdout: {"images": n, "jpeg_bytes": n, "index_bytes": n, "dct_bytes": n, "rounds":
 * [[[wall_s, cpu_s] for each mode] for each number of threads] for each round}. cpu_s is the sum of the
 * threads' own CPU times. Exit status 1 and a line on stderr on any failure.
 */
#define _GNU_SOURCE
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "decode_modes.h"

enum { THREADS_MAX = 256, COUNTS_MAX = 16, ARGUMENTS = 7 };

typedef struct job {
    sample *samples;
    size_t count;
    int mode;
    atomic_size_t next; /* the next sample nobody has taken */
} job;

typedef struct lane {
    job *job;
    worker *worker;
    pthread_t thread;
    double cpu; /* seconds of the last pass; written by its thread, read after join */
} lane;

static void *run_lane(void *opaque) {
    lane *l = opaque;
    job *j = l->job;
    double start = floor_seconds(CLOCK_THREAD_CPUTIME_ID);
    for (size_t i; (i = atomic_fetch_add(&j->next, 1)) < j->count;)
        worker_run(l->worker, &j->samples[i], j->mode);
    l->cpu = floor_seconds(CLOCK_THREAD_CPUTIME_ID) - start;
    return NULL;
}

static void run_pass(job *j, lane *lanes, int threads, double *wall, double *cpu) {
    atomic_store(&j->next, 0);
    double start = floor_seconds(CLOCK_MONOTONIC);
    for (int i = 0; i < threads; i++)
        if (pthread_create(&lanes[i].thread, NULL, run_lane, &lanes[i]))
            floor_die("a thread cannot be started", "decode");
    for (int i = 0; i < threads; i++) pthread_join(lanes[i].thread, NULL);
    *wall = floor_seconds(CLOCK_MONOTONIC) - start;
    *cpu = 0;
    for (int i = 0; i < threads; i++) *cpu += lanes[i].cpu;
}

static void run_rounds(job *j, lane *lanes, const int *threads, int thread_counts, const int *modes,
                       int mode_count, double seconds, uint64_t *state) {
    double began = 0;
    for (int round = -1; round < 1 || floor_seconds(CLOCK_MONOTONIC) - began < seconds; round++) {
        if (round == 0) began = floor_seconds(CLOCK_MONOTONIC);
        for (size_t i = 0; i < j->count; i++) {
            picture *p = j->samples[i].file;
            p->box = floor_draw_box(p->width, p->height, state);
        }
        for (int t = 0; t < thread_counts; t++)
            for (int m = 0; m < mode_count; m++) {
                double wall, cpu;
                j->mode = modes[m];
                run_pass(j, lanes, threads[t], &wall, &cpu);
                if (round < 0) continue;
                const char *before = m ? ", " : t ? "], [" : round ? ", [[" : "[[";
                printf("%s[%.6f, %.6f]", before, wall, cpu);
            }
        if (round >= 0) printf("]]");
    }
}

static int mode_of(const char *name) {
    for (int mode = 0; mode < MODES; mode++)
        if (!strcmp(name, MODE_NAMES[mode])) return mode;
    floor_die("no such mode", name);
    return -1;
}

/* Returns how many numbers the list has; the largest goes to `most`. */
static int parse_threads(const char *list, int *threads, int *most) {
    int count = 0;
    for (*most = 0; count < COUNTS_MAX; list++) {
        char *end;
        long value = strtol(list, &end, 10);
        if (end == list || value < 1 || value > THREADS_MAX || (*end && *end != ',')) break;
        threads[count++] = (int)value;
        if (value > *most) *most = (int)value;
        list = end;
        if (!*end) return count;
    }
    floor_die("not a list of numbers of threads", list);
    return 0;
}

/* Whether both ways to decode a whole image are measured, and so are to be compared first. */
static bool has_both(const int *modes, int mode_count) {
    bool turbojpeg = false, full = false;
    for (int m = 0; m < mode_count; m++) {
        turbojpeg |= !strcmp(MODE_NAMES[modes[m]], "turbojpeg");
        full |= !strcmp(MODE_NAMES[modes[m]], "full");
    }
    return turbojpeg && full;
}

/* Makes the index of each file. */
static void prepare(job *j, worker *w, picture *pictures, bool compare) {
    size_t coded = 0, index = 0, form = 0;
    if (!(j->samples = calloc(j->count, sizeof *j->samples))) floor_die("no memory", "decode");
    for (size_t i = 0; i < j->count; i++) {
        sample *s = &j->samples[i];
        s->file = &pictures[i];
        worker_prepare(w, s);
        if (compare) worker_compare(w, s);
        coded += s->file->size, index += s->index_size, form += s->form_size;
    }
    printf("{\"images\": %zu, \"jpeg_bytes\": %zu, \"index_bytes\": %zu, \"dct_bytes\": %zu, \"rounds\": [",
           j->count, coded, index, form);
}

int main(int argc, char **argv) {
    if (argc <= ARGUMENTS || argc > ARGUMENTS + MODES)
        return fprintf(stderr, "usage: decode LIST SIZE EVERY SECONDS SEED THREADS[,THREADS...] MODE...\n"),
               2;
    int size = atoi(argv[2]), every = atoi(argv[3]), threads[COUNTS_MAX], modes[MODES], most;
    uint64_t state = strtoull(argv[5], NULL, 10);
    if (size < 1 || size > 4096 || every < 0)
        return fprintf(stderr, "decode: SIZE or EVERY out of range\n"), 2;
    int thread_counts = parse_threads(argv[6], threads, &most);
    for (int i = ARGUMENTS; i < argc; i++) modes[i - ARGUMENTS] = mode_of(argv[i]);
    job j = {0};
    static lane lanes[THREADS_MAX];
    picture *pictures = floor_load(argv[1], &j.count);
    for (int i = 0; i < most; i++)
        lanes[i] = (lane){.job = &j, .worker = worker_create((uint32_t)size, (uint32_t)every)};
    prepare(&j, lanes[0].worker, pictures, has_both(modes, argc - ARGUMENTS));
    run_rounds(&j, lanes, threads, thread_counts, modes, argc - ARGUMENTS, atof(argv[4]), &state);
    printf("]}\n");
    for (int i = 0; i < most; i++) worker_free(lanes[i].worker);
    for (size_t i = 0; i < j.count; i++) free(j.samples[i].index), free(j.samples[i].form);
    free(j.samples);
    floor_unload(pictures, j.count);
    return 0;
}
