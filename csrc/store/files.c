#define _GNU_SOURCE
#include "store/files.h"

#include <inttypes.h>
#include <limits.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "common/clock.h"
#include "store/in_flight.h"
#include "store/page_cache.h"
#include "store/place.h"

/* Bytes of a file. */
typedef struct extent {
    uint64_t offset, size;
} extent;

/* Place of an entry: a part of a file, or, of size 0, all of it. */
typedef struct place {
    uint64_t offset;
    uint32_t size, path;
} place;

struct fl_files {
    char *prefix, *names;
    size_t prefix_size;
    uint64_t paths, count; /* of names; of entries */
    uint64_t *starts;      /* of each name */
    /* of each name, as its file must be; NULL: entries are whole files, whatever they have become */
    uint64_t *stamps;
    place *places; /* of each entry; NULL: entry i is file i */
    uint64_t left; /* kinds of images that are not taken, a bit each */
    fl_facts *facts; /* what is learnt of each entry */
    fl_page_cache cache;
    fl_kept *kept; /* NULL: nothing is kept but in memory */
    fl_files_keeping keeping;
    uint32_t side; /* most pixels of a shorter side; 0: no limit */
    _Atomic uint8_t *fetched; /* of slow files: 1 while one is read; NULL: they are not slow */
    fl_in_flight reads;       /* of these */
    pthread_mutex_t lock;
    pthread_cond_t done; /* one of them was read */
};

static atomic_uint live;

uint32_t fl_files_live(void) { return atomic_load(&live); }

/* Notes where each name starts. */
static fl_code index_names(fl_files *files, size_t size, fl_error *err) {
    size_t at = 0;
    for (uint64_t i = 0; i < files->paths; i++) {
        const char *end = at < size ? memchr(files->names + at, 0, size - at) : NULL;
        if (!end)
            return fl_fail(err, FL_EARG, "%" PRIu64 " paths are fewer than the %" PRIu64 " that were told", i,
                           files->paths);
        const size_t length = (size_t)(end - files->names) - at;
        if (files->prefix_size + length >= PATH_MAX)
            return fl_fail(err, FL_EARG, "path %" PRIu64 " has %zu bytes, and the system takes %d", i,
                           files->prefix_size + length, PATH_MAX - 1);
        files->starts[i] = at;
        at += length + 1;
    }
    if (at != size)
        return fl_fail(err, FL_EARG, "%zu bytes follow the last of %" PRIu64 " paths", size - at,
                       files->paths);
    return FL_OK;
}

static fl_code copy_places(fl_files *files, const fl_files_places *from, fl_error *err) {
    if (from->stamps) memcpy(files->stamps, from->stamps, files->paths * sizeof *files->stamps);
    for (uint64_t i = 0; i < files->count; i++) {
        const place at = {from->offsets[i], from->sizes[i], from->paths[i]};
        if (at.path >= files->paths)
            return fl_fail(err, FL_EARG, "place %" PRIu64 " is in path %" PRIu32 " of %" PRIu64, i, at.path,
                           files->paths);
        if (at.size > FL_PLACE_MOST || at.offset > (uint64_t)INT64_MAX - at.size || (!at.size && at.offset))
            return fl_fail(err, FL_EARG, "place %" PRIu64 " has %" PRIu32 " bytes at %" PRIu64, i, at.size,
                           at.offset);
        files->places[i] = at;
    }
    return FL_OK;
}

static fl_code fill(fl_files *files, const char *prefix, const char *names, size_t size,
                    const fl_files_places *places, fl_error *err) {
    const uint64_t count = files->count;
    files->prefix_size = strlen(prefix);
    files->prefix = strdup(prefix);
    files->names = malloc(size + 1);
    files->starts = calloc(files->paths + 1, sizeof *files->starts);
    bool good = files->prefix && files->names && files->starts;
    if (places) {
        files->stamps = calloc(files->paths + 1, sizeof *files->stamps);
        files->places = calloc(count + 1, sizeof *files->places);
        good = good && files->stamps && files->places;
    }
    if (!good)
        return fl_fail(err, FL_ENOMEM, "no memory for %" PRIu64 " images and paths of %zu bytes", count,
                       size);
    memcpy(files->names, names, size);
    const fl_code code = index_names(files, size, err);
    return code || !places ? code : copy_places(files, places, err);
}

