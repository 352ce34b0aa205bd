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
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/buffer.h"
#include "common/crc32c.h"
#include "store/open_files.h"
#include "store/page_cache.h"
#include "store/place.h"
#include "store/table.h"
#include "store/tree.h"

enum { SMALL = 16 << 10 };

#define ABSENT "nothing of shard %.80s is on this disk"
#define REPLACED "shard %.80s was replaced while it was open: open the dataset again"

static const fl_buffer_rule RULE = {.least = 256 << 10, .keep = 4 << 20}; /* of records */

typedef struct shard {
    uint64_t first, count, bytes; /* of the dataset's samples; of the file */
    uint64_t key, stored; /* of the file's samples */
    const uint32_t *rows; /* set before readers read: the stored samples that count; NULL: the first ones */
    char *base; /* owned; NULL: none */
    char *path; /* owned */
    const char *name; /* the file's last name, for messages: a part of path */
    int fd; /* -1: there is none, or it is the table's. See NOTE [ store: open files ] */
    bool absent; /* it has no file here */
    bool guarded; /* its file is taken only if nobody can have planted it */
    bool foreign, pointed; /* see NOTE [ store: foreign files ] */
    uint16_t field; /* of the image in records that are made */
    atomic_bool replaced; /* another file lay in its place when it was opened again */
    dev_t device;
    ino_t inode;
    fl_store_tree tree;
    fl_table places; /* rows of fl_store_row; without a file: the tree has the places */
    const uint32_t *crc; /* set before readers read; NULL: not checked */
} shard;

struct fl_store {
    uint32_t process; /* see process_now */
    uint32_t shards, room;
    shard *shard;
    uint64_t count;
    uint32_t held; /* its part of live_files */
    fl_open_files *files; /* of all shards; NULL: each has its own descriptor */
    fl_page_cache cache, images;
    fl_facts *facts; /* set before readers read; NULL: nothing is learnt */
};

struct fl_store_reader {
    fl_buffer buffer; /* the record last got */
    fl_store_foreign foreign; /* the image last got */
};

static atomic_uint live_stores, live_readers;
static atomic_uint live_files; /* files that this process's stores may keep open */

/* A number that differs in every forked child: a cheaper question than getpid. Kept by pthread_atfork. */
static atomic_uint process_number;
static pthread_once_t process_once = PTHREAD_ONCE_INIT;
static int process_result;
static void process_child(void) {
    atomic_fetch_add_explicit(&process_number, 1, memory_order_relaxed);
    atomic_store_explicit(&live_files, 0, memory_order_relaxed);
}
static void process_init(void) { process_result = pthread_atfork(NULL, NULL, process_child); }
static uint32_t process_now(void) { return atomic_load_explicit(&process_number, memory_order_relaxed); }

