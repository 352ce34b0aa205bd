/* Shards of a store whose samples are told apart from the file's: other numbers, some of them, and places
 * that are given and not walked. Usage: test_store_shards [seed]. */
#define _GNU_SOURCE
#include "store_shard.h"

/* The same file thrice: whole with other numbers than its keys, every third sample of it, and two samples
 * with a base. */
static void test_rows_and_keys(uint64_t bytes) {
    enum { THIRD = (SAMPLES + 2) / 3 };
    static uint32_t thirds[THIRD], crcs[THIRD];
    const uint32_t two[] = {1, SAMPLES - 1}, same[] = {4, 4}, back[] = {5, 4}, beyond[] = {0, SAMPLES};
    uint8_t expected[16384], head[FL_STORE_HEAD];
    fl_error err;
    fl_store *store;
    fl_store_reader *reader;
    fl_span span;
    for (uint32_t i = 0; i < THIRD; i++) thirds[i] = 3 * i, crcs[i] = sums[3 * i];
    CHECK(fl_store_create(&store, &err) == FL_OK);
    fl_shard_spec spec = {
        .path = path, .first = 0, .count = SAMPLES, .bytes = bytes, .key = 1, .stored = SAMPLES};
    CHECK(fl_store_add(store, &spec, &err) == FL_ESHARD); /* other keys than the file's */
    spec.key = 0, spec.stored = SAMPLES - 1;
    CHECK(fl_store_add(store, &spec, &err) == FL_EARG);
    spec.stored = UINT64_MAX, spec.key = 1;
    CHECK(fl_store_add(store, &spec, &err) == FL_EARG);
    spec.stored = SAMPLES, spec.key = 0;
    CHECK(fl_store_add(store, &spec, &err) == FL_OK);
    spec.first = SAMPLES, spec.count = THIRD;
    CHECK(fl_store_add(store, &spec, &err) == FL_OK && fl_store_set_rows(store, 1, thirds, &err) == FL_OK);
    fl_store_set_checksums(store, 1, crcs);
    char base[] = "../elsewhere";
    spec.first = SAMPLES + THIRD, spec.count = 2, spec.base = base;
    CHECK(fl_store_add(store, &spec, &err) == FL_OK);
    base[0] = 'x'; /* the store has a copy */
    CHECK(fl_store_set_rows(store, 2, same, &err) == FL_ESHARD &&
          fl_store_set_rows(store, 2, back, &err) == FL_ESHARD);
    CHECK(fl_store_set_rows(store, 2, beyond, &err) == FL_ESHARD &&
          fl_store_set_rows(store, 3, two, &err) == FL_EARG);
    CHECK(fl_store_set_rows(store, 2, two, &err) == FL_OK);
    CHECK(fl_store_count(store) == SAMPLES + THIRD + 2 && !fl_store_base(store, 0) &&
          !fl_store_base(store, SAMPLES + THIRD + 2));
    CHECK(strcmp(fl_store_base(store, SAMPLES + THIRD), "../elsewhere") == 0);
    CHECK(fl_store_reader_create(&reader, &err) == FL_OK);
    for (uint64_t i = 0; i < fl_store_count(store); i++) {
        const uint64_t is = i < SAMPLES           ? i
                            : i < SAMPLES + THIRD ? thirds[i - SAMPLES]
                                                  : two[i - SAMPLES - THIRD];
        fl_store_ahead(store, i);
        CHECK(fl_store_reader_get(reader, store, i, NOTHING, &span, &err) == FL_OK);
        CHECK(span.size == sample(is, expected) && memcmp(span.bytes, expected, span.size) == 0);
        const size_t begin = fl_store_head(store, i, head);
        CHECK(begin == (span.size < FL_STORE_HEAD ? span.size : FL_STORE_HEAD) &&
              memcmp(head, expected, begin) == 0);
    }
    size_t size = 0;
    CHECK(fl_store_column_size(store, 1, "crcs", &size, &err) == FL_OK &&
          size == sizeof sums); /* a row for each stored sample */
    fl_store_reader_free(reader), fl_store_close(store);
    check_live(0, 0);
}

/* A copy of what a shard holds, for the caller to free. */
static fl_store_tree copied_tree(const fl_store *store) {
    uint64_t stored;
    const fl_store_tree *tree = fl_store_shard_tree(store, 0, &stored);
    fl_store_tree copy = {malloc(stored * sizeof *copy.samples),
                          malloc(tree->column_count * sizeof *copy.columns), tree->column_count,
                          malloc(tree->names_size), tree->names_size};
    CHECK(stored == SAMPLES && tree->column_count == 2 && copy.samples && copy.columns && copy.names);
    memcpy(copy.names, tree->names, tree->names_size);
    memcpy(copy.samples, tree->samples, stored * sizeof *copy.samples);
    memcpy(copy.columns, tree->columns, tree->column_count * sizeof *copy.columns);
    return copy;
}

/* Adds the shard with places given, and reads everything: what is delivered is right. Returns how many
 * samples were; -1: it was not added. */
