/* floor: the decoder's own limit on this machine, which a loader built on libjpeg-turbo is held against.
 *
 *   cc -O2 -o floor floor.c floor_decode.c -ljpeg -lpthread -lm
 *   ./floor LIST THREADS SIZE SECONDS SEED MODE...
 *
 * LIST is a text file of paths, one a line; every file is read into RAM first. For each MODE one unmeasured
 * pass over all images warms up, then whole passes run until SECONDS have gone by. Nothing is resized,
 * nothing is read from disk, nothing is collated.
 *   full      the whole image to RGB, accurate DCT, fancy upsampling: what most loaders pay
 *   region    a RandomResizedCrop box (area 0.08..1, ratio 3/4..4/3), drawn anew for each pass; the smallest
 *   DCT scale of
 *             1/8 1/4 1/2 1 that keeps the box >= SIZE; crop_scanline, skip_scanlines, stop after the box's
 *             last row
 *   entropy   Huffman decoding of the whole image alone
 * One line of JSON on stdout: {"images": n, "threads": n, "region": {"images_per_s": x, "cpu_us": x,
 * "passes": n}, ...} cpu_us is the process's CPU time for one image. Exit status 1 and a line on stderr when
 * a file cannot be read or decoded.
 */
#define _GNU_SOURCE
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "floor_decode.h"

static const char *const JOB_NAMES[] = {"full", "region", "entropy"};

typedef struct job {
    picture *pictures;
    size_t count;
    floor_kind kind;
    unsigned target;
    atomic_size_t next; /* the next picture nobody has taken */
} job;

static void *run_thread(void *opaque) {
    job *j = opaque;
    floor_decoder *decoder = floor_create();
    for (size_t i; (i = atomic_fetch_add(&j->next, 1)) < j->count;) {
        const picture *p = &j->pictures[i];
        floor_decode(decoder, p, j->kind, &p->box, floor_scale(&p->box, j->target));
    }
    floor_free(decoder);
    return NULL;
}

static void run_pass(job *j, pthread_t *threads, int thread_count) {
    atomic_store(&j->next, 0);
    for (int i = 0; i < thread_count; i++)
        if (pthread_create(&threads[i], NULL, run_thread, j))
            floor_die("a thread cannot be started", "floor");
    for (int i = 0; i < thread_count; i++) pthread_join(threads[i], NULL);
}

static void measure(job *j, int thread_count, double seconds, uint64_t *state) {
    pthread_t *threads = calloc((size_t)thread_count, sizeof *threads);
    if (!threads) floor_die("no memory for threads", "floor");
    double wall = 0, cpu = 0;
    int passes = -1; /* the first warms up */
    do {
        for (size_t i = 0; i < j->count; i++)
            j->pictures[i].box = floor_draw_box(j->pictures[i].width, j->pictures[i].height, state);
        double wall0 = floor_seconds(CLOCK_MONOTONIC), cpu0 = floor_seconds(CLOCK_PROCESS_CPUTIME_ID);
        run_pass(j, threads, thread_count);
        if (++passes == 0) continue;
        wall += floor_seconds(CLOCK_MONOTONIC) - wall0;
        cpu += floor_seconds(CLOCK_PROCESS_CPUTIME_ID) - cpu0;
    } while (passes < 1 || wall < seconds);
    double images = (double)j->count * passes;
    printf(", \"%s\": {\"images_per_s\": %.2f, \"cpu_us\": %.2f, \"passes\": %d}", JOB_NAMES[j->kind],
           images / wall, cpu / images * 1e6, passes);
    free(threads);
}

int main(int argc, char **argv) {
    if (argc < 7) return fprintf(stderr, "usage: floor LIST THREADS SIZE SECONDS SEED MODE...\n"), 2;
    int threads = atoi(argv[2]), target = atoi(argv[3]);
    double seconds = atof(argv[4]);
    uint64_t state = strtoull(argv[5], NULL, 10);
    if (threads < 1 || threads > 1024 || target < 1)
        return fprintf(stderr, "floor: THREADS or SIZE out of range\n"), 2;
    job j = {.target = (unsigned)target};
    j.pictures = floor_load(argv[1], &j.count);
    printf("{\"images\": %zu, \"threads\": %d", j.count, threads);
    for (int i = 6; i < argc; i++) {
        int kind = 0;
        while (kind < 3 && strcmp(argv[i], JOB_NAMES[kind])) kind++;
        if (kind == 3) floor_die("no such mode", argv[i]);
        j.kind = (floor_kind)kind;
        measure(&j, threads, seconds, &state);
    }
    printf("}\n");
    floor_unload(j.pictures, j.count);
    return 0;
}