static fl_code create(fl_files **out, const char *prefix, const char *names, size_t size, uint64_t count,
                      const fl_files_places *places, size_t room, fl_error *err) {
    *out = NULL;
    if (count > size || size > PTRDIFF_MAX)
        return fl_fail(err, FL_EARG, "%" PRIu64 " paths do not fit %zu bytes", count, size);
    if (places && places->count > PTRDIFF_MAX / sizeof(place))
        return fl_fail(err, FL_EARG, "%" PRIu64 " places are too many", places->count);
    fl_files *files = calloc(1, sizeof *files);
    if (!files) return fl_fail(err, FL_ENOMEM, "no memory for a list of files");
    atomic_fetch_add(&live, 1);
    files->paths = count;
    files->count = places ? places->count : count;
    pthread_mutex_init(&files->lock, NULL);
    pthread_cond_init(&files->done, NULL);
    fl_in_flight_create(&files->reads);
    fl_code code = fl_facts_create(&files->facts, files->count, room, err);
    if (!code) code = fill(files, prefix, names, size, places, err);
    if (code) {
        fl_files_free(files);
        return code;
    }
    *out = files;
    return FL_OK;
}

fl_code fl_files_create(fl_files **out, const char *prefix, const char *names, size_t size, uint64_t count,
                        size_t room, fl_error *err) {
    return create(out, prefix, names, size, count, NULL, room, err);
}

fl_code fl_files_create_places(fl_files **out, const char *prefix, const char *names, size_t size,
                               uint64_t count, const fl_files_places *places, size_t room, fl_error *err) {
    return create(out, prefix, names, size, count, places, room, err);
}

void fl_files_free(fl_files *files) {
    if (!files) return;
    fl_facts_free(files->facts);
    free(files->prefix);
    free(files->names);
    free(files->starts);
    free(files->stamps);
    free(files->places);
    free(files->fetched);
    fl_in_flight_free(&files->reads);
    pthread_cond_destroy(&files->done);
    pthread_mutex_destroy(&files->lock);
    free(files);
    atomic_fetch_sub(&live, 1);
}

uint64_t fl_files_count(const fl_files *files) { return files->count; }

bool fl_files_upright(const fl_files *files) { return files->places != NULL; }

void fl_files_take_only(fl_files *files, uint64_t kinds) { files->left = ~kinds; }

bool fl_files_takes(const fl_files *files, uint32_t kind) { return kind < 64 && !(files->left >> kind & 1); }

fl_code fl_files_keep(fl_files *files, fl_kept *kept, fl_files_keeping keeping, fl_error *err) {
    if (keeping == FL_FILES_BYTES) {
        files->fetched = calloc(files->count + 1, sizeof *files->fetched);
        if (!files->fetched)
            return fl_fail(err, FL_ENOMEM, "no memory for what is read of %" PRIu64 " files", files->count);
    }
    files->kept = kept;
    files->keeping = keeping;
    fl_facts_keep(files->facts, kept);
    return FL_OK;
}

bool fl_files_keeps(const fl_files *files, fl_files_keeping keeping) {
    return files->kept && files->keeping == keeping;
}

void fl_files_shrink(fl_files *files, uint32_t side) { files->side = side; }

uint32_t fl_files_side(const fl_files *files) { return files->side; }

/* Whether forms are read in the place of files. */
static bool has_forms(const fl_files *files) {
    return files->kept && (files->side || files->keeping == FL_FILES_FORMS);
}

static uint64_t number_of(const fl_files *files, uint64_t index) {
    return files->places ? files->places[index].path : index;
}

static void join_path(const fl_files *files, uint64_t number, char path[PATH_MAX]) {
    memcpy(path, files->prefix, files->prefix_size);
    strcpy(path + files->prefix_size,
           files->names + files->starts[number]); /* index_names() has measured it */
}

static uint64_t stamp_of(const fl_files *files, const struct stat *st) {
    return files->fetched ? fl_place_content_stamp(st) : fl_place_stamp(st);
}

/* The status of the file of an entry, without opening it. */
static bool status_of(const fl_files *files, uint64_t index, struct stat *st) {
    char path[PATH_MAX];
    join_path(files, number_of(files, index), path);
    return stat(path, st) == 0;
}

uint64_t fl_files_now(const fl_files *files, uint64_t index) {
    struct stat st;
    return status_of(files, index, &st) ? stamp_of(files, &st) : 0;
}

