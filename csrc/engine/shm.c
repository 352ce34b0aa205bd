#define _GNU_SOURCE
#include "engine/shm.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdatomic.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include "engine/map.h"

#define SEALS (F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL)

enum { PAGE = 4096, TAIL = PAGE /* a page behind the memory: the word of its offer */ };

static _Atomic uint64_t forks;

static void count_fork(void) { atomic_fetch_add_explicit(&forks, 1, memory_order_relaxed); }

__attribute__((constructor)) static void count_forks(void) { pthread_atfork(count_fork, NULL, NULL); }

uint64_t fl_shm_forks(void) { return atomic_load_explicit(&forks, memory_order_relaxed); }

typedef fl_mapped (*mapper)(int fd, size_t bytes, void **data);

static fl_code map(fl_shm *shm, mapper mapper, fl_error *err) {
    const fl_mapped mapped = mapper(shm->fd, shm->bytes + TAIL, &shm->data);
    if (mapped == FL_MAP_REFUSED)
        return fl_fail_sys(err, FL_ENOMEM, errno, "mapping %zu bytes of shared memory", shm->bytes);
    if (mapped == FL_MAP_SHORT)
        return fl_fail(
            err, FL_ENOMEM,
            "a batch needs %zu bytes and memory ran out: lower batch_size, prefetch_factor or num_workers",
            shm->bytes);
    return FL_OK;
}

static fl_code finish(fl_shm *shm, fl_code code) {
    if (code) {
        close(shm->fd);
        *shm = (fl_shm){NULL, 0, -1};
    }
    return code;
}

static fl_code create(size_t bytes, mapper mapper, fl_shm *out, fl_error *err) {
    *out = (fl_shm){NULL, (bytes + PAGE - 1) & ~(size_t)(PAGE - 1), -1};
    const size_t whole = out->bytes + TAIL;
    if (!bytes || bytes > (size_t)INT64_MAX || whole > (size_t)INT64_MAX)
        return fl_fail(err, FL_EARG, "a batch of %zu bytes", bytes);
    out->fd = memfd_create("fastload", MFD_CLOEXEC | MFD_ALLOW_SEALING);
    if (out->fd < 0 && (errno == EMFILE || errno == ENFILE))
        return fl_fail_sys(
            err, FL_ERESOURCE, errno,
            "no file descriptor for a batch of %zu bytes (raise the limit, ulimit -n, or hold fewer batches)",
            out->bytes);
    if (out->fd < 0)
        return fl_fail_sys(err, FL_ENOMEM, errno, "a batch needs %zu bytes of shared memory", out->bytes);
    struct rlimit limit;
    if (getrlimit(RLIMIT_FSIZE, &limit) == 0 && limit.rlim_cur < whole)  /* no SIGXFSZ */
        return finish(
            out,
            fl_fail(err, FL_ERESOURCE,
                    "a batch needs %zu bytes of shared memory, and files have a limit of %llu bytes here: "
                    "raise RLIMIT_FSIZE (ulimit -f)",
                    out->bytes, (unsigned long long)limit.rlim_cur));
    if (ftruncate(out->fd, (off_t)whole) != 0 || fcntl(out->fd, F_ADD_SEALS, SEALS) != 0)
        return finish(
            out, fl_fail_sys(err, FL_ENOMEM, errno, "a batch needs %zu bytes of shared memory", out->bytes));
    return finish(out, map(out, mapper, err));
}

fl_code fl_shm_create(size_t bytes, fl_shm *out, fl_error *err) { return create(bytes, fl_map, out, err); }

fl_code fl_shm_create_sparse(size_t bytes, fl_shm *out, fl_error *err) {
    return create(bytes, fl_map_sparse, out, err);
}

static fl_code attach(int fd, mapper mapper, fl_shm *out, fl_error *err) {
    *out = (fl_shm){NULL, 0, fd};
    struct stat st;
    int seals = fcntl(fd, F_GET_SEALS);
    if (seals < 0 || !(seals & F_SEAL_SHRINK) || fstat(fd, &st) != 0 || st.st_size <= TAIL)
        return finish(out, fl_fail(err, FL_EARG, "file descriptor %d is no slot", fd));
    out->bytes = (size_t)st.st_size - TAIL;
    return finish(out, map(out, mapper, err));
}

fl_code fl_shm_attach(int fd, fl_shm *out, fl_error *err) { return attach(fd, fl_map, out, err); }

fl_code fl_shm_attach_sparse(int fd, fl_shm *out, fl_error *err) {
    return attach(fd, fl_map_sparse, out, err);
}

void fl_shm_release_fd(fl_shm *shm) {
    if (shm->fd >= 0) close(shm->fd);
    shm->fd = -1;
}

void fl_shm_close(fl_shm *shm) {
    fl_shm_release_fd(shm);
    if (shm->data) munmap(shm->data, shm->bytes + TAIL);
    *shm = (fl_shm){NULL, 0, -1};
}

static _Atomic uint32_t *offer_of(const fl_shm *shm) {
    return (_Atomic uint32_t *)((char *)shm->data + shm->bytes);
}

void fl_shm_offer(const fl_shm *shm) { atomic_store_explicit(offer_of(shm), 1, memory_order_release); }

bool fl_shm_offered(const fl_shm *shm) { return atomic_load_explicit(offer_of(shm), memory_order_relaxed); }

bool fl_shm_accept(const fl_shm *shm) {
    return atomic_exchange_explicit(offer_of(shm), 0, memory_order_acq_rel) == 1;
}

static _Atomic uint64_t *ticket_at(const fl_shm *shm, uint32_t ticket) {
    return (_Atomic uint64_t *)shm->data + ticket % (shm->bytes / sizeof(uint64_t));
}

void fl_ticket_open(const fl_shm *shm, uint32_t ticket, uint32_t batch) {
    atomic_store_explicit(ticket_at(shm, ticket), (uint64_t)batch << 32, memory_order_release);
}

int64_t fl_ticket_claim(const fl_shm *shm, uint32_t ticket, uint32_t batch, uint32_t limit) {
    _Atomic uint64_t *word = ticket_at(shm, ticket);
    uint64_t seen = atomic_load_explicit(word, memory_order_acquire);
    while (seen >> 32 == batch && (uint32_t)seen < limit)
        if (atomic_compare_exchange_weak_explicit(word, &seen, seen + 1, memory_order_acq_rel,
                                                  memory_order_acquire))
            return (uint32_t)seen;
    return -1;
}
