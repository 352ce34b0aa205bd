// poll() of a process in which SIGINT arrives at the last moment: once armed, the first call that would wait
// is interrupted just before it begins.
#define _GNU_SOURCE
#include <dlfcn.h>
#include <poll.h>
#include <signal.h>

int armed;

int poll(struct pollfd *fds, nfds_t count, int timeout) {
    int (*real)(struct pollfd *, nfds_t, int) = dlsym(RTLD_NEXT, "poll");
    if (armed && timeout != 0) {
        armed = 0;
        raise(SIGINT);
    }
    return real(fds, count, timeout);
}
