#define _GNU_SOURCE
#include "store/kept.h"

#include <errno.h>
#include <inttypes.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "common/crc32c.h"
#include "store/place.h"

enum {
    SCANNED = 4096, /* entries that are read at a time */
    LOG_BITS = 16 /* of a place */
};

typedef struct entry {
    uint64_t stamp, place;
    uint32_t size, crc;
} entry;

_Static_assert(sizeof(entry) == FL_KEPT_ENTRY, "as it lies in the file");

/* A log that is appended to. */
typedef struct appended {
    int fd; /* -1: none */
    uint32_t number;
    _Atomic uint64_t end;
} appended;

struct fl_kept {
    int table;
    uint64_t count;
    pid_t writer;
    _Atomic int logs[FL_KEPT_LOGS]; /* descriptors plus 1; 0: none */
    appended own[2]; /* by whether their numbers are odd */
    _Atomic uint64_t granted, written, left_out, put[FL_KEPT_PARTS], found[FL_KEPT_PARTS];
    _Atomic int failed;
    pthread_mutex_t lock; /* while an entry is compared and written */
};

static atomic_uint live;

uint32_t fl_kept_live(void) { return atomic_load(&live); }

/* True if all of them were written. */
static bool write_all(int fd, const void *bytes, size_t size, uint64_t at) {
    for (size_t done = 0; done < size;) {
        const ssize_t count = pwrite(fd, (const uint8_t *)bytes + done, size - done, (off_t)(at + done));
        if (count < 0 && errno != EINTR) return false;
        if (count > 0) done += (size_t)count;
    }
    return true;
}

/* True if there were so many. */
static bool read_all(int fd, void *bytes, size_t size, uint64_t at) {
    for (size_t done = 0; done < size;) {
        const ssize_t count = pread(fd, (uint8_t *)bytes + done, size - done, (off_t)(at + done));
        if (count == 0 || (count < 0 && errno != EINTR)) return false;
        if (count > 0) done += (size_t)count;
    }
    return true;
}

static uint64_t place_of(uint64_t index, fl_kept_part part) {
    return FL_KEPT_HEAD + (index * FL_KEPT_PARTS + part) * FL_KEPT_ENTRY;
}

/* Makes the file a table of so many images, where it is none. */
static bool prepare(const fl_kept *kept) {
    uint8_t head[FL_KEPT_HEAD] = {0}, found[FL_KEPT_HEAD];
    memcpy(head, FL_KEPT_MAGIC, 8);
    memcpy(head + 8, &kept->count, sizeof kept->count);
    if (read_all(kept->table, found, sizeof found, 0) && !memcmp(found, head, sizeof head)) return true;
    return ftruncate(kept->table, 0) == 0 && write_all(kept->table, head, sizeof head, 0);
}

fl_code fl_kept_create(fl_kept **out, int table, uint64_t count, fl_error *err) {
    *out = NULL;
    fl_kept *kept = calloc(1, sizeof *kept);
    if (!kept) {
        close(table);
        return fl_fail(err, FL_ENOMEM, "no memory for a table of what is kept");
    }
    atomic_fetch_add(&live, 1);
    pthread_mutex_init(&kept->lock, NULL);
    kept->table = table;
    kept->count = count;
    kept->writer = getpid();
    kept->own[0].fd = kept->own[1].fd = -1;
    if (!prepare(kept)) {
        const fl_code code = fl_fail_sys(err, FL_EIO, errno, "a table of what is kept cannot be written");
        fl_kept_free(kept);
        return code;
    }
    *out = kept;
    return FL_OK;
}

void fl_kept_free(fl_kept *kept) {
    if (!kept) return;
    for (uint32_t i = 0; i < FL_KEPT_LOGS; i++)
        if (atomic_load(&kept->logs[i])) close(atomic_load(&kept->logs[i]) - 1);
    close(kept->table);
    pthread_mutex_destroy(&kept->lock);
    free(kept);
    atomic_fetch_sub(&live, 1);
}

fl_code fl_kept_log(fl_kept *kept, uint32_t number, int fd, fl_error *err) {
    int none = 0;
    if (number >= FL_KEPT_LOGS || !atomic_compare_exchange_strong(&kept->logs[number], &none, fd + 1))
        return fl_fail(err, FL_EARG, "log %" PRIu32 " is there, or not among the first %d", number,
                       FL_KEPT_LOGS);
    return FL_OK;
}

fl_code fl_kept_append(fl_kept *kept, uint32_t number, uint64_t end, fl_error *err) {
    const int fd = number < FL_KEPT_LOGS ? atomic_load(&kept->logs[number]) - 1 : -1;
    if (fd < 0) return fl_fail(err, FL_EARG, "there is no log %" PRIu32, number);
    appended *own = &kept->own[number % 2];
    own->fd = fd, own->number = number;
    atomic_store(&own->end, end);
    return FL_OK;
}

void fl_kept_grant(fl_kept *kept, uint64_t bytes) { atomic_fetch_add(&kept->granted, bytes); }

static uint32_t log_of(const entry *found) { return (uint32_t)found->place & ((1u << LOG_BITS) - 1); }

static uint64_t offset_of(const entry *found) { return found->place >> LOG_BITS; }

static uint32_t crc_of(const entry *found, const void *bytes) {
    return fl_crc32c(fl_crc32c(0, found, offsetof(entry, crc)), bytes, found->size);
}

/* True if there is an entry, of any stamp, that may be one. */
static bool any_entry(const fl_kept *kept, uint64_t index, fl_kept_part part, entry *found) {
    return read_all(kept->table, found, sizeof *found, place_of(index, part)) && found->stamp &&
           log_of(found) < FL_KEPT_LOGS && found->size <= FL_PLACE_MOST;
}

