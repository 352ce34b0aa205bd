/* decode: fl_baseline against libjpeg-turbo on the same files and boxes, one thread, turn by turn.
 *
 *   cc -O2 -std=gnu11 -Icsrc -o decode benchmarks/decode.c csrc/fl_*.c $(pkg-config --cflags --libs libjpeg libturbojpeg lmdb) -lm -lpthread
 *   ./decode LIST [ROUNDS] [SIZE] [EVERY]
 *
 * LIST is a text file of paths, one a line; every file is read into RAM first, and a file that fl_baseline refuses is an error. A round
 * decodes all files once in each mode, one mode after the other, with new boxes for each round; a mode's time is the thread's CPU time. Printed
 * are microseconds an image (median over rounds) and each mode's ratio to its rival of the same round (median). Nothing is resized.
 *   full      the whole image               libjpeg-turbo: jpeg_read_scanlines
 *   region    a RandomResizedCrop box (area 0.08..1, ratio 3/4..4/3) at the smallest DCT scale that keeps it >= SIZE (224)
 *             libjpeg-turbo: crop_scanline, skip_scanlines, stop after the last row
 *   centre    the middle 7/8 of the shorter side, squared, at the DCT scale for SIZE: Resize(256) + CenterCrop(224)
 *   marked    region and centre with an entropy index as packing makes it, or with EVERY a mark at every EVERY MCUs of a row; its size is printed
 *   entropy   fl_entropy's walk over the whole file, for scale (no rival); indexing: the same with an index
 */
#define _GNU_SOURCE
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "fl_baseline.h"
#include "fl_entropy.h"
#include "fl_jpeg.h"

enum { ROUNDS_MAX = 1000, MODES = 10 };

typedef struct picture {
    uint8_t *bytes;
    size_t size;
    uint32_t width, height;
    fl_box box;
    uint8_t *index;
    size_t index_size;
} picture;

static const char *names[MODES] = {"turbo full", "own full", "turbo region",  "own region",   "turbo centre",
                                   "own centre", "entropy",  "marked region", "indexing",   "marked centre"};
static const int rivals[MODES] = {-1, 0, -1, 2, -1, 4, -1, 2, 6, 4};

static picture *pictures;
static size_t count, coded_bytes, index_bytes;
static uint32_t target = 224, every = 0;
static fl_jpeg *jpeg;
static fl_baseline *baseline;
static fl_entropy *entropy;
static uint64_t state = 88172645463325252u;

static double uniform(void) {
    state ^= state << 13, state ^= state >> 7, state ^= state << 17;
    return (double)(state >> 11) / 9007199254740992.0;
}

static void stop(const char *what, const char *which) {
    fprintf(stderr, "decode: %s: %s\n", which, what);
    exit(1);
}

static bool make_index(const picture *p, const uint8_t **index, size_t *size) {
    return fl_entropy_index(entropy, p->bytes, p->size, every ? every : FL_INDEX_EVERY, every ? SIZE_MAX : fl_index_most(p->size), index, size);
}

static void read_file(const char *path) {
    FILE *f = fopen(path, "rb");
    if (!f || fseek(f, 0, SEEK_END)) stop("cannot be read", path);
    long size = ftell(f);
    pictures = realloc(pictures, (count + 1) * sizeof *pictures);
    if (size < 0 || !pictures) stop("no memory, or no size", path);
    picture p = {malloc((size_t)size + 1), (size_t)size, 0, 0, {0, 0, 0, 0}, NULL, 0};
    rewind(f);
    if (!p.bytes || fread(p.bytes, 1, p.size, f) != p.size) stop("cannot be read", path);
    fclose(f);
    if (!fl_baseline_open(baseline, p.bytes, p.size, &p.width, &p.height)) stop("not a file for fl_baseline", path);
    const uint8_t *index;
    if (!make_index(&p, &index, &p.index_size) || !p.index_size)
        stop("no index can be made", path);
    p.index = malloc(p.index_size);
    if (!p.index) stop("no memory", path);
    memcpy(p.index, index, p.index_size);
    coded_bytes += p.size;
    index_bytes += p.index_size;
    pictures[count++] = p;
}

static fl_box random_box(uint32_t width, uint32_t height) {
    for (int attempt = 0; attempt < 10; attempt++) {
        double area = width * (double)height * (0.08 + 0.92 * uniform()), ratio = exp((2 * uniform() - 1) * log(4.0 / 3));
        uint32_t w = (uint32_t)lround(sqrt(area * ratio)), h = (uint32_t)lround(sqrt(area / ratio));
        if (w && w <= width && h && h <= height)
            return (fl_box){(uint32_t)(uniform() * (width - w + 1)), (uint32_t)(uniform() * (height - h + 1)), w, h};
    }
    return (fl_box){0, 0, width, height};
}

