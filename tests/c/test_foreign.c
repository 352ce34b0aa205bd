/* Foreign shards: records that are made of parts of a file that somebody else wrote, and what is compared with what
 * before anybody has read them. */
#define _GNU_SOURCE
#include "store_shard.h"

#include "store/place.h"

enum { NUMBER = 5 };
static const char text[] = "onetwothree";
static const uint32_t starts[] = {0, 3, 6}, sizes[] = {3, 3, 5};

/* A store of one foreign shard of so many bytes, with these places. */
static fl_store *placed(fl_table *table, const fl_store_place *places, uint64_t bytes, bool pointed) {
    const fl_store_tree nothing = {.samples = NULL};
    fl_error err;
    fl_store *store;
    *table = place_table(places);
    const fl_shard_spec spec = {.path = path,
                                .count = SAMPLES,
                                .bytes = bytes,
                                .stored = SAMPLES,
                                .foreign = true,
                                .pointed = pointed,
                                .field = NUMBER,
                                .given = &nothing,
                                .places = table};
    CHECK(fl_store_create(&store, &err) == FL_OK && fl_store_add(store, &spec, &err) == FL_OK);
    CHECK(fl_store_is_foreign(store, 0));
    return store;
}

/* A store of that file, of three samples and SAMPLES - 3 of no bytes. */
static fl_store *opened(fl_table *table, const uint32_t *checksums) {
    fl_store_place places[SAMPLES] = {{0}};
    memset(sums, 0, sizeof sums);
    for (int i = 0; i < 3; i++) {
        places[i] = fl_store_place_at(starts[i], sizes[i]);
        if (checksums) sums[i] = checksums[i];
    }
    return placed(table, places, sizeof text - 1, false);
}

static void overwrite(const char *bytes) {
    FILE *file = fopen(path, "wb");
    CHECK(file && fputs(bytes, file) >= 0 && fclose(file) == 0);
}

static fl_code got(fl_store_reader *reader, const fl_store *store, uint64_t index, const char *given,
                   fl_span *image) {
    fl_span record;
    fl_error err;
    fl_record_field field;
    const fl_span from = {(const uint8_t *)given, given ? strlen(given) : 0};
    const fl_code code = fl_store_reader_get(reader, store, index, from, &record, &err);
    if (code) return code;
    CHECK(fl_record_find(record, NUMBER, &field, &err) == FL_OK && field.kind == FL_RECORD_KIND_FILE);
    CHECK(fl_record_index(record, NUMBER).size == 0);
    *image = field.data;
    return FL_OK;
}

static bool is(fl_span image, const char *expected) {
    return image.size == strlen(expected) && memcmp(image.bytes, expected, image.size) == 0;
}

/* A part of the file is one record of one field; bytes that are given count as those of the file, if they are as
 * many. */
static void records(void) {
    fl_table table;
    fl_store *store = opened(&table, NULL);
    fl_store_reader *reader;
    fl_error err;
    fl_span image;
    CHECK(fl_store_reader_create(&reader, &err) == FL_OK);
    CHECK(got(reader, store, 0, NULL, &image) == FL_OK && is(image, "one"));
    CHECK(got(reader, store, 2, NULL, &image) == FL_OK && is(image, "three"));
    CHECK(fl_store_reader_foreign(reader).stamp && !fl_store_reader_foreign(reader).given);
    CHECK(got(reader, store, 1, "abc", &image) == FL_OK && is(image, "abc") &&
          fl_store_reader_foreign(reader).given);
    CHECK(got(reader, store, 1, "abcd", &image) == FL_ECHECKSUM);
    CHECK(got(reader, store, 3, NULL, &image) == FL_OK && is(image, ""));
    CHECK(got(reader, store, SAMPLES, NULL, &image) == FL_ENOTFOUND && !fl_store_vouches(store, SAMPLES));
    fl_store_reader_free(reader), fl_store_close(store), free_places(table);
    check_live(0, 0);
}

/* A checksum in the table is compared with what is read and what is given; without one, what was learnt with what is
 * read alone. */