uint64_t fl_kept_stamp(const fl_kept *kept, uint64_t index, fl_kept_part part) {
    entry found;
    return read_all(kept->table, &found, sizeof found, place_of(index, part)) ? found.stamp : 0;
}

bool fl_kept_place(const fl_kept *kept, uint64_t index, fl_kept_part part, int *log, uint64_t *offset,
                   uint32_t *size) {
    entry found;
    if (!any_entry(kept, index, part, &found) || !found.size) return false;
    *log = atomic_load(&kept->logs[log_of(&found)]) - 1, *offset = offset_of(&found), *size = found.size;
    return *log >= 0;
}

bool fl_kept_find(fl_kept *kept, uint64_t index, fl_kept_part part, uint64_t stamp, fl_buffer *buffer,
                  fl_span *bytes) {
    entry found;
    if (!any_entry(kept, index, part, &found) || found.stamp != stamp) return false;
    const int fd = atomic_load(&kept->logs[log_of(&found)]) - 1;
    struct stat st; /* a damaged entry may tell of a gigabyte: no memory is taken for what is not there */
    *bytes = (fl_span){NULL, 0};
    if (found.size && (fd < 0 || fstat(fd, &st) || offset_of(&found) + found.size > (uint64_t)st.st_size ||
                       fl_place_read(fd, offset_of(&found), found.size, buffer, bytes, NULL)))
        return false;
    if (crc_of(&found, bytes->bytes) != found.crc) return false;
    atomic_fetch_add_explicit(&kept->found[part], 1, memory_order_relaxed);
    return true;
}

/* True if that many of the granted bytes are the caller's. */
static bool take(fl_kept *kept, uint64_t bytes) {
    uint64_t written = atomic_load(&kept->written);
    do {
        if (bytes > atomic_load(&kept->granted) - written) {
            atomic_fetch_add(&kept->left_out, 1);
            return false;
        }
    } while (!atomic_compare_exchange_weak(&kept->written, &written, written + bytes));
    return true;
}

bool fl_kept_writes(const fl_kept *kept, uint64_t bytes) {
    return kept->own[0].fd >= 0 && !atomic_load(&kept->failed) && kept->writer == getpid() &&
           bytes <= atomic_load(&kept->granted) - atomic_load(&kept->written);
}

/* Writes an entry; false: the image has another by now, where that is asked, or it cannot be written. */
static bool enter(fl_kept *kept, uint64_t place, const entry *made, bool over, bool *written) {
    entry found;
    pthread_mutex_lock(&kept->lock);
    const bool other = !over && read_all(kept->table, &found, sizeof found, place) && found.stamp &&
                       found.stamp != made->stamp;
    *written = other || write_all(kept->table, made, sizeof *made, place);
    pthread_mutex_unlock(&kept->lock);
    return *written && !other;
}

static bool put(fl_kept *kept, uint64_t index, fl_kept_part part, uint64_t stamp, fl_span bytes, bool over) {
    if (!fl_kept_writes(kept, 0) || !take(kept, bytes.size + FL_KEPT_ENTRY)) return false;
    const bool passes =
        part != FL_KEPT_FORM && kept->own[1].fd >= 0 && fl_kept_stamp(kept, index, FL_KEPT_FORM) != stamp;
    appended *own = &kept->own[passes];
    entry made = {.stamp = stamp, .size = (uint32_t)bytes.size};
    const uint64_t offset = atomic_fetch_add(&own->end, bytes.size);
    made.place = offset << LOG_BITS | own->number;
    made.crc = crc_of(&made, bytes.bytes);
    bool written = write_all(own->fd, bytes.bytes, bytes.size, offset);
    const bool entered = written && enter(kept, place_of(index, part), &made, over, &written);
    int none = 0;
    if (!written) atomic_compare_exchange_strong(&kept->failed, &none, errno);
    if (entered) atomic_fetch_add_explicit(&kept->put[part], 1, memory_order_relaxed);
    return entered;
}

bool fl_kept_put(fl_kept *kept, uint64_t index, fl_kept_part part, uint64_t stamp, fl_span bytes) {
    return put(kept, index, part, stamp, bytes, true);
}

bool fl_kept_put_anew(fl_kept *kept, uint64_t index, fl_kept_part part, uint64_t stamp, fl_span bytes) {
    return put(kept, index, part, stamp, bytes, false);
}

void fl_kept_count(const fl_kept *kept, fl_kept_counts *out) {
    for (int part = 0; part < FL_KEPT_PARTS; part++) {
        out->put[part] = atomic_load(&kept->put[part]);
        out->found[part] = atomic_load(&kept->found[part]);
    }
    out->written = atomic_load(&kept->written);
    out->granted = atomic_load(&kept->granted);
    out->left_out = atomic_load(&kept->left_out);
    out->failed = atomic_load(&kept->failed);
}

void fl_kept_entries(const fl_kept *kept, uint64_t entries[FL_KEPT_PARTS]) {
    entry *some = malloc(SCANNED * sizeof *some);
    memset(entries, 0, FL_KEPT_PARTS * sizeof *entries);
    for (uint64_t at = 0, all = kept->count * FL_KEPT_PARTS; some && at < all; at += SCANNED) {
        const ssize_t size = pread(kept->table, some, SCANNED * sizeof *some,
                                   (off_t)place_of(0, 0) + (off_t)(at * FL_KEPT_ENTRY));
        const uint64_t there = size < 0 ? 0 : (uint64_t)size / sizeof *some;
        for (uint64_t i = 0; i < there; i++) {
            const uint64_t part = (at + i) % FL_KEPT_PARTS;
            entries[part] += some[i].stamp && (part != FL_KEPT_FORM || some[i].size);
        }
        if (there < SCANNED) break;
    }
    free(some);
}
