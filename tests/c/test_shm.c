/* Slots in shared memory cannot shrink under a reader; a unit of work is claimed once, by whichever thread or
 * process; a worker ends with the process it works for. Under the thread sanitizer too. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdint.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include "engine/shm.h"
#include "engine/watch.h"
#include "check.h"

enum { BYTES = 10000, UNITS = 500, THREADS = 4, CHILDREN = 3, BATCHES = 20, PATIENCE_MS = 20000 };

static int is_open(int fd) { return fcntl(fd, F_GETFD) >= 0; }

static int ended_well(pid_t child) {
    int status;
    return waitpid(child, &status, 0) == child && WIFEXITED(status) && WEXITSTATUS(status) == 0;
}

/* 1 when `child` ends within PATIENCE_MS, whatever it was doing; its status in *status. */
static int ended(pid_t child, int *status) {
    for (int waited = 0; waited < PATIENCE_MS; waited += 10) {
        pid_t got = waitpid(child, status, WNOHANG);
        if (got == child) return 1;
        if (got < 0) return 0;
        usleep(10000);
    }
    kill(child, SIGKILL);
    waitpid(child, status, 0);
    return 0;
}

static void send_fd(int to, int fd) {
    char control[CMSG_SPACE(sizeof fd)] = {0}, byte = 'x';
    struct iovec part = {&byte, 1};
    struct msghdr message = {
        .msg_iov = &part, .msg_iovlen = 1, .msg_control = control, .msg_controllen = sizeof control};
    struct cmsghdr *head = CMSG_FIRSTHDR(&message);
    head->cmsg_level = SOL_SOCKET, head->cmsg_type = SCM_RIGHTS, head->cmsg_len = CMSG_LEN(sizeof fd);
    memcpy(CMSG_DATA(head), &fd, sizeof fd);
    CHECK(sendmsg(to, &message, 0) == 1);
}

static int receive_fd(int from) {
    char control[CMSG_SPACE(sizeof(int))], byte;
    struct iovec part = {&byte, 1};
    struct msghdr message = {
        .msg_iov = &part, .msg_iovlen = 1, .msg_control = control, .msg_controllen = sizeof control};
    CHECK(recvmsg(from, &message, MSG_CMSG_CLOEXEC) == 1);
    int fd;
    memcpy(&fd, CMSG_DATA(CMSG_FIRSTHDR(&message)), sizeof fd);
    return fd;
}

/* What one process writes the other reads; the creator may let go of its descriptor and its mapping first. */
static void across_a_fork(void) {
    fl_error err;
    fl_shm made;
    int ends[2];
    char byte;
    CHECK(socketpair(AF_UNIX, SOCK_STREAM, 0, ends) == 0);
    pid_t child = fork();
    if (child == 0) {
        fl_shm got;
        int fd = receive_fd(ends[1]);
        if (fl_shm_attach(fd, &got, &err) != FL_OK || got.bytes < BYTES || got.fd != fd) _exit(2);
        fl_shm_release_fd(&got);
        if (is_open(fd) || ((uint8_t *)got.data)[BYTES - 1] != 7) _exit(3);
        ((uint8_t *)got.data)[0] = 9;
        if (write(ends[1], "x", 1) != 1 || read(ends[1], &byte, 1) != 1) _exit(4);
        _exit(((uint8_t *)got.data)[1] == 5 ? 0 : 5);
    }
    CHECK(fl_shm_create(BYTES, &made, &err) == FL_OK && made.bytes >= BYTES && made.bytes % 4096 == 0);
    uint8_t *data = made.data;
    for (size_t i = 0; i < made.bytes; i++) CHECK(data[i] == 0);
    data[BYTES - 1] = 7;
    send_fd(ends[0], made.fd);
    CHECK(read(ends[0], &byte, 1) == 1 && data[0] == 9);
    data[1] = 5;
    fl_shm_close(&made);
    CHECK(made.data == NULL && made.fd == -1 && made.bytes == 0);
    fl_shm_close(&made);
    CHECK(write(ends[0], "x", 1) == 1);
    CHECK(ended_well(child));
    close(ends[0]), close(ends[1]);
}

/* No one who holds the descriptor can shrink a slot, or take its seal away. */
static void seals(void) {
    fl_error err;
    fl_shm shm;
    CHECK(fl_shm_create(BYTES, &shm, &err) == FL_OK);
    CHECK(ftruncate(shm.fd, 0) == -1 && errno == EPERM);
    CHECK(ftruncate(shm.fd, 1 << 20) == -1 && errno == EPERM);
    CHECK(fcntl(shm.fd, F_ADD_SEALS, F_SEAL_WRITE) == -1 && errno == EPERM);
    CHECK(fcntl(shm.fd, F_GETFD) & FD_CLOEXEC);
    fl_shm_close(&shm);
}

