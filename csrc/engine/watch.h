/* engine/watch: a worker process does not outlive the process it works for. */
#ifndef FL_ENGINE_WATCH_H
#define FL_ENGINE_WATCH_H

#include <sys/types.h>

#include "common/status.h"

/* Starts a thread that ends this process with SIGKILL when process `pid` is gone. It needs no interpreter
 * lock, so it also ends a worker that is inside a long call. Once per process. FL_ERESOURCE: the system
 * starts no thread. */
fl_code fl_watch_process(pid_t pid, fl_error *err);

#endif
