#define _GNU_SOURCE
#include "store/open_files.h"

#include <inttypes.h>
#include <pthread.h>
#include <stdlib.h>
#include <unistd.h>

static const uint32_t NONE = UINT32_MAX;

/* An open file, or a place for one. */
typedef struct slot {
    int fd; /* -1: free */
    uint32_t number, users;
    /* the neighbours of an open file that nobody uses, in the order of their last use; of a free slot,
     * `older` is the next */
    uint32_t newer, older;
} slot;

struct fl_open_files {
    fl_open_files_open open;
    void *opaque;
    pthread_mutex_t lock; /* guards all that follows */
    uint32_t most, made; /* slots */
    uint32_t newest, oldest, free;
    uint32_t *slot_of, count, room; /* of each file; NONE: it is not open */
    slot slots[];
};

fl_code fl_open_files_create(fl_open_files **out, uint32_t most, fl_open_files_open open, void *opaque,
                             fl_error *err) {
    fl_open_files *files = calloc(1, sizeof *files + most * sizeof *files->slots);
    *out = files;
    if (!files) return fl_fail(err, FL_ENOMEM, "no memory for a table of %" PRIu32 " open files", most);
    const int failed = pthread_mutex_init(&files->lock, NULL);
    if (failed) {
        free(files);
        *out = NULL;
        return fl_fail_sys(err, FL_EIO, failed, "cannot make a table of open files");
    }
    files->open = open, files->opaque = opaque, files->most = most;
    files->newest = files->oldest = files->free = NONE;
    return FL_OK;
}

void fl_open_files_free(fl_open_files *files, bool ours) {
    if (!files) return;
    for (uint32_t i = 0; ours && i < files->made; i++)
        if (files->slots[i].fd >= 0) close(files->slots[i].fd);
    if (ours) pthread_mutex_destroy(&files->lock); /* in a child a thread of the parent may have held it */
    free(files->slot_of);
    free(files);
}

/* Takes a slot out of the order of last use: its file is in use, or about to be closed. */
static void unlink_slot(fl_open_files *files, uint32_t at) {
    const slot *s = &files->slots[at];
    *(s->newer == NONE ? &files->newest : &files->slots[s->newer].older) = s->older;
    *(s->older == NONE ? &files->oldest : &files->slots[s->older].newer) = s->newer;
}

/* Makes it the one used last. */
static void link_slot(fl_open_files *files, uint32_t at) {
    slot *s = &files->slots[at];
    s->newer = NONE, s->older = files->newest;
    *(files->newest == NONE ? &files->oldest : &files->slots[files->newest].newer) = at;
    files->newest = at;
}

/* Takes the least recently used file's descriptor out of its slot; -1: all are in use. */
static int evict(fl_open_files *files, uint32_t *at) {
    *at = files->oldest;
    if (*at == NONE) return -1;
    unlink_slot(files, *at);
    slot *s = &files->slots[*at];
    const int fd = s->fd;
    files->slot_of[s->number] = NONE;
    s->fd = -1;
    return fd;
}

/* Puts an open file with so many users into a slot; *at is NONE where all are in use. Returns the descriptor
 * that had to make room; -1: none. */
static int put(fl_open_files *files, uint32_t number, int fd, uint32_t users, uint32_t *at) {
    int gone = -1;
    if (files->free != NONE) {
        *at = files->free;
        files->free = files->slots[*at].older;
    } else if (files->made < files->most) {
        *at = files->made++;
    } else {
        gone = evict(files, at);
        if (*at == NONE) return -1;
    }
    files->slots[*at] = (slot){.fd = fd, .number = number, .users = users};
    files->slot_of[number] = *at;
    if (!users) link_slot(files, *at);
    return gone;
}

fl_code fl_open_files_add(fl_open_files *files, int fd, fl_error *err) {
    if (files->count == files->room) {
        const uint32_t room = files->room ? 2 * files->room : 1024;
        uint32_t *grown = room > files->room ? realloc(files->slot_of, room * sizeof *grown) : NULL;
        if (!grown) return fl_fail(err, FL_ENOMEM, "no memory for %" PRIu32 " files", room);
        files->slot_of = grown, files->room = room;
    }
    const uint32_t number = files->count++;
    uint32_t at;
    files->slot_of[number] = NONE;
    const int gone = fd < 0 ? -1 : put(files, number, fd, 0, &at);
    if (gone >= 0) close(gone);
    return FL_OK;
}

fl_code fl_open_files_take(fl_open_files *files, uint32_t number, fl_open_file *file, fl_error *err) {
    int opened = -1, gone = -1;
    for (;;) {
        pthread_mutex_lock(&files->lock);
        uint32_t at = files->slot_of[number];
        if (at != NONE) { /* it was open, or another thread was first */
            gone = opened;
            if (files->slots[at].users++ == 0) unlink_slot(files, at);
            *file = (fl_open_file){files->slots[at].fd, at};
        } else if (opened >= 0) {
            gone = put(files, number, opened, 1, &at);
            *file = (fl_open_file){opened, at};
        }
        pthread_mutex_unlock(&files->lock);
        if (at != NONE || opened >= 0) break;
        const fl_code code = files->open(files->opaque, number, &opened, err);
        if (code) return code;
    }
    if (gone >= 0) close(gone);
    return FL_OK;
}

void fl_open_files_give(fl_open_files *files, fl_open_file file) {
    if (file.slot == NONE) { /* it found no slot */
        close(file.fd);
        return;
    }
    pthread_mutex_lock(&files->lock);
    if (--files->slots[file.slot].users == 0) link_slot(files, file.slot);
    pthread_mutex_unlock(&files->lock);
}

bool fl_open_files_spare(fl_open_files *files) {
    uint32_t at;
    pthread_mutex_lock(&files->lock);
    const int gone = evict(files, &at);
    if (gone >= 0) {
        files->slots[at].older = files->free;
        files->free = at;
    }
    pthread_mutex_unlock(&files->lock);
    if (gone >= 0) close(gone);
    return gone >= 0;
}