static fl_box centre_box(uint32_t width, uint32_t height) {
    uint32_t side = (width < height ? width : height) * 7 / 8;
    if (!side) side = 1;
    return (fl_box){(width - side) / 2, (height - side) / 2, side, side};
}

static void decode(const picture *p, int mode) {
    fl_view view;
    fl_error err;
    if (mode == 6) {
        if (!fl_entropy_sound(entropy, p->bytes, p->size)) stop("the walk refuses a file", "entropy");
        return;
    }
    if (mode == 8) {
        const uint8_t *index;
        size_t size;
        if (!make_index(p, &index, &size)) stop("the walk refuses a file", "entropy");
        return;
    }
    const bool region = mode == 2 || mode == 3 || mode == 7, marked = mode > 6;
    fl_box box = mode < 2 ? (fl_box){0, 0, p->width, p->height} : region ? p->box : centre_box(p->width, p->height);
    int eighths = mode < 2 ? 8 : fl_jpeg_scale(box.width, box.height, target, target);
    if (mode % 2 == 0 && !marked) {
        fl_jpeg_info info;
        if (fl_jpeg_open(jpeg, p->bytes, p->size, UINT64_MAX, &info, &err) || fl_jpeg_decode(jpeg, &box, eighths, &view, &err))
            stop(err.text, "libjpeg-turbo");
    } else {
        uint32_t width, height;
        if (!fl_baseline_open(baseline, p->bytes, p->size, &width, &height) ||
            !fl_baseline_decode(baseline, &box, eighths, p->index, marked ? p->index_size : 0, &view))
            stop("a file was refused", "fl_baseline");
    }
}

static double cpu(void) {
    struct timespec t;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
    return (double)t.tv_sec * 1e6 + (double)t.tv_nsec * 1e-3;
}

static int ascending(const void *a, const void *b) {
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static double median(const double *values, int n) {
    double sorted[ROUNDS_MAX];
    memcpy(sorted, values, (size_t)n * sizeof *values);
    qsort(sorted, (size_t)n, sizeof *sorted, ascending);
    return sorted[n / 2];
}

int main(int argc, char **argv) {
    static double time[MODES][ROUNDS_MAX], ratio[MODES][ROUNDS_MAX];
    int rounds = argc > 2 ? atoi(argv[2]) : 11;
    if (argc > 3) target = (uint32_t)atoi(argv[3]);
    if (argc > 4) every = (uint32_t)atoi(argv[4]);
    if (argc < 2 || rounds < 1 || rounds > ROUNDS_MAX || !target)
        return fprintf(stderr, "usage: decode LIST [ROUNDS] [SIZE] [EVERY]\n"), 2;
    fl_error err;
    if (fl_jpeg_create(&jpeg, &err) || fl_baseline_create(&baseline, &err) || fl_entropy_create(&entropy, &err)) stop(err.text, "decode");
    FILE *list = fopen(argv[1], "r");
    if (!list) stop("cannot be read", argv[1]);
    char path[4096];
    while (fgets(path, sizeof path, list)) {
        path[strcspn(path, "\n")] = '\0';
        if (path[0]) read_file(path);
    }
    fclose(list);
    if (!count) stop("names no file", argv[1]);
    for (int round = -1; round < rounds; round++) { /* the first warms up */
        for (size_t i = 0; i < count; i++) pictures[i].box = random_box(pictures[i].width, pictures[i].height);
        for (int mode = 0; mode < MODES; mode++) {
            double start = cpu();
            for (size_t i = 0; i < count; i++) decode(&pictures[i], mode);
            if (round >= 0) time[mode][round] = (cpu() - start) / (double)count;
        }
        for (int mode = 0; mode < MODES && round >= 0; mode++)
            if (rivals[mode] >= 0) ratio[mode][round] = time[rivals[mode]][round] / time[mode][round];
    }
    for (int mode = 0; mode < MODES; mode++) {
        printf("%-14s %8.1f us/image", names[mode], median(time[mode], rounds));
        if (rivals[mode] >= 0) printf("   %.3f times the rate of %s", median(ratio[mode], rounds), names[rivals[mode]]);
        printf("\n");
    }
    printf("an index takes %.2f %% of a file\n", 100.0 * (double)index_bytes / (double)coded_bytes);
    for (size_t i = 0; i < count; i++) free(pictures[i].bytes), free(pictures[i].index);
    free(pictures);
    fl_jpeg_free(jpeg);
    fl_baseline_free(baseline);
    fl_entropy_free(entropy);
    return 0;
}