static void vouched(void) {
    const uint32_t checksums[] = {0, fl_crc32c(0, "two", 3), fl_crc32c(0, "other", 5)};
    fl_table table;
    fl_store *store = opened(&table, checksums);
    fl_store_reader *reader;
    fl_facts *facts;
    fl_error err;
    fl_span image;
    CHECK(fl_store_reader_create(&reader, &err) == FL_OK);
    CHECK(fl_facts_create(&facts, SAMPLES, 1 << 10, &err) == FL_OK && fl_facts_live() == 1);
    fl_store_set_facts(store, facts);
    CHECK(fl_store_facts(store) == facts);
    CHECK(!fl_store_vouches(store, 0) && fl_store_vouches(store, 1) && fl_store_vouches(store, 2));
    CHECK(got(reader, store, 1, NULL, &image) == FL_OK &&
          got(reader, store, 1, "tow", &image) == FL_ECHECKSUM);
    CHECK(got(reader, store, 2, NULL, &image) == FL_ECHECKSUM &&
          got(reader, store, 2, "other", &image) == FL_OK);
    CHECK(got(reader, store, 0, NULL, &image) == FL_OK);
    fl_facts_learn(facts, 0, fl_store_reader_foreign(reader).stamp, (fl_span){(const uint8_t *)text, 4});
    CHECK(fl_store_vouches(store, 0) && got(reader, store, 0, NULL, &image) == FL_OK);
    overwrite("eno"
              "twothree");
    CHECK(got(reader, store, 0, NULL, &image) == FL_ECHECKSUM &&
          got(reader, store, 0, "new", &image) == FL_OK);
    overwrite(text);
    uint64_t indexes, bytes;
    fl_facts_learnt(facts, &indexes, &bytes);
    CHECK(indexes == 1 && bytes > 4);
    CHECK(fl_store_knows(store, 0) && !fl_store_knows(store, 2));
    fl_store_learn(store, 2, checksums[2], (fl_span){(const uint8_t *)text, 4});
    CHECK(fl_store_knows(store, 2) && got(reader, store, 2, "other", &image) == FL_OK);
    fl_buffer buffer = {0};
    CHECK(fl_facts_known(facts, 2, fl_store_reader_foreign(reader).stamp, &buffer, &image) &&
          image.size == 4);
    fl_buffer_free(&buffer);
    fl_store_reader_free(reader), fl_store_close(store), fl_facts_free(facts), free_places(table);
    CHECK(fl_facts_live() == 0);
    check_live(0, 0);
}

/* A place begins with where its image lies; one that leads out of the place is none. What is given is the image. */
static void pointed(void) {
    enum { PAGE = 24 + 6 };
    const fl_store_pointer pointers[] = {{24, 3}, {19, 3}, {0, 0}};
    char page[PAGE];
    fl_table table;
    fl_error err;
    fl_span image;
    memcpy(page, pointers, 24);
    memcpy(page + 24, "onetwo", 6);
    FILE *file = fopen(path, "wb");
    CHECK(file && fwrite(page, 1, PAGE, file) == PAGE && fclose(file) == 0);
    fl_store_place places[SAMPLES] = {{0}};
    for (uint32_t i = 0; i < 3; i++) places[i] = fl_store_place_at(8 * i, PAGE - 8 * i);
    places[3] = fl_store_place_at(0, 26), places[4] = fl_store_place_at(0, 7);
    memset(sums, 0, sizeof sums);
    fl_store *store = placed(&table, places, PAGE, true);
    fl_store_reader *reader;
    uint8_t head[FL_STORE_HEAD];
    CHECK(fl_store_reader_create(&reader, &err) == FL_OK);
    CHECK(got(reader, store, 0, NULL, &image) == FL_OK && is(image, "one"));
    CHECK(got(reader, store, 1, NULL, &image) == FL_OK && is(image, "two"));
    for (uint64_t i = 2; i < 5; i++) CHECK(got(reader, store, i, NULL, &image) == FL_ECHECKSUM);
    CHECK(got(reader, store, 2, "given", &image) == FL_OK && is(image, "given"));
    CHECK(got(reader, store, 4, "too long", &image) == FL_ECHECKSUM);
    CHECK(fl_store_head(store, 0, head) == 3 && memcmp(head, "one", 3) == 0 &&
          fl_store_head(store, 2, head) == 0 && !fl_store_ahead(store, 2));
    fl_store_reader_free(reader), fl_store_close(store), free_places(table);
    check_live(0, 0);
}

int main(void) {
    CHECK(mkdtemp(folder));
    snprintf(path, sizeof path, "%s/train.tar", folder);
    overwrite(text);
    records();
    vouched();
    pointed();
    CHECK(unlink(path) == 0 && rmdir(folder) == 0);
    return 0;
}
