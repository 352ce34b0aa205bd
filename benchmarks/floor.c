/* floor: the decoder's own limit on this machine, which a loader built on libjpeg-turbo is held against.
 *
 *   cc -O2 -o floor floor.c -ljpeg -lpthread -lm
 *   ./floor LIST THREADS SIZE SECONDS SEED MODE...
 *
 * LIST is a text file of paths, one a line; every file is read into RAM first. For each MODE one unmeasured pass over all images
 * warms up, then whole passes run until SECONDS have gone by. Nothing is resized, nothing is read from disk, nothing is collated.
 *   full      the whole image to RGB, accurate DCT, fancy upsampling: what most loaders pay
 *   region    a RandomResizedCrop box (area 0.08..1, ratio 3/4..4/3), drawn anew for each pass; the smallest DCT scale of
 *             1/8 1/4 1/2 1 that keeps the box >= SIZE; crop_scanline, skip_scanlines, stop after the box's last row
 *   entropy   Huffman decoding of the whole image alone
 * One line of JSON on stdout: {"images": n, "threads": n, "region": {"images_per_s": x, "cpu_us": x, "passes": n}, ...}
 * cpu_us is the process's CPU time for one image. Exit status 1 and a line on stderr when a file cannot be read or decoded.
 */
#define _GNU_SOURCE
#include <math.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <jpeglib.h>

typedef struct picture {
    unsigned char *bytes;
    size_t size;
    unsigned width, height;
    unsigned box_x, box_y, box_w, box_h; /* written between passes only */
} picture;

typedef enum job_kind { JOB_FULL, JOB_REGION, JOB_ENTROPY } job_kind;

static const char *const JOB_NAMES[] = {"full", "region", "entropy"};

typedef struct job {
    picture *pictures;
    size_t count;
    job_kind kind;
    unsigned target;
    atomic_size_t next; /* the next picture nobody has taken */
} job;

static void die(const char *what, const char *which) {
    fprintf(stderr, "floor: %s: %s\n", what, which);
    exit(1);
}

