#define _GNU_SOURCE
#include "store/store.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/buffer.h"
#include "common/crc32c.h"
#include "store/page_cache.h"
#include "store/tree.h"

enum { NAME_SIZE = 256, SMALL = 16 << 10 };

static const fl_buffer_rule RULE = {.least = 256 << 10, .keep = 4 << 20}; /* of records */

typedef struct shard {
    uint64_t first, count, bytes; /* of the dataset's samples; of the file */
    uint64_t key, stored; /* of the file's samples */
    const uint32_t *rows; /* set before readers read: the stored samples that count; NULL: the first ones */
    char *base; /* owned; NULL: none */
    int fd;
    fl_store_tree tree;
    const uint32_t *crc; /* set before readers read; NULL: not checked */
    char name[NAME_SIZE]; /* the file's last name, for messages */
} shard;

struct fl_store {
    uint32_t process; /* see process_now */
    uint32_t shards;
    shard *shard;
    uint64_t count;
    fl_page_cache cache, images;
};

struct fl_store_reader {
    fl_buffer buffer; /* the record last got */
};

static atomic_uint live_stores, live_readers;

/* A number that differs in every forked child: a cheaper question than getpid. Kept by pthread_atfork. */
static atomic_uint process_number;
static pthread_once_t process_once = PTHREAD_ONCE_INIT;
static int process_result;
static void process_child(void) { atomic_fetch_add_explicit(&process_number, 1, memory_order_relaxed); }
static void process_init(void) { process_result = pthread_atfork(NULL, NULL, process_child); }
static uint32_t process_now(void) { return atomic_load_explicit(&process_number, memory_order_relaxed); }

static fl_code store_check(const fl_store *store, fl_error *err) {
    if (store->process == process_now()) return FL_OK;
    return fl_fail(err, FL_EFORK, "this store was opened before a fork and belongs to the parent: open the dataset again in the child");
}

fl_code fl_store_create(fl_store **out, fl_error *err) {
    *out = NULL;
    pthread_once(&process_once, process_init);
    if (process_result) return fl_fail_sys(err, FL_EIO, process_result, "cannot watch for forks");
    fl_store *store = calloc(1, sizeof *store);
    if (!store) return fl_fail(err, FL_ENOMEM, "no memory for a store of %zu bytes", sizeof *store);
    store->process = process_now();
    atomic_fetch_add(&live_stores, 1);
    *out = store;
    return FL_OK;
}

static fl_code shard_size(const shard *s, fl_error *err) {
    struct stat st;
    if (fstat(s->fd, &st) != 0) return fl_fail_sys(err, FL_EIO, errno, "cannot ask for the size of shard %.80s", s->name);
    if (!S_ISREG(st.st_mode)) return fl_fail(err, FL_ESHARD, "shard %.80s is not a regular file: copy it again or pack again", s->name);
    if ((uint64_t)st.st_size == s->bytes && s->bytes) return FL_OK;
    return fl_fail(err, FL_ESHARD, "shard %.80s is %" PRIu64 " bytes long, the manifest says %" PRIu64 ": copy it again or pack again",
                   s->name, (uint64_t)st.st_size, s->bytes);
}

/* Opens the file, checks size and trees or what is given in their stead, and notes where the samples and columns are. */
static fl_code shard_open(shard *s, const fl_shard_spec *spec, fl_error *err) {
    s->fd = open(spec->path, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY); /* a FIFO of that name is not waited for */
    if (s->fd < 0 && errno == ENOENT) return fl_fail(err, FL_ESHARD, "shard %.80s is missing: copy it again or pack again", s->name);
    if (s->fd < 0) return fl_fail_sys(err, FL_EIO, errno, "cannot open shard %.80s", s->name);
    fl_code code = shard_size(s, err);
    if (code) return code;
    /* tree pages lie far apart, and records are read whole, in no order: nothing beyond them is wanted. A hint. */
    (void)posix_fadvise(s->fd, 0, 0, POSIX_FADV_RANDOM);
    if (spec->given) return fl_store_tree_given(spec->given, s->bytes, s->stored, s->name, &s->tree, err);
    return fl_store_tree_read(s->fd, s->bytes, s->key, s->stored, s->name, &s->tree, err);
}

/* In another process the descriptor's number may mean another file by now. */
static void shard_close(shard *s, bool ours) {
    if (s->fd >= 0 && ours) close(s->fd);
    free(s->base);
    fl_store_tree_free(&s->tree);
}