/* The part of its file that an entry is. */
static extent part_of(const fl_files *files, uint64_t index, const struct stat *st) {
    const bool whole = !files->places || !files->places[index].size;
    return whole ? (extent){0, (uint64_t)st->st_size}
                 : (extent){files->places[index].offset, files->places[index].size};
}

/* Whether its file is not the one that was listed. */
static bool is_other(const fl_files *files, uint64_t index, const struct stat *st) {
    const uint64_t number = number_of(files, index);
    return files->stamps && files->stamps[number] && files->stamps[number] != fl_place_stamp(st);
}

/* Opens the file of an entry, and tells which part of it the entry is. */
static fl_code open_entry(const fl_files *files, uint64_t index, int *fd, struct stat *st, extent *part,
                          fl_error *err) {
    char path[PATH_MAX];
    join_path(files, number_of(files, index), path);
    fl_code code = fl_place_open(path, fd, st, err);
    if (code) return code;
    *part = part_of(files, index, st);
    if (is_other(files, index, st))
        code = fl_fail(err, FL_EIO, "its file has changed since it was listed: load the dataset again");
    else code = fl_place_check(st, part->offset, part->size, err);
    if (code) close(*fd);
    return code;
}

static fl_code read_entry(const fl_files *files, uint64_t index, fl_buffer *buffer, fl_span *bytes,
                          uint64_t *stamp, fl_error *err) {
    int fd;
    struct stat st;
    extent part;
    fl_code code = open_entry(files, index, &fd, &st, &part, err);
    if (code) return code;
    *stamp = stamp_of(files, &st);
    code = fl_place_read(fd, part.offset, (size_t)part.size, buffer, bytes, err);
    close(fd);
    return code;
}

/* True if the caller is the one thread of this process that reads a slow file, until release(). */
static bool claim(fl_files *files, uint64_t index) {
    uint8_t none = 0;
    return fl_kept_writes(files->kept, 0) && atomic_compare_exchange_strong(&files->fetched[index], &none, 1);
}

static void release(fl_files *files, uint64_t index) {
    pthread_mutex_lock(&files->lock);
    atomic_store(&files->fetched[index], 0);
    pthread_cond_broadcast(&files->done);
    pthread_mutex_unlock(&files->lock);
}

/* Reads a slow file and keeps its bytes; true if they are kept. */
static bool fetch_now(fl_files *files, uint64_t index) {
    struct stat st;
    uint64_t stamp;
    if (!status_of(files, index, &st) ||
        !fl_kept_writes(files->kept, part_of(files, index, &st).size + FL_KEPT_ENTRY) || !claim(files, index))
        return false;
    fl_buffer buffer = {NULL, 0};
    fl_span bytes;
    const bool kept = fl_kept_stamp(files->kept, index, FL_KEPT_BYTES) || /* by the last who claimed it */
                      (!read_entry(files, index, &buffer, &bytes, &stamp, NULL) &&
                       fl_kept_put(files->kept, index, FL_KEPT_BYTES, stamp, bytes));
    fl_buffer_free(&buffer);
    release(files, index);
    return kept;
}

/* The same, ahead of those who decode it. Whether the file is another by now is asked once, by them. */
static bool fetch(fl_files *files, uint64_t index) {
    if (fl_kept_stamp(files->kept, index, FL_KEPT_BYTES) ||
        (files->side && fl_kept_stamp(files->kept, index, FL_KEPT_FORM)))
        return true;
    if (!fl_kept_writes(files->kept, 0)) return false;
    fl_in_flight_enter(&files->reads);
    const bool kept = fl_kept_stamp(files->kept, index, FL_KEPT_BYTES) || fetch_now(files, index);
    fl_in_flight_leave(&files->reads, fl_clock_ns());
    return kept;
}

/* Waits for a thread of this process that is reading it. */
static void await(fl_files *files, uint64_t index) {
    if (!atomic_load(&files->fetched[index]) || !fl_kept_writes(files->kept, 0)) return;
    pthread_mutex_lock(&files->lock);
    while (atomic_load(&files->fetched[index])) pthread_cond_wait(&files->done, &files->lock);
    pthread_mutex_unlock(&files->lock);
}