static double clock_seconds(clockid_t id) {
    struct timespec t;
    clock_gettime(id, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

/* SplitMix64 (Steele, Lea, Flood, OOPSLA'14), as a double in [0, 1). */
static double draw(uint64_t *state) {
    uint64_t z = (*state += 0x9E3779B97F4A7C15u);
    z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9u;
    z = (z ^ (z >> 27)) * 0x94D049BB133111EBu;
    return (double)((z ^ (z >> 31)) >> 11) * 0x1p-53;
}

/* RandomResizedCrop's box: ten tries, then the largest centred box of an allowed ratio. */
static void draw_box(picture *p, uint64_t *state) {
    const double low = 3.0 / 4.0, high = 4.0 / 3.0;
    for (int attempt = 0; attempt < 10; attempt++) {
        double area = (double)p->width * p->height * (0.08 + 0.92 * draw(state));
        double ratio = exp(log(low) + draw(state) * (log(high) - log(low)));
        long w = lround(sqrt(area * ratio)), h = lround(sqrt(area / ratio));
        if (w < 1 || h < 1 || w > (long)p->width || h > (long)p->height) continue;
        p->box_w = (unsigned)w, p->box_h = (unsigned)h;
        p->box_x = (unsigned)(draw(state) * (p->width - p->box_w + 1));
        p->box_y = (unsigned)(draw(state) * (p->height - p->box_h + 1));
        return;
    }
    double ratio = (double)p->width / p->height;
    p->box_w = ratio > high ? (unsigned)lround(p->height * high) : p->width;
    p->box_h = ratio < low ? (unsigned)lround(p->width / low) : p->height;
    p->box_x = (p->width - p->box_w) / 2, p->box_y = (p->height - p->box_h) / 2;
}

static void on_error(j_common_ptr c) {
    char text[JMSG_LENGTH_MAX];
    c->err->format_message(c, text);
    die("libjpeg", text);
}

static void on_message(j_common_ptr c, int level) { (void)c, (void)level; }

static unsigned choose_scale(const picture *p, unsigned target) {
    for (unsigned s = 1; s < 8; s *= 2)
        if ((uint64_t)p->box_w * s >= 8u * (uint64_t)target && (uint64_t)p->box_h * s >= 8u * (uint64_t)target) return s;
    return 8;
}

/* Rows land in one buffer that is used again for every image: the cheapest place there is to put them. */
static void read_rows(struct jpeg_decompress_struct *c, unsigned char *out, unsigned end) {
    size_t stride = (size_t)c->output_width * 3;
    while (c->output_scanline < end) {
        JSAMPROW rows[8];
        JDIMENSION want = end - c->output_scanline < 8 ? end - c->output_scanline : 8;
        for (JDIMENSION i = 0; i < want; i++) rows[i] = out + i * stride;
        out += jpeg_read_scanlines(c, rows, want) * stride;
    }
}

static void decode(struct jpeg_decompress_struct *c, const picture *p, const job *j, unsigned char *out) {
    jpeg_mem_src(c, p->bytes, p->size);
    jpeg_read_header(c, TRUE);
    if (j->kind == JOB_ENTROPY) {
        jpeg_read_coefficients(c);
        jpeg_abort_decompress(c);
        return;
    }
    c->out_color_space = JCS_RGB;
    c->scale_denom = 8;
    c->scale_num = j->kind == JOB_REGION ? choose_scale(p, j->target) : 8;
    jpeg_start_decompress(c);
    unsigned end = c->output_height;
    if (j->kind == JOB_REGION) {
        uint64_t s = c->scale_num;
        JDIMENSION x = (JDIMENSION)(p->box_x * s / 8), y = (JDIMENSION)(p->box_y * s / 8);
        JDIMENSION right = (JDIMENSION)(((uint64_t)p->box_x + p->box_w) * s + 7) / 8;
        JDIMENSION below = (JDIMENSION)(((uint64_t)p->box_y + p->box_h) * s + 7) / 8;
        if (right > c->output_width) right = c->output_width;
        if (below < end) end = below;
        JDIMENSION width = right - x;
        jpeg_crop_scanline(c, &x, &width);
        if (y) jpeg_skip_scanlines(c, y);
    }
    read_rows(c, out, end);
    jpeg_abort_decompress(c);
}

static void *run_thread(void *opaque) {
    job *j = opaque;
    struct jpeg_decompress_struct c;
    struct jpeg_error_mgr err;
    c.err = jpeg_std_error(&err);
    err.error_exit = on_error, err.emit_message = on_message;
    jpeg_create_decompress(&c);
    unsigned char *out = NULL;
    size_t capacity = 0;
    for (size_t i; (i = atomic_fetch_add(&j->next, 1)) < j->count;) {
        const picture *p = &j->pictures[i];
        size_t need = ((size_t)p->width + 64) * ((size_t)p->height + 64) * 3;
        if (need > capacity) {
            free(out);
            if (!(out = malloc(capacity = need))) die("memory", "no room for one image");
        }
        decode(&c, p, j, out);
    }
    jpeg_destroy_decompress(&c);
    free(out);
    return NULL;
}

static void run_pass(job *j, pthread_t *threads, int thread_count) {
    atomic_store(&j->next, 0);
    for (int i = 0; i < thread_count; i++)
        if (pthread_create(&threads[i], NULL, run_thread, j)) die("pthread_create", "failed");
    for (int i = 0; i < thread_count; i++) pthread_join(threads[i], NULL);
}

static void measure(job *j, int thread_count, double seconds, uint64_t *state) {
    pthread_t *threads = calloc((size_t)thread_count, sizeof *threads);
    if (!threads) die("memory", "threads");
    double wall = 0, cpu = 0;
    int passes = -1; /* the first warms up */
    do {
        for (size_t i = 0; i < j->count; i++) draw_box(&j->pictures[i], state);
        double wall0 = clock_seconds(CLOCK_MONOTONIC), cpu0 = clock_seconds(CLOCK_PROCESS_CPUTIME_ID);
        run_pass(j, threads, thread_count);
        if (++passes == 0) continue;
        wall += clock_seconds(CLOCK_MONOTONIC) - wall0;
        cpu += clock_seconds(CLOCK_PROCESS_CPUTIME_ID) - cpu0;
    } while (passes < 1 || wall < seconds);
    double images = (double)j->count * passes;
    printf(", \"%s\": {\"images_per_s\": %.2f, \"cpu_us\": %.2f, \"passes\": %d}", JOB_NAMES[j->kind], images / wall, cpu / images * 1e6,
           passes);
    free(threads);
}

static void load(picture *p, const char *path) {
    FILE *f = fopen(path, "rb");
    if (!f || fseek(f, 0, SEEK_END)) die("cannot open", path);
    long size = ftell(f);
    rewind(f);
    if (size < 1 || !(p->bytes = malloc(p->size = (size_t)size)) || fread(p->bytes, 1, p->size, f) != p->size) die("cannot read", path);
    fclose(f);
    struct jpeg_decompress_struct c;
    struct jpeg_error_mgr err;
    c.err = jpeg_std_error(&err);
    err.error_exit = on_error, err.emit_message = on_message;
    jpeg_create_decompress(&c);
    jpeg_mem_src(&c, p->bytes, p->size);
    jpeg_read_header(&c, TRUE);
    p->width = c.image_width, p->height = c.image_height;
    jpeg_destroy_decompress(&c);
}

static picture *load_list(const char *list, size_t *count) {
    FILE *f = fopen(list, "r");
    if (!f) die("cannot open", list);
    picture *pictures = NULL;
    size_t capacity = 0, length = 0;
    char *line = NULL;
    *count = 0;
    for (ssize_t n; (n = getline(&line, &length, f)) > 0;) {
        while (n && (line[n - 1] == '\n' || line[n - 1] == '\r')) line[--n] = 0;
        if (!n) continue;
        if (*count == capacity && !(pictures = realloc(pictures, (capacity = capacity ? 2 * capacity : 256) * sizeof *pictures)))
            die("memory", list);
        load(&pictures[(*count)++], line);
    }
    free(line);
    fclose(f);
    if (!*count) die("no paths in", list);
    return pictures;
}

int main(int argc, char **argv) {
    if (argc < 7) return fprintf(stderr, "usage: floor LIST THREADS SIZE SECONDS SEED MODE...\n"), 2;
    int threads = atoi(argv[2]), target = atoi(argv[3]);
    double seconds = atof(argv[4]);
    uint64_t state = strtoull(argv[5], NULL, 10);
    if (threads < 1 || threads > 1024 || target < 1) return fprintf(stderr, "floor: THREADS or SIZE out of range\n"), 2;
    job j = {.target = (unsigned)target};
    j.pictures = load_list(argv[1], &j.count);
    printf("{\"images\": %zu, \"threads\": %d", j.count, threads);
    for (int i = 6; i < argc; i++) {
        int kind = 0;
        while (kind < 3 && strcmp(argv[i], JOB_NAMES[kind])) kind++;
        if (kind == 3) die("no such mode", argv[i]);
        j.kind = (job_kind)kind;
        measure(&j, threads, seconds, &state);
    }
    printf("}\n");
    return 0;
}