static fl_code store_check(const fl_store *store, fl_error *err) {
    if (store->process == process_now()) return FL_OK;
    return fl_fail(
        err, FL_EFORK,
        "this store was opened before a fork and belongs to the parent: open the dataset again in the child");
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

/* Tree pages lie far apart, and records are read whole, in no order: nothing beyond them is wanted. A
 * hint. */
static void expect_random(int fd) { (void)posix_fadvise(fd, 0, 0, POSIX_FADV_RANDOM); }

/* Opens a path; of a guarded shard no link, and no file that everybody may write. */
static int open_path(const shard *s) {
    const int fd = open(s->path, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY |
                                     (s->guarded ? O_NOFOLLOW : 0)); /* waits for no FIFO */
    struct stat st;
    if (fd < 0 || !s->guarded || (fstat(fd, &st) == 0 && !(st.st_mode & S_IWOTH))) return fd;
    close(fd);
    errno = EPERM;
    return -1;
}

/* Opens a shard's file. Where the process may open no more, one that the store does not use is closed for
 * it. */
static int open_file(const fl_store *store, const shard *s) {
    for (;;) {
        const int fd = open_path(s);
        const int sys = errno;
        if (fd >= 0 || (sys != EMFILE && sys != ENFILE)) return fd;
        if (!store->files || !fl_open_files_spare(store->files)) {
            errno = sys;
            return -1;
        }
    }
}

/* Opens a shard's file again, for the table. */
static fl_code reopen(void *opaque, uint32_t number, int *fd, fl_error *err) {
    const fl_store *store = opaque;
    shard *s = &store->shard[number];
    struct stat st;
    if (s->absent) return fl_fail(err, FL_ESHARD, ABSENT, s->name);
    *fd = open_file(store, s);
    if (*fd < 0 && errno == ENOENT)
        return fl_fail(err, FL_ESHARD, "shard %.80s was removed while it was open: open the dataset again",
                       s->name);
    if (*fd < 0) return fl_fail_sys(err, FL_EIO, errno, "cannot open shard %.80s again", s->name);
    const bool known = fstat(*fd, &st) == 0 && S_ISREG(st.st_mode) && (uint64_t)st.st_size == s->bytes;
    const bool same = known && st.st_dev == s->device && st.st_ino == s->inode;
    if (!same && (!known || !(s->crc || s->places.file))) {
        close(*fd);
        return fl_fail(err, FL_ESHARD, REPLACED, s->name);
    }
    if (!same) atomic_store_explicit(&s->replaced, true, memory_order_relaxed);
    expect_random(*fd);
    return FL_OK;
}

/* Has all shards share as many descriptors as they have now. */
static fl_code share_files(fl_store *store, fl_error *err) {
    fl_open_files *files;
    fl_code code = fl_open_files_create(&files, store->held, reopen, store, err);
    for (uint32_t i = 0; i < store->shards && !code; i++)
        code = fl_open_files_add(files, store->shard[i].fd, err); /* -1: it has none */
    if (code) {
        fl_open_files_free(files, false); /* the descriptors are still the shards' */
        return code;
    }
    for (uint32_t i = 0; i < store->shards; i++) store->shard[i].fd = -1;
    store->files = files;
    return FL_OK;
}

/* Whether a store may keep one more file open for good. */
static bool has_room(const fl_store *store) {
    struct rlimit limit;
    if (store->held < FL_OPEN_FILES_LEAST) return true;
    if (getrlimit(RLIMIT_NOFILE, &limit) != 0) return false;
    return limit.rlim_cur == RLIM_INFINITY ||
           atomic_load_explicit(&live_files, memory_order_relaxed) < limit.rlim_cur / 4;
}

/* Keeps the file of the next shard open: for good where there is room, else until others are used more. */
static fl_code keep_file(fl_store *store, shard *s, fl_error *err) {
    fl_code code = store->files || s->absent || has_room(store) ? FL_OK : share_files(store, err);
    if (!code && !store->files) {
        store->held += !s->absent;
        atomic_fetch_add_explicit(&live_files, !s->absent, memory_order_relaxed);
    } else if (!code && !(code = fl_open_files_add(store->files, s->fd, err))) {
        s->fd = -1;
    }
    return code;
}

static fl_code check_size(const shard *s, const struct stat *st, fl_error *err) {
    if (!S_ISREG(st->st_mode))
        return fl_fail(err, FL_ESHARD, "shard %.80s is not a regular file: copy it again or pack again",
                       s->name);
    if ((uint64_t)st->st_size == s->bytes && s->bytes) return FL_OK;
    return fl_fail(err, FL_ESHARD,
                   "shard %.80s is %" PRIu64 " bytes long, the manifest says %" PRIu64
                   ": copy it again or pack again",
                   s->name, (uint64_t)st->st_size, s->bytes);
}

/* Opens the file, checks size and trees or what is given in their stead, and notes where the samples and
 * columns are. */
static fl_code shard_open(fl_store *store, shard *s, const fl_shard_spec *spec, fl_error *err) {
    struct stat st;
    if (s->absent) {
        if (!spec->given)
            return fl_fail(err, FL_EARG, "of shard %.80s, which is not on this disk, no places are given",
                           s->name);
        fl_code code = fl_store_tree_given(spec->given, s->bytes, s->name, &s->tree, err);
        return code ? code : keep_file(store, s, err);
    }
    s->fd = open_file(store, s);
    if (s->fd < 0 && errno == EMFILE && !store->files && store->held && !share_files(store, NULL))
        s->fd = open_file(store, s);
    if (s->fd < 0 && errno == ENOENT)
        return fl_fail(err, FL_ESHARD, "shard %.80s is missing: copy it again or pack again", s->name);
    if (s->fd < 0) return fl_fail_sys(err, FL_EIO, errno, "cannot open shard %.80s", s->name);
    if (fstat(s->fd, &st) != 0)
        return fl_fail_sys(err, FL_EIO, errno, "cannot ask for the size of shard %.80s", s->name);
    fl_code code = check_size(s, &st, err);
    if (code) return code;
    s->device = st.st_dev, s->inode = st.st_ino;
    expect_random(s->fd);
    code = spec->given ? fl_store_tree_given(spec->given, s->bytes, s->name, &s->tree, err)
                       : fl_store_tree_read(s->fd, s->bytes, s->key, s->stored, s->name, &s->tree, err);
    return code ? code : keep_file(store, s, err);
}

/* In another process the descriptor's number may mean another file by now. */
static void shard_close(shard *s, bool ours) {
    if (s->fd >= 0 && ours) close(s->fd);
    free(s->base);
    free(s->path);
    fl_store_tree_free(&s->tree);
}

static bool fits_one_more(fl_store *store) {
    if (store->shards < store->room) return true;
    const uint32_t room = store->room < 8 ? 8 : store->room <= UINT32_MAX / 2 ? 2 * store->room : UINT32_MAX;
    shard *grown = realloc(store->shard, room * sizeof *grown);
    if (!grown) return false;
    store->shard = grown, store->room = room;
    return true;
}

fl_code fl_store_add(fl_store *store, const fl_shard_spec *spec, fl_error *err) {
    fl_code code = store_check(store, err);
    if (code) return code;
    if (spec->first != store->count || spec->count == 0 || spec->count > UINT64_MAX - spec->first ||
        store->shards == UINT32_MAX - 1) {
        return fl_fail(err, FL_EARG, "a shard of samples %" PRIu64 "+%" PRIu64 " does not follow %" PRIu64,
                       spec->first, spec->count, store->count);
    }
    if (spec->stored < spec->count || spec->stored > UINT64_MAX - spec->key) {
        return fl_fail(err, FL_EARG,
                       "a shard of %" PRIu64 " stored samples from %" PRIu64 " on does not hold %" PRIu64,
                       spec->stored, spec->key, spec->count);
    }
    if (spec->given &&
        (!spec->places || spec->places->rows != spec->stored || spec->places->width != sizeof(fl_store_row)))
        return fl_fail(err, FL_EARG, "there is no table of the places of %" PRIu64 " samples", spec->stored);
    if (!fits_one_more(store))
        return fl_fail(err, FL_ENOMEM, "no memory for %" PRIu32 " shards", store->shards + 1);
    shard *s = &store->shard[store->shards];
    *s = (shard){.first = spec->first,
                 .count = spec->count,
                 .bytes = spec->bytes,
                 .key = spec->key,
                 .stored = spec->stored,
                 .fd = -1};
    if (!(s->path = strdup(spec->path))) return fl_fail(err, FL_ENOMEM, "no memory for the path of a shard");
    s->absent = spec->absent, s->guarded = spec->guarded;
    s->foreign = spec->foreign && spec->given, s->field = spec->field;
    s->pointed = s->foreign && spec->pointed;
    if (spec->given) s->places = *spec->places;
    const char *slash = strrchr(s->path, '/');
    s->name = slash ? slash + 1 : s->path;
    if (spec->base && !(s->base = strdup(spec->base)))
        code = fl_fail(err, FL_ENOMEM, "no memory for the base of shard %.80s", s->name);
    if (!code) code = shard_open(store, s, spec, err);
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
    fl_open_files_free(store->files, ours);
    if (ours) atomic_fetch_sub_explicit(&live_files, store->held, memory_order_relaxed);
    free(store->shard);
    free(store);
    atomic_fetch_sub(&live_stores, 1);
}

/* Takes the file of a shard, which give_file() ends. */
static fl_code take_file(const fl_store *store, const shard *s, fl_open_file *file, fl_error *err) {
    if (store->files) return fl_open_files_take(store->files, (uint32_t)(s - store->shard), file, err);
    *file = (fl_open_file){s->fd, 0};
    return s->absent ? fl_fail(err, FL_ESHARD, ABSENT, s->name) : FL_OK;
}

static void give_file(const fl_store *store, fl_open_file file) {
    if (store->files) fl_open_files_give(store->files, file);
}

/* Reads exactly `size` bytes of a shard at `offset`. */
static fl_code read_file(const fl_store *store, const shard *s, void *into, size_t size, uint64_t offset,
                         fl_error *err) {
    fl_open_file file;
    fl_code code = take_file(store, s, &file, err);
    if (code) return code;
    code = fl_store_shard_read(file.fd, into, size, offset, s->name, err);
    give_file(store, file);
    return code;
}

/* The shard of that number, and where in it a column's chunk lies. */
static fl_code find_column(const fl_store *store, uint32_t index, const char *name, const shard **in,
                           fl_store_place *place, fl_error *err) {
    fl_code code = store_check(store, err);
    if (code) return code;
    if (index >= store->shards)
        return fl_fail(err, FL_EARG, "there is no shard %" PRIu32 " of %" PRIu32, index, store->shards);
    const shard *s = *in = &store->shard[index];
    const size_t size = strlen(name);
    for (uint32_t i = 0; i < s->tree.column_count; i++) {
        const fl_store_tree_column *column = &s->tree.columns[i];
        if (column->name_size != size || memcmp(s->tree.names + column->name_at, name, size) != 0) continue;
        *place = column->place;
        return FL_OK;
    }
    return fl_fail(err, FL_ESHARD, "shard %.80s has no column %.60s: copy it again or pack again", s->name,
                   name);
}

fl_code fl_store_column_size(const fl_store *store, uint32_t index, const char *name, size_t *size,
                             fl_error *err) {
    const shard *s = NULL;
    fl_store_place place = {0, 0, 0};
    fl_code code = find_column(store, index, name, &s, &place, err);
    *size = place.size;
    return code;
}

fl_code fl_store_column(const fl_store *store, uint32_t index, const char *name, void *into, size_t size,
                        fl_error *err) {
    const shard *s = NULL;
    fl_store_place place = {0, 0, 0};
    fl_code code = find_column(store, index, name, &s, &place, err);
    if (code) return code;
    if (place.size != size)
        return fl_fail(err, FL_EARG, "column %.60s has %" PRIu32 " bytes, not %zu", name, place.size, size);
    return read_file(store, s, into, size, fl_store_place_offset(place), err);
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
    if (index >= store->shards)
        return fl_fail(err, FL_EARG, "there is no shard %" PRIu32 " of %" PRIu32, index, store->shards);
    shard *s = &store->shard[index];
    for (uint64_t i = 0; i < s->count; i++) {
        if (rows[i] >= s->stored || (i && rows[i] <= rows[i - 1])) {
            return fl_fail(err, FL_ESHARD,
                           "the rows of shard %.80s are damaged (number %" PRIu64 " is %" PRIu32
                           "): copy the dataset again or pack again",
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

/* Where sample `index` of the dataset lies in its file, and its checksum; s is the shard that holds it. */
static fl_code find_place(const shard *s, uint64_t index, fl_store_row *row, fl_error *err) {
    const uint64_t at = index - s->first, stored = s->rows ? s->rows[at] : at;
    if (!s->places.file) {
        row->place = s->tree.samples[stored];
        row->crc = s->crc ? s->crc[at] : 0;
        return FL_OK;
    }
    fl_code code = fl_table_row(&s->places, stored, row, err);
    if (code || fl_store_place_inside(row->place, s->bytes)) return code;
    return fl_fail(err, FL_ESHARD,
                   "its place in shard %.80s is not within the file: `fastload index` names it anew",
                   s->name);
}

/* The place of the image that is pointed to in a place. */
static fl_code follow(const fl_store *store, const shard *s, fl_store_row *row, fl_error *err) {
    fl_store_pointer found = {0, 0};
    const uint32_t size = row->place.size;
    const fl_code code = size < sizeof found ? FL_OK
                                             : read_file(store, s, &found, sizeof found,
                                                         fl_store_place_offset(row->place), err);
    if (code) return code;
    if (found.offset < sizeof found || found.offset > size || found.size > size - found.offset)
        return fl_fail(err, FL_ECHECKSUM, "nothing tells where in its page it lies");
    const uint64_t offset = fl_store_place_offset(row->place) + found.offset;
    row->place = fl_store_place_at(offset, found.size);
    return FL_OK;
}

uint64_t fl_store_record_size(const fl_store *store, uint64_t index) {
    fl_store_row row;
    if (index >= store->count ||
        find_place(&store->shard[fl_store_shard_of(store, index)], index, &row, NULL))
        return 0;
    return row.place.size;
}

/* The stamp of a foreign image whose bytes have that CRC32C; never 0. */
static uint64_t stamp_of(uint32_t crc) { return UINT64_C(1) << 32 | crc; }

/* The shard that holds sample `index`, checked. */
static fl_code find_shard(const fl_store *store, uint64_t index, const shard **s, fl_error *err) {
    fl_code code = store_check(store, err);
    if (code) return code;
    if (index >= store->count)
        return fl_fail(err, FL_ENOTFOUND, "there is no sample %" PRIu64 " of %" PRIu64, index, store->count);
    *s = &store->shard[fl_store_shard_of(store, index)];
    return FL_OK;
}

static fl_code check_record(const shard *s, fl_store_row row, fl_span record, fl_error *err) {
    if (!(s->crc || s->places.file) || fl_crc32c(0, record.bytes, record.size) == row.crc) return FL_OK;
    if (atomic_load_explicit(&s->replaced, memory_order_relaxed))
        return fl_fail(err, FL_ESHARD, REPLACED, s->name);
    return fl_fail(
        err, FL_ECHECKSUM,
        "its bytes in shard %.80s are not those that were packed (CRC32C differs): copy the shard again",
        s->name);
}

/* Compares the bytes of a foreign image with its checksum, or with that of what was proved sound. */
static fl_code check_foreign(const fl_store *store, uint64_t index, fl_store_row row, fl_store_foreign image,
                             fl_error *err) {
    uint64_t known = row.crc ? stamp_of(row.crc) : 0;
    if (!row.crc && store->facts && !image.given) known = fl_facts_stamp(store->facts, index);
    if (!known || known == image.stamp) return FL_OK;
    return fl_fail(err, FL_ECHECKSUM, "its bytes are not those that were read before (CRC32C differs)");
}

fl_code fl_store_reader_get(fl_store_reader *reader, const fl_store *store, uint64_t index, fl_span given,
                            fl_span *record, fl_error *err) {
    const shard *s = NULL;
    fl_store_row row = {0};
    reader->foreign = (fl_store_foreign){0, given.bytes != NULL};
    fl_code code = find_shard(store, index, &s, err);
    if (!code) code = find_place(s, index, &row, err);
    if (code) return code;
    if (s->pointed && !given.bytes && (code = follow(store, s, &row, err))) return code;
    const bool inside = s->pointed && given.bytes && given.size <= row.place.size;
    const size_t size = inside ? given.size : row.place.size, head = s->foreign ? FL_RECORD_LEAST : 0;
    if (given.bytes && given.size != size)
        return fl_fail(err, FL_ECHECKSUM,
                       "%zu bytes were given for it, and its record in shard %.80s has %zu", given.size,
                       s->name, size);
    if (s->foreign && size > FL_PLACE_MOST)
        return fl_fail(err, FL_ERECORD, "its image has %zu bytes, more than any may have", size);
    if (given.bytes && !head) {
        *record = given;
        return check_record(s, row, given, err);
    }
    if (!fl_buffer_fit(&reader->buffer, head + size, 1, RULE))
        return fl_fail(err, FL_ENOMEM, "no memory for a record of %zu bytes", size);
    uint8_t *into = (uint8_t *)reader->buffer.bytes + head;
    if (given.bytes) memcpy(into, given.bytes, size);
    else code = read_file(store, s, into, size, fl_store_place_offset(row.place), err);
    if (code) return code;
    *record = (fl_span){reader->buffer.bytes, head + size};
    if (!head) return check_record(s, row, *record, err);
    fl_record_put_head(reader->buffer.bytes, s->field, FL_RECORD_KIND_FILE, (uint32_t)size);
    reader->foreign.stamp = stamp_of(fl_crc32c(0, into, size));
    return check_foreign(store, index, row, reader->foreign, err);
}

fl_store_foreign fl_store_reader_foreign(const fl_store_reader *reader) { return reader->foreign; }

void fl_store_set_facts(fl_store *store, fl_facts *facts) { store->facts = facts; }

fl_facts *fl_store_facts(const fl_store *store) { return store->facts; }

bool fl_store_knows(const fl_store *store, uint64_t index) {
    return store->facts && fl_facts_stamp(store->facts, index);
}

void fl_store_learn(const fl_store *store, uint64_t index, uint32_t crc, fl_span found) {
    if (store->facts) fl_facts_learn(store->facts, index, stamp_of(crc), found);
}

bool fl_store_is_foreign(const fl_store *store, uint64_t index) {
    return store->shard[fl_store_shard_of(store, index)].foreign;
}

bool fl_store_vouches(const fl_store *store, uint64_t index) {
    const shard *s = NULL;
    fl_store_row row = {0};
    if (find_shard(store, index, &s, NULL) || find_place(s, index, &row, NULL)) return false;
    return !s->foreign || row.crc || fl_store_knows(store, index);
}

size_t fl_store_head(const fl_store *store, uint64_t index, uint8_t *into) {
    fl_store_row row;
    if (store_check(store, NULL) || index >= store->count) return 0;
    const shard *s = &store->shard[fl_store_shard_of(store, index)];
    if (find_place(s, index, &row, NULL) || (s->pointed && follow(store, s, &row, NULL))) return 0;
    const size_t size = row.place.size < FL_STORE_HEAD ? row.place.size : FL_STORE_HEAD;
    return read_file(store, s, into, size, fl_store_place_offset(row.place), NULL) ? 0 : size;
}

fl_page_cache *fl_store_images(fl_store *store) { return &store->images; }

bool fl_store_ahead(fl_store *store, uint64_t index) {
    fl_store_row row;
    fl_open_file file;
    if (store_check(store, NULL) || index >= store->count) return false;
    const shard *s = &store->shard[fl_store_shard_of(store, index)];
    if (find_place(s, index, &row, NULL) || (s->pointed && follow(store, s, &row, NULL))) return false;
    if (take_file(store, s, &file, NULL)) return false;
    const bool there =
        fl_page_cache_ahead(&store->cache, file.fd, fl_store_place_offset(row.place), row.place.size, SMALL);
    give_file(store, file);
    return there;
}

bool fl_store_warm(const fl_store *store) { return fl_page_cache_warm(&store->cache); }