fl_code fl_store_add(fl_store *store, const fl_shard_spec *spec, fl_error *err) {
    fl_code code = store_check(store, err);
    if (code) return code;
    if (spec->first != store->count || spec->count == 0 || spec->count > UINT64_MAX - spec->first || store->shards == UINT32_MAX - 1) {
        return fl_fail(err, FL_EARG, "a shard of samples %" PRIu64 "+%" PRIu64 " does not follow %" PRIu64, spec->first, spec->count,
                       store->count);
    }
    if (spec->stored < spec->count || spec->stored > UINT64_MAX - spec->key) {
        return fl_fail(err, FL_EARG, "a shard of %" PRIu64 " stored samples from %" PRIu64 " on does not hold %" PRIu64, spec->stored,
                       spec->key, spec->count);
    }
    shard *grown = realloc(store->shard, ((size_t)store->shards + 1) * sizeof *grown);
    if (!grown) return fl_fail(err, FL_ENOMEM, "no memory for %" PRIu32 " shards", store->shards + 1);
    store->shard = grown;
    shard *s = &grown[store->shards];
    *s = (shard){.first = spec->first, .count = spec->count, .bytes = spec->bytes, .key = spec->key, .stored = spec->stored, .fd = -1};
    const char *slash = strrchr(spec->path, '/');
    strncpy(s->name, slash ? slash + 1 : spec->path, NAME_SIZE - 1);
    if (spec->base && !(s->base = strdup(spec->base))) code = fl_fail(err, FL_ENOMEM, "no memory for the base of shard %.80s", s->name);
    if (!code) code = shard_open(s, spec, err);
    if (code) {
        shard_close(s, true);
        return code;
    }
    store->shards++;
    store->count += spec->count;
    return FL_OK;
}

void fl_store_close(fl_store *store) {
    if (!store) return;
    bool ours = store->process == process_now();
    for (uint32_t i = 0; i < store->shards; i++) shard_close(&store->shard[i], ours);
    free(store->shard);
    free(store);
    atomic_fetch_sub(&live_stores, 1);
}

/* The shard of that number, and where in it a column's chunk lies. */
static fl_code find_column(const fl_store *store, uint32_t index, const char *name, const shard **in, fl_store_place *place,
                           fl_error *err) {
    fl_code code = store_check(store, err);
    if (code) return code;
    if (index >= store->shards) return fl_fail(err, FL_EARG, "there is no shard %" PRIu32 " of %" PRIu32, index, store->shards);
    const shard *s = *in = &store->shard[index];
    const size_t size = strlen(name);
    for (uint32_t i = 0; i < s->tree.column_count; i++) {
        const fl_store_tree_column *column = &s->tree.columns[i];
        if (column->name_size != size || memcmp(column->name, name, size) != 0) continue;
        *place = column->place;
        return FL_OK;
    }
    return fl_fail(err, FL_ESHARD, "shard %.80s has no column %.60s: copy it again or pack again", s->name, name);
}

fl_code fl_store_column_size(const fl_store *store, uint32_t index, const char *name, size_t *size, fl_error *err) {
    const shard *s = NULL;
    fl_store_place place = {0, 0, 0};
    fl_code code = find_column(store, index, name, &s, &place, err);
    *size = place.size;
    return code;
}

fl_code fl_store_column(const fl_store *store, uint32_t index, const char *name, void *into, size_t size, fl_error *err) {
    const shard *s = NULL;
    fl_store_place place = {0, 0, 0};
    fl_code code = find_column(store, index, name, &s, &place, err);
    if (code) return code;
    if (place.size != size) return fl_fail(err, FL_EARG, "column %.60s has %" PRIu32 " bytes, not %zu", name, place.size, size);
    return fl_store_shard_read(s->fd, into, size, fl_store_place_offset(place), s->name, err);
}

const fl_store_tree *fl_store_shard_tree(const fl_store *store, uint32_t shard, uint64_t *stored) {
    *stored = store->shard[shard].stored;
    return &store->shard[shard].tree;
}

uint64_t fl_store_count(const fl_store *store) { return store->count; }
uint32_t fl_store_shards(const fl_store *store) { return store->shards; }

uint64_t fl_store_shard_count(const fl_store *store, uint32_t shard) { return store->shard[shard].count; }

uint32_t fl_store_shard_of(const fl_store *store, uint64_t index) {
    uint32_t low = 0, high = store->shards;
    while (high - low > 1) {
        uint32_t middle = low + (high - low) / 2;
        if (store->shard[middle].first <= index) {
            low = middle;
        } else {
            high = middle;
        }
    }
    return low;
}

const char *fl_store_base(const fl_store *store, uint64_t index) {
    return index < store->count ? store->shard[fl_store_shard_of(store, index)].base : NULL;
}

fl_code fl_store_set_rows(fl_store *store, uint32_t index, const uint32_t *rows, fl_error *err) {
    fl_code code = store_check(store, err);
    if (code) return code;
    if (index >= store->shards) return fl_fail(err, FL_EARG, "there is no shard %" PRIu32 " of %" PRIu32, index, store->shards);
    shard *s = &store->shard[index];
    for (uint64_t i = 0; i < s->count; i++) {
        if (rows[i] >= s->stored || (i && rows[i] <= rows[i - 1])) {
            return fl_fail(err, FL_ESHARD,
                           "the rows of shard %.80s are damaged (number %" PRIu64 " is %" PRIu32 "): copy the dataset again or pack again",
                           s->name, i, rows[i]);
        }
    }
    s->rows = rows;
    return FL_OK;
}

