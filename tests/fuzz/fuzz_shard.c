/* Shards of any depth with fields changed: fl_store refuses them as FL_ESHARD, or every sample read is right or fails its checksum. */
#define _GNU_SOURCE
#include "fl_store_tree.h"
#include "shard_maker.h"

#ifndef FUZZ_OWN_CODE
#include <sys/mman.h>
#include <unistd.h>

#include "fl_store.h"

static void read_samples(fl_store *store, const made_shard *s, bool changed) {
    static fl_reader *reader;
    uint8_t expected[1 << 13];
    fl_error err;
    fl_span span;
    if (!reader) CHECK(fl_reader_create(&reader, &err) == FL_OK);
    fl_store_set_checksums(store, 0, s->sums);
    for (uint32_t i = 0; i < s->samples; i++) {
        (void)fl_store_ahead(store, s->first + i);
        const fl_code code = fl_reader_get(reader, store, s->first + i, &span, &err);
        fuzz_known(code, &err, changed ? FUZZ_CODE(FL_ECHECKSUM) : 0);
        if (code) continue;
        fill_sample(s, i, expected);
        CHECK(span.size == s->sizes[i] && memcmp(span.bytes, expected, span.size) == 0);
        fuzz_count("samples read");
    }
    CHECK(fl_reader_get(reader, store, s->first + s->samples, &span, &err) == FL_ENOTFOUND);
    const fl_code code = fl_store_column(store, 0, "crcs", &span, &err);
    fuzz_known(code, &err, changed ? FUZZ_CODE(FL_ESHARD) : 0);
    if (code == FL_OK) {
        volatile uint32_t sum = fl_crc32c(0, span.bytes, span.size);
        CHECK(changed || (span.size == s->samples * 4 && sum == fl_crc32c(0, s->sums, span.size)));
    }
    CHECK(fl_store_column(store, 0, "none", &span, &err) == FL_ESHARD && fl_store_column(store, 1, "crcs", &span, &err) == FL_EARG);
}

/* A store's first sample is 0, so only such shards are opened. */
static void check_store(const made_shard *s, size_t size, uint64_t told, bool changed) {
    static int file = -1;
    char path[64];
    fl_error err;
    fl_store *store;
    if (s->first) return;
    if (file < 0) CHECK((file = memfd_create("shard", 0)) >= 0);
    CHECK(ftruncate(file, 0) == 0 && pwrite(file, s->bytes, size, 0) == (ssize_t)size);
    snprintf(path, sizeof path, "/proc/self/fd/%d", file);
    CHECK(fl_store_create(&store, &err) == FL_OK);
    const fl_code code = fl_store_add(store, path, 0, s->samples, told, &err);
    fuzz_known(code, &err, changed ? FUZZ_CODE(FL_ESHARD) : 0);
    if (code == FL_OK) {
        fuzz_count("shards opened");
        read_samples(store, s, changed);
    }
    fl_store_close(store);
}
#endif

/* On an allocation of the file's own size, which a sanitizer watches. Places must lie in the file. */
static void check_tree(const made_shard *s, size_t size, bool changed) {
    fl_place *places = NULL;
    fl_error err;
    uint8_t *copy = fuzz_copy(s->bytes, size);
    const fl_code code = fl_tree_check(copy, size, s->first, s->samples, "shard", &places, &err);
    fuzz_known(code, &err, changed ? FUZZ_CODE(FL_ESHARD) : 0);
    CHECK((code == FL_OK) == (places != NULL));
    if (code) CHECK(strstr(err.text, "shard"));
    for (uint32_t i = 0; i < s->samples && places; i++) {
        CHECK(fl_place_offset(places[i]) + places[i].size <= size);
        CHECK(changed || (fl_place_offset(places[i]) == s->places[i] && places[i].size == s->sizes[i]));
        fuzz_count("places");
    }
    fuzz_count(code ? "trees refused" : "trees that hold");
    free(places), free(copy);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    static uint8_t bytes[SHARD_ROOM];
    made_shard s;
    memset(bytes, 0, sizeof bytes);
    draws_begin(data, size);
    make_shard(&s, bytes);
    size_t length = (size_t)s.pages * s.page;
    const uint32_t changes = below(5);
    for (uint32_t i = 0; i < changes; i++) mutate_shard(&s);
    const bool cut = below(16) == 0;
    const uint64_t whole = length;
    if (cut) length = below((uint32_t)length + 1);
    check_tree(&s, length, changes || cut);
    fuzz_count(length < whole ? "cut shards" : "whole shards");
#ifndef FUZZ_OWN_CODE
    check_store(&s, length, below(2) ? whole : length, changes || cut);
#endif
    return 0;
}