/* Out of descriptors is neither a full queue nor a lack of memory. */
static void no_descriptor(void) {
    fl_error err;
    fl_shm shm;
    struct rlimit before;
    CHECK(getrlimit(RLIMIT_NOFILE, &before) == 0);
    CHECK(setrlimit(RLIMIT_NOFILE, &(struct rlimit){0, before.rlim_max}) == 0);
    const fl_code code = fl_shm_create(BYTES, &shm, &err);
    CHECK(setrlimit(RLIMIT_NOFILE, &before) == 0);
    CHECK(code == FL_ERESOURCE && err.sys == EMFILE && strstr(err.text, "ulimit -n"));
    CHECK(shm.data == NULL && shm.fd == -1);
}

static void refuse(int fd) {
    fl_error err;
    fl_shm shm;
    CHECK(fl_shm_attach(fd, &shm, &err) == FL_EARG);
    CHECK(shm.data == NULL && shm.fd == -1 && shm.bytes == 0);
    CHECK(fd < 0 || !is_open(fd));
    fl_shm_close(&shm);
}

/* Memory that could shrink under us is refused, and the descriptor taken all the same. */
static void strangers(void) {
    int fd = memfd_create("unsealed", MFD_CLOEXEC | MFD_ALLOW_SEALING);
    CHECK(fd >= 0 && ftruncate(fd, BYTES) == 0);
    refuse(fd);
    fd = memfd_create("unsealable", MFD_CLOEXEC);
    CHECK(fd >= 0 && ftruncate(fd, BYTES) == 0);
    refuse(fd);
    fd = memfd_create("empty", MFD_CLOEXEC | MFD_ALLOW_SEALING);
    CHECK(fd >= 0 && fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK) == 0);
    refuse(fd);
    FILE *file = tmpfile();
    CHECK(file != NULL && ftruncate(fileno(file), BYTES) == 0);
    refuse(dup(fileno(file)));
    fclose(file);
    int ends[2];
    CHECK(pipe(ends) == 0);
    refuse(ends[0]);
    close(ends[1]);
    fl_error err;
    fl_shm shm;
    fd = memfd_create("read only", MFD_CLOEXEC | MFD_ALLOW_SEALING);
    CHECK(fd >= 0 && ftruncate(fd, BYTES) == 0 && fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_WRITE) == 0);
    CHECK(fl_shm_attach(fd, &shm, &err) == FL_ENOMEM && shm.data == NULL && !is_open(fd));
}

static void sizes(void) {
    fl_error err;
    fl_shm shm;
    const size_t wrong[] = {0, SIZE_MAX, SIZE_MAX - 4094, (size_t)INT64_MAX + 1};
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        CHECK(fl_shm_create(wrong[i], &shm, &err) == FL_EARG);
        CHECK(shm.data == NULL && shm.fd == -1);
    }
    CHECK(fl_shm_create((size_t)1 << 60, &shm, &err) == FL_ENOMEM);
    CHECK(strstr(err.text, "1152921504606846976") != NULL);
    CHECK(shm.data == NULL && shm.fd == -1);
}

typedef struct claims {
    const fl_shm *tickets;
    _Atomic uint32_t *taken; /* by batch and unit */
} claims;

static void claim_all(const claims *c) {
    for (uint32_t batch = 1; batch <= BATCHES; batch++) {
        int64_t unit;
        while ((unit = fl_ticket_claim(c->tickets, batch, batch, UNITS)) >= 0)
            atomic_fetch_add(&c->taken[batch * UNITS + unit], 1);
    }
}

static void *claimer(void *opaque) {
    claim_all(opaque);
    return NULL;
}

/* Threads and processes claim at once: each unit of each batch goes to exactly one of them. */
static void claimed_once(void) {
    fl_error err;
    fl_shm tickets, counts;
    CHECK(fl_shm_create(4096, &tickets, &err) == FL_OK);
    CHECK(fl_shm_create((BATCHES + 1) * UNITS * sizeof(uint32_t), &counts, &err) == FL_OK);
    claims shared = {&tickets, counts.data};
    for (uint32_t batch = 1; batch <= BATCHES; batch++) fl_ticket_open(&tickets, batch, batch);
    pid_t children[CHILDREN];
    for (int i = 0; i < CHILDREN; i++)
        if ((children[i] = fork()) == 0) {
            claim_all(&shared);
            _exit(0);
        }
    pthread_t threads[THREADS];
    for (int i = 0; i < THREADS; i++) CHECK(pthread_create(&threads[i], NULL, claimer, &shared) == 0);
    for (int i = 0; i < THREADS; i++) pthread_join(threads[i], NULL);
    for (int i = 0; i < CHILDREN; i++) CHECK(ended_well(children[i]));
    for (uint32_t batch = 1; batch <= BATCHES; batch++) {
        for (int unit = 0; unit < UNITS; unit++) CHECK(shared.taken[batch * UNITS + unit] == 1);
        CHECK(fl_ticket_claim(&tickets, batch, batch, UNITS) == -1);
    }
    fl_shm_close(&tickets), fl_shm_close(&counts);
}