void fl_store_set_checksums(fl_store *store, uint32_t shard, const uint32_t *crc) {
    if (shard < store->shards) store->shard[shard].crc = crc;
}

void fl_store_live(uint32_t *stores, uint32_t *readers) {
    *stores = atomic_load(&live_stores);
    *readers = atomic_load(&live_readers);
}

fl_code fl_store_reader_create(fl_store_reader **out, fl_error *err) {
    *out = calloc(1, sizeof **out);
    if (!*out) return fl_fail(err, FL_ENOMEM, "no memory for a reader");
    atomic_fetch_add(&live_readers, 1);
    return FL_OK;
}

void fl_store_reader_free(fl_store_reader *reader) {
    if (!reader) return;
    fl_buffer_free(&reader->buffer);
    free(reader);
    atomic_fetch_sub(&live_readers, 1);
}

/* Place of sample `index` of the dataset in its file; s is the shard that holds it. */
static fl_store_place place_of(const shard *s, uint64_t index) {
    const uint64_t row = index - s->first;
    return s->tree.samples[s->rows ? s->rows[row] : row];
}

uint64_t fl_store_record_size(const fl_store *store, uint64_t index) {
    return index < store->count ? place_of(&store->shard[fl_store_shard_of(store, index)], index).size : 0;
}

/* The shard that holds sample `index`, checked. */
static fl_code find_shard(const fl_store *store, uint64_t index, const shard **s, fl_error *err) {
    fl_code code = store_check(store, err);
    if (code) return code;
    if (index >= store->count) return fl_fail(err, FL_ENOTFOUND, "there is no sample %" PRIu64 " of %" PRIu64, index, store->count);
    *s = &store->shard[fl_store_shard_of(store, index)];
    return FL_OK;
}

static fl_code check_record(const shard *s, uint64_t index, fl_span record, fl_error *err) {
    if (!s->crc || fl_crc32c(0, record.bytes, record.size) == s->crc[index - s->first]) return FL_OK;
    return fl_fail(err, FL_ECHECKSUM, "its bytes in shard %.80s are not those that were packed (CRC32C differs): copy the shard again",
                   s->name);
}

fl_code fl_store_check_record(const fl_store *store, uint64_t index, fl_span record, fl_error *err) {
    const shard *s = NULL;
    fl_code code = find_shard(store, index, &s, err);
    if (code) return code;
    if (record.size != place_of(s, index).size)
        return fl_fail(err, FL_ECHECKSUM, "%zu bytes were given for it, and its record in shard %.80s has %" PRIu32, record.size, s->name,
                       place_of(s, index).size);
    return check_record(s, index, record, err);
}

fl_code fl_store_reader_get(fl_store_reader *reader, const fl_store *store, uint64_t index, fl_span *record, fl_error *err) {
    const shard *s = NULL;
    fl_code code = find_shard(store, index, &s, err);
    if (code) return code;
    const fl_store_place place = place_of(s, index);
    if (!fl_buffer_fit(&reader->buffer, place.size, 1, RULE))
        return fl_fail(err, FL_ENOMEM, "no memory for a record of %" PRIu32 " bytes", place.size);
    code = fl_store_shard_read(s->fd, reader->buffer.bytes, place.size, fl_store_place_offset(place), s->name, err);
    if (code) return code;
    *record = (fl_span){reader->buffer.bytes, place.size};
    return check_record(s, index, *record, err);
}

size_t fl_store_head(const fl_store *store, uint64_t index, uint8_t *into) {
    if (store_check(store, NULL) || index >= store->count) return 0;
    const shard *s = &store->shard[fl_store_shard_of(store, index)];
    const fl_store_place place = place_of(s, index);
    const size_t size = place.size < FL_STORE_HEAD ? place.size : FL_STORE_HEAD;
    return fl_store_shard_read(s->fd, into, size, fl_store_place_offset(place), s->name, NULL) ? 0 : size;
}

fl_page_cache *fl_store_images(fl_store *store) { return &store->images; }

bool fl_store_ahead(fl_store *store, uint64_t index) {
    if (store_check(store, NULL) || index >= store->count) return false;
    const shard *s = &store->shard[fl_store_shard_of(store, index)];
    const fl_store_place place = place_of(s, index);
    return fl_page_cache_ahead(&store->cache, s->fd, fl_store_place_offset(place), place.size, SMALL);
}

bool fl_store_warm(const fl_store *store) { return fl_page_cache_warm(&store->cache); }
