#define _GNU_SOURCE
#include "engine/watch.h"

#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdint.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#ifndef SYS_pidfd_open
#define SYS_pidfd_open 434
#endif

static void *watch(void *argument) {
    pid_t pid = (pid_t)(intptr_t)argument;
    int fd = (int)syscall(SYS_pidfd_open, pid, 0);
    if (fd >= 0) {
        struct pollfd wait = {fd, POLLIN, 0};
        while (poll(&wait, 1, -1) < 0 && errno == EINTR) {}
    } else if (errno != ESRCH) { /* no pidfd: an old kernel, or a sandbox; ask twice a second */
        struct timespec half = {0, 500000000};
        while (kill(pid, 0) == 0 || errno == EPERM) nanosleep(&half, NULL);
    }
    kill(getpid(), SIGKILL);
    return NULL;
}

fl_code fl_watch_process(pid_t pid, fl_error *err) {
    sigset_t all, before;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before); /* signals are for the threads that run Python */
    pthread_attr_t small;
    pthread_attr_init(&small);
    pthread_attr_setstacksize(&small, 256 << 10); /* room for the thread-local data of large libraries */
    pthread_attr_setdetachstate(&small, PTHREAD_CREATE_DETACHED);
    pthread_t thread;
    int failed = pthread_create(&thread, &small, watch, (void *)(intptr_t)pid);
    pthread_attr_destroy(&small);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    return failed ? fl_fail_sys(err, FL_ERESOURCE, failed, "no thread to watch process %d", (int)pid) : FL_OK;
}
