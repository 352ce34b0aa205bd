/* Shards of any depth with fields changed: fl_store refuses them as FL_ESHARD, or every sample read is right
 * or fails its checksum. */
#define _GNU_SOURCE
#include <sys/mman.h>
#include <unistd.h>

#include "store/store.h"
#include "store/tree.h"
#include "shard_maker.h"

static void read_column(const fl_store *store, const made_shard *s, bool changed) {
    fl_error err;
    size_t size = 0;
    fl_code code = fl_store_column_size(store, 0, "crcs", &size, &err);
    fuzz_known(code, &err, changed ? FUZZ_CODE(FL_ESHARD) : 0);
    if (code) return;
    CHECK(size <= SHARD_ROOM);
    uint8_t *sums = fuzz_allocate(size);
    CHECK(fl_store_column(store, 0, "crcs", sums, size, &err) == FL_OK);
    FUZZ_INITIALIZED(sums, size);
    CHECK(changed || (size == s->samples * 4 && memcmp(sums, s->sums, size) == 0));
    CHECK(fl_store_column(store, 0, "crcs", sums, size + 1, &err) == FL_EARG);
    free(sums);
    CHECK(fl_store_column_size(store, 0, "none", &size, &err) == FL_ESHARD &&
          fl_store_column_size(store, 1, "crcs", &size, &err) == FL_EARG);
}

static void read_samples(fl_store *store, const made_shard *s, bool changed) {
    static fl_store_reader *reader;
    uint8_t expected[1 << 13];
    fl_error err;
    fl_span span;
    if (!reader) CHECK(fl_store_reader_create(&reader, &err) == FL_OK);
    fl_store_set_checksums(store, 0, s->sums);
    for (uint32_t i = 0; i < s->samples; i++) {
        (void)fl_store_ahead(store, i);
        const fl_code code = fl_store_reader_get(reader, store, i, (fl_span){0}, &span, &err);
        fuzz_known(code, &err, changed ? FUZZ_CODE(FL_ECHECKSUM) : 0);
        if (code) continue;
        fill_sample(s, i, expected);
        CHECK(span.size == s->sizes[i] && (span.size == 0 || memcmp(span.bytes, expected, span.size) == 0));
        fuzz_count("samples read");
    }
    CHECK(fl_store_reader_get(reader, store, s->samples, (fl_span){0}, &span, &err) == FL_ENOTFOUND);
}

/* A store's first sample is 0, so only such shards are opened. */
static void check_store(const made_shard *s, int file, uint64_t told, bool changed) {
    char path[64];
    fl_error err;
    fl_store *store;
    if (s->first) return;
    snprintf(path, sizeof path, "/proc/self/fd/%d", file);
    CHECK(fl_store_create(&store, &err) == FL_OK);
    const fl_code code = fl_store_add(
        store, &(fl_shard_spec){.path = path, .count = s->samples, .bytes = told, .stored = s->samples},
        &err);
    fuzz_known(code, &err, changed ? FUZZ_CODE(FL_ESHARD) : 0);
    if (code == FL_OK) {
        fuzz_count("shards opened");
        read_samples(store, s, changed);
        read_column(store, s, changed);
    }
    fl_store_close(store);
}

/* Places must lie in the file. */
static void check_tree(const made_shard *s, int file, uint64_t told, bool changed) {
    fl_store_tree tree;
    fl_error err;
    const fl_code code = fl_store_tree_read(file, told, s->first, s->samples, "shard", &tree, &err);
    fuzz_known(code, &err, changed ? FUZZ_CODE(FL_ESHARD) : 0);
    fuzz_count(code ? "trees refused" : "trees that hold");
    if (code) {
        CHECK(strstr(err.text, "shard"));
        return;
    }
    for (uint32_t i = 0; i < s->samples; i++) {
        const uint64_t offset = fl_store_place_offset(tree.samples[i]);
        CHECK(offset + tree.samples[i].size <= told);
        CHECK(changed || (offset == s->places[i] && tree.samples[i].size == s->sizes[i]));
        fuzz_count("places");
    }
    for (uint32_t i = 0; i < tree.column_count; i++)
        CHECK(fl_store_place_offset(tree.columns[i].place) + tree.columns[i].place.size <= told &&
              tree.columns[i].name_size <= FL_STORE_COLUMN_NAME);
    fl_store_tree_free(&tree);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    static uint8_t bytes[SHARD_ROOM];
    static int file = -1;
    made_shard s;
    memset(bytes, 0, sizeof bytes);
    draws_begin(data, size);
    make_shard(&s, bytes);
    const uint64_t whole = (uint64_t)s.pages * s.page;
    const uint32_t changes = below(5);
    for (uint32_t i = 0; i < changes; i++) mutate_shard(&s);
    const bool cut = below(16) == 0;
    const uint64_t length = cut ? below((uint32_t)whole + 1) : whole, told = below(2) ? whole : length;
    if (file < 0) CHECK((file = memfd_create("shard", 0)) >= 0);
    CHECK(ftruncate(file, 0) == 0 && pwrite(file, bytes, length, 0) == (ssize_t)length);
    check_tree(&s, file, told, changes || cut);
    check_store(&s, file, told, changes || cut);
    return 0;
}
