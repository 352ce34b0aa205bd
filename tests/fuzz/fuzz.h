/* What every fuzz target shares. A target is one .c file with LLVMFuzzerTestOneInput; CHECK aborts, which
 * libFuzzer takes for a crash. FUZZ_OWN_CODE: built without libjpeg, for the memory sanitizer, which must
 * have compiled all code that it watches. */
#ifndef FUZZ_H
#define FUZZ_H

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "check.h"
#include "draws.h"
#include "common/status.h"

#if defined(__has_feature)
#if __has_feature(memory_sanitizer)
#include <sanitizer/msan_interface.h>
#define FUZZ_INITIALIZED(bytes, size) __msan_check_mem_is_initialized((bytes), (size))
#endif
#endif
#ifndef FUZZ_INITIALIZED
#define FUZZ_INITIALIZED(bytes, size) ((void)(bytes), (void)(size))
#endif

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
size_t LLVMFuzzerCustomMutator(uint8_t *data, size_t size, size_t max_size, unsigned int seed);
size_t LLVMFuzzerMutate(uint8_t *data, size_t size,
                        size_t max_size); /* libFuzzer's own; replay.c stands in for it */

/* What the run has compared; printed when it ends, for a target that compares nothing finds nothing. */
static struct {
    const char *name;
    long count;
} fuzz_counts[8];

static void fuzz_print_counts(void) {
    const char *to =
        getenv("FUZZ_COUNTS"); /* a file that is added to: under -fork=1 every job has a log of its own */
    FILE *file = to ? fopen(to, "a") : NULL;
    for (int i = 0; i < 8 && fuzz_counts[i].name; i++) {
        fprintf(stderr, "%s%ld %s", i ? ", " : "compared: ", fuzz_counts[i].count, fuzz_counts[i].name);
        if (file) fprintf(file, "%ld %s\n", fuzz_counts[i].count, fuzz_counts[i].name);
    }
    fputc('\n', stderr);
    if (file) fclose(file);
}

static void fuzz_count(const char *name) {
    int i = 0;
    if (!fuzz_counts[0].name) atexit(fuzz_print_counts);
    while (fuzz_counts[i].name && fuzz_counts[i].name != name) i++;
    fuzz_counts[i].name = name;
    fuzz_counts[i].count++;
}

/* A failure must have a code of common/status.h, its own among those that the function's header names, and a
 * text. */
static void fuzz_known(fl_code code, const fl_error *err, uint32_t allowed) {
    if (code == FL_OK) return;
    if (!(code > 0 && code < 32 && allowed >> code & 1))
        fprintf(stderr, "code %d: %s\n", (int)code, err->text);
    CHECK(code > 0 && code < 32 && (allowed >> code & 1) && err->code == code && err->text[0]);
    CHECK(memchr(err->text, 0, FL_TEXT));
}

#define FUZZ_CODE(name) (1u << (name))
enum {
    FUZZ_JPEG_CODES = FUZZ_CODE(FL_EJPEG) | FUZZ_CODE(FL_ETRUNCATED) | FUZZ_CODE(FL_ELIMIT) |
        FUZZ_CODE(FL_EUNSUPPORTED),
};

static void *fuzz_allocate(size_t size) {
    void *bytes = malloc(size ? size : 1);
    CHECK(bytes != NULL);
    return bytes;
}

/* In a block of its own size, so that a sanitizer sees a read beyond it. */
static uint8_t *fuzz_copy(const uint8_t *bytes, size_t size) {
    uint8_t *copy = fuzz_allocate(size);
    if (size) memcpy(copy, bytes, size);
    return copy;
}

/* FNV-1a; choices about an input whose bytes are all its own (a JPEG, a record) are drawn from this. */
static void fuzz_draws_from_hash(const uint8_t *bytes, size_t size) {
    uint64_t hash = 1469598103934665603u;
    for (size_t i = 0; i < size; i++) hash = (hash ^ bytes[i]) * 1099511628211u;
    draws_at = draws_end = NULL;
    noise_state = hash | 1;
}

#endif