static int read_given(const fl_store_tree *given, uint64_t bytes) {
    fl_error err;
    fl_store *store;
    fl_store_reader *reader;
    fl_span span;
    uint8_t expected[16384], column[sizeof sums];
    int good = 0;
    size_t size = 0;
    CHECK(fl_store_create(&store, &err) == FL_OK);
    const fl_table places = place_table(given->samples);
    fl_shard_spec spec = {.path = path, .count = SAMPLES, .bytes = bytes, .stored = SAMPLES, .given = given};
    CHECK(fl_store_add(store, &spec, &err) == FL_EARG); /* no table of places */
    spec.places = &places;
    fl_code code = fl_store_add(store, &spec, &err);
    if (code) {
        CHECK(code == FL_ESHARD && strstr(err.text, "shard.lmdb") && fl_store_shards(store) == 0);
        fl_store_close(store);
        free_places(places);
        return -1;
    }
    CHECK(fl_store_reader_create(&reader, &err) == FL_OK);
    for (uint64_t i = 0; i < SAMPLES; i++) {
        fl_store_ahead(store, i);
        fl_store_head(store, i, expected);
        code = fl_store_reader_get(reader, store, i, NOTHING, &span, &err);
        CHECK(code == FL_OK || code == FL_ECHECKSUM ||
              (code == FL_ESHARD && strstr(err.text, "is not within the file")));
        if (code) continue;
        good++;
        CHECK(span.size == sample(i, expected) && memcmp(span.bytes, expected, span.size) == 0);
    }
    if (fl_store_column_size(store, 0, "crcs", &size, &err) == FL_OK && size == sizeof sums)
        CHECK(fl_store_column(store, 0, "crcs", column, sizeof column, &err) ==
              FL_OK); /* the caller compares its checksum */
    fl_store_reader_free(reader);
    fl_store_close(store);
    free_places(places);
    CHECK(fl_table_live() == 0);
    check_live(0, 0);
    return good;
}

/* Places given in the stead of the walk: the right ones read everything, wrong ones are refused or give a
 * wrong checksum, of any value. */
static void test_given(uint64_t bytes, int rounds) {
    fl_error err;
    fl_store *store;
    CHECK(fl_store_create(&store, &err) == FL_OK && add(store, path, 0, SAMPLES, bytes, &err) == FL_OK);
    fl_store_tree given = copied_tree(store), kept = copied_tree(store);
    fl_store_close(store);
    CHECK(read_given(&given, bytes) == SAMPLES);
    CHECK(read_given(&given, bytes + 1) == -1); /* another size than the manifest's */

    fl_store_place *last = &given.samples[SAMPLES - 1];
    *last = fl_store_place_at(bytes - 1, 1);
    CHECK(read_given(&given, bytes) == SAMPLES - 1);
    *last = fl_store_place_at(bytes, 0);
    CHECK(read_given(&given, bytes) == SAMPLES - 1);
    const fl_store_place outside[] = {
        fl_store_place_at(bytes, 1), fl_store_place_at(bytes - 1, 2), fl_store_place_at(bytes + 1, 0),
        fl_store_place_at(UINT64_MAX, UINT32_MAX), fl_store_place_at(UINT64_MAX - 3, 4)};
    for (size_t i = 0; i < sizeof outside / sizeof *outside; i++) {
        *last = outside[i];
        CHECK(read_given(&given, bytes) == SAMPLES - 1);
        *last = kept.samples[SAMPLES - 1];
        given.columns[1].place = outside[i];
        CHECK(read_given(&given, bytes) == -1);
        given.columns[1].place = kept.columns[1].place;
    }
    for (uint32_t i = 0; i < SAMPLES; i++) given.samples[i] = fl_store_place_at(0, (uint32_t)(bytes / 2));
    CHECK(read_given(&given, bytes) == 0);
    memcpy(given.samples, kept.samples, SAMPLES * sizeof *kept.samples);
    given.columns[0].name_size = FL_STORE_COLUMN_NAME + 1;
    CHECK(read_given(&given, bytes) == -1);
    given.columns[0].name_size = kept.columns[0].name_size;
    given.columns[1].name_at = (uint32_t)given.names_size - kept.columns[1].name_size + 1;
    CHECK(read_given(&given, bytes) == -1); /* a name that ends beyond the names */
    given.columns[1].name_at = UINT32_MAX;
    CHECK(read_given(&given, bytes) == -1);
    given.columns[1].name_at = kept.columns[1].name_at;
    given.column_count = 0;
    CHECK(read_given(&given, bytes) == SAMPLES);
    given.column_count = kept.column_count;

    int refused = 0, wrong = 0;
    for (int round = 0; round < rounds; round++) {
        for (uint32_t n = 1 + noise() % 5; n; n--) {
            fl_store_place *place =
                noise() % 4 ? &given.samples[noise() % SAMPLES] : &given.columns[noise() % 2].place;
            uint32_t *word = &(uint32_t *[]){&place->low, &place->high, &place->size}[noise() % 3][0];
            *word = noise() % 2 ? *word ^ 1u << noise() % 32 : noise() % (uint32_t)bytes;
        }
        const int good = read_given(&given, bytes);
        refused += good < 0;
        wrong += good >= 0 && good < SAMPLES;
        memcpy(given.samples, kept.samples, SAMPLES * sizeof *kept.samples);
        memcpy(given.columns, kept.columns, kept.column_count * sizeof *kept.columns);
    }
    CHECK(refused > rounds / 10 && wrong > rounds / 10);
    fl_store_tree_free(&given);
    fl_store_tree_free(&kept);
    check_live(0, 0);
}

int main(int argc, char **argv) {
    begin(argc, argv);
    const uint64_t bytes = write_shard(path);
    test_rows_and_keys(bytes);
    test_given(bytes, 500);
    end("shards of a store");
    return 0;
}