/* The kept bytes of a slow file. */
static bool find_bytes(fl_files *files, uint64_t index, fl_buffer *buffer, fl_span *bytes, uint64_t *stamp) {
    struct stat st;
    if (!status_of(files, index, &st) || !S_ISREG(st.st_mode) || is_other(files, index, &st)) return false;
    *stamp = stamp_of(files, &st);
    return fl_kept_find(files->kept, index, FL_KEPT_BYTES, *stamp, buffer, bytes) &&
           bytes->size == part_of(files, index, &st).size && bytes->size;
}

/* Reads a slow file, unless its bytes are kept; once, whatever number of threads ask for it. */
static fl_code read_slow(fl_files *files, uint64_t index, fl_buffer *buffer, fl_span *bytes, uint64_t *stamp,
                         fl_error *err) {
    await(files, index);
    if (find_bytes(files, index, buffer, bytes, stamp)) return FL_OK;
    const bool mine = claim(files, index);
    if (!mine) await(files, index);
    fl_code code = FL_OK;
    if (!fl_kept_stamp(files->kept, index, FL_KEPT_BYTES) ||
        !find_bytes(files, index, buffer, bytes, stamp)) {
        code = read_entry(files, index, buffer, bytes, stamp, err);
        if (!code) (void)fl_kept_put(files->kept, index, FL_KEPT_BYTES, *stamp, *bytes);
    }
    if (mine) release(files, index);
    return code;
}

fl_code fl_files_read(fl_files *files, uint64_t index, fl_buffer *buffer, fl_span *bytes, uint64_t *stamp,
                      fl_error *err) {
    if (index >= files->count)
        return fl_fail(err, FL_ENOTFOUND, "there is no file %" PRIu64 " of %" PRIu64, index, files->count);
    return files->fetched ? read_slow(files, index, buffer, bytes, stamp, err)
                          : read_entry(files, index, buffer, bytes, stamp, err);
}

bool fl_files_converted(fl_files *files, uint64_t index, fl_buffer *buffer, fl_span *bytes, uint64_t *stamp) {
    struct stat st;
    if (!has_forms(files) || !fl_kept_stamp(files->kept, index, FL_KEPT_FORM) ||
        !status_of(files, index, &st) || !S_ISREG(st.st_mode) || is_other(files, index, &st))
        return false;
    *stamp = stamp_of(files, &st);
    return fl_kept_find(files->kept, index, FL_KEPT_FORM, *stamp, buffer, bytes) && bytes->size;
}

uint64_t fl_files_to_convert(const fl_files *files, uint64_t index) {
    if (!fl_files_keeps(files, FL_FILES_FORMS)) return 0;
    const uint64_t stamp = fl_kept_stamp(files->kept, index, FL_KEPT_FACTS);
    return stamp && fl_kept_stamp(files->kept, index, FL_KEPT_FORM) == stamp ? 0 : stamp;
}

bool fl_files_has_room(const fl_files *files, uint64_t bytes) {
    return files->kept && fl_kept_writes(files->kept, bytes + FL_KEPT_ENTRY);
}

bool fl_files_convert(fl_files *files, uint64_t index, uint64_t stamp, fl_span form, fl_span found) {
    if (!fl_kept_put(files->kept, index, FL_KEPT_FORM, stamp, form)) return false;
    /* Put anew, so that the bytes that they have now are nobody's. */
    if (files->side && files->fetched)
        (void)fl_kept_put_anew(files->kept, index, FL_KEPT_BYTES, stamp, (fl_span){NULL, 0});
    if (found.size || files->side)
        (void)fl_kept_put_anew(files->kept, index, FL_KEPT_FACTS, stamp,
                               form.size ? (fl_span){NULL, 0} : found);
    return true;
}

fl_facts *fl_files_facts(const fl_files *files) { return files->facts; }

bool fl_files_ahead(fl_files *files, uint64_t index) {
    int fd;
    struct stat st;
    extent part;
    uint64_t offset;
    uint32_t size;
    if (index >= files->count) return false;
    if (files->fetched) return fetch(files, index);
    if (has_forms(files) && fl_kept_place(files->kept, index, FL_KEPT_FORM, &fd, &offset, &size))
        return fl_page_cache_ahead(&files->cache, fd, offset, size, UINT32_MAX);
    if (open_entry(files, index, &fd, &st, &part, NULL)) return false;
    const bool found = fl_page_cache_ahead(&files->cache, fd, part.offset, (uint32_t)part.size, UINT32_MAX);
    close(fd);
    return found;
}

bool fl_files_warm(const fl_files *files) { return fl_page_cache_warm(&files->cache); }