/* Who comes late, when the word serves another batch, gets nothing and takes nothing; indices beyond the
 * memory wrap around. */
static void late(void) {
    fl_error err;
    fl_shm tickets;
    CHECK(fl_shm_create(4096, &tickets, &err) == FL_OK);
    CHECK(fl_ticket_claim(&tickets, 1, 1, 3) == -1); /* never opened */
    fl_ticket_open(&tickets, 1, 1);
    CHECK(fl_ticket_claim(&tickets, 1, 1, 3) == 0);
    fl_ticket_open(&tickets, 1 + 512, 1 + 512); /* the same word: 4096 bytes hold 512 */
    CHECK(fl_ticket_claim(&tickets, 1, 1, 3) == -1);
    for (int unit = 0; unit < 3; unit++) CHECK(fl_ticket_claim(&tickets, 513, 513, 3) == unit);
    CHECK(fl_ticket_claim(&tickets, 513, 513, 3) == -1 && fl_ticket_claim(&tickets, 513, 513, 0) == -1);
    fl_ticket_open(&tickets, UINT32_MAX, UINT32_MAX);
    CHECK(fl_ticket_claim(&tickets, UINT32_MAX, UINT32_MAX, 1) == 0);
    CHECK(fl_ticket_claim(&tickets, UINT32_MAX % 512, 0, 1) == -1);
    fl_shm_close(&tickets);
}

static void forks_counted(void) {
    uint64_t before = fl_shm_forks();
    pid_t child = fork();
    if (child == 0) _exit(fl_shm_forks() == before + 1 ? 0 : 1);
    CHECK(ended_well(child) && fl_shm_forks() == before + 1);
}

/* A worker that never returns from what it does ends when the process it watches is killed. */
static void watched(void) {
    fl_error err;
    int ready[2], status;
    char byte;
    CHECK(pipe(ready) == 0);
    pid_t master = fork();
    if (master == 0) {
        for (;;) pause();
    }
    pid_t worker = fork();
    if (worker == 0) {
        if (fl_watch_process(master, &err) != FL_OK || write(ready[1], "x", 1) != 1) _exit(1);
        for (;;) pause();
    }
    CHECK(read(ready[0], &byte, 1) == 1);
    usleep(50000);
    CHECK(waitpid(worker, &status, WNOHANG) == 0); /* not before its time */
    kill(master, SIGKILL);
    waitpid(master, &status, 0);
    CHECK(ended(worker, &status) && WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL);
    worker = fork();
    if (worker == 0) {
        if (fl_watch_process(master, &err) != FL_OK) _exit(1); /* gone already */
        for (;;) pause();
    }
    CHECK(ended(worker, &status) && WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL);
    close(ready[0]), close(ready[1]);
}

static volatile sig_atomic_t heard;
static void hear(int number) {
    (void)number;
    heard = 1;
}

/* The watching thread takes no signal that is meant for the threads of the program. */
static void signals_pass_by(void) {
    fl_error err;
    pid_t child = fork();
    if (child == 0) {
        struct sigaction action = {.sa_handler = hear};
        sigaction(SIGUSR1, &action, NULL);
        sigset_t mask, before;
        sigemptyset(&mask), sigaddset(&mask, SIGUSR1);
        if (fl_watch_process(getppid(), &err) != FL_OK) _exit(1);
        pthread_sigmask(SIG_BLOCK, &mask, &before);
        kill(getpid(), SIGUSR1);
        usleep(50000);
        if (heard || sigismember(&before, SIGUSR1))
            _exit(2); /* only a thread that blocks nothing could have heard it */
        pthread_sigmask(SIG_SETMASK, &before, NULL);
        _exit(heard ? 0 : 3);
    }
    CHECK(ended_well(child));
}

int main(void) {
    across_a_fork();
    seals();
    no_descriptor();
    strangers();
    sizes();
    claimed_once();
    late();
    forks_counted();
    watched();
    signals_pass_by();
    puts("shm, watch: ok");
    return 0;
}
