#define _GNU_SOURCE /* the GNU strerror_r */
#include "common/status.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

fl_code fl_fail(fl_error *err, fl_code code, const char *format, ...) {
    if (err) {
        err->code = code;
        err->sys = 0;
        va_list args;
        va_start(args, format);
        vsnprintf(err->text, sizeof err->text, format, args);
        va_end(args);
    }
    return code;
}

fl_code fl_fail_sys(fl_error *err, fl_code code, int sys, const char *format, ...) {
    if (err) {
        err->code = code;
        err->sys = sys;
        va_list args;
        va_start(args, format);
        vsnprintf(err->text, sizeof err->text, format, args);
        va_end(args);
        char reason[96];
        /* the GNU strerror_r returns its text, which need not be the buffer */
        const char *text = strerror_r(sys, reason, sizeof reason);
        size_t used = strlen(err->text);
        snprintf(err->text + used, sizeof err->text - used, ": %s", text);
    }
    return code;
}
