/* Stored forms and their JPEGs (tests/native/data/dct), with every kernel set of this CPU: what was made when
 * the format was is read today. Needs no libjpeg, so that it runs on emulated processors too: make run-qemu.
 * Run from the root of the repository. */
#include <string.h>

#include "check.h"
#include "common/cpu.h"
#include "draws.h"
#include "jpeg/baseline.h"
#include "jpeg/dct.h"

typedef struct file {
    uint8_t *bytes;
    size_t size;
} file;

static const char *const NAMES[] = {
    "420", "422-restarts", "444-coarse", "444-fine", "grey", "progressive-420", "progressive-grey-restarts"};
static const char *const CPUS[] = {"plain", "bmi2", "bmi2,avx2", "bmi2,avx2,pdep", "bmi2,avx512,pdep",
                                   "neon"};
enum { NAME_COUNT = sizeof NAMES / sizeof *NAMES, CPU_SETS = sizeof CPUS / sizeof *CPUS, DAMAGED = 60 };

static fl_jpeg_dct *dct;
static fl_jpeg_baseline *baseline;
static fl_error err;

static file read_file(const char *name, const char *ending) {
    char path[512];
    snprintf(path, sizeof path, "tests/native/data/dct/%s%s", name, ending);
    FILE *from = fopen(path, "rb");
    CHECK(from && fseek(from, 0, SEEK_END) == 0);
    const file f = {malloc((size_t)ftell(from)), (size_t)ftell(from)};
    rewind(from);
    CHECK(fread(f.bytes, 1, f.size, from) == f.size);
    fclose(from);
    return f;
}

/* Bytes of the pixels at a scale; NULL: not one for fl_jpeg_baseline. */
static uint8_t *pixels_of(file f, int eighths, size_t *size) {
    uint32_t width, height;
    fl_view v;
    if (!fl_jpeg_baseline_open(baseline, f.bytes, f.size, &width, &height)) return NULL;
    const fl_box box = {width / 5, height / 4, width - width / 5, height - height / 4};
    CHECK(fl_jpeg_baseline_decode(baseline, &box, eighths, NULL, 0, &v));
    uint8_t *copy = malloc(*size = v.stride * v.height);
    memcpy(copy, v.pixels, *size);
    return copy;
}

/* The form is the JPEG, and the JPEG has a form that is the same with every kernel set. */
static void is(file form, file jpeg, file *made) {
    const uint8_t *out;
    size_t size;
    CHECK(fl_jpeg_dct_restore(dct, form.bytes, form.size, &out, &size, &err) == FL_OK);
    CHECK(size == jpeg.size && memcmp(out, jpeg.bytes, size) == 0);
    CHECK(fl_jpeg_dct_encode(dct, jpeg.bytes, jpeg.size, UINT64_MAX, &out, &size, &err) == FL_OK);
    if (!made->bytes) {
        *made = (file){malloc(size), size};
        memcpy(made->bytes, out, size);
    }
    CHECK(size == made->size && memcmp(out, made->bytes, size) == 0);
}

/* Bytes that a form with flipped bits gives, added up; the same number for every kernel set. */
static uint64_t damaged(file form, uint64_t seed) {
    uint64_t sum = 0;
    noise_state = seed;
    for (int i = 0; i < DAMAGED; i++) {
        uint8_t *wrong = malloc(form.size);
        const uint8_t *out;
        size_t size;
        memcpy(wrong, form.bytes, form.size);
        wrong[below((uint32_t)form.size)] ^= (uint8_t)(1 << below(8));
        const fl_code code = fl_jpeg_dct_restore(dct, wrong, form.size, &out, &size, &err);
        CHECK(code == FL_OK || code == FL_EJPEG);
        sum = sum * 31 + (uint64_t)code;
        for (size_t j = 0; !code && j < size; j++) sum = sum * 31 + out[j];
        free(wrong);
    }
    return sum;
}

int main(void) {
    CHECK(fl_jpeg_dct_create(&dct, &err) == FL_OK && fl_jpeg_baseline_create(&baseline, &err) == FL_OK);
    for (int n = 0; n < NAME_COUNT; n++) {
        const file jpeg = read_file(NAMES[n], ".jpg"), form = read_file(NAMES[n], ".dct");
        file made = {NULL, 0};
        uint64_t sum = 0;
        for (int set = 0; set < CPU_SETS; set++) {
            CHECK(fl_cpu_use(CPUS[set], NULL) == FL_OK);
            is(form, jpeg, &made);
            for (int eighths = 1; eighths <= 8; eighths *= 2) {
                size_t size = 0, truth_size = 0;
                uint8_t *pixels = pixels_of(form, eighths, &size),
                        *truth = pixels_of(jpeg, eighths, &truth_size);
                CHECK(pixels && (!truth || (size == truth_size && memcmp(pixels, truth, size) == 0)));
                free(pixels), free(truth);
            }
            const uint64_t now = damaged(form, 7 + (uint64_t)n);
            CHECK(!set || now == sum);
            sum = now;
        }
        free(jpeg.bytes), free(form.bytes), free(made.bytes);
    }
    CHECK(fl_cpu_use(NULL, NULL) == FL_OK);
    char names[FL_CPU_NAMES];
    fl_cpu_names(names);
    printf("stored forms with %s\n", names);
    fl_jpeg_baseline_free(baseline);
    fl_jpeg_dct_free(dct);
    return 0;
}
